#include "recording/finished_submissions.h"

#include <algorithm>
#include <utility>

namespace commsched {

FinishedSubmissions::FinishedSubmissions(
    std::shared_ptr<Completions> completions, const Plan& plan,
    uint32_t num_calls)
    : completions_(std::move(completions)),
      calls_of_launch_(plan.launches.size()),
      calls_(num_calls),
      num_ended_(plan.launches.size()) {
  for (uint32_t call = 0; call < num_calls; ++call) {
    for (const LaunchId launch : plan.LaunchesOf(OpId(call))) {
      calls_[call].launches.push_back(launch.value());
      calls_of_launch_[launch.value()].push_back(call);
    }
  }
}

FinishedSubmissions::~FinishedSubmissions() {
  Fail(absl::StatusCode::kAborted);
}

void FinishedSubmissions::Submitted(uint32_t call, uint64_t step,
                                    const Completion& completion) {
  MutexLock lock(&mu_);
  const uint32_t place = TakeOpen();
  open_[place] = {.completion = completion, .step = step};
  Call* const of = &calls_[call];
  (of->first == kNone ? of->first : open_[of->last].next) = place;
  of->last = place;
  if (of->first != place) return;  // The one before it has not finished.
  if (code_ != absl::StatusCode::kOk || HasEnded(*of, step)) FinishFirst(of);
}

void FinishedSubmissions::LaunchEnded(uint32_t launch, uint64_t step) {
  MutexLock lock(&mu_);
  num_ended_[launch] = step + 1;
  for (const uint32_t call : calls_of_launch_[launch]) {
    Call* const of = &calls_[call];
    while (of->first != kNone && HasEnded(*of, open_[of->first].step)) {
      FinishFirst(of);
    }
  }
}

void FinishedSubmissions::Fail(absl::StatusCode code) {
  MutexLock lock(&mu_);
  if (code_ == absl::StatusCode::kOk) code_ = code;
  for (Call& call : calls_) {
    while (call.first != kNone) FinishFirst(&call);
  }
}

bool FinishedSubmissions::HasEnded(const Call& call, uint64_t step) const {
  return std::all_of(
      call.launches.begin(), call.launches.end(),
      [&](uint32_t launch) { return num_ended_[launch] > step; });
}

void FinishedSubmissions::FinishFirst(Call* call) {
  const uint32_t place = call->first;
  Open& open = open_[place];
  open.completion.code = code_;
  completions_->Add(open.completion);
  call->first = open.next;
  open.next = first_free_;
  first_free_ = place;
}

uint32_t FinishedSubmissions::TakeOpen() {
  if (first_free_ == kNone) {
    open_.emplace_back();
    return static_cast<uint32_t>(open_.size() - 1);
  }
  const uint32_t place = first_free_;
  first_free_ = open_[place].next;
  return place;
}

}  // namespace commsched
