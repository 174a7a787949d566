#include "ucx/algorithms/algorithm.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "ucx/algorithms/packed_launch.h"

namespace commsched::ucx {
namespace {

// What parts of equal members are, as the ranks of any pair have them.
uint32_t NumPairArrays(const commsched_launch_t& launch, int size) {
  constexpr uint64_t kOneChunk = uint64_t{1} << 60;
  PairPack pack(size, ElementBytes(launch.dtype), kOneChunk);
  uint32_t num_arrays = 0;
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    if (launch.members[m].counts != nullptr) {
      ++num_arrays;
    } else {
      pack.Add(launch.members[m].count);
    }
  }
  return num_arrays + static_cast<uint32_t>(pack.num_messages());
}

}  // namespace

uint64_t MemberElements(const commsched_launch_t& launch,
                        const commsched_member_t& member, int size) {
  const auto n = static_cast<uint64_t>(size);
  switch (launch.kind) {
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_REDUCE_SCATTER:
      return member.counts == nullptr
                 ? member.count * n
                 : std::accumulate(member.counts, member.counts + n,
                                   uint64_t{0});
    case COMMSCHED_ALL_TO_ALL:
      return member.counts == nullptr ? member.count * n : 0;
    default:
      return member.count;
  }
}

LaunchShape ShapeOf(const commsched_launch_t& launch, int size) {
  // Sends and receives of a rank are its own affair.
  if (launch.kind == COMMSCHED_SEND) return {.kind = COMMSCHED_SEND};
  LaunchShape shape;
  shape.kind = launch.kind;
  shape.element_bytes = ElementBytes(launch.dtype);
  shape.partial_bytes = shape.element_bytes;
  if (shape.sums()) {
    shape.partial_bytes = PartialBytes(launch.dtype, launch.reduce_op);
  }
  PackRule rule(launch, size);
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    const commsched_member_t& member = launch.members[m];
    shape.elements += MemberElements(launch, member, size);
    shape.num_arrays += rule.IsPacked(member) ? 0 : 1;
  }
  if (rule.has_packed()) ++shape.num_arrays;
  if (launch.kind == COMMSCHED_ALL_TO_ALL) {
    shape.num_arrays = NumPairArrays(launch, size);
    shape.has_one_size =
        launch.num_members == 1 && launch.members[0].counts == nullptr;
  }
  if (launch.kind == COMMSCHED_REDUCE || launch.kind == COMMSCHED_BROADCAST) {
    shape.root = launch.root;
  }
  return shape;
}

LaunchShape WholeShapeOf(const commsched_launch_t& launch, int size) {
  LaunchShape shape = ShapeOf(launch, size);
  if (launch.kind != COMMSCHED_ALL_TO_ALL) return shape;
  const auto n = static_cast<size_t>(size);
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    const uint64_t* const counts = launch.members[m].counts;
    if (counts == nullptr) continue;
    if (HasOwnCounts(launch)) {  // What this rank sends.
      shape.elements += std::accumulate(counts, counts + n, uint64_t{0});
      continue;
    }
    shape.elements += std::accumulate(counts, counts + n * n, uint64_t{0}) / n;
  }
  return shape;
}

int CeilLog2(int count) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1)));
}

}  // namespace commsched::ucx
