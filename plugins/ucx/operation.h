// One launch as messages, and what is done with them when they have come.
#ifndef COMMSCHED_PLUGINS_UCX_OPERATION_H_
#define COMMSCHED_PLUGINS_UCX_OPERATION_H_

#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "network.h"

namespace commsched::ucx {

// A part of a launch that waits for messages, reduces, and sends on. Steps of a
// launch are taken in order, so that the messages between two ranks are sent in
// the order in which the other has posted receives for them.
struct Step {
  uint32_t waiting = 0;  // Messages that have to be done first.
  // If `count` is not 0, this many elements of each rank's input are combined.
  uint64_t count = 0;
  uint32_t first_input = 0;  // In Operation::inputs, one per rank.
  void* output = nullptr;
  // What has come or been reduced, and is sent on.
  bool sends_on = false;
  void* sent = nullptr;
  uint64_t sent_count = 0;
  // The messages that are posted then, in Operation::messages: those that do
  // so, and receives into the scratch that this step has read.
  uint32_t first_post = 0;
  uint32_t num_posts = 0;
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
  commsched_collective_t kind = 0;
  commsched_dtype_t dtype = 0;
  commsched_reduce_op_t reduce_op = 0;

  // Posted at once are the first `num_posted`; the rest belongs to steps.
  std::vector<Message> messages;
  uint32_t num_posted = 0;
  std::vector<Step> steps;
  std::vector<const void*> inputs;
  // What each of `inputs` comes with, in `messages`; kNoMessage: own ones.
  std::vector<uint32_t> input_messages;
  Scratch scratch;

  // While it is built: which step has which part of the scratch, and receives
  // that are posted once step `after` has been taken.
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
  std::vector<Room> rooms;
  std::vector<Late> late;

  uint32_t next_step = 0;
  uint32_t outstanding = 0;  // Messages that are under way.
  bool is_held = false;      // The first sends have still to be posted.
  std::vector<bool> heard;   // Peers that something has come from, by rank.
  uint32_t num_unheard = 0;  // Of those that something is to come from.
  int64_t started_ns = 0;
  int64_t cpu_ns = 0;

  // Room for what `other` holds.
  void Reserve(const Operation& other);
  bool IsDone() const {
    return next_step == steps.size() && outstanding == 0 && !is_held;
  }
};

// The bytes of scratch that Build() needs. Few, whatever the launch has: what
// has been reduced makes room for what comes next.
uint64_t ScratchBytes(const commsched_launch_t& launch, int rank, int size,
                      uint64_t chunk_bytes);

// INVALID_ARGUMENT for a kind or an element type that is none.
Outcome CheckKind(const commsched_launch_t& launch);

// Writes what rank `rank` of `size` does for `launch`, in chunks of
// `chunk_bytes`, into `operation`, which has scratch for it. Nothing is posted;
// a rank's own data is copied where it belongs.
//
//   all-gather, all-to-all   every rank sends each other rank its part
//   reduce-scatter           the same; a chunk of a part is reduced, in the order
//                            of the tree, as soon as it has come from all
//   all-reduce               reduce-scatter of equal parts, of which a chunk is
//                            sent to all once it is reduced; small ones: every
//                            rank sends all, and reduces all
//   reduce                   reduce-scatter, whose chunks are sent to the root
//   broadcast                the root sends each other rank one part, which
//                            sends it on by chunks; small ones: all to all
//
// So reductions have one order, and their bits do not depend on sizes or on
// arrival. A link carries as many bytes as with a ring, in fewer steps.
// Sends and receives (kind SEND) have no steps.
void Build(const commsched_launch_t& launch, int rank, int size,
           uint64_t chunk_bytes, Operation* operation);

// Makes `largest` hold, of everything, at least as much as Build() writes for
// `launch`. Its memory is not looked at.
void Measure(const commsched_launch_t& launch, int rank, int size,
             uint64_t chunk_bytes, Operation* largest);

// Bytes of an element; 0 if `dtype` is none.
uint64_t ElementBytes(commsched_dtype_t dtype);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_OPERATION_H_
