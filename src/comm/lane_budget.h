#ifndef COMMSCHED_SRC_COMM_LANE_BUDGET_H_
#define COMMSCHED_SRC_COMM_LANE_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace commsched {

// What the lanes of a device may take of it together: thread blocks (CTAs),
// which collectives that run side by side all need room for.
struct LaneBudget {
  // NCCL's limit, of a communicator.
  static constexpr uint32_t kMostCtas = 64;
  // Lanes of a device, unless the job says how many it needs.
  static constexpr uint32_t kLanes = 4;
  // Of a device that does not say how many multiprocessors it has.
  static constexpr uint32_t kMultiprocessors = 128;

  uint32_t total = kMultiprocessors;
  uint32_t num_lanes = kLanes;  // That the job says.
  uint32_t least = 1;           // Of a lane.

  // One per multiprocessor, of which the device has so many; 0: it does not
  // say. What `config`, the world's for its backend, has under "max_ctas",
  // "lanes" and "min_ctas" is `total`, `num_lanes` and `least`.
  static LaneBudget Of(int multiprocessors, absl::string_view config);

  // Of a lane that is made for who asks for `num_keys` at once.
  uint32_t Share(size_t num_keys) const;
  // As many lanes of that share as there is room for, and at least `num_keys`:
  // what the backend is told (commsched_comm_desc_t::num_lanes).
  uint32_t NumLanes(size_t num_keys) const;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_LANE_BUDGET_H_
