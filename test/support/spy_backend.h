// A backend that looks on: what sessions hand to the one below, as seen from
// outside of them.
#ifndef COMMSCHED_TEST_SUPPORT_SPY_BACKEND_H_
#define COMMSCHED_TEST_SUPPORT_SPY_BACKEND_H_

#include <string>
#include <vector>

#include "comm/world.h"
#include "commsched/plugin.h"

namespace commsched::test {

class LaunchWatcher {
 public:
  virtual ~LaunchWatcher() = default;
  // The backend has taken a launch of `rank` on communicator `comm`.
  virtual void Launched(int rank, const std::string& comm,
                        const commsched_launch_t& launch) = 0;
  // A poll has said that the launch, the `number`th of `rank` on all its
  // communicators, is done.
  virtual void Done(int rank, uint64_t number) = 0;
};

// One thread. Made before, and outlives, its worlds.
class SpyBackend {
 public:
  explicit SpyBackend(LaunchWatcher* watcher) : watcher_(watcher) {}
  SpyBackend(const SpyBackend&) = delete;
  SpyBackend& operator=(const SpyBackend&) = delete;

  // The world of `inner`, watched. One at a time; the inner one has a poll.
  WorldSpec Spec(const WorldSpec& inner);

 private:
  friend struct SpyTable;

  struct Rank {
    SpyBackend* spy = nullptr;
    void* inner = nullptr;
    int world_rank = 0;
  };
  struct Comm {
    SpyBackend* spy = nullptr;
    void* inner = nullptr;
    int rank = 0;
    std::string id;
    std::vector<uint64_t> number;  // by request
  };

  LaunchWatcher* const watcher_;
  std::vector<uint64_t> num_launched_;  // by rank
  commsched_backend_t table_{};
  const commsched_backend_t* inner_ = nullptr;
  std::string inner_config_;
  void* inner_instance_ = nullptr;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_SPY_BACKEND_H_
