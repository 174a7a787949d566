// A queue of entries from one rank to another, in memory that both have mapped.
// One thread at a time writes, and one reads; no locks, no waiting.
#ifndef COMMSCHED_PLUGINS_UCX_HOST_RING_H_
#define COMMSCHED_PLUGINS_UCX_HOST_RING_H_

#include <atomic>
#include <cstdint>

namespace commsched::ucx {

// What an entry is, for the ring's user, and how much follows it.
struct EntryHeader {
  uint32_t kind = 0;
  uint32_t payload_bytes = 0;
  uint64_t tag = 0;
  uint64_t bytes = 0;  // Of the message that it is of, or that it asks for.
  uint64_t from = 0;   // Who it is to its sender, and to its receiver.
  uint64_t to = 0;
};

// The state of a ring, beside its bytes. Positions count bytes and never wrap.
// Right when all zeros.
struct RingControl {
  static constexpr uint64_t kNothing = 0;

  // Released by the writer once the entries before it are whole.
  alignas(64) std::atomic<uint64_t> tail;
  // Released by the reader once it has done with the bytes before it.
  alignas(64) std::atomic<uint64_t> head;
  // A count of the ring's user, from the reader to the writer, likewise.
  std::atomic<uint64_t> given_back;
  // The writer waits until `head` is here; kNothing: it does not. Who sets it
  // looks at `head` afterwards, and who moves `head` looks at it: one of them
  // sees the other.
  std::atomic<uint64_t> wanted_head;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// `bytes` of a ring are a power of two. The largest payload, which fits a ring
// that is empty wherever in it the next entry begins.
uint64_t LargestPayload(uint64_t ring_bytes);

// Owned by who writes; the memory outlives it.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(RingControl* control, char* data, uint64_t bytes)
      : control_(control), data_(data), bytes_(bytes) {}

  // Room for an entry with such a payload, at most LargestPayload(), or null if
  // there is none now. It is the reader's with Publish().
  char* Reserve(uint64_t payload_bytes);
  void Publish(const EntryHeader& header);
  // After Reserve() gave null: asks the reader to tell when there is room for
  // that, and half of the ring is empty. True if it is so already.
  bool AwaitRoom(uint64_t payload_bytes);

  const RingControl& control() const { return *control_; }

 private:
  uint64_t Filler(uint64_t entry_bytes) const;
  uint64_t Room() const { return bytes_ - (tail_ - head_); }

  RingControl* control_ = nullptr;
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;  // As it was when it was looked at.
};

// Likewise, of who reads.
class RingReader {
 public:
  RingReader() = default;
  RingReader(RingControl* control, char* data, uint64_t bytes)
      : control_(control), data_(data), bytes_(bytes) {}

  // The first entry, and its payload, until Pop(). Null if there is none, or
  // the writer has written what is no entry: then there never is one again. The
  // header is a copy, which the writer cannot change any more.
  const EntryHeader* Peek(const char** payload);
  void Pop();
  // Once after some Pop(). True if the writer has waited for room that there is
  // now, and is to be told.
  bool TakeWaitingWriter();
  void GiveBack(uint64_t count);

 private:
  RingControl* control_ = nullptr;
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t head_ = 0;
  EntryHeader header_;  // Of the entry that Peek() has shown,
  uint64_t next_ = 0;   // and where it ends.
  uint64_t tail_ = 0;   // As it was when it was looked at.
  uint64_t given_back_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_RING_H_
