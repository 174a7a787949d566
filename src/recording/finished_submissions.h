// Tells a program's completions which of its submissions have finished.
#ifndef COMMSCHED_SRC_RECORDING_FINISHED_SUBMISSIONS_H_
#define COMMSCHED_SRC_RECORDING_FINISHED_SUBMISSIONS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/completions.h"
#include "base/mutex.h"
#include "exec/launch_listener.h"
#include "plan/plan.h"

namespace commsched {

// Of one frozen plan. A submission has finished once all launches of its call
// have ended in its step, which may be before it is noted: a collective that is
// early goes before it is submitted.
//
// Memory grows with the most that are open at once. Thread-safe.
class FinishedSubmissions final : public LaunchListener {
 public:
  // Op i of `plan` is call i, for `num_calls`.
  FinishedSubmissions(std::shared_ptr<Completions> completions,
                      const Plan& plan, uint32_t num_calls);
  // What is still open finishes as aborted. Nobody calls any more.
  ~FinishedSubmissions() override;
  FinishedSubmissions(const FinishedSubmissions&) = delete;
  FinishedSubmissions& operator=(const FinishedSubmissions&) = delete;

  // `call` has been submitted in `step` of the plan, which counts from 0. A
  // place for `completion` has been reserved. Of one call step by step.
  void Submitted(uint32_t call, uint64_t step, const Completion& completion);
  void LaunchEnded(uint32_t launch, uint64_t step) override;
  // Whatever is open, and what will be, finishes with `code`.
  void Fail(absl::StatusCode code);

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Open {
    Completion completion;
    uint64_t step = 0;
    uint32_t next = kNone;  // of the same call, or of those that are free
  };
  struct Call {
    std::vector<uint32_t> launches;        // constant
    uint32_t first = kNone, last = kNone;  // open, oldest first
  };

  bool HasEnded(const Call& call, uint64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishFirst(Call* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t TakeOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<Completions> completions_;
  std::vector<std::vector<uint32_t>> calls_of_launch_;  // constant

  Mutex mu_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mu_);
  // By launch: steps in which it has ended.
  std::vector<uint64_t> num_ended_ ABSL_GUARDED_BY(mu_);
  std::vector<Open> open_ ABSL_GUARDED_BY(mu_);
  uint32_t first_free_ ABSL_GUARDED_BY(mu_) = kNone;
  absl::StatusCode code_ ABSL_GUARDED_BY(mu_) = absl::StatusCode::kOk;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_FINISHED_SUBMISSIONS_H_
