#include "test/engine/plain_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/tables/kernels.h"
#include "test/support/tree_sum.h"

namespace commsched::engine {
namespace {

// Rounds to the nearest of a type.
void Round(uint32_t dtype, std::vector<float>& values) {
  const auto to = static_cast<commsched_dtype_t>(dtype);
  if (to == COMMSCHED_F32) return;
  const commsched_engine_kernels_t kernels = CpuKernels();
  std::vector<uint16_t> narrow(values.size());
  kernels.convert(kernels.user, commsched_stream_caller(), narrow.data(), to,
                  values.data(), COMMSCHED_F32, values.size());
  kernels.convert(kernels.user, commsched_stream_caller(), values.data(),
                  COMMSCHED_F32, narrow.data(), to, values.size());
}

// By how much that changes a number, in proportion to it.
double RoundingOf(uint32_t dtype) {
  return dtype == COMMSCHED_F32   ? 0x1p-24
         : dtype == COMMSCHED_F16 ? 0x1p-11
                                  : 0x1p-8;
}

void Add(const std::vector<float>& more, std::vector<float>& sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

}  // namespace

PlainTraining::PlainTraining(const RandomCase& random_case)
    : case_(random_case) {
  loss_scale_.scale = std::max(1.0f, case_.engine.loss_scale);
  for (uint32_t p = 0; p < case_.model.parameters.size(); ++p) {
    const uint64_t count = case_.model.parameters[p].count();
    State& state = states_.emplace_back();
    for (auto* each : {&state.master, &state.m, &state.v, &state.gradient}) {
      each->resize(count);
    }
    for (uint64_t i = 0; i < count; ++i) state.master[i] = InitialValue(p, i);
  }
  Keep();
  for (uint32_t step = 0; step < case_.after_step.size(); ++step) {
    Step(step);
    Keep();
  }
}

void PlainTraining::Keep() {
  Weights& weights = after_.emplace_back();
  std::vector<double>& errors = errors_.emplace_back();
  for (uint32_t p = 0; p < states_.size(); ++p) {
    State& state = states_[p];
    const commsched_dtype_t dtype = case_.DTypeOf(p);
    const double rounding = dtype == COMMSCHED_F32 ? 0 : RoundingOf(dtype);
    state.value = state.master;
    Round(dtype, state.value);
    weights.push_back(state.value);
    // Values are about 1 at most; they may be rounded to two neighbours.
    errors.push_back(state.error == 0 ? 0 : state.error + 4 * rounding);
  }
}

// ---- Gradients --------------------------------------------------------------

void PlainTraining::AddBackwards(GradientPlace place,
                                 std::vector<float>& gradient) const {
  const auto scale = static_cast<float>(loss_scale_.scale);
  const std::vector<float>& value = states_[place.parameter].value;
  const std::vector<uint32_t> order = case_.Order(place.step);
  for (const RandomPass& pass : case_.Backwards(order)) {
    if (!pass.backward) continue;
    place.position = pass.position;
    place.module = order[pass.position];
    const std::vector<uint32_t>& used = case_.model.used[place.module];
    if (std::find(used.begin(), used.end(), place.parameter) == used.end()) {
      continue;
    }
    for (uint32_t part : case_.PartsOf(place.module, place.parameter)) {
      place.part = part;
      const GradientSource source(case_, place);
      if (!source.any()) continue;
      for (uint64_t i = 0; i < gradient.size(); ++i) {
        gradient[i] += scale * source.At(i, value[i]);
      }
      Round(case_.DTypeOf(place.parameter), gradient);
    }
  }
}

// Of several micro-batches, in a sum of the type of gradients, or of its own.
std::vector<float> PlainTraining::GradientOf(GradientPlace place,
                                             uint32_t first,
                                             uint32_t last) const {
  const bool folds =
      last - first > 1 && case_.DTypeOf(place.parameter) != COMMSCHED_F32;
  std::vector<float> sum(states_[place.parameter].value.size());
  for (uint32_t mb = first; mb < last; ++mb) {
    place.micro_batch = mb;
    if (!folds) {
      AddBackwards(place, sum);
      continue;
    }
    std::vector<float> mine(sum.size());
    AddBackwards(place, mine);
    Add(mine, sum);
  }
  Round(case_.options.reduce_dtype, sum);
  return sum;
}

std::vector<float> PlainTraining::MeanGradient(uint32_t step,
                                               uint32_t parameter,
                                               uint32_t first,
                                               uint32_t last) const {
  GradientPlace place = {};
  place.step = step;
  place.parameter = parameter;
  std::vector<float> sum = test::OverTree(
      0, case_.ranks,
      [&](int rank) {
        place.rank = rank;
        return GradientOf(place, first, last);
      },
      [](std::vector<float> left, const std::vector<float>& right) {
        Add(right, left);
        return left;
      });
  const float factor = 1.0f / static_cast<float>(case_.ranks);
  for (float& each : sum) each *= factor;
  Round(case_.options.reduce_dtype, sum);
  return sum;
}

// Whole over all micro-batches, or the sum of what each of them gives.
void PlainTraining::ReduceGradient(uint32_t step, uint32_t parameter) {
  std::vector<float>& gradient = states_[parameter].gradient;
  const uint32_t micro_batches = case_.micro_batches();
  if (case_.options.accumulate_bytes == 0 || micro_batches == 1) {
    gradient = MeanGradient(step, parameter, 0, micro_batches);
    return;
  }
  gradient = MeanGradient(step, parameter, 0, 1);
  for (uint32_t mb = 1; mb < micro_batches; ++mb) {
    Add(MeanGradient(step, parameter, mb, mb + 1), gradient);
  }
}

// On a rank it is absent unless a backward that comes does not say so.
bool PlainTraining::IsAbsent(uint32_t step, uint32_t parameter) const {
  if (case_.options.absent_gradients == 0) return false;
  const std::vector<uint32_t> order = case_.Order(step);
  GradientPlace place = {};
  place.step = step;
  place.parameter = parameter;
  for (place.rank = 0; place.rank < case_.ranks; ++place.rank) {
    if (case_.CancelAt(place.rank, step) != nullptr) continue;
    const uint32_t come = case_.MicroBatchesOf(place.rank, step);
    for (place.micro_batch = 0; place.micro_batch < come; ++place.micro_batch) {
      for (place.position = 0; place.position < order.size();
           ++place.position) {
        place.module = order[place.position];
        const std::vector<uint32_t>& used = case_.model.used[place.module];
        if (std::count(used.begin(), used.end(), parameter) == 0 ||
            Skips(case_, place.rank, step, place.micro_batch, place.module)) {
          continue;
        }
        if (!SaysAbsent(case_, place)) return false;
      }
    }
  }
  return true;
}

// ---- The optimizer ----------------------------------------------------------

double PlainTraining::Norm() const {
  const commsched_engine_kernels_t kernels = CpuKernels();
  double total = 0;
  for (const State& state : states_) {
    std::vector<double> sums(state.gradient.size() / 256 + 1);
    kernels.block_squares(kernels.user, commsched_stream_caller(),
                          state.gradient.data(), COMMSCHED_F32,
                          state.gradient.size(), sums.data());
    // In groups of 256 blocks.
    double of_parameter = 0;
    for (size_t begin = 0; begin < sums.size(); begin += 256) {
      double of_group = 0;
      for (size_t i = begin; i < std::min(begin + 256, sums.size()); ++i) {
        of_group += sums[i];
      }
      of_parameter += of_group;
    }
    total += of_parameter;
  }
  return std::sqrt(total);
}

void PlainTraining::SetControl() {
  commsched_step_control_t& control = loss_scale_.control;
  control.gradient_scale = case_.factor_of_mean();
  control.skip = 0;
  const bool scales = case_.engine.loss_scale > 0;
  if (case_.has_norm()) {
    const double scale = loss_scale_.scale;
    last_norm_ = Norm() * case_.factor_of_mean() / scale;
    double factor = case_.factor_of_mean();
    if (case_.engine.clip_norm > 0) {
      factor *=
          std::min(1.0, double{case_.engine.clip_norm} / (last_norm_ + 1e-6));
    }
    control.gradient_scale = factor / scale;
    control.skip = std::isfinite(last_norm_) ? 0 : 1;
    kernels::AdvanceLossScale(loss_scale_, control.skip != 0,
                              scales ? case_.engine.loss_scale_window : 0);
  }
  if (control.skip == 0) ++steps_;
  control.correction1 = 1 - std::pow(double{0.9f}, steps_);
  control.correction2 = 1 - std::pow(double{0.95f}, steps_);
}

void PlainTraining::Step(uint32_t step) {
  for (uint32_t p = 0; p < states_.size(); ++p) {
    if (!case_.model.parameters[p].frozen) ReduceGradient(step, p);
  }
  // Where a gradient is not finite that is what the step is skipped for.
  if (case_.IsCancelled(step) && (!case_.has_norm() || std::isfinite(Norm()))) {
    loss_scale_.skipped_steps += 1;
    return;
  }
  SetControl();
  for (uint32_t p = 0; p < states_.size(); ++p) {
    if (case_.model.parameters[p].frozen || IsAbsent(step, p)) continue;
    StepParameter(p);
  }
  if (!case_.has_one_result()) AddErrors(step);
}

void PlainTraining::StepParameter(uint32_t parameter) {
  State& state = states_[parameter];
  const commsched_engine_desc_t& engine = case_.engine;
  const commsched_engine_kernels_t kernels = CpuKernels();
  float decay = case_.model.parameters[parameter].dims.size() >= 2
                    ? engine.weight_decay
                    : 0.0f;
  const commsched_optimizer_table_t& optimizer = case_.optimizer;
  float lr = kLearningRate;
  const std::vector<commsched_option_values_t> sets = case_.Sets();
  if (!sets.empty()) {
    const commsched_option_values_t& set =
        sets[case_.model.parameters[parameter].option_set];
    lr *= set.lr_scale;
    decay = set.decay;
  }
  if (case_.has_sgd()) {
    commsched_sgd_args_t args = {};
    args.master = state.master.data();
    args.velocity = optimizer.settings[0].value > 0 ? state.m.data() : nullptr;
    args.gradient = state.gradient.data();
    args.count = state.master.size();
    args.lr = lr;
    args.momentum = optimizer.settings[0].value;
    args.decay = decay;
    args.nesterov = optimizer.settings[1].value != 0 ? 1 : 0;
    args.control = &loss_scale_.control;
    kernels.sgd(kernels.user, commsched_stream_caller(), &args);
    return;
  }
  commsched_adamw_args_t args = {};
  args.master = state.master.data();
  args.m = state.m.data();
  args.v = state.v.data();
  args.gradient = state.gradient.data();
  args.count = state.master.size();
  args.lr = lr;
  args.beta1 = optimizer.beta1;
  args.beta2 = optimizer.beta2;
  args.epsilon = optimizer.settings[0].value;
  args.decay = decay;
  args.control = &loss_scale_.control;
  kernels.adamw(kernels.user, commsched_stream_caller(), &args);
}

// ---- What another order of additions may change -----------------------------

// Each addition and conversion rounds a sum of at most `most`, differently in
// either order. Gradients follow values, which may differ already.
double PlainTraining::GradientError(uint32_t step, uint32_t parameter) const {
  double uses = 0;
  for (uint32_t module : case_.Order(step)) {
    const std::vector<uint32_t>& used = case_.model.used[module];
    if (std::count(used.begin(), used.end(), parameter) == 0) continue;
    uses += static_cast<double>(case_.PartsOf(module, parameter).size());
  }
  const double micro_batches = case_.micro_batches();
  const double most = 0.2 * uses * micro_batches;
  const double roundings =
      micro_batches *
          (uses * RoundingOf(case_.DTypeOf(parameter)) +
           RoundingOf(case_.options.reduce_dtype) + RoundingOf(COMMSCHED_F32)) +
      case_.ranks * RoundingOf(COMMSCHED_F32);
  return std::max(1.0, case_.factor_of_mean()) *
         (2 * roundings * most +
          0.05 * uses * micro_batches * errors_.back()[parameter]);
}

void PlainTraining::AddErrors(uint32_t step) {
  double squares = 0;
  for (uint32_t p = 0; p < states_.size(); ++p) {
    if (case_.model.parameters[p].frozen) continue;
    squares += std::pow(GradientError(step, p), 2) *
               static_cast<double>(states_[p].value.size());
  }
  norm_error_ = last_norm_ > 0 ? std::sqrt(squares) / last_norm_ : 0;
  for (uint32_t p = 0; p < states_.size(); ++p) {
    if (case_.model.parameters[p].frozen) continue;
    double gradient = GradientError(step, p);
    // Gradients are 1 at most; clipping divides by the norm.
    if (case_.engine.clip_norm > 0) gradient += norm_error_;
    // Moments follow gradients, and the one is divided by the other.
    const double per_gradient =
        case_.has_sgd() ? step + 1 : 3 / case_.optimizer.settings[0].value;
    states_[p].error += double{kLearningRate} * per_gradient * gradient +
                        4 * RoundingOf(COMMSCHED_F32);
  }
}

// ---- Comparing --------------------------------------------------------------

std::string PlainTraining::CompareValues(size_t step, uint32_t parameter,
                                         const float* values) const {
  const std::vector<float>& expected = after_[step][parameter];
  const double allowed = errors_[step][parameter];
  if (std::memcmp(values, expected.data(), expected.size() * sizeof(float)) ==
      0) {
    return "";
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(values[i] - expected[i]) <= allowed) continue;
    return "after " + std::to_string(step) +
           " steps: " + case_.model.parameters[parameter].name + "[" +
           std::to_string(i) + "] is " + std::to_string(values[i]) +
           "; a plain loop has " + std::to_string(expected[i]);
  }
  return "";
}

std::string PlainTraining::CompareNorm(double norm) const {
  if (!std::isfinite(norm) && !std::isfinite(last_norm_)) return "";
  if (std::abs(norm - last_norm_) <= norm_error_ * last_norm_) return "";
  return "the norm is " + std::to_string(norm) + "; a plain loop has " +
         std::to_string(last_norm_);
}

std::string PlainTraining::CompareLossScale(
    const commsched_engine_loss_scale_info_t& info) const {
  if (info.scale == loss_scale_.scale &&
      static_cast<double>(info.good_steps) == loss_scale_.good_steps &&
      static_cast<double>(info.skipped_steps) == loss_scale_.skipped_steps) {
    return "";
  }
  return "the loss scale is " + std::to_string(info.scale) + " after " +
         std::to_string(info.skipped_steps) +
         " skipped steps; a plain loop has " +
         std::to_string(loss_scale_.scale) + " after " +
         std::to_string(loss_scale_.skipped_steps);
}

}  // namespace commsched::engine
