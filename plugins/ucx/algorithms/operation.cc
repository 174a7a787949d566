#include "ucx/algorithms/operation.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace commsched::ucx {

uint64_t ElementBytes(commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_F32:
    case COMMSCHED_I32:
      return 4;
    case COMMSCHED_F64:
    case COMMSCHED_I64:
      return 8;
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return 2;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return 1;
    default:
      return 0;
  }
}

uint64_t PartialBytes(commsched_dtype_t dtype, commsched_reduce_op_t op) {
  const bool is_mean = op == COMMSCHED_AVG;
  switch (dtype) {
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return 4;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return is_mean ? 8 : 1;
    case COMMSCHED_I32:
      return is_mean ? 8 : 4;
    case COMMSCHED_I64:
      return is_mean ? 16 : 8;
    default:
      return ElementBytes(dtype);
  }
}

double ScaleOf(const commsched_launch_t& launch) {
  const bool has_scale = launch.struct_size >=
                         offsetof(commsched_launch_t, scale) + sizeof(double);
  return has_scale ? launch.scale : 0;
}

namespace {

bool IsReducing(commsched_collective_t kind) {
  return kind == COMMSCHED_ALL_REDUCE || kind == COMMSCHED_REDUCE_SCATTER ||
         kind == COMMSCHED_REDUCE;
}

bool IsReducible(commsched_dtype_t dtype, commsched_reduce_op_t op) {
  const bool is_integer = dtype >= COMMSCHED_I8;
  const bool is_bitwise = op >= COMMSCHED_BAND && op <= COMMSCHED_BXOR;
  if (op == COMMSCHED_PREMUL_SUM) return !is_integer;
  return op <= COMMSCHED_PROD || (is_bitwise && is_integer);
}

}  // namespace

bool IsScaled(const commsched_launch_t& launch) {
  return IsReducing(launch.kind) && launch.reduce_op == COMMSCHED_PREMUL_SUM;
}

Outcome CheckKind(const commsched_launch_t& launch) {
  if (launch.kind <= COMMSCHED_SEND && ElementBytes(launch.dtype) != 0) {
    if (!IsReducing(launch.kind) ||
        IsReducible(launch.dtype, launch.reduce_op)) {
      return {};
    }
    return {COMMSCHED_INVALID_ARGUMENT,
            "reduction " + std::to_string(launch.reduce_op) +
                " is not one of dtype " + std::to_string(launch.dtype)};
  }
  return {COMMSCHED_INVALID_ARGUMENT,
          "kind " + std::to_string(launch.kind) + " and dtype " +
              std::to_string(launch.dtype) + " make no launch"};
}

void Operation::Reserve(const Operation& other) {
  messages.reserve(other.messages.capacity());
  steps.reserve(other.steps.capacity());
  inputs.reserve(other.inputs.capacity());
  copies.reserve(other.copies.capacity());
  rooms.reserve(other.rooms.capacity());
  late.reserve(other.late.capacity());
  sent_on.reserve(other.sent_on.capacity());
  loads.reserve(other.loads.capacity());
  shares.reserve(other.shares.capacity());
  spreads.reserve(other.spreads.capacity());
  relayed.reserve(other.relayed.capacity());
  part_begins.reserve(other.part_begins.capacity());
  part_fills.reserve(other.part_fills.capacity());
  pack.members.reserve(other.pack.members.capacity());
  pack.arrays.reserve(other.pack.arrays.capacity());
  pack.counts.reserve(other.pack.counts.capacity());
  pack.begins.reserve(other.pack.begins.capacity());
  pack.places.reserve(other.pack.places.capacity());
  pack.digests.reserve(other.pack.digests.capacity());
  pack.is_packed.reserve(other.pack.is_packed.capacity());
}

void Operation::Append(const Operation& other) {
  const auto append = [](auto* to, const auto& from) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(&messages, other.messages);
  append(&steps, other.steps);
  append(&inputs, other.inputs);
  append(&copies, other.copies);
  append(&rooms, other.rooms);
  append(&late, other.late);
  append(&sent_on, other.sent_on);
}

bool CountsAgree(const Step& step) {
  if (step.check.peer < 0) return true;
  return std::memcmp(step.check.digest, &step.check.expected,
                     sizeof(step.check.expected)) == 0;
}

void TakeCopies(const Operation& operation, const Step& step) {
  for (uint32_t i = 0; i < step.num_copies; ++i) {
    const StepCopy& copy = operation.copies[step.first_copy + i];
    std::memmove(copy.to, copy.from, copy.bytes);
  }
}

void MarkPeers(const Operation& operation, std::vector<bool>* peers) {
  for (const Message& message : operation.messages) {
    (*peers)[static_cast<size_t>(message.peer)] = true;
  }
}

bool Operation::HasDueStep() const {
  for (uint32_t kind = 0; kind < kNumStepKinds; ++kind) {
    if (next_step[kind] != end_step[kind] &&
        steps[next_step[kind]].waiting == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace commsched::ucx
