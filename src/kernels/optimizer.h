// What an optimizer's step does to one element, and what decides about a step.
#ifndef COMMSCHED_SRC_KERNELS_OPTIMIZER_H_
#define COMMSCHED_SRC_KERNELS_OPTIMIZER_H_

#include <cmath>
#include <cstdint>

#include "commsched/engine_kernels.h"
#include "kernels/element.h"

namespace commsched::kernels {

// Added to the norm before dividing, as PyTorch's clip_grad_norm_ does.
inline constexpr double kClipEpsilon = 1e-6;

inline constexpr double kMinLossScale = 1;
inline constexpr double kMaxLossScale = 0x1p24;

// AdamW's constants of a parameter. Decoupled weight decay, then the step, as
// in PyTorch's AdamW. Correctly rounded operations only, and none contracted,
// so that a vector lane, a scalar remainder and a device give the same bits.
struct AdamwStep {
  COMMSCHED_ELEMENT explicit AdamwStep(const commsched_adamw_args_t& a)
      : scale(static_cast<float>(a.control->gradient_scale)),
        correction1(static_cast<float>(a.control->correction1)),
        correction2(static_cast<float>(a.control->correction2)),
        lr(a.lr),
        beta1(a.beta1),
        beta2(a.beta2),
        epsilon(a.epsilon),
        keep(1.0f - a.lr * a.decay),
        other1(1.0f - a.beta1),
        other2(1.0f - a.beta2) {}

  COMMSCHED_ELEMENT void Apply(float gradient, float& m, float& v,
                               float& master) const {
    const float g = gradient * scale;
    m = beta1 * m + other1 * g;
    v = beta2 * v + other2 * (g * g);
    const float direction =
        (m / correction1) / (std::sqrt(v / correction2) + epsilon);
    master = keep * master - lr * direction;
  }

  float scale, correction1, correction2;
  float lr, beta1, beta2, epsilon, keep, other1, other2;
};

// The gradient that SGD steps with, before momentum.
COMMSCHED_ELEMENT float SgdGradient(float gradient, float scale, float decay,
                                    float master) {
  return gradient * scale + decay * master;
}

// Eight partial sums, added pairwise: a fixed order that vectorises. `load`
// gives a value by index.
template <typename Load>
COMMSCHED_ELEMENT double SquaresOfBlock(uint64_t count, const Load& load) {
  double partial[8] = {};
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    COMMSCHED_UNROLL
    for (uint64_t j = 0; j < 8; ++j) {
      const double x = load(i + j);
      partial[j] += x * x;
    }
  }
  COMMSCHED_UNROLL
  for (uint64_t j = 0; j < 7; ++j) {
    if (i + j >= count) continue;
    const double x = load(i + j);
    partial[j] += x * x;
  }
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
         ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

// How many threads of a device share a block.
inline constexpr uint32_t kLanesOfBlock = 8;

// The same by as many threads: this is partial[lane], and lanes whose numbers
// follow each other read elements that do.
template <typename Load>
COMMSCHED_ELEMENT double SquaresOfLane(uint64_t count, uint32_t lane,
                                       const Load& load) {
  double partial = 0;
  COMMSCHED_UNROLL_SOME
  for (uint64_t i = lane; i < count; i += kLanesOfBlock) {
    const double x = load(i);
    partial += x * x;
  }
  return partial;
}

COMMSCHED_ELEMENT double SumOfRuns(const commsched_sum_runs_args_t& a,
                                   uint64_t index) {
  double sum = 0;
  for (uint64_t r = a.first_run[index]; r < a.first_run[index + 1]; ++r) {
    const double* const values = a.values + a.runs[r].begin;
    for (uint64_t i = 0; i < a.runs[r].count; ++i) sum += values[i];
  }
  return sum;
}

// Takes a step's verdict: an overflow halves the scale, `window` good steps in
// a row double it, within the limits. `window` 0: there is no scale, and steps
// are only counted.
COMMSCHED_ELEMENT void AdvanceLossScale(commsched_step_state_t& state,
                                        bool overflowed, double window) {
  if (overflowed) {
    const double half = state.scale / 2;
    state.scale = half < kMinLossScale ? kMinLossScale : half;
    state.good_steps = 0;
    state.skipped_steps += 1;
    state.skipped_in_row += 1;
    return;
  }
  state.skipped_in_row = 0;
  if (window == 0) return;
  state.good_steps += 1;
  if (state.good_steps < window) return;
  const double twice = state.scale * 2;
  state.scale = twice > kMaxLossScale ? kMaxLossScale : twice;
  state.good_steps = 0;
}

// base to the power of a number that has no fraction, by multiplications: what
// std::pow gives differs between a processor's library and a device's.
COMMSCHED_ELEMENT double PowerOf(double base, double exponent) {
  double power = 1;
  for (auto left = static_cast<uint64_t>(exponent); left != 0; left /= 2) {
    if (left % 2 == 1) power *= base;
    base *= base;
  }
  return power;
}

// A reduced gradient that is not finite makes the norm so, on every rank, and
// all skip the step. So they do where a rank has cancelled it, which makes the
// sum negative; that says nothing of gradients, nor of the loss scale.
COMMSCHED_ELEMENT void Decide(const commsched_decide_args_t& a) {
  commsched_step_state_t& state = *a.state;
  const double of_mean = a.factor == 0 ? 1 : a.factor;
  if (a.sums != nullptr) {
    double total = 0;
    for (uint64_t i = 0; i < a.count; ++i) total += a.sums[i];
    if (total < 0) {
      state.control.skip = 1;
      state.skipped_steps += 1;
      return;
    }
    const double scaled_norm = std::sqrt(total);
    const bool finite = scaled_norm - scaled_norm == 0;
    state.norm = scaled_norm * of_mean / state.scale;
    double factor = of_mean;
    if (a.clip_norm > 0 && finite) {
      const double clip = a.clip_norm / (state.norm + kClipEpsilon);
      if (clip < 1) factor *= clip;
    }
    state.control.gradient_scale = factor / state.scale;
    state.control.skip = finite ? 0 : 1;
    if (state.skipped_in_row >= a.max_skipped_in_row) {
      state.control.skip = 1;
      return;
    }
    AdvanceLossScale(state, !finite, a.window);
  }
  const double t = a.step - state.skipped_steps;
  state.control.correction1 = 1 - PowerOf(a.beta1, t);
  state.control.correction2 = 1 - PowerOf(a.beta2, t);
}

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_OPTIMIZER_H_
