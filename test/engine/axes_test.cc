// Ranks on two axes: what gradients are divided by, and the values that ranks
// with other parts of a model step with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "commsched/checkpoint.h"
#include "commsched/engine.h"
#include "commsched/optimizer.h"
#include "test/engine/create_engine.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

constexpr uint64_t kGridCount = 700;
constexpr float kGridRate = 0.25f;

// Rank r is at r / columns, r % columns.
struct Grid {
  int32_t rows = 1;
  int32_t columns = 1;

  int32_t size() const { return rows * columns; }
};

// Groups of the model of a grid's rank.
constexpr uint32_t kRowGroup = 1;     // The ranks beside it.
constexpr uint32_t kColumnGroup = 2;  // Those above and below it.

struct GridRun {
  Grid grid;
  // The engine's group is the whole grid, which shares the parameters; else it
  // is a column, and the ranks of a row hold other parts of the model.
  bool shares_all = true;
  uint32_t steps = 3;
  float clip_norm = 0;
  float loss_scale = 0;
  bool reads_norm_first = false;
  bool deterministic = true;
  uint32_t replicated_over = 0;  // A group of the model.
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  // Of a rank, with what it creates its engine.
  std::function<void(int32_t rank, commsched_engine_desc_t* desc,
                     commsched_step_plan_options_t* options)>
      change_engine;
  // Of a rank in a step, from 1 on.
  std::function<void(int32_t rank, uint32_t step,
                     commsched_engine_update_args_t* args)>
      change_args;
};

struct GridResult {
  std::vector<std::string> messages;  // By rank; empty: it has ended well.
  std::vector<std::vector<float>> weights;  // By column.
  std::vector<double> norms;                // Of the last step, by rank.
};

// Small integers, so that sums of them are exact.
float GridGradient(int32_t rank, uint32_t step, uint64_t i) {
  const uint64_t seed = static_cast<uint64_t>(rank) * 5 + step * 3 + i;
  return static_cast<float>(seed * seed % 11) - 4;
}

class GridRank {
 public:
  GridRank(const GridRun& run, commsched_world_t* world, int32_t rank)
      : run_(run), rank_(rank) {
    Require(commsched_context_create(world, rank, &context_));
    const Grid& grid = run.grid;
    std::vector<int32_t> row, column, all;
    for (int32_t i = 0; i < grid.size(); ++i) {
      if (i / grid.columns == rank / grid.columns) row.push_back(i);
      if (i % grid.columns == rank % grid.columns) column.push_back(i);
      all.push_back(i);
    }
    AddGroup("row", row, &row_);
    AddGroup("column", column, &column_);
    Require(commsched_group_create(context_, "all", all.data(),
                                   static_cast<uint32_t>(all.size()), &all_));
    uint32_t id = 0;
    Require(commsched_model_add_module(model_.get(), "m", 0, 0, &id));
    const uint64_t dims[] = {kGridCount};
    commsched_parameter_desc_t desc = commsched_parameter_desc_init();
    desc.name = "w";
    desc.dims = dims;
    desc.num_dims = 1;
    desc.replicated_over = run.replicated_over;
    Require(commsched_model_add_parameter(model_.get(), &desc, &id));
  }
  ~GridRank() {
    commsched_engine_destroy(engine_);
    for (commsched_group_t* group : {row_, column_, all_}) {
      commsched_group_destroy(group);
    }
    commsched_context_destroy(context_);
  }
  GridRank(const GridRank&) = delete;
  GridRank& operator=(const GridRank&) = delete;

  std::string Train(double* out_norm) {
    RETURN_MESSAGE_IF_ERROR(Create());
    for (uint32_t step = 1; step <= run_.steps; ++step) {
      if (std::string m = Step(step); !m.empty()) return m;
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(engine_));
    if (!has_norm()) return "";
    return Message(commsched_engine_norm(engine_, out_norm));
  }

  std::string Weights(std::vector<std::vector<float>>* out_weights) {
    const int32_t column = run_.shares_all ? 0 : rank_ % run_.grid.columns;
    uint64_t offset = 0, count = 0;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_master_range(engine_, 0, &offset, &count));
    return Message(commsched_engine_get_master_range(
        engine_, 0, (*out_weights)[static_cast<size_t>(column)].data() + offset,
        count));
  }

 private:
  bool has_norm() const { return run_.clip_norm > 0 || run_.options.norm != 0; }

  void AddGroup(const char* axis, const std::vector<int32_t>& ranks,
                commsched_group_t** out) {
    const auto size = static_cast<uint32_t>(ranks.size());
    uint32_t id = 0;
    Require(commsched_group_create(context_, axis, ranks.data(), size, out));
    Require(commsched_model_add_group(model_.get(), axis,
                                      static_cast<int32_t>(size), &id));
  }

  commsched_status_t Create() {
    commsched_plan_options_t plan = commsched_plan_options_init();
    plan.deterministic = run_.deterministic ? 1 : 0;
    const commsched_optimizer_table_t sgd = commsched_sgd(0, 0);
    commsched_step_plan_options_t options = run_.options;
    options.plan = &plan;
    options.optimizer = &sgd;
    commsched_group_t* const groups[] = {row_, column_};
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = run_.shares_all ? all_ : column_;
    if (!run_.shares_all) desc.norm_group = row_;
    desc.groups = groups;
    desc.num_groups = 2;
    desc.clip_norm = run_.clip_norm;
    desc.loss_scale = run_.loss_scale;
    if (run_.change_engine) run_.change_engine(rank_, &desc, &options);
    return CreateEngine(desc, model_.get(), options, &engine_);
  }

  std::string Step(uint32_t step) {
    const double* scale = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_loss_scale_address(engine_, &scale));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, 0, 0));
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 0, 0));
    void* address = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_gradient_begin(engine_, 0, &address));
    auto* const gradient = static_cast<float*>(address);
    for (uint64_t i = 0; i < kGridCount; ++i) {
      gradient[i] += static_cast<float>(*scale) * GridGradient(rank_, step, i);
    }
    RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, 0, 0));
    if (run_.reads_norm_first) {
      double norm = 0;
      RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(engine_, &norm));
    }
    commsched_engine_update_args_t args = UpdateArgs(kGridRate);
    if (run_.change_args) run_.change_args(rank_, step, &args);
    RETURN_MESSAGE_IF_ERROR(commsched_engine_update(engine_, &args));
    return Message(commsched_engine_step_end(engine_));
  }

  const GridRun& run_;
  const int32_t rank_;
  const ModelHandle model_ = NewModel();
  commsched_context_t* context_ = nullptr;
  commsched_group_t *row_ = nullptr, *column_ = nullptr, *all_ = nullptr;
  commsched_engine_t* engine_ = nullptr;
};

GridResult RunGrid(const GridRun& run) {
  auto desc = commsched_world_desc_init();
  desc.size = run.grid.size();
  const auto size = static_cast<size_t>(desc.size);
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
  GridResult result;
  result.messages.resize(size);
  result.norms.resize(size);
  result.weights.assign(static_cast<size_t>(run.grid.columns),
                        std::vector<float>(kGridCount));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < desc.size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      GridRank each(run, world, rank);
      result.messages[r] = each.Train(&result.norms[r]);
      // The ranks write different elements.
      if (result.messages[r].empty()) {
        result.messages[r] = each.Weights(&result.weights);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  commsched_world_destroy(world);
  return result;
}

// ---- The divisor ------------------------------------------------------------

// What one rank with all gradients has, in plain arrays.
struct PlainGrid {
  std::vector<double> weights;
  double norm = 0;  // Of the last step.
};

// Of the ranks that share the parameters of `column`, or all.
PlainGrid TrainPlainGrid(const GridRun& run, double divisor,
                         std::optional<int32_t> column) {
  PlainGrid plain;
  plain.weights.assign(kGridCount, 0);
  for (uint32_t step = 1; step <= run.steps; ++step) {
    std::vector<double> gradients(kGridCount);
    double squares = 0;
    for (int32_t rank = 0; rank < run.grid.size(); ++rank) {
      if (column.has_value() && rank % run.grid.columns != *column) continue;
      for (uint64_t i = 0; i < kGridCount; ++i) {
        gradients[i] += double{GridGradient(rank, step, i)} / divisor;
      }
    }
    for (const double gradient : gradients) squares += gradient * gradient;
    plain.norm = std::sqrt(squares);
    const double clip = run.clip_norm == 0 || plain.norm <= run.clip_norm
                            ? 1
                            : double{run.clip_norm} / plain.norm;
    for (uint64_t i = 0; i < kGridCount; ++i) {
      plain.weights[i] -= double{kGridRate} * clip * gradients[i];
    }
  }
  return plain;
}

struct DivisorCase {
  Grid grid;
  std::vector<uint32_t> groups;  // Empty: `number`.
  double number = 0;
  double divisor = 0;  // What they come to.
};

std::vector<DivisorCase> DivisorCases() {
  return {
      {{2, 1}, {}, 0, 2},
      {{2, 1}, {}, 1, 1},
      {{2, 1}, {0}, 0, 2},
      {{3, 1}, {}, 8, 8},
      // A sum over the first axis and a mean over the other, and so on.
      {{2, 2}, {kRowGroup}, 0, 2},
      {{2, 2}, {kRowGroup, kColumnGroup}, 0, 4},
      {{2, 2}, {0, kRowGroup}, 0, 8},
      {{1, 3}, {kColumnGroup}, 0, 1},
      {{3, 2}, {kColumnGroup}, 0, 3},
  };
}

// (ZeRO stage, whether the norm is computed, deterministic)
class GradientDivisorTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, bool, bool>> {
 protected:
  static GridRun RunOf(const DivisorCase& c) {
    GridRun run;
    run.grid = c.grid;
    run.options.zero_stage = std::get<0>(GetParam());
    run.options.norm = std::get<1>(GetParam()) ? 1 : 0;
    run.deterministic = std::get<2>(GetParam());
    run.options.gradient_divisor = c.number;
    run.options.divisor_groups = c.groups.data();
    run.options.num_divisor_groups = static_cast<uint32_t>(c.groups.size());
    return run;
  }

  static void ExpectPlain(const GridRun& run, const DivisorCase& c) {
    const GridResult result = RunGrid(run);
    for (const std::string& message : result.messages) ASSERT_EQ(message, "");
    const PlainGrid plain = TrainPlainGrid(run, c.divisor, std::nullopt);
    for (uint64_t i = 0; i < kGridCount; ++i) {
      ASSERT_NEAR(result.weights[0][i], plain.weights[i], 1e-5) << i;
    }
    if (run.options.norm == 0) return;
    for (const double norm : result.norms) {
      EXPECT_NEAR(norm, plain.norm, 1e-5 * plain.norm);
    }
  }
};

TEST_P(GradientDivisorTest, IsWhatTheRanksSumIsDividedBy) {
  for (const DivisorCase& c : DivisorCases()) {
    SCOPED_TRACE(testing::Message() << c.grid.rows << "x" << c.grid.columns
                                    << " by " << c.divisor);
    ExpectPlain(RunOf(c), c);
  }
}

TEST_P(GradientDivisorTest, ClipsByTheNormOfDividedGradientsAtAnyLossScale) {
  const DivisorCase c = {{2, 2}, {kRowGroup}, 0, 2};
  for (const float loss_scale : {0.0f, 64.0f}) {
    GridRun run = RunOf(c);
    run.loss_scale = loss_scale;
    run.clip_norm = 3;
    run.options.norm = 1;
    ASSERT_GT(TrainPlainGrid(run, c.divisor, std::nullopt).norm, 6);
    ExpectPlain(run, c);
  }
}

// With the ranks of a row holding other parts of the model: each has the mean
// over its column, or over both axes.
TEST_P(GradientDivisorTest, GoesOverAxesThatTheEnginesGroupHasNot) {
  for (const auto& [groups, divisor] :
       {std::pair<std::vector<uint32_t>, double>{{}, 2},
        {{0, kRowGroup}, 4},
        {{kRowGroup, kColumnGroup}, 4}}) {
    const DivisorCase c = {{2, 2}, groups, 0, divisor};
    GridRun run = RunOf(c);
    run.shares_all = false;
    const GridResult result = RunGrid(run);
    for (const std::string& message : result.messages) ASSERT_EQ(message, "");
    double squares = 0;
    for (int32_t column = 0; column < 2; ++column) {
      const PlainGrid plain = TrainPlainGrid(run, divisor, column);
      squares += plain.norm * plain.norm;
      for (uint64_t i = 0; i < kGridCount; ++i) {
        ASSERT_NEAR(result.weights[static_cast<size_t>(column)][i],
                    plain.weights[i], 1e-5);
      }
    }
    if (run.options.norm == 0) continue;
    for (const double norm : result.norms) {
      EXPECT_NEAR(norm, std::sqrt(squares), 1e-5 * norm);
    }
  }
}

// A mean that is stated is the mean that is not.
TEST_P(GradientDivisorTest, OfTheEnginesGroupGivesTheBitsOfTheDefault) {
  const DivisorCase of_group = {{3, 1}, {}, 3, 3};
  const DivisorCase by_default = {{3, 1}, {}, 0, 3};
  const GridResult stated = RunGrid(RunOf(of_group));
  const GridResult other = RunGrid(RunOf(by_default));
  ASSERT_EQ(stated.messages, std::vector<std::string>(3));
  if (std::get<2>(GetParam())) {
    EXPECT_EQ(stated.weights, other.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(StagesNormsAndModes, GradientDivisorTest,
                         Combine(Values(0u, 1u, 2u, 3u), Values(false, true),
                                 Values(false, true)));

TEST(GradientDivisorErrorTest, WhatStatesNoDivisorIsNamed) {
  const ModelHandle model = NewModel();
  const auto refusal = [&](double number, std::vector<uint32_t> groups) {
    commsched_step_plan_options_t options = commsched_step_plan_options_init();
    options.gradient_divisor = number;
    options.divisor_groups = groups.data();
    options.num_divisor_groups = static_cast<uint32_t>(groups.size());
    StepPlanHandle plan;
    EXPECT_EQ(TryPlan(model.get(), 2, options, &plan),
              COMMSCHED_INVALID_ARGUMENT);
    return std::string(commsched_last_error());
  };
  uint32_t id = 0;
  ASSERT_EQ(commsched_model_add_group(model.get(), "tp", 2, &id), COMMSCHED_OK);
  EXPECT_THAT(refusal(-1, {}), HasSubstr("gradient_divisor is -1.000000"));
  EXPECT_THAT(refusal(NAN, {}), HasSubstr("it must be finite"));
  EXPECT_THAT(refusal(4, {0, 1}),
              HasSubstr("num_divisor_groups is 2, and gradient_divisor is "
                        "4.000000; one of them states the divisor"));
  EXPECT_THAT(refusal(0, {0, 2}),
              HasSubstr("divisor_groups[1] is 2; the model has groups 0 to 1"));
  EXPECT_THAT(refusal(0, {1, 1}),
              HasSubstr("divisor_groups[1] is 1 for the second time"));
}

// ---- Values of parts --------------------------------------------------------

// (Grid, ZeRO stage, deterministic)
class PartValuesTest
    : public ::testing::TestWithParam<std::tuple<int, uint32_t, bool>> {
 protected:
  static GridRun Run() {
    GridRun run;
    const Grid grids[] = {{1, 2}, {1, 3}, {2, 2}};
    run.grid = grids[std::get<0>(GetParam())];
    run.shares_all = false;
    run.options.zero_stage = std::get<1>(GetParam());
    run.deterministic = std::get<2>(GetParam());
    return run;
  }
  // All ranks of the last column, so that each engine's group agrees.
  static bool Differs(const GridRun& run, int32_t rank) {
    return rank % run.grid.columns == run.grid.columns - 1;
  }
  static GridRun WithRate(uint32_t in_step, float rate) {
    GridRun run = Run();
    run.change_args = [=](int32_t rank, uint32_t step,
                          commsched_engine_update_args_t* args) {
      if (step == in_step && Differs(run, rank)) args->lr = rate;
    };
    return run;
  }
  static void ExpectNamed(const GridRun& run, const std::string& difference,
                          const std::string& consequence) {
    const GridResult result = RunGrid(run);
    const std::string text =
        difference + " on rank " + std::to_string(run.grid.columns - 1);
    for (const std::string& message : result.messages) {
      EXPECT_THAT(message, HasSubstr(text));
      EXPECT_THAT(message, HasSubstr(consequence));
    }
  }
};

TEST_P(PartValuesTest, ThatDifferAreNamedBeforeAWeightIsSteppedWithANorm) {
  GridRun run = WithRate(2, 0.5f);
  run.clip_norm = 100;
  ExpectNamed(run, "lr of step 2 is 0.25 on rank 0 of norm_group and 0.5",
              "No weight was stepped with it");
}

TEST_P(PartValuesTest, ThatDifferAreNamedByTheNextStepWithoutANorm) {
  for (const bool flags : {false, true}) {
    GridRun run = WithRate(2, 0.5f);
    run.options.cancel_all = flags ? 1 : 0;
    ExpectNamed(run, "lr of step 2 is 0.25 on rank 0 of norm_group and 0.5",
                "The weights have been stepped with it");
  }
}

TEST_P(PartValuesTest, ThatDifferInTheLastStepAreFoundByADrain) {
  ExpectNamed(WithRate(3, 0.5f),
              "lr of step 3 is 0.25 on rank 0 of norm_group and 0.5",
              "The weights have been stepped with it");
}

TEST_P(PartValuesTest, OfAStepWhoseNormWasReadAreComparedByTheNext) {
  GridRun run = WithRate(2, 0.5f);
  run.options.norm = 1;
  run.reads_norm_first = true;
  ExpectNamed(run, "lr of step 2 is 0.25 on rank 0 of norm_group and 0.5",
              "The weights have been stepped with it");
}

TEST_P(PartValuesTest, OfOptionSetsAndClippingAreCompared) {
  for (const bool clips : {false, true}) {
    GridRun run = Run();
    run.clip_norm = 100;
    run.options.option_sets = 1;
    std::vector<commsched_option_values_t> sets(
        static_cast<size_t>(run.grid.size()), commsched_option_values_init());
    run.change_args = [&](int32_t rank, uint32_t step,
                          commsched_engine_update_args_t* args) {
      const bool differs = step == 2 && Differs(run, rank);
      commsched_option_values_t& set = sets[static_cast<size_t>(rank)];
      if (differs && !clips) set.decay = 0.5f;
      args->num_sets = 1;
      args->sets = &set;
      args->clip_norm = differs && clips ? 7 : 9;
    };
    ExpectNamed(run,
                clips ? "clip_norm of step 2 is 9 on rank 0 of norm_group and 7"
                      : "decay of option set 0 of step 2 is 0 on rank 0 of "
                        "norm_group and 0.5",
                "No weight was stepped with it");
  }
}

TEST_P(PartValuesTest, ThatAreAlikeMayChangeFromStepToStep) {
  for (const bool clips : {false, true}) {
    GridRun run = Run();
    run.clip_norm = clips ? 100 : 0;
    run.change_args = [](int32_t, uint32_t step,
                         commsched_engine_update_args_t* args) {
      args->lr = 1 / static_cast<float>(step);
    };
    for (const std::string& message : RunGrid(run).messages) {
      EXPECT_EQ(message, "");
    }
  }
}

// What engines are created with decides alike for all parts, too.
TEST_P(PartValuesTest, OfEnginesAreComparedWhenTheseAreCreated) {
  using Desc = commsched_engine_desc_t;
  using Options = commsched_step_plan_options_t;
  const struct {
    const char* text;
    void (*change)(Desc* desc, Options* options);
  } cases[] = {
      {"weight_decay is 0 on rank 0 and 0.5",
       [](Desc* desc, Options*) { desc->weight_decay = 0.5f; }},
      {"clip_norm is 100 on rank 0 and 7",
       [](Desc* desc, Options*) { desc->clip_norm = 7; }},
      {"loss_scale is 4 on rank 0 and 8",
       [](Desc* desc, Options*) { desc->loss_scale = 8; }},
      {"loss_scale_window is 2000 on rank 0 and 3",
       [](Desc* desc, Options*) { desc->loss_scale_window = 3; }},
      {"max_skipped_steps is 50 on rank 0 and 9",
       [](Desc* desc, Options*) { desc->max_skipped_steps = 9; }},
      {"check_finite is 0 on rank 0 and 1",
       [](Desc*, Options* options) { options->check_finite = 1; }},
      {"cancel_all or absent_gradients is off on rank 0 and on",
       [](Desc*, Options* options) { options->cancel_all = 1; }},
      {"option_sets is 0 on rank 0 and 2",
       [](Desc*, Options* options) { options->option_sets = 2; }},
  };
  for (const auto& each : cases) {
    GridRun run = Run();
    run.clip_norm = 100;
    run.loss_scale = 4;
    run.change_engine = [&](int32_t rank, Desc* desc, Options* options) {
      if (Differs(run, rank)) each.change(desc, options);
    };
    ExpectNamed(run, each.text, "engine create, norm_group");
  }
}

// An optimizer's constants are of one part.
TEST_P(PartValuesTest, OfOnePartAloneMayDiffer) {
  GridRun run = Run();
  run.clip_norm = 100;
  const commsched_optimizer_table_t optimizers[] = {
      commsched_adamw(0.9f, 0.95f, 1e-8f), commsched_adamw(0.8f, 0.9f, 1e-6f)};
  run.change_engine = [&](int32_t rank, commsched_engine_desc_t*,
                          commsched_step_plan_options_t* options) {
    options->optimizer = &optimizers[Differs(run, rank) ? 1 : 0];
  };
  for (const std::string& message : RunGrid(run).messages) {
    EXPECT_EQ(message, "");
  }
}

// ---- Parameters of several parts --------------------------------------------

class ReplicationTest : public ::testing::TestWithParam<Grid> {
 protected:
  static GridRun Over(uint32_t group) {
    GridRun run;
    run.grid = GetParam();
    run.shares_all = false;
    run.replicated_over = group;
    run.options.norm = 1;
    return run;
  }
};

// The one rank that counts it may be none of those with whom a rank adds up.
TEST_P(ReplicationTest, OverARankThatIsNotInNormGroupIsRefusedByName) {
  const GridRun run = Over(kColumnGroup);
  const Grid& grid = run.grid;
  const GridResult result = RunGrid(run);
  for (int32_t rank = 0; rank < grid.size(); ++rank) {
    const int32_t other =
        rank < grid.columns ? rank + grid.columns : rank % grid.columns;
    EXPECT_THAT(result.messages[static_cast<size_t>(rank)],
                HasSubstr("parameter 'w' is replicated over group 2 'column', "
                          "whose rank " +
                          std::to_string(other) + " is not in norm_group"));
  }
}

TEST_P(ReplicationTest, WithinNormGroupCountsOnce) {
  const GridResult result = RunGrid(Over(kRowGroup));
  const PlainGrid plain = TrainPlainGrid(Over(kRowGroup), GetParam().rows, 0);
  for (int32_t rank = 0; rank < GetParam().size(); ++rank) {
    EXPECT_EQ(result.messages[static_cast<size_t>(rank)], "");
    EXPECT_NEAR(result.norms[static_cast<size_t>(rank)], plain.norm,
                1e-5 * plain.norm);
  }
}

// Without a norm nothing is counted.
TEST_P(ReplicationTest, MattersToANormAlone) {
  GridRun run = Over(kColumnGroup);
  run.options.norm = 0;
  for (const std::string& message : RunGrid(run).messages) {
    EXPECT_EQ(message, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ReplicationTest,
                         Values(Grid{2, 2}, Grid{3, 2}, Grid{2, 3}));

INSTANTIATE_TEST_SUITE_P(GridsStagesAndModes, PartValuesTest,
                         Combine(Values(0, 1, 2), Values(0u, 1u, 2u, 3u),
                                 Values(false, true)));

}  // namespace
}  // namespace commsched::engine
