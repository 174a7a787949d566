// How a communicator fails, and how it ends.
#include <algorithm>
#include <thread>

#include "comm.h"

namespace commsched::ucx {
namespace {

// How long the host has to say why a message failed.
constexpr int64_t kSuspicionNs = int64_t{1} * 1000 * 1000 * 1000;
// How long leaving waits for what is under way, and takes what members still
// send that have joined: one that runs late needs that to leave cleanly itself.
constexpr int64_t kLeaveNs = int64_t{2} * 1000 * 1000 * 1000;
// The same for members that have not joined, or are known not to answer.
constexpr int64_t kAbsentNs = int64_t{50} * 1000 * 1000;

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

// Whether `peer` may still have sends under way, which only progress of this
// rank ends. Who has left in good order has none, and says nothing.
bool Comm::MaySend(int peer) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  return peer != rank_ && !other.has_drained &&
         (!other.has_left || other.has_failed);
}

// For how long a communicator that stops takes what others send.
int64_t Comm::PatienceNs() const {
  int64_t patience_ns = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (!MaySend(peer)) continue;
    const bool is_absent =
        !peers_[static_cast<size_t>(peer)].has_joined ||
        network_->IsAbsent(ranks_[static_cast<size_t>(peer)]);
    patience_ns = std::max(patience_ns, is_absent ? kAbsentNs : kLeaveNs);
  }
  return patience_ns;
}

// Who has joined and not answered for so long is gone, and is waited for once.
void Comm::GiveUpOnOthers() {
  for (int peer = 0; peer < size(); ++peer) {
    if (!MaySend(peer) || !peers_[static_cast<size_t>(peer)].has_joined) {
      continue;
    }
    network_->SetAbsent(ranks_[static_cast<size_t>(peer)]);
  }
}

void Comm::TellAll(uint32_t kind) {
  Notice notice;
  notice.kind = kind;
  for (int peer = 0; peer < size(); ++peer) Tell(notice, peer);
}

// After this the memory of launches is not touched any more. Cancels what
// nothing has come for, waits for what is being received, and for the others to
// have done the same; each takes what others still send meanwhile. If a peer is
// gone in the middle of it, or does not come, not for long: what UCX might
// still read then is safe because UCX is not called again.
void Comm::Stop() {
  if (stopped_) return;
  stopped_ = true;
  const commsched_host_t* host = network_->host();
  const int64_t begin_ns = host->now_ns(host->user);
  const auto within = [&](int64_t span_ns) {
    return host->now_ns(host->user) < begin_ns + span_ns;
  };
  for (Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (Message& message : operation.messages) {
      if (message.is_receive) network_->Cancel(&message);
    }
  }
  // Others may need this core to get as far.
  const auto progress = [&] {
    network_->Progress();
    std::this_thread::yield();
  };
  do {
    progress();
  } while (Receives() && within(kLeaveNs));
  TellAll(Notice::kStopped);
  while (IsRead() && within(kLeaveNs)) progress();
  if (IsRead() || Receives()) return network_->Stop();
  TellAll(Notice::kDrained);
  while (within(PatienceNs())) progress();
  GiveUpOnOthers();
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
