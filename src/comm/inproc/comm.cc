#include "comm/inproc/comm.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"

namespace commsched {
namespace {

// Up to this many bytes on the wire over all members, the last to arrive does
// the transfer at once: waking a helper takes as long as moving about this
// much.
constexpr uint64_t kInlineBytes = 256 * 1024;

// Long lists of small members are many small blocks: they are claimed several
// at a time, but so that each member has a few claims to share out.
constexpr uint64_t kClaimsPerMember = 8;
constexpr uint64_t kMaxBlocksPerClaim = 64;

// More helpers than other cores only take turns.
int NumHelpers(int size) {
  const int num_cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::min(std::max(1, num_cores - 1), size - 1);
}

}  // namespace

InprocComm::InprocComm(const commsched_comm_desc_t& desc, const Clock* clock,
                       EmulatedLink* link)
    : members_(desc),
      clock_(clock),
      link_(link),
      num_helpers_(NumHelpers(desc.size)),
      num_slots_(uint64_t{2} * desc.max_in_flight),
      slots_(std::make_unique<InprocSlot[]>(num_slots_)),
      num_posted_(desc.size),
      peers_(&members_, clock, link) {
  for (uint64_t s = 0; s < num_slots_; ++s) {
    slots_[s].launches.resize(desc.size);
    slots_[s].signatures.resize(desc.size);
  }
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
        "launch #", number, " on axis '", members_.axis(), "' differs: ",
        DescribeDifference(slot.launches[0], members_.world_rank(0),
                           slot.launches[rank], members_.world_rank(rank),
                           size())));
  }
  return HasOwnCounts(slot.launches[0]) ? CheckOwnCounts(slot, number)
                                        : absl::OkStatus();
}

absl::Status InprocComm::CheckOwnCounts(const InprocSlot& slot,
                                        uint64_t number) const {
  const commsched_launch_t* const launches = slot.launches.data();
  for (uint32_t m = 0; m < launches[0].num_members; ++m) {
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        const uint64_t sent = launches[from].members[m].counts[to];
        const uint64_t expected = launches[to].members[m].counts[size() + from];
        if (sent == expected) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "launch #", number, " on axis '", members_.axis(), "': rank ",
            members_.world_rank(from), " sends ", sent, " elements of member ",
            m, " to rank ", members_.world_rank(to), ", which expects ",
            expected));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status InprocComm::Post(int rank, uint64_t number,
                              const commsched_launch_t& launch,
                              TransferScratch* scratch, int64_t* cpu_ns) {
  InprocSlot& slot = SlotOf(number);
  slot.launches[rank] = launch;
  slot.signatures[rank] = SignatureOf(launch, size());
  // Released here for Missing() and, once the member has left, the others.
  num_posted_[rank].store(number + 1, std::memory_order_release);
  // Release: our entry and what our buffers hold. Acquire: those of the others.
  const uint64_t arrivals =
      slot.num_arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrivals % static_cast<uint64_t>(size()) != 0) return absl::OkStatus();
  return Open(rank, number, scratch, cpu_ns);
}

// All of it touches what the members posted, so all of it is work: a member
// that learns of a failure meanwhile must not leave before it is over.
absl::Status InprocComm::Open(int rank, uint64_t number,
                              TransferScratch* scratch, int64_t* cpu_ns) {
  if (!members_.BeginWork()) return members_.failure();
  InprocSlot& slot = SlotOf(number);
  if (absl::Status agreement = CheckAgreement(slot, number); !agreement.ok()) {
    members_.Abort(std::move(agreement));
    members_.EndWork();
    return members_.failure();
  }
  slot.last_rank = rank;
  const Transfer transfer = TransferOf(slot);
  slot.num_blocks = NumBlocks(transfer);
  slot.blocks_per_claim = std::clamp<uint64_t>(
      slot.num_blocks / (kClaimsPerMember * static_cast<uint64_t>(size())), 1,
      kMaxBlocksPerClaim);
  slot.started_ns = clock_->NowNs();
  slot.link_end_ns = slot.started_ns;
  const double wire_bytes = WireBytes(transfer);
  if (link_->enabled()) {
    slot.link_end_ns =
        link_->Book(members_.world_ranks(), slot.started_ns, wire_bytes);
  }
  const bool alone = wire_bytes * size() <= static_cast<double>(kInlineBytes);
  if (alone) {
    RunAll(slot, scratch, cpu_ns);
  } else {
    slot.next_claim.store(0, std::memory_order_relaxed);
    slot.num_blocks_done.store(0, std::memory_order_relaxed);
    slot.opened.store(number + 1, std::memory_order_release);
  }
  members_.EndWork();
  if (members_.failed()) return members_.failure();
  if (alone) {
    Complete(rank, number);
  } else {
    WakeHelpers(rank);
  }
  members_.Wake(rank);  // There is something to poll for.
  return absl::OkStatus();
}

void InprocComm::RunAll(InprocSlot& slot, TransferScratch* scratch,
                        int64_t* cpu_ns) {
  if (slot.num_blocks == 0) return;
  const int64_t begin_ns = ThreadCpuNs();
  const Transfer transfer = TransferOf(slot);
  BlockRunner runner(transfer, scratch);
  for (uint64_t block = 0; block < slot.num_blocks; ++block) {
    runner.Run(block, slot.num_blocks);
    if (members_.failed()) break;
  }
  *cpu_ns += ThreadCpuNs() - begin_ns;
}

// Who holds a claim keeps the launch from being complete. So the members'
// memory, and what describes it, is looked at with one in hand only.
uint64_t InprocComm::RunClaimed(InprocSlot& slot, TransferScratch* scratch) {
  const auto claim = [&] {
    return slot.next_claim.fetch_add(1, std::memory_order_relaxed) *
           slot.blocks_per_claim;
  };
  uint64_t begin = claim();
  if (begin >= slot.num_blocks) return 0;
  const Transfer transfer = TransferOf(slot);
  BlockRunner runner(transfer, scratch);
  uint64_t num_run = 0;
  for (; begin < slot.num_blocks; begin = claim()) {
    const uint64_t end =
        std::min(begin + slot.blocks_per_claim, slot.num_blocks);
    for (uint64_t block = begin; block < end; ++block) {
      runner.Run(block, end);
      ++num_run;
      if (members_.failed()) return num_run;
    }
  }
  return num_run;
}

void InprocComm::Work(int rank, uint64_t number, TransferScratch* scratch,
                      int64_t* cpu_ns) {
  InprocSlot& slot = SlotOf(number);
  if (!members_.BeginWork()) return;
  uint64_t num_run = 0;
  if (slot.next_claim.load(std::memory_order_relaxed) * slot.blocks_per_claim <
      slot.num_blocks) {
    const int64_t begin_ns = ThreadCpuNs();
    num_run = RunClaimed(slot, scratch);
    *cpu_ns += ThreadCpuNs() - begin_ns;
  }
  members_.EndWork();
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
  members_.WakeOthers(rank);
}

absl::Status InprocComm::Advance(int rank, uint64_t number,
                                 TransferScratch* scratch,
                                 commsched_launch_result_t* out_result,
                                 int64_t* cpu_ns) {
  InprocSlot& slot = SlotOf(number);
  const uint64_t tag = number + 1;
  const bool open = slot.opened.load(std::memory_order_acquire) == tag;
  if (slot.completed.load(std::memory_order_acquire) != tag &&
      !members_.failed()) {
    if (open) {
      Work(rank, number, scratch, cpu_ns);
    } else {
      AbortIfSomebodyLeft(number);
    }
  }
  const bool completed = slot.completed.load(std::memory_order_acquire) == tag;
  const bool delayed =
      (open || completed) && slot.link_end_ns > slot.started_ns;
  const bool on_its_way = delayed && clock_->NowNs() < slot.link_end_ns;
  if (on_its_way) out_result->wake_at_ns = slot.link_end_ns;
  if (completed && !on_its_way) {
    out_result->started_ns = slot.started_ns;
    out_result->done = 1;
    return absl::OkStatus();
  }
  // Not before the last worker has put its block down; members_.EndWork() wakes
  // us.
  if (members_.failed() && members_.nobody_works()) return members_.failure();
  return absl::OkStatus();
}

void InprocComm::AbortIfSomebodyLeft(uint64_t number) {
  if (!members_.any_left()) return;
  for (int rank = 0; rank < size(); ++rank) {
    if (!members_.has_left(rank)) continue;
    if (num_posted_[rank].load(std::memory_order_acquire) > number) continue;
    members_.Abort(absl::AbortedError(
        absl::StrCat("rank ", members_.world_rank(rank), " left axis '",
                     members_.axis(), "' before launch #", number)));
    return;
  }
}

void InprocComm::WakeHelpers(int rank) {
  for (int i = 1; i <= num_helpers_; ++i) members_.Wake((rank + i) % size());
}

uint32_t InprocComm::Missing(uint64_t number, int32_t* out_ranks,
                             uint32_t capacity) const {
  uint32_t num_missing = 0;
  for (int rank = 0; rank < size(); ++rank) {
    if (num_posted_[rank].load(std::memory_order_acquire) > number) continue;
    if (num_missing < capacity) out_ranks[num_missing] = rank;
    ++num_missing;
  }
  return num_missing;
}

}  // namespace commsched
