#include "ucx/algorithms/collectives.h"

#include <algorithm>
#include <bit>

#include "ucx/algorithms/packed_launch.h"
#include "ucx/algorithms/pair_pack.h"
#include "ucx/algorithms/relays.h"

namespace commsched::ucx {
namespace {

// Any address will do that can be counted on from.
char* const kNoScratch = reinterpret_cast<char*>(uintptr_t{1} << 32);

// With smaller counts any of the members may be packed, so that there is what
// the others make, and what a pack of all would.
struct PackNeeds {
  uint64_t apart_bytes = 0;
  uint64_t packed_bytes = 0;
};
PackNeeds MeasurePacks(const Algorithm& algorithm, LaunchTask measured,
                       Operation* largest) {
  Operation apart;
  Operation packed;
  PackNeeds needs;
  measured.packs = LaunchTask::Packs::kNone;
  needs.apart_bytes = ScratchBytes(algorithm, measured, &apart);
  BuildNowhere(algorithm, measured, &apart);
  measured.packs = LaunchTask::Packs::kAll;
  needs.packed_bytes = ScratchBytes(algorithm, measured, &packed);
  BuildNowhere(algorithm, measured, &packed);
  largest->Reserve(packed);
  apart.Append(packed);
  largest->Reserve(apart);
  return needs;
}

uint64_t MeasureLevels(const LaunchTask& measured, uint64_t bytes,
                       Operation* largest) {
  const PackNeeds needs = MeasurePacks(kLevels, measured, largest);
  return std::max(needs.apart_bytes,
                  needs.packed_bytes - ScratchBytesOf(bytes)) +
         ScratchBytesOf(std::min(bytes, PackRule::kMostBytes));
}

// Both sides of a pack.
uint64_t MeasureAllToAll(const LaunchTask& measured, Operation* largest) {
  return std::min(MeasurePacks(kExchange, measured, largest).packed_bytes,
                  2 * ScratchBytesOf(PackRule::kMostBytes));
}

// Whether data of a rank may come by way of one that waits for others itself.
// (With `levels` on one host data of a root may, but only of a root.)
bool HandsOn(const Algorithm& algorithm, const Layout& layout) {
  return &algorithm == &kTree || &algorithm == &kBruck ||
         (&algorithm == &kLevels && layout.num_hosts() > 1);
}

// What launches with smaller counts need of an algorithm that `shape` is too
// large for: as much as the largest that it does.
uint64_t ScratchOfSmaller(const Algorithm& algorithm,
                          const LaunchTask& measured, LaunchShape shape,
                          Operation* one) {
  uint64_t fits = 0;
  for (uint64_t above = shape.elements; above - fits > 1;) {
    shape.elements = fits + (above - fits) / 2;
    if (algorithm.fits(shape, measured.layout)) {
      fits = shape.elements;
    } else {
      above = shape.elements;
    }
  }
  const auto size = static_cast<uint64_t>(measured.layout.size());
  const bool has_parts = shape.kind == COMMSCHED_ALL_GATHER ||
                         shape.kind == COMMSCHED_REDUCE_SCATTER ||
                         shape.kind == COMMSCHED_ALL_TO_ALL;
  commsched_member_t member = {};
  member.count = has_parts ? fits / size : fits;
  commsched_launch_t launch = measured.launch;
  launch.members = &member;
  launch.num_members = 1;
  return ScratchBytes(algorithm,
                      {launch, measured.layout, measured.rank,
                       measured.chunk_bytes, /*measures=*/true},
                      one);
}

// Each rank of a PREMUL_SUM tells the next one, in a ring, what it multiplies
// by: then all do by the same, or some rank finds two that do not. It comes
// last, so that what is summed up is on its way before.
void CompareScales(const LaunchTask& task, Operation* operation) {
  const int size = task.layout.size();
  if (!IsScaled(task.launch) || size == 1) return;
  const int before = (task.rank + size - 1) % size;
  const auto tells = static_cast<uint32_t>(operation->steps.size());
  const auto add = [operation](bool is_receive, int peer, double* scale) {
    Message& message = operation->messages.emplace_back();
    message.phase = kScales;
    message.peer = peer;
    message.is_receive = is_receive;
    message.step = Operation::kNoStep;
    message.data = scale;
    message.bytes = sizeof(*scale);
  };
  Step tell;
  tell.first_post = static_cast<uint32_t>(operation->messages.size());
  tell.num_posts = 2;
  add(/*is_receive=*/true, before, &operation->other_scale);
  operation->messages.back().step = tells + 1;
  add(/*is_receive=*/false, (task.rank + 1) % size, &operation->scale);
  Step compare;
  compare.waiting = 1;
  compare.first_post = static_cast<uint32_t>(operation->messages.size());
  compare.check = {.peer = before,
                   .digest = &operation->other_scale,
                   .expected = std::bit_cast<uint64_t>(operation->scale)};
  operation->steps.push_back(tell);
  operation->steps.push_back(compare);
  operation->end_step[kForwards] += 2;
}

}  // namespace

uint64_t ScratchBytes(const Algorithm& algorithm, const LaunchTask& task,
                      Operation* operation) {
  return algorithm.scratch_bytes(task, operation);
}

void Build(const Algorithm& algorithm, const LaunchTask& task,
           Operation* operation) {
  operation->kind = task.launch.kind;
  operation->dtype = task.launch.dtype;
  operation->reduce_op = task.launch.reduce_op;
  operation->scale = ScaleOf(task.launch);
  operation->hands_on = HandsOn(algorithm, task.layout);
  algorithm.build(task, operation);
  CompareScales(task, operation);
}

void BuildNowhere(const Algorithm& algorithm, const LaunchTask& task,
                  Operation* operation) {
  operation->scratch.address = kNoScratch;
  Build(algorithm, task, operation);
}

uint64_t Measure(const LaunchTask& task, Operation* largest) {
  LaunchTask measured = task;
  measured.measures = true;
  const LaunchShape shape = ShapeOf(task.launch, task.layout.size());
  LaunchShape smallest = shape;
  smallest.elements = 0;
  uint64_t scratch_bytes = 0;
  for (const Algorithm* const algorithm : kAlgorithms) {
    if (!algorithm->fits(smallest, task.layout)) continue;
    if (algorithm == &kLevels && task.launch.num_members > 1) {
      scratch_bytes = std::max(scratch_bytes,
                               MeasureLevels(measured, shape.bytes(), largest));
      continue;
    }
    if (algorithm == &kExchange && shape.kind == COMMSCHED_ALL_TO_ALL &&
        (task.launch.num_members > 1 || HasOwnCounts(task.launch))) {
      scratch_bytes =
          std::max(scratch_bytes, MeasureAllToAll(measured, largest));
      continue;
    }
    Operation one;
    const uint64_t needed =
        algorithm->fits(shape, task.layout)
            ? ScratchBytes(*algorithm, measured, &one)
            : ScratchOfSmaller(*algorithm, measured, shape, &one);
    scratch_bytes = std::max(scratch_bytes, needed);
    BuildNowhere(*algorithm, measured, &one);
    largest->Reserve(one);
  }
  return scratch_bytes;
}

uint64_t MarkPeersOf(const Algorithm& algorithm, const LaunchTask& task,
                     std::vector<bool>* peers) {
  LaunchTask measured = task;
  measured.measures = true;
  Operation operation;
  BuildNowhere(algorithm, measured, &operation);
  MarkPeers(operation, peers);
  if (&algorithm == &kLevels && Relays::MayExist(task.launch, task.layout)) {
    Relays::MarkPeers(task.layout, task.rank, peers);
  }
  uint64_t bytes = 0;
  for (const Message& message : operation.messages) bytes += message.bytes;
  return bytes;
}

}  // namespace commsched::ucx
