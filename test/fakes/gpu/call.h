#ifndef COMMSCHED_TEST_FAKES_GPU_CALL_H_
#define COMMSCHED_TEST_FAKES_GPU_CALL_H_

#include <nccl.h>

#include <cstddef>
#include <vector>

#include "clocks.h"

namespace fake_gpu {

enum class Kind {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kSend,
  kRecv
};

// A call as a kernel sees it.
struct Call {
  Kind kind = Kind::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  ncclDataType_t dtype = ncclFloat;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  int peer = 0;
  // What inputs are multiplied by, of one that ncclRedOpCreatePreMulSum made,
  // where `op` is ncclSum.
  double scale = 1;
  bool is_scaled = false;

  bool Matches(const Call& other) const {
    return kind == other.kind && count == other.count && dtype == other.dtype &&
           op == other.op && root == other.root && is_scaled == other.is_scaled;
  }
};

size_t SizeOf(ncclDataType_t dtype);

// Of a floating-point type.
double ScalarValue(const void* scalar, ncclDataType_t dtype);

// What a kernel of `rank` reads and writes, of `size` ranks.
std::vector<Range> RangesOf(const Call& call, int rank, int size);

// What `rank` gets, for a collective in which all take part. Into memory apart,
// since peers may still read what is in place.
std::vector<char> Result(const std::vector<Call>& calls, int rank);

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_CALL_H_
