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

#include "engine.h"

namespace commsched::engine {
namespace {

// "0.0003": the fewest digits that tell it from other floats. Of SentRate().
std::string Format(double rate) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text),
                                 static_cast<float>(std::max(rate, 0.0)));
  return std::string(text, end.ptr);
}

}  // namespace

Status Engine::EndTraining(const std::string& why) {
  verdict_ = FailedPrecondition(why);
  Abort(why.c_str());
  return verdict_;
}

// Within an op: compares the rates of the step before, and puts this rank's
// where the others will find it in their next step.
Status Engine::SendRate(float lr) {
  ENGINE_RETURN_IF_ERROR(CheckSentRates());
  rates_.data()[group_rank_] = SentRate(lr);
  rates_of_step_ = step_offset_ + steps_begun_;
  return Status();
}

Status Engine::CheckSentRates() {
  if (rates_of_step_ == 0) return Status();
  const uint64_t step = std::exchange(rates_of_step_, 0);
  return CheckRates(rates_.data(), 1, step);
}

Status Engine::CheckRates(const double* rates, uint64_t stride, uint64_t step) {
  const auto world = static_cast<uint64_t>(spec_.world);
  for (uint64_t r = 1; r < world; ++r) {
    if (rates[r * stride] == rates[0]) continue;
    if (rates[r * stride] == 0 || rates[0] == 0) continue;
    const bool stepped = spec_.gathers_rates();
    return EndTraining(
        "engine: lr of step " + std::to_string(step) + " is " +
        Format(rates[0]) + " on rank 0 of the group and " +
        Format(rates[r * stride]) + " on rank " + std::to_string(r) +
        "; it must be the same on all. " +
        (stepped ? "The weights have been stepped with it: go on from a "
                   "checkpoint of an earlier step"
                 : "No weight was stepped with it"));
  }
  return Status();
}

// Once the norm is there, before a weight is stepped.
Status Engine::CheckStep() {
  const uint64_t step = step_offset_ + steps_begun_;
  if (spec_.gathers_block_sums()) {
    ENGINE_RETURN_IF_ERROR(CheckRates(all_sums_.data() + graph_.local_blocks,
                                      graph_.local_count, step));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(CheckRates(total_.data() + 1, 1, step));
  }
  return CheckSkippedSteps();
}

Status Engine::CheckSkippedSteps() {
  const LossScale& state = *loss_scale_.data();
  if (state.skipped_in_row < desc_.max_skipped_steps) return Status();
  const auto skipped = static_cast<uint64_t>(state.skipped_in_row);
  const uint64_t step = step_offset_ + steps_begun_;
  return EndTraining(
      "engine: the gradients of " + std::to_string(skipped) +
      " steps in a row, up to step " + std::to_string(step) +
      ", were not finite, and max_skipped_steps is " +
      std::to_string(desc_.max_skipped_steps) + FirstNonFinite() +
      ". The weights are those of step " + std::to_string(step - skipped) +
      ": look at the data and the learning rate of the steps before, and go on "
      "from an earlier checkpoint");
}

// By registration, of the last step, where each rank has the sums of all.
std::string Engine::FirstNonFinite() const {
  if (spec_.reduces_norm()) return "";
  const double* const sums =
      spec_.gathers_block_sums() ? all_sums_.data() : local_sums_.data();
  for (uint32_t p = 0; p < parameters_.size(); ++p) {
    if (std::isfinite(ParameterSum(p, sums))) continue;
    return "; in the last one that of parameter '" + parameters_[p].name +
           "' was not";
  }
  return "";
}

}  // namespace commsched::engine
