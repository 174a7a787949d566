#include "ucx/network/notices.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "ucx/comm.h"
#include "ucx/network/network.h"
#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// So many at a time are sent, and heard, without memory from the system.
constexpr size_t kNumSpare = 16;

// What ranks of a host take from any source (local_links.cc).
static_assert(sizeof(Notice) <= 1024);

// A notice on its way, which is `place` of `sent`, or a spare one.
struct SentNotice final : Receiver {
  void OnDone(Message* /*message*/, ucs_status_t /*status*/,
              uint64_t /*bytes*/) override {
    if (unsent != nullptr) --(*unsent)[static_cast<size_t>(message.peer)];
    unsent.reset();
    spare->splice(spare->begin(), *sent, place);
  }

  Notice notice;
  UnsentNotices unsent;
  Message message;
  Notices::Sent* sent = nullptr;
  Notices::Sent* spare = nullptr;
  Notices::Sent::iterator place;
};

}  // namespace

void Notice::SetTexts(const std::string& all_ranks,
                      const std::string& all_choices) {
  snprintf(ranks, sizeof(ranks), "%s", all_ranks.c_str());
  snprintf(choices, sizeof(choices), "%s", all_choices.c_str());
}

void Notice::SetReport(const ReadyReport& report) {
  std::memcpy(ranks, &report, sizeof(report));
}

ReadyReport Notice::report() const {
  ReadyReport report;
  std::memcpy(&report, ranks, sizeof(report));
  return report;
}

void Notice::SetLaunches(const LaunchReport& launches) {
  std::memcpy(choices, &launches, sizeof(launches));
}

LaunchReport Notice::launch_report() const {
  LaunchReport launches;
  std::memcpy(&launches, choices, sizeof(launches));
  return launches;
}

void Notices::Begin() {
  message_.receiver = this;
  message_.is_receive = true;
  message_.data = &received_;
  message_.bytes = sizeof(received_);
  Reserve(kNumSpare);
  Receive();
}

void Notices::Reserve(size_t count) {
  while (spare_.size() + sent_.size() < count) {
    spare_.push_back(std::make_unique<SentNotice>());
  }
  while (spare_heard_.size() + heard_.size() < count) {
    spare_heard_.emplace_back();
  }
}

void Notices::Receive() { network_->ReceiveAny(kNoticeType, &message_); }

void Notices::End() {
  has_ended_ = true;
  network_->Cancel(&message_);
}

void Notices::Send(const Notice& notice, int to, int peer,
                   const UnsentNotices& unsent) {
  if (spare_.empty()) spare_.push_back(std::make_unique<SentNotice>());
  sent_.splice(sent_.begin(), spare_, spare_.begin());
  auto* const sent = static_cast<SentNotice*>(sent_.front().get());
  sent->sent = &sent_;
  sent->spare = &spare_;
  sent->place = sent_.begin();
  sent->notice = notice;
  sent->notice.world_rank = network_->world_rank();
  sent->unsent = unsent;
  if (unsent != nullptr) ++(*unsent)[static_cast<size_t>(peer)];
  sent->message = {};
  sent->message.receiver = sent;
  sent->message.peer = peer;
  sent->message.data = &sent->notice;
  sent->message.bytes = sizeof(sent->notice);
  network_->Send(to, kNoticeType, &sent->message, &sent->notice,
                 sizeof(sent->notice));
}

void Notices::OnDone(Message* /*message*/, ucs_status_t status,
                     uint64_t bytes) {
  if (has_ended_) return;
  // Of another build: the next one may be of this one.
  const bool is_too_long = status == UCS_ERR_MESSAGE_TRUNCATED;
  if (status != UCS_OK && !is_too_long) return;
  if (!is_too_long && bytes == sizeof(received_)) *AddHeard() = received_;
  Receive();
}

Notice* Notices::AddHeard() {
  if (spare_heard_.empty()) spare_heard_.emplace_back();
  heard_.splice(heard_.end(), spare_heard_, spare_heard_.begin());
  return &heard_.back();
}

void Notices::OnHeard(Message* /*message*/, const void* data, uint64_t bytes) {
  if (bytes != sizeof(Notice)) return;
  std::memcpy(AddHeard(), data, sizeof(Notice));
}

void Notices::Deliver() {
  while (!heard_.empty()) {
    const Notice notice = heard_.front();
    spare_heard_.splice(spare_heard_.begin(), heard_, heard_.begin());
    Hear(notice);
  }
}

void Notices::Hear(const Notice& notice) {
  for (Comm* const comm : network_->comms()) {
    if (comm->tags() == notice.tags) return comm->Hear(notice);
  }
  if (!left_.contains(notice.tags)) return early_.push_back(notice);
  // Who has heard it from the communicator itself hears it again.
  const bool is_rank =
      notice.world_rank >= 0 && notice.world_rank < network_->world_size();
  if (notice.kind != Notice::kJoined || !is_rank) return;
  AnswerForWhoLeft(notice.tags, notice.rank, notice.world_rank);
}

void Notices::Joined(uint64_t tags) {
  for (size_t i = 0; i < early_.size();) {
    if (early_[i].tags != tags) {
      ++i;
      continue;
    }
    *AddHeard() = early_[i];
    early_.erase(early_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Notices::Left(const Notice& last) {
  left_[last.tags] = {last.rank, last.has_failed, last.launches};
}

void Notices::AnswerForWhoLeft(uint64_t tags, int peer, int world_rank) {
  if (network_->stopped()) return;
  if (!network_->endpoints()->Connect(world_rank).ok()) return;
  const LastWord& last = left_[tags];
  Notice answer;
  answer.kind = Notice::kLeft;
  answer.tags = tags;
  answer.rank = last.rank;
  answer.has_failed = last.has_failed;
  answer.launches = last.launches;
  Send(answer, world_rank, peer, nullptr);
}

}  // namespace commsched::ucx
