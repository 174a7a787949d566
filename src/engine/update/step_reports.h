#ifndef COMMSCHED_SRC_ENGINE_UPDATE_STEP_REPORTS_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_STEP_REPORTS_H_

#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/engine_kernels.h"
#include "engine/state/rank_state.h"
#include "engine/step_plan/spec.h"
#include "engine/tables/kernels.h"

namespace commsched::engine {

// What steps tell the host, copied on the compute stream and not waited for: on
// the host it is there at once, on a device some steps later.
//
// Thread-compatible.
class StepReports {
 public:
  // A device is at most three steps behind its host.
  static constexpr uint64_t kSlots = 8;

  struct Report {
    uint64_t step = 0;
    bool has_state = false;
    commsched_step_state_t state = {};
    const double* rates = nullptr;  // Of each rank; null: none.
    const double* part_rates = nullptr;
    uint64_t rates_step = 0;  // Of which both are.
  };

  // What ranks have told each other: those of the group, and those that hold
  // other parts of the model. Null, or as many as Init() was told.
  struct Rates {
    const double* values = nullptr;
    const double* of_parts = nullptr;
    uint64_t step = 0;  // Of which they are.
  };

  // Its memory is kept in `state`, which outlives it.
  Status Init(RankState* state, uint64_t num_rates, uint64_t num_part_rates);

  // Enqueues the report of `step`, which no earlier one is of. Null: not of
  // this one.
  Status Send(const Kernels& kernels, uint64_t step,
              const commsched_step_state_t* state, const Rates& rates);

  // Whether there is one, the oldest that has not been taken; it is valid until
  // kSlots more have been sent.
  bool Take(Report* out_report);

 private:
  // Doubles: the state, the rates, those of parts, and, last to arrive, the
  // number of the report.
  double* SlotOf(uint64_t number) const {
    return slots_ + number % kSlots * slot_count_;
  }
  double* RatesOf(uint64_t number) const {
    return SlotOf(number) + kStateDoubles;
  }
  double* PartRatesOf(uint64_t number) const {
    return RatesOf(number) + num_rates_;
  }
  double* NumberOf(uint64_t number) const {
    return PartRatesOf(number) + num_part_rates_;
  }

  uint64_t slot_count_ = 0;
  uint64_t num_rates_ = 0;
  uint64_t num_part_rates_ = 0;
  double* slots_ = nullptr;   // Of the host.
  double* number_ = nullptr;  // Of the report that is being sent.
  struct Sent {
    uint64_t step = 0;
    bool has_state = false;
    bool has_rates = false;
    bool has_part_rates = false;
    uint64_t rates_step = 0;
  };
  Sent contents_[kSlots];
  uint64_t sent_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_STEP_REPORTS_H_
