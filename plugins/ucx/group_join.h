// How members of a communicator learn that all are there, and how each can be
// reached.
#ifndef COMMSCHED_PLUGINS_UCX_GROUP_JOIN_H_
#define COMMSCHED_PLUGINS_UCX_GROUP_JOIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "support/outcome.h"
#include "ucx/algorithms/layout.h"
#include "ucx/algorithms/tree_shape.h"
#include "ucx/message.h"
#include "ucx/network/network.h"

namespace commsched::ucx {

// By a tree: when all below a member have joined it says so to its parent, with
// the cards (Network::CardOf) that they are connected by; the root knows that
// all have, and tells all cards. So a member connects with its parent and its
// children, and exchanges four messages with each.
//
// With the network's mutex. It stays until no message is under way.
class GroupJoin final : public Receiver {
 public:
  struct Spec {
    const std::vector<int32_t>* ranks = nullptr;  // Of the world; outlive it.
    int rank = 0;
    uint64_t tags = 0;  // The communicator's.
    bool asks_starts = false;
  };

  GroupJoin(Network* network, const Layout& layout, const Spec& spec);

  // Ranks of the group: the parent, and the children. Connections to them have
  // begun before the first Advance().
  const std::vector<int>& neighbors() const { return neighbors_; }

  // Does what can be done by now. Not for callbacks.
  Outcome Advance();
  // All have joined, their cards are known, and nothing is on its way from here
  // that others wait for.
  bool IsDone() const { return knows_all_ && num_unsent_ == 0; }
  // What it waits for until then.
  std::string WaitsFor() const;
  // Whether any member has said so (Spec); once it is done.
  bool any_asks_starts() const { return any_asks_starts_; }

  void OnDone(Message* message, ucs_status_t status, uint64_t bytes) override;

  // Nothing more is received.
  void End();
  bool IsUnderWay() const;

 private:
  // A message of known size says how large the one is that follows.
  struct Head {
    uint64_t bytes = 0;
    uint64_t asks_starts = 0;
  };
  // From a neighbour.
  struct Heard {
    int peer = 0;
    int num_ranks = 0;  // Of a child: with those below it.
    bool is_posted = false;
    bool has_come = false;
    Head head;
    std::string cards;
    Message head_message;
    Message cards_message;
  };
  struct Sent {
    Message head_message;
    Message cards_message;
  };

  std::string Name(int rank) const;
  std::string HowFar(const Heard& heard) const;
  bool Await(Heard* heard);
  void Receive(Heard* heard, Message* message, void* to, uint64_t bytes);
  void OnReceived(Message* message, ucs_status_t status, uint64_t bytes);
  void Send(int peer, Sent* sent);
  void SendOne(int peer, Message* message, const void* data, uint64_t bytes);
  Outcome LearnAll();

  Network* const network_;
  const Spec spec_;
  int parent_ = kNobody;
  std::vector<int> neighbors_;
  std::vector<Heard> children_;
  Heard above_;  // From the parent.
  // What this member says: first to the parent, then to the children.
  Head head_;
  std::string cards_;
  Head all_head_;
  std::string all_cards_;
  Sent up_;
  std::vector<Sent> down_;

  bool has_told_parent_ = false;
  bool knows_all_ = false;
  bool any_asks_starts_ = false;
  bool has_ended_ = false;
  uint32_t num_unsent_ = 0;
  Outcome failure_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_GROUP_JOIN_H_
