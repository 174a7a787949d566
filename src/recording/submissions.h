#ifndef COMMSCHED_SRC_RECORDING_SUBMISSIONS_H_
#define COMMSCHED_SRC_RECORDING_SUBMISSIONS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "graph/graph.h"

namespace commsched {

// When each collective was submitted last: for threads that wait for one beside
// the thread that calls.
//
// Find: any thread. All else: the calling thread, which takes no lock in a
// step.
class Submissions {
 public:
  // In place of a call: it ran alone, and is complete.
  static constexpr uint32_t kComplete = (uint32_t{1} << 24) - 1;

  struct Latest {
    uint64_t step = 0;  // of the recording
    uint32_t call = 0;  // of the plan that was frozen then, or kComplete
  };

  // The next op has been declared.
  void Add(const Op& op);
  // `op` is no more. Its entry stays.
  void Remove(uint32_t op) {
    entries_[op].is_removed.store(true, std::memory_order_release);
  }
  void BeginStep(uint64_t step) {
    step_.store(step + 1, std::memory_order_release);
  }
  // The call that `op` was noted with last.
  uint32_t LatestCall(uint32_t op) const {
    return static_cast<uint32_t>(
        entries_[op].latest.load(std::memory_order_relaxed) & kComplete);
  }
  // `op` has been submitted in the step that has begun.
  void Note(uint32_t op, uint32_t call) {
    // Released here, acquired in Find().
    entries_[op].latest.store(
        step_.load(std::memory_order_relaxed) << kCallBits | call,
        std::memory_order_release);
  }

  // The submission of `op` in the step that began last. kInvalidArgument if it
  // is no collective, or no more; kFailedPrecondition, naming it, if there is
  // none.
  absl::StatusOr<Latest> Find(uint32_t op) const;

 private:
  static constexpr int kCallBits = 24;

  struct Entry {
    explicit Entry(const Op& op)
        : name(op.name), is_collective(op.kind == OpKind::kCollective) {}

    const std::string name;
    const bool is_collective;
    std::atomic<bool> is_removed{false};
    // 1 + the step, and the call; 0: never submitted.
    std::atomic<uint64_t> latest{0};
  };

  std::atomic<uint64_t> step_{0};  // 1 + the one that began last; 0: none has
  mutable Mutex mu_;
  // By op. The calling thread adds with mu_ held, and so need not hold it to
  // look; others do.
  std::deque<Entry> entries_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_SUBMISSIONS_H_
