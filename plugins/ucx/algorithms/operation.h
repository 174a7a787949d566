// One launch as messages, and what is done with them when they have come.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_OPERATION_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_OPERATION_H_

#include <array>
#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "support/outcome.h"
#include "ucx/algorithms/layout.h"
#include "ucx/message.h"

namespace commsched::ucx {

// What messages between two ranks are told apart by, besides their launch.
// Those of a phase are sent in the order in which the other has posted
// receives.
enum Phase : uint32_t {
  kInputs,      // To who owns the result, or, of an all-to-all, wants the part.
  kNodeInputs,  // To who sums up a node of the tree on its host.
  kPartials,    // What such a node has, to who owns the result.
  kResults,     // And what is gathered or broadcast, from its owner,
  kForwarded,   // and from who hands it on to the other ranks of its host.
  kRelayed,     // What is gathered by way of a third host (relays.h), from
  kRelayForwarded,  // there, and likewise on to the other ranks of a host.
  kSmall,           // Members that are sent to all directly.
  kScales,          // What inputs are multiplied by (Operation::scale).
  kNumPhases
};

// One piece of a sum (commsched_piece_t).
struct Input {
  const void* data = nullptr;
  uint32_t message = 0;  // That it comes with; kNoMessage: this rank has it.
  Node node;
  bool is_partial = false;
  // Of one that comes with a message: who sends it; -1: this rank has it.
  int peer = -1;
  Phase phase = kInputs;
};

// Memory of a launch that a step moves when it has its sum: between what
// travels and the launch's members.
struct StepCopy {
  const void* from = nullptr;
  void* to = nullptr;
  uint64_t bytes = 0;
};

// What another rank was given, as a digest that comes with its data, beside
// that of this rank.
struct CountsCheck {
  int peer = -1;  // -1: nothing is looked at.
  const void* digest = nullptr;
  uint64_t expected = 0;
};

// A part of a launch that waits for messages, sums up, copies, and sends on.
struct Step {
  uint32_t waiting = 0;  // Messages that have to be done first.
  uint64_t count = 0;    // Elements of each input.
  uint32_t first_input = 0;
  uint32_t num_inputs = 0;  // 0: nothing is summed up.
  void* output = nullptr;
  bool output_is_partial = false;
  uint32_t first_copy = 0;  // In Operation::copies.
  uint32_t num_copies = 0;
  CountsCheck check;  // Before them.
  // The messages that are posted then, in Operation::messages: those that send
  // on, and receives into the scratch that this step has read.
  uint32_t first_post = 0;
  uint32_t num_posts = 0;
};

// Steps of each kind are taken in order, and do not wait for those of another
// kind.
enum StepKind : uint32_t {
  kNodeSums,  // Of other ranks' results, on this host.
  kOwnSums,   // And what this rank sends on to other hosts.
  kForwards,
  kNumStepKinds
};

// Memory of a launch, which its communicator lends it.
struct Scratch {
  char* address = nullptr;
  uint64_t bytes = 0;
};

// Reused for launch after launch: what its vectors once held they have room
// for.
struct Operation {
  static constexpr uint32_t kNoStep = UINT32_MAX;  // Message::step
  static constexpr uint32_t kNoMessage = UINT32_MAX;

  bool active = false;
  uint64_t number = 0;  // Of the launch in its communicator.
  uint64_t serial = 0;  // Among all, with those of kind SEND.
  uint64_t bytes = 0;   // Of all messages.
  commsched_collective_t kind = 0;
  commsched_dtype_t dtype = 0;
  commsched_reduce_op_t reduce_op = 0;
  // What inputs are multiplied by, and what the rank before does by.
  double scale = 0;
  double other_scale = 0;
  int root = 0;
  bool hands_on = false;  // Data of ranks may come by way of others that wait.
  bool is_tagged = false;
  uint64_t tag = 0;

  // Posted at once are the first `num_posted`; the rest belongs to steps.
  std::vector<Message> messages;
  uint32_t num_posted = 0;
  std::vector<Step> steps;  // Kind by kind.
  // Of each kind: the next one, and where they end.
  std::array<uint32_t, kNumStepKinds> next_step = {};
  std::array<uint32_t, kNumStepKinds> end_step = {};
  std::vector<Input> inputs;
  std::vector<StepCopy> copies;
  Scratch scratch;

  // While it is built: which step has which part of the scratch; receives that
  // are posted once step `after` has been taken; what steps send on.
  struct Room {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint32_t step = 0;
  };
  struct Late {
    uint32_t after = 0;
    uint32_t step = 0;
    char* to = nullptr;
  };
  struct SentOn {
    uint32_t after = 0;
    int peer = 0;
    Phase phase = kResults;
    const void* data = nullptr;
    uint64_t bytes = 0;
    uint32_t waited_for_by = kNoStep;
  };
  std::vector<Room> rooms;
  std::vector<Late> late;
  std::vector<SentOn> sent_on;
  // Of small members that travel as one (packed_launch.h, packed_parts.h).
  struct Pack {
    std::vector<uint32_t> members;           // Their numbers.
    std::vector<commsched_member_t> arrays;  // The pack, and other members.
    // Of kinds with a part for each rank: how many elements its parts have, and
    // where they begin; and, member by member, where those of it begin. Of an
    // all-to-all: bytes of packs, by peer, sent and received.
    std::vector<uint64_t> counts;
    std::vector<uint64_t> begins;
    std::vector<uint64_t> places;
    std::vector<uint64_t> digests;
    std::vector<uint8_t> is_packed;
  };
  Pack pack;
  std::vector<HostLoad> loads;
  std::vector<int64_t> shares;
  // What is gathered by way of other hosts (relays.h). Of a host: elements of
  // its ranks, so many of which go by way of others, and as many of others' as
  // may go by way of it.
  struct Spread {
    uint64_t own = 0;
    uint64_t relayed = 0;
    uint64_t room = 0;
  };
  std::vector<Spread> spreads;
  // Of one member, elements that go by way of a host, in the side with parts.
  struct Relayed {
    int owner = 0;
    int via = 0;
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  std::vector<Relayed> relayed;
  // Where parts begin: of all, by place or rank, and while they are filled.
  std::vector<uint64_t> part_begins;
  std::vector<uint64_t> part_fills;

  uint32_t outstanding = 0;  // Messages that are under way.
  bool is_held = false;      // The first sends have still to be posted.
  bool is_paced = false;     // Sends to other hosts go by the pacer.
  bool is_bulk = false;      // Likewise by connections of their own.
  // To and from other hosts, in messages that are not done. Counted if
  // Network::gathers().
  uint64_t far_bytes = 0;
  // Kind SEND: ranks that it receives of and nothing has come from; and when
  // there were none any more.
  uint32_t num_unheard = 0;
  int64_t started_ns = 0;
  int64_t cpu_ns = 0;

  // Room for what `other` holds.
  void Reserve(const Operation& other);
  // Adds what `other` holds to this, so that there is room for both.
  void Append(const Operation& other);
  bool StepsAreDone() const { return next_step == end_step; }
  bool IsDone() const { return StepsAreDone() && outstanding == 0 && !is_held; }
  // Whether a step can be taken.
  bool HasDueStep() const;
};

// Whether the other rank was given the counts that this one was.
bool CountsAgree(const Step& step);
// Does the copies of a step.
void TakeCopies(const Operation& operation, const Step& step);

// Marks, in `peers` by rank of the group, those that the rank exchanges
// messages with. So the marks of all launches of a plan are the connections
// that it takes.
void MarkPeers(const Operation& operation, std::vector<bool>* peers);

// INVALID_ARGUMENT for a kind, an element type or a reduction that is none, or
// that is not of the type.
Outcome CheckKind(const commsched_launch_t& launch);

// Whether it is a PREMUL_SUM.
bool IsScaled(const commsched_launch_t& launch);
// What inputs of a PREMUL_SUM are multiplied by; 0 for a launch of a host that
// knows of none.
double ScaleOf(const commsched_launch_t& launch);

// Bytes of an element; 0 if `dtype` is none.
uint64_t ElementBytes(commsched_dtype_t dtype);
// Of an element of a partial sum (commsched_piece_t).
uint64_t PartialBytes(commsched_dtype_t dtype, commsched_reduce_op_t op);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_OPERATION_H_
