// What a launch needs of its arguments, and what members must agree on.
#ifndef COMMSCHED_SRC_COMM_LAUNCH_CHECK_H_
#define COMMSCHED_SRC_COMM_LAUNCH_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "commsched/plugin.h"
#include "graph/types.h"

namespace commsched {

// "all_reduce", or "collective 99".
std::string CollectiveName(commsched_collective_t kind);

// The numbers are the same: src/capi/convert_graph.cc.
inline CollectiveKind KindOf(commsched_collective_t kind) {
  return static_cast<CollectiveKind>(kind);
}

// Whether it has no place in the order of launches.
inline bool IsTagged(const commsched_launch_t& launch) {
  return (launch.flags & COMMSCHED_LAUNCH_TAGGED) != 0;
}
inline bool HasOwnCounts(const commsched_launch_t& launch) {
  return (launch.flags & COMMSCHED_LAUNCH_OWN_COUNTS) != 0;
}

// Elements of one of the parts. Not of a launch with own counts.
inline uint64_t PartElements(const commsched_member_t& member, int64_t part) {
  return member.counts == nullptr ? member.count : member.counts[part];
}

// What a member of a launch has at one rank: from the first byte of its first
// part to the last of its last one, with what lies between strided parts.
struct Extents {
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  // Where in place is allowed: input + input_shift == output + output_shift.
  uint64_t input_shift = 0;
  uint64_t output_shift = 0;
  bool may_be_in_place = false;
};

// Extents at rank `rank` of `size`; InvalidArgument if they overflow.
absl::StatusOr<Extents> ExtentsOf(const commsched_launch_t& launch,
                                  const commsched_member_t& member, int rank,
                                  int size);

// InvalidArgument, naming the argument and its value, unless rank `rank` of
// `size` can take part in `launch`. A stride counts where the side has parts.
// With all flags that there are.
absl::Status CheckLaunch(const commsched_launch_t& launch, uint32_t max_members,
                         int rank, int size);

// A copy without what its kind and reduction do not use, so that copies can be
// compared; and with 0 for what `launch` ends before.
commsched_launch_t Normalized(const commsched_launch_t& launch);

// Hash of what all members of a collective must agree on: everything but
// addresses, strides, and counts of their own. `launch` is normalized.
uint64_t SignatureOf(const commsched_launch_t& launch, int size);

// In what `a` and `b`, whose signatures differ, do so, and both values:
// "rank 0 has dtype f32, rank 3 has f64".
std::string DescribeDifference(const commsched_launch_t& a, int rank_a,
                               const commsched_launch_t& b, int rank_b,
                               int size);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_LAUNCH_CHECK_H_
