// Messages between this rank and others of its host, without UCX.
//
// Each rank has a segment (segment.h) with a ring (ring.h) for each other rank
// of the host, which that rank writes and this one reads. A ring is always read
// to its end, so that no message waits for the receive of another one: what
// nobody has posted a receive for yet is kept aside here. What is kept is
// bounded all the same, because a rank sends only so much ahead of the receives
// (credit); beyond that, and for messages that are large, it asks, and sends in
// parts what a receive has been posted for. Questions are kept, too: as many as
// their senders have messages under way. What is received from any source needs
// no credit: it is kept until there is a communicator, to which each rank has
// said little by then.
//
//   kWhole  a message
//   kAsk    a message is there, so large
//   kGo     the answer: send it; or drop it
//   kPart   the next bytes of one that was asked for
#ifndef COMMSCHED_PLUGINS_UCX_HOST_LOCAL_LINKS_H_
#define COMMSCHED_PLUGINS_UCX_HOST_LOCAL_LINKS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/outcome.h"
#include "ucx/host/descriptor.h"
#include "ucx/host/doorbell.h"
#include "ucx/host/handover.h"
#include "ucx/host/ring.h"
#include "ucx/host/segment.h"
#include "ucx/message.h"
#include "ucx/pools.h"
#include "ucx/tag_table.h"

namespace commsched::ucx {

// What goes in parts, on either side.
struct Transfer {
  Transfer* next = nullptr;
  Message* message = nullptr;  // Null: it is dropped.
  bool is_send = false;
  int link = 0;
  uint64_t id = 0;     // Who it is here,
  uint64_t other = 0;  // and there.
  uint64_t bytes = 0;
  uint64_t done = 0;
};

// Transfers by their ids, of which each is used once.
class TransferPool {
 public:
  void Reserve(size_t count);
  Transfer* Take();
  void Give(Transfer* transfer);
  Transfer* Find(uint64_t id) const;  // Null: it is over.

 private:
  Pool<Transfer> pool_;
  std::vector<Transfer*> all_;
};

// Ranks of a host are numbered from 0. All calls need the network's mutex, but
// for event_fd() and Disarm().
class LocalLinks {
 public:
  // What is not larger may be sent whole.
  static constexpr uint64_t kMostWholeBytes = 32 << 10;

  // For `num_ranks` of the host, of which this one is `own`: 2 to
  // kMostBellRanks. RESOURCE_EXHAUSTED as Segment::Create().
  static Outcome Create(int own, int num_ranks,
                        std::unique_ptr<LocalLinks>* out);
  // Sends that have found no room are canceled.
  ~LocalLinks();
  LocalLinks(const LocalLinks&) = delete;
  LocalLinks& operator=(const LocalLinks&) = delete;

  // Of a segment for so many ranks: some 4 MiB, from 256 ranks on 16 KiB each.
  static uint64_t SegmentBytes(int num_ranks);

  // To hand over.
  const Segment& segment() const { return segment_; }
  int event_fd() const { return event_fd_.get(); }

  // Messages to `rank`, which has handed over `parts`, go from now on; those
  // that were sent before have waited.
  void Add(int rank, SharedParts parts);
  // What has waited, of a rank that is not added.
  LinkedQueue<Message> TakeUnsent(int rank);
  bool Has(int rank) const { return LinkOf(rank).is_up; }

  // As Network::Send() and Receive(). What has been sent whole is done before
  // this returns if there is room for it.
  void Send(int rank, uint64_t tag, Message* message, const void* data,
            uint64_t bytes);
  void Receive(uint64_t tag, Message* message);
  // Has its receiver hear of all messages of that tag, whoever has sent them
  // (tags.h), until it is canceled.
  void ReceiveAny(uint64_t tag, Message* message);
  // Done as canceled before this returns, if it is a local message: its memory
  // is not touched any more.
  void Cancel(Message* message);

  void Progress();
  // Between the two event_fd() becomes readable when there is something to do.
  // False, and nothing has changed: there is now. Disarm() is for the thread
  // that has armed it, and needs no mutex.
  bool Arm() { return ear_.Arm(); }
  void Disarm() { ear_.Disarm(); }

  // Whether something still waits for room on its way to `rank`.
  bool HasUnsent(int rank) const;
  // Room for so many more messages that come before their receives, until it
  // is given back: then others use it.
  void Reserve(size_t num_messages);
  void GiveBack(size_t num_messages) { num_reserved_ -= num_messages; }
  // Messages of this communicator (tags.h) will not be received any more.
  void Retire(uint64_t comm);

 private:
  // What has come and nobody has asked for.
  struct Early {
    Early* next = nullptr;
    uint64_t tag = 0;
    int link = 0;
    uint64_t bytes = 0;
    uint64_t from = 0;  // It was asked for by this transfer; 0: it is whole.
    uint32_t first_block = BlockPool::kNone;
    char text[64] = "";  // Of a message that is that short.
  };
  // Likewise, for a receive from any source: before there is a communicator.
  struct EarlyAny {
    uint64_t tag = 0;
    std::string text;
  };
  struct Link {
    int rank = 0;
    bool is_up = false;
    bool is_flushing = false;
    Segment segment;  // The other rank's.
    Descriptor event_fd;
    Bell bell;
    RingReader in;
    RingWriter out;
    uint64_t credit_used = 0;  // Of the other's room, in all.
    LinkedQueue<Transfer> answers;
    LinkedQueue<Message> unsent;
    LinkedQueue<Transfer> running;
  };
  enum Kind : uint32_t { kWhole = 1, kAsk, kGo, kPart };

  LocalLinks(int own, int num_ranks);
  const Link& LinkOf(int rank) const {
    return links_[static_cast<size_t>(rank)];
  }
  Link& LinkOf(int rank) { return links_[static_cast<size_t>(rank)]; }

  // Sending.
  void Flush(Link* link);
  bool PutNext(Link* link);
  char* Room(Link* link, uint64_t payload_bytes);
  bool PutAnswer(Link* link);
  bool PutMessage(Link* link);
  bool PutPart(Link* link);
  bool GoesWhole(const Link& link, const Message& message) const;

  // Receiving.
  void Visit(Link* link);
  void TellOfRoom(Link* link);
  void Read(Link* link, const EntryHeader& header, const char* payload);
  void ReadWhole(Link* link, const EntryHeader& header, const char* payload);
  void ReadAny(Link* link, const EntryHeader& header, const char* payload);
  void ReadAsk(Link* link, const EntryHeader& header);
  void ReadGo(Link* link, const EntryHeader& header);
  void ReadPart(Link* link, const EntryHeader& header, const char* payload);
  void KeepEarly(Link* link, const EntryHeader& header, const char* payload);
  void ReceiveEarly(Message* message, Early* early);
  void Drop(Early* early);
  void AnswerAsk(Link* link, Message* message, uint64_t from, uint64_t bytes);
  void Finish(Message* message, ucs_status_t status, uint64_t bytes);

  const int own_;
  const uint64_t ring_bytes_;
  const uint64_t whole_bytes_;
  const uint64_t part_bytes_;
  const uint64_t credit_per_link_;
  Segment segment_;
  Descriptor event_fd_;
  BellEar ear_;
  std::vector<Link> links_;  // By rank; the own one is unused.
  TagTable<Message> posted_;
  TagTable<Message> posted_any_;  // By tags without their source.
  TagTable<Early> early_;
  std::deque<EarlyAny> early_any_;
  Pool<Early> early_pool_;
  BlockPool blocks_;
  TransferPool transfers_;
  size_t num_reserved_ = 0;
  std::set<uint64_t> retired_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_LOCAL_LINKS_H_
