/// What a backend takes a launch to need: which algorithm, what time, what
/// crosses the links between hosts.
#ifndef COMMSCHED_LAUNCH_ESTIMATE_H_
#define COMMSCHED_LAUNCH_ESTIMATE_H_

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_launch_estimate {
  uint64_t struct_size;  ///< Set by commsched_launch_estimate_init().
  /// As the backend's configuration spells it; valid until the process ends.
  /// NULL: it has no names for its ways.
  const char* algorithm;
  /// From where all members have issued it until it is complete, if nothing
  /// else is under way. 0: not known.
  int64_t predicted_ns;
  /// Over the busiest direction of any host's link. 0: none, or not known.
  uint64_t link_bytes;
  /// Sent and received by the rank that has most of them. 0: not known.
  uint64_t messages;
  /// Of a reduction over several hosts: in how many pieces, sums or inputs,
  /// what the ranks of a host have of an element leaves it; of the host with
  /// most. 1: each host sends one sum. 0: nothing is summed up between hosts,
  /// or not known.
  uint32_t pieces;
  uint32_t num_hosts;  ///< That the members are on. 0: not known.
} commsched_launch_estimate_t;

static inline commsched_launch_estimate_t commsched_launch_estimate_init(void) {
  commsched_launch_estimate_t estimate;
  memset(&estimate, 0, sizeof(estimate));
  estimate.struct_size = sizeof(estimate);
  return estimate;
}

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_LAUNCH_ESTIMATE_H_
