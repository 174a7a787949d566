// What ends training on every rank: steps that are skipped without end, and
// ranks that step with different learning rates.
//
// The ranks compare the same numbers and come to the same verdict. The first to
// do so still aborts the step: ranks that are late must not wait for one that
// has given up, and hear the same message.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "engine/update/update.h"

namespace commsched::engine {
namespace {

// "0.0003": the fewest digits that tell it from other floats. Of SentRate().
std::string TextOfRate(double rate) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text),
                                 static_cast<float>(std::max(rate, 0.0)));
  return std::string(text, end.ptr);
}

}  // namespace

Status Update::EndTraining(const std::string& why) {
  verdict_ = FailedPrecondition(why);
  spec_.ops->Abort(why.c_str());
  return verdict_;
}

// Within an op: reports the rates of the step before, and puts this rank's
// where the others will find it in their next step.
Status Update::SendRate(float lr) {
  ENGINE_RETURN_IF_ERROR(ReportRates());
  ENGINE_RETURN_IF_ERROR(CheckReports());
  rates_of_step_ = step_;
  return kernels_.Fill(spec_.state->norm().rates.data() + spec_.rank,
                       SentRate(lr), 1);
}

Status Update::ReportRates() {
  if (rates_of_step_ == 0) return Status();
  const uint64_t step = std::exchange(rates_of_step_, 0);
  return reports_.Send(kernels_, step, nullptr,
                       spec_.state->norm().rates.data());
}

Status Update::CheckReports() {
  StepReports::Report report;
  while (reports_.Take(&report)) {
    if (report.has_state) {
      static_cast<commsched_step_state_t&>(reported_) = report.state;
    }
    if (report.rates != nullptr) {
      ENGINE_RETURN_IF_ERROR(CheckRates(report.rates, report.step));
    }
    if (report.has_state) {
      ENGINE_RETURN_IF_ERROR(CheckSkippedSteps(report.step));
    }
  }
  return Status();
}

Status Update::CheckRates(const double* rates, uint64_t step) {
  const auto world = static_cast<uint64_t>(plan_->spec().world);
  for (uint64_t r = 1; r < world; ++r) {
    if (rates[r] == rates[0]) continue;
    if (rates[r] == 0 || rates[0] == 0) continue;
    const bool stepped = plan_->spec().gathers_rates() || spec_.on_device;
    return EndTraining(
        "engine: lr of step " + std::to_string(step) + " is " +
        TextOfRate(rates[0]) + " on rank 0 of the group and " +
        TextOfRate(rates[r]) + " on rank " + std::to_string(r) +
        "; it must be the same on all. " +
        (stepped ? "The weights have been stepped with it: go on from a "
                   "checkpoint of an earlier step"
                 : "No weight was stepped with it"));
  }
  return Status();
}

Status Update::CheckSkippedSteps(uint64_t step) {
  if (reported_.skipped_in_row < spec_.max_skipped_steps) return Status();
  const auto skipped = static_cast<uint64_t>(reported_.skipped_in_row);
  return EndTraining(
      "engine: the gradients of " + std::to_string(skipped) +
      " steps in a row, up to step " + std::to_string(step) +
      ", were not finite, and max_skipped_steps is " +
      std::to_string(spec_.max_skipped_steps) + FirstNonFinite() +
      ". The weights are those of step " + std::to_string(step - skipped) +
      ": look at the data and the learning rate of the steps before, and go on "
      "from an earlier checkpoint");
}

// By registration, of the last step, where each rank has the sums of all. A
// device is at sums of a later step by now.
std::string Update::FirstNonFinite() const {
  if (plan_->spec().reduces_norm() || spec_.on_device) return "";
  for (uint32_t p = 0; p < spec_.model->parameters().size(); ++p) {
    if (std::isfinite(spec_.state->norm().part_sums.data()[p])) continue;
    return "; in the last one that of parameter '" +
           spec_.model->parameters()[p].name + "' was not";
  }
  return "";
}

}  // namespace commsched::engine
