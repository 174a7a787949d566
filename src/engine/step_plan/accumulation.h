#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_ACCUMULATION_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_ACCUMULATION_H_

#include <cstdint>
#include <vector>

#include "engine/model/passes.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"

namespace commsched::engine {

// So many passes a reduction is given to run under, after the last one that
// adds to what it reduces: with fewer, backward waits for it on a slow link.
inline constexpr uint32_t kReductionPasses = 3;

// What accumulating is worth: reductions that are not sent.
struct AccumulationCosts {
  uint64_t budget_bytes = 0;  // Of buckets that accumulate; 0: no limit.
  // Bytes of an element that adds up, and of one that is sent.
  uint64_t element_bytes = sizeof(float);
  uint64_t sent_element_bytes = sizeof(float);
  // The link that reductions take.
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

// The passes that add to gradients of a bucket which add up in one place: those
// of a micro-batch or, where backward goes on from one to the next, of a step.
struct Window {
  uint32_t micro_batch = 0;
  uint32_t first = 0;  // Of all passes, by index.
  uint32_t last = 0;

  bool operator==(const Window&) const = default;
};

// Those of a bucket, in the order in which they end.
class Windows {
 public:
  // `passes` add to its gradients, in every micro-batch or in none.
  Windows(const std::vector<uint32_t>& passes, const std::vector<Pass>& all,
          bool by_micro_batch);

  const std::vector<Window>& all() const { return windows_; }
  // Where what is of `micro_batch` adds up, among all().
  uint32_t IndexOf(uint32_t micro_batch) const {
    return of_micro_batch_.size() == 1 ? 0 : of_micro_batch_[micro_batch];
  }
  const Window& Of(uint32_t micro_batch) const {
    return windows_[IndexOf(micro_batch)];
  }
  // Whether one begins before another ends.
  bool Overlap() const;

 private:
  std::vector<Window> windows_;
  std::vector<uint32_t> of_micro_batch_;
};

// Finds the windows of each bucket; frozen ones have none.
std::vector<Windows> FindWindows(const StepSpec& spec, const Layout& layout,
                                 const std::vector<Pass>& passes);

// Sets Bucket::interleaved.
void FindInterleaved(const StepSpec& spec, const std::vector<Pass>& passes,
                     Layout* layout);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_ACCUMULATION_H_
