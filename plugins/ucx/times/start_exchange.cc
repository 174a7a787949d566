#include "ucx/times/start_exchange.h"

#include <algorithm>
#include <cstring>

#include "ucx/tags.h"

namespace commsched::ucx {

StartExchange::StartExchange(Network* network, const Spec& spec)
    : network_(network), spec_(spec), times_(*spec.layout, spec.rank) {
  Receive();
  for (const int peer : times_.Neighbors()) {
    // What fails there fails launches, too.
    (void)network_->endpoints()->Connect(
        (*spec_.ranks)[static_cast<size_t>(peer)]);
  }
  Send();  // Clocks are compared from now on.
}

int64_t StartExchange::NowNs() const {
  return network_->host()->now_ns(network_->host()->user);
}

void StartExchange::Issued(uint64_t step, uint64_t key, int64_t now_ns) {
  times_.Issued(step, key, now_ns);
  Send();
}

void StartExchange::OnDone(Message* message, ucs_status_t status,
                           uint64_t bytes) {
  if (message == &heard_message_) {
    if (status != UCS_OK || has_ended_) return;
    if (bytes == sizeof(heard_)) Hear(heard_);
    Receive();
  } else {
    sent_[message->owner].is_under_way = false;
  }
  Send();
}

void StartExchange::OnHeard(Message* /*message*/, const void* data,
                            uint64_t bytes) {
  TimesMessage times;
  if (bytes != sizeof(times) || has_ended_) return;
  std::memcpy(&times, data, sizeof(times));
  Hear(times);
  Send();
}

void StartExchange::Hear(const TimesMessage& times) {
  times_.Hear(times, NowNs());
  if (spec_.is_asked && times_.HasStarts()) network_->Wake();
}

void StartExchange::Receive() {
  heard_message_.receiver = this;
  heard_message_.is_receive = true;
  heard_message_.data = &heard_;
  heard_message_.bytes = sizeof(heard_);
  network_->ReceiveAny(TagOf(spec_.tags, 0, kTimesType), &heard_message_);
}

// UCX may be done with a message at once, and this be called in here.
void StartExchange::Send() {
  for (uint32_t i = 0; i < kNumSent && !has_ended_; ++i) {
    Sent& sent = sent_[i];
    if (sent.is_under_way) continue;
    const int peer = times_.Next(NowNs(), &sent.times);
    if (peer < 0) return;
    const int32_t world_rank = (*spec_.ranks)[static_cast<size_t>(peer)];
    if (!network_->endpoints()->HasBegun(world_rank)) return;
    sent.is_under_way = true;
    sent.message = Message();
    sent.message.receiver = this;
    sent.message.peer = peer;
    sent.message.owner = i;
    sent.message.data = &sent.times;
    sent.message.bytes = sizeof(sent.times);
    network_->Send(world_rank, TagOf(spec_.tags, spec_.rank, kTimesType),
                   &sent.message, &sent.times, sizeof(sent.times));
  }
}

void StartExchange::End() {
  has_ended_ = true;
  network_->Cancel(&heard_message_);
}

bool StartExchange::IsUnderWay() const {
  return heard_message_.request != nullptr ||
         std::any_of(sent_.begin(), sent_.end(),
                     [](const Sent& sent) { return sent.is_under_way; });
}

}  // namespace commsched::ucx
