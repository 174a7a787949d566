#include "call.h"

namespace fake_gpu {

size_t SizeOf(ncclDataType_t dtype) {
  switch (dtype) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

std::vector<Range> RangesOf(const Call& call, int rank, int size) {
  const size_t bytes = call.count * SizeOf(call.dtype);
  const size_t all = bytes * static_cast<size_t>(size);
  const Range sends = Reads(call.send, bytes);
  const Range receives = Writes(call.receive, bytes);
  switch (call.kind) {
    case Kind::kAllReduce:
      return {sends, receives};
    case Kind::kReduceScatter:
      return {Reads(call.send, all), receives};
    case Kind::kAllGather:
      return {sends, Writes(call.receive, all)};
    case Kind::kBroadcast:
      if (rank != call.root) return {receives};
      return {sends, receives};
    case Kind::kReduce:
      if (rank != call.root) return {sends};
      return {sends, receives};
    case Kind::kSend:
      return {sends};
    case Kind::kRecv:
      return {receives};
  }
  return {};
}

}  // namespace fake_gpu
