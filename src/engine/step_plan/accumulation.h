#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_ACCUMULATION_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_ACCUMULATION_H_

#include <cstdint>

#include "engine/step_plan/layout.h"

namespace commsched::engine {

// What accumulating is worth: reductions that are not sent.
struct AccumulationCosts {
  uint64_t budget_bytes = 0;  // Of buckets that accumulate; 0: no limit.
  // Of an element that adds up, and of one that is sent.
  uint64_t element_bytes = sizeof(float);
  uint64_t sent_element_bytes = sizeof(float);
  // Of the link that reductions take.
  double bytes_per_s = 1;
  int64_t latency_ns = 0;
};

// Chooses for every bucket how the gradients of several micro-batches add up:
// whole, so that they are reduced once, or reduced at once in each of them,
// which Bucket::reduced_at_once then says.
//
// Whole are, within the budget, those whose reductions would take the link
// longest in all. Large buckets take it longest each, small ones per byte, by
// the latency: they are taken largest first or smallest first, whichever saves
// more, as many as fit. A pure function.
void ChooseAccumulation(const AccumulationCosts& costs, Layout* layout);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_ACCUMULATION_H_
