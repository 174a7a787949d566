// When a communicator's messages go out: once the two have met, within the
// window of all communicators (Network::IsWindowFull), not too far ahead of who
// gets them (early_bytes.h), and, of large launches, to one other host at a
// time (pacer.h).
#include <algorithm>

#include "ucx/comm.h"
#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// Of a launch, to and from all others: a millisecond of a link of 1 Gbit/s.
constexpr uint64_t kMostSmallBytes = 128 << 10;

}  // namespace

void Comm::Post(Operation* operation, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) {
    PostOne(operation, &operation->messages[i]);
  }
}

// In the order in which they were posted, once the two have met.
void Comm::PostOne(Operation* operation, Message* message) {
  ++operation->outstanding;
  const bool needs_ready = operation->is_tagged && !message->is_receive;
  if (needs_ready && !TakeReady(*operation, message)) return;
  PostOnceOpen(operation, message);
}

void Comm::PostOnceOpen(Operation* operation, Message* message) {
  Peer& peer = peers_[static_cast<size_t>(message->peer)];
  if (peer.is_open) return PostNow(operation, message);
  message->place = LocalPlace::kUnposted;
  peer.unposted.Push(message);
}

void Comm::PostNow(Operation* operation, Message* message) {
  if (message->is_receive) {
    network_->Receive(ranks_[static_cast<size_t>(message->peer)],
                      DataTag(*operation, *message), message);
    if (operation->is_tagged) TellReady(*operation, message);
  } else {
    PostSend(operation, message);
  }
}

// Of the connections to several peers some are faster than others, as TCP
// shares a link: a launch all of whose sends were posted would end only when
// the last of all launches does, on the slowest. So later ones do not begin to
// send until little of what was begun is left, of all its phases. The oldest
// launch of a communicator is not held for that: all its members have the same
// one, while launches of several communicators have no common order.
bool Comm::MustWait(const Operation& operation) {
  if (IsAhead(operation)) return true;
  if (num_held_ == 0 && !network_->IsWindowFull()) return false;
  for (const uint32_t request : order_) {
    const Operation& first = operations_[request];
    if (first.kind != COMMSCHED_SEND) return &first != &operation;
  }
  return true;
}

// Receives at once.
void Comm::PostFirst(Operation* operation) {
  if (operation->kind == COMMSCHED_SEND) {
    return Post(operation, 0, operation->num_posted);
  }
  for (uint32_t i = 0; i < operation->num_posted; ++i) {
    Message* const message = &operation->messages[i];
    if (message->is_receive) PostOne(operation, message);
  }
  operation->is_held = MustWait(*operation);
  if (operation->is_held) {
    ++num_held_;
    network_->AddHeld();
  } else {
    PostFirstSends(operation);
  }
}

void Comm::PostFirstSends(Operation* operation) {
  for (uint32_t i = 0; i < operation->num_posted; ++i) {
    Message* const message = &operation->messages[i];
    if (!message->is_receive) PostOne(operation, message);
  }
  CountEarly(*operation);
}

// Of all phases. Who sends something itself, in the same launch, shows by that
// that it has posted it; others are asked to say so.
void Comm::CountEarly(const Operation& operation) {
  for (const Message& message : operation.messages) {
    const auto peer = static_cast<size_t>(message.peer);
    if (message.is_receive) {
      peers_[peer].received_in = operation.serial;
    } else if (!network_->GoesByLink(ranks_[peer])) {
      early_.Sent(message.peer, operation.number + 1, message.bytes);
    }
  }
  if (!early_.has_questions()) return;
  for (const Message& message : operation.messages) {
    const Peer& peer = peers_[static_cast<size_t>(message.peer)];
    if (peer.received_in != operation.serial) AskToBeTold(message.peer);
  }
}

// Of somebody that it sends to. Whoever keeps it is asked, if that has not been
// done.
bool Comm::IsAhead(const Operation& operation) {
  if (!early_.any_is_behind()) return false;
  bool is_ahead = false;
  for (const Message& message : operation.messages) {
    if (message.is_receive || !early_.IsBehind(message.peer)) continue;
    is_ahead = true;
    AskToBeTold(message.peer);
  }
  return is_ahead;
}

void Comm::AskToBeTold(int peer) {
  Notice notice;
  notice.kind = Notice::kTellOncePosted;
  notice.launches = early_.TakeQuestion(peer);
  if (notice.launches != 0) Tell(notice, peer);
}

void Comm::TellOncePosted(int peer) {
  uint64_t* const asked = &peers_[static_cast<size_t>(peer)].told_once_posted;
  if (*asked == 0 || *asked > num_collectives_) return;
  Notice notice;
  notice.kind = Notice::kHasPosted;
  notice.launches = num_collectives_;
  *asked = 0;
  --num_to_tell_;
  Tell(notice, peer);
}

void Comm::SetPosted(int peer, uint64_t launches) {
  uint64_t* const posted = &peers_[static_cast<size_t>(peer)].launches_posted;
  *posted = std::max(*posted, launches);
  const bool was_behind = early_.IsBehind(peer);
  early_.Posted(peer, *posted);
  if (was_behind && num_held_ != 0) network_->Wake();
}

// In their order.
void Comm::PostHeld() {
  bool is_first = true;
  for (const uint32_t request : order_) {
    Operation& operation = operations_[request];
    if (num_held_ == 0) return;
    if (operation.kind == COMMSCHED_SEND) continue;
    if (!is_first && network_->IsWindowFull()) return;
    is_first = false;
    if (!operation.is_held) continue;
    if (IsAhead(operation)) return;
    operation.is_held = false;
    --num_held_;
    network_->TakeHeld();
    PostFirstSends(&operation);
    WakeIfDue(operation);  // What it waits for may be there.
  }
}

// What is under way or held back now stays so, and keeps nobody waiting.
void Comm::LeaveWindow() {
  network_->TakeUnsent(unsent_bytes_);
  unsent_bytes_ = 0;
  for (; num_held_ != 0; --num_held_) network_->TakeHeld();
  if (network_->HasHeld() && !network_->IsWindowFull()) network_->Wake();
}

// Never from a callback of UCX, where a message may overtake those that UCX has
// queued: the tags of chunks are equal.
void Comm::PostSend(Operation* operation, Message* message) {
  // Results of a reduce do not wait behind what is to be summed up: where the
  // root owns no sums it gets nothing else, and its link would idle.
  const bool is_result =
      operation->kind == COMMSCHED_REDUCE && message->phase == kResults;
  if (operation->is_paced && !is_result &&
      !layout_.ShareHost(rank_, message->peer)) {
    AddToWindow(message);
    return pacer_.Add(message,
                      network_->host()->now_ns(network_->host()->user));
  }
  if (message->bytes < offered_bytes_ ||
      !peers_[static_cast<size_t>(message->peer)].reads) {
    if (operation->kind != COMMSCHED_SEND) AddToWindow(message);
    return SendData(*operation, message);
  }
  message->offer = {.magic = Offer::kMagic,
                    .address = reinterpret_cast<uint64_t>(message->data),
                    .bytes = message->bytes,
                    .id = {.serial = operation->serial,
                           .request = message->owner,
                           .index = static_cast<uint32_t>(
                               message - operation->messages.data())}};
  message->unread = 2;  // Until it has gone out, and until it is answered.
  network_->Send(ranks_[static_cast<size_t>(message->peer)],
                 DataTag(*operation, *message), message, &message->offer,
                 sizeof(message->offer));
}

void Comm::SendData(const Operation& operation, Message* message) {
  const bool is_bulk =
      operation.is_tagged ? message->ready_is_bulk : operation.is_bulk;
  const auto send = is_bulk ? &Network::SendBulk : &Network::Send;
  (network_->*send)(ranks_[static_cast<size_t>(message->peer)],
                    DataTag(operation, *message), message, message->data,
                    message->bytes);
}

void Comm::AddToWindow(Message* message) {
  message->is_in_window = true;
  unsent_bytes_ += message->bytes;
  network_->AddUnsent(message->bytes);
}

void Comm::TakeFromWindow(Message* message) {
  if (!message->is_in_window) return;
  message->is_in_window = false;
  unsent_bytes_ -= message->bytes;
  network_->TakeUnsent(message->bytes);
  if (network_->HasHeld() && !network_->IsWindowFull()) network_->Wake();
}

// What is larger does not go where small launches do.
bool Comm::IsBulk(uint64_t bytes) { return bytes > kMostSmallBytes; }

// Of a large launch. As long as some are not there yet, all of it goes where
// small ones do, since chunks keep their order in one connection.
bool Comm::HasBulkToAll(const std::vector<Message>& messages) {
  bool has_all = true;
  for (const Message& message : messages) {
    if (message.is_receive) continue;
    has_all &= network_->PrepareBulk(ranks_[static_cast<size_t>(message.peer)]);
  }
  return has_all;
}

// More than a chunk to several ranks of other hosts.
bool Comm::IsPaced(const Operation& operation) const {
  if (operation.kind == COMMSCHED_SEND) return false;
  // Where UCX asks first, a message would end only after the reply.
  if (network_->eager_bytes() == 0) return false;
  uint64_t bytes = 0;
  int first = rank_;
  bool has_several = false;
  for (const Message& message : operation.messages) {
    if (message.is_receive || layout_.ShareHost(rank_, message.peer)) continue;
    bytes += message.bytes;
    if (first == rank_) first = message.peer;
    has_several |= message.peer != first;
  }
  return has_several && bytes > pacer_.room_bytes();
}

uint64_t Comm::FarBytes(const Operation& operation) const {
  uint64_t bytes = 0;
  for (const Message& message : operation.messages) {
    if (!layout_.ShareHost(rank_, message.peer)) bytes += message.bytes;
  }
  return bytes;
}

uint64_t Comm::LeastFarBytes() const {
  uint64_t least = UINT64_MAX;
  for (const uint32_t request : order_) {
    least = std::min(least, operations_[request].far_bytes);
  }
  return least;
}

void Comm::PostPaced() {
  if (!pacer_.IsWaiting() || !failure_.ok() || !suspicion_.empty()) return;
  const int64_t now_ns = network_->host()->now_ns(network_->host()->user);
  while (Message* const message = pacer_.Next(now_ns)) {
    SendData(operations_[message->owner], message);
  }
}

// What has not been sent never is.
void Comm::DropPaced() {
  while (Message* const message = pacer_.Drop()) {
    TakeFromWindow(message);
    --operations_[message->owner].outstanding;
  }
}

}  // namespace commsched::ucx
