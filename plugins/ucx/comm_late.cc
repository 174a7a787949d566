// Who is late: which members have not issued what a launch waits for, and when
// launches had been issued by all.
//
// Missing data does not tell: it may come by way of others who wait themselves.
// So members are asked how many launches they have posted, and whether they
// wait in one; whoever makes progress for them answers, though they compute.
// Who stands still does not, whatever it has posted.
#include <algorithm>

#include "ucx/comm.h"

namespace commsched::ucx {
namespace {

// How long an answer counts, from when it was asked for, unless it is asked for
// again; what has been posted stays so.
constexpr int64_t kFreshNs = int64_t{2} * 1000 * 1000 * 1000;
// How long it may take to sum up what has come, and to issue what is next,
// until a rank is late itself.
constexpr int64_t kJustNs = int64_t{100} * 1000 * 1000;
// Of larger groups only those are asked that this member has met: connections
// to all would take longer, and more descriptors, than there may be.
constexpr int kMostAskedUnmet = 64;

bool IsOpen(const Message& message) {
  if (message.is_receive) return !message.has_come;
  return message.IsUnderWay() || message.unread != 0;
}

// Of which not everybody needs something of everybody.
bool HasRoot(const Operation& operation) {
  return operation.kind == COMMSCHED_BROADCAST ||
         operation.kind == COMMSCHED_REDUCE;
}

}  // namespace

// ---- Who has not issued ----

// Of most kinds everybody needs something of everybody. Of others only whom a
// message is to come from, or is not taken by; and of a broadcast the root,
// whose data others may hand on.
bool Comm::WaitsFor(const Operation& operation, int peer) const {
  if (peers_[static_cast<size_t>(peer)].has_open) return true;
  switch (operation.kind) {
    case COMMSCHED_SEND:
      return false;
    case COMMSCHED_BROADCAST:
      return peer == operation.root;
    case COMMSCHED_REDUCE:
      return rank_ == operation.root;
    default:
      return true;
  }
}

// Marks what `operation` may be waiting for of each member. All that comes of
// one directly may have come, but not what it hands on: by some algorithms who
// hands on what is to come may itself wait for anybody. Returns whether
// somebody that it waits for is kept in an earlier launch, be it by one that
// it does not wait for.
bool Comm::LookAt(const Operation& operation) {
  const bool is_send = operation.kind == COMMSCHED_SEND;
  for (Peer& peer : peers_) {
    peer.has_open = false;
    peer.has_posted = is_send || peer.launches_posted > operation.number;
  }
  bool has_open_receive = false;
  for (const Message& message : operation.messages) {
    if (!IsOpen(message)) continue;
    Peer& peer = peers_[static_cast<size_t>(message.peer)];
    peer.has_open = true;
    has_open_receive |= message.is_receive;
    if (operation.is_tagged) {
      const bool is_posted = message.is_receive
                                 ? !message.has_no_send
                                 : message.ready_request != Message::kNotReady;
      if (!is_posted) peer.has_posted = false;
      continue;
    }
    if (is_send &&
        message.number >
            (message.is_receive ? peer.sends_posted : peer.receives_posted)) {
      peer.has_posted = false;
    }
  }
  // Sends that are held back are with nobody yet.
  for (size_t i = 0; operation.is_held && i < peers_.size(); ++i) {
    if (early_.IsBehind(static_cast<int>(i))) peers_[i].has_open = true;
  }
  const bool waits_for_others = operation.hands_on && has_open_receive;
  bool any_is_kept = false;
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.may_keep = rank != rank_ &&
                    (waits_for_others || (WaitsFor(operation, rank) &&
                                          (!peer.has_posted || peer.has_open)));
    any_is_kept |=
        peer.may_keep && peer.kept_in != 0 && peer.kept_in <= operation.number;
  }
  return any_is_kept && HasRoot(operation);
}

// The number, from 1, of the first collective that this member is in and that
// others have to get on with, or else had until just now; 0: there is none.
// They, or whom they wait for, are why it has not posted the next one. (Sends
// and receives have no common order: ranks may wait for each other in a
// circle.)
uint64_t Comm::KeptIn(int64_t now_ns) const {
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (operation.kind != COMMSCHED_SEND && !operation.IsDone() &&
        !operation.HasDueStep()) {
      return operation.number + 1;
    }
  }
  return freed_in_ != 0 && now_ns < freed_ns_ + kJustNs ? freed_in_ : 0;
}

// Whether what `peer` has answered is true of `now_ns`.
bool Comm::Counts(const Peer& peer, int64_t now_ns) {
  return peer.answer_counts && now_ns < peer.answer_asked_ns + kFreshNs;
}

// Members that `request` may be waiting for and that `is` is true of. Also
// after a failure: another rank's may come while the host says what it waits
// for.
template <typename Is>
uint32_t Comm::List(uint32_t request, int32_t* out_ranks, uint32_t capacity,
                    const Is& is) {
  if (request >= operations_.size() || !operations_[request].active) return 0;
  const Operation& operation = operations_[request];
  if (operation.IsDone()) return 0;
  const bool any_may_keep = LookAt(operation);
  uint32_t count = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (rank == rank_ || !(any_may_keep || peer.may_keep)) continue;
    if (!is(operation, peer)) continue;
    if (count < capacity) out_ranks[count] = rank;
    ++count;
  }
  return count;
}

uint32_t Comm::Missing(uint32_t request, int32_t* out_ranks,
                       uint32_t capacity) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  network_->Progress();
  const int64_t now_ns = network_->host()->now_ns(network_->host()->user);
  if (capacity == 0 && request < operations_.size() &&
      operations_[request].active) {
    Ask(request, now_ns);
  }
  // Nobody is asked after a failure: what was known then stays.
  const int64_t known_ns = failure_.ok() ? now_ns : failed_ns_;
  uint64_t first_kept_in = UINT64_MAX;
  for (const Peer& peer : peers_) {
    if (peer.kept_in == 0 || !Counts(peer, known_ns)) continue;
    first_kept_in = std::min(first_kept_in, peer.kept_in);
  }
  const auto has_not = [&](const Operation& operation, const Peer& peer) {
    if (peer.has_posted || !Counts(peer, known_ns)) return false;
    if (operation.kind == COMMSCHED_SEND) return true;
    if (peer.kept_in != 0) return false;
    // Whom it does not wait for only if others wait for it.
    return peer.may_keep || (first_kept_in <= operation.number &&
                             peer.launches_posted < first_kept_in);
  };
  return List(request, out_ranks, capacity, has_not);
}

uint32_t Comm::Silent(uint32_t request, int32_t* out_ranks, uint32_t capacity) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  const auto is_asked = [](const Operation& /*operation*/, const Peer& peer) {
    return peer.asked_ns != 0;
  };
  return List(request, out_ranks, capacity, is_asked);
}

void Comm::Ask(uint32_t request, int64_t now_ns) {
  const Operation& operation = operations_[request];
  if (operation.IsDone() || !failure_.ok() || network_->stopped()) return;
  const bool any_may_keep = LookAt(operation);
  may_ask_all_[request] = HasRoot(operation) && !any_may_keep;
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (any_may_keep || peer.may_keep) AskAnew(rank, now_ns);
  }
}

// Somebody has answered that it is kept: who keeps those that a launch waits
// for may be anybody.
void Comm::AskAll(int64_t now_ns) {
  if (!failure_.ok() || network_->stopped()) return;
  for (const uint32_t request : order_) {
    if (!may_ask_all_[request] || operations_[request].IsDone()) continue;
    if (!LookAt(operations_[request])) continue;
    may_ask_all_[request] = false;
    for (int rank = 0; rank < size(); ++rank) {
      if (!peers_[static_cast<size_t>(rank)].may_keep) AskAnew(rank, now_ns);
    }
  }
}

// One question at a time is under way to each.
void Comm::AskAnew(int peer, int64_t now_ns) {
  Peer& other = peers_[static_cast<size_t>(peer)];
  if (peer == rank_ || other.has_left) return;
  if (!other.is_introduced && size() > kMostAskedUnmet) return;
  if (other.asked_ns != 0 && other.is_introduced) {
    other.asks_again = true;
  } else {
    AskPeer(peer, now_ns);
  }
}

void Comm::AskPeer(int peer, int64_t now_ns) {
  Peer& other = peers_[static_cast<size_t>(peer)];
  other.asked_ns = now_ns;
  other.asks_again = false;
  other.answer_counts = false;
  // Who cannot be reached does not answer.
  if (!TryIntroduce(peer).ok()) return;
  Notice notice;
  notice.kind = Notice::kAsked;
  notice.SetLaunches(log_.ReportFrom(FirstOpen()));
  Tell(notice, peer);
}

// Who asks before this member has joined is answered then. Who cannot be
// reached is not.
void Comm::AnswerAsked(int peer) {
  const bool is_met = TryIntroduce(peer).ok();
  Peer& other = peers_[static_cast<size_t>(peer)];
  other.is_answer_due = is_met && !other.is_introduced;
  if (!other.is_introduced) return;
  const uint64_t kept_in =
      KeptIn(network_->host()->now_ns(network_->host()->user));
  Notice notice;
  notice.kind = Notice::kPosted;
  notice.launches = num_collectives_;
  if (kept_in != 0) {
    notice.in_flight = static_cast<uint32_t>(num_collectives_ - kept_in + 1);
  }
  notice.sent = other.sends;
  notice.received = other.receives;
  notice.SetReport(ReportTo(peer));
  notice.SetLaunches(log_.ReportFrom(FirstOpen()));
  Tell(notice, peer);
}

void Comm::HearPosted(const Notice& notice) {
  Peer& peer = peers_[static_cast<size_t>(notice.rank)];
  SetPosted(notice.rank, notice.launches);
  peer.sends_posted = std::max(peer.sends_posted, notice.sent);
  peer.receives_posted = std::max(peer.receives_posted, notice.received);
  HearReport(notice);
  peer.kept_in = notice.in_flight == 0 || notice.in_flight > notice.launches
                     ? 0
                     : notice.launches - notice.in_flight + 1;
  peer.answer_asked_ns = peer.asked_ns;
  peer.asked_ns = 0;
  const int64_t now_ns = network_->host()->now_ns(network_->host()->user);
  if (peer.asks_again && failure_.ok() && !network_->stopped()) {
    AskPeer(notice.rank, now_ns);
  } else {
    peer.answer_counts = true;
  }
  if (peer.kept_in != 0) AskAll(now_ns);
  if (peer.answer_counts) network_->Wake();  // The host may look again.
}

// ---- When all had issued ----

// All members have joined, so they know alike whether anybody asks.
void Comm::BeginExchange() {
  if (exchange_ != nullptr || size() == 1) return;
  if (!asks_starts_ && !any_asks_starts_) return;
  exchange_ = std::make_unique<StartExchange>(
      network_, StartExchange::Spec{.ranks = &ranks_,
                                    .layout = &layout_,
                                    .rank = rank_,
                                    .tags = tags_,
                                    .is_asked = asks_starts_});
}

uint32_t Comm::TakeStarts(commsched_launch_start_t* out_starts,
                          uint32_t capacity) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  return exchange_ == nullptr ? 0 : exchange_->Take(out_starts, capacity);
}

}  // namespace commsched::ucx
