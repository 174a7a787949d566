// Ranks that registered different models, or hold different values, are told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "commsched/checkpoint.h"
#include "commsched/engine.h"
#include "engine/run/session_watch.h"
#include "test/engine/create_engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/test_pools.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"
#include "test/support/rank_group.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Registered {
  std::string name;
  std::vector<uint64_t> dims;

  uint64_t count() const {
    uint64_t count = 1;
    for (uint64_t dim : dims) count *= dim;
    return count;
  }
};

// What one rank registers: a module per parameter, unless they share one.
struct RankModel {
  commsched_engine_desc_t desc = commsched_engine_desc_init();
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  std::vector<Registered> parameters = {
      {"a", {64, 8}}, {"b", {64, 8}}, {"c", {40}}};
  std::vector<std::string> modules = {"first", "second", "third"};
  uint32_t also_used_by = 0;  // The module that uses parameter 0, too; 0: none.
  uint32_t recomputed = ~0u;  // The module whose forward runs again.

  RankModel() { desc.launch_timeout_ns = int64_t{60} * 1'000'000'000; }
};

// One rank, as a program of its own has it.
class Rank {
 public:
  Rank(commsched_world_t* world, int32_t rank) {
    Require(commsched_context_create(world, rank, &context_));
    std::vector<int32_t> ranks;
    for (int32_t i = 0; i < commsched_world_size(world); ++i) {
      ranks.push_back(i);
    }
    JoinGroup("dp", ranks);
  }
  ~Rank() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void JoinGroup(const char* axis, const std::vector<int32_t>& ranks) {
    commsched_group_destroy(group_);
    Require(commsched_group_create(context_, axis, ranks.data(),
                                   static_cast<uint32_t>(ranks.size()),
                                   &group_));
  }

  std::string Build(const RankModel& model) {
    Register(model);
    return Message(
        CreateEngine(model_.desc, handle_.get(), model_.options, &engine_));
  }
  // The same model, with the description at its defaults.
  std::string BuildAgain() {
    model_.desc.clip_norm = 0;
    return Message(
        CreateEngine(model_.desc, handle_.get(), model_.options, &engine_));
  }
  void Register(const RankModel& model) {
    model_ = model;
    model_.desc.context = context_;
    model_.desc.group = group_;
    uint32_t id = 0;
    for (const std::string& module : model_.modules) {
      Require(
          commsched_model_add_module(handle_.get(), module.c_str(), 0, 0, &id));
    }
    for (size_t p = 0; p < model_.parameters.size(); ++p) {
      const Registered& parameter = model_.parameters[p];
      const size_t module = std::min(p, model_.modules.size() - 1);
      Require(AddParameter(handle_.get(), static_cast<uint32_t>(module),
                           parameter.name.c_str(), parameter.dims.data(),
                           static_cast<uint32_t>(parameter.dims.size()), &id));
    }
    if (model_.also_used_by != 0) {
      Require(
          commsched_model_use_parameter(handle_.get(), model_.also_used_by, 0));
    }
    if (model_.recomputed != ~0u) {
      Require(commsched_model_recompute(handle_.get(), model_.recomputed,
                                        model_.recomputed));
    }
  }
  std::string Set(uint32_t parameter, float value) {
    const std::vector<float> values(model_.parameters[parameter].count(),
                                    value);
    return Message(commsched_engine_set_parameter(
        engine_, parameter, values.data(), values.size()));
  }
  // Gradients of zeros.
  std::string Step() {
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    const auto modules = static_cast<uint32_t>(model_.modules.size());
    for (uint32_t m = 0; m < modules; ++m) {
      RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, m, 0));
      RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, m, 0));
    }
    for (uint32_t m = modules; m-- > 0;) {
      RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, m, 0));
      RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, m, 0));
    }
    RETURN_MESSAGE_IF_ERROR(UpdateWith(engine_, 0.1f));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(engine_));
    return Message(commsched_engine_drain(engine_));
  }

  commsched_context_t* context() { return context_; }
  commsched_engine_t* engine() { return engine_; }
  // As a program may, once the engine is there.
  void DropContextAndGroup() {
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
    group_ = nullptr;
    context_ = nullptr;
  }

 private:
  RankModel model_;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  const ModelHandle handle_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
};

// Runs `body` on every rank of a world; the messages, by rank.
std::vector<std::string> OnWorld(
    int32_t size, const std::function<std::string(Rank&, int32_t)>& body) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = size;
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
  std::vector<std::string> messages(static_cast<size_t>(size));
  RunRanks(size, [&](int rank) {
    Rank mine(world, rank);
    messages[static_cast<size_t>(rank)] = body(mine, rank);
    return absl::OkStatus();
  });
  commsched_world_destroy(world);
  return messages;
}

// Two ranks build; `change` makes that of rank 1 another.
std::vector<std::string> BuildTwo(const std::function<void(RankModel*)>& change,
                                  const RankModel& model = RankModel()) {
  return OnWorld(2, [&](Rank& rank, int32_t me) {
    RankModel mine = model;
    if (me == 1) change(&mine);
    return rank.Build(mine);
  });
}

// ---- Registration -----------------------------------------------------------

TEST(EngineAgreementTest, EqualRegistrationsBuild) {
  EXPECT_THAT(BuildTwo([](RankModel*) {}), Each(IsEmpty()));
}

TEST(EngineAgreementTest, ParametersInAnotherOrderAreRefused) {
  EXPECT_THAT(BuildTwo([](RankModel* model) {
                std::swap(model->parameters[0], model->parameters[1]);
              }),
              Each(HasSubstr("parameter 0 is 'a' [64, 8] on rank 0 and 'b' "
                             "[64, 8] on rank 1")));
}

TEST(EngineAgreementTest, AnotherNameOfAParameterIsRefused) {
  EXPECT_THAT(
      BuildTwo([](RankModel* model) { model->parameters[1].name = "d"; }),
      Each(HasSubstr("parameter 1 is 'b' [64, 8] on rank 0 and 'd' [64, 8] on "
                     "rank 1")));
}

TEST(EngineAgreementTest, AnotherShapeOfOneSizeIsRefused) {
  EXPECT_THAT(
      BuildTwo([](RankModel* model) {
        model->parameters[1].dims = {8, 64};
      }),
      Each(HasSubstr("parameter 1 is 'b' [64, 8] on rank 0 and 'b' [8, 64] on "
                     "rank 1")));
}

TEST(EngineAgreementTest, AnotherSizeThatPadsAlikeIsRefused) {
  EXPECT_THAT(
      BuildTwo([](RankModel* model) { model->parameters[2].dims = {41}; }),
      Each(HasSubstr("parameter 2 is 'c' [40] on rank 0 and 'c' [41] "
                     "on rank 1")));
}

TEST(EngineAgreementTest, AParameterThatOneRankLacksIsRefused) {
  EXPECT_THAT(BuildTwo([](RankModel* model) { model->parameters.pop_back(); }),
              Each(HasSubstr("parameter 2 is 'c' [40] on rank 0 and does not "
                             "exist on rank 1")));
}

TEST(EngineAgreementTest, AnotherModuleIsRefused) {
  EXPECT_THAT(BuildTwo([](RankModel* model) { model->modules[1] = "other"; }),
              Each(AllOf(HasSubstr("module 1 is 'second'"),
                         HasSubstr("on rank 0 and 'other'"))));
  EXPECT_THAT(BuildTwo([](RankModel* model) { model->also_used_by = 2; }),
              Each(AllOf(HasSubstr("module 2 is 'third' with parameters 2 on "
                                   "rank 0 and"),
                         HasSubstr("with parameters 2, 0 on rank 1"))));
  EXPECT_THAT(BuildTwo([](RankModel* model) { model->recomputed = 1; }),
              Each(HasSubstr("recomputed")));
}

// ---- Hyper-parameters -------------------------------------------------------

struct Setting {
  const char* name;
  std::function<void(RankModel*)> change;
  const char* difference;
};

TEST(EngineAgreementTest, OtherHyperParametersAreRefusedByName) {
  const commsched_optimizer_table_t other_beta1 =
      commsched_adamw(0.8f, 0.95f, 1e-8f);
  const commsched_optimizer_table_t other_beta2 =
      commsched_adamw(0.9f, 0.99f, 1e-8f);
  const commsched_optimizer_table_t other_epsilon =
      commsched_adamw(0.9f, 0.95f, 1e-6f);
  const commsched_optimizer_table_t sgd = commsched_sgd(0, 0);
  const Setting settings[] = {
      {"weight_decay", [](RankModel* m) { m->desc.weight_decay = 0; },
       "weight_decay is 0.1 on rank 0 and 0 on rank 1"},
      {"beta1", [&](RankModel* m) { m->options.optimizer = &other_beta1; },
       "beta1 is 0.9 on rank 0 and 0.8 on rank 1"},
      {"beta2", [&](RankModel* m) { m->options.optimizer = &other_beta2; },
       "beta2 is 0.95 on rank 0 and 0.99 on rank 1"},
      {"epsilon", [&](RankModel* m) { m->options.optimizer = &other_epsilon; },
       "epsilon is 1e-08 on rank 0 and 1e-06 on rank 1"},
      {"clip_norm", [](RankModel* m) { m->desc.clip_norm = 2; },
       "clip_norm is 1 on rank 0 and 2 on rank 1"},
      {"optimizer", [&](RankModel* m) { m->options.optimizer = &sgd; },
       "optimizer is adamw on rank 0 and sgd on rank 1"},
      {"loss_scale", [](RankModel* m) { m->desc.loss_scale = 8; },
       "loss_scale is 4 on rank 0 and 8 on rank 1"},
      {"loss_scale_window", [](RankModel* m) { m->desc.loss_scale_window = 3; },
       "loss_scale_window is 2000 on rank 0 and 3 on rank 1"},
      {"zero_stage", [](RankModel* m) { m->options.zero_stage = 1; },
       "zero_stage is 0 on rank 0 and 1 on rank 1"},
      {"micro_batches", [](RankModel* m) { m->options.micro_batches = 2; },
       "micro_batches is 1 on rank 0 and 2 on rank 1"},
      {"gradient_divisor",
       [](RankModel* m) { m->options.gradient_divisor = 4; },
       "gradient_divisor is 2 on rank 0 and 4 on rank 1"},
      {"parameter_dtype",
       [](RankModel* m) { m->options.parameter_dtype = COMMSCHED_BF16; },
       "parameter_dtype is F32 on rank 0 and BF16 on rank 1"},
      {"reduce_dtype",
       [](RankModel* m) { m->options.reduce_dtype = COMMSCHED_F16; },
       "reduce_dtype is F32 on rank 0 and F16 on rank 1"},
      {"record_order", [](RankModel* m) { m->desc.record_order = 1; },
       "record_order is off on rank 0 and on on rank 1"},
  };
  RankModel model;
  model.desc.weight_decay = 0.1f;
  model.desc.clip_norm = 1;
  model.desc.loss_scale = 4;
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.name);
    EXPECT_THAT(BuildTwo(setting.change, model),
                Each(HasSubstr(setting.difference)));
  }
}

TEST(EngineAgreementTest, OtherMomentumAndNesterovAreRefusedByName) {
  const commsched_optimizer_table_t sgd = commsched_sgd(0.9f, 0);
  const commsched_optimizer_table_t other_momentum = commsched_sgd(0.8f, 0);
  const commsched_optimizer_table_t nesterov = commsched_sgd(0.9f, 1);
  RankModel model;
  model.options.optimizer = &sgd;
  EXPECT_THAT(
      BuildTwo(
          [&](RankModel* mine) { mine->options.optimizer = &other_momentum; },
          model),
      Each(HasSubstr("momentum is 0.9 on rank 0 and 0.8 on rank 1")));
  EXPECT_THAT(
      BuildTwo([&](RankModel* mine) { mine->options.optimizer = &nesterov; },
               model),
      Each(HasSubstr("nesterov is 0 on rank 0 and 1 on rank 1")));
}

TEST(EngineAgreementTest, ADefaultAndItsValueAreEqual) {
  const commsched_optimizer_table_t adamw = commsched_adamw(0.9f, 0.95f, 1e-8f);
  EXPECT_THAT(BuildTwo([&](RankModel* model) {
                model->options.optimizer = &adamw;
                model->options.micro_batches = 1;
                model->options.bucket_bytes = uint64_t{25} << 20;
                model->desc.loss_scale_window = 2000;
              }),
              Each(IsEmpty()));
}

// As the halves of a tensor-parallel model: ranks 0 and 2, and 1 and 3.
TEST(EngineAgreementTest, EnginesOfOtherGroupsMayDiffer) {
  EXPECT_THAT(OnWorld(4,
                      [](Rank& rank, int32_t me) {
                        rank.JoinGroup("dp", me % 2 == 0
                                                 ? std::vector<int32_t>{0, 2}
                                                 : std::vector<int32_t>{1, 3});
                        RankModel model;
                        if (me % 2 == 1)
                          model.parameters[0].name = "other_half";
                        RETURN_MESSAGE_IF_ERROR(rank.Build(model));
                        RETURN_MESSAGE_IF_ERROR(rank.Set(0, 1.0f + me % 2));
                        return rank.Step();
                      }),
              Each(IsEmpty()));
}

TEST(EngineAgreementTest, ADifferenceInOneGroupIsAnErrorOfAllRanks) {
  EXPECT_THAT(OnWorld(4,
                      [](Rank& rank, int32_t me) {
                        rank.JoinGroup("dp", me % 2 == 0
                                                 ? std::vector<int32_t>{0, 2}
                                                 : std::vector<int32_t>{1, 3});
                        RankModel model;
                        if (me == 3) model.desc.weight_decay = 0.5f;
                        return rank.Build(model);
                      }),
              Each(HasSubstr("weight_decay is 0 on rank 1 and 0.5 on rank 3")));
}

// Creation fails on the last of `size` ranks, which `spoil` sees to, and with
// its message on all others.
void ExpectAllFail(int32_t size, const std::function<void(RankModel*)>& spoil,
                   const std::string& why) {
  SCOPED_TRACE(std::to_string(size) + " ranks, " + why);
  const std::vector<std::string> messages =
      OnWorld(size, [&](Rank& rank, int32_t me) {
        RankModel model;
        if (me == size - 1) spoil(&model);
        const std::string message = rank.Build(model);
        EXPECT_EQ(rank.engine(), nullptr);
        return message;
      });
  EXPECT_THAT(messages.back(), HasSubstr(why));
  for (int32_t rank = 0; rank + 1 < size; ++rank) {
    EXPECT_THAT(
        messages[static_cast<size_t>(rank)],
        AllOf(HasSubstr("rank " + std::to_string(size - 1) + " will not come"),
              HasSubstr(why)));
  }
}

TEST(EngineAgreementTest, ARankThatIsAskedForNonsenseFailsTheOthersAtOnce) {
  for (const int32_t size : {2, 3, 4}) {
    ExpectAllFail(
        size, [](RankModel* model) { model->desc.weight_decay = -1; },
        "weight_decay is -1");
    ExpectAllFail(
        size, [](RankModel* model) { model->desc.num_groups = 1; },
        "groups is NULL");
  }
}

TEST(EngineAgreementTest, ARankThatTheMachineCannotHoldFailsTheOthersAtOnce) {
  ExpectAllFail(
      2,
      [](RankModel* model) { model->parameters[0].dims = {uint64_t{1} << 39}; },
      "the machine has");
}

TEST(EngineAgreementTest, AfterAFailureTheRanksCreateEnginesAgain) {
  EXPECT_THAT(OnWorld(3,
                      [](Rank& rank, int32_t me) {
                        RankModel model;
                        if (me == 1) model.desc.clip_norm = -1;
                        EXPECT_NE(rank.Build(model), "");
                        RETURN_MESSAGE_IF_ERROR(rank.BuildAgain());
                        return rank.Step();
                      }),
              Each(IsEmpty()));
}

// What a rank throws is a failure to prepare as any other.
TEST(EngineAgreementTest, ARankThatRunsOutOfMemoryFailsTheOthersAtOnce) {
  TestPools pools;
  const std::vector<std::string> messages =
      OnWorld(2, [&](Rank& rank, int32_t me) {
        commsched_pool_t pool = pools.of_rank[static_cast<size_t>(me)].table();
        if (me == 1) {
          pool.reserve = [](void*, uint64_t) -> commsched_status_t {
            throw std::bad_alloc();
          };
        }
        RankModel model;
        model.desc.launch_timeout_ns = 0;  // 600 s.
        model.desc.optimizer_pool = &pool;
        return rank.Build(model);
      });
  EXPECT_THAT(messages[0], AllOf(HasSubstr("rank 1 will not come"),
                                 HasSubstr("out of memory")));
  EXPECT_THAT(messages[1], HasSubstr("out of memory"));
}

// ---- Values -----------------------------------------------------------------

// Two ranks build, give parameter 1 one value more than their rank, and step.
std::vector<std::string> StepWithOtherValues(const RankModel& model) {
  return OnWorld(2, [&](Rank& rank, int32_t me) {
    RETURN_MESSAGE_IF_ERROR(rank.Build(model));
    rank.DropContextAndGroup();
    RETURN_MESSAGE_IF_ERROR(rank.Set(0, 1));
    RETURN_MESSAGE_IF_ERROR(rank.Set(1, static_cast<float>(me + 1)));
    return rank.Step();
  });
}

TEST(EngineValuesTest, OtherInitialValuesAreRefusedInEveryStageThatHasThem) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    SCOPED_TRACE(stage);
    RankModel model;
    model.options.zero_stage = stage;
    EXPECT_THAT(StepWithOtherValues(model),
                Each(AllOf(HasSubstr("parameter 1 'b'"), HasSubstr("on rank 0"),
                           HasSubstr("on rank 1"))));
  }
}

TEST(EngineValuesTest, OfStage3OnlyWhatStaysWholeIsCompared) {
  RankModel model;
  model.options.zero_stage = 3;
  EXPECT_THAT(StepWithOtherValues(model), Each(IsEmpty()));
  model.options.persist_below = 64 * 8 * sizeof(float) + 1;
  EXPECT_THAT(StepWithOtherValues(model), Each(HasSubstr("parameter 1 'b'")));
}

// They round to the same copy.
TEST(EngineValuesTest, MasterWeightsThatSeveralRanksStoreAreCompared) {
  RankModel model;
  model.options.parameter_dtype = COMMSCHED_BF16;
  EXPECT_THAT(OnWorld(2,
                      [&](Rank& rank, int32_t me) {
                        RETURN_MESSAGE_IF_ERROR(rank.Build(model));
                        RETURN_MESSAGE_IF_ERROR(
                            rank.Set(1, 1 + 1e-6f * static_cast<float>(me)));
                        return rank.Step();
                      }),
              Each(HasSubstr("parameter 1 'b'")));
}

TEST(EngineValuesTest, ValuesCanBeSetAgainAfterADifference) {
  EXPECT_THAT(
      OnWorld(
          2,
          [](Rank& rank, int32_t me) {
            RETURN_MESSAGE_IF_ERROR(rank.Build(RankModel()));
            RETURN_MESSAGE_IF_ERROR(rank.Set(0, static_cast<float>(me)));
            EXPECT_ENGINE_ERROR(
                commsched_engine_step_begin(rank.engine(), nullptr),
                COMMSCHED_FAILED_PRECONDITION, HasSubstr("parameter 0 'a'"));
            RETURN_MESSAGE_IF_ERROR(rank.Set(0, 7));
            RETURN_MESSAGE_IF_ERROR(rank.Step());
            RETURN_MESSAGE_IF_ERROR(rank.Step());
            // Between later steps, too.
            RETURN_MESSAGE_IF_ERROR(rank.Set(2, static_cast<float>(me)));
            EXPECT_ENGINE_ERROR(
                commsched_engine_step_begin(rank.engine(), nullptr),
                COMMSCHED_FAILED_PRECONDITION, HasSubstr("parameter 2 'c'"));
            return std::string();
          }),
      Each(IsEmpty()));
}

TEST(EngineValuesTest, ACheckpointThatOneRankLoadedIsRefused) {
  const TemporaryFolder folder;
  ToyRun run = ToyRunOf(/*ranks=*/2, /*stage=*/1);
  ASSERT_EQ(SaveToy(folder.path(), run), "");
  EXPECT_EQ(
      OnRanks(run,
              [&](ToyRank& toy, int32_t rank) {
                RETURN_MESSAGE_IF_ERROR(toy.Build());
                CheckpointHandle checkpoint;
                RETURN_MESSAGE_IF_ERROR(
                    OpenToyCheckpoint(folder.path(), &checkpoint));
                const auto load = [&] {
                  return Message(commsched_engine_checkpoint_load(
                      checkpoint.get(), toy.engine()));
                };
                if (rank == 1) RETURN_MESSAGE_IF_ERROR(load());
                EXPECT_ENGINE_ERROR(
                    commsched_engine_step_begin(toy.engine(), nullptr),
                    COMMSCHED_FAILED_PRECONDITION,
                    HasSubstr("steps done is 0 on rank 0 and 3 on rank 1"));
                if (rank == 0) RETURN_MESSAGE_IF_ERROR(load());
                return toy.Step(3);
              }),
      "");
}

TEST(EngineValuesTest, AnAbortEndsTheComparison) {
  EXPECT_THAT(OnWorld(2,
                      [](Rank& rank, int32_t me) {
                        RankModel model;
                        model.desc.launch_timeout_ns = 0;  // 600 s.
                        RETURN_MESSAGE_IF_ERROR(rank.Build(model));
                        if (me == 1) {
                          commsched_engine_abort(rank.engine(), "no data");
                        }
                        EXPECT_EQ(
                            commsched_engine_step_begin(rank.engine(), nullptr),
                            COMMSCHED_ABORTED);
                        return std::string(commsched_last_error());
                      }),
              Each(HasSubstr("no data")));
}

// Whatever of the engine has failed: rank 1 never comes.
TEST(SessionWatchTest, AFailureEndsTheComparisonThatTheRankWaitsIn) {
  EXPECT_THAT(
      OnWorld(2,
              [](Rank& rank, int32_t me) {
                if (me == 1) return std::string("the evaluation failed");
                commsched_agree_desc_t desc = commsched_agree_desc_init();
                desc.name = "values";
                SessionWatch watch([] {
                  return Status(COMMSCHED_INTERNAL, "the evaluation failed");
                });
                EXPECT_TRUE(watch.Start(rank.context(), desc).ok());
                EXPECT_EQ(
                    commsched_context_agree(rank.context(), &desc, nullptr),
                    COMMSCHED_ABORTED);
                return std::string(commsched_last_error());
              }),
      Each(HasSubstr("the evaluation failed")));
}

}  // namespace
}  // namespace commsched::engine
