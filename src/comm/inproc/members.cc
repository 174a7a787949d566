#include "comm/inproc/members.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace commsched {

InprocMembers::InprocMembers(const commsched_comm_desc_t& desc)
    : id_(desc.id),
      axis_(desc.axis),
      ranks_(desc.ranks, desc.ranks + desc.size),
      max_in_flight_(desc.max_in_flight),
      members_(std::make_unique<Member[]>(ranks_.size())) {}

absl::Status InprocMembers::Join(const commsched_comm_desc_t& desc,
                                 const Waker& waker) {
  const int32_t world_rank = desc.ranks[desc.rank];
  const std::vector<int32_t> ranks(desc.ranks, desc.ranks + desc.size);
  if (ranks != ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", id_, "': rank ", world_rank,
                     " gave ranks ", absl::StrJoin(ranks, ","),
                     ", the first member gave ", absl::StrJoin(ranks_, ",")));
  }
  if (desc.max_in_flight != max_in_flight_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "communicator '", id_, "': rank ", world_rank, " gave ",
        desc.max_in_flight, " launches in flight, the first member said ",
        max_in_flight_));
  }
  Member& member = members_[desc.rank];
  // Joins are one after the other, so relaxed will do.
  if (member.state.load(std::memory_order_relaxed) != Member::kAbsent) {
    return absl::AlreadyExistsError(absl::StrCat(
        "communicator '", id_, "': rank ", world_rank, " has already joined"));
  }
  member.waker = waker;
  member.state.store(Member::kJoined, std::memory_order_seq_cst);
  return absl::OkStatus();
}

void InprocMembers::Leave(int rank) {
  Member& member = members_[rank];
  member.state.store(Member::kLeft, std::memory_order_seq_cst);
  num_left_.fetch_add(1, std::memory_order_seq_cst);
  // A waker that saw kJoined has announced itself before. It is inside `wake`,
  // which never blocks.
  while (member.num_wakers.load(std::memory_order_seq_cst) != 0) {
    std::this_thread::yield();
  }
  // After a failure a member may leave with launches in flight, whose blocks
  // others may be copying. They stop after the block they are at.
  while (failed() && !nobody_works()) std::this_thread::yield();
  WakeOthers(rank);
}

void InprocMembers::Abort(absl::Status failure) {
  {
    MutexLock lock(&mu_);
    if (!failure_.ok()) return;
    failure_ = std::move(failure);
    failed_.store(true, std::memory_order_seq_cst);
  }
  WakeOthers(-1);
}

absl::Status InprocMembers::failure() {
  MutexLock lock(&mu_);
  return failure_;
}

bool InprocMembers::BeginWork() {
  num_working_.fetch_add(1, std::memory_order_seq_cst);
  if (!failed()) return true;
  EndWork();
  return false;
}

void InprocMembers::EndWork() {
  const bool last = num_working_.fetch_sub(1, std::memory_order_seq_cst) == 1;
  if (last && failed()) WakeOthers(-1);
}

void InprocMembers::Wake(int rank) {
  Member& member = members_[rank];
  // Announce, then look whether the member is still there; Leave() does it the
  // other way round.
  member.num_wakers.fetch_add(1, std::memory_order_seq_cst);
  if (member.state.load(std::memory_order_seq_cst) == Member::kJoined &&
      member.waker.wake != nullptr) {
    member.waker.wake(member.waker.user);
  }
  member.num_wakers.fetch_sub(1, std::memory_order_seq_cst);
}

void InprocMembers::WakeOthers(int rank) {
  for (int other = 0; other < size(); ++other) {
    if (other != rank) Wake(other);
  }
}

}  // namespace commsched
