#include "test/trainer/rank_model.h"

#include <algorithm>
#include <utility>

#include "examples/trainer/random.h"
#include "gtest/gtest.h"

namespace commsched::trainer {

RankModel::RankModel(const GptConfig& config, int64_t batch, int64_t seq) {
  auto gpt = Gpt::Create(config, batch, seq);
  if (!gpt.ok()) {
    ADD_FAILURE() << gpt.status();
    std::abort();
  }
  gpt_ = *std::move(gpt);
  for (const ParameterSpec& spec : architecture().parameters) {
    parameters.emplace_back(spec.count);
    gradients.emplace_back(spec.count);
    parameter_view_.push_back(parameters.back().data());
    gradient_view_.push_back(gradients.back().data());
  }
}

void RankModel::FillParameters(uint64_t seed) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    ParameterSpec spec = architecture().parameters[i];
    spec.init.deviation = spec.shape.size() == 2 ? 0.05 : 0.1;
    InitializeRange(spec, seed, 0, spec.count, parameters[i].data());
  }
}

float RankModel::Forward() {
  for (int m = 0; m < gpt_->num_modules(); ++m) {
    gpt_->Forward(m, parameter_view_);
  }
  return gpt_->loss();
}

void RankModel::Backward() {
  for (int m = gpt_->num_modules(); m-- > 0;) {
    gpt_->Backward(m, parameter_view_, gradient_view_);
  }
}

void RankModel::ClearGradients() {
  for (auto& gradient : gradients) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
  }
}

TokenBatch RandomTokens(int64_t vocab, int64_t rows, int64_t seq,
                        uint64_t seed) {
  TokenBatch batch;
  const uint64_t stream = StreamOf("tokens");
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t <= seq; ++t) {
      const auto token = static_cast<uint8_t>(
          RandomBelow(vocab, seed, stream, row * (seq + 1) + t));
      if (t < seq) batch.inputs.push_back(token);
      if (t > 0) batch.targets.push_back(token);
    }
  }
  return batch;
}

}  // namespace commsched::trainer
