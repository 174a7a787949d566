#ifndef COMMSCHED_SRC_COMM_LANE_AGREEMENT_H_
#define COMMSCHED_SRC_COMM_LANE_AGREEMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "comm/device_lanes.h"
#include "comm/world.h"

namespace commsched {

// What a rank shows of its lanes, and what it asks for.
struct ShownLanes {
  uint32_t most = 0;             // So many there may be.
  std::vector<uint32_t> others;  // By number: borrowed so often, by others.
  struct Key {
    // Of what goes out there: lane of the plan and axis. Keys with a name in
    // common have to have one number.
    std::vector<std::string> names;
    int32_t number = -1;  // Of a lane that it was borrowed by before; or -1.
  };
  std::vector<Key> keys;

  std::string Encode() const;
  static absl::StatusOr<ShownLanes> Decode(absl::string_view bytes);
};

// By rank, the numbers for its keys: those that have a name in common have one
// number, which for what was borrowed before is the one that it has. Others of
// one rank have lanes apart if there are as many; and a number is one that few
// use on the rank where most do. The same whoever computes it.
std::vector<std::vector<uint32_t>> AssignLanes(
    absl::Span<const ShownLanes> ranks);

// As World::BorrowLanes(), but all ranks of the world call it, with one name
// for their `meeting` and each with the keys that it has; and what has
// one axis and lane of the plan has the lane of one number on all. So groups
// that share a lane do so on all ranks that are in both, and their orders can
// be compared there. Blocks up to `timeout_ns`.
absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowSameLanes(
    World* world, int rank, const std::string& meeting,
    absl::Span<const LaneKey> keys, int64_t timeout_ns);

// The same among `members`, ranks of the world of which `rank` is one: only
// they call it.
absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> BorrowSameLanesAmong(
    World* world, int rank, const std::vector<int>& members,
    const std::string& meeting, absl::Span<const LaneKey> keys,
    int64_t timeout_ns);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_LANE_AGREEMENT_H_
