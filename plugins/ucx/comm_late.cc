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
// Of larger groups only those are asked that this member has met: connections
// to all would take longer, and more descriptors, than there may be.
constexpr int kMostAskedUnmet = 64;

bool IsOpen(const Message& message) {
  if (message.is_receive) return !message.has_come;
  return message.IsUnderWay() || message.unread != 0;
}

bool HasOpenReceive(const Operation& operation) {
  return std::any_of(operation.messages.begin(), operation.messages.end(),
                     [](const Message& message) {
                       return message.is_receive && IsOpen(message);
                     });
}

// Whether who hands on what is to come may itself wait for anybody.
bool WaitsForOthers(const Operation& operation) {
  return operation.hands_on && HasOpenReceive(operation);
}

}  // namespace

// ---- Who has not issued ----

// Whether a message is to come from `peer`, or has not been taken by it.
bool Comm::HasOpen(const Operation& operation, int peer) const {
  return std::any_of(operation.messages.begin(), operation.messages.end(),
                     [&](const Message& message) {
                       return message.peer == peer && IsOpen(message);
                     });
}

// Of most kinds everybody needs something of everybody. Of others only whom a
// message is to come from, or is not taken by; and of a broadcast the root,
// whose data others may hand on. By some algorithms who hands on may itself
// wait for anybody.
bool Comm::WaitsFor(const Operation& operation, int peer) const {
  if (peer == rank_) return false;
  switch (operation.kind) {
    case COMMSCHED_SEND:
      return HasOpen(operation, peer);
    case COMMSCHED_BROADCAST:
      return peer == operation.root || WaitsForOthers(operation) ||
             HasOpen(operation, peer);
    case COMMSCHED_REDUCE:
      return rank_ == operation.root || WaitsForOthers(operation) ||
             HasOpen(operation, peer);
    default:
      return true;
  }
}

// Of sends and receives, what is open.
bool Comm::HasPosted(const Operation& operation, int peer) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  if (operation.kind != COMMSCHED_SEND) {
    return other.launches_posted > operation.number;
  }
  return std::all_of(operation.messages.begin(), operation.messages.end(),
                     [&](const Message& message) {
                       return message.peer != peer || !IsOpen(message) ||
                              message.number <= (message.is_receive
                                                     ? other.sends_posted
                                                     : other.receives_posted);
                     });
}

// Whether `operation` may be waiting for anything of `peer`. All that comes of
// it directly may have come, but not what it hands on.
bool Comm::MayKeep(const Operation& operation, int peer) const {
  if (!WaitsFor(operation, peer)) return false;
  return !HasPosted(operation, peer) || HasOpen(operation, peer) ||
         WaitsForOthers(operation);
}

// Whether this member is in a collective that others have to get on with. They,
// or whom they wait for, are why it has not posted the next one. (Sends and
// receives have no common order: ranks may wait for each other in a circle.)
bool Comm::IsKept() const {
  return std::any_of(order_.begin(), order_.end(), [&](uint32_t request) {
    const Operation& operation = operations_[request];
    return operation.kind != COMMSCHED_SEND && !operation.IsDone() &&
           !operation.HasDueStep();
  });
}

// Members that `request` waits for and that `is` is true of. Also after a
// failure: another rank's may come while the host says what it waits for.
template <typename Is>
uint32_t Comm::List(uint32_t request, int32_t* out_ranks, uint32_t capacity,
                    const Is& is) {
  if (request >= operations_.size() || !operations_[request].active) return 0;
  const Operation& operation = operations_[request];
  if (operation.IsDone()) return 0;
  uint32_t count = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (!MayKeep(operation, peer) || !is(operation, peer)) continue;
    if (count < capacity) out_ranks[count] = peer;
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
    Ask(operations_[request], now_ns);
  }
  // Nobody is asked after a failure: what was known then stays.
  const int64_t known_ns = failure_.ok() ? now_ns : failed_ns_;
  const auto has_not = [&](const Operation& operation, int rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (HasPosted(operation, rank)) return false;
    if (peer.waits && operation.kind != COMMSCHED_SEND) return false;
    return peer.answer_counts && known_ns < peer.answer_asked_ns + kFreshNs;
  };
  return List(request, out_ranks, capacity, has_not);
}

uint32_t Comm::Silent(uint32_t request, int32_t* out_ranks, uint32_t capacity) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  const auto is_asked = [&](const Operation& /*operation*/, int peer) {
    return peers_[static_cast<size_t>(peer)].asked_ns != 0;
  };
  return List(request, out_ranks, capacity, is_asked);
}

// One question at a time is under way to each.
void Comm::Ask(const Operation& operation, int64_t now_ns) {
  if (operation.IsDone() || !failure_.ok() || network_->stopped()) return;
  for (int peer = 0; peer < size(); ++peer) {
    Peer& other = peers_[static_cast<size_t>(peer)];
    if (!other.is_introduced && size() > kMostAskedUnmet) continue;
    if (other.has_left || !MayKeep(operation, peer)) continue;
    if (other.asked_ns != 0 && other.is_introduced) {
      other.asks_again = true;
    } else {
      AskPeer(peer, now_ns);
    }
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
  Tell(notice, peer);
}

// Who asks before this member has joined is answered then.
void Comm::AnswerAsked(int peer) {
  Introduce(peer);
  Peer& other = peers_[static_cast<size_t>(peer)];
  other.is_answer_due = !other.is_introduced;
  if (other.is_answer_due) return;
  Notice notice;
  notice.kind = Notice::kPosted;
  notice.launches = num_collectives_;
  notice.waits = IsKept() ? 1 : 0;
  notice.sent = other.sends;
  notice.received = other.receives;
  Tell(notice, peer);
}

void Comm::HearPosted(const Notice& notice) {
  Peer& peer = peers_[static_cast<size_t>(notice.rank)];
  peer.launches_posted = std::max(peer.launches_posted, notice.launches);
  peer.sends_posted = std::max(peer.sends_posted, notice.sent);
  peer.receives_posted = std::max(peer.receives_posted, notice.received);
  peer.waits = notice.waits != 0;
  peer.answer_asked_ns = peer.asked_ns;
  peer.asked_ns = 0;
  if (peer.asks_again && failure_.ok() && !network_->stopped()) {
    return AskPeer(notice.rank,
                   network_->host()->now_ns(network_->host()->user));
  }
  peer.answer_counts = true;
  network_->Wake();  // The host may look again.
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
