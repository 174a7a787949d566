#include "test/engine/plain_training.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels.h"

namespace commsched::engine {

PlainTraining::PlainTraining(const RandomCase& random_case)
    : case_(random_case) {
  for (uint32_t p = 0; p < case_.model.parameters.size(); ++p) {
    const uint64_t count = case_.model.parameters[p].count();
    State state = {std::vector<float>(count), std::vector<float>(count),
                   std::vector<float>(count), std::vector<float>(count)};
    for (uint64_t i = 0; i < count; ++i) state.value[i] = InitialValue(p, i);
    states_.push_back(std::move(state));
  }
  Keep();
  for (uint32_t step = 0; step < case_.after_step.size(); ++step) {
    Step(step);
    Keep();
  }
}

void PlainTraining::Keep() {
  Weights& weights = after_.emplace_back();
  for (const State& state : states_) weights.push_back(state.value);
}

std::vector<float> PlainTraining::MeanGradient(uint32_t step,
                                               uint32_t parameter,
                                               uint32_t first,
                                               uint32_t last) const {
  const std::vector<float>& value = states_[parameter].value;
  std::vector<float> sum(value.size());
  for (int32_t rank = 0; rank < case_.ranks; ++rank) {
    std::vector<float> mine(value.size());
    for (uint32_t mb = first; mb < last; ++mb) {
      for (size_t m = case_.model.used.size(); m-- > 0;) {
        const std::vector<uint32_t>& used = case_.model.used[m];
        if (std::find(used.begin(), used.end(), parameter) == used.end()) {
          continue;
        }
        const GradientSource source(case_, rank, step, mb,
                                    static_cast<uint32_t>(m), parameter);
        if (!source.any()) continue;
        for (uint64_t i = 0; i < mine.size(); ++i) {
          mine[i] += source.At(i, value[i]);
        }
      }
    }
    for (uint64_t i = 0; i < sum.size(); ++i) {
      sum[i] = rank == 0 ? mine[i] : sum[i] + mine[i];
    }
  }
  const float factor = 1.0f / static_cast<float>(case_.ranks);
  for (float& each : sum) each *= factor;
  return sum;
}

// Whole over all micro-batches, or the sum of what each of them gives.
void PlainTraining::ReduceGradient(uint32_t step, uint32_t parameter) {
  std::vector<float>& gradient = states_[parameter].gradient;
  const uint32_t micro_batches = std::max(1u, case_.engine.micro_batches);
  if (case_.engine.accumulate_bytes == 0) {
    gradient = MeanGradient(step, parameter, 0, micro_batches);
    return;
  }
  gradient = MeanGradient(step, parameter, 0, 1);
  for (uint32_t mb = 1; mb < micro_batches; ++mb) {
    const std::vector<float> more = MeanGradient(step, parameter, mb, mb + 1);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += more[i];
  }
}

double PlainTraining::Norm() const {
  const commsched_engine_kernels_t kernels = CpuKernels();
  double total = 0;
  for (const State& state : states_) {
    std::vector<double> sums(state.gradient.size() / 256 + 1);
    kernels.block_squares(kernels.user, state.gradient.data(), COMMSCHED_F32,
                          state.gradient.size(), sums.data());
    double of_parameter = 0;
    for (double sum : sums) of_parameter += sum;
    total += of_parameter;
  }
  return std::sqrt(total);
}

void PlainTraining::Step(uint32_t step) {
  for (uint32_t p = 0; p < states_.size(); ++p) ReduceGradient(step, p);
  double scale = 1;
  if (case_.engine.clip_norm > 0) {
    last_norm_ = Norm();
    scale = std::min(1.0, double{case_.engine.clip_norm} / (last_norm_ + 1e-6));
  }
  for (uint32_t p = 0; p < states_.size(); ++p) StepParameter(step, scale, p);
}

void PlainTraining::StepParameter(uint32_t step, double gradient_scale,
                                  uint32_t parameter) {
  State& state = states_[parameter];
  const commsched_engine_desc_t& engine = case_.engine;
  const commsched_engine_kernels_t kernels = CpuKernels();
  const float decay = case_.model.parameters[parameter].dims.size() >= 2
                          ? engine.weight_decay
                          : 0.0f;
  commsched_step_control_t control = {.gradient_scale = gradient_scale,
                                      .correction1 = 1,
                                      .correction2 = 1,
                                      .skip = 0};
  if (engine.optimizer == COMMSCHED_SGD) {
    commsched_sgd_args_t args = {};
    args.master = state.value.data();
    args.velocity = engine.momentum > 0 ? state.m.data() : nullptr;
    args.gradient = state.gradient.data();
    args.count = state.value.size();
    args.lr = kLearningRate;
    args.momentum = engine.momentum;
    args.decay = decay;
    args.nesterov = engine.nesterov;
    args.control = &control;
    kernels.sgd(kernels.user, &args);
    return;
  }
  commsched_adamw_args_t args = {};
  args.master = state.value.data();
  args.m = state.m.data();
  args.v = state.v.data();
  args.gradient = state.gradient.data();
  args.count = state.value.size();
  args.lr = kLearningRate;
  args.beta1 = 0.9f;
  args.beta2 = 0.95f;
  args.epsilon = engine.epsilon;
  args.decay = decay;
  const double t = step + 1;
  control.correction1 = 1 - std::pow(double{args.beta1}, t);
  control.correction2 = 1 - std::pow(double{args.beta2}, t);
  args.control = &control;
  kernels.adamw(kernels.user, &args);
}

}  // namespace commsched::engine
