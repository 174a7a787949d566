#include "engine/update/step_reports.h"

#include <atomic>
#include <cstring>

#include "engine/step_plan/spec.h"

namespace commsched::engine {

StepReports::~StepReports() {
  if (slots_ == nullptr) return;
  memory_->ReleaseHost(slots_, kSlots * slot_count_ * sizeof(double));
}

Status StepReports::Init(const Memory& memory, const Kernels& kernels,
                         uint64_t world) {
  memory_ = &memory;
  num_rates_ = world;
  slot_count_ = kStateDoubles + world + 1;
  ENGINE_RETURN_IF_ERROR(Array<double>::Create(memory, kernels, 1, &number_));
  const uint64_t bytes = kSlots * slot_count_ * sizeof(double);
  void* slots = nullptr;
  ENGINE_RETURN_IF_ERROR(memory.AllocateHost(bytes, &slots));
  std::memset(slots, 0, bytes);
  slots_ = static_cast<double*>(slots);
  return Status();
}

Status StepReports::Send(const Kernels& kernels, uint64_t step,
                         const commsched_step_state_t* state,
                         const double* rates) {
  const uint64_t number = sent_ + 1;
  double* const slot = SlotOf(number);
  contents_[number % kSlots] = {step, state != nullptr, rates != nullptr};
  if (state != nullptr) {
    ENGINE_RETURN_IF_ERROR(kernels.Copy(slot, state, sizeof(*state)));
  }
  if (rates != nullptr) {
    ENGINE_RETURN_IF_ERROR(
        kernels.Copy(slot + kStateDoubles, rates, num_rates_ * sizeof(double)));
  }
  ENGINE_RETURN_IF_ERROR(
      kernels.Fill(number_.data(), static_cast<double>(number), 1));
  ENGINE_RETURN_IF_ERROR(kernels.Copy(slot + kStateDoubles + num_rates_,
                                      number_.data(), sizeof(double)));
  sent_ = number;
  return Status();
}

bool StepReports::Take(Report* out_report) {
  if (taken_ == sent_) return false;
  const uint64_t number = taken_ + 1;
  double* const slot = SlotOf(number);
  const double arrived =
      std::atomic_ref<double>(slot[kStateDoubles + num_rates_])
          .load(std::memory_order_acquire);
  if (arrived != static_cast<double>(number)) return false;
  const Sent& sent = contents_[number % kSlots];
  *out_report = {.step = sent.step, .has_state = sent.has_state};
  if (sent.has_state) {
    std::memcpy(&out_report->state, slot, sizeof(out_report->state));
  }
  if (sent.has_rates) out_report->rates = slot + kStateDoubles;
  taken_ = number;
  return true;
}

}  // namespace commsched::engine
