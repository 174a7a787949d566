#include "algorithm.h"

#include <bit>

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

LaunchShape ShapeOf(const commsched_launch_t& launch, int size) {
  LaunchShape shape;
  shape.kind = launch.kind;
  shape.num_members = launch.num_members;
  shape.element_bytes = ElementBytes(launch.dtype);
  shape.partial_bytes = shape.element_bytes;
  if (shape.sums()) {
    shape.partial_bytes = PartialBytes(launch.dtype, launch.reduce_op);
  }
  const auto n = static_cast<uint64_t>(size);
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    const commsched_member_t& member = launch.members[m];
    switch (launch.kind) {
      case COMMSCHED_ALL_GATHER:
      case COMMSCHED_REDUCE_SCATTER:
        shape.elements += PartElements(member, n, n);
        break;
      case COMMSCHED_ALL_TO_ALL:  // Counts are those of all pairs.
        shape.elements += member.counts == nullptr
                              ? member.count * n
                              : PartElements(member, n, n * n) / n;
        break;
      default:
        shape.elements += member.count;
    }
  }
  if (launch.kind == COMMSCHED_REDUCE || launch.kind == COMMSCHED_BROADCAST) {
    shape.root = launch.root;
  }
  // Sends and receives of a rank are its own affair.
  if (launch.kind == COMMSCHED_SEND) shape = {.kind = COMMSCHED_SEND};
  return shape;
}

int CeilLog2(int count) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1)));
}

}  // namespace commsched::ucx
