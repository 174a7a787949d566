#ifndef COMMSCHED_SRC_EXEC_NVTX_RANGES_H_
#define COMMSCHED_SRC_EXEC_NVTX_RANGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "exec/program.h"

namespace commsched {

// Ranges for NVIDIA's tools (NVTX), in the domain "commsched": a step, a
// compute op from the end of its `before` to its `after`, and the enqueuing of
// a launch. Names are registered when a session is made, so that a step makes
// none (I6).
//
// Ranges of steps and of ops may end on another thread than they began on, and
// a launch that fails leaves its range open; so none is one of a thread's
// stack.
//
// An op: any thread, its end after its beginning. A step: the driving thread. A
// launch: the thread that issues.
class NvtxRanges {
 public:
  // Null if no tool is attached to this process, or if this build is without
  // CUDA.
  static std::unique_ptr<NvtxRanges> Create(const Program& program);
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  // `is_graph`: one that is a launch of a captured graph.
  void StepBegun(bool is_graph);
  void StepEnded();
  void OpBegun(uint32_t node);
  void OpEnded(uint32_t node);
  void LaunchBegun(uint32_t launch);
  void LaunchEnded();

 private:
  NvtxRanges() = default;

  // Registered names. Constant after construction.
  void* step_name_ = nullptr;
  void* graph_name_ = nullptr;
  std::vector<void*> op_names_;      // by node
  std::vector<void*> launch_names_;  // by launch

  // Of the ranges that are open.
  uint64_t step_ = 0;
  uint64_t launch_ = 0;
  std::vector<uint64_t> ops_;  // by node
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_NVTX_RANGES_H_
