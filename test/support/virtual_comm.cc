#include "test/support/virtual_comm.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"
#include "comm/plugin/table_support.h"

namespace commsched::test {

absl::StatusOr<VirtualComm::Member*> VirtualComm::Join(
    const commsched_comm_desc_t& desc, const Waker& waker) {
  const int32_t own = desc.ranks[desc.rank];
  const std::vector<int32_t> ranks(desc.ranks, desc.ranks + desc.size);
  if (ranks != ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", id_, "': rank ", own, " gave ranks ",
                     absl::StrJoin(ranks, ",")));
  }
  if (desc.max_in_flight != max_in_flight_) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", id_, "': rank ", own, " gave ",
                     desc.max_in_flight, " launches in flight"));
  }
  Member& member = members_[desc.rank];
  if (member.joined) {
    return absl::AlreadyExistsError(absl::StrCat(
        "communicator '", id_, "': rank ", own, " has already joined"));
  }
  member.comm = this;
  member.rank = desc.rank;
  member.joined = true;
  member.max_members = desc.max_members;
  member.waker = waker;
  member.requests.resize(desc.max_in_flight);
  return &member;
}

absl::Status VirtualComm::Check(const Member& member,
                                const commsched_launch_t* launch,
                                uint32_t request) const {
  absl::Status checked;
  if (launch == nullptr) {
    checked = absl::InvalidArgumentError("NULL");
  } else if (request >= member.requests.size() ||
             member.requests[request].used) {
    checked = absl::InvalidArgumentError(
        absl::StrCat("request ", request, " is in use or not below ",
                     member.requests.size()));
  } else {
    checked = CheckLaunch(*launch, member.max_members, member.rank, size());
  }
  if (checked.ok()) return checked;
  return absl::Status(checked.code(),
                      absl::StrCat("launch #", member.num_posted, " on axis '",
                                   axis_, "' of rank ", world_rank(member.rank),
                                   ": ", checked.message()));
}

absl::Status VirtualComm::Launch(Member* member,
                                 const commsched_launch_t* launch,
                                 uint32_t request) {
  RETURN_IF_ERROR(failure_);
  absl::Status status = Check(*member, launch, request);
  if (status.ok()) {
    Request& posted = member->requests[request];
    posted = Request();
    posted.used = true;
    posted.number = member->num_posted++;
    posted.collective = member->num_collectives;
    posted.is_collective = launch->kind != COMMSCHED_SEND;
    posted.launch = Normalized(*launch);
    status = posted.is_collective ? PostCollective(member, request)
                                  : PostPeers(member, request);
  }
  if (!status.ok()) Abort(status);
  return status;
}

absl::Status VirtualComm::PostCollective(Member* member, uint32_t request) {
  Request& posted = member->requests[request];
  posted.num_moving = 1;
  ++member->num_collectives;
  const uint64_t index = posted.collective - first_arriving_;
  while (arriving_.size() <= index) {
    Moving* const moving = backend_->NewMovingLocked();
    moving->comm = this;
    moving->is_pair = false;
    moving->number = first_arriving_ + arriving_.size();
    moving->num_arrived = 0;
    moving->launches.resize(size());
    moving->requests.resize(size());
    arriving_.push_back(moving);
  }
  Moving* const moving = arriving_[index];
  moving->launches[member->rank] = posted.launch;
  moving->requests[member->rank] = request;
  if (++moving->num_arrived < size()) return absl::OkStatus();
  // All have posted this one, so all before it: it is the oldest.
  arriving_.pop_front();
  ++first_arriving_;
  if (absl::Status agreed = CheckAgreement(*moving); !agreed.ok()) {
    backend_->FreeLocked(moving);
    return agreed;
  }
  moving->num_blocks = NumBlocks(
      {.size = size(), .first_rank = 0, .launches = moving->launches.data()});
  MakeReady(moving);
  return absl::OkStatus();
}

absl::Status VirtualComm::CheckAgreement(const Moving& moving) const {
  const std::vector<commsched_launch_t>& launches = moving.launches;
  const uint64_t expected = SignatureOf(launches[0], size());
  for (int rank = 1; rank < size(); ++rank) {
    if (SignatureOf(launches[rank], size()) == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "launch #", moving.number, " on axis '", axis_, "' differs: ",
        DescribeDifference(launches[0], world_rank(0), launches[rank],
                           world_rank(rank), size())));
  }
  return absl::OkStatus();
}

absl::Status VirtualComm::PostPeers(Member* member, uint32_t request) {
  Request& posted = member->requests[request];
  posted.num_moving = posted.launch.num_members;
  for (uint32_t m = 0; m < posted.launch.num_members; ++m) {
    const commsched_member_t& message = posted.launch.members[m];
    const bool is_send = message.direction == COMMSCHED_SEND;
    Waiting posting{is_send ? member->rank : message.peer,
                    is_send ? message.peer : member->rank,
                    member->rank,
                    request,
                    posted.launch,
                    message};
    const auto other = std::find_if(
        waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
          return waiting.from == posting.from && waiting.to == posting.to &&
                 waiting.poster != posting.poster;
        });
    if (other == waiting_.end()) {
      waiting_.push_back(posting);
      continue;
    }
    const Waiting met = *other;
    waiting_.erase(other);
    RETURN_IF_ERROR(is_send ? Meet(posting, met) : Meet(met, posting));
  }
  return absl::OkStatus();
}

absl::Status VirtualComm::Meet(const Waiting& send, const Waiting& receive) {
  const auto what = [](const Waiting& side) {
    return absl::StrCat(side.member.count, " x ",
                        DTypeName(static_cast<DType>(side.launch.dtype)));
  };
  if (send.launch.dtype != receive.launch.dtype ||
      send.member.count != receive.member.count) {
    const auto launch_of = [&](const Waiting& side) {
      return members_[side.poster].requests[side.request].number;
    };
    return absl::InvalidArgumentError(
        absl::StrCat("send and recv on axis '", axis_, "' differ: rank ",
                     world_rank(send.from), " sends ", what(send), " to rank ",
                     world_rank(send.to), " in its launch #", launch_of(send),
                     ", rank ", world_rank(send.to), " receives ",
                     what(receive), " in its launch #", launch_of(receive)));
  }
  Moving* const moving = backend_->NewMovingLocked();
  moving->comm = this;
  moving->is_pair = true;
  moving->from = send.from;
  moving->to = send.to;
  moving->send = send.member;
  moving->receive = receive.member;
  moving->launches.assign({send.launch, receive.launch});
  moving->requests.assign({send.request, receive.request});
  const uint64_t bytes = PairBytes(send.launch, send.member.count);
  moving->num_blocks = (bytes + kPairBlockBytes - 1) / kPairBlockBytes;
  MakeReady(moving);
  return absl::OkStatus();
}

void VirtualComm::MakeReady(Moving* moving) {
  moving->next_block = 0;
  moving->started_ns = backend_->NowNs();
  backend_->ready_.push_back(moving);
  WakeAll();
}

void VirtualComm::TransferComplete(const Moving& moving) {
  for (size_t i = 0; i < moving.requests.size(); ++i) {
    int rank = static_cast<int>(i);
    if (moving.is_pair) rank = i == 0 ? moving.from : moving.to;
    Request& request = members_[rank].requests[moving.requests[i]];
    --request.num_moving;
    request.started_ns = std::max(request.started_ns, moving.started_ns);
    Wake(rank);
  }
}

absl::Status VirtualComm::Poll(Member* member, uint32_t request,
                               commsched_launch_result_t* out_result) {
  if (out_result == nullptr || request >= member->requests.size() ||
      !member->requests[request].used) {
    return absl::InvalidArgumentError(
        absl::StrCat("poll of request ", request, ", which is not in flight"));
  }
  *out_result = commsched_launch_result_t();
  Request& polled = member->requests[request];
  if (polled.num_moving == 0 && polled.number == member->num_done) {
    out_result->done = 1;
    out_result->started_ns = polled.started_ns;
    polled.used = false;
    ++member->num_done;
    return absl::OkStatus();
  }
  if (polled.num_moving != 0) AbortIfSomebodyLeft(*member, polled);
  return failure_;
}

template <typename Visit>
void VirtualComm::ForEachMissing(const Member& member, const Request& request,
                                 Visit visit) const {
  if (!request.used || request.num_moving == 0) return;
  for (int rank = 0; rank < size(); ++rank) {
    const bool missing =
        request.is_collective
            ? members_[rank].num_collectives <= request.collective
            : std::any_of(waiting_.begin(), waiting_.end(),
                          [&](const Waiting& waiting) {
                            return waiting.poster == member.rank &&
                                   waiting.member.peer == rank &&
                                   &member.requests[waiting.request] ==
                                       &request;
                          });
    if (missing) visit(rank);
  }
}

uint32_t VirtualComm::Missing(const Member& member, uint32_t request,
                              int32_t* out_ranks, uint32_t capacity) const {
  if (request >= member.requests.size()) return 0;
  uint32_t num_missing = 0;
  ForEachMissing(member, member.requests[request], [&](int rank) {
    if (num_missing < capacity) out_ranks[num_missing] = rank;
    ++num_missing;
  });
  return num_missing;
}

void VirtualComm::AbortIfSomebodyLeft(const Member& member,
                                      const Request& request) {
  if (num_left_ == 0 || !failure_.ok()) return;
  int gone = -1;
  ForEachMissing(member, request, [&](int rank) {
    if (members_[rank].left && gone < 0) gone = rank;
  });
  if (gone < 0) return;
  Abort(absl::AbortedError(absl::StrCat("rank ", world_rank(gone),
                                        " left axis '", axis_,
                                        "' before launch #", request.number)));
}

void VirtualComm::Abort(absl::Status failure) {
  if (!failure_.ok()) return;
  failure_ = std::move(failure);
  backend_->RemoveReadyOfLocked(this);
  for (Moving* moving : arriving_) backend_->FreeLocked(moving);
  arriving_.clear();
  waiting_.clear();
  WakeAll();
}

void VirtualComm::Leave(Member* member) {
  if (member->num_posted != member->num_done) {
    Abort(absl::CancelledError(absl::StrCat(
        "rank ", world_rank(member->rank), " left axis '", axis_, "' with ",
        member->num_posted - member->num_done, " launches in flight")));
  }
  member->left = true;
  ++num_left_;
  WakeAll();
}

}  // namespace commsched::test
