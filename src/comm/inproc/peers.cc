#include "comm/inproc/peers.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"

namespace commsched {
namespace {

constexpr uint64_t kBlockBytes = 128 * 1024;
// Up to this many bytes, who comes second copies at once: waking the other side
// takes as long as moving about this much.
constexpr uint64_t kInlinePeerBytes = 128 * 1024;
constexpr int kMatchShift = 32;

uint64_t NumBlocks(const PeerMessage& message) {
  return message.bytes / kBlockBytes + (message.bytes % kBlockBytes != 0);
}

void CopyBlock(const PeerMessage& send, const PeerMessage& receive,
               uint64_t block) {
  const uint64_t offset = block * kBlockBytes;
  std::memcpy(receive.address + offset, send.address + offset,
              std::min(kBlockBytes, send.bytes - offset));
}

// Whether the two, of which one sends what the other receives, belong together.
bool Matches(const PeerMessage& a, const PeerMessage& b) {
  return a.rank == b.peer && a.peer == b.rank && a.is_tagged == b.is_tagged &&
         a.tag == b.tag;
}

// Takes the first message that belongs to `message` out of `queue`.
template <typename Queue>
PeerMessage* Take(Queue* queue, const PeerMessage& message) {
  PeerMessage* before = nullptr;
  for (PeerMessage* m = queue->first; m != nullptr; before = m, m = m->next) {
    if (!Matches(*m, message)) continue;
    (before == nullptr ? queue->first : before->next) = m->next;
    if (queue->last == m) queue->last = before;
    m->next = nullptr;
    return m;
  }
  return nullptr;
}

template <typename Queue>
void Append(Queue* queue, PeerMessage* message) {
  (queue->first == nullptr ? queue->first : queue->last->next) = message;
  queue->last = message;
}

}  // namespace

InprocPeers::InprocPeers(InprocMembers* members, const Clock* clock,
                         EmulatedLink* link)
    : members_(members),
      clock_(clock),
      link_(link),
      mailboxes_(std::make_unique<Mailbox[]>(members->size())),
      senders_(members->size()) {}

absl::Status InprocPeers::Reserve(int rank, uint32_t max_members) {
  Sender* const sender = &senders_[rank];
  if (sender->messages != nullptr) return absl::OkStatus();
  const uint64_t requests = members_->max_in_flight();
  sender->messages.reset(new (std::nothrow)
                             PeerMessage[requests * max_members]);
  if (sender->messages == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", requests, " launches of ", max_members,
                     " sends and receives"));
  }
  sender->num_messages.resize(requests);
  sender->max_members = max_members;
  return absl::OkStatus();
}

absl::Status InprocPeers::Post(int rank, uint32_t request, uint32_t max_members,
                               uint64_t number,
                               const commsched_launch_t& launch,
                               int64_t* cpu_ns) {
  Sender& sender = senders_[rank];
  RETURN_IF_ERROR(Reserve(rank, max_members));
  const uint64_t element_bytes = DTypeSize(static_cast<DType>(launch.dtype));
  sender.num_messages[request] = launch.num_members;
  PeerMessage* message = &sender.messages[uint64_t{request} * max_members];
  for (uint32_t m = 0; m < launch.num_members; ++m, ++message) {
    const commsched_member_t& member = launch.members[m];
    message->is_send = member.direction == COMMSCHED_SEND;
    message->rank = rank;
    message->peer = member.peer;
    message->address = static_cast<std::byte*>(
        message->is_send ? const_cast<void*>(member.input) : member.output);
    message->count = member.count;
    message->bytes = member.count * element_bytes;
    message->dtype = launch.dtype;
    message->is_tagged = IsTagged(launch);
    message->tag = message->is_tagged ? launch.tag : 0;
    message->launch = number;
    message->next = nullptr;
    message->state.store(PeerMessage::kPosted, std::memory_order_relaxed);
    RETURN_IF_ERROR(PostOne(message, cpu_ns));
  }
  return absl::OkStatus();
}

absl::Status InprocPeers::PostOne(PeerMessage* message, int64_t* cpu_ns) {
  PeerMessage* const partner = MatchOrQueue(message);
  if (partner == nullptr) return absl::OkStatus();
  // Open touches what the partner posted, so it is work: a member that learns
  // of a failure meanwhile must not leave before it is over.
  if (!members_->BeginWork()) return members_->failure();
  const int rank = message->rank;
  absl::Status opened = Open(message, partner, cpu_ns);
  if (!opened.ok()) members_->Abort(std::move(opened));
  members_->EndWork();
  if (members_->failed()) return members_->failure();
  members_->Wake(rank);  // There is something to poll for.
  return absl::OkStatus();
}

// What the message has met, or nullptr if it is the first of the two.
PeerMessage* InprocPeers::MatchOrQueue(PeerMessage* message) {
  const int receiver = message->is_send ? message->peer : message->rank;
  Mailbox& mailbox = mailboxes_[receiver];
  while (mailbox.busy.test_and_set(std::memory_order_acquire)) {
    std::this_thread::yield();
  }
  Queue* const others = message->is_send ? &mailbox.receives : &mailbox.sends;
  PeerMessage* const partner = Take(others, *message);
  if (partner == nullptr) {
    Append(message->is_send ? &mailbox.sends : &mailbox.receives, message);
  } else {
    message->match = partner->match = ++mailbox.last_match;
  }
  mailbox.busy.clear(std::memory_order_release);
  return partner;
}

absl::Status InprocPeers::CheckAgreement(const PeerMessage& send,
                                         const PeerMessage& receive) const {
  if (send.dtype == receive.dtype && send.count == receive.count) {
    return absl::OkStatus();
  }
  const auto what = [](const PeerMessage& message) {
    return absl::StrCat(message.count, " x ",
                        DTypeName(static_cast<DType>(message.dtype)));
  };
  const int from = members_->world_rank(send.rank);
  const int to = members_->world_rank(receive.rank);
  return absl::InvalidArgumentError(absl::StrCat(
      "send and recv on axis '", members_->axis(), "' ",
      send.is_tagged ? absl::StrCat("with tag ", send.tag, " ") : "",
      "differ: rank ", from, " sends ", what(send), " to rank ", to,
      " in its launch #", send.launch, ", rank ", to, " receives ",
      what(receive), " in its launch #", receive.launch));
}

absl::Status InprocPeers::Open(PeerMessage* message, PeerMessage* partner,
                               int64_t* cpu_ns) {
  PeerMessage* const send = message->is_send ? message : partner;
  PeerMessage* const receive = message->is_send ? partner : message;
  RETURN_IF_ERROR(CheckAgreement(*send, *receive));
  const int64_t now_ns = clock_->NowNs();
  const int64_t end_ns = link_->BookPair(
      members_->world_rank(send->rank), members_->world_rank(receive->rank),
      now_ns, static_cast<double>(send->bytes));
  for (PeerMessage* side : {message, partner}) {
    side->started_ns = now_ns;
    side->link_end_ns = end_ns;
    side->partner = side == message ? partner : message;
  }
  const int rank = message->rank;
  const int peer = message->peer;
  if (send->bytes <= kInlinePeerBytes) {
    const int64_t begin_ns = ThreadCpuNs();
    if (send->bytes != 0) CopyBlock(*send, *receive, 0);
    *cpu_ns += ThreadCpuNs() - begin_ns;
    Complete(receive, rank);
    return absl::OkStatus();
  }
  receive->num_blocks_done.store(0, std::memory_order_relaxed);
  receive->next_block.store(uint64_t{receive->match} << kMatchShift,
                            std::memory_order_relaxed);
  message->state.store(PeerMessage::kMatched, std::memory_order_release);
  partner->state.store(PeerMessage::kMatched, std::memory_order_release);
  members_->Wake(peer);
  return absl::OkStatus();
}

// `message` is matched and not done. Its partner may get done at any time, and
// be used again, unless we hold a block.
void InprocPeers::Work(PeerMessage* message, int64_t* cpu_ns) {
  if (!members_->BeginWork()) return;
  const int rank = message->rank;
  PeerMessage* const receive = message->is_send ? message->partner : message;
  const int64_t begin_ns = ThreadCpuNs();
  const uint64_t num_blocks = NumBlocks(*message);
  const uint64_t num_run = RunClaimed(receive, message->match, num_blocks);
  if (num_run != 0) {
    *cpu_ns += ThreadCpuNs() - begin_ns;
    // Release: what was written here. Acquire: what others wrote, to be
    // released with kDone.
    const uint64_t num_done =
        receive->num_blocks_done.fetch_add(num_run, std::memory_order_acq_rel) +
        num_run;
    if (num_done == num_blocks) Complete(receive, rank);
  }
  members_->EndWork();
}

uint64_t InprocPeers::RunClaimed(PeerMessage* receive, uint32_t match,
                                 uint64_t num_blocks) {
  constexpr uint64_t kBlockMask = (uint64_t{1} << kMatchShift) - 1;
  uint64_t num_run = 0;
  uint64_t next = receive->next_block.load(std::memory_order_acquire);
  while (next >> kMatchShift == match && (next & kBlockMask) < num_blocks) {
    if (!receive->next_block.compare_exchange_weak(next, next + 1,
                                                   std::memory_order_acq_rel)) {
      continue;
    }
    CopyBlock(*receive->partner, *receive, next & kBlockMask);
    ++num_run;
    if (members_->failed()) break;
    next = receive->next_block.load(std::memory_order_acquire);
  }
  return num_run;
}

// `rank` is the caller's; the other side is woken.
void InprocPeers::Complete(PeerMessage* receive, int rank) {
  PeerMessage* const send = receive->partner;
  const int other = send->rank == rank ? receive->rank : send->rank;
  // From here on each may be used again.
  receive->state.store(PeerMessage::kDone, std::memory_order_release);
  send->state.store(PeerMessage::kDone, std::memory_order_release);
  members_->Wake(other);
}

absl::Status InprocPeers::Advance(int rank, uint32_t request,
                                  commsched_launch_result_t* out_result,
                                  int64_t* cpu_ns) {
  const Sender& sender = senders_[rank];
  PeerMessage* message =
      &sender.messages[uint64_t{request} * sender.max_members];
  bool all_copied = true;
  int64_t link_end_ns = 0;
  for (uint32_t m = 0; m < sender.num_messages[request]; ++m, ++message) {
    uint32_t state = message->state.load(std::memory_order_acquire);
    if (state == PeerMessage::kMatched) {
      Work(message, cpu_ns);
      state = message->state.load(std::memory_order_acquire);
    } else if (state == PeerMessage::kPosted) {
      AbortIfPeerLeft(*message);
    }
    if (state != PeerMessage::kDone) {
      all_copied = false;
      continue;
    }
    out_result->started_ns =
        std::max(out_result->started_ns, message->started_ns);
    link_end_ns = std::max(link_end_ns, message->link_end_ns);
  }
  if (all_copied) {
    const bool delayed = link_->enabled() && clock_->NowNs() < link_end_ns;
    out_result->done = delayed ? 0 : 1;
    out_result->wake_at_ns = delayed ? link_end_ns : 0;
    if (!delayed) return absl::OkStatus();
  }
  // Not before the last worker has put its block down; EndWork() wakes us.
  if (members_->failed() && members_->nobody_works()) {
    return members_->failure();
  }
  return absl::OkStatus();
}

void InprocPeers::AbortIfPeerLeft(const PeerMessage& message) {
  if (!members_->any_left() || !members_->has_left(message.peer)) return;
  // What the peer did before it left can be seen now: has it come meanwhile?
  if (message.state.load(std::memory_order_acquire) != PeerMessage::kPosted) {
    return;
  }
  const char* const did =
      message.is_send ? " received what rank " : " sent what rank ";
  members_->Abort(absl::AbortedError(absl::StrCat(
      "rank ", members_->world_rank(message.peer), " left axis '",
      members_->axis(), "' before it", did, members_->world_rank(message.rank),
      message.is_send ? " sends" : " receives", " in its launch #",
      message.launch)));
}

uint32_t InprocPeers::Missing(int rank, uint32_t request, int32_t* out_ranks,
                              uint32_t capacity) const {
  const Sender& sender = senders_[rank];
  const PeerMessage* const messages =
      &sender.messages[uint64_t{request} * sender.max_members];
  const auto waits_for = [&](int peer) {
    return std::any_of(messages, messages + sender.num_messages[request],
                       [&](const PeerMessage& message) {
                         return message.peer == peer &&
                                message.state.load(std::memory_order_acquire) ==
                                    PeerMessage::kPosted;
                       });
  };
  uint32_t num_missing = 0;
  for (int peer = 0; peer < members_->size(); ++peer) {
    if (!waits_for(peer)) continue;
    if (num_missing < capacity) out_ranks[num_missing] = peer;
    ++num_missing;
  }
  return num_missing;
}

}  // namespace commsched
