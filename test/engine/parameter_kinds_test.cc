// Parameters that are not all alike: frozen ones, each with a dtype of its own,
// scalars and those without elements. random_case_test.cc trains random models
// of them against plain arrays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commsched/checkpoint.h"
#include "commsched/engine.h"
#include "test/engine/create_engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/update_call.h"
#include "test/support/rank_group.h"

namespace commsched::engine {
namespace {

using ::testing::HasSubstr;

struct KindOfParameter {
  const char* name = "";
  std::vector<uint64_t> dims = {};
  uint32_t module = 0;
  uint32_t frozen = 0;
  uint32_t has_dtype = 0;
  uint32_t dtype = COMMSCHED_F32;
  uint32_t atomic = 0;
  uint32_t option_set = 0;

  uint64_t count() const {
    uint64_t count = 1;
    for (uint64_t dim : dims) count *= dim;
    return count;
  }
  bool is_16_bit() const { return has_dtype != 0 && dtype != COMMSCHED_F32; }
};

// As LoRA has them: frozen weights of 16 bits, and adapters of fp32 beside
// them.
std::vector<KindOfParameter> MixedParameters() {
  return {{"base", {30, 40}, 0, 1, 1, COMMSCHED_BF16},
          {"adapter", {30, 8}, 0},
          {"scale", {}, 0},
          {"half", {20, 30}, 1, 0, 1, COMMSCHED_BF16},
          {"nothing", {3, 0}, 1},
          {"table", {700}, 1, 1},
          {"frozen half", {500}, 2, 1, 1, COMMSCHED_F16},
          {"frozen nothing", {0}, 2, 1},
          {"head", {10, 60}, 2}};
}

// Exact in all dtypes.
float InitialValueOf(uint32_t parameter, uint64_t index) {
  return static_cast<float>((parameter + index) % 31) / 16 - 1;
}

// One rank of a world whose parameters are `kinds`, in three modules.
class KindsRank {
 public:
  KindsRank(commsched_world_t* world, int rank,
            const std::vector<KindOfParameter>& kinds, uint32_t zero_stage,
            uint32_t micro_batches = 1, uint32_t option_sets = 0)
      : kinds_(kinds), micro_batches_(micro_batches) {
    Require(commsched_context_create(world, rank, &context_));
    std::vector<int32_t> all;
    for (int32_t i = 0; i < commsched_world_size(world); ++i) all.push_back(i);
    Require(commsched_group_create(context_, "dp", all.data(),
                                   static_cast<uint32_t>(all.size()), &group_));
    options_.zero_stage = zero_stage;
    options_.micro_batches = micro_batches;
    options_.bucket_bytes = 4096;
    options_.option_sets = option_sets;
    AddModel();
  }
  ~KindsRank() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  KindsRank(const KindsRank&) = delete;
  KindsRank& operator=(const KindsRank&) = delete;

  commsched_engine_t* engine() { return engine_; }

  // Without values.
  std::string Create() {
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    desc.clip_norm = 100;
    desc.weight_decay = 0.1f;
    desc.launch_timeout_ns = int64_t{60} * 1'000'000'000;
    return Message(CreateEngine(desc, model_.get(), options_, &engine_));
  }
  std::string Build() {
    RETURN_MESSAGE_IF_ERROR(Create());
    for (uint32_t p = 0; p < kinds_.size(); ++p) {
      std::vector<float> values(kinds_[p].count());
      for (uint64_t i = 0; i < values.size(); ++i) {
        values[i] = InitialValueOf(p, i);
      }
      RETURN_MESSAGE_IF_ERROR(commsched_engine_set_parameter(
          engine_, p, values.data(), values.size()));
    }
    return "";
  }

  // Gradients are the same on every rank.
  std::string Step(uint32_t step,
                   const commsched_engine_update_args_t* args = nullptr) {
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    for (uint32_t mb = 0; mb < micro_batches_; ++mb) {
      for (uint32_t m = 0; m < kModules; ++m) {
        RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, m, mb));
        RETURN_MESSAGE_IF_ERROR(CheckAddresses(m, /*backward=*/false));
        RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, m, mb));
      }
      for (uint32_t m = kModules; m-- > 0;) {
        RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, m, mb));
        RETURN_MESSAGE_IF_ERROR(CheckAddresses(m, /*backward=*/true));
        RETURN_MESSAGE_IF_ERROR(AddGradients(m, step));
        RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, m, mb));
      }
    }
    const commsched_engine_update_args_t plain = UpdateArgs(0.01f);
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_update(engine_, args == nullptr ? &plain : args));
    return Message(commsched_engine_step_end(engine_));
  }

  // Of all parameters, by an evaluation.
  std::string Values(std::vector<std::vector<float>>* out) {
    out->resize(kinds_.size());
    RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine_));
    for (uint32_t m = 0; m < kModules; ++m) {
      RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, m, 0));
      for (uint32_t p = 0; p < kinds_.size(); ++p) {
        if (kinds_[p].module != m) continue;
        std::vector<float>& values = (*out)[p];
        values.resize(kinds_[p].count());
        RETURN_MESSAGE_IF_ERROR(commsched_engine_get_parameter(
            engine_, p, values.data(), values.size()));
      }
      RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, m, 0));
    }
    return Message(commsched_engine_evaluation_end(engine_));
  }

  std::string Save(const std::string& folder) {
    commsched_engine_saver_desc_t desc = commsched_engine_saver_desc_init();
    desc.folder = folder.c_str();
    desc.run = "r";
    commsched_engine_saver_t* made = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_saver_create(engine_, &desc, &made));
    const SaverHandle saver(made);
    RETURN_MESSAGE_IF_ERROR(commsched_engine_saver_save(made, nullptr, 0));
    return Message(commsched_engine_saver_wait(made));
  }

  std::string Load(const std::string& folder) {
    CheckpointHandle checkpoint;
    RETURN_MESSAGE_IF_ERROR(OpenToyCheckpoint(folder, &checkpoint));
    return Message(commsched_engine_checkpoint_load(checkpoint.get(), engine_));
  }

 private:
  static constexpr uint32_t kModules = 3;

  void AddModel() {
    uint32_t id = 0;
    for (const char* name : {"first", "second", "third"}) {
      Require(commsched_model_add_module(model_.get(), name, 0, 0, &id));
    }
    for (const KindOfParameter& kind : kinds_) {
      commsched_parameter_desc_t desc = commsched_parameter_desc_init();
      desc.name = kind.name;
      desc.dims = kind.dims.empty() ? nullptr : kind.dims.data();
      desc.num_dims = static_cast<uint32_t>(kind.dims.size());
      desc.module = kind.module;
      desc.frozen = kind.frozen;
      desc.has_dtype = kind.has_dtype;
      desc.dtype = kind.dtype;
      desc.atomic = kind.atomic;
      desc.option_set = kind.option_set;
      Require(commsched_model_add_parameter(model_.get(), &desc, &id));
    }
  }

  std::string CheckAddresses(uint32_t module, bool backward) {
    for (uint32_t p = 0; p < kinds_.size(); ++p) {
      if (kinds_[p].module != module) continue;
      const void* values = nullptr;
      void* gradient = nullptr;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_parameter_address(engine_, p, &values, &gradient));
      if (values == nullptr) return "a parameter in use has no address";
      if (kinds_[p].frozen != 0 && gradient != nullptr) {
        return std::string("frozen '") + kinds_[p].name + "' has a gradient";
      }
      if (backward && kinds_[p].frozen == 0 && gradient == nullptr) {
        return std::string("'") + kinds_[p].name + "' has no gradient";
      }
    }
    return "";
  }

  std::string AddGradients(uint32_t module, uint32_t step) {
    for (uint32_t p = 0; p < kinds_.size(); ++p) {
      if (kinds_[p].module != module || kinds_[p].frozen != 0) continue;
      const void* values = nullptr;
      void* gradient = nullptr;
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_parameter_address(engine_, p, &values, &gradient));
      std::vector<float> mine(kinds_[p].count());
      for (uint64_t i = 0; i < mine.size(); ++i) {
        mine[i] = InitialValueOf(p + step, 3 * i);
      }
      RETURN_MESSAGE_IF_ERROR(commsched_engine_cpu_kernels().add(
          nullptr, commsched_stream_caller(), gradient,
          static_cast<commsched_dtype_t>(kinds_[p].has_dtype != 0
                                             ? kinds_[p].dtype
                                             : uint32_t{COMMSCHED_F32}),
          mine.data(), COMMSCHED_F32, mine.size()));
    }
    return "";
  }

  const std::vector<KindOfParameter> kinds_;
  const uint32_t micro_batches_;
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
};

// What `body` returns on each of `ranks` ranks; the first that is not "".
std::string OnKindsRanks(
    int ranks,
    const std::function<std::string(commsched_world_t*, int)>& body) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = ranks;
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](int rank) {
    messages[static_cast<size_t>(rank)] = body(world, rank);
    return absl::OkStatus();
  });
  commsched_world_destroy(world);
  for (const std::string& message : messages) {
    if (!message.empty()) return message;
  }
  return "";
}

using ValuesByParameter = std::vector<std::vector<float>>;

// After three steps.
std::string TrainKinds(int ranks, uint32_t stage, uint32_t micro_batches,
                       ValuesByParameter* out) {
  return OnKindsRanks(ranks, [&](commsched_world_t* world, int rank) {
    KindsRank kinds(world, rank, MixedParameters(), stage, micro_batches);
    RETURN_MESSAGE_IF_ERROR(kinds.Build());
    for (uint32_t step = 0; step < 3; ++step) {
      RETURN_MESSAGE_IF_ERROR(kinds.Step(step));
    }
    ValuesByParameter values;
    RETURN_MESSAGE_IF_ERROR(kinds.Values(&values));
    if (rank == ranks - 1) *out = values;
    return std::string();
  });
}

void ExpectNear(const ValuesByParameter& values,
                const ValuesByParameter& expected) {
  const std::vector<KindOfParameter> kinds = MixedParameters();
  ASSERT_EQ(values.size(), expected.size());
  for (uint32_t p = 0; p < values.size(); ++p) {
    ASSERT_EQ(values[p].size(), expected[p].size()) << kinds[p].name;
    const float allowed = kinds[p].is_16_bit() ? 0x1p-7f : 1e-5f;
    for (uint64_t i = 0; i < values[p].size(); ++i) {
      ASSERT_NEAR(values[p][i], expected[p][i], allowed)
          << kinds[p].name << "[" << i << "]";
    }
  }
}

TEST(ParameterKindsTest, AreTrainedAsOnOneRank) {
  for (const uint32_t micro_batches : {1u, 2u}) {
    ValuesByParameter expected;
    ASSERT_EQ(TrainKinds(1, 0, micro_batches, &expected), "");
    for (const int ranks : {2, 3, 4}) {
      for (const uint32_t stage : {0u, 1u, 2u, 3u}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " +
                     std::to_string(stage));
        ValuesByParameter values;
        ASSERT_EQ(TrainKinds(ranks, stage, micro_batches, &values), "");
        ExpectNear(values, expected);
      }
    }
  }
}

TEST(ParameterKindsTest, FrozenOnesAreAsTheyWereSetAndOthersAreNot) {
  for (const uint32_t stage : {0u, 1u, 2u, 3u}) {
    ValuesByParameter values;
    ASSERT_EQ(TrainKinds(3, stage, 2, &values), "");
    const std::vector<KindOfParameter> kinds = MixedParameters();
    for (uint32_t p = 0; p < kinds.size(); ++p) {
      uint64_t changed = 0;
      for (uint64_t i = 0; i < values[p].size(); ++i) {
        changed += values[p][i] != InitialValueOf(p, i) ? 1 : 0;
      }
      if (kinds[p].frozen != 0 || kinds[p].count() == 0) {
        EXPECT_EQ(changed, 0u) << kinds[p].name;
      } else {
        EXPECT_GT(2 * changed, kinds[p].count()) << kinds[p].name;
      }
    }
  }
}

TEST(ParameterKindsTest, BucketsAreOfOneKindAndFrozenOnesTakeTheirValuesOnly) {
  for (const uint32_t stage : {0u, 2u, 3u}) {
    const std::string error = OnKindsRanks(2, [&](commsched_world_t* world,
                                                  int rank) {
      KindsRank kinds(world, rank, MixedParameters(), stage);
      RETURN_MESSAGE_IF_ERROR(kinds.Build());
      commsched_engine_info_t info = commsched_engine_info_init();
      RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(kinds.engine(), &info));
      uint64_t values = 0;
      uint64_t state = 0;
      uint64_t frozen = 0;
      for (uint64_t b = 0; b < info.num_buckets; ++b) {
        commsched_engine_bucket_info_t bucket =
            commsched_engine_bucket_info_init();
        RETURN_MESSAGE_IF_ERROR(
            commsched_engine_get_bucket_info(kinds.engine(), b, &bucket));
        const uint64_t size = bucket.dtype == COMMSCHED_F32 ? 4 : 2;
        const uint64_t shards = stage == 0 ? 1 : 2;
        values += bucket.count * size / (stage == 3 ? shards : 1);
        EXPECT_EQ(bucket.num_reductions, bucket.frozen != 0 ? 0u : 1u);
        frozen += bucket.frozen;
        if (bucket.frozen != 0) {
          EXPECT_EQ(bucket.num_gathers > 0, stage == 3);
          continue;
        }
        // Two moments, and masters beside 16 bits.
        state += bucket.count / shards * (size == 2 ? 12 : 8);
      }
      // bf16, fp32 and fp16.
      EXPECT_EQ(frozen, 3u);
      EXPECT_EQ(info.parameter_bytes, values);
      EXPECT_EQ(info.optimizer_bytes, state);
      return std::string();
    });
    EXPECT_EQ(error, "");
  }
}

TEST(ParameterKindsTest, CheckpointsHaveThemAndLoadOnOtherRanksAndStages) {
  const TemporaryFolder folder;
  ValuesByParameter saved;
  ValuesByParameter later;
  ASSERT_EQ(OnKindsRanks(3,
                         [&](commsched_world_t* world, int rank) {
                           KindsRank kinds(world, rank, MixedParameters(), 3);
                           RETURN_MESSAGE_IF_ERROR(kinds.Build());
                           RETURN_MESSAGE_IF_ERROR(kinds.Step(0));
                           RETURN_MESSAGE_IF_ERROR(kinds.Save(folder.path()));
                           ValuesByParameter values;
                           RETURN_MESSAGE_IF_ERROR(kinds.Values(&values));
                           if (rank == 0) saved = values;
                           RETURN_MESSAGE_IF_ERROR(kinds.Step(1));
                           RETURN_MESSAGE_IF_ERROR(kinds.Values(&values));
                           if (rank == 0) later = values;
                           return std::string();
                         }),
            "");
  for (const int ranks : {1, 2, 4}) {
    for (const uint32_t stage : {0u, 2u, 3u}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " +
                   std::to_string(stage));
      ValuesByParameter loaded;
      ValuesByParameter stepped;
      ASSERT_EQ(
          OnKindsRanks(ranks,
                       [&](commsched_world_t* world, int rank) {
                         KindsRank kinds(world, rank, MixedParameters(), stage);
                         RETURN_MESSAGE_IF_ERROR(kinds.Create());
                         RETURN_MESSAGE_IF_ERROR(kinds.Load(folder.path()));
                         ValuesByParameter values;
                         RETURN_MESSAGE_IF_ERROR(kinds.Values(&values));
                         if (rank == ranks - 1) loaded = values;
                         RETURN_MESSAGE_IF_ERROR(kinds.Step(1));
                         RETURN_MESSAGE_IF_ERROR(kinds.Values(&values));
                         if (rank == ranks - 1) stepped = values;
                         return std::string();
                       }),
          "");
      EXPECT_EQ(loaded, saved);
      ExpectNear(stepped, later);
    }
  }
}

// One that is frozen when it is loaded leaves aside what the optimizer kept.
TEST(ParameterKindsTest, ACheckpointLoadsIntoAModelThatFreezesMoreButNotLess) {
  const TemporaryFolder folder;
  const std::vector<KindOfParameter> trained = {{"a", {300}, 0},
                                                {"b", {200}, 1}};
  const std::vector<KindOfParameter> frozen = {{"a", {300}, 0, 1},
                                               {"b", {200}, 1}};
  const auto save = [&](const std::vector<KindOfParameter>& kinds,
                        const std::string& into) {
    return OnKindsRanks(2, [&](commsched_world_t* world, int rank) {
      KindsRank one(world, rank, kinds, 2);
      RETURN_MESSAGE_IF_ERROR(one.Build());
      RETURN_MESSAGE_IF_ERROR(one.Step(0));
      return one.Save(into);
    });
  };
  const auto load = [&](const std::vector<KindOfParameter>& kinds,
                        const std::string& from) {
    return OnKindsRanks(2, [&](commsched_world_t* world, int rank) {
      KindsRank one(world, rank, kinds, 3);
      RETURN_MESSAGE_IF_ERROR(one.Create());
      RETURN_MESSAGE_IF_ERROR(one.Load(from));
      return one.Step(1);
    });
  };
  ASSERT_EQ(save(trained, folder.path()), "");
  EXPECT_EQ(load(frozen, folder.path()), "");
  const TemporaryFolder other;
  ASSERT_EQ(save(frozen, other.path()), "");
  EXPECT_EQ(load(frozen, other.path()), "");
  EXPECT_THAT(
      load(trained, other.path()),
      HasSubstr("no adamw.m of tensor 'a', which was frozen when it was "
                "saved"));
}

TEST(ParameterKindsTest, RanksThatDoNotFreezeTheSameAreToldWhichDiffers) {
  const auto build = [](const KindOfParameter& of_rank_1) {
    return OnKindsRanks(2, [&](commsched_world_t* world, int rank) {
      std::vector<KindOfParameter> kinds = {{"a", {300}, 0}, {"b", {200}, 1}};
      if (rank == 1) kinds[0] = of_rank_1;
      KindsRank one(world, rank, kinds, 2);
      return one.Build();
    });
  };
  EXPECT_THAT(build({"a", {300}, 0, 1}),
              HasSubstr("parameter 0 is 'a' [300] on rank 0 and 'a' [300], "
                        "frozen on rank 1"));
  EXPECT_THAT(build({"a", {300}, 0, 0, 1, COMMSCHED_BF16}),
              HasSubstr("'a' [300], BF16 on rank 1"));
}

TEST(ParameterKindsTest, AnOptionSetThatTheEngineHasNotIsRefused) {
  KindOfParameter beyond = {"a", {300}, 0};
  beyond.option_set = 2;
  EXPECT_THAT(OnKindsRanks(2,
                           [&](commsched_world_t* world, int rank) {
                             KindsRank one(world, rank, {beyond}, 2);
                             return one.Build();
                           }),
              HasSubstr("parameter 'a' is of option set 2; option_sets of the "
                        "engine is 0"));
}

// Each takes the values of its set: without a rate it stays as it is.
TEST(ParameterKindsTest, ParametersOfAnOptionSetTakeItsValues) {
  std::vector<KindOfParameter> kinds(3);
  kinds[0] = {"a", {300}, 0};
  kinds[1] = {"b", {300}, 1};
  kinds[1].option_set = 1;
  kinds[2] = {"c", {300}, 2};
  for (const int ranks : {2, 3, 4}) {
    for (const uint32_t stage : {0u, 1u, 3u}) {
      const std::string error =
          OnKindsRanks(ranks, [&](commsched_world_t* world, int rank) {
            KindsRank one(world, rank, kinds, stage, /*micro_batches=*/1,
                          /*option_sets=*/2);
            RETURN_MESSAGE_IF_ERROR(one.Build());
            commsched_option_values_t sets[] = {commsched_option_values_init(),
                                                commsched_option_values_init()};
            sets[1].lr_scale = 0;
            commsched_engine_update_args_t args = UpdateArgs(0.01f);
            args.sets = sets;
            args.num_sets = 2;
            RETURN_MESSAGE_IF_ERROR(one.Step(0, &args));
            ValuesByParameter values;
            RETURN_MESSAGE_IF_ERROR(one.Values(&values));
            for (uint32_t p = 0; p < 3; ++p) {
              const bool stays = values[p][7] == InitialValueOf(p, 7);
              EXPECT_EQ(stays, p == 1) << kinds[p].name;
            }
            return std::string();
          });
      EXPECT_EQ(error, "");
    }
  }
}

TEST(ParameterKindsTest, AnAtomicParameterIsOfOneRank) {
  std::vector<KindOfParameter> kinds = MixedParameters();
  for (KindOfParameter& kind : kinds) kind.atomic = 1;
  for (const int ranks : {2, 3, 4}) {
    for (const uint32_t stage : {1u, 2u, 3u}) {
      std::vector<std::vector<int>> keepers(static_cast<size_t>(ranks),
                                            std::vector<int>(kinds.size()));
      const std::string error =
          OnKindsRanks(ranks, [&](commsched_world_t* world, int rank) {
            KindsRank one(world, rank, kinds, stage);
            RETURN_MESSAGE_IF_ERROR(one.Build());
            for (uint32_t p = 0; p < kinds.size(); ++p) {
              uint64_t offset = 0;
              uint64_t count = 0;
              RETURN_MESSAGE_IF_ERROR(commsched_engine_master_range(
                  one.engine(), p, &offset, &count));
              if (count == 0) continue;
              EXPECT_EQ(count, kinds[p].count()) << kinds[p].name;
              keepers[static_cast<size_t>(rank)][p] = 1;
            }
            return one.Step(0);
          });
      EXPECT_EQ(error, "");
      for (uint32_t p = 0; p < kinds.size(); ++p) {
        int kept = 0;
        for (const std::vector<int>& of_rank : keepers) kept += of_rank[p];
        EXPECT_EQ(kept, kinds[p].count() > 0 ? 1 : 0) << kinds[p].name;
      }
    }
  }
}

TEST(ParameterKindsTest, AModelOfFrozenOnesOnlyIsRefused) {
  EXPECT_THAT(
      OnKindsRanks(2,
                   [](commsched_world_t* world, int rank) {
                     KindsRank one(world, rank, {{"a", {300}, 0, 1}}, 2);
                     return one.Build();
                   }),
      HasSubstr("all parameters of the model are frozen"));
}

}  // namespace
}  // namespace commsched::engine
