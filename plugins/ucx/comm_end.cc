// How a communicator fails, and how it ends.
#include <algorithm>
#include <thread>

#include "ucx/comm.h"

namespace commsched::ucx {
namespace {

// How long the host has to say why a message failed.
constexpr int64_t kSuspicionNs = int64_t{1} * 1000 * 1000 * 1000;
// For how long members are waited for that have not joined, or are known not to
// answer, and all of them once the time of the failure is over
// (Network::EndByNs).
constexpr int64_t kAbsentNs = int64_t{50} * 1000 * 1000;
// How long what a communicator says as it leaves may take to go out, and after
// the time of a failure.
constexpr int64_t kFlushNs = int64_t{1} * 1000 * 1000 * 1000;
constexpr int64_t kLateFlushNs = int64_t{10} * 1000 * 1000;

}  // namespace

// The first sticks.
void Comm::FailLocked(commsched_status_t status, const std::string& reason) {
  if (!failure_.ok() || left_) return;
  failure_ = {status == COMMSCHED_OK ? COMMSCHED_INTERNAL : status, reason};
  failed_ns_ = network_->host()->now_ns(network_->host()->user);
  end_by_ns_ = network_->EndByNs(made_ns_);
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
  FailLocked(status, message == nullptr ? "" : message);
}

Outcome Comm::Status() {
  const std::lock_guard<std::mutex> lock(network_->mu());
  network_->Progress();
  return failure_;
}

// Whether memory of launches may still be written to.
bool Comm::Receives() const {
  for (const Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (const Message& message : operation.messages) {
      if (message.is_receive && message.IsUnderWay()) return true;
    }
  }
  return false;
}

bool Comm::Sends() const {
  return std::any_of(
      operations_.begin(), operations_.end(),
      [](const Operation& operation) { return operation.outstanding != 0; });
}

bool Comm::IsUnderWay() const {
  return Sends() || answer_message_.request != nullptr ||
         (join_ != nullptr && join_->IsUnderWay()) ||
         (exchange_ != nullptr && exchange_->IsUnderWay());
}

// Whether memory of launches that this rank has sent may still be read, by a
// peer that has not stopped or, of what is sent without asking, by UCX here.
bool Comm::IsRead() const {
  for (const Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (const Message& message : operation.messages) {
      if (message.is_receive) continue;
      if (!message.IsUnderWay() && message.unread == 0) continue;
      const bool is_eager = message.unread == 0 && !message.IsLocal() &&
                            message.bytes <= network_->eager_bytes();
      if (is_eager || !peers_[static_cast<size_t>(message.peer)].has_stopped) {
        return true;
      }
    }
  }
  return false;
}

// Whether `peer` may still have sends under way, which only progress of this
// rank ends. Who has left in good order has none, and says nothing; who has not
// heard of this member has posted none.
bool Comm::MaySend(int peer) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  return other.is_introduced && !other.has_drained &&
         (!other.has_left || other.has_failed);
}

// Until when a communicator that stops takes what others send: `begin_ns` if
// they send nothing, `end_ns` at most.
int64_t Comm::TakesUntilNs(int64_t begin_ns, int64_t end_ns) const {
  int64_t until_ns = begin_ns;
  for (int peer = 0; peer < size(); ++peer) {
    if (!MaySend(peer)) continue;
    const bool is_absent =
        !peers_[static_cast<size_t>(peer)].has_joined ||
        network_->IsAbsent(ranks_[static_cast<size_t>(peer)]);
    until_ns = std::max(until_ns, is_absent ? begin_ns + kAbsentNs : end_ns);
  }
  return until_ns;
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
  for (int peer = 0; peer < size(); ++peer) {
    if (peers_[static_cast<size_t>(peer)].is_introduced) Tell(notice, peer);
  }
}

void Comm::DropUnposted() {
  const auto drop = [&](LinkedQueue<Message>* messages) {
    while (!messages->empty()) {
      Message* const message = messages->front();
      messages->Pop();
      message->place = LocalPlace::kNone;
      Finish(message, UCS_ERR_CANCELED, 0);
    }
  };
  for (Peer& peer : peers_) {
    drop(&peer.unposted);
    drop(&peer.unready);
  }
}

void Comm::BeginStop() {
  stopped_ = true;
  DropPaced();
  DropUnposted();
  LeaveWindow();
  for (Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (Message& message : operation.messages) {
      if (message.is_receive) network_->Cancel(&message);
    }
  }
}

// What is still to be copied from this rank's memory to the host's others.
void Comm::DropLocalSends() {
  for (Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (Message& message : operation.messages) {
      if (!message.is_receive && message.IsLocal()) network_->Cancel(&message);
    }
  }
}

// After this the memory of launches is not touched any more. Cancels what
// nothing has come for, waits for what is being received, and for the others to
// have done the same; each takes what others still send meanwhile. All
// communicators that have failed do so at once, so that several take no longer
// than one. If a peer is gone in the middle of it, or does not come, not for
// long: what UCX might still read then is safe because UCX is not called again.
void Comm::Stop() {
  if (stopped_) return;
  const commsched_host_t* host = network_->host();
  const int64_t begin_ns = host->now_ns(host->user);
  if (end_by_ns_ == 0) end_by_ns_ = network_->EndByNs(made_ns_);
  const int64_t end_ns = std::max(end_by_ns_, begin_ns + kAbsentNs);
  std::vector<Comm*> stopping = {this};
  for (Comm* comm : network_->comms()) {
    if (comm == this || comm->stopped_ || comm->failure_.ok()) continue;
    stopping.push_back(comm);
  }
  const auto any = [&](bool (Comm::*does)() const) {
    return std::any_of(stopping.begin(), stopping.end(),
                       [&](Comm* comm) { return (comm->*does)(); });
  };
  const auto takes_until_ns = [&] {
    int64_t until_ns = begin_ns;
    for (const Comm* comm : stopping) {
      until_ns = std::max(until_ns, comm->TakesUntilNs(begin_ns, end_ns));
    }
    return until_ns;
  };
  // Others may need this core to get as far.
  const auto progress = [&] {
    network_->Progress();
    std::this_thread::yield();
  };
  const auto within = [&](int64_t until_ns) {
    return host->now_ns(host->user) < until_ns;
  };
  for (Comm* comm : stopping) comm->BeginStop();
  if (network_->stopped()) {
    for (Comm* comm : stopping) comm->DropLocalSends();
    return;
  }
  do {
    progress();
  } while (any(&Comm::Receives) && within(end_ns));
  for (Comm* comm : stopping) comm->TellAll(Notice::kStopped);
  while (any(&Comm::IsRead) && within(end_ns)) progress();
  for (Comm* comm : stopping) comm->DropLocalSends();
  if (any(&Comm::IsRead) || any(&Comm::Receives)) return network_->Stop();
  for (Comm* comm : stopping) comm->TellAll(Notice::kDrained);
  while (within(takes_until_ns())) progress();
  // Nobody is judged by the little time that who is late has.
  if (end_ns > begin_ns + kAbsentNs) {
    for (Comm* comm : stopping) comm->GiveUpOnOthers();
  }
}

// The others must hear what this member has said, whoever makes progress next:
// perhaps nobody. Who does not take it in time is waited for once. Who is not
// connected has not met this member, and asks when it wants to.
void Comm::AwaitSent(int64_t deadline_ns) {
  const commsched_host_t* host = network_->host();
  const auto in_time = [&] { return host->now_ns(host->user) < deadline_ns; };
  const auto is_taken = [&](int peer) {
    const int32_t world_rank = ranks_[static_cast<size_t>(peer)];
    return (*unsent_)[static_cast<size_t>(peer)] == 0 ||
           !network_->endpoints()->IsConnected(world_rank) ||
           network_->IsDeaf(world_rank) || network_->IsAbsent(world_rank);
  };
  for (int peer = 0; peer < size() && !network_->stopped(); ++peer) {
    while (!is_taken(peer) && in_time()) {
      network_->Progress();
      std::this_thread::yield();  // Others may need this core to take it.
    }
    if (!is_taken(peer)) network_->SetDeaf(ranks_[static_cast<size_t>(peer)]);
  }
  void* flush = nullptr;
  while (!network_->IsFlushed(&flush) && in_time()) std::this_thread::yield();
  network_->DropFlush(&flush);
}

void Comm::Leave() {
  const std::lock_guard<std::mutex> lock(network_->mu());
  leaves_ = true;
  Notice notice;
  notice.kind = Notice::kLeft;
  notice.tags = tags_;
  notice.rank = rank_;
  notice.launches = num_collectives_;
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (operation.kind == COMMSCHED_SEND || operation.IsDone()) continue;
    notice.launches = std::min(notice.launches, operation.number);
  }
  // This may be there before the host's word of what failed.
  notice.has_failed = failure_.ok() ? 0 : 1;
  for (int peer = 0; peer < size(); ++peer) {
    if (!peers_[static_cast<size_t>(peer)].is_introduced) continue;
    notice.sent = peers_[static_cast<size_t>(peer)].sends;
    notice.received = peers_[static_cast<size_t>(peer)].receives;
    notice.SetReport(ReportTo(peer));
    Tell(notice, peer);
  }
  const bool has_failed = !failure_.ok();
  if (Sends() || has_failed) Stop();
  left_ = true;
  LeaveWindow();
  network_->Remove(this);
  network_->notices()->Left(notice);
  for (int peer = 0; peer < size(); ++peer) {
    const Peer& other = peers_[static_cast<size_t>(peer)];
    if (!other.has_joined || other.is_introduced) continue;
    network_->notices()->AnswerForWhoLeft(tags_, peer,
                                          ranks_[static_cast<size_t>(peer)]);
  }
  network_->Cancel(&answer_message_);
  if (join_ != nullptr) join_->End();
  if (exchange_ != nullptr) exchange_->End();
  // A peer that is gone takes nothing.
  const int64_t now_ns = network_->host()->now_ns(network_->host()->user);
  AwaitSent(has_failed ? std::max(end_by_ns_, now_ns + kLateFlushNs)
                       : now_ns + kFlushNs);
  network_->GiveBackEarly(num_early_);
  network_->GiveId(id_, tags_);
  if (IsUnderWay()) network_->Bury(shared_from_this());
}

}  // namespace commsched::ucx
