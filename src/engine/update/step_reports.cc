#include "engine/update/step_reports.h"

#include <atomic>
#include <cstring>

namespace commsched::engine {

Status StepReports::Init(RankState* state, uint64_t num_rates,
                         uint64_t num_part_rates) {
  num_rates_ = num_rates;
  num_part_rates_ = num_part_rates;
  slot_count_ = kStateDoubles + num_rates + num_part_rates + 1;
  ENGINE_RETURN_IF_ERROR(state->Keep(1, &number_));
  return state->KeepHost(kSlots * slot_count_, &slots_);
}

Status StepReports::Send(const Kernels& kernels, uint64_t step,
                         const commsched_step_state_t* state,
                         const Rates& rates) {
  const uint64_t number = sent_ + 1;
  double* const slot = SlotOf(number);
  contents_[number % kSlots] = {.step = step,
                                .has_state = state != nullptr,
                                .has_rates = rates.values != nullptr,
                                .has_part_rates = rates.of_parts != nullptr,
                                .rates_step = rates.step};
  if (state != nullptr) {
    ENGINE_RETURN_IF_ERROR(kernels.Copy(slot, state, sizeof(*state)));
  }
  if (rates.values != nullptr) {
    ENGINE_RETURN_IF_ERROR(kernels.Copy(RatesOf(number), rates.values,
                                        num_rates_ * sizeof(double)));
  }
  if (rates.of_parts != nullptr) {
    ENGINE_RETURN_IF_ERROR(kernels.Copy(PartRatesOf(number), rates.of_parts,
                                        num_part_rates_ * sizeof(double)));
  }
  ENGINE_RETURN_IF_ERROR(kernels.Fill(number_, static_cast<double>(number), 1));
  ENGINE_RETURN_IF_ERROR(
      kernels.Copy(NumberOf(number), number_, sizeof(double)));
  sent_ = number;
  return Status();
}

bool StepReports::Take(Report* out_report) {
  if (taken_ == sent_) return false;
  const uint64_t number = taken_ + 1;
  double* const slot = SlotOf(number);
  const double arrived = std::atomic_ref<double>(*NumberOf(number))
                             .load(std::memory_order_acquire);
  if (arrived != static_cast<double>(number)) return false;
  const Sent& sent = contents_[number % kSlots];
  *out_report = {.step = sent.step,
                 .has_state = sent.has_state,
                 .rates_step = sent.rates_step};
  if (sent.has_state) {
    std::memcpy(&out_report->state, slot, sizeof(out_report->state));
  }
  if (sent.has_rates) out_report->rates = RatesOf(number);
  if (sent.has_part_rates) out_report->part_rates = PartRatesOf(number);
  taken_ = number;
  return true;
}

}  // namespace commsched::engine
