#include "recording/submissions.h"

#include "absl/strings/str_cat.h"

namespace commsched {

void Submissions::Add(const Op& op) {
  MutexLock lock(&mu_);
  entries_.emplace_back(op);
}

absl::StatusOr<Submissions::Latest> Submissions::Find(uint32_t op) const {
  const Entry* entry = nullptr;
  {
    MutexLock lock(&mu_);
    if (op >= entries_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("wait: op ", op, " is not among the ", entries_.size(),
                       " that were declared"));
    }
    entry = &entries_[op];  // Entries stay where they are.
  }
  if (entry->is_removed.load(std::memory_order_acquire)) {
    return absl::InvalidArgumentError(
        absl::StrCat("wait: op '", entry->name, "' has been removed"));
  }
  if (!entry->is_collective) {
    return absl::InvalidArgumentError(
        absl::StrCat("wait: op '", entry->name, "' is a compute op"));
  }
  const uint64_t latest = entry->latest.load(std::memory_order_acquire);
  const uint64_t step = step_.load(std::memory_order_acquire);
  if (step == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "wait: collective '", entry->name, "': no step has begun"));
  }
  if (latest >> kCallBits != step) {
    return absl::FailedPreconditionError(
        absl::StrCat("wait: collective '", entry->name,
                     "' has not been submitted in step ", step - 1));
  }
  return Latest{.step = step - 1,
                .call = static_cast<uint32_t>(latest & kComplete)};
}

}  // namespace commsched
