#include "ucx/host/ring.h"

#include <algorithm>
#include <cstring>

namespace commsched::ucx {
namespace {

// Entries begin at cache lines, so that who writes one and who reads the one
// before it do not take the line from each other.
constexpr uint64_t kLine = 64;
// Of an entry that only fills the ring up to its end.
constexpr uint32_t kFiller = UINT32_MAX;

uint64_t EntryBytes(uint64_t payload_bytes) {
  return (sizeof(EntryHeader) + payload_bytes + kLine - 1) & ~(kLine - 1);
}

}  // namespace

uint64_t LargestPayload(uint64_t ring_bytes) {
  return ring_bytes / 2 - sizeof(EntryHeader);
}

// What is left up to the end of the ring, if that is too little.
uint64_t RingWriter::Filler(uint64_t entry_bytes) const {
  const uint64_t to_end = bytes_ - (tail_ & (bytes_ - 1));
  return entry_bytes <= to_end ? 0 : to_end;
}

char* RingWriter::Reserve(uint64_t payload_bytes) {
  const uint64_t needed = EntryBytes(payload_bytes);
  const uint64_t filler = Filler(needed);
  if (Room() < filler + needed) {
    head_ = control_->head.load(std::memory_order_acquire);
    if (Room() < filler + needed) return nullptr;
  }
  if (filler != 0) {
    EntryHeader header;
    header.kind = kFiller;
    std::memcpy(data_ + (tail_ & (bytes_ - 1)), &header, sizeof(header));
    tail_ += filler;  // Published with the entry that follows.
  }
  return data_ + (tail_ & (bytes_ - 1)) + sizeof(EntryHeader);
}

void RingWriter::Publish(const EntryHeader& header) {
  std::memcpy(data_ + (tail_ & (bytes_ - 1)), &header, sizeof(header));
  tail_ += EntryBytes(header.payload_bytes);
  control_->tail.store(tail_, std::memory_order_release);
}

bool RingWriter::AwaitRoom(uint64_t payload_bytes) {
  const uint64_t needed = EntryBytes(payload_bytes);
  const uint64_t room = std::max(bytes_ / 2, Filler(needed) + needed);
  const uint64_t wanted = tail_ + room - bytes_;
  control_->wanted_head.store(wanted, std::memory_order_seq_cst);
  head_ = control_->head.load(std::memory_order_seq_cst);
  if (head_ < wanted) return false;
  control_->wanted_head.store(RingControl::kNothing, std::memory_order_relaxed);
  return true;
}

const EntryHeader* RingReader::Peek(const char** payload) {
  while (true) {
    if (head_ == tail_) {
      tail_ = control_->tail.load(std::memory_order_acquire);
      if (head_ == tail_) return nullptr;
    }
    const uint64_t written = tail_ - head_;
    if (written > bytes_) return nullptr;
    const uint64_t at = head_ & (bytes_ - 1);
    const uint64_t to_end = bytes_ - at;
    std::memcpy(&header_, data_ + at, sizeof(header_));
    if (header_.kind == kFiller) {
      // An entry follows it, so it is never first in the ring.
      if (at == 0 || to_end > written) return nullptr;
      head_ += to_end;
      continue;
    }
    const uint64_t bytes = EntryBytes(header_.payload_bytes);
    if (bytes > to_end || bytes > written) return nullptr;
    next_ = head_ + bytes;
    *payload = data_ + at + sizeof(EntryHeader);
    return &header_;
  }
}

void RingReader::Pop() {
  head_ = next_;
  control_->head.store(head_, std::memory_order_release);
}

bool RingReader::TakeWaitingWriter() {
  // Once more, in one order with the look at who waits.
  control_->head.store(head_, std::memory_order_seq_cst);
  const uint64_t wanted = control_->wanted_head.load(std::memory_order_seq_cst);
  if (wanted == RingControl::kNothing || head_ < wanted) return false;
  control_->wanted_head.store(RingControl::kNothing, std::memory_order_relaxed);
  return true;
}

void RingReader::GiveBack(uint64_t count) {
  given_back_ += count;
  control_->given_back.store(given_back_, std::memory_order_release);
}

}  // namespace commsched::ucx
