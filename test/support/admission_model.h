// The rules by which ranks issue, wait and complete, small enough to look at
// every interleaving (docs/model.md).
#ifndef COMMSCHED_TEST_SUPPORT_ADMISSION_MODEL_H_
#define COMMSCHED_TEST_SUPPORT_ADMISSION_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched::test {

// A call of the host: returns once the launches `after` are retired.
struct ModelCall {
  std::vector<int> after;
};

struct ModelLaunch {
  // What it takes part in: numbers over all ranks. A collective is one event of
  // all its ranks, a send and its receive are one of two.
  std::vector<int> events = {};
  int lane = 0;
  int communicator = -1;  // -1: none whose order counts
  uint64_t bytes = 0;
  std::vector<int> calls = {};  // made before it is due
  std::vector<int> after = {};  // launches retired before it is issued
  int slot = -1;                // memory that it fills ...
  int emptied_by = -1;          // ... until this call is made
};

struct ModelRank {
  std::vector<ModelCall> calls;
  std::vector<ModelLaunch> launches;  // in key order; at most 32
};

struct ModelJob {
  std::vector<ModelRank> ranks;
  // The window; 0: no limit. `enforced`: issue heeds it; else only the result
  // is looked at, as where the launches' waits are to see to it.
  int max_launches = 0;
  uint64_t max_bytes = 0;
  bool enforced = true;
  // Ways to be wrong.
  bool may_overtake = false;  // whatever is due may be issued
  bool empty_admits = true;   // a launch above max_bytes enters alone
};

struct ModelResult {
  uint64_t states = 0;
  // What is wrong, with the state it was found in; empty if nothing is.
  std::string deadlock, over_cap, disorder, overwrite;

  bool ok() const {
    return deadlock.empty() && over_cap.empty() && disorder.empty() &&
           overwrite.empty();
  }
  std::string Text() const {
    return deadlock + over_cap + disorder + overwrite;
  }
};

// Visits every state that some interleaving of host calls, issue, completion of
// events and retirement leads to, breadth first.
ModelResult Explore(const ModelJob& job);

// The job that `num_steps` steps of these plans are, one rank per role. The
// window is what the plans' waits make of it. At most 32 launches per rank and
// 64 events in all steps together.
ModelJob ModelOf(absl::Span<const std::shared_ptr<const Plan>> plans,
                 const Meetings& meetings, int num_steps);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_ADMISSION_MODEL_H_
