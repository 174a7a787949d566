#include "ucx/host/local_links.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ucx/host/random_word.h"
#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// Of all rings into a rank, and what one has at least and at most.
constexpr uint64_t kAllRingBytes = 4 << 20;
constexpr uint64_t kLeastRingBytes = 16 << 10;
constexpr uint64_t kMostRingBytes = 256 << 10;
// Of one that goes in parts: one is written while another is read.
constexpr uint64_t kMostPartBytes = 32 << 10;
// What a receive from any source takes.
constexpr uint64_t kMostAnyBytes = 1024;
// Entries of a ring that are read before others have their turn.
constexpr int kMostEntries = 256;
// From here on who writes is told of the room during the reading of the rest.
constexpr uint64_t kLargeEntryBytes = 4096;

// The beginning of a segment. Rings follow, at a page.
struct SegmentHead {
  uint64_t nonce;
  BellState bell;
};

uint64_t RingBytes(int num_ranks) {
  const uint64_t equal = kAllRingBytes / static_cast<uint64_t>(num_ranks);
  return std::clamp(std::bit_floor(equal), kLeastRingBytes, kMostRingBytes);
}

uint64_t RingsAt(int num_ranks) {
  constexpr uint64_t kPage = 4096;
  const uint64_t head = sizeof(SegmentHead) +
                        static_cast<uint64_t>(num_ranks) * sizeof(RingControl) +
                        kPage;
  return head & ~(kPage - 1);
}

SegmentHead* HeadOf(const Segment& segment) {
  return reinterpret_cast<SegmentHead*>(segment.data());
}

// Of the ring that `writer` writes.
RingControl* ControlOf(const Segment& segment, int writer) {
  static_assert(sizeof(SegmentHead) % alignof(RingControl) == 0);
  return reinterpret_cast<RingControl*>(segment.data() + sizeof(SegmentHead)) +
         writer;
}

char* RingOf(const Segment& segment, int writer, int num_ranks) {
  return segment.data() + RingsAt(num_ranks) +
         static_cast<uint64_t>(writer) * RingBytes(num_ranks);
}

// Of a message that is so short that it needs no block.
constexpr uint64_t kShortBytes = 64;
constexpr uint64_t kCreditPerBlock = BlockPool::kBytes / kShortBytes;

// What a whole message may take of its receiver's room.
uint64_t CreditOf(uint64_t tag, uint64_t bytes) {
  if (IsFromAny(tag)) return 0;
  if (bytes <= kShortBytes) return 1;
  return BlockPool::CountOf(bytes) * kCreditPerBlock;
}

void Copy(void* to, const void* from, uint64_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

// ---- Transfers ----

void TransferPool::Reserve(size_t count) {
  pool_.Reserve(count);
  all_.reserve(count);
}

Transfer* TransferPool::Take() {
  Transfer* const one = pool_.Take();
  if (one->id == 0) {
    all_.push_back(one);
    one->id = all_.size();
  }
  one->done = 0;
  return one;
}

void TransferPool::Give(Transfer* transfer) {
  transfer->id += uint64_t{1} << 32;
  transfer->message = nullptr;
  pool_.Give(transfer);
}

Transfer* TransferPool::Find(uint64_t id) const {
  const uint64_t index = (id & UINT32_MAX) - 1;
  if (index >= all_.size()) return nullptr;
  return all_[index]->id == id ? all_[index] : nullptr;
}

// ---- Links ----

LocalLinks::~LocalLinks() {
  for (Link& link : links_) {
    while (!link.unsent.empty()) Cancel(link.unsent.front());
  }
}

uint64_t LocalLinks::SegmentBytes(int num_ranks) {
  return RingsAt(num_ranks) +
         static_cast<uint64_t>(num_ranks) * RingBytes(num_ranks);
}

LocalLinks::LocalLinks(int own, int num_ranks)
    : own_(own),
      ring_bytes_(RingBytes(num_ranks)),
      whole_bytes_(std::min(kMostWholeBytes, LargestPayload(ring_bytes_))),
      part_bytes_(std::min(kMostPartBytes, ring_bytes_ / 4) -
                  sizeof(EntryHeader)),
      credit_per_link_(ring_bytes_ / kShortBytes),
      links_(static_cast<size_t>(num_ranks)),
      blocks_(ring_bytes_ / BlockPool::kBytes *
              static_cast<uint64_t>(num_ranks)) {
  static_assert(sizeof(Early::text) == kShortBytes);
}

Outcome LocalLinks::Create(int own, int num_ranks,
                           std::unique_ptr<LocalLinks>* out) {
  std::unique_ptr<LocalLinks> links(new LocalLinks(own, num_ranks));
  Outcome outcome = Segment::Create(SegmentBytes(num_ranks), &links->segment_);
  if (!outcome.ok()) return outcome;
  links->event_fd_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!links->event_fd_.is_open()) {
    return {COMMSCHED_RESOURCE_EXHAUSTED,
            "no descriptor is left to be woken by ranks of this host"};
  }
  const Segment& segment = links->segment_;
  segment.Prepare(0, segment.bytes());
  HeadOf(segment)->nonce = RandomWord();
  links->ear_ = BellEar(&HeadOf(segment)->bell, num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    Link& link = links->LinkOf(rank);
    link.rank = rank;
    link.in = RingReader(ControlOf(segment, rank),
                         RingOf(segment, rank, num_ranks), links->ring_bytes_);
  }
  links->Reserve(1);
  *out = std::move(links);
  return {};
}

void LocalLinks::Add(int rank, SharedParts parts) {
  Link& link = LinkOf(rank);
  link.segment = std::move(parts.segment);
  link.event_fd = std::move(parts.event_fd);
  link.bell = Bell(&HeadOf(link.segment)->bell, own_, link.event_fd.get());
  char* const ring =
      RingOf(link.segment, own_, static_cast<int>(links_.size()));
  link.segment.Prepare(static_cast<uint64_t>(ring - link.segment.data()),
                       ring_bytes_);
  link.out = RingWriter(ControlOf(link.segment, own_), ring, ring_bytes_);
  link.is_up = true;
  TellOfRoom(&link);
  Flush(&link);
}

LinkedQueue<Message> LocalLinks::TakeUnsent(int rank) {
  const LinkedQueue<Message> unsent = LinkOf(rank).unsent;
  LinkOf(rank).unsent = {};
  for (Message* one = unsent.front(); one != nullptr; one = one->next) {
    one->place = LocalPlace::kNone;
  }
  return unsent;
}

void LocalLinks::Reserve(size_t num_messages) {
  num_reserved_ += num_messages;
  early_pool_.Reserve(num_reserved_);
  transfers_.Reserve(num_reserved_);
}

bool LocalLinks::HasUnsent(int rank) const {
  const Link& link = LinkOf(rank);
  return !link.unsent.empty() || !link.answers.empty();
}

void LocalLinks::Finish(Message* message, ucs_status_t status, uint64_t bytes) {
  message->place = LocalPlace::kNone;
  message->transfer = nullptr;
  message->receiver->OnDone(message, status, bytes);
}

// ---- Sending ----

void LocalLinks::Send(int rank, uint64_t tag, Message* message,
                      const void* data, uint64_t bytes) {
  message->place = LocalPlace::kUnsent;
  message->link = rank;
  message->tag = tag;
  message->sent = data;
  message->sent_bytes = bytes;
  LinkOf(rank).unsent.Push(message);
  Flush(&LinkOf(rank));
}

// What is told of in here may send more, which goes in its turn.
void LocalLinks::Flush(Link* link) {
  if (!link->is_up || link->is_flushing) return;
  link->is_flushing = true;
  while (PutNext(link)) {
  }
  link->is_flushing = false;
}

// Parts of large messages come last: small ones need not wait for them.
bool LocalLinks::PutNext(Link* link) {
  if (!link->answers.empty()) return PutAnswer(link);
  if (!link->unsent.empty()) return PutMessage(link);
  if (!link->running.empty()) return PutPart(link);
  return false;
}

// Null: the link is flushed again when there is room.
char* LocalLinks::Room(Link* link, uint64_t payload_bytes) {
  do {
    char* const room = link->out.Reserve(payload_bytes);
    if (room != nullptr) return room;
  } while (link->out.AwaitRoom(payload_bytes));
  return nullptr;
}

bool LocalLinks::PutAnswer(Link* link) {
  if (Room(link, 0) == nullptr) return false;
  Transfer* const transfer = link->answers.front();
  link->answers.Pop();
  const bool is_dropped = transfer->message == nullptr;
  link->out.Publish({.kind = kGo,
                     .from = is_dropped ? 0 : transfer->id,
                     .to = transfer->other});
  link->bell.Ring();
  if (is_dropped) transfers_.Give(transfer);
  return true;
}

bool LocalLinks::GoesWhole(const Link& link, const Message& message) const {
  if (message.sent_bytes > whole_bytes_) return false;
  const uint64_t used = link.credit_used - link.out.control().given_back.load(
                                               std::memory_order_acquire);
  return used + CreditOf(message.tag, message.sent_bytes) <= credit_per_link_;
}

bool LocalLinks::PutMessage(Link* link) {
  Message* const message = link->unsent.front();
  const uint64_t bytes = message->sent_bytes;
  const bool is_whole = GoesWhole(*link, *message);
  char* const room = Room(link, is_whole ? bytes : 0);
  if (room == nullptr) return false;
  link->unsent.Pop();
  EntryHeader header = {.kind = kAsk, .tag = message->tag, .bytes = bytes};
  if (is_whole) {
    header.kind = kWhole;
    header.payload_bytes = static_cast<uint32_t>(bytes);
    Copy(room, message->sent, bytes);
    link->credit_used += CreditOf(message->tag, bytes);
  } else {
    Transfer* const transfer = transfers_.Take();
    transfer->message = message;
    transfer->is_send = true;
    transfer->link = link->rank;
    transfer->other = 0;  // It is not known yet.
    transfer->bytes = bytes;
    message->place = LocalPlace::kTransfer;
    message->transfer = transfer;
    header.from = transfer->id;
  }
  link->out.Publish(header);
  link->bell.Ring();
  if (is_whole) Finish(message, UCS_OK, bytes);
  return true;
}

bool LocalLinks::PutPart(Link* link) {
  Transfer* const transfer = link->running.front();
  const uint64_t bytes =
      std::min(part_bytes_, transfer->bytes - transfer->done);
  char* const room = Room(link, bytes);
  if (room == nullptr) return false;
  Message* const message = transfer->message;
  Copy(room, static_cast<const char*>(message->sent) + transfer->done, bytes);
  link->out.Publish({.kind = kPart,
                     .payload_bytes = static_cast<uint32_t>(bytes),
                     .to = transfer->other});
  link->bell.Ring();
  transfer->done += bytes;
  // Several take turns.
  link->running.Pop();
  if (transfer->done < transfer->bytes) {
    link->running.Push(transfer);
    return true;
  }
  transfers_.Give(transfer);
  Finish(message, UCS_OK, transfer->bytes);
  return true;
}

// ---- Receiving ----

void LocalLinks::Receive(uint64_t tag, Message* message) {
  message->tag = tag;
  Early* const early = early_.Take(tag);
  if (early != nullptr) return ReceiveEarly(message, early);
  message->place = LocalPlace::kPosted;
  posted_.Push(message);
}

void LocalLinks::ReceiveAny(uint64_t tag, Message* message) {
  if (message->IsLocal()) return;  // It has stayed posted.
  message->tag = tag & kAnySource;
  message->place = LocalPlace::kPostedAny;
  posted_any_.Push(message);
  for (size_t i = 0; i < early_any_.size();) {
    if ((early_any_[i].tag & kAnySource) != message->tag) {
      ++i;
      continue;
    }
    const std::string text = std::move(early_any_[i].text);
    early_any_.erase(early_any_.begin() + static_cast<ptrdiff_t>(i));
    message->receiver->OnHeard(message, text.data(), text.size());
  }
}

void LocalLinks::ReceiveEarly(Message* message, Early* early) {
  Link* const link = &LinkOf(early->link);
  const uint64_t bytes = early->bytes;
  if (early->from != 0) {
    const uint64_t from = early->from;
    early_pool_.Give(early);
    return AnswerAsk(link, message, from, bytes);
  }
  const bool fits = bytes <= message->bytes;
  if (fits && early->first_block != BlockPool::kNone) {
    blocks_.Load(early->first_block, bytes, static_cast<char*>(message->data));
  } else if (fits) {
    Copy(message->data, early->text, bytes);
  }
  Drop(early);
  Finish(message, fits ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED, bytes);
}

void LocalLinks::Drop(Early* early) {
  if (early->from == 0) {
    blocks_.TakeBack(early->first_block);
    LinkOf(early->link).in.GiveBack(CreditOf(early->tag, early->bytes));
  }
  early_pool_.Give(early);
}

void LocalLinks::Cancel(Message* message) {
  switch (message->place) {
    case LocalPlace::kNone:
    case LocalPlace::kUnposted:
      return;
    case LocalPlace::kPostedAny:
      posted_any_.Remove(message);
      message->place = LocalPlace::kNone;
      return;
    case LocalPlace::kPosted:
      posted_.Remove(message);
      break;
    case LocalPlace::kUnsent:
      LinkOf(message->link).unsent.Remove(message);
      break;
    case LocalPlace::kTransfer: {
      // What comes for it is for nobody any more.
      Transfer* const transfer = message->transfer;
      Link& link = LinkOf(transfer->link);
      if (!link.answers.Remove(transfer)) link.running.Remove(transfer);
      transfers_.Give(transfer);
      break;
    }
  }
  Finish(message, UCS_ERR_CANCELED, 0);
}

void LocalLinks::Retire(uint64_t comm) {
  const auto is_of = [&](const auto& one) { return CommOf(one.tag) == comm; };
  retired_.insert(comm);
  while (Early* const early = early_.TakeIf(is_of)) Drop(early);
  std::erase_if(early_any_, is_of);
}

void LocalLinks::Progress() {
  ear_.VisitNews([&](int rank) {
    if (rank < static_cast<int>(links_.size())) Visit(&LinkOf(rank));
  });
}

void LocalLinks::Visit(Link* link) {
  const char* payload = nullptr;
  int num_read = 0;
  while (const EntryHeader* const entry = link->in.Peek(&payload)) {
    if (++num_read > kMostEntries) {
      Bell(&HeadOf(segment_)->bell, link->rank, event_fd_.get()).Ring();
      break;
    }
    Read(link, *entry, payload);
    if (entry->payload_bytes < kLargeEntryBytes) continue;
    TellOfRoom(link);
  }
  if (num_read != 0) TellOfRoom(link);
  Flush(link);
}

void LocalLinks::TellOfRoom(Link* link) {
  if (link->is_up && link->in.TakeWaitingWriter()) link->bell.Ring();
}

// An entry is popped when it has been copied, before anybody is told.
void LocalLinks::Read(Link* link, const EntryHeader& header,
                      const char* payload) {
  switch (header.kind) {
    case kWhole:
      return IsFromAny(header.tag) ? ReadAny(link, header, payload)
                                   : ReadWhole(link, header, payload);
    case kAsk:
      return ReadAsk(link, header);
    case kGo:
      return ReadGo(link, header);
    case kPart:
      return ReadPart(link, header, payload);
    default:
      return link->in.Pop();
  }
}

void LocalLinks::ReadWhole(Link* link, const EntryHeader& header,
                           const char* payload) {
  const uint64_t bytes = header.payload_bytes;
  Message* const message = posted_.Take(header.tag);
  if (message == nullptr) return KeepEarly(link, header, payload);
  const bool fits = bytes <= message->bytes;
  if (fits) Copy(message->data, payload, bytes);
  link->in.Pop();
  link->in.GiveBack(CreditOf(header.tag, bytes));
  Finish(message, fits ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED, bytes);
}

void LocalLinks::KeepEarly(Link* link, const EntryHeader& header,
                           const char* payload) {
  const uint64_t bytes = header.payload_bytes;
  const bool is_short = bytes <= kShortBytes;
  uint32_t first = BlockPool::kNone;
  bool is_kept = !retired_.contains(CommOf(header.tag));
  if (is_kept && !is_short) {
    first = blocks_.Store(payload, bytes);
    is_kept = first != BlockPool::kNone;  // Else the other had no credit.
  }
  if (!is_kept) {
    link->in.Pop();
    link->in.GiveBack(CreditOf(header.tag, bytes));
    return;
  }
  Early* const early = early_pool_.Take();
  early->tag = header.tag;
  early->link = link->rank;
  early->bytes = bytes;
  early->from = 0;
  early->first_block = first;
  if (is_short) Copy(early->text, payload, bytes);
  link->in.Pop();
  early_.Push(early);
}

void LocalLinks::ReadAny(Link* link, const EntryHeader& header,
                         const char* payload) {
  char copy[kMostAnyBytes];
  const uint64_t bytes = std::min<uint64_t>(header.payload_bytes, sizeof(copy));
  Copy(copy, payload, bytes);
  link->in.Pop();
  Message* const message = posted_any_.Find(header.tag & kAnySource);
  if (message != nullptr) {
    message->receiver->OnHeard(message, copy, bytes);
  } else if (!retired_.contains(CommOf(header.tag))) {
    early_any_.push_back({header.tag, std::string(copy, bytes)});
  }
}

void LocalLinks::ReadAsk(Link* link, const EntryHeader& header) {
  link->in.Pop();
  if (header.from == 0) return;  // It is no question.
  Message* const message = posted_.Take(header.tag);
  if (message != nullptr) {
    return AnswerAsk(link, message, header.from, header.bytes);
  }
  if (retired_.contains(CommOf(header.tag))) return;
  Early* const early = early_pool_.Take();
  early->tag = header.tag;
  early->link = link->rank;
  early->bytes = header.bytes;
  early->from = header.from;
  early->first_block = BlockPool::kNone;
  early_.Push(early);
}

// A message that does not fit is an error here, and over for its sender.
void LocalLinks::AnswerAsk(Link* link, Message* message, uint64_t from,
                           uint64_t bytes) {
  const bool fits = bytes <= message->bytes;
  Transfer* const transfer = transfers_.Take();
  transfer->message = fits ? message : nullptr;
  transfer->is_send = false;
  transfer->link = link->rank;
  transfer->other = from;
  transfer->bytes = bytes;
  if (fits) {
    message->place = LocalPlace::kTransfer;
    message->transfer = transfer;
  }
  link->answers.Push(transfer);
  Flush(link);
  if (!fits) Finish(message, UCS_ERR_MESSAGE_TRUNCATED, bytes);
}

void LocalLinks::ReadGo(Link* link, const EntryHeader& header) {
  link->in.Pop();
  Transfer* const transfer = transfers_.Find(header.to);
  if (transfer == nullptr || !transfer->is_send) return;  // It was canceled.
  // Nobody but who was asked answers, and once.
  if (transfer->link != link->rank || transfer->other != 0) return;
  if (header.from != 0) {
    transfer->other = header.from;
    link->running.Push(transfer);
    return;  // Flushed when the ring has been read.
  }
  Message* const message = transfer->message;
  transfers_.Give(transfer);
  Finish(message, UCS_OK, message->sent_bytes);
}

void LocalLinks::ReadPart(Link* link, const EntryHeader& header,
                          const char* payload) {
  Transfer* const transfer = transfers_.Find(header.to);
  const uint64_t bytes = header.payload_bytes;
  if (transfer == nullptr || transfer->is_send ||
      transfer->link != link->rank || transfer->message == nullptr ||
      bytes > transfer->bytes - transfer->done) {
    return link->in.Pop();  // It was canceled.
  }
  Message* const message = transfer->message;
  Copy(static_cast<char*>(message->data) + transfer->done, payload, bytes);
  link->in.Pop();
  transfer->done += bytes;
  if (transfer->done < transfer->bytes) return;
  transfers_.Give(transfer);
  Finish(message, UCS_OK, transfer->bytes);
}

}  // namespace commsched::ucx
