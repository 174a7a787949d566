// A step that does nothing but write gradients and reduce them.
#ifndef COMMSCHED_TEST_CUDA_REDUCTION_STEP_H_
#define COMMSCHED_TEST_CUDA_REDUCTION_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "device/device.h"
#include "graph/graph.h"
#include "session/session.h"

namespace commsched::test {

// Each axis has all ranks, and a gradient that an op writes before it is
// all-reduced there.
class ReductionStep {
 public:
  static constexpr uint64_t kCount = 1024;  // elements of a gradient

  ReductionStep(int num_ranks, Ownership ownership,
                const std::vector<std::string>& axes = {"dp"},
                uint64_t count = kCount);

  const Graph& graph() const { return graph_; }
  // By axis.
  const std::vector<OpId>& writes() const { return writes_; }

 private:
  Graph graph_;
  std::vector<OpId> writes_;
};

absl::Status RunStep(Session* session, const ReductionStep& step, Stream* lane);
// And drains.
absl::Status RunSteps(Session* session, const ReductionStep& step, Stream* lane,
                      int num_steps);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CUDA_REDUCTION_STEP_H_
