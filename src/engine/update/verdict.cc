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

// Looks in the order of registration; `sums` are those of all ranks.
std::string FirstNonFinite(const Model& model, const double* sums) {
  for (uint32_t p = 0; p < model.parameters().size(); ++p) {
    if (std::isfinite(sums[p])) continue;
    return "; in the last one that of parameter '" +
           model.parameters()[p].name + "' was not";
  }
  return "";
}

// What ranks have told each other: so many values each; null: nothing.
struct Told {
  const double* rates = nullptr;
  size_t count = 0;
  int32_t num_ranks = 0;
  const char* of = "";  // "norm_group"
};

// Empty: there is none. A rank whose values are 0 has told nothing.
std::string FirstDifference(const StepReports::Report& report,
                            const Told& told) {
  if (told.rates == nullptr) return "";
  const size_t all = static_cast<size_t>(told.num_ranks) * told.count;
  for (size_t i = told.count; i < all; ++i) {
    const double first = told.rates[i % told.count];
    const double other = told.rates[i];
    if (first == other || first == 0 || other == 0) continue;
    const Difference difference = DifferenceAt(i % told.count, first, other);
    return "engine: " + difference.name + " of step " +
           std::to_string(report.rates_step) + " is " + difference.of_first +
           " on rank 0 of " + told.of + " and " + difference.of_other +
           " on rank " + std::to_string(i / told.count) +
           "; it must be the same on all. ";
  }
  return "";
}

}  // namespace

Status Update::EndTraining(const std::string& why) {
  verdict_ = FailedPrecondition(why);
  spec_.ops->Abort(why.c_str());
  return verdict_;
}

// Runs within an op: reports the rates of the step before, and puts this rank's
// where the others will find them in their next step.
Status Update::SendRates() {
  ENGINE_RETURN_IF_ERROR(ReportRates());
  ENGINE_RETURN_IF_ERROR(CheckReports());
  rates_of_step_ = step_;
  const NormMemory& norm = spec_.state->norm();
  if (plan_->spec().gathers_part_rates()) {
    ENGINE_RETURN_IF_ERROR(
        SendValues(norm.part_rates.data() + spec_.part_rank * values_.size()));
  }
  if (!plan_->spec().gathers_rates()) return Status();
  return SendValues(norm.rates.data() + spec_.rank * values_.size());
}

Status Update::ReportRates() {
  if (rates_of_step_ == 0) return Status();
  const uint64_t step = std::exchange(rates_of_step_, 0);
  const NormMemory& norm = spec_.state->norm();
  return reports_.Send(kernels_, step, nullptr,
                       {norm.rates.data(), norm.part_rates.data(), step});
}

Status Update::CheckReports() {
  StepReports::Report report;
  while (reports_.Take(&report)) {
    if (report.has_state) {
      static_cast<commsched_step_state_t&>(reported_) = report.state;
    }
    ENGINE_RETURN_IF_ERROR(CheckRates(report));
    if (report.has_state) {
      ENGINE_RETURN_IF_ERROR(CheckSkippedSteps(report.step));
    }
  }
  return Status();
}

Status Update::CheckRates(const StepReports::Report& report) {
  const StepSpec& spec = plan_->spec();
  std::string why = FirstDifference(
      report, {report.rates, values_.size(), spec.world, "the group"});
  if (why.empty()) {
    why = FirstDifference(report, {report.part_rates, values_.size(),
                                   spec.norm_members, "norm_group"});
  }
  if (why.empty()) return Status();
  // Those that travel with a norm come in a report of the step.
  const bool stepped =
      !report.has_state || spec_.on_device || report.rates_step < report.step;
  return EndTraining(
      why + (stepped ? "The weights have been stepped with it: go on from a "
                       "checkpoint of an earlier step"
                     : "No weight was stepped with it"));
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
