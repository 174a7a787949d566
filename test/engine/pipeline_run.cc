#include "test/engine/pipeline_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "commsched/checkpoint.h"
#include "commsched/control.h"
#include "commsched/engine_ops.h"
#include "commsched/step_plan.h"
#include "test/engine/create_engine.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

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

using StageGradients = std::vector<std::vector<float>>;  // By stage.

// The mean over the replicas. One that has cancelled the step adds nothing.
StageGradients GradientsOfStages(
    const Pipeline& run, uint32_t step,
    const std::vector<std::vector<float>>& weights) {
  const size_t stages = weights.size();
  StageGradients sums(stages, std::vector<float>(kWide));
  for (int32_t r = 0; r < run.replicas; ++r) {
    if (step == run.cancelled.step && r == run.cancelled.rank % run.replicas) {
      continue;
    }
    for (uint32_t mb = 0; mb < run.MicroBatchesIn(step, r); ++mb) {
      for (uint64_t i = 0; i < kWide; ++i) {
        std::vector<float> x = {StageInput(r, step, mb, i)};
        for (size_t s = 0; s < stages; ++s) x.push_back(weights[s][i] * x[s]);
        float gradient = x.back();
        for (size_t s = stages; s-- > 0;) {
          sums[s][i] += gradient * x[s] / static_cast<float>(run.replicas);
          gradient *= weights[s][i];
        }
      }
    }
  }
  return sums;
}

double NormOfStages(const StageGradients& gradients) {
  double squares = 0;
  for (const std::vector<float>& stage : gradients) {
    for (const float each : stage) squares += double{each} * double{each};
  }
  return std::sqrt(squares);
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
    // The last stage is the first of it.
    std::reverse(pipe.begin(), pipe.end());
    if (run.has_norm_group()) AddGroup("norm", pipe, &norm_group_);
    Plan();
  }
  ~StageRank() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(norm_group_);
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
    desc.norm_group = norm_group_;
    desc.clip_norm = run_.clip_norm;
    desc.loss_scale = run_.loss_scale;
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
    commsched_engine_info_t info = commsched_engine_info_init();
    RETURN_MESSAGE_IF_ERROR(commsched_engine_get_info(engine_, &info));
    skipped = info.skipped_steps;
    const bool root = replica_ == 0;
    return Message(commsched_engine_gather_parameter(
        engine_, 0, /*root=*/0, root ? weights.data() : nullptr,
        root ? kWide : 0));
  }

  std::vector<float> weights;               // On replica 0.
  std::vector<std::vector<float>> outputs;  // By evaluation: of the last stage.
  std::vector<double> norms;                // Of the steps not skipped.
  uint64_t skipped = 0;

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
    commsched_step_plan_options_t options = commsched_step_plan_options_init();
    commsched_plan_options_t core = commsched_plan_options_init();
    core.backend = commsched_context_backend(context_);
    core.deterministic = run_.deterministic ? 1 : 0;
    options.plan = &core;
    options.norm_members =
        run_.has_norm_group() ? static_cast<uint32_t>(run_.stages) : 0;
    for (int32_t s = 0; s < run_.stages; ++s) {
      models.push_back(DescribeStage(s));
      roles_of_pipe.push_back(static_cast<uint32_t>(s));
    }
    const std::array<const uint32_t*, 2> role_of_member = {
        nullptr, roles_of_pipe.data()};
    const std::vector<uint32_t> roles_of_norm(roles_of_pipe.rbegin(),
                                              roles_of_pipe.rend());
    std::vector<commsched_step_plan_role_t> roles;
    for (const ModelHandle& model : models) {
      commsched_step_plan_role_t& role =
          roles.emplace_back(commsched_step_plan_role_init());
      role.model = model.get();
      role.num_ranks = run_.replicas;
      role.role_of_member = role_of_member.data();
      role.num_groups = 2;
      if (!run_.has_norm_group()) continue;
      role.role_of_norm_member = roles_of_norm.data();
      role.num_norm_members = options.norm_members;
    }
    const commsched_optimizer_table_t sgd = commsched_sgd(0, 0);
    options.optimizer = &sgd;
    options.zero_stage = run_.zero_stage;
    options.micro_batches = run_.micro_batches;
    options.uneven_evaluations = run_.uneven_evaluations ? 1 : 0;
    options.clips = run_.clip_norm > 0 ? 1 : 0;
    options.scales_loss = run_.loss_scale > 0 ? 1 : 0;
    options.check_finite = run_.check_finite ? 1 : 0;
    options.cancel_all = run_.cancel_all ? 1 : 0;
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

  std::string Backward(uint32_t step, uint32_t micro_batch) {
    RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, 0, micro_batch));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_begin(engine_, 1, micro_batch));
    const void* values = nullptr;
    void* gradients = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_parameter_address(engine_, 0, &values, &gradients));
    const auto* const w = static_cast<const float*>(values);
    auto* const g = static_cast<float*>(gradients);
    const auto scale = static_cast<float>(*scale_);
    for (uint64_t i = 0; i < kWide; ++i) {
      if (is_last()) {
        handed_[kOutGradient][i] = scale * outputs_[micro_batch][i];
      }
      g[i] += handed_[kOutGradient][i] * inputs_[micro_batch][i];
      handed_[kInGradient][i] = handed_[kOutGradient][i] * w[i];
    }
    if (step == run_.spoiled_step && rank() == run_.spoiling_rank) {
      g[3] = std::numeric_limits<float>::infinity();
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_op_end(engine_, 1, micro_batch));
    return Message(BackwardEnd(engine_, 0, micro_batch));
  }

  std::string Step(uint32_t step) {
    const uint32_t comes = run_.MicroBatchesIn(step, replica_);
    commsched_step_desc_t desc = commsched_step_desc_init();
    desc.micro_batches = comes;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_loss_scale_address(engine_, &scale_));
    RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(
        engine_, comes == run_.micro_batches ? nullptr : &desc));
    const bool cancels = Cancels(step);
    uint32_t ended = 0;
    for (const commsched_pass_t& pass : PassesOf(stage_)) {
      if (pass.micro_batch >= comes) continue;
      if (cancels && ended++ == run_.cancelled.passes) {
        if (!run_.cancelled.in_pass) break;
        RETURN_MESSAGE_IF_ERROR(commsched_engine_pass_begin(engine_, &pass));
        break;
      }
      std::string message = pass.kind == COMMSCHED_FORWARD
                                ? Forward(step, pass.micro_batch)
                                : Backward(step, pass.micro_batch);
      if (!message.empty()) return message;
    }
    if (cancels) {
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_step_cancel(engine_, run_.cancelled.scope));
    }
    RETURN_MESSAGE_IF_ERROR(UpdateWith(
        engine_, rank() == run_.other_rate_rank ? 0.5f : kStageRate));
    if (run_.needs_norm() && !run_.IsSkipped(step)) {
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_norm(engine_, &norms.emplace_back()));
    }
    return Message(commsched_engine_step_end(engine_));
  }

  int32_t rank() const { return stage_ * run_.replicas + replica_; }
  bool Cancels(uint32_t step) const {
    if (step != run_.cancelled.step) return false;
    return run_.cancelled.scope == COMMSCHED_CANCEL_ALL
               ? rank() == run_.cancelled.rank
               : replica_ == run_.cancelled.rank % run_.replicas;
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
  commsched_group_t* norm_group_ = nullptr;
  const double* scale_ = nullptr;  // Of the loss.
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

}  // namespace

// At least one; of every other replica one more is missing.
uint32_t Pipeline::MicroBatchesIn(uint32_t step, int32_t replica) const {
  if (step != short_step) return micro_batches;
  const uint32_t missing = 1 + static_cast<uint32_t>(replica % 2);
  return micro_batches > missing ? micro_batches - missing : 1;
}

// On all ranks.
bool Pipeline::IsSkipped(uint32_t step) const {
  return (step == spoiled_step && needs_norm()) ||
         (step == cancelled.step && cancelled.scope == COMMSCHED_CANCEL_ALL);
}

PlainPipeline TrainPlainPipeline(const Pipeline& run) {
  PlainPipeline plain;
  for (int32_t s = 0; s < run.stages; ++s) {
    plain.weights.push_back(FirstWeights(s));
  }
  for (uint32_t step = 0; step < kStageSteps; ++step) {
    if (!run.IsSkipped(step)) {
      const StageGradients gradients =
          GradientsOfStages(run, step, plain.weights);
      plain.norms.push_back(NormOfStages(gradients));
      const double clip = run.clip_norm / (plain.norms.back() + 1e-6);
      const double factor = run.clip_norm > 0 ? std::min(clip, 1.0) : 1.0;
      for (size_t s = 0; s < gradients.size(); ++s) {
        for (uint64_t i = 0; i < kWide; ++i) {
          plain.weights[s][i] -=
              kStageRate * gradients[s][i] * static_cast<float>(factor);
        }
      }
    }
    auto& outputs = plain.outputs.emplace_back();
    for (int32_t r = 0; r < run.replicas; ++r) {
      std::vector<float>& out = outputs.emplace_back(kWide);
      for (uint64_t i = 0; i < kWide; ++i) {
        out[i] = StageInput(r, step + 100, 0, i);
        for (const std::vector<float>& each : plain.weights) out[i] *= each[i];
      }
    }
  }
  return plain;
}

PipelineResult RunPipeline(const Pipeline& run) {
  const PipelineWorlds worlds(run);
  const auto size = static_cast<size_t>(run.size());
  PipelineResult result;
  result.messages.resize(size);
  result.weights.resize(size);
  result.outputs.resize(size);
  result.norms.resize(size);
  result.skipped.resize(size);
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
        result.norms[r] = stage.norms;
        result.skipped[r] = stage.skipped;
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
  uint64_t skipped = 0;
  for (uint32_t step = 0; step < kStageSteps; ++step) {
    skipped += run.IsSkipped(step) ? 1 : 0;
  }
  for (size_t r = 0; r < result.norms.size(); ++r) {
    EXPECT_EQ(result.skipped[r], skipped) << "rank " << r;
    if (!run.needs_norm()) continue;
    ASSERT_EQ(result.norms[r].size(), plain.norms.size());
    for (size_t i = 0; i < plain.norms.size(); ++i) {
      EXPECT_NEAR(result.norms[r][i], plain.norms[i], 1e-5 * plain.norms[i])
          << "rank " << r;
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

}  // namespace commsched::engine
