#include "collectives.h"

#include <algorithm>

#include "packed_launch.h"

namespace commsched::ucx {
namespace {

// Any address will do that can be counted on from.
char* const kNoScratch = reinterpret_cast<char*>(uintptr_t{1} << 32);

void MeasureOne(const Algorithm& algorithm, const LaunchTask& measured,
                Operation* one) {
  one->scratch.address = kNoScratch;
  Build(algorithm, measured, one);
}

// By levels: with smaller counts any of the members may be packed, so that
// there is what the others make, and what a pack of all would.
uint64_t MeasurePacks(LaunchTask measured, uint64_t bytes, Operation* largest) {
  Operation apart;
  Operation packed;
  measured.packs = LaunchTask::Packs::kNone;
  const uint64_t apart_bytes = ScratchBytes(kLevels, measured, &apart);
  MeasureOne(kLevels, measured, &apart);
  measured.packs = LaunchTask::Packs::kAll;
  const uint64_t packed_bytes =
      ScratchBytes(kLevels, measured, &packed) - ScratchBytesOf(bytes);
  MeasureOne(kLevels, measured, &packed);
  largest->Reserve(packed);
  apart.Append(packed);
  largest->Reserve(apart);
  return std::max(apart_bytes, packed_bytes) +
         ScratchBytesOf(std::min(bytes, PackRule::kMostBytes));
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
  algorithm.build(task, operation);
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
                               MeasurePacks(measured, shape.bytes(), largest));
      continue;
    }
    Operation one;
    if (algorithm->fits(shape, task.layout)) {
      scratch_bytes =
          std::max(scratch_bytes, ScratchBytes(*algorithm, measured, &one));
    }
    MeasureOne(*algorithm, measured, &one);
    largest->Reserve(one);
  }
  return scratch_bytes;
}

}  // namespace commsched::ucx
