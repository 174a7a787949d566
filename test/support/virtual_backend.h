// A backend in which a test decides which transfer completes next.
#ifndef COMMSCHED_TEST_SUPPORT_VIRTUAL_BACKEND_H_
#define COMMSCHED_TEST_SUPPORT_VIRTUAL_BACKEND_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "comm/inproc/runner.h"
#include "comm/inproc/transfer.h"
#include "comm/world.h"
#include "commsched/plugin.h"

namespace commsched::test {

class VirtualComm;

// Collectives that all members have posted, and sends that have met their
// receives, lie in a table; nothing moves until the test picks one and says
// Step() or Complete(). So one thread can run the ranks of a job through any
// order of completions, and through every moment at which a transfer may have
// read some of its inputs and written some of its outputs. Bytes are moved by
// the code of the in-process backend, sums in the order of the tree always.
//
// All kinds, strides, lists, sends and receives. As with any backend, launches
// of a communicator are *reported* done in the order of launching.
//
//   VirtualBackend backend(clock);
//   auto world = World::Create(backend.Spec(num_ranks));
//
// Outlives its worlds; several may follow each other. Thread-safe.
class VirtualBackend {
 public:
  // `clock` gives started_ns; nullptr: 0.
  explicit VirtualBackend(const Clock* clock = nullptr);
  ~VirtualBackend();
  VirtualBackend(const VirtualBackend&) = delete;
  VirtualBackend& operator=(const VirtualBackend&) = delete;

  WorldSpec Spec(int size) const;

  // Transfers to choose from. Indices are valid until the next call of Step(),
  // Complete(), Fail(), or of the table.
  size_t num_ready() const;
  // "all_reduce #3 on axis 'dp'", "send from rank 0 to rank 2 on axis 'pp'".
  std::string Describe(size_t index) const;

  // Moves one block of a transfer; whether that was its last, so that it is
  // complete now and gone.
  bool Step(size_t index);
  // The same with a transfer drawn by `draw`; false if there is none.
  bool StepSome(uint64_t draw);
  // Moves all that is left of it.
  void Complete(size_t index);
  // Breaks the communicator of a transfer, before any more of it is moved.
  void Fail(size_t index, absl::Status failure);

  // From now on each poll() steps some transfer, drawn by `seed`: for callers
  // that have no test beside them.
  void StepWhenPolled(uint64_t seed);

  // Communicators that live, over all ranks: 0 once everything is released.
  int num_members() const;
  uint64_t num_completed() const;

 private:
  friend class VirtualComm;
  friend struct VirtualTable;

  // A collective, or a send with its receive.
  struct Moving {
    VirtualComm* comm = nullptr;
    bool is_pair = false;
    // Collective: its number, and what each member posted. Pair: the launches
    // hold the send at 0 and the receive at 1.
    uint64_t number = 0;
    int num_arrived = 0;
    std::vector<commsched_launch_t> launches;
    std::vector<uint32_t> requests;
    // Of a pair: group ranks and members.
    int from = 0, to = 0;
    commsched_member_t send{}, receive{};
    uint64_t next_block = 0;
    uint64_t num_blocks = 0;
    int64_t started_ns = 0;
  };

  std::string DescribeLocked(const Moving& moving) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Moving* NewMovingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FreeLocked(Moving* moving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StepLocked(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool StepSomeLocked(uint64_t draw) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveReadyOfLocked(const VirtualComm* comm)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t NowNs() const { return clock_ == nullptr ? 0 : clock_->NowNs(); }

  const Clock* const clock_;
  commsched_backend_t table_;

  mutable Mutex mu_;
  std::map<std::string, std::unique_ptr<VirtualComm>> comms_
      ABSL_GUARDED_BY(mu_);
  std::vector<Moving*> ready_ ABSL_GUARDED_BY(mu_);
  std::deque<Moving> moving_ ABSL_GUARDED_BY(mu_);  // memory of all
  std::vector<Moving*> free_ ABSL_GUARDED_BY(mu_);
  bool step_when_polled_ ABSL_GUARDED_BY(mu_) = false;
  std::minstd_rand random_ ABSL_GUARDED_BY(mu_);
  int world_size_ ABSL_GUARDED_BY(mu_) = 0;
  int num_members_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t num_completed_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_VIRTUAL_BACKEND_H_
