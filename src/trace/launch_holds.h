// What is known of how launches were held back, by launch.
#ifndef COMMSCHED_SRC_TRACE_LAUNCH_HOLDS_H_
#define COMMSCHED_SRC_TRACE_LAUNCH_HOLDS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trace/recorder.h"

namespace commsched {

// The holds of a recorder by step and launch, and when launches started. Should
// two sessions share the recorder there are several of a number; the one that
// fits in time is meant.
//
// Thread-compatible.
class LaunchHolds {
 public:
  explicit LaunchHolds(const Recorder& recorder);

  // Of a launch's record, with times that lie where they must: ready no later
  // than its begin, started within it, at its begin if this rank issued it
  // last. Nothing held a launch of which nothing is known.
  Hold Of(const Record& launch) const;
  // The world rank that issued it last; -1: it is not known.
  int LastRankOf(const Record& launch) const;

 private:
  using Launch = std::pair<uint64_t, uint32_t>;

  // Null: none is known.
  const Start* StartOf(const Record& launch) const;

  const int rank_;
  absl::flat_hash_map<Launch, std::vector<Hold>> holds_;
  absl::flat_hash_map<Launch, std::vector<Start>> starts_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_LAUNCH_HOLDS_H_
