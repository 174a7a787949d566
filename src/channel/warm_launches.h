// Launches that a channel has connected when it is made.
#ifndef COMMSCHED_SRC_CHANNEL_WARM_LAUNCHES_H_
#define COMMSCHED_SRC_CHANNEL_WARM_LAUNCHES_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "commsched/plugin.h"
#include "session/session_spec.h"

namespace commsched {

// A channel does not know what will be submitted to it, and a first launch that
// has something to connect may wait for other ranks in its call. So some are
// expected: each kind in some sizes, of f32, and, among kMostPeers at most, all
// messages between two ranks.
//
// Thread-compatible.
class WarmLaunches {
 public:
  // Each peer takes buffers.
  static constexpr int kMostPeers = 16;

  WarmLaunches(const commsched_backend_t& backend, const GroupSpec& group);
  WarmLaunches(const WarmLaunches&) = delete;
  WarmLaunches& operator=(const WarmLaunches&) = delete;

  // As Communicators::Expect() takes them: of collectives, which are number 0,
  // and of batches, which are 1.
  std::vector<commsched_launch_t*> launches();
  const std::vector<uint32_t>& numbers() const { return numbers_; }

 private:
  void Add(commsched_collective_t kind, uint64_t count, uint32_t number);

  const int size_;
  std::deque<commsched_launch_t> launches_;
  std::deque<std::vector<commsched_member_t>> members_;
  std::vector<uint32_t> numbers_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_WARM_LAUNCHES_H_
