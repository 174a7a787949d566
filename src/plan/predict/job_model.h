#ifndef COMMSCHED_SRC_PLAN_PREDICT_JOB_MODEL_H_
#define COMMSCHED_SRC_PLAN_PREDICT_JOB_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "graph/dependencies.h"
#include "graph/graph.h"
#include "plan/order.h"
#include "plan/plan.h"

namespace commsched {

// One role between partition and layout: what prioritize reads and rewrites.
struct RoleDraft {
  const Graph* graph = nullptr;
  const Dependencies* dependencies = nullptr;
  const CostProfile* profile = nullptr;
  const PlannedOrder* order = nullptr;
  // Sorted by key. Launches of several roles that are one transfer have equal
  // keys, all others different ones.
  std::vector<Launch>* launches = nullptr;
};

// A job as list scheduling sees it: ops on compute lanes and transfers on
// links, of all roles, with what must be complete before each. Nodes are
// numbered: compute ops, then transfers.
struct JobModel {
  struct Compute {
    OpId op;
    uint32_t role = 0;
    uint32_t lane = 0;   // in `lanes`
    int64_t cpu_ns = 0;  // beside what else runs on the core (CpuStretch)
  };
  // A launch of one role, or the launches of several that are one.
  struct Transfer {
    uint32_t first_side = 0;  // in `sides`
    uint32_t num_sides = 0;
    int64_t overhead_ns = 0;
    int64_t link_ns = 0;  // to arrival
    int64_t busy_ns = 0;  // of that, until the next one may begin
    int64_t cpu_ns = 0;   // measured copies and reductions, at least
    uint64_t bytes = 0;
    int priority = 0;
  };
  struct Side {
    uint32_t role = 0;
    uint32_t launch = 0;  // index in RoleDraft::launches
    uint32_t ready = 0;   // as PlannedOrder has them, over all members
    uint32_t first_need = 0;
  };
  // The other end of an edge. Small, as there are several per op.
  struct Edge {
    uint32_t node : 31 = 0;
    uint32_t distance : 1 = 0;
  };

  std::vector<Compute> compute;
  std::vector<Transfer> transfers;  // in key order
  std::vector<Side> sides;
  std::vector<std::vector<uint32_t>> lanes;  // compute nodes in host order
  std::vector<uint32_t> in_begin;            // by node, and the end
  std::vector<Edge> in;
  uint32_t num_roles = 0;
  int64_t launch_ns = 0;
  uint32_t max_launches = 0;  // the window; 0: no limit
  uint64_t max_bytes = 0;

  uint32_t num_compute() const { return static_cast<uint32_t>(compute.size()); }
  uint32_t num_nodes() const {
    return static_cast<uint32_t>(compute.size() + transfers.size());
  }
  bool IsTransfer(uint32_t node) const { return node >= compute.size(); }
  const Transfer& TransferOf(uint32_t node) const {
    return transfers[node - compute.size()];
  }
  absl::Span<const Side> SidesOf(const Transfer& transfer) const {
    return {&sides[transfer.first_side], transfer.num_sides};
  }
  absl::Span<const Edge> In(uint32_t node) const {
    return {in.data() + in_begin[node], in_begin[node + 1] - in_begin[node]};
  }
};

// The same edges by where they come from. Few jobs need them.
struct OutEdges {
  std::vector<uint32_t> begin;  // by node, and the end
  std::vector<JobModel::Edge> edges;

  absl::Span<const JobModel::Edge> Of(uint32_t node) const {
    return {edges.data() + begin[node], begin[node + 1] - begin[node]};
  }
};

// Who depends on a split collective depends on its last piece, here as in the
// plan. O(n log n).
JobModel ModelJob(absl::Span<const RoleDraft> roles,
                  const PlanOptions& options);

OutEdges OutEdgesOf(const JobModel& model);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_JOB_MODEL_H_
