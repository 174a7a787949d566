// How far a member is ahead of others with what it sends by UCX, which takes a
// message that comes before its receive into memory of its own: without a
// bound a broadcast's root that is faster than the others fills theirs.
#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_EARLY_BYTES_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_EARLY_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commsched::ucx {

// Counts, by peer, what has been sent in collectives that the peer is not known
// to have posted. Where that is `most_bytes` the peer is behind, and the next
// collective that sends to it is to wait; so what is early at a peer is less
// than that and one collective.
//
// No collective waits for a later one: so a communicator whose members post
// the same ones in one order gets on.
class EarlyBytes {
 public:
  EarlyBytes(size_t num_peers, uint64_t most_bytes)
      : most_bytes_(most_bytes), peers_(num_peers) {}

  // `bytes` go to `peer` in collective `number`, counted from 1, which is none
  // before the last one of it.
  void Sent(int peer, uint64_t number, uint64_t bytes);
  // `peer` has posted `number` collectives, or more.
  void Posted(int peer, uint64_t number);
  bool IsBehind(int peer) const { return peers_[Index(peer)].is_behind; }
  bool any_is_behind() const { return num_behind_ != 0; }

  // How many collectives `peer` should say it has posted, once it has; 0:
  // nothing is to be asked. Half of what it may be behind is then under way.
  // The same question is asked once.
  uint64_t TakeQuestion(int peer);
  // Whether anybody is to be asked.
  bool has_questions() const { return num_questions_ != 0; }

 private:
  struct Peer {
    uint64_t sent_bytes = 0;    // In all,
    uint64_t posted_bytes = 0;  // and in collectives that it has posted.
    uint64_t last = 0;          // Collective that something was sent in.
    // When this one is known to be posted, so many bytes are. 0: it does not
    // matter, since little is early.
    uint64_t awaited = 0;
    uint64_t awaited_bytes = 0;
    bool is_asked = false;
    bool is_behind = false;
  };

  static size_t Index(int peer) { return static_cast<size_t>(peer); }
  void Update(Peer* peer);

  const uint64_t most_bytes_;
  std::vector<Peer> peers_;
  int num_behind_ = 0;
  int num_questions_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_EARLY_BYTES_H_
