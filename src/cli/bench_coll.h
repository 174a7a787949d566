#ifndef COMMSCHED_SRC_CLI_BENCH_COLL_H_
#define COMMSCHED_SRC_CLI_BENCH_COLL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/types.h"

namespace commsched::cli {

struct BenchCollOptions {
  std::string backend = "ucx";
  std::string config;
  std::vector<std::string> kinds = {"all_reduce", "all_gather",
                                    "reduce_scatter", "all_to_all"};
  uint64_t min_bytes = 4 << 10;
  uint64_t max_bytes = 64 << 20;
  uint64_t factor = 4;  // From one size to the next.
  int iterations = 20;
  int warmup = 5;
  bool by_caller = false;                   // COMMSCHED_PROGRESS_CALLER
  bool by_channel = false;                  // A channel instead of sessions.
  commsched_dtype_t dtype = COMMSCHED_F32;  // Or COMMSCHED_BF16.
  bool deterministic = false;
  bool json = false;
  // Where a profile of the links goes, which is measured instead; "": none.
  std::string profile;
};

// Times collectives among the processes of the job that this is one rank of,
// and checks what they give. Prints, on rank 0, a table in the columns of
// nccl-tests, or JSON lines; or times links (link_bench.h). Returns the exit
// code: 1 if a value was wrong.
int BenchColl(const BenchCollOptions& options);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_BENCH_COLL_H_
