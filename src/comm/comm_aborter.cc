#include "comm/comm_aborter.h"

#include <string>

namespace commsched {

void CommAborter::Add(void* comm) {
  MutexLock lock(&mu_);
  comms_.push_back(comm);
  if (!failure_.ok()) AbortLocked();
}

void CommAborter::Close() {
  MutexLock lock(&mu_);
  comms_.clear();
  generation_.reset();
}

void CommAborter::OnFailure(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (!failure_.ok()) return;
  failure_ = why;
  AbortLocked();
}

absl::Status CommAborter::failure() {
  MutexLock lock(&mu_);
  if (!failure_.ok() || generation_ == nullptr) return failure_;
  return generation_->failure();
}

void CommAborter::AbortLocked() {
  if (generation_ != nullptr) generation_->Fail(owner_, who_, failure_);
  if (comms_.empty()) return;
  const std::string message(failure_.message());
  rank_->table().abort(
      rank_->handle(), comms_.data(), static_cast<uint32_t>(comms_.size()),
      static_cast<commsched_status_t>(failure_.code()), message.c_str());
}

}  // namespace commsched
