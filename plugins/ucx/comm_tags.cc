// Sends and receives with a tag: a send goes out once its receive is known
// (ready_receives.h).
#include <algorithm>

#include "ucx/comm.h"

namespace commsched::ucx {

// Whether the receive is known that a send is for; otherwise it waits for that.
bool Comm::TakeReady(const Operation& operation, Message* message) {
  Peer& peer = peers_[static_cast<size_t>(message->peer)];
  ReadyReceive* const ready = peer.ready.TakeIf(
      [&](const ReadyReceive& one) { return one.tag == operation.tag; });
  if (ready == nullptr) {
    message->place = LocalPlace::kUnposted;
    peer.unready.Push(message);
    return false;
  }
  message->ready_request = ready->request;
  message->ready_is_bulk = ready->is_bulk;
  ready_pool_.Give(ready);
  return true;
}

// In the order in which receives were posted.
void Comm::TellReady(const Operation& operation, Message* message) {
  Peer& peer = peers_[static_cast<size_t>(message->peer)];
  message->number = ++peer.num_ready_told;
  Notice notice;
  notice.kind = Notice::kReady;
  notice.launches = operation.tag;
  notice.in_flight = message->owner;
  notice.sent = operation.serial;
  notice.received = operation.bytes;
  Tell(notice, message->peer);
}

void Comm::HearReady(const Notice& notice) {
  Peer& peer = peers_[static_cast<size_t>(notice.rank)];
  ++peer.num_ready_heard;
  if (!failure_.ok() || stopped_) return;
  if (peer.ready_serial != notice.sent) {
    const int32_t world_rank = ranks_[static_cast<size_t>(notice.rank)];
    peer.ready_serial = notice.sent;
    peer.ready_is_bulk =
        IsBulk(notice.received) && network_->PrepareBulk(world_rank);
  }
  Message* const send = peer.unready.TakeIf([&](const Message& one) {
    return operations_[one.owner].tag == notice.launches;
  });
  if (send == nullptr) {
    ReadyReceive* const ready = ready_pool_.Take();
    ready->tag = notice.launches;
    ready->request = notice.in_flight;
    ready->serial = static_cast<uint32_t>(notice.sent);
    ready->is_bulk = peer.ready_is_bulk;
    return peer.ready.Push(ready);
  }
  send->place = LocalPlace::kNone;
  send->ready_request = notice.in_flight;
  send->ready_is_bulk = peer.ready_is_bulk;
  PostOnceOpen(&operations_[send->owner], send);
}

ReadyReport Comm::ReportTo(int peer) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  ReadyReport report;
  report.num_heard = other.num_ready_heard;
  for (const ReadyReceive* one = other.ready.front();
       one != nullptr && report.num_waiting < ReadyReport::kMost;
       one = one->next) {
    report.waiting[report.num_waiting++] = {one->request, one->serial};
  }
  return report;
}

void Comm::HearReport(const Notice& notice) {
  Peer& peer = peers_[static_cast<size_t>(notice.rank)];
  const ReadyReport report = notice.report();
  peer.num_ready_heard_there =
      std::max(peer.num_ready_heard_there, report.num_heard);
  const auto is_waiting = [&](const Operation& operation, uint32_t request) {
    const auto* const end =
        report.waiting + std::min(report.num_waiting, ReadyReport::kMost);
    return std::any_of(report.waiting, end, [&](const auto& entry) {
      return entry.request == request &&
             entry.serial == static_cast<uint32_t>(operation.serial);
    });
  };
  for (const uint32_t request : order_) {
    Operation& operation = operations_[request];
    if (!operation.is_tagged) continue;
    const bool waits = is_waiting(operation, request);
    for (Message& message : operation.messages) {
      if (message.is_receive && message.peer == notice.rank) {
        message.has_no_send = waits;
      }
    }
  }
}

// What this rank waits for and `peer`, which has left, never does. What it had
// heard of, and does not list, is on its way.
std::string Comm::MissedTag(int peer) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (!operation.is_tagged || operation.IsDone()) continue;
    const std::string tag = " with tag " + std::to_string(operation.tag);
    for (const Message& message : operation.messages) {
      if (message.peer != peer) continue;
      if (!message.is_receive && message.ready_request == Message::kNotReady) {
        return "a receive" + tag + " from " + Name(rank_);
      }
      const bool never_comes = message.has_no_send || message.number == 0 ||
                               message.number > other.num_ready_heard_there;
      if (message.is_receive && !message.has_come && never_comes) {
        return "a send" + tag + " to " + Name(rank_);
      }
    }
  }
  return "";
}

}  // namespace commsched::ucx
