#include "test/engine/plain_toy.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <string>

#include "test/support/tree_sum.h"

namespace commsched::engine {

namespace {

// Training state of one parameter.
struct PlainParameter {
  std::vector<float> value, m, v, gradient;  // m: the velocity of SGD.
};

float Rounded(float value, uint32_t dtype) {
  const auto to = static_cast<commsched_dtype_t>(dtype);
  if (to == COMMSCHED_F32) return value;
  const commsched_engine_kernels_t cpu = commsched_engine_cpu_kernels();
  uint16_t narrow = 0;
  cpu.convert(nullptr, commsched_stream_caller(), &narrow, to, &value,
              COMMSCHED_F32, 1);
  cpu.convert(nullptr, commsched_stream_caller(), &value, COMMSCHED_F32,
              &narrow, to, 1);
  return value;
}

// One element of the gradients.
struct Element {
  uint32_t parameter;
  uint64_t index;
  float value;  // What the model reads.
};

// What the backwards of one micro-batch add to `sum`.
float AddBackwards(const ToyRun& run, const Element& element, ToyPlace at,
                   float sum) {
  const std::vector<uint32_t> order = run.Order(at.step);
  for (uint32_t module : std::views::reverse(order)) {
    at.module = module;
    const auto& used = ToyModules()[at.module].used;
    if (run.Skips({at.rank, at.step, at.micro_batch, at.module})) continue;
    if (std::find(used.begin(), used.end(), element.parameter) == used.end()) {
      continue;
    }
    sum = Rounded(sum + ToyGradient(at, element.index, element.value),
                  run.options.parameter_dtype);
  }
  return sum;
}

// The mean over the ranks, summed in the order of the tree.
template <typename OfRank>
float PlainMean(const ToyRun& run, OfRank&& of_rank) {
  const uint32_t dtype = run.options.reduce_dtype;
  const float sum = test::OverTree(
      0, run.ranks, [&](int rank) { return Rounded(of_rank(rank), dtype); },
      [](float a, float b) { return a + b; });
  return Rounded(sum * (1.0f / static_cast<float>(run.ranks)), dtype);
}

// What a rank accumulates over micro-batches.
float PlainWhole(const ToyRun& run, const Element& element, ToyPlace at) {
  const bool folds =
      run.options.parameter_dtype != COMMSCHED_F32 && run.micro_batches() > 1;
  float mine = 0;
  for (at.micro_batch = 0; at.micro_batch < run.micro_batches();
       ++at.micro_batch) {
    mine = folds ? mine + AddBackwards(run, element, at, 0)
                 : AddBackwards(run, element, at, mine);
  }
  return mine;
}

// With buckets all of which accumulate whole, or none (accumulate_bytes 1).
float PlainGradient(const ToyRun& run, const Element& element, ToyPlace at) {
  if (run.micro_batches() == 1 || run.options.accumulate_bytes != 1) {
    return PlainMean(run, [&](int32_t rank) {
      at.rank = rank;
      return PlainWhole(run, element, at);
    });
  }
  float sum = 0;
  for (at.micro_batch = 0; at.micro_batch < run.micro_batches();
       ++at.micro_batch) {
    const float mean = PlainMean(run, [&](int32_t rank) {
      at.rank = rank;
      return AddBackwards(run, element, at, 0);
    });
    sum += mean;
  }
  return sum;
}

void PlainGradients(const ToyRun& run, uint32_t step,
                    std::vector<PlainParameter>& parameters) {
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    PlainParameter& plain = parameters[p];
    if (p == run.unused_parameter) continue;
    for (uint64_t i = 0; i < plain.value.size(); ++i) {
      const Element element = {
          p, i, Rounded(plain.value[i], run.options.parameter_dtype)};
      plain.gradient[i] = PlainGradient(run, element, {0, step, 0, 0, p});
    }
  }
}

double PlainNorm(const std::vector<PlainParameter>& parameters) {
  double squares = 0;
  for (const PlainParameter& plain : parameters) {
    for (float g : plain.gradient) squares += double{g} * g;
  }
  return std::sqrt(squares);
}

void PlainAdamW(const ToyRun& run, uint32_t step, double norm, uint32_t p,
                PlainParameter& plain) {
  const double factor = run.engine.clip_norm > 0
                            ? std::min(1.0, run.engine.clip_norm / norm)
                            : 1.0;
  const double decay =
      ToyParameters()[p].dims.size() >= 2 ? run.engine.weight_decay : 0.0;
  for (size_t i = 0; i < plain.value.size(); ++i) {
    const double g = plain.gradient[i] * factor;
    plain.m[i] = static_cast<float>(0.9 * plain.m[i] + 0.1 * g);
    plain.v[i] = static_cast<float>(0.95 * plain.v[i] + 0.05 * g * g);
    const double m = plain.m[i] / (1 - std::pow(0.9, step + 1));
    const double v = plain.v[i] / (1 - std::pow(0.95, step + 1));
    plain.value[i] =
        static_cast<float>(plain.value[i] * (1 - kToyLearningRate * decay) -
                           kToyLearningRate * m / (std::sqrt(v) + 1e-8));
  }
}

void PlainSgd(const ToyRun& run, uint32_t step, double norm, uint32_t p,
              PlainParameter& plain) {
  const double factor = run.engine.clip_norm > 0
                            ? std::min(1.0, run.engine.clip_norm / norm)
                            : 1.0;
  const double decay =
      ToyParameters()[p].dims.size() >= 2 ? run.engine.weight_decay : 0.0;
  const double momentum = double{run.optimizer.settings[0].value};
  for (size_t i = 0; i < plain.value.size(); ++i) {
    const double g = plain.gradient[i] * factor + decay * plain.value[i];
    const double velocity = step == 0 ? g : momentum * plain.m[i] + g;
    plain.m[i] = static_cast<float>(velocity);
    const double direction = run.optimizer.settings[1].value != 0
                                 ? g + momentum * velocity
                                 : velocity;
    plain.value[i] =
        static_cast<float>(plain.value[i] - kToyLearningRate * direction);
  }
}

}  // namespace

std::vector<float> ReferenceWeights(const ToyRun& run) {
  std::vector<PlainParameter> parameters;
  for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
    const uint64_t count = ToyParameters()[p].count();
    PlainParameter plain = {
        std::vector<float>(count), std::vector<float>(count),
        std::vector<float>(count), std::vector<float>(count)};
    for (uint64_t i = 0; i < count; ++i) plain.value[i] = ToyInitialValue(p, i);
    parameters.push_back(std::move(plain));
  }
  for (uint32_t step = 0; step < run.steps; ++step) {
    PlainGradients(run, step, parameters);
    const double norm = PlainNorm(parameters);
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      const auto plain_step = run.has_sgd() ? PlainSgd : PlainAdamW;
      plain_step(run, step, norm, p, parameters[p]);
    }
  }
  std::vector<float> weights;
  for (const PlainParameter& plain : parameters) {
    for (float value : plain.value) {
      weights.push_back(Rounded(value, run.options.parameter_dtype));
    }
  }
  return weights;
}

}  // namespace commsched::engine
