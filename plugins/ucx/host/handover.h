// How ranks of a host hand each other their segments, and so find out that they
// share one.
//
// Each rank listens on a socket with an abstract name, which the kernel forgets
// with the process, and puts a card of it into the job's store. With it another
// rank connects, looks whose socket it is, and sends descriptors of its own
// segment and eventfd. Who has mapped what it was sent, and found in it what
// the card says, confirms. Two ranks share a host once each has confirmed what
// it got and was confirmed; a connection that is refused, or closed before,
// parts them, on both sides alike. Who does not know the card's secret, or is
// another user, gets nothing.
#ifndef COMMSCHED_PLUGINS_UCX_HOST_HANDOVER_H_
#define COMMSCHED_PLUGINS_UCX_HOST_HANDOVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/outcome.h"
#include "ucx/host/descriptor.h"
#include "ucx/host/segment.h"

namespace commsched::ucx {

// What a rank tells others by the job's store. Sent as it is.
struct SegmentCard {
  uint64_t name = 0;  // Of its socket; 0: it has no segment to share.
  uint64_t secret[2] = {};
  // The first word of its segment, which only who has mapped it can read.
  uint64_t nonce = 0;
};

// What another rank has handed over.
struct SharedParts {
  Segment segment;
  Descriptor event_fd;
};

// One thread at a time.
class Handover {
 public:
  enum class State {
    kUnknown,  // Begin() has not been called.
    kBegun,
    kShared,  // TakeParts() has what the other has handed over.
    kApart,
  };

  // Of world rank `rank`, whose `segment` begins with a word that nobody knows.
  // Both descriptors stay the caller's. All segments have the same size.
  // RESOURCE_EXHAUSTED; PERMISSION_DENIED if this process may not listen.
  static Outcome Open(int rank, int world_size, const Segment& segment,
                      int event_fd, std::unique_ptr<Handover>* out);

  const SegmentCard& card() const { return card_; }

  // With world rank `peer`, which has told such a card.
  void Begin(int peer, const SegmentCard& card);
  State StateOf(int peer) const;
  // Whether `peer` has handed over its parts, and Begin() has not been called.
  bool HasCalled(int peer) const {
    const Peer& other = peers_[static_cast<size_t>(peer)];
    return other.has_parts && !other.has_begun;
  }
  // Whether one that has begun is not decided yet.
  bool IsWaiting() const;
  // Readable when somebody calls.
  int listener_fd() const { return listener_.get(); }
  // Of one that is kApart: what this rank took that from.
  const std::string& WhyApart(int peer) const {
    return peers_[static_cast<size_t>(peer)].why_apart;
  }
  // Once, of a peer that shares the host.
  SharedParts TakeParts(int peer);
  // Does what can be done at once for all that have begun; if that is nothing
  // new, waits for `wait_ms` for the others first.
  // RESOURCE_EXHAUSTED: what has been handed over finds no room here, or no
  // descriptor; who has handed over what found none is apart.
  Outcome Step(int wait_ms);

 private:
  // What this rank gives to a peer, and what it gets of it.
  struct Peer {
    bool has_begun = false;
    bool is_apart = false;
    std::string why_apart;
    SegmentCard card;
    Descriptor given;  // Connected, and sent to; until it is decided.
    bool is_sent = false;
    bool is_confirmed = false;
    Descriptor got;  // Accepted, and received from; until it is decided.
    bool has_parts = false;
    bool has_confirmed = false;
    Descriptor segment_fd;
    SharedParts parts;

    bool IsDecided() const {
      return is_apart || (is_confirmed && has_confirmed);
    }
    void HangUp() {
      given.Reset();
      got.Reset();
    }
  };

  Handover(int rank, int world_size, const Segment& segment, int event_fd);
  Outcome Listen();
  Outcome HearCallers();
  Outcome Accept();
  Outcome Hear(Descriptor* caller);
  Outcome Dismiss(Descriptor* caller);
  Outcome Take(Peer* peer);
  Outcome Give(Peer* peer);
  void AwaitConfirmation(Peer* peer);
  void Part(Peer* peer, std::string why);
  void WaitForOthers(int wait_ms);

  const int rank_;
  const uint64_t segment_bytes_;
  const int segment_fd_;
  const int event_fd_;
  SegmentCard card_;
  Descriptor listener_;
  std::vector<Descriptor> callers_;  // That have not said who they are.
  std::vector<Peer> peers_;          // By world rank.
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_HANDOVER_H_
