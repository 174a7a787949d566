#include "bench/trainer/by_hand.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/status_macros.h"
#include "engine/tables/kernels.h"
#include "examples/trainer/schedule.h"
#include "examples/trainer/sha256.h"

namespace commsched::bench {
namespace {

constexpr float kBeta1 = 0.9f, kBeta2 = 0.95f, kEpsilon = 1e-8f;
constexpr float kWeightDecay = 0.1f;

}  // namespace

absl::StatusOr<std::unique_ptr<ByHandRank>> ByHandRank::Create(
    const trainer::Options& options, const trainer::Sampler& sampler,
    World* world, int rank) {
  std::unique_ptr<ByHandRank> made(new ByHandRank(options, sampler, rank));
  ASSIGN_OR_RETURN(
      made->gpt_,
      trainer::Gpt::Create(options.config, options.local_batch(), options.seq));
  made->LayOut();
  made->FindBackwards();
  const auto tokens = static_cast<size_t>(options.local_batch() * options.seq);
  made->inputs_.resize(tokens);
  made->targets_.resize(tokens);
  CommSpec spec;
  spec.id = "by hand";
  RETURN_IF_ERROR(made->comm_.Create(world, spec, rank));
  return made;
}

void ByHandRank::LayOut() {
  const trainer::Architecture& model = gpt_->architecture();
  std::vector<engine::Module> modules;
  for (const trainer::ModuleSpec& spec : model.modules) {
    engine::Module module;
    module.name = spec.name;
    module.used.assign(spec.used.begin(), spec.used.end());
    modules.push_back(module);
  }
  for (const trainer::ParameterSpec& spec : model.parameters) {
    engine::Parameter parameter;
    parameter.name = spec.name;
    parameter.count = static_cast<uint64_t>(spec.count);
    parameter.num_dims = static_cast<uint32_t>(spec.shape.size());
    parameter.module = static_cast<uint32_t>(spec.module);
    parameters_.push_back(parameter);
  }
  const auto ranks = static_cast<uint64_t>(options_.ranks);
  layout_ = engine::BuildLayout(
      modules, parameters_,
      {.bucket_bytes = static_cast<uint64_t>(options_.bucket_bytes),
       .num_shards = ranks});
  memory_.resize(layout_.buckets.size());
  for (uint32_t b = 0; b < memory_.size(); ++b) {
    const uint64_t count = layout_.buckets[b].count;
    memory_[b].parameters.resize(count);
    memory_[b].gradients.resize(count);
    memory_[b].m.resize(count / ranks);
    memory_[b].v.resize(count / ranks);
    memory_[b].segments = engine::ShardSegments(
        layout_, parameters_, b, static_cast<uint64_t>(rank_), ranks);
  }
  for (size_t p = 0; p < parameters_.size(); ++p) {
    Memory& memory = memory_[layout_.slots[p].bucket];
    float* values = memory.parameters.data() + layout_.slots[p].offset;
    const trainer::ParameterSpec& spec = model.parameters[p];
    trainer::InitializeRange(spec, static_cast<uint64_t>(options_.seed), 0,
                             spec.count, values);
    values_.push_back(values);
    gradients_.push_back(memory.gradients.data() + layout_.slots[p].offset);
  }
}

void ByHandRank::FindBackwards() {
  for (Memory& memory : memory_) {
    memory.first_backward = 0;
    memory.last_backward = std::numeric_limits<int>::max();
  }
  for (int m = 0; m < gpt_->num_modules(); ++m) {
    for (const int p :
         gpt_->architecture().modules[static_cast<size_t>(m)].used) {
      Memory& memory = memory_[layout_.slots[static_cast<size_t>(p)].bucket];
      memory.first_backward = std::max(memory.first_backward, m);
      memory.last_backward = std::min(memory.last_backward, m);
    }
  }
}

absl::Status ByHandRank::Collect(commsched_collective_t kind,
                                 std::vector<float>* bucket) {
  const uint64_t part = bucket->size() / static_cast<uint64_t>(options_.ranks);
  float* const mine = bucket->data() + part * static_cast<uint64_t>(rank_);
  commsched_member_t member = {};
  const bool gather = kind == COMMSCHED_ALL_GATHER;
  member.input = gather ? mine : bucket->data();
  member.output = gather ? bucket->data() : mine;
  member.count = part;
  commsched_launch_t launch = {};
  launch.kind = kind;
  launch.dtype = COMMSCHED_F32;
  launch.reduce_op = gather ? COMMSCHED_SUM : COMMSCHED_AVG;
  launch.deterministic = options_.deterministic ? 1 : 0;
  launch.num_members = 1;
  launch.members = &member;
  return comm_.LaunchAndWait(launch);
}

absl::StatusOr<double> ByHandRank::Step(int64_t step) {
  sampler_.FillTraining(step, rank_ * options_.local_batch(),
                        options_.local_batch(), inputs_.data(),
                        targets_.data());
  gpt_->SetBatch(inputs_.data(), targets_.data());
  for (int m = 0; m < gpt_->num_modules(); ++m) gpt_->Forward(m, values_);
  const double loss = gpt_->loss();
  RETURN_IF_ERROR(Backward());
  RETURN_IF_ERROR(Optimize(step));
  return loss;
}

absl::Status ByHandRank::Backward() {
  for (int m = gpt_->num_modules(); m-- > 0;) {
    for (Memory& memory : memory_) {
      if (memory.first_backward != m) continue;
      std::fill(memory.gradients.begin(), memory.gradients.end(), 0.0f);
    }
    gpt_->Backward(m, values_, gradients_);
    for (size_t b = memory_.size(); b-- > 0;) {
      if (memory_[b].last_backward != m) continue;
      RETURN_IF_ERROR(Collect(COMMSCHED_REDUCE_SCATTER, &memory_[b].gradients));
    }
  }
  return absl::OkStatus();
}

absl::Status ByHandRank::Optimize(int64_t step) {
  static const commsched_engine_kernels_t kernels = engine::CpuKernels();
  const trainer::LearningRateSchedule schedule{.peak = options_.lr,
                                               .total_steps = options_.steps};
  commsched_adamw_args_t args = {};
  args.lr = static_cast<float>(trainer::LearningRateAt(schedule, step));
  args.beta1 = kBeta1;
  args.beta2 = kBeta2;
  args.epsilon = kEpsilon;
  const auto t = static_cast<double>(++steps_);
  const commsched_step_control_t control = {
      .gradient_scale = 1,
      .correction1 = 1 - std::pow(double{kBeta1}, t),
      .correction2 = 1 - std::pow(double{kBeta2}, t),
      .skip = 0};
  args.control = &control;
  args.gradient_dtype = COMMSCHED_F32;
  for (Memory& memory : memory_) {
    const uint64_t shard = memory.m.size() * static_cast<uint64_t>(rank_);
    for (const engine::Segment& segment : memory.segments) {
      args.master = memory.parameters.data() + shard + segment.in_shard;
      args.gradient = memory.gradients.data() + shard + segment.in_shard;
      args.m = memory.m.data() + segment.in_shard;
      args.v = memory.v.data() + segment.in_shard;
      args.count = segment.count;
      args.decay =
          parameters_[segment.parameter].num_dims >= 2 ? kWeightDecay : 0.0f;
      kernels.adamw(nullptr, commsched_stream_caller(), &args);
    }
    RETURN_IF_ERROR(Collect(COMMSCHED_ALL_GATHER, &memory.parameters));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ByHandRank::WeightsDigest() const {
  std::vector<size_t> by_name(parameters_.size());
  std::iota(by_name.begin(), by_name.end(), 0);
  std::sort(by_name.begin(), by_name.end(), [this](size_t a, size_t b) {
    return std::string(parameters_[a].name) < parameters_[b].name;
  });
  trainer::Sha256 digest;
  for (const size_t p : by_name) {
    digest.Update(values_[p], parameters_[p].count * sizeof(float));
  }
  return digest.HexDigest();
}

}  // namespace commsched::bench
