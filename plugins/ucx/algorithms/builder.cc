#include "ucx/algorithms/builder.h"

#include <algorithm>

namespace commsched::ucx {
namespace {

// Inputs that may be on their way at once: those of one chunk that is summed
// up, others that come meanwhile.
constexpr uint64_t kRoomsAtOnce = 4;
constexpr uint64_t kSlotsAtOnce = 4;
constexpr uint64_t kAlignment = 64;

}  // namespace

uint64_t ScratchBytesOf(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void ScratchNeeds::AddRoom(uint64_t bytes) {
  all_room_bytes += bytes;
  largest_room_bytes = std::max(largest_room_bytes, bytes);
}

uint64_t ScratchNeeds::RoomBytes() const {
  return std::min(all_room_bytes, kRoomsAtOnce * largest_room_bytes);
}

uint64_t ScratchNeeds::Bytes() const {
  return RoomBytes() + kSlotsAtOnce * slot_bytes;
}

Builder::Builder(uint64_t element_bytes, uint64_t partial_bytes,
                 Operation* operation)
    : element_bytes_(element_bytes),
      partial_bytes_(partial_bytes),
      op_(*operation) {
  static_assert(kNumSlots == kSlotsAtOnce);
  op_.messages.clear();
  op_.num_posted = 0;
  op_.steps.clear();
  op_.next_step = {};
  op_.end_step = {};
  op_.inputs.clear();
  op_.copies.clear();
  op_.rooms.clear();
  op_.late.clear();
  op_.sent_on.clear();
  op_.outstanding = 0;
  op_.num_unheard = 0;
  op_.started_ns = 0;
  op_.cpu_ns = 0;
}

void Builder::SetScratch(const AllScratchNeeds& needs, uint64_t fixed_bytes) {
  uint64_t begin = fixed_bytes;
  for (size_t kind = 0; kind < needs.size(); ++kind) {
    areas_[kind].begin = begin;
    areas_[kind].room_bytes = needs[kind].RoomBytes();
    areas_[kind].slot_bytes = needs[kind].slot_bytes;
    begin += needs[kind].Bytes();
  }
}

void Builder::BeginSteps(StepKind kind) {
  EndSlot();
  kind_ = kind;
  const auto begin = static_cast<uint32_t>(op_.steps.size());
  for (size_t k = kind; k < kNumStepKinds; ++k) {
    op_.next_step[k] = op_.end_step[k] = begin;
  }
  areas_[kind].oldest = op_.rooms.size();
  slots_ = {};
}

uint32_t Builder::LastStep() const {
  return static_cast<uint32_t>(op_.steps.size() - 1);
}

uint32_t Builder::AddStep() {
  EndSlot();
  Step& step = op_.steps.emplace_back();
  step.first_input = static_cast<uint32_t>(op_.inputs.size());
  step.first_copy = static_cast<uint32_t>(op_.copies.size());
  for (size_t k = kind_; k < kNumStepKinds; ++k) {
    op_.end_step[k] = static_cast<uint32_t>(op_.steps.size());
    if (k > kind_) op_.next_step[k] = op_.end_step[k];
  }
  return LastStep();
}

void Builder::AddInput(const void* data, Node node, bool is_partial) {
  op_.inputs.push_back({.data = data,
                        .message = Operation::kNoMessage,
                        .node = node,
                        .is_partial = is_partial});
}

void Builder::AddInput(int peer, Phase phase, Node node, bool is_partial) {
  op_.inputs.push_back({.message = Operation::kNoMessage,
                        .node = node,
                        .is_partial = is_partial,
                        .peer = peer,
                        .phase = phase});
}

uint64_t Builder::InputBytes(const Input& input, uint64_t count) const {
  return count * (input.is_partial ? partial_bytes_ : element_bytes_);
}

void Builder::Sum(uint64_t count, void* output, bool output_is_partial) {
  const uint32_t number = LastStep();
  Step& step = op_.steps.back();
  step.count = count;
  step.num_inputs = static_cast<uint32_t>(op_.inputs.size()) - step.first_input;
  step.output = output;
  step.output_is_partial = output_is_partial;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < step.num_inputs; ++i) {
    const Input& input = op_.inputs[step.first_input + i];
    if (input.peer >= 0) bytes += ScratchBytesOf(InputBytes(input, count));
  }
  uint32_t after = Operation::kNoStep;
  char* const to = TakeRoom(bytes, number, &after);
  if (after == Operation::kNoStep) {
    ReceiveInputs(number, to);
  } else {
    op_.late.push_back({after, number, to});
  }
}

// Where the inputs of step `step` go, and, in `after`, the step that has to be
// taken before, which frees it; kNoStep if it is free.
char* Builder::TakeRoom(uint64_t bytes, uint32_t step, uint32_t* after) {
  Area& area = areas_[kind_];
  if (area.used + bytes > area.room_bytes) {
    area.used = 0;
    area.has_wrapped = true;
  }
  const Operation::Room room = {area.used, area.used + bytes, step};
  area.used = room.end;
  // Steps are taken in order, and so is what they free.
  for (size_t i = area.oldest; area.has_wrapped && i < op_.rooms.size(); ++i) {
    if (op_.rooms[i].begin >= room.end || room.begin >= op_.rooms[i].end) {
      continue;
    }
    area.last_freed = op_.rooms[i].step;
    area.oldest = i + 1;
  }
  op_.rooms.push_back(room);
  *after = area.last_freed;
  return op_.scratch.address + area.begin + room.begin;
}

void Builder::ReceiveInputs(uint32_t number, char* to) {
  const Step step = op_.steps[number];
  for (uint32_t i = 0; i < step.num_inputs; ++i) {
    Input& input = op_.inputs[step.first_input + i];
    if (input.peer < 0) continue;
    const uint64_t bytes = InputBytes(input, step.count);
    input.data = to;
    input.message = static_cast<uint32_t>(op_.messages.size());
    Receive(input.peer, input.phase, to, bytes, number);
    to += ScratchBytesOf(bytes);
  }
}

void* Builder::TakeSlot() {
  Area& area = areas_[kind_];
  const uint32_t number = area.num_slots_taken++ % kNumSlots;
  Slot& slot = slots_[number];
  Step& step = op_.steps.back();
  for (size_t i = slot.first; i < slot.end; ++i) {
    op_.sent_on[i].waited_for_by = LastStep();
    ++step.waiting;
  }
  slot.first = slot.end = op_.sent_on.size();
  is_slot_open_ = true;
  return op_.scratch.address + area.begin + area.room_bytes +
         number * area.slot_bytes;
}

void Builder::EndSlot() {
  if (!is_slot_open_) return;
  slots_[(areas_[kind_].num_slots_taken - 1) % kNumSlots].end =
      op_.sent_on.size();
  is_slot_open_ = false;
}

void Builder::AddCopy(const void* from, void* to, uint64_t bytes) {
  if (bytes == 0 || from == to) return;
  // As numbers: nothing is there where a launch is only measured.
  const auto is_behind = [](const void* address, const void* last,
                            uint64_t last_bytes) {
    return reinterpret_cast<uintptr_t>(address) ==
           reinterpret_cast<uintptr_t>(last) + last_bytes;
  };
  Step& step = op_.steps.back();
  if (step.num_copies != 0) {
    StepCopy& last = op_.copies.back();
    if (is_behind(from, last.from, last.bytes) &&
        is_behind(to, last.to, last.bytes)) {
      last.bytes += bytes;
      return;
    }
  }
  op_.copies.push_back({from, to, bytes});
  ++step.num_copies;
}

void Builder::SendOn(int peer, Phase phase, const void* data, uint64_t bytes) {
  op_.sent_on.push_back({LastStep(), peer, phase, data, bytes});
}

void Builder::Add(bool is_receive, int peer, Phase phase, void* data,
                  uint64_t bytes, uint32_t step) {
  Message message;
  message.phase = phase;
  message.peer = peer;
  message.is_receive = is_receive;
  message.step = step;
  message.data = data;
  message.bytes = bytes;
  op_.messages.push_back(message);
}

void Builder::Receive(int peer, Phase phase, void* data, uint64_t bytes,
                      uint32_t step) {
  Add(true, peer, phase, data, bytes, step);
  if (step != Operation::kNoStep) ++op_.steps[step].waiting;
}

void Builder::Send(int peer, Phase phase, const void* data, uint64_t bytes,
                   uint32_t step) {
  Add(false, peer, phase, const_cast<void*>(data), bytes, step);
  if (step != Operation::kNoStep) ++op_.steps[step].waiting;
}

void Builder::Finish() {
  EndSlot();
  op_.num_posted = static_cast<uint32_t>(op_.messages.size());
  auto late = op_.late.begin();
  auto sent_on = op_.sent_on.begin();
  for (uint32_t number = 0; number < op_.steps.size(); ++number) {
    Step* const step = &op_.steps[number];
    step->first_post = static_cast<uint32_t>(op_.messages.size());
    for (; late != op_.late.end() && late->after == number; ++late) {
      ReceiveInputs(late->step, late->to);
    }
    for (; sent_on != op_.sent_on.end() && sent_on->after == number;
         ++sent_on) {
      // It was counted when the slot was taken again.
      Add(false, sent_on->peer, sent_on->phase,
          const_cast<void*>(sent_on->data), sent_on->bytes,
          sent_on->waited_for_by);
    }
    step->num_posts =
        static_cast<uint32_t>(op_.messages.size()) - step->first_post;
  }
}

}  // namespace commsched::ucx
