// Roles that exchange: the stages of a pipeline, planned together, in steps and
// evaluations, in one process and over a backend that connects processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "commsched/checkpoint.h"
#include "commsched/control.h"
#include "commsched/engine.h"
#include "commsched/engine_ops.h"
#include "commsched/step_plan.h"
#include "test/engine/create_engine.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"
#include "test/support/property.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;

constexpr uint64_t kWide = 64;  // Elements of what stages hand to each other.
constexpr float kStageRate = 0.1f;
constexpr uint32_t kStageSteps = 3;

// `replicas` of a pipeline of `stages`, which share each stage's parameter.
// Rank r is replica r % replicas of stage r / replicas.
struct Pipeline {
  int32_t stages = 2;
  int32_t replicas = 1;
  uint32_t zero_stage = 0;
  std::string backend = "inproc";
  uint32_t micro_batches = 1;
  // As many forwards ahead as there are stages to come; else none.
  bool one_forward_one_backward = false;
  // An evaluation after each step; else none.
  bool evaluates = false;
  bool uneven_evaluations = false;

  int32_t size() const { return stages * replicas; }
};

float StageInput(int32_t replica, uint32_t step, uint32_t micro_batch,
                 uint64_t i) {
  const uint64_t at = i + uint64_t{3} * step + uint64_t{11} * micro_batch +
                      5 * static_cast<uint64_t>(replica);
  return static_cast<float>(at % 7) / 8;
}

std::vector<float> FirstWeights(int32_t stage) {
  std::vector<float> weights(kWide);
  for (uint64_t i = 0; i < kWide; ++i) {
    const auto at = static_cast<float>((i + static_cast<uint64_t>(stage)) % 5);
    weights[i] = at / 4 - (stage % 2 == 0 ? 0 : 0.5f);
  }
  return weights;
}

// What one rank with all of it has, in plain arrays. Each stage multiplies by
// its weights; the loss is the half of the sum of squares of what comes out.
struct PlainPipeline {
  std::vector<std::vector<float>> weights;  // By stage.
  // By evaluation and replica: what the last stage makes.
  std::vector<std::vector<std::vector<float>>> outputs;
};

PlainPipeline TrainPlainPipeline(const Pipeline& run) {
  PlainPipeline plain;
  for (int32_t s = 0; s < run.stages; ++s) {
    plain.weights.push_back(FirstWeights(s));
  }
  const auto stages = static_cast<size_t>(run.stages);
  for (uint32_t step = 0; step < kStageSteps; ++step) {
    for (uint64_t i = 0; i < kWide; ++i) {
      std::vector<float> sums(stages);
      for (int32_t r = 0; r < run.replicas; ++r) {
        for (uint32_t mb = 0; mb < run.micro_batches; ++mb) {
          std::vector<float> x = {StageInput(r, step, mb, i)};
          for (size_t s = 0; s < stages; ++s) {
            x.push_back(plain.weights[s][i] * x[s]);
          }
          float gradient = x.back();
          for (size_t s = stages; s-- > 0;) {
            sums[s] += gradient * x[s];
            gradient *= plain.weights[s][i];
          }
        }
      }
      for (size_t s = 0; s < stages; ++s) {
        plain.weights[s][i] -=
            kStageRate * sums[s] / static_cast<float>(run.replicas);
      }
    }
    auto& outputs = plain.outputs.emplace_back();
    for (int32_t r = 0; r < run.replicas; ++r) {
      std::vector<float>& out = outputs.emplace_back(kWide);
      for (uint64_t i = 0; i < kWide; ++i) {
        out[i] = StageInput(r, step + 100, 0, i);
        for (size_t s = 0; s < stages; ++s) out[i] *= plain.weights[s][i];
      }
    }
  }
  return plain;
}

// Activations of a stage: what comes in and goes out, and the gradients.
enum Handed : uint32_t { kIn, kOut, kOutGradient, kInGradient, kNumHanded };

// A rank: one module that receives, computes and sends on.
class StageRank {
 public:
  StageRank(const Pipeline& run, commsched_world_t* world, int32_t rank)
      : run_(run),
        stage_(rank / run.replicas),
        replica_(rank % run.replicas),
        inputs_(run.micro_batches),
        outputs_(run.micro_batches) {
    Require(commsched_context_create(world, rank, &context_));
    std::vector<int32_t> shards, pipe;
    for (int32_t r = 0; r < run.replicas; ++r) {
      shards.push_back(stage_ * run.replicas + r);
    }
    for (int32_t s = 0; s < run.stages; ++s) {
      pipe.push_back(s * run.replicas + replica_);
    }
    AddGroup("dp", shards, &group_);
    AddGroup("pp", pipe, &pipe_);
    Plan();
  }
  ~StageRank() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(pipe_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  StageRank(const StageRank&) = delete;
  StageRank& operator=(const StageRank&) = delete;

  std::string Train() {
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    desc.groups = &pipe_;
    desc.num_groups = 1;
    desc.step_plan = plan_.get();
    RETURN_MESSAGE_IF_ERROR(commsched_engine_create(&desc, &engine_));
    weights = FirstWeights(stage_);
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_set_parameter(engine_, 0, weights.data(), kWide));
    for (uint32_t step = 0; step < kStageSteps; ++step) {
      if (std::string m = Step(step); !m.empty()) return m;
      if (!run_.evaluates) continue;
      if (std::string m = Evaluate(step + 100); !m.empty()) return m;
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_drain(engine_));
    const bool root = replica_ == 0;
    return Message(commsched_engine_gather_parameter(
        engine_, 0, /*root=*/0, root ? weights.data() : nullptr,
        root ? kWide : 0));
  }

  std::vector<float> weights;               // On replica 0.
  std::vector<std::vector<float>> outputs;  // By evaluation: of the last stage.

 private:
  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ == run_.stages - 1; }

  void AddGroup(const char* axis, const std::vector<int32_t>& ranks,
                commsched_group_t** out) {
    Require(commsched_group_create(context_, axis, ranks.data(),
                                   static_cast<uint32_t>(ranks.size()), out));
  }

  // Each rank plans all of them.
  void Plan() {
    std::vector<ModelHandle> models;
    std::vector<uint32_t> roles_of_pipe;
    for (int32_t s = 0; s < run_.stages; ++s) {
      models.push_back(DescribeStage(s));
      roles_of_pipe.push_back(static_cast<uint32_t>(s));
    }
    const std::array<const uint32_t*, 2> role_of_member = {
        nullptr, roles_of_pipe.data()};
    std::vector<commsched_step_plan_role_t> roles;
    for (const ModelHandle& model : models) {
      commsched_step_plan_role_t& role =
          roles.emplace_back(commsched_step_plan_role_init());
      role.model = model.get();
      role.num_ranks = run_.replicas;
      role.role_of_member = role_of_member.data();
      role.num_groups = 2;
    }
    commsched_plan_options_t core = commsched_plan_options_init();
    core.backend = commsched_context_backend(context_);
    const commsched_optimizer_table_t sgd = commsched_sgd(0, 0);
    commsched_step_plan_options_t options = commsched_step_plan_options_init();
    options.plan = &core;
    options.optimizer = &sgd;
    options.zero_stage = run_.zero_stage;
    options.micro_batches = run_.micro_batches;
    options.uneven_evaluations = run_.uneven_evaluations ? 1 : 0;
    std::vector<commsched_step_plan_t*> plans(roles.size());
    Require(commsched_step_plan_build(roles.data(),
                                      static_cast<uint32_t>(roles.size()),
                                      &options, plans.data()));
    std::swap(plans[0], plans[static_cast<size_t>(stage_)]);
    plan_.reset(plans[0]);
    for (size_t i = 1; i < plans.size(); ++i) {
      commsched_step_plan_destroy(plans[i]);
    }
  }

  ModelHandle DescribeStage(int32_t stage) {
    ModelHandle model = NewModel();
    uint32_t id = 0;
    const uint64_t dims[] = {kWide};
    Require(commsched_model_add_module(model.get(), "stage", 1e3, 2e3, &id));
    Require(AddParameter(model.get(), 0, "w", dims, 1, &id));
    Require(commsched_model_add_group(model.get(), "pp", run_.stages, &id));
    const char* const names[] = {"in", "out", "out_gradient", "in_gradient"};
    for (uint32_t i = 0; i < kNumHanded; ++i) {
      commsched_activation_desc_t desc = commsched_activation_desc_init();
      desc.name = names[i];
      desc.dtype = COMMSCHED_F32;
      desc.count = kWide;
      desc.address = handed_[i].data();
      Require(commsched_model_add_activation(model.get(), &desc, &id));
    }
    const bool first = stage == 0;
    const bool last = stage == run_.stages - 1;
    if (!first) Hand(model.get(), COMMSCHED_RECV, kIn);
    AddOp(model.get(), /*backward=*/false);
    if (!last) Hand(model.get(), COMMSCHED_SEND, kOut);
    if (!last) Hand(model.get(), COMMSCHED_RECV, kOutGradient);
    AddOp(model.get(), /*backward=*/true);
    if (!first) Hand(model.get(), COMMSCHED_SEND, kInGradient);
    const std::vector<commsched_pass_t> passes = PassesOf(stage);
    Require(
        commsched_model_set_passes(model.get(), passes.data(), passes.size()));
    return model;
  }

  std::vector<commsched_pass_t> PassesOf(int32_t stage) const {
    const auto ahead = std::min(run_.one_forward_one_backward
                                    ? static_cast<uint32_t>(run_.stages - stage)
                                    : uint32_t{1},
                                run_.micro_batches);
    std::vector<commsched_pass_t> passes;
    for (uint32_t i = 0; i < run_.micro_batches + ahead - 1; ++i) {
      if (i < run_.micro_batches) {
        passes.push_back({COMMSCHED_FORWARD, 0, i, 0});
      }
      if (i + 1 < ahead) continue;
      passes.push_back({COMMSCHED_BACKWARD, 0, i + 1 - ahead, 0});
    }
    return passes;
  }

  // The first stage makes what comes in, and the last the gradient.
  void AddOp(commsched_model_t* model, bool backward) {
    commsched_module_op_desc_t op = commsched_module_op_desc_init();
    std::array<commsched_access_t, 4> accesses = {};
    for (uint32_t i = 0; i < accesses.size(); ++i) {
      accesses[i].buffer = i;
      accesses[i].mode = COMMSCHED_READ;
    }
    accesses[kIn].mode = COMMSCHED_READ_WRITE;
    accesses[kOut].mode = COMMSCHED_WRITE;
    accesses[kOutGradient].mode = COMMSCHED_READ_WRITE;
    accesses[kInGradient].mode = COMMSCHED_WRITE;
    const uint32_t parameter = 0;
    op.name = "compute";
    op.backward = backward ? 1 : 0;
    op.accesses = &accesses[backward ? kOutGradient : kIn];
    op.num_accesses = 2;
    op.parameters = &parameter;
    op.num_parameters = 1;
    if (backward) {
      op.gradients = &parameter;
      op.num_gradients = 1;
    }
    uint32_t id = 0;
    Require(commsched_model_add_op(model, 0, &op, &id));
  }

  // Forwards go to the next stage, backwards to the one before.
  void Hand(commsched_model_t* model, commsched_collective_t kind,
            uint32_t activation) {
    commsched_module_collective_desc_t desc =
        commsched_module_collective_desc_init();
    const bool sends = kind == COMMSCHED_SEND;
    const bool backward =
        activation == kOutGradient || activation == kInGradient;
    desc.name = sends ? "send" : "receive";
    desc.kind = kind;
    desc.group = 1;
    desc.backward = backward ? 1 : 0;
    desc.peer_offset = sends != backward ? 1 : run_.stages - 1;
    commsched_access_t access = {};
    access.buffer = activation;
    access.mode = sends ? COMMSCHED_READ : COMMSCHED_WRITE;
    (sends ? desc.input : desc.output) = access;
    Require(commsched_model_add_collective(model, 0, &desc));
  }

  // What a backward needs of it is kept.
  std::string Forward(uint32_t input, uint32_t micro_batch) {
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, 0, micro_batch));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_begin(engine_, 0, micro_batch));
    const void* values = nullptr;
    void* gradients = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_parameter_address(engine_, 0, &values, &gradients));
    const auto* const w = static_cast<const float*>(values);
    for (uint64_t i = 0; i < kWide; ++i) {
      if (is_first()) {
        handed_[kIn][i] = StageInput(replica_, input, micro_batch, i);
      }
      handed_[kOut][i] = w[i] * handed_[kIn][i];
    }
    inputs_[micro_batch] = handed_[kIn];
    outputs_[micro_batch] = handed_[kOut];
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_end(engine_, 0, micro_batch));
    return Message(ForwardEnd(engine_, 0, micro_batch));
  }

  std::string Backward(uint32_t micro_batch) {
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 0, micro_batch));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_begin(engine_, 1, micro_batch));
    const void* values = nullptr;
    void* gradients = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_parameter_address(engine_, 0, &values, &gradients));
    const auto* const w = static_cast<const float*>(values);
    auto* const g = static_cast<float*>(gradients);
    if (is_last()) handed_[kOutGradient] = outputs_[micro_batch];
    for (uint64_t i = 0; i < kWide; ++i) {
      g[i] += handed_[kOutGradient][i] * inputs_[micro_batch][i];
      handed_[kInGradient][i] = handed_[kOutGradient][i] * w[i];
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_end(engine_, 1, micro_batch));
    return Message(BackwardEnd(engine_, 0, micro_batch));
  }

  std::string Step(uint32_t step) {
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, nullptr));
    for (const commsched_pass_t& pass : PassesOf(stage_)) {
      std::string message = pass.kind == COMMSCHED_FORWARD
                                ? Forward(step, pass.micro_batch)
                                : Backward(pass.micro_batch);
      if (!message.empty()) return message;
    }
    RETURN_MESSAGE_IF_ERROR(UpdateWith(engine_, kStageRate));
    return Message(commsched_engine_step_end(engine_));
  }

  // Twice over, where that may be.
  std::string Evaluate(uint32_t input) {
    RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine_));
    for (int again = run_.uneven_evaluations ? 1 : 0; again >= 0; --again) {
      const auto more = static_cast<uint32_t>(again);
      if (std::string m = Forward(input + 7 * more, 0); !m.empty()) return m;
    }
    if (is_last()) {
      outputs.emplace_back(handed_[kOut].begin(), handed_[kOut].end());
    }
    return Message(commsched_engine_evaluation_end(engine_));
  }

  const Pipeline run_;
  const int32_t stage_, replica_;
  using Values = std::array<float, kWide>;
  std::array<Values, kNumHanded> handed_ = {};
  std::vector<Values> inputs_, outputs_;  // By micro-batch.
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_group_t* pipe_ = nullptr;
  StepPlanHandle plan_;
  commsched_engine_t* engine_ = nullptr;
};

// One world of threads, or of each rank one that has joined as a process does.
class PipelineWorlds {
 public:
  explicit PipelineWorlds(const Pipeline& run) {
    if (run.backend == "inproc") {
      commsched_world_desc_t desc = commsched_world_desc_init();
      desc.size = run.size();
      Require(commsched_world_create_inproc(&desc, &threads_));
      return;
    }
    commsched_control_desc_t desc = commsched_control_desc_init();
    desc.size = run.size();
    Require(commsched_control_server_start(&desc, &server_));
  }
  ~PipelineWorlds() {
    commsched_world_destroy(threads_);
    commsched_control_server_destroy(server_);
  }
  PipelineWorlds(const PipelineWorlds&) = delete;
  PipelineWorlds& operator=(const PipelineWorlds&) = delete;

  // Of a rank that has joined, for it to release; null: that of the threads.
  commsched_world_t* Join(const Pipeline& run, int32_t rank) const {
    if (server_ == nullptr) return nullptr;
    const std::string control =
        "127.0.0.1:" + std::to_string(commsched_control_server_port(server_));
    commsched_join_desc_t desc = commsched_join_desc_init();
    desc.rank = rank;
    desc.size = run.size();
    desc.control = control.c_str();
    desc.backend = run.backend.c_str();
    commsched_world_t* world = nullptr;
    const commsched_status_t code = commsched_world_join(&desc, &world);
    Require(code);
    return world;
  }
  commsched_world_t* threads() const { return threads_; }

 private:
  commsched_world_t* threads_ = nullptr;
  commsched_control_server_t* server_ = nullptr;
};

struct PipelineResult {
  std::vector<std::string> messages;
  std::vector<std::vector<float>> weights;               // By rank.
  std::vector<std::vector<std::vector<float>>> outputs;  // By rank.
};

PipelineResult RunPipeline(const Pipeline& run) {
  const PipelineWorlds worlds(run);
  const auto size = static_cast<size_t>(run.size());
  PipelineResult result;
  result.messages.resize(size);
  result.weights.resize(size);
  result.outputs.resize(size);
  std::vector<std::thread> ranks;
  for (int32_t rank = 0; rank < run.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      commsched_world_t* const joined = worlds.Join(run, rank);
      const auto r = static_cast<size_t>(rank);
      {
        StageRank stage(run, joined == nullptr ? worlds.threads() : joined,
                        rank);
        result.messages[r] = stage.Train();
        result.weights[r] = stage.weights;
        result.outputs[r] = stage.outputs;
      }
      commsched_world_destroy(joined);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return result;
}

void ExpectPlainPipeline(const Pipeline& run) {
  const PipelineResult result = RunPipeline(run);
  for (const std::string& message : result.messages) ASSERT_EQ(message, "");
  const PlainPipeline plain = TrainPlainPipeline(run);
  for (int32_t s = 0; s < run.stages; ++s) {
    const auto root = static_cast<size_t>(s * run.replicas);
    for (uint64_t i = 0; i < kWide; ++i) {
      ASSERT_NEAR(result.weights[root][i],
                  plain.weights[static_cast<size_t>(s)][i], 1e-5)
          << "stage " << s << ", " << i;
    }
  }
  if (!run.evaluates) return;
  for (int32_t r = 0; r < run.replicas; ++r) {
    const auto rank = static_cast<size_t>((run.stages - 1) * run.replicas + r);
    ASSERT_EQ(result.outputs[rank].size(), kStageSteps);
    for (size_t e = 0; e < kStageSteps; ++e) {
      for (uint64_t i = 0; i < kWide; ++i) {
        ASSERT_NEAR(result.outputs[rank][e][i],
                    plain.outputs[e][static_cast<size_t>(r)][i], 1e-5);
      }
    }
  }
}

std::vector<std::string> PipelineBackends() {
#ifdef COMMSCHED_TEST_UCX
  return {"inproc", "ucx"};
#else
  return {"inproc"};
#endif
}

// (Stages and replicas, ZeRO stage, backend)
class RolesOfStepTest : public testing::TestWithParam<
                            std::tuple<Pipeline, uint32_t, std::string>> {
 protected:
  static Pipeline Run() {
    Pipeline run = std::get<0>(GetParam());
    run.zero_stage = std::get<1>(GetParam());
    run.backend = std::get<2>(GetParam());
    return run;
  }
};

TEST_P(RolesOfStepTest, StagesThatExchangeTrainAsOneModel) {
  ExpectPlainPipeline(Run());
}

TEST_P(RolesOfStepTest, StagesThatExchangeEvaluateAsOneModel) {
  Pipeline run = Run();
  run.evaluates = true;
  ExpectPlainPipeline(run);
}

TEST_P(RolesOfStepTest, AnEvaluationOfSeveralForwardsIsOneOfAllStages) {
  Pipeline run = Run();
  run.evaluates = true;
  run.uneven_evaluations = true;
  ExpectPlainPipeline(run);
}

TEST_P(RolesOfStepTest, StagesTakeTurnsWithSeveralMicroBatches) {
  Pipeline run = Run();
  run.micro_batches = 4;
  run.one_forward_one_backward = true;
  ExpectPlainPipeline(run);
}

INSTANTIATE_TEST_SUITE_P(
    PipelinesStagesAndBackends, RolesOfStepTest,
    Combine(testing::Values(Pipeline{2, 1}, Pipeline{3, 1}, Pipeline{2, 2}),
            testing::Values(0u, 2u, 3u), testing::ValuesIn(PipelineBackends())),
    [](const auto& info) {
      const Pipeline& run = std::get<0>(info.param);
      return std::to_string(run.stages) + "x" + std::to_string(run.replicas) +
             "_in_stage_" + std::to_string(std::get<1>(info.param)) + "_over_" +
             std::get<2>(info.param);
    });

// ---- Memory of roles --------------------------------------------------------

// Two stages of three modules, each with a bucket of its own.
class RolesArenaTest : public testing::Test {
 protected:
  RolesArenaTest() {
    core_.num_comm_lanes = 2;
    core_.priority = COMMSCHED_PRIORITY_OFF;
    core_.max_launches_in_flight = 1;
    options_.plan = &core_;
    options_.zero_stage = 3;
    options_.bucket_bytes = 1024;
    options_.micro_batches = 2;
    options_.accumulate_bytes = 1;
  }

  ModelHandle Describe(uint32_t stage, bool exchanges) {
    constexpr uint64_t kBlocks[2][3] = {{11, 2, 8}, {1, 1, 4}};
    ModelHandle model = NewModel();
    uint32_t id = 0;
    for (uint32_t m = 0; m < 3; ++m) {
      const std::string name = std::to_string(m);
      const uint64_t dims[] = {256 * kBlocks[stage][m]};
      Require(
          commsched_model_add_module(model.get(), name.c_str(), 1e5, 2e5, &id));
      Require(AddParameter(model.get(), m, name.c_str(), dims, 1, &id));
    }
    Require(commsched_model_add_group(model.get(), "pp", 2, &id));
    for (size_t a = 0; a < 2; ++a) {
      commsched_activation_desc_t desc = commsched_activation_desc_init();
      desc.name = a == 0 ? "y" : "dy";
      desc.dtype = COMMSCHED_F32;
      desc.count = kWide;
      desc.address = memory_[stage][a].data();
      Require(commsched_model_add_activation(model.get(), &desc, &id));
    }
    for (uint32_t m = 0; m < 3; ++m) {
      for (const bool backward : {false, true}) {
        const bool sends = (stage == 0) != backward;
        if (exchanges && !sends) AddHand(model.get(), m, sends, backward);
        AddOp(model.get(), m, sends, backward);
        if (exchanges && sends) AddHand(model.get(), m, sends, backward);
      }
    }
    return model;
  }

  static void AddHand(commsched_model_t* model, uint32_t module, bool sends,
                      bool backward) {
    commsched_module_collective_desc_t hand =
        commsched_module_collective_desc_init();
    hand.name = "hand";
    hand.kind = sends ? COMMSCHED_SEND : COMMSCHED_RECV;
    hand.group = 1;
    hand.backward = backward ? 1 : 0;
    hand.peer_offset = 1;
    commsched_access_t access = {};
    access.buffer = backward ? 1 : 0;
    access.mode = sends ? COMMSCHED_READ : COMMSCHED_WRITE;
    (sends ? hand.input : hand.output) = access;
    Require(commsched_model_add_collective(model, module, &hand));
  }

  // Makes what is sent then, or takes what was received.
  static void AddOp(commsched_model_t* model, uint32_t module, bool sends,
                    bool backward) {
    commsched_access_t access = {};
    access.buffer = backward ? 1 : 0;
    access.mode = sends ? COMMSCHED_WRITE : COMMSCHED_READ;
    commsched_module_op_desc_t op = commsched_module_op_desc_init();
    op.name = "compute";
    op.backward = backward ? 1 : 0;
    op.accesses = &access;
    op.num_accesses = 1;
    op.parameters = &module;
    op.num_parameters = 1;
    if (backward) {
      op.gradients = &module;
      op.num_gradients = 1;
    }
    uint32_t id = 0;
    Require(commsched_model_add_op(model, module, &op, &id));
  }

  static uint64_t ArenaOf(const commsched_step_plan_t* plan) {
    commsched_step_plan_info_t info = commsched_step_plan_info_init();
    Require(commsched_step_plan_get_info(plan, &info));
    return info.arena_bytes;
  }

  // Of the role that takes most, alone and without exchanges.
  uint64_t ArenaAlone() {
    uint64_t most = 0;
    for (uint32_t stage = 0; stage < 2; ++stage) {
      const ModelHandle model = Describe(stage, /*exchanges=*/false);
      most = std::max(
          most,
          ArenaOf(PlanModel(model.get(), /*num_ranks=*/2, options_).get()));
    }
    return most;
  }

  // Of both together, of that which takes most.
  commsched_status_t PlanTogether(uint64_t* out_arena) {
    const std::array<ModelHandle, 2> models = {Describe(0, true),
                                               Describe(1, true)};
    const std::array<uint32_t, 2> roles_of_pipe = {0, 1};
    const std::array<const uint32_t*, 2> role_of_member = {
        nullptr, roles_of_pipe.data()};
    std::array<commsched_step_plan_role_t, 2> roles;
    for (size_t i = 0; i < 2; ++i) {
      roles[i] = commsched_step_plan_role_init();
      roles[i].model = models[i].get();
      roles[i].num_ranks = 2;
      roles[i].role_of_member = role_of_member.data();
      roles[i].num_groups = 2;
    }
    std::array<commsched_step_plan_t*, 2> plans = {};
    const commsched_status_t code =
        commsched_step_plan_build(roles.data(), 2, &options_, plans.data());
    if (code != COMMSCHED_OK) return code;
    *out_arena = std::max(ArenaOf(plans[0]), ArenaOf(plans[1]));
    for (commsched_step_plan_t* plan : plans) commsched_step_plan_destroy(plan);
    return code;
  }

  commsched_plan_options_t core_ = commsched_plan_options_init();
  commsched_step_plan_options_t options_ = commsched_step_plan_options_init();
  std::array<std::array<std::array<float, kWide>, 2>, 2> memory_ = {};
};

// What one waits for of the other lives longer.
TEST_F(RolesArenaTest, IsLargerThanThatOfARoleAloneWhereItHasToBe) {
  const uint64_t alone = ArenaAlone();
  uint64_t together = 0;
  ASSERT_EQ(PlanTogether(&together), COMMSCHED_OK) << commsched_last_error();
  EXPECT_GT(together, alone);
  EXPECT_LE(together, 2 * alone);
}

TEST_F(RolesArenaTest, IsNoLargerThanTheLimitThatWasGiven) {
  core_.arena_bytes = ArenaAlone();
  uint64_t within = 0;
  ASSERT_EQ(PlanTogether(&within), COMMSCHED_OK) << commsched_last_error();
  EXPECT_LE(within, core_.arena_bytes);
}

// Any pipeline of up to 8 ranks.
TEST(RandomRolesTest, TrainAndEvaluateAsOneModel) {
  const int num_cases = test::PropertyCases(60);
  for (int i = 0; i < num_cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) {
      return static_cast<uint32_t>(random() % n);
    };
    Pipeline run;
    run.stages = 2 + static_cast<int32_t>(below(3));
    run.replicas =
        1 + static_cast<int32_t>(below(static_cast<uint64_t>(8 / run.stages)));
    run.zero_stage = below(4);
    run.micro_batches = 1 + below(5);
    run.one_forward_one_backward = below(2) == 0;
    run.evaluates = below(2) == 0;
    run.uneven_evaluations = run.evaluates && below(2) == 0;
    ExpectPlainPipeline(run);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace commsched::engine
