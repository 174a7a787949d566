// One message between two ranks.
#ifndef COMMSCHED_PLUGINS_UCX_MESSAGE_H_
#define COMMSCHED_PLUGINS_UCX_MESSAGE_H_

#include <ucs/type/status.h>

#include <cstdint>

namespace commsched::ucx {

// Who is told that a message has been sent or received.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // With the network's mutex held, from whatever thread makes progress.
  // `bytes` is what has been received.
  virtual void OnDone(struct Message* message, ucs_status_t status,
                      uint64_t bytes) = 0;
  // Likewise: `bytes` at `data`, valid in here, have come from a rank of this
  // host for a receive from any source, which stays posted.
  virtual void OnHeard(struct Message* /*message*/, const void* /*data*/,
                       uint64_t /*bytes*/) {}
};

// From here on a message costs less if it is read from the peer's memory: an
// offer and an answer, but one copy instead of two. In a group of one host both
// copies are of what is still in the caches, up to more bytes.
inline constexpr uint64_t OfferedBytes(int num_hosts) {
  return num_hosts == 1 ? 512 << 10 : 32 << 10;
}

// Sent instead of data that the receiver reads by itself, and what it answers
// when it has: who the message is to the sender.
struct MessageId {
  uint64_t serial = 0;  // Of the launch.
  uint32_t request = 0;
  uint32_t index = 0;
};
struct Offer {
  static constexpr uint64_t kMagic = 0x5d1c8a36f0e9b274;

  uint64_t magic = 0;  // kMagic: it is one.
  uint64_t address = 0;
  uint64_t bytes = 0;
  MessageId id;
};

struct Transfer;

// Where a message is that does not go by UCX (local_links.h).
enum class LocalPlace : uint8_t {
  kNone,
  kUnposted,   // Its owner keeps it still,
  kPosted,     // A receive that nothing has come for,
  kPostedAny,  // and one from any source.
  kUnsent,     // A send that waits for room.
  kTransfer,   // Of which the other side knows, and which goes in parts.
};

// One message under way. Stays where it is until OnDone().
struct Message {
  Receiver* receiver = nullptr;
  int peer = 0;  // Rank in the group of its owner.
  bool is_receive = false;
  uint32_t owner = 0;  // For the receiver, as is what follows.
  uint32_t step = 0;
  uint32_t phase = 0;
  bool has_come = false;  // Of a receive: something has.
  // Of kind SEND: which one of this direction it is between the two, from 1. Of
  // a receive with a tag, of which the other rank has been told; 0: it has not
  // been.
  uint64_t number = 0;
  // Of a send with a tag: the request of the receive that it is for; kNotReady:
  // that one is not known yet. Of such a receive: its sender has said that it
  // has nothing for it.
  static constexpr uint32_t kNotReady = UINT32_MAX;
  uint32_t ready_request = kNotReady;
  bool ready_is_bulk = false;
  bool has_no_send = false;
  void* data = nullptr;
  uint64_t bytes = 0;
  void* request = nullptr;  // UCX's, while it is under way.
  uint32_t num_posts = 0;   // Receives by UCX: how often posted and done.
  // Of one to or from a rank of this host: what matches it, its number of the
  // other rank, what is sent, and who is next where it is.
  LocalPlace place = LocalPlace::kNone;
  int link = 0;
  uint64_t tag = 0;
  const void* sent = nullptr;
  uint64_t sent_bytes = 0;
  Transfer* transfer = nullptr;
  Message* next = nullptr;
  // For the receiver. A send that is offered: until it has gone out and has
  // been read. A receive that was: until the answer has gone out.
  Offer offer;
  uint32_t unread = 0;
  bool answers = false;
  bool is_in_window = false;  // A send whose bytes the window counts.
  bool is_paced = false;      // A send that Pacer::Next() gave.

  bool IsLocal() const { return place != LocalPlace::kNone; }
  bool IsUnderWay() const { return request != nullptr || IsLocal(); }
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_MESSAGE_H_
