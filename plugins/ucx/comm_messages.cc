// What a communicator does with messages that have come or gone, and what its
// members tell each other.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ucx/comm.h"
#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// Whether nothing has come of the rank that `message` comes from.
bool IsFirstHeard(const Operation& operation, const Message& message) {
  return std::none_of(operation.messages.begin(), operation.messages.end(),
                      [&](const Message& other) {
                        return other.peer == message.peer && other.has_come;
                      });
}

// With all digits, which two that differ need.
std::string ScaleText(double scale) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", scale);
  return text;
}

}  // namespace

std::string Comm::RanksText() const {
  std::string text;
  for (const int32_t rank : ranks_) {
    if (!text.empty()) text += ',';
    text += std::to_string(rank);
  }
  return text;
}

void Comm::OnDone(Message* message, ucs_status_t status, uint64_t bytes) {
  if (message == &answer_message_) return OnAnswer(status, bytes);
  if (status == UCS_OK && !message->is_receive && message->unread != 0) {
    if (--message->unread == 0) Finish(message, status, bytes);
    return;
  }
  if (status == UCS_OK && message->is_receive && !message->answers &&
      bytes == sizeof(Offer)) {
    std::memcpy(&message->offer, message->data, sizeof(Offer));
    if (message->offer.magic == Offer::kMagic) return OnOffer(message);
    message->offer.magic = 0;
  }
  Finish(message, status, bytes);
}

void Comm::OnHeard(Message* /*message*/, const void* data, uint64_t bytes) {
  if (left_) return;
  MessageId id;
  if (bytes != sizeof(id)) return;
  std::memcpy(&id, data, sizeof(id));
  HearAnswer(id);
}

// Data of a reduction is read when it is reduced, all else at once.
void Comm::OnOffer(Message* message) {
  Operation& operation = operations_[message->owner];
  if (left_ || stopped_ || message->offer.bytes != message->bytes) {
    return Finish(message, UCS_OK, message->offer.bytes);
  }
  HearData(&operation, message);
  const bool has_step = message->step != Operation::kNoStep;
  if (has_step && operation.steps[message->step].num_inputs != 0) {
    --operation.steps[message->step].waiting;
    return WakeIfDue(operation);
  }
  const Outcome read = network_->endpoints()->Read(
      ranks_[static_cast<size_t>(message->peer)], message->offer.address,
      message->data, message->bytes);
  if (!read.ok()) {
    --operation.outstanding;
    return Suspect(Name(message->peer) + ": " + read.reason);
  }
  if (has_step) --operation.steps[message->step].waiting;
  WakeIfDue(operation);
  Answer(message);
}

// The sender may have its memory back.
void Comm::Answer(Message* message) {
  message->answers = true;
  network_->Send(ranks_[static_cast<size_t>(message->peer)],
                 Tag(rank_, kAnswerType), message, &message->offer.id,
                 sizeof(message->offer.id));
}

void Comm::OnAnswer(ucs_status_t status, uint64_t bytes) {
  if (status != UCS_OK || left_) return;
  const MessageId id = answered_;
  ReceiveAnswers();
  if (bytes == sizeof(id)) HearAnswer(id);
}

void Comm::HearAnswer(const MessageId& id) {
  if (id.request >= operations_.size()) return;
  Operation& operation = operations_[id.request];
  if (!operation.active || operation.serial != id.serial ||
      id.index >= operation.messages.size()) {
    return;
  }
  Message& message = operation.messages[id.index];
  if (message.is_receive || message.unread == 0) return;
  if (--message.unread == 0) Finish(&message, UCS_OK, message.bytes);
}

// `message` is under way no more.
void Comm::Finish(Message* message, ucs_status_t status, uint64_t bytes) {
  Operation& operation = operations_[message->owner];
  --operation.outstanding;
  message->unread = 0;
  if (!layout_.ShareHost(rank_, message->peer)) {
    operation.far_bytes -= std::min(operation.far_bytes, message->bytes);
  }
  if (!left_ && !stopped_) TakeFromWindow(message);
  if (message->is_paced) {
    message->is_paced = false;
    pacer_.Done(*message, network_->host()->now_ns(network_->host()->user));
  }
  const bool is_data = !message->answers;  // Else it has been counted.
  if (is_data && message->step != Operation::kNoStep) {
    --operation.steps[message->step].waiting;
  }
  if (left_ || status == UCS_ERR_CANCELED) return;
  const bool other_size = status == UCS_OK && message->is_receive && is_data &&
                          bytes != message->bytes;
  if (status != UCS_OK || other_size) {
    return MessageFailed(operation, *message, status, bytes);
  }
  if (message->is_receive) HearData(&operation, message);
  WakeIfDue(operation);
}

void Comm::HearData(Operation* operation, Message* message) {
  if (operation->kind != COMMSCHED_SEND) {
    SetPosted(message->peer, operation->number + 1);
  } else if (operation->num_unheard != 0 &&
             IsFirstHeard(*operation, *message)) {
    if (--operation->num_unheard == 0) {
      operation->started_ns = network_->host()->now_ns(network_->host()->user);
    }
  }
  message->has_come = true;
}

void Comm::WakeIfDue(const Operation& operation) {
  if (!operation.HasDueStep() && !operation.IsDone()) return;
  SetFreed(operation);
  network_->Wake();
}

void Comm::SetFreed(const Operation& operation) {
  if (operation.kind == COMMSCHED_SEND) return;
  freed_in_ = operation.number + 1;
  freed_ns_ = network_->host()->now_ns(network_->host()->user);
}

void Comm::MessageFailed(const Operation& operation, const Message& message,
                         ucs_status_t status, uint64_t bytes) {
  const std::string what =
      "axis '" + axis_ + "', " +
      (operation.is_tagged ? "tag " + std::to_string(operation.tag)
       : operation.kind == COMMSCHED_SEND
           ? std::string("sends and receives")
           : "launch #" + std::to_string(operation.number)) +
      ": ";
  if (status != UCS_OK && status != UCS_ERR_MESSAGE_TRUNCATED) {
    return Suspect(what + "a message " +
                   (message.is_receive ? "from " : "to ") + Name(message.peer) +
                   " failed: " + ucs_status_string(status));
  }
  const std::string sent = status == UCS_OK
                               ? std::to_string(bytes)
                               : "more than " + std::to_string(message.bytes);
  FailLocked(COMMSCHED_INVALID_ARGUMENT, what + Name(message.peer) + " sent " +
                                             sent + " bytes, " + Name(rank_) +
                                             " has room for " +
                                             std::to_string(message.bytes));
}

void Comm::IsOther(const Operation& operation, const CountsCheck& check) {
  const std::string what = "axis '" + axis_ + "', launch #" +
                           std::to_string(operation.number) + ": " +
                           Name(check.peer);
  if (check.digest == &operation.other_scale) {
    return FailLocked(COMMSCHED_INVALID_ARGUMENT,
                      what + " has scale " + ScaleText(operation.other_scale) +
                          ", " + Name(rank_) + " has " +
                          ScaleText(operation.scale));
  }
  FailLocked(COMMSCHED_INVALID_ARGUMENT,
             what + " gave other counts for what it sends to " + Name(rank_) +
                 " than " + Name(rank_) + " gave");
}

// ---- Notices ----

void Comm::ReceiveAnswers() {
  answer_message_.receiver = this;
  answer_message_.is_receive = true;
  answer_message_.data = &answered_;
  answer_message_.bytes = sizeof(answered_);
  network_->ReceiveAny(Tag(0, kAnswerType), &answer_message_);
}

// Also of one that this member has not met.
void Comm::Tell(const Notice& notice, int peer) {
  if (notice.kind != Notice::kJoined) Introduce(peer);
  if (!peers_[static_cast<size_t>(peer)].is_introduced) return;
  Notice told = notice;
  told.tags = tags_;
  told.rank = rank_;
  network_->notices()->Send(told, ranks_[static_cast<size_t>(peer)], peer,
                            unsent_);
}

// Until the card of `peer` is known, which only comes before this member has
// joined, it is not answered; nor is who comes when this member stops, or
// leaves, and has told the others so. That one is told once it has left.
void Comm::Introduce(int peer) {
  const Outcome begun = TryIntroduce(peer);
  if (!begun.ok()) FailLocked(begun.code, begun.reason);
}

Outcome Comm::TryIntroduce(int peer) {
  Peer& other = peers_[static_cast<size_t>(peer)];
  const int32_t world_rank = ranks_[static_cast<size_t>(peer)];
  if (other.is_introduced || peer == rank_ || stopped_ || leaves_ ||
      network_->stopped() ||
      network_->endpoints()->CardOf(world_rank).empty()) {
    return {};
  }
  const Outcome begun = network_->endpoints()->Connect(world_rank);
  if (!begun.ok()) return begun;
  other.is_introduced = true;
  Notice joined;
  joined.kind = Notice::kJoined;
  joined.in_flight = static_cast<uint32_t>(operations_.size());
  joined.reads = network_->endpoints()->Reads(world_rank) ? 1 : 0;
  joined.SetTexts(RanksText(), choices_.Text());
  Tell(joined, peer);
  Open(peer);
  return {};
}

// Posts what has waited, if there is nothing more to be waited for.
void Comm::Open(int peer) {
  Peer& other = peers_[static_cast<size_t>(peer)];
  if (other.is_open || !other.is_introduced || !other.has_joined ||
      !failure_.ok() ||
      !network_->endpoints()->IsConnected(ranks_[static_cast<size_t>(peer)])) {
    return;
  }
  other.is_open = true;
  while (!other.unposted.empty()) {
    Message* const message = other.unposted.front();
    other.unposted.Pop();
    message->place = LocalPlace::kNone;
    PostNow(&operations_[message->owner], message);
  }
  PostPaced();
  if (pacer_.IsWaiting()) network_->Wake();  // A poll says until when it waits.
}

void Comm::OnConnected() {
  for (int peer = 0; peer < size(); ++peer) Open(peer);
}

void Comm::Hear(const Notice& notice) {
  if (left_ || notice.rank < 0 || notice.rank >= size()) return;
  Peer& peer = peers_[static_cast<size_t>(notice.rank)];
  switch (notice.kind) {
    case Notice::kLeft:
      peer.has_left = true;
      peer.has_failed = notice.has_failed != 0;
      peer.launches_at_end = notice.launches;
      peer.sends_at_end = notice.sent;
      peer.receives_at_end = notice.received;
      peer.asks_again = false;  // It answers no more.
      HearPosted(notice);
      peer.answer_counts = false;  // Who fails may have posted more.
      return FailIfLeft(notice.rank);
    case Notice::kStopped:
      peer.has_stopped = true;
      return;
    case Notice::kDrained:
      peer.has_drained = true;
      return;
    case Notice::kAsked:
      AnswerAsked(notice.rank);
      return CompareLaunches(notice.launch_report(), notice.rank);
    case Notice::kPosted:
      HearPosted(notice);
      return CompareLaunches(notice.launch_report(), notice.rank);
    case Notice::kLaunched:
      return CompareLaunches(notice.launch_report(), notice.rank);
    case Notice::kTellOncePosted:
      if (peer.told_once_posted == 0) ++num_to_tell_;
      peer.told_once_posted = std::max<uint64_t>(1, notice.launches);
      return TellOncePosted(notice.rank);
    case Notice::kHasPosted:
      return SetPosted(notice.rank, notice.launches);
    case Notice::kReady:
      return HearReady(notice);
    case Notice::kJoined:
      peer.reads = notice.reads != 0;
      peer.has_joined = true;
      // Who cannot be reached may only have something to ask.
      (void)TryIntroduce(notice.rank);
      HearJoined(notice);
      Open(notice.rank);
      return network_->Wake();
    default:
      return;
  }
}

// Who has joined has to have given what this rank has.
void Comm::HearJoined(const Notice& notice) {
  const auto text_of = [](const char* text, size_t size) {
    return std::string(text, strnlen(text, size));
  };
  const std::string ranks = text_of(notice.ranks, sizeof(notice.ranks));
  const std::string choices = text_of(notice.choices, sizeof(notice.choices));
  Notice own;
  own.SetTexts(RanksText(), choices_.Text());
  std::string why;
  if (notice.in_flight != operations_.size()) {
    why = std::to_string(notice.in_flight) + " launches in flight, " +
          Name(rank_) + " " + std::to_string(operations_.size());
  } else if (ranks != own.ranks) {
    why = "ranks " + ranks + ", " + Name(rank_) + " " + own.ranks;
  } else if (choices != own.choices) {
    why = choices + "; " + Name(rank_) + " " + own.choices;
  }
  if (why.empty()) return;
  FailLocked(COMMSCHED_INVALID_ARGUMENT, "communicator of axis '" + axis_ +
                                             "': " + Name(notice.rank) +
                                             " gave " + why);
}

// What this rank waits for and `peer` never does.
std::string Comm::MissedFrom(int peer) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (operation.kind == COMMSCHED_SEND || operation.IsDone()) continue;
    if (operation.number < other.launches_at_end) continue;
    return "launch #" + std::to_string(operation.number);
  }
  if (other.receives > other.sends_at_end) {
    return "send #" + std::to_string(other.sends_at_end) + " to " + Name(rank_);
  }
  if (other.sends > other.receives_at_end) {
    return "receive #" + std::to_string(other.receives_at_end) + " from " +
           Name(rank_);
  }
  return MissedTag(peer);
}

void Comm::FailIfLeft(int peer) {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  if (!other.has_left) return;
  const std::string missed = MissedFrom(peer);
  if (missed.empty()) return;
  const std::string why =
      Name(peer) + " left axis '" + axis_ + "' before " + missed;
  // Why it has failed the host is about to learn.
  if (other.has_failed) return Suspect(why);
  FailLocked(COMMSCHED_ABORTED, why);
}

}  // namespace commsched::ucx
