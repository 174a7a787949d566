#include "ucx/group_join.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// Before each card.
struct CardHead {
  int32_t rank = 0;  // Of the group.
  uint32_t bytes = 0;
};

void AppendCard(int rank, const std::string& card, std::string* cards) {
  const CardHead head = {rank, static_cast<uint32_t>(card.size())};
  cards->append(reinterpret_cast<const char*>(&head), sizeof(head));
  cards->append(card);
}

}  // namespace

GroupJoin::GroupJoin(Network* network, const Layout& layout, const Spec& spec)
    : network_(network), spec_(spec) {
  const Fan fan = FindJoinFan(layout, spec.rank);
  parent_ = fan.parent;
  above_.peer = parent_;
  if (parent_ != kNobody) neighbors_.push_back(parent_);
  children_.resize(static_cast<size_t>(fan.num_children));
  down_.resize(children_.size());
  for (size_t i = 0; i < children_.size(); ++i) {
    const Fan::Child& child = fan.children[i];
    neighbors_.push_back(child.rank);
    children_[i].peer = child.rank;
    children_[i].num_ranks = child.end - child.begin;
  }
}

std::string GroupJoin::Name(int rank) const {
  return "rank " + std::to_string((*spec_.ranks)[static_cast<size_t>(rank)]);
}

Outcome GroupJoin::Advance() {
  bool has_all_below = true;
  for (Heard& child : children_) has_all_below &= Await(&child);
  const bool is_root = parent_ == kNobody;
  const bool knows_above = is_root || Await(&above_);
  if (!failure_.ok() || knows_all_ || !has_all_below) return failure_;
  if (!has_told_parent_) {
    has_told_parent_ = true;
    head_.asks_starts = spec_.asks_starts ? 1 : 0;
    AppendCard(spec_.rank,
               network_->endpoints()->CardOf(network_->world_rank()), &cards_);
    for (const Heard& child : children_) {
      head_.asks_starts |= child.head.asks_starts;
      cards_ += child.cards;
    }
    head_.bytes = cards_.size();
    if (!is_root) Send(parent_, &up_);
  }
  if (!knows_above) return {};
  knows_all_ = true;
  // What goes up is the sender's until it is out, and is no more.
  if (!is_root) {
    all_head_ = above_.head;
    all_cards_ = std::move(above_.cards);
  }
  any_asks_starts_ = (is_root ? head_ : all_head_).asks_starts != 0;
  for (size_t i = 0; i < children_.size(); ++i) {
    Send(children_[i].peer, &down_[i]);
  }
  const Outcome learned = LearnAll();
  return failure_.ok() ? learned : failure_;  // What is sent may fail at once.
}

// Whether it has come. Receives are posted the way that messages come by.
bool GroupJoin::Await(Heard* heard) {
  const int world_rank = (*spec_.ranks)[static_cast<size_t>(heard->peer)];
  if (!heard->is_posted && network_->endpoints()->IsConnected(world_rank)) {
    heard->is_posted = true;
    Receive(heard, &heard->head_message, &heard->head, sizeof(heard->head));
  }
  return heard->has_come;
}

void GroupJoin::Receive(Heard* heard, Message* message, void* to,
                        uint64_t bytes) {
  message->receiver = this;
  message->is_receive = true;
  message->peer = heard->peer;
  message->data = to;
  message->bytes = bytes;
  network_->Receive((*spec_.ranks)[static_cast<size_t>(heard->peer)],
                    TagOf(spec_.tags, heard->peer, kCardsType), message);
}

void GroupJoin::Send(int peer, Sent* sent) {
  const bool is_up = sent == &up_ || parent_ == kNobody;
  const Head& head = is_up ? head_ : all_head_;
  const std::string& cards = is_up ? cards_ : all_cards_;
  SendOne(peer, &sent->head_message, &head, sizeof(head));
  SendOne(peer, &sent->cards_message, cards.data(), cards.size());
}

void GroupJoin::SendOne(int peer, Message* message, const void* data,
                        uint64_t bytes) {
  ++num_unsent_;
  message->receiver = this;
  message->peer = peer;
  message->bytes = bytes;
  network_->Send((*spec_.ranks)[static_cast<size_t>(peer)],
                 TagOf(spec_.tags, spec_.rank, kCardsType), message, data,
                 bytes);
}

void GroupJoin::OnDone(Message* message, ucs_status_t status, uint64_t bytes) {
  if (!message->is_receive) --num_unsent_;
  if (has_ended_) return;
  network_->Wake();
  if (status != UCS_OK) {
    failure_ = {COMMSCHED_UNAVAILABLE,
                "a message by which ranks join " +
                    std::string(message->is_receive ? "from " : "to ") +
                    Name(message->peer) +
                    " failed: " + ucs_status_string(status)};
  } else if (message->is_receive) {
    OnReceived(message, status, bytes);
  }
}

void GroupJoin::OnReceived(Message* message, ucs_status_t /*status*/,
                           uint64_t bytes) {
  Heard* heard = &above_;
  for (Heard& child : children_) {
    if (child.peer == message->peer) heard = &child;
  }
  const uint64_t most =
      spec_.ranks->size() * (Endpoints::kMostCardBytes + sizeof(CardHead));
  if (bytes != message->bytes || heard->head.bytes > most) {
    failure_ = {COMMSCHED_INTERNAL,
                Name(message->peer) + " sent " + std::to_string(bytes) +
                    " bytes to join by, not " + std::to_string(message->bytes)};
  } else if (message == &heard->head_message) {
    heard->cards.resize(heard->head.bytes);
    Receive(heard, &heard->cards_message, heard->cards.data(),
            heard->cards.size());
  } else {
    heard->has_come = true;
  }
}

Outcome GroupJoin::LearnAll() {
  const std::string& cards = parent_ == kNobody ? cards_ : all_cards_;
  for (size_t at = 0; at < cards.size();) {
    CardHead head;
    const bool has_head = cards.size() - at >= sizeof(head);
    if (has_head) std::memcpy(&head, cards.data() + at, sizeof(head));
    at += sizeof(head);
    if (!has_head || head.bytes > cards.size() - at || head.rank < 0 ||
        static_cast<size_t>(head.rank) >= spec_.ranks->size()) {
      return {COMMSCHED_INTERNAL,
              "what ranks have told of how to reach them "
              "is cut off"};
    }
    const Outcome learned = network_->endpoints()->Learn(
        (*spec_.ranks)[static_cast<size_t>(head.rank)],
        cards.substr(at, head.bytes));
    if (!learned.ok()) return learned;
    at += head.bytes;
  }
  return {};
}

// Of what has not come: which way it comes, and whether a part of it has.
std::string GroupJoin::HowFar(const Heard& heard) const {
  const int world_rank = (*spec_.ranks)[static_cast<size_t>(heard.peer)];
  const std::string why_apart = network_->endpoints()->WhyApart(world_rank);
  return std::string(network_->endpoints()->IsLocal(world_rank)
                         ? " (connected by shared memory"
                         : " (connected by UCX") +
         (why_apart.empty() ? "" : "; no shared memory: " + why_apart) +
         (heard.is_posted && !heard.head_message.IsUnderWay() ? ", begun to)"
                                                              : ")");
}

std::string GroupJoin::WaitsFor() const {
  for (const Heard& child : children_) {
    if (child.has_come) continue;
    std::string below;
    if (child.num_ranks > 1) {
      below = ", or one of the " + std::to_string(child.num_ranks - 1) +
              " that it speaks for,";
    }
    return Name(child.peer) + below + " has not said that it has joined" +
           HowFar(child);
  }
  if (!knows_all_) {
    return Name(parent_) + " has not said that all have joined" +
           HowFar(above_);
  }
  for (const Sent& down : down_) {
    for (const Message* message : {&down.head_message, &down.cards_message}) {
      if (!message->IsUnderWay()) continue;
      return Name(message->peer) + " has not taken that all have joined";
    }
  }
  return num_unsent_ == 0
             ? ""
             : Name(parent_) + " has not taken that this rank has joined";
}

void GroupJoin::End() {
  has_ended_ = true;
  const auto cancel = [&](Message* message) {
    if (message->IsUnderWay()) network_->Cancel(message);
  };
  for (Heard& child : children_) {
    cancel(&child.head_message);
    cancel(&child.cards_message);
  }
  cancel(&above_.head_message);
  cancel(&above_.cards_message);
}

bool GroupJoin::IsUnderWay() const {
  const auto is_received = [](const Heard& heard) {
    return heard.head_message.IsUnderWay() || heard.cards_message.IsUnderWay();
  };
  return num_unsent_ != 0 || is_received(above_) ||
         std::any_of(children_.begin(), children_.end(), is_received);
}

}  // namespace commsched::ucx
