#ifndef COMMSCHED_SRC_ENGINE_TABLES_KERNELS_H_
#define COMMSCHED_SRC_ENGINE_TABLES_KERNELS_H_

#include <cstdint>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"

namespace commsched::engine {

// The CPU kernels, for the entries that a caller's table leaves NULL. They
// are compiled without contraction of a * b + c, and treat every element, or
// every block of 256, by itself: the bits do not depend on where a shard or a
// bucket ends.
commsched_engine_kernels_t CpuKernels();

// The kernels of one engine, on its compute stream: those of the caller's
// table, and ours in its empty entries. Each is as in
// commsched_engine_kernels_t.
//
// Thread-compatible, as the tables are.
class Kernels {
 public:
  Kernels(const commsched_engine_kernels_t& given,
          const commsched_engine_kernels_t& ours, commsched_stream_t stream)
      : given_(given), ours_(ours), stream_(stream) {}

  commsched_stream_t stream() const { return stream_; }

  Status Adamw(const commsched_adamw_args_t& args) const {
    return Run(&Table::adamw, &args);
  }
  Status Sgd(const commsched_sgd_args_t& args) const {
    return Run(&Table::sgd, &args);
  }
  Status BlockSquares(const void* values, commsched_dtype_t dtype,
                      uint64_t count, double* out_sums) const {
    return Run(&Table::block_squares, values, dtype, count, out_sums);
  }
  Status Zero(void* memory, uint64_t bytes) const {
    return Run(&Table::zero, memory, bytes);
  }
  Status Add(void* into, commsched_dtype_t into_dtype, const void* values,
             commsched_dtype_t dtype, uint64_t count) const {
    return Run(&Table::add, into, into_dtype, values, dtype, count);
  }
  Status Convert(void* into, commsched_dtype_t into_dtype, const void* values,
                 commsched_dtype_t dtype, uint64_t count) const {
    return Run(&Table::convert, into, into_dtype, values, dtype, count);
  }
  Status SumRuns(const commsched_sum_runs_args_t& args) const {
    return Run(&Table::sum_runs, &args);
  }
  Status Decide(const commsched_decide_args_t& args) const {
    return Run(&Table::decide, &args);
  }
  Status Fill(double* values, double value, uint64_t count) const {
    return Run(&Table::fill, values, value, count);
  }
  Status Copy(void* into, const void* from, uint64_t bytes) const {
    return Run(&Table::copy, into, from, bytes);
  }
  Status Synchronize() const { return Run(&Table::synchronize); }

 private:
  using Table = commsched_engine_kernels_t;

  template <typename Entry, typename... Args>
  Status Run(Entry entry, Args... args) const {
    const Table& table = given_.*entry != nullptr ? given_ : ours_;
    return Status::FromCall((table.*entry)(table.user, stream_, args...),
                            "a kernel of the engine");
  }

  const commsched_engine_kernels_t given_, ours_;
  const commsched_stream_t stream_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_TABLES_KERNELS_H_
