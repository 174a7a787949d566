// How a communicator fails, and how it ends.
#include <algorithm>

#include "comm.h"

namespace commsched::ucx {
namespace {

// How long the host has to say why a message failed.
constexpr int64_t kSuspicionNs = int64_t{1} * 1000 * 1000 * 1000;
// How long leaving waits for what is under way.
constexpr int64_t kLeaveNs = int64_t{1} * 1000 * 1000 * 1000;

// How long a rank that has nothing under way takes what others still send.
constexpr int64_t kOthersNs = int64_t{50} * 1000 * 1000;

}  // namespace

// The first sticks.
void Comm::FailLocked(commsched_status_t status, const std::string& reason) {
  if (!failure_.ok() || left_) return;
  failure_ = {status == COMMSCHED_OK ? COMMSCHED_INTERNAL : status, reason};
  network_->Wake();
}

// A message fails when a peer is gone, which the host is about to learn from
// those who know why. If it does not, the message's failure is what there is.
void Comm::Suspect(const std::string& reason) {
  if (!suspicion_.empty()) return;
  suspicion_ = reason;
  suspicion_deadline_ns_ =
      network_->host()->now_ns(network_->host()->user) + kSuspicionNs;
  network_->Wake();
}

void Comm::Abort(commsched_status_t status, const char* message) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  FailLocked(status, message == nullptr ? "" : message);
}

Outcome Comm::Status() {
  const std::lock_guard<std::mutex> lock(network_->mu());
  network_->Progress();
  return failure_;
}

uint32_t Comm::Missing(uint32_t request, int32_t* out_ranks,
                       uint32_t capacity) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  network_->Progress();
  if (request >= operations_.size() || !operations_[request].active) return 0;
  const Operation& operation = operations_[request];
  uint32_t count = 0;
  for (int peer = 0; peer < size(); ++peer) {
    bool is_missing = !operation.heard[static_cast<size_t>(peer)];
    for (const Message& message : operation.messages) {
      // One that nobody has taken over: its receiver has not come.
      is_missing |= message.peer == peer && !message.is_receive &&
                    (message.request != nullptr || message.unread != 0) &&
                    operation.kind == COMMSCHED_SEND;
    }
    if (!is_missing) continue;
    if (count < capacity) out_ranks[count] = peer;
    ++count;
  }
  return count;
}

// Whether memory of launches may still be written to.
bool Comm::Receives() const {
  for (const Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (const Message& message : operation.messages) {
      if (message.is_receive && message.request != nullptr) return true;
    }
  }
  return false;
}

bool Comm::Sends() const {
  return std::any_of(
      operations_.begin(), operations_.end(),
      [](const Operation& operation) { return operation.outstanding != 0; });
}

// Whether memory of launches that this rank has sent may still be read, by a
// peer that has not stopped or, of what is sent without asking, by UCX here.
bool Comm::IsRead() const {
  for (const Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (const Message& message : operation.messages) {
      if (message.is_receive) continue;
      if (message.request == nullptr && message.unread == 0) continue;
      const bool is_eager =
          message.unread == 0 && message.bytes <= network_->eager_bytes();
      if (is_eager || !peers_[static_cast<size_t>(message.peer)].has_stopped) {
        return true;
      }
    }
  }
  return false;
}

bool Comm::AllHaveStopped() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && !peers_[static_cast<size_t>(peer)].has_stopped) {
      return false;
    }
  }
  return true;
}

// After this the memory of launches is not touched any more. Cancels what
// nothing has come for, waits for what is being received, and for the others to
// have done the same; they take what this rank still sends meanwhile. If a peer
// is gone in the middle of it, or does not come, not for long: what UCX might
// still read then is safe because UCX is not called again.
void Comm::Stop() {
  if (stopped_) return;
  stopped_ = true;
  const commsched_host_t* host = network_->host();
  const auto now_ns = [&] { return host->now_ns(host->user); };
  const int64_t begin_ns = now_ns();
  for (Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (Message& message : operation.messages) {
      if (message.is_receive) network_->Cancel(&message);
    }
  }
  do {
    network_->Progress();
  } while (Receives() && now_ns() < begin_ns + kLeaveNs);
  Notice notice;
  notice.kind = Notice::kStopped;
  for (int peer = 0; peer < size(); ++peer) Tell(notice, peer);
  while ((IsRead() && now_ns() < begin_ns + kLeaveNs) ||
         (!AllHaveStopped() && now_ns() < begin_ns + kOthersNs)) {
    network_->Progress();
  }
  if (IsRead() || Receives()) network_->Stop();
}

void Comm::Leave() {
  const std::lock_guard<std::mutex> lock(network_->mu());
  Notice notice;
  notice.kind = Notice::kLeft;
  notice.launches = num_collectives_;
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (operation.kind == COMMSCHED_SEND || operation.IsDone()) continue;
    notice.launches = std::min(notice.launches, operation.number);
  }
  // This may be there before the host's word of what failed.
  notice.has_failed = failure_.ok() ? 0 : 1;
  for (int peer = 0; peer < size(); ++peer) {
    notice.sent = peers_[static_cast<size_t>(peer)].sends;
    notice.received = peers_[static_cast<size_t>(peer)].receives;
    Tell(notice, peer);
  }
  if (Sends() || !failure_.ok()) Stop();
  left_ = true;
  network_->Cancel(&notice_message_);
  network_->Cancel(&answer_message_);
  // The others must hear of it, whoever makes progress next.
  network_->Flush();
  network_->GiveId(id_, tags_);
  if (Sends() || notice_message_.request != nullptr ||
      answer_message_.request != nullptr) {
    network_->Bury(shared_from_this());
  }
}

}  // namespace commsched::ucx
