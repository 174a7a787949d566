// A whole job on one thread: the ranks' hosts, streams and lanes take turns as
// a seed says, in virtual time.
#ifndef COMMSCHED_TEST_SUPPORT_VIRTUAL_JOB_H_
#define COMMSCHED_TEST_SUPPORT_VIRTUAL_JOB_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "session/session.h"
#include "test/support/fake_clock.h"
#include "test/support/virtual_device.h"

namespace commsched::test {

// Every rank's host calls before, enqueues the op's work and calls after, in
// planned order, as far ahead of the device as the seed takes it.
//
// One thread.
class VirtualJob {
 public:
  // What `op` of step `step` does on `rank`, when its stream gets to it.
  using Work = std::function<void(int rank, OpId op, uint64_t step)>;
  // What the host calls instead of Session::After, if not null.
  using After = std::function<absl::Status(Session& session, int rank, OpId op,
                                           uint64_t step, Stream* stream)>;

  // Moves something of a transfer drawn by `draw`; false if there is none: how
  // a VirtualBackend takes its turns (StepSome()).
  using Wire = std::function<bool(uint64_t draw)>;
  void set_wire(Wire wire) { wire_ = std::move(wire); }

  // Every spec is made manual, gets the job's clock, and a stream per compute
  // lane.
  static absl::StatusOr<std::unique_ptr<VirtualJob>> Create(
      std::vector<SessionSpec> specs, uint64_t seed);

  // Runs `num_steps` steps on all ranks and drains. The first error of a call,
  // or the failure of a session; kInternal, naming what hangs, if nobody can
  // get on and no clock would help.
  absl::Status Run(uint64_t num_steps, const Work& work,
                   const After& after = nullptr);

  // From now on the host of `rank` makes no more calls.
  void StopHost(int rank) { ranks_[rank].stopped = true; }

  Session& session(int rank) { return *ranks_[rank].session; }
  VirtualStream& stream(int rank, uint32_t lane) {
    return ranks_[rank].streams[lane];
  }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  FakeClock& clock() { return clock_; }

 private:
  struct Rank {
    std::deque<VirtualStream> streams;  // do not move
    std::unique_ptr<Session> session;   // goes first
    uint64_t step = 0;
    uint32_t node = 0;  // of the plan, next in host order
    bool in_step = false;
    bool after_pending = false;  // of `node`, which has had its `before`
    bool stopped = false;
  };

  explicit VirtualJob(uint64_t seed) : random_(seed) {}

  // One call of the host of `rank`; false if it has none left.
  absl::StatusOr<bool> Host(int rank, uint64_t num_steps, const After& after);
  // Lets somebody get on, at random; false if nobody can.
  absl::StatusOr<bool> Turn(uint64_t num_steps, const After& after);
  bool AdvanceClock();
  absl::Status Finish();

  Wire wire_;
  const Work* work_ = nullptr;  // of the Run() that runs
  FakeClock clock_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<uint32_t> order_;  // scratch of Turn
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_VIRTUAL_JOB_H_
