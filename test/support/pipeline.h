// Pipelines for tests: a graph per stage, all planned together.
#ifndef COMMSCHED_TEST_SUPPORT_PIPELINE_H_
#define COMMSCHED_TEST_SUPPORT_PIPELINE_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "plan/roles.h"

namespace commsched::test {

struct PipelineSpec {
  int stages = 4;
  // With several chunks a multiple of `stages`.
  int micro_batches = 8;
  // Chunks of layers per stage, `stages` apart: the interleaved order.
  int chunks = 1;
  // Else all forwards go before all backwards.
  bool one_forward_one_backward = true;
  uint64_t count = 64;  // elements of an activation and of the weights
  // A norm over all stages between the last backward and the optimizer.
  bool norm = true;
  int64_t forward_ns = 1000000;
  int64_t backward_ns = 2000000;
};

// What stage s runs, in its host order (v: chunk, k: micro-batch):
//   fwd.v.k  reads in.v.k (but for the first of all chunks, which reads data)
//            and w.v, writes out.v.k
//   bwd.v.k  reads out.v.k, w.v and din.v.k (but for the last of all chunks),
//            adds to g.v, writes dout.v.k
//   opt      reads norm and all g.v, updates all w.v
// and around them, on group "fwd" recv.in.v.k and send.out.v.k, on group "bwd"
// recv.din.v.k and send.dout.v.k, on group "all" the all-reduce norm. Stage s
// is position s of each group and role s.
std::vector<Graph> MakePipeline(const PipelineSpec& spec = {});

// A role per graph. Each group of as many members as there are graphs has one
// of each; all others are of one role. The graphs outlive the result.
std::vector<RoleSpec> RolesOf(const std::vector<Graph>& graphs,
                              const CostProfile& profile = {});

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_PIPELINE_H_
