// Writes an operation: its messages, steps and scratch.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_BUILDER_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_BUILDER_H_

#include <array>
#include <cstdint>

#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

// What steps of a kind need of scratch: rooms for what their inputs are
// received to, one after the other as long as they fit, and then those of steps
// that have been taken; and slots for what they only send on.
struct ScratchNeeds {
  uint64_t all_room_bytes = 0;
  uint64_t largest_room_bytes = 0;
  uint64_t slot_bytes = 0;

  void AddRoom(uint64_t bytes);
  uint64_t RoomBytes() const;  // Of all rooms that there are at once.
  uint64_t Bytes() const;
};
using AllScratchNeeds = std::array<ScratchNeeds, kNumStepKinds>;

// Of `bytes` of one input or output.
uint64_t ScratchBytesOf(uint64_t bytes);

// Thread-compatible. Allocates nothing where the operation's vectors have room.
class Builder {
 public:
  Builder(uint64_t element_bytes, uint64_t partial_bytes, Operation* operation);

  // Behind the first `fixed_bytes` of the scratch, which are the caller's.
  void SetScratch(const AllScratchNeeds& needs, uint64_t fixed_bytes = 0);
  // Of the steps that are added from now on. Kinds come in their order.
  void BeginSteps(StepKind kind);

  uint32_t AddStep();
  // Inputs of the last step; of those of others only who sends them is known.
  void AddInput(const void* data, Node node, bool is_partial);
  void AddInput(int peer, Phase phase, Node node, bool is_partial);
  // Has the last step sum up `count` elements of its inputs, which are received
  // when there is room for them.
  void Sum(uint64_t count, void* output, bool output_is_partial);
  // Where the last step may write what it only sends on. It waits until what
  // was written there before has gone out.
  void* TakeSlot();
  // Has the last step look at the counts of another rank.
  void Check(const CountsCheck& check) { op_.steps.back().check = check; }
  // The last step copies, after its sum. What is next to each other on both
  // sides becomes one copy.
  void AddCopy(const void* from, void* to, uint64_t bytes);
  // Sends what the last step has made, or waited for.
  void SendOn(int peer, Phase phase, const void* data, uint64_t bytes);

  // `step` waits for it.
  void Receive(int peer, Phase phase, void* data, uint64_t bytes,
               uint32_t step = Operation::kNoStep);
  void Send(int peer, Phase phase, const void* data, uint64_t bytes,
            uint32_t step = Operation::kNoStep);

  // The end: what is posted at once has been added.
  void Finish();

 private:
  static constexpr uint32_t kNumSlots = 4;

  // Scratch of the steps of a kind.
  struct Area {
    uint64_t begin = 0;
    uint64_t room_bytes = 0;
    uint64_t slot_bytes = 0;
    uint64_t used = 0;
    bool has_wrapped = false;
    size_t oldest = 0;  // Of the rooms: that no other one has taken.
    uint32_t last_freed = Operation::kNoStep;
    uint32_t num_slots_taken = 0;
  };
  // What was sent on from a slot: in Operation::sent_on.
  struct Slot {
    size_t first = 0;
    size_t end = 0;
  };

  void Add(bool is_receive, int peer, Phase phase, void* data, uint64_t bytes,
           uint32_t step);
  uint32_t LastStep() const;
  uint64_t InputBytes(const Input& input, uint64_t count) const;
  char* TakeRoom(uint64_t bytes, uint32_t step, uint32_t* after);
  void ReceiveInputs(uint32_t step, char* to);
  void EndSlot();

  const uint64_t element_bytes_;
  const uint64_t partial_bytes_;
  Operation& op_;
  std::array<Area, kNumStepKinds> areas_;
  StepKind kind_ = kNodeSums;
  std::array<Slot, kNumSlots> slots_;
  bool is_slot_open_ = false;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_BUILDER_H_
