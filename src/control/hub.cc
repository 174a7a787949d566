#include "control/hub.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

absl::Status CheckKey(absl::string_view key) {
  if (key.size() <= Hub::kMaxKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("key of ", key.size(),
                                                 " bytes exceeds the limit of ",
                                                 Hub::kMaxKeyBytes));
}

// Of ranks that are late, in a message.
constexpr size_t kMaxNamed = 16;

uint32_t CodeOf(const absl::Status& status) {
  return static_cast<uint32_t>(status.code());
}

}  // namespace

Hub::Hub(int size, Send send)
    : send_(std::move(send)),
      ranks_(static_cast<size_t>(size), State::kAbsent),
      meetings_(size) {
  roster_.hosts.resize(static_cast<size_t>(size));
  roster_.networks.resize(static_cast<size_t>(size));
}

absl::Status Hub::Join(int rank, RankPlace place, int64_t now_ns,
                       int64_t join_timeout_ns) {
  if (rank < 0 || rank >= static_cast<int>(ranks_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in 0..", ranks_.size() - 1));
  }
  if (place.links.size() > kMaxLinksBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " joins with a profile of links of ",
                     place.links.size(), " bytes; at most ", kMaxLinksBytes));
  }
  const auto at = static_cast<size_t>(rank);
  if (const auto lost = given_up_.find(rank); lost != given_up_.end()) {
    return absl::AbortedError(
        absl::StrCat("rank ", rank, " comes too late: ", lost->second));
  }
  if (ranks_[at] != State::kAbsent) {
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", rank, " has already joined"));
  }
  ranks_[at] = State::kPresent;
  ++num_joined_;
  ++num_present_;
  const int64_t deadline_ns = DeadlineAfter(now_ns, join_timeout_ns);
  if (deadline_ns < join_deadline_ns_) {
    join_deadline_ns_ = deadline_ns;
    join_timeout_ns_ = join_timeout_ns;
  }
  roster_.hosts[at] = std::move(place.host);
  roster_.networks[at] = std::move(place.network);
  if (rank == 0) roster_.links = std::move(place.links);
  if (num_joined_ == static_cast<int>(ranks_.size())) PutRoster();
  return absl::OkStatus();
}

void Hub::PutRoster() {
  std::string value = roster_.Encode();
  AnswerGetters(kRosterKey, value);
  store_.emplace(kRosterKey, std::move(value));
}

void Hub::Greet(int rank) {
  for (const SharedFrame& frame : news_) send_(rank, frame);
}

absl::Status Hub::Handle(int rank, FrameKind kind, absl::string_view payload,
                         int64_t now_ns) {
  if (ranks_[static_cast<size_t>(rank)] != State::kPresent &&
      kind != FrameKind::kBeat) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of kind ", static_cast<uint32_t>(kind),
                     " comes from a rank that has left"));
  }
  switch (kind) {
    case FrameKind::kMeet: {
      ASSIGN_OR_RETURN(auto message, Decode<MeetMessage>(payload));
      return Meet(rank, std::move(message), now_ns);
    }
    case FrameKind::kDecline: {
      ASSIGN_OR_RETURN(auto message, Decode<DeclineMessage>(payload));
      return Decline(rank, message);
    }
    case FrameKind::kPut: {
      ASSIGN_OR_RETURN(auto message, Decode<PutMessage>(payload));
      return Put(rank, std::move(message));
    }
    case FrameKind::kGet: {
      ASSIGN_OR_RETURN(auto message, Decode<GetMessage>(payload));
      return Get(rank, std::move(message), now_ns);
    }
    case FrameKind::kLeave:
      RETURN_IF_ERROR(Decode<LeaveMessage>(payload).status());
      return Leave(rank);
    case FrameKind::kFailed: {
      ASSIGN_OR_RETURN(auto message, Decode<FailedMessage>(payload));
      return Fail(rank, std::move(message));
    }
    case FrameKind::kOrder: {
      ASSIGN_OR_RETURN(auto message, Decode<OrderMessage>(payload));
      return CompareOrder(rank, message);
    }
    case FrameKind::kBeat:
      return Decode<BeatMessage>(payload).status();
    case FrameKind::kChallenge:
    case FrameKind::kProof:
    case FrameKind::kProved:
    case FrameKind::kJoin:
    case FrameKind::kJoined:
    case FrameKind::kRefused:
    case FrameKind::kReply:
    case FrameKind::kLost:
    case FrameKind::kOrdersDiffer:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("frame of kind ", static_cast<uint32_t>(kind),
                   " does not come from a rank that has joined"));
}

std::vector<int> Hub::MembersOf(const std::vector<int32_t>& members) const {
  if (!members.empty()) return {members.begin(), members.end()};
  std::vector<int> all(ranks_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

absl::Status Hub::Meet(int rank, MeetMessage message, int64_t now_ns) {
  RETURN_IF_ERROR(CheckKey(message.key));
  if (message.kind >= kNumMeetingKinds || message.timeout_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("meeting of kind ", message.kind, " and timeout ",
                     message.timeout_ns, " ns does not exist"));
  }
  const std::vector<int> members = MembersOf(message.members);
  std::vector<std::string> decided;
  const absl::Status status = meetings_.Come(
      static_cast<MeetingKind>(message.kind), message.key,
      {members, message.names}, rank, std::move(message.payload), &decided);
  if (!status.ok()) {
    Answer(rank, message.number, status, {});
    return absl::OkStatus();
  }
  Asked asked;
  asked.number = message.number;
  asked.since_ns = now_ns;
  asked.deadline_ns = DeadlineAfter(now_ns, message.timeout_ns);
  in_meeting_[Place(rank, message.key)] = asked;
  waiters_.insert({asked.deadline_ns, rank, Wait::kMeeting, message.key});
  Settle(message.key);
  for (const std::string& key : decided) Settle(key);
  return absl::OkStatus();
}

absl::Status Hub::Decline(int rank, const DeclineMessage& message) {
  RETURN_IF_ERROR(CheckKey(message.key));
  if (message.code == 0) {
    return absl::InvalidArgumentError("a rank declined without a reason");
  }
  const std::vector<int> members = MembersOf(message.members);
  meetings_.Decline(message.key, {members, message.names}, rank,
                    StatusFrom(message.code, message.message));
  Settle(message.key);
  return absl::OkStatus();
}

void Hub::Settle(const std::string& key) {
  const MeetingTable::Meeting* meeting = meetings_.Find(key);
  if (meeting == nullptr || !meeting->decided) return;
  ReplyMessage reply;
  reply.code = CodeOf(meeting->failure);
  reply.message.assign(meeting->failure.message().data(),
                       meeting->failure.message().size());
  reply.values = meeting->results;
  // Numbers take no more room than these.
  if (Encode(reply).size() > kMaxPayloadBytes) {
    reply.values.clear();
    reply.code = static_cast<uint32_t>(absl::StatusCode::kResourceExhausted);
    reply.message = absl::StrCat("meeting '", key,
                                 "': what its ranks have brought exceeds the "
                                 "limit of ",
                                 kMaxPayloadBytes, " bytes together");
  }
  for (const int rank : meetings_.Waiting(key)) {
    const auto at = in_meeting_.find(Place(rank, key));
    reply.number = at->second.number;
    waiters_.erase({at->second.deadline_ns, rank, Wait::kMeeting, key});
    in_meeting_.erase(at);
    meetings_.Leave(key, rank);
    send_(rank, FrameOf(reply));
  }
}

void Hub::Answer(int rank, uint64_t number, const absl::Status& status,
                 std::vector<std::string> values) {
  ReplyMessage reply;
  reply.number = number;
  reply.code = CodeOf(status);
  reply.message.assign(status.message().data(), status.message().size());
  reply.values = std::move(values);
  send_(rank, FrameOf(reply));
}

absl::Status Hub::Put(int rank, PutMessage message) {
  RETURN_IF_ERROR(CheckKey(message.key));
  if (store_.contains(message.key)) {
    Answer(rank, message.number,
           absl::AlreadyExistsError(
               absl::StrCat("key '", message.key, "' has a value already")),
           {});
    return absl::OkStatus();
  }
  const size_t more = message.key.size() + message.value.size();
  if (more > kMaxStoreBytes - store_bytes_) {
    Answer(rank, message.number,
           absl::ResourceExhaustedError(absl::StrCat(
               "value of key '", message.key, "', ", more,
               " bytes, exceeds what is left of ", kMaxStoreBytes)),
           {});
    return absl::OkStatus();
  }
  store_bytes_ += more;
  AnswerGetters(message.key, message.value);
  store_.emplace(std::move(message.key), std::move(message.value));
  Answer(rank, message.number, absl::OkStatus(), {});
  return absl::OkStatus();
}

void Hub::AnswerGetters(const std::string& key, const std::string& value) {
  const auto getters = getters_.find(key);
  if (getters == getters_.end()) return;
  for (const auto& [getter, asked] : getters->second) {
    waiters_.erase({asked.deadline_ns, getter, Wait::kGet, key});
    Answer(getter, asked.number, absl::OkStatus(), {value});
  }
  getters_.erase(getters);
}

absl::Status Hub::Get(int rank, GetMessage message, int64_t now_ns) {
  RETURN_IF_ERROR(CheckKey(message.key));
  if (message.timeout_ns < 0) {
    return absl::InvalidArgumentError("a rank gets with a negative timeout");
  }
  const auto found = store_.find(message.key);
  if (found != store_.end()) {
    Answer(rank, message.number, absl::OkStatus(), {found->second});
    return absl::OkStatus();
  }
  const Asked asked{message.number, now_ns,
                    DeadlineAfter(now_ns, message.timeout_ns),
                    std::move(message.members)};
  auto& getters = getters_[message.key];
  for (const auto& [getter, other] : getters) {
    if (getter != rank) continue;
    Answer(rank, message.number,
           absl::AlreadyExistsError(absl::StrCat(
               "rank ", rank, " already waits for key '", message.key, "'")),
           {});
    return absl::OkStatus();
  }
  getters.emplace_back(rank, asked);
  waiters_.insert({asked.deadline_ns, rank, Wait::kGet, message.key});
  return absl::OkStatus();
}

absl::Status Hub::Leave(int rank) {
  if (ranks_[static_cast<size_t>(rank)] != State::kPresent) {
    return absl::InvalidArgumentError("a rank leaves twice");
  }
  Depart(rank, State::kLeft,
         absl::FailedPreconditionError("it has left the job"));
  Answer(rank, kLeaveReply, absl::OkStatus(), {});
  return absl::OkStatus();
}

void Hub::Lose(int rank, absl::string_view why) {
  if (!IsPresent(rank) && !IsAwaited(rank)) return;
  LostMessage lost;
  lost.rank = rank;
  lost.why = absl::StrCat("rank ", rank, " is lost: ", why);
  Depart(rank, State::kLost, absl::AbortedError(lost.why));
  Announce(rank, FrameOf(lost));
}

absl::optional<LostMessage> Hub::Late(int64_t now_ns) const {
  if (now_ns < join_deadline_ns_ ||
      num_joined_ == static_cast<int>(ranks_.size())) {
    return absl::nullopt;
  }
  std::vector<int> late;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (IsAwaited(rank)) late.push_back(rank);
  }
  if (late.empty()) return absl::nullopt;
  LostMessage lost;
  lost.rank = late.front();
  const size_t more = late.size() - std::min(late.size(), kMaxNamed);
  late.resize(late.size() - more);
  lost.why = absl::StrCat(
      late.size() == 1 ? "rank " : "ranks ", absl::StrJoin(late, ", "),
      more == 0 ? "" : absl::StrCat(" and ", more, " more"), " of ",
      ranks_.size(), late.size() == 1 ? " has" : " have", " not joined within ",
      static_cast<double>(join_timeout_ns_) * 1e-9, " s");
  return lost;
}

void Hub::GiveUpLate(const LostMessage& late) {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (IsAwaited(rank))
      Depart(rank, State::kLost, absl::AbortedError(late.why));
  }
  Announce(late.rank, FrameOf(late));
}

void Hub::Announce(int rank, SharedFrame frame) {
  for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
    if (other != rank && IsPresent(other)) send_(other, frame);
  }
  news_.push_back(std::move(frame));
}

// Later failures of a scope are consequences of the first.
absl::Status Hub::Fail(int rank, FailedMessage message) {
  if (message.code == 0 ||
      message.message.size() > FailedMessage::kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a failure of code ", message.code, " with a message of ",
                     message.message.size(), " bytes; the limit is ",
                     FailedMessage::kMaxMessageBytes));
  }
  if (failed_scopes_.contains(message.scope)) return absl::OkStatus();
  if (failed_scopes_.size() >= kMaxFailures) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxFailures, " things have failed"));
  }
  failed_scopes_.insert(message.scope);
  message.rank = rank;
  Announce(rank, FrameOf(message));
  return absl::OkStatus();
}

absl::Status Hub::CompareOrder(int rank, const OrderMessage& message) {
  RETURN_IF_ERROR(message.slice.Check());
  const absl::optional<OrderDifference> found =
      orders_.Say(rank, message.slice);
  if (!found.has_value()) return absl::OkStatus();
  OrdersDifferMessage differ;
  differ.topic = found->topic;
  differ.a_number = found->a_number;
  differ.b_number = found->b_number;
  differ.a_first = found->a_first;
  differ.b_first = found->b_first;
  const SharedFrame frame = FrameOf(differ);
  for (const int concerned : {found->a_first, found->b_first}) {
    if (IsPresent(concerned)) send_(concerned, frame);
  }
  return absl::OkStatus();
}

void Hub::Depart(int rank, State state, const absl::Status& why) {
  if (IsPresent(rank)) {
    --num_present_;
  } else {
    given_up_.emplace(rank, std::string(why.message()));
    ++num_joined_;
  }
  ranks_[static_cast<size_t>(rank)] = state;
  // It waits for nothing any more, before meetings are settled.
  absl::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.rank != rank) return false;
    if (waiter.wait == Wait::kMeeting) {
      in_meeting_.erase(Place(rank, waiter.key));
      return true;
    }
    const auto getters = getters_.find(waiter.key);
    std::erase_if(getters->second,
                  [&](const auto& getter) { return getter.first == rank; });
    if (getters->second.empty()) getters_.erase(getters);
    return true;
  });
  for (const std::string& key : meetings_.Lose(rank, why)) Settle(key);
  FailGetters(rank, state, why);
}

// `rank`, which departs, may be the one that was to put what others wait for.
// Who has joined and left is on the roster all the same.
void Hub::FailGetters(int rank, State state, const absl::Status& why) {
  const auto getters = std::exchange(getters_, {});
  for (const auto& [key, asked_by] : getters) {
    const bool is_roster = key == kRosterKey;
    if (is_roster && state == State::kLeft) {
      getters_.emplace(key, asked_by);
      continue;
    }
    for (const auto& [getter, asked] : asked_by) {
      const std::vector<int32_t>& members = asked.members;
      if (!members.empty() &&
          std::find(members.begin(), members.end(), rank) == members.end()) {
        getters_[key].emplace_back(getter, asked);
        continue;
      }
      waiters_.erase({asked.deadline_ns, getter, Wait::kGet, key});
      Answer(getter, asked.number,
             is_roster ? why
                       : absl::Status(
                             why.code(),
                             absl::StrCat("key '", key, "': rank ", rank,
                                          " will not put it: ", why.message())),
             {});
    }
  }
}

void Hub::Tick(int64_t now_ns) {
  while (!waiters_.empty() && waiters_.begin()->deadline_ns <= now_ns) {
    const Waiter waiter = *waiters_.begin();
    if (waiter.wait == Wait::kMeeting) {
      const Asked& asked = in_meeting_.at(Place(waiter.rank, waiter.key));
      meetings_.Expire(waiter.key, waiter.rank, now_ns - asked.since_ns);
      Settle(waiter.key);  // Takes the waiter out.
      continue;
    }
    waiters_.erase(waiters_.begin());
    const auto getters = getters_.find(waiter.key);
    const auto asked = std::find_if(
        getters->second.begin(), getters->second.end(),
        [&](const auto& getter) { return getter.first == waiter.rank; });
    Answer(waiter.rank, asked->second.number,
           absl::DeadlineExceededError(absl::StrCat(
               "rank ", waiter.rank, " waited ",
               (now_ns - asked->second.since_ns) / 1'000'000, " ms for key '",
               waiter.key, "', which nobody has put")),
           {});
    getters->second.erase(asked);
    if (getters->second.empty()) getters_.erase(getters);
  }
}

}  // namespace commsched
