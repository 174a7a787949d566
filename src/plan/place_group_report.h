#ifndef COMMSCHED_SRC_PLAN_PLACE_GROUP_REPORT_H_
#define COMMSCHED_SRC_PLAN_PLACE_GROUP_REPORT_H_

#include <cstdint>

namespace commsched {

// What the place groups of a plan cost (plan/place.h). Of the smallest arenas
// that the placing finds for the plan's order, which a limit above them is not
// compared with; no part of the fingerprint.
struct PlaceGroupReport {
  uint32_t num_groups = 0;   // that have a buffer; 0: there are none
  uint64_t bytes = 0;        // with the groups
  uint64_t bytes_apart = 0;  // with each buffer placed alone; no more

  uint64_t more() const { return bytes - bytes_apart; }
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PLACE_GROUP_REPORT_H_
