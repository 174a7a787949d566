#include "test/trainer/training_ranks.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>

#include "examples/trainer/c_api.h"
#include "examples/trainer/random.h"
#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

using Weights = std::vector<std::vector<float>>;

absl::Status SetWeights(commsched_engine_t* engine, const Weights& weights) {
  for (uint32_t p = 0; p < weights.size(); ++p) {
    TRAINER_CALL(commsched_engine_set_parameter(engine, p, weights[p].data(),
                                                weights[p].size()));
  }
  return absl::OkStatus();
}

// All ranks call it; rank 0 gets them.
absl::Status GatherWeights(const Rank& rank, Weights* weights) {
  const std::vector<ParameterSpec>& parameters =
      rank.model().architecture().parameters;
  weights->resize(parameters.size());
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    std::vector<float>& values = (*weights)[p];
    values.resize(static_cast<size_t>(parameters[p].count));
    TRAINER_CALL(commsched_engine_gather_parameter(
        rank.engine(), p, /*root=*/0, values.data(), values.size()));
  }
  return absl::OkStatus();
}

absl::Status StepRank(Rank& rank, const Weights* weights, double* out_loss,
                      double* out_val_loss, Weights* out_weights) {
  TRAINER_RETURN_IF_ERROR(rank.Build());
  if (weights != nullptr) {
    TRAINER_RETURN_IF_ERROR(SetWeights(rank.engine(), *weights));
  }
  TRAINER_ASSIGN_OR_RETURN(*out_val_loss, rank.Evaluate());
  TRAINER_ASSIGN_OR_RETURN(*out_loss, rank.Step(0));
  return GatherWeights(rank, out_weights);
}

}  // namespace

Dataset NoiseDataset() {
  std::vector<uint8_t> text(20000);
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<uint8_t>(RandomBelow(256, 1, 2, i));
  }
  return Dataset(std::move(text));
}

double StepError(const ParameterSpec& spec, const std::vector<float>& actual,
                 const std::vector<float>& expected) {
  std::vector<float> initial(static_cast<size_t>(spec.count));
  InitializeRange(spec, 1, 0, spec.count, initial.data());
  double error = 0;
  double length = 0;
  for (size_t i = 0; i < initial.size(); ++i) {
    error += std::pow(actual[i] - expected[i], 2);
    length += std::pow(expected[i] - initial[i], 2);
  }
  return length > 0 ? std::sqrt(error / length)
                    : std::numeric_limits<double>::infinity();
}

TrainingRanks::TrainingRanks(const Options& options)
    : options_(options),
      dataset_(NoiseDataset()),
      sampler_(dataset_, options.seq, 1) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = static_cast<int32_t>(options.ranks);
  commsched_world_t* world = nullptr;
  EXPECT_EQ(commsched_world_create_inproc(&desc, &world), COMMSCHED_OK);
  world_.reset(world);
  for (int64_t i = 0; i < options.ranks; ++i) {
    auto rank = Rank::Create(options_, sampler_, world_.get(), i);
    EXPECT_TRUE(rank.ok()) << rank.status();
    ranks_.push_back(*std::move(rank));
  }
}

RanksOutcome TrainingRanks::Step(const Weights* weights) {
  const size_t count = ranks_.size();
  std::vector<double> losses(count);
  std::vector<double> val_losses(count);
  std::vector<Weights> after(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status =
          StepRank(*ranks_[i], weights, &losses[i], &val_losses[i], &after[i]);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) ranks_[i]->Abort(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  RanksOutcome outcome;
  for (size_t i = 0; i < count; ++i) {
    outcome.loss += losses[i] / static_cast<double>(count);
    outcome.val_loss += val_losses[i] / static_cast<double>(count);
  }
  outcome.weights = std::move(after[0]);
  return outcome;
}

}  // namespace commsched::trainer
