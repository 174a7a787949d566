// What ends training on every rank: steps that are skipped without end, and
// ranks that step with different learning rates, or other such values.
//
// The ranks compare the same numbers and come to the same verdict. The first to
// do so still aborts the step: ranks that are late must not wait for one that
// has given up, and hear the same message.

#include <cmath>
#include <utility>

#include "engine/update/update.h"

namespace commsched::engine {
namespace {

// By registration; `sums` are those of all ranks.
std::string FirstNonFinite(const Model& model, const double* sums) {
  for (uint32_t p = 0; p < model.parameters().size(); ++p) {
    if (std::isfinite(sums[p])) continue;
    return "; in the last one that of parameter '" +
           model.parameters()[p].name + "' was not";
  }
  return "";
}

}  // namespace

Status Update::EndTraining(const std::string& why) {
  verdict_ = FailedPrecondition(why);
  spec_.ops->Abort(why.c_str());
  return verdict_;
}

// Within an op: reports the rates of the step before, and puts this rank's
// where the others will find it in their next step.
Status Update::SendRates() {
  ENGINE_RETURN_IF_ERROR(ReportRates());
  ENGINE_RETURN_IF_ERROR(CheckReports());
  rates_of_step_ = step_;
  return SendValues(spec_.state->norm().rates.data() +
                    spec_.rank * values_.size());
}

Status Update::ReportRates() {
  if (rates_of_step_ == 0) return Status();
  const uint64_t step = std::exchange(rates_of_step_, 0);
  return reports_.Send(kernels_, step, nullptr,
                       {spec_.state->norm().rates.data(), step});
}

Status Update::CheckReports() {
  StepReports::Report report;
  while (reports_.Take(&report)) {
    if (report.has_state) {
      static_cast<commsched_step_state_t&>(reported_) = report.state;
    }
    if (report.rates != nullptr) {
      ENGINE_RETURN_IF_ERROR(CheckRates(report));
    }
    if (report.has_state) {
      ENGINE_RETURN_IF_ERROR(CheckSkippedSteps(report.step));
    }
  }
  return Status();
}

Status Update::CheckRates(const StepReports::Report& report) {
  const size_t count = values_.size();
  const auto world = static_cast<size_t>(plan_->spec().world);
  for (size_t i = count; i < world * count; ++i) {
    const double first = report.rates[i % count];
    const double other = report.rates[i];
    if (first == other || first == 0 || other == 0) continue;
    const bool stepped = plan_->spec().gathers_rates() || spec_.on_device ||
                         report.rates_step < report.step;
    const Difference difference = DifferenceAt(i % count, first, other);
    return EndTraining(
        "engine: " + difference.name + " of step " +
        std::to_string(report.rates_step) + " is " + difference.of_first +
        " on rank 0 of the group and " + difference.of_other + " on rank " +
        std::to_string(i / count) + "; it must be the same on all. " +
        (stepped ? "The weights have been stepped with it: go on from a "
                   "checkpoint of an earlier step"
                 : "No weight was stepped with it"));
  }
  return Status();
}

Status Update::CheckSkippedSteps(uint64_t step) {
  if (reported_.skipped_in_row < spec_.max_skipped_steps) return Status();
  const auto skipped = static_cast<uint64_t>(reported_.skipped_in_row);
  std::string parameter;  // A device is at sums of a later step by now.
  if (!plan_->spec().reduces_norm() && !spec_.on_device) {
    parameter =
        FirstNonFinite(*spec_.model, spec_.state->norm().part_sums.data());
  }
  return EndTraining(
      "engine: the gradients of " + std::to_string(skipped) +
      " steps in a row, up to step " + std::to_string(step) +
      ", were not finite, and max_skipped_steps is " +
      std::to_string(spec_.max_skipped_steps) + parameter +
      ". The weights are those of step " + std::to_string(step - skipped) +
      ": look at the data and the learning rate of the steps before, and go on "
      "from an earlier checkpoint");
}

}  // namespace commsched::engine
