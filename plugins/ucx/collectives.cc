#include "collectives.h"

#include <algorithm>

namespace commsched::ucx {

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
    Operation one;
    // Any address will do that can be counted on from.
    one.scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
    if (algorithm->fits(shape, task.layout)) {
      scratch_bytes =
          std::max(scratch_bytes, ScratchBytes(*algorithm, measured, &one));
    }
    Build(*algorithm, measured, &one);
    largest->Reserve(one);
  }
  return scratch_bytes;
}

}  // namespace commsched::ucx
