// A backend with faults: what can go wrong below a session, made to happen.
#ifndef COMMSCHED_TEST_SUPPORT_FAULT_BACKEND_H_
#define COMMSCHED_TEST_SUPPORT_FAULT_BACKEND_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "comm/world.h"
#include "commsched/plugin.h"

namespace commsched::test {

// What goes wrong, at which launches. A failure is local, as one of a network
// card is: it is for the host to tell the other members.
struct Fault {
  enum class Kind {
    kDelay,           // reported done `delay_ns` later than it is
    kLateIssue,       // handed on `delay_ns` later, and all after it
    kAfterNext,       // reported done after the rank's next launch on another
                      // communicator is, or `delay_ns` later
    kFailLaunch,      // launch() fails with `failure`
    kFailPoll,        // poll() does, once it is complete below
    kHang,            // never reported done
    kNeverIssue,      // never handed on, nor is any after it
    kMismatchKind,    // handed on as another kind
    kMismatchCount,   // handed on with one element less
    kShort,           // done, but the end of its output is as it was
    kLoseWakes,       // the host is not woken while it is in flight
    kWakeStorm,       // the host is woken 100 times as often
    kFailCommCreate,  // comm_create() fails with `failure`
  };
  static constexpr int kNumKinds = 13;

  Kind kind = Kind::kDelay;

  // Where: -1 and "" match all.
  int world_rank = -1;
  std::string axis = {};
  int64_t launch = -1;      // number on its communicator, from 0
  int64_t collective = -1;  // commsched_collective_t
  // Of the launches that match, so many in a million, drawn by `seed`.
  uint32_t per_million = 1'000'000;
  uint64_t seed = 0;

  int64_t delay_ns = 0;
  absl::Status failure = absl::DataLossError("injected");
};

// Wraps another backend; where no fault matches, calls go straight through.
//
//   FaultBackend backend({{.kind = Fault::Kind::kHang, .world_rank = 1}});
//   auto world = World::Create(backend.Spec(inner_spec));
//
// Made before, and outlives, its worlds. Thread-safe.
class FaultBackend {
 public:
  // Times of `clock`, which is the one of the sessions.
  explicit FaultBackend(std::vector<Fault> faults,
                        const Clock* clock = &SystemClock::Get());
  ~FaultBackend();
  FaultBackend(const FaultBackend&) = delete;
  FaultBackend& operator=(const FaultBackend&) = delete;

  // From now on, if nothing is in flight: for sessions with a clock of theirs.
  void UseClock(const Clock* clock) { clock_ = clock; }

  // The world of `inner`, with faults. One at a time.
  WorldSpec Spec(const WorldSpec& inner);

  // How often faults happened, by index. A drill that injected nothing shows
  // nothing.
  uint64_t num_injected(size_t fault) const { return num_injected_[fault]; }
  // Members of communicators that live: 0 once everything is released.
  int num_members() const { return num_members_.load(); }
  // Stops matching: what follows a drill goes well.
  void Heal() { healed_.store(true); }

 private:
  friend struct FaultRank;
  friend class FaultComm;
  friend struct FaultTable;

  const std::vector<Fault> faults_;
  const Clock* clock_;
  std::vector<std::atomic<uint64_t>> num_injected_;
  std::atomic<int> num_members_{0};
  std::atomic<bool> healed_{false};

  // By world rank, each written by the thread of that rank's communicators.
  std::vector<uint64_t> num_launched_;
  std::vector<uint64_t> last_done_;

  commsched_backend_t table_{};
  const commsched_backend_t* inner_ = nullptr;
  std::string inner_config_;
  void* inner_instance_ = nullptr;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_FAULT_BACKEND_H_
