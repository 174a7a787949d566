#include "ucx/algorithms/algorithm.h"

#include <bit>

#include "ucx/algorithms/packed_launch.h"

namespace commsched::ucx {
namespace {

uint64_t PartElements(const commsched_member_t& member, uint64_t num_parts,
                      uint64_t num_counts) {
  if (member.counts == nullptr) return member.count * num_parts;
  uint64_t elements = 0;
  for (uint64_t i = 0; i < num_counts; ++i) elements += member.counts[i];
  return elements;
}

}  // namespace

uint64_t MemberElements(const commsched_launch_t& launch,
                        const commsched_member_t& member, int size) {
  const auto n = static_cast<uint64_t>(size);
  switch (launch.kind) {
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_REDUCE_SCATTER:
      return PartElements(member, n, n);
    case COMMSCHED_ALL_TO_ALL:  // Counts are those of all pairs.
      return member.counts == nullptr ? member.count * n
                                      : PartElements(member, n, n * n) / n;
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
  if (launch.kind == COMMSCHED_REDUCE || launch.kind == COMMSCHED_BROADCAST) {
    shape.root = launch.root;
  }
  return shape;
}

int CeilLog2(int count) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1)));
}

}  // namespace commsched::ucx
