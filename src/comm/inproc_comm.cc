#include "comm/inproc_comm.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"

namespace commsched {
namespace {

// Up to this many bytes on the wire over all members, the last to arrive does
// the transfer at once: waking a helper takes as long as moving about this
// much.
constexpr uint64_t kInlineBytes = 256 * 1024;

// More helpers than other cores only take turns.
int NumHelpers(int size) {
  const int num_cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::min(std::max(1, num_cores - 1), size - 1);
}

}  // namespace

InprocComm::InprocComm(const commsched_comm_desc_t& desc, const Clock* clock,
                       EmulatedLink* link)
    : id_(desc.id),
      axis_(desc.axis),
      ranks_(desc.ranks, desc.ranks + desc.size),
      max_in_flight_(desc.max_in_flight),
      clock_(clock),
      link_(link),
      num_helpers_(NumHelpers(desc.size)),
      num_slots_(uint64_t{2} * desc.max_in_flight),
      slots_(std::make_unique<InprocSlot[]>(num_slots_)),
      members_(std::make_unique<Member[]>(ranks_.size())) {
  for (uint64_t s = 0; s < num_slots_; ++s) {
    slots_[s].launches.resize(ranks_.size());
    slots_[s].signatures.resize(ranks_.size());
  }
}

absl::Status InprocComm::Join(const commsched_comm_desc_t& desc) {
  const std::vector<int32_t> ranks(desc.ranks, desc.ranks + desc.size);
  if (ranks != ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", id_, "': rank ", desc.world_rank,
                     " says ranks ", absl::StrJoin(ranks, ","),
                     ", the first member said ", absl::StrJoin(ranks_, ",")));
  }
  if (desc.max_in_flight != max_in_flight_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "communicator '", id_, "': rank ", desc.world_rank, " says ",
        desc.max_in_flight, " launches in flight, the first member said ",
        max_in_flight_));
  }
  Member& member = members_[desc.rank];
  // Joins are one after the other (InprocBackend), so relaxed will do.
  if (member.state.load(std::memory_order_relaxed) != Member::kAbsent) {
    return absl::AlreadyExistsError(absl::StrCat("communicator '", id_,
                                                 "': rank ", desc.world_rank,
                                                 " has joined before"));
  }
  member.wake = desc.wake;
  member.wake_user = desc.wake_user;
  member.state.store(Member::kJoined, std::memory_order_seq_cst);
  return absl::OkStatus();
}

void InprocComm::Leave(int rank, uint64_t num_posted) {
  Member& member = members_[rank];
  member.num_posted = num_posted;
  member.state.store(Member::kLeft, std::memory_order_seq_cst);
  num_left_.fetch_add(1, std::memory_order_seq_cst);
  // A waker that saw kJoined has announced itself before. It is inside `wake`,
  // which never blocks.
  while (member.num_wakers.load(std::memory_order_seq_cst) != 0) {
    std::this_thread::yield();
  }
  // After a failure a member may leave with launches in flight, whose blocks
  // others may be copying. They stop after the block they are at.
  while (failed() && num_working_.load(std::memory_order_seq_cst) != 0) {
    std::this_thread::yield();
  }
  WakeOthers(rank);
}

Transfer InprocComm::TransferOf(const InprocSlot& slot) const {
  const commsched_launch_t* launches = slot.launches.data();
  return {.size = size(),
          .first_rank = launches->deterministic != 0 ? 0 : slot.last_rank,
          .launches = launches};
}

absl::Status InprocComm::CheckAgreement(const InprocSlot& slot,
                                        uint64_t number) const {
  for (int rank = 1; rank < size(); ++rank) {
    if (slot.signatures[rank] == slot.signatures[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "launch #", number, " on axis '", axis_, "' differs: ",
        DescribeDifference(slot.launches[0], ranks_[0], slot.launches[rank],
                           ranks_[rank], size())));
  }
  return absl::OkStatus();
}

absl::Status InprocComm::Post(int rank, uint64_t number,
                              const commsched_launch_t& launch,
                              TransferScratch* scratch, int64_t* cpu_ns) {
  InprocSlot& slot = SlotOf(number);
  slot.launches[rank] = launch;
  slot.signatures[rank] = SignatureOf(launch, size());
  // Release: our entry and what our buffers hold. Acquire: those of the others.
  const uint64_t arrivals =
      slot.num_arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrivals % ranks_.size() != 0) return absl::OkStatus();
  return Open(rank, number, scratch, cpu_ns);
}

// All of it touches what the members posted, so all of it is work: a member
// that learns of a failure meanwhile must not leave before it is over.
absl::Status InprocComm::Open(int rank, uint64_t number,
                              TransferScratch* scratch, int64_t* cpu_ns) {
  if (!BeginWork()) return failure();
  InprocSlot& slot = SlotOf(number);
  if (absl::Status agreement = CheckAgreement(slot, number); !agreement.ok()) {
    Abort(std::move(agreement));
    EndWork();
    return failure();
  }
  slot.last_rank = rank;
  const Transfer transfer = TransferOf(slot);
  slot.num_blocks = NumBlocks(transfer);
  slot.started_ns = clock_->NowNs();
  slot.link_end_ns = slot.started_ns;
  if (link_->enabled()) {
    slot.link_end_ns =
        link_->Book(ranks_, slot.started_ns, WireBytes(transfer));
  }
  const bool alone =
      WireBytes(transfer) * size() <= static_cast<double>(kInlineBytes);
  if (alone) {
    RunAll(slot, scratch, cpu_ns);
  } else {
    slot.next_block.store(0, std::memory_order_relaxed);
    slot.num_blocks_done.store(0, std::memory_order_relaxed);
    slot.opened.store(number + 1, std::memory_order_release);
  }
  EndWork();
  if (failed()) return failure();
  if (alone) {
    Complete(rank, number);
  } else {
    WakeHelpers(rank);
  }
  Wake(rank);  // There is something to poll for.
  return absl::OkStatus();
}

void InprocComm::RunAll(InprocSlot& slot, TransferScratch* scratch,
                        int64_t* cpu_ns) {
  if (slot.num_blocks == 0) return;
  const int64_t begin_ns = ThreadCpuNs();
  const Transfer transfer = TransferOf(slot);
  BlockCursor cursor(transfer);
  for (uint64_t block = 0; block < slot.num_blocks; ++block) {
    RunBlock(transfer, cursor.At(block), scratch);
    if (failed()) break;
  }
  *cpu_ns += ThreadCpuNs() - begin_ns;
}

uint64_t InprocComm::RunClaimed(InprocSlot& slot, uint64_t first,
                                TransferScratch* scratch) {
  const Transfer transfer = TransferOf(slot);
  BlockCursor cursor(transfer);
  uint64_t num_run = 0;
  for (uint64_t block = first; block < slot.num_blocks;
       block = slot.next_block.fetch_add(1, std::memory_order_relaxed)) {
    RunBlock(transfer, cursor.At(block), scratch);
    ++num_run;
    if (failed()) break;
  }
  return num_run;
}

void InprocComm::Work(int rank, uint64_t number, TransferScratch* scratch,
                      int64_t* cpu_ns) {
  InprocSlot& slot = SlotOf(number);
  if (!BeginWork()) return;
  uint64_t num_run = 0;
  const uint64_t first =
      slot.next_block.fetch_add(1, std::memory_order_relaxed);
  if (first < slot.num_blocks) {
    const int64_t begin_ns = ThreadCpuNs();
    num_run = RunClaimed(slot, first, scratch);
    *cpu_ns += ThreadCpuNs() - begin_ns;
  }
  EndWork();
  if (num_run == 0) return;
  // Release: the outputs written here. Acquire: those that others wrote, to be
  // released with `completed`.
  const uint64_t num_done =
      slot.num_blocks_done.fetch_add(num_run, std::memory_order_acq_rel) +
      num_run;
  if (num_done == slot.num_blocks) Complete(rank, number);
}

void InprocComm::Complete(int rank, uint64_t number) {
  SlotOf(number).completed.store(number + 1, std::memory_order_release);
  WakeOthers(rank);
}

absl::Status InprocComm::Advance(int rank, uint64_t number,
                                 TransferScratch* scratch,
                                 commsched_launch_result_t* out_result,
                                 int64_t* cpu_ns) {
  InprocSlot& slot = SlotOf(number);
  const uint64_t tag = number + 1;
  if (slot.completed.load(std::memory_order_acquire) != tag && !failed()) {
    if (slot.opened.load(std::memory_order_acquire) == tag) {
      Work(rank, number, scratch, cpu_ns);
    } else {
      AbortIfSomebodyLeft(number);
    }
  }
  if (slot.completed.load(std::memory_order_acquire) == tag) {
    out_result->started_ns = slot.started_ns;
    const bool delayed = slot.link_end_ns > slot.started_ns;
    if (!delayed || clock_->NowNs() >= slot.link_end_ns) {
      out_result->done = 1;
      return absl::OkStatus();
    }
    out_result->wake_at_ns = slot.link_end_ns;
  }
  // Not before the last worker has put its block down; EndWork() wakes us.
  if (failed() && num_working_.load(std::memory_order_seq_cst) == 0) {
    return failure();
  }
  return absl::OkStatus();
}

bool InprocComm::BeginWork() {
  num_working_.fetch_add(1, std::memory_order_seq_cst);
  if (!failed()) return true;
  EndWork();
  return false;
}

void InprocComm::EndWork() {
  const bool last = num_working_.fetch_sub(1, std::memory_order_seq_cst) == 1;
  if (last && failed()) WakeOthers(-1);
}

void InprocComm::AbortIfSomebodyLeft(uint64_t number) {
  if (num_left_.load(std::memory_order_seq_cst) == 0) return;
  for (int rank = 0; rank < size(); ++rank) {
    const Member& member = members_[rank];
    if (member.state.load(std::memory_order_seq_cst) != Member::kLeft) continue;
    if (member.num_posted > number) continue;
    Abort(absl::AbortedError(absl::StrCat("rank ", ranks_[rank], " left axis '",
                                          axis_, "' before launch #", number)));
    return;
  }
}

void InprocComm::Abort(absl::Status failure) {
  {
    MutexLock lock(&mu_);
    if (!failure_.ok()) return;
    failure_ = std::move(failure);
    failed_.store(true, std::memory_order_seq_cst);
  }
  WakeOthers(-1);
}

absl::Status InprocComm::failure() {
  MutexLock lock(&mu_);
  return failure_;
}

void InprocComm::Wake(int rank) {
  Member& member = members_[rank];
  // Announce, then look whether the member is still there; Leave() does it the
  // other way round.
  member.num_wakers.fetch_add(1, std::memory_order_seq_cst);
  if (member.state.load(std::memory_order_seq_cst) == Member::kJoined &&
      member.wake != nullptr) {
    member.wake(member.wake_user);
  }
  member.num_wakers.fetch_sub(1, std::memory_order_seq_cst);
}

void InprocComm::WakeHelpers(int rank) {
  for (int i = 1; i <= num_helpers_; ++i) Wake((rank + i) % size());
}

void InprocComm::WakeOthers(int rank) {
  for (int other = 0; other < size(); ++other) {
    if (other != rank) Wake(other);
  }
}

}  // namespace commsched
