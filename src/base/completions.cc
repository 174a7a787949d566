#include "base/completions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace commsched {
namespace {

constexpr size_t kFirstPlaces = 64;

}  // namespace

absl::Status Completions::Reserve() {
  MutexLock lock(&mu_);
  if (num_reserved_ == capacity_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "completions: all ", capacity_,
        " places are taken by requests that have not finished, or whose "
        "completions nobody has taken; take them, or make it larger"));
  }
  if (num_reserved_ == ring_.size()) {
    std::vector<Completion> larger(std::max(kFirstPlaces, 2 * ring_.size()));
    for (size_t i = 0; i < num_; ++i) {
      larger[i] = ring_[(first_ + i) & (ring_.size() - 1)];
    }
    ring_ = std::move(larger);
    first_ = 0;
  }
  ++num_reserved_;
  return absl::OkStatus();
}

void Completions::GiveBack() {
  MutexLock lock(&mu_);
  --num_reserved_;
}

void Completions::Add(const Completion& completion) {
  MutexLock lock(&mu_);
  ring_[(first_ + num_) & (ring_.size() - 1)] = completion;
  ++num_;
  if (num_waiting_ != 0) changed_.SignalOne();
}

size_t Completions::Next(absl::Span<Completion> out, int64_t deadline_ns) {
  MutexLock lock(&mu_);
  // Who does not wait does not sleep, which would give the core away, and
  // leaves a wake-up to those who do.
  if (num_ == 0 && SystemClock::Get().NowNs() >= deadline_ns) return 0;
  while (num_ == 0 && !is_woken_) {
    ++num_waiting_;
    const bool in_time = changed_.WaitUntil(&mu_, deadline_ns);
    --num_waiting_;
    if (!in_time) break;
  }
  if (num_ == 0) {
    is_woken_ = false;
    return 0;
  }
  const size_t count = std::min(num_, out.size());
  for (size_t i = 0; i < count; ++i) {
    out[i] = ring_[(first_ + i) & (ring_.size() - 1)];
  }
  first_ = (first_ + count) & (ring_.size() - 1);
  num_ -= count;
  num_reserved_ -= count;
  // Another thread may have been woken for what is left.
  if (num_ != 0 && num_waiting_ != 0) changed_.SignalOne();
  return count;
}

void Completions::Wake() {
  MutexLock lock(&mu_);
  is_woken_ = true;
  changed_.SignalOne();
}

}  // namespace commsched
