// Which way the members of a launch travel.
#ifndef COMMSCHED_SRC_PLAN_LAUNCH_WAY_H_
#define COMMSCHED_SRC_PLAN_LAUNCH_WAY_H_

#include <cstdint>

#include "graph/graph.h"
#include "plan/options.h"
#include "plan/plan.h"

namespace commsched {

// What collectives of one graph leave to choose, and the choice (coalesce.h).
//
// Thread-compatible. Graph, options and profile outlive it.
class LaunchWays {
 public:
  LaunchWays(const Graph& graph, const PlanOptions& options,
             const CostProfile& profile);

  bool IsCoded(const CollectiveSpec& spec) const;
  // What travels, for the window (I3).
  uint64_t PayloadOf(const CollectiveSpec& spec) const;
  // Whether `op` can go any way.
  bool LeavesChoice(OpId op) const;
  // Whether the memory of `op` is such that it joins others in a list only.
  bool NeedsList(OpId op) const;
  bool backend_takes_lists() const { return takes_lists_; }
  // Whether `next` may be in one launch with `last`, as far as its memory is
  // concerned: copies only for who needs them, and tiles with parts of uneven
  // size only alone.
  bool MayTravelTogether(OpId last, OpId next) const;

  // Of a launch whose members are complete: fills way, staging sizes, and why.
  // Members of one that goes in place are put in order of address.
  void Choose(Launch* launch) const;
  // The same, of several members that shall not go in place.
  void ChooseListOrPack(Launch* launch) const;

 private:
  // What the memory of a collective's sides demands.
  enum class Demand : uint8_t {
    kNone,
    kCopies,   // a side is a tile: its rows are put side by side
    kNoCopies  // a side is late-bound: its address is not known yet
  };

  Demand DemandOf(const Op& op) const;
  bool HasTile(const Launch& launch) const;
  bool SortIfContiguous(Launch* launch) const;
  void SetCoded(Launch* launch) const;
  void SetPacked(Launch* launch) const;

  const Graph& graph_;
  const PlanOptions& options_;
  const CostProfile& profile_;
  const bool takes_lists_;
  const bool demands_nothing_;  // any collective, of its memory
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_LAUNCH_WAY_H_
