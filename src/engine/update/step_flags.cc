#include "engine/update/step_flags.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace commsched::engine {
namespace {

constexpr uint64_t kControlDoubles =
    sizeof(commsched_step_control_t) / sizeof(double);
constexpr uint64_t kSkip =
    offsetof(commsched_step_control_t, skip) / sizeof(double);

}  // namespace

// A number of a control is that of its option set; to `skip` the flag is added.
// Neither is negative, so that it is not 0 if one of the two is not.
Status StepFlags::Init(RankState* state, const Kernels& kernels,
                       const StepSpec& spec,
                       const std::vector<Parameter>& parameters) {
  flags_ = state->norm().flags.data();
  values_.assign(spec.num_flags(parameters.size()), 0);
  sets_.clear();
  controls_ = nullptr;
  if (!spec.absent_gradients) return Status();
  std::vector<std::vector<commsched_run_t>> numbers;
  for (const Parameter& each : parameters) {
    const uint64_t flag = sets_.size();
    const uint64_t control =
        parameters.size() + each.option_set * kControlDoubles;
    for (uint64_t i = 0; i < kControlDoubles; ++i) {
      numbers.push_back({{control + i, 1}});
      if (i == kSkip) numbers.back().push_back({flag, 1});
    }
    sets_.push_back(each.option_set);
  }
  const uint64_t num_sets = std::max(spec.option_sets, 1u);
  ENGINE_RETURN_IF_ERROR(
      state->Keep(parameters.size() + num_sets * kControlDoubles, &sources_));
  ENGINE_RETURN_IF_ERROR(state->Keep(parameters.size(), &controls_));
  return sums_.Init(state, kernels, numbers);
}

void StepFlags::Begin() {
  std::fill(values_.begin(), values_.end(), 1.0);
  if (!values_.empty()) values_.back() = 0;
}

void StepFlags::Cancel() {
  values_.back() = -std::numeric_limits<double>::infinity();
}

Status StepFlags::Set(const Kernels& kernels) const {
  return kernels.Copy(flags_, values_.data(), values_.size() * sizeof(double));
}

Status StepFlags::Decide(
    const Kernels& kernels, const commsched_step_control_t& control,
    const std::vector<const commsched_step_control_t*>& of_sets) {
  if (controls_ == nullptr) return Status();
  double* into = sources_ + sets_.size();
  ENGINE_RETURN_IF_ERROR(
      kernels.Copy(sources_, flags_, sets_.size() * sizeof(double)));
  for (size_t set = 0; set < std::max<size_t>(of_sets.size(), 1); ++set) {
    const commsched_step_control_t* const own =
        set < of_sets.size() ? of_sets[set] : nullptr;
    ENGINE_RETURN_IF_ERROR(kernels.Copy(into, own == nullptr ? &control : own,
                                        sizeof(commsched_step_control_t)));
    into += kControlDoubles;
  }
  return sums_.Add(kernels, sources_, reinterpret_cast<double*>(controls_));
}

}  // namespace commsched::engine
