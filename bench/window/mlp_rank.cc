#include "bench/window/mlp_rank.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "examples/trainer/matmul.h"
#include "examples/trainer/random.h"

namespace commsched::bench {
namespace {

void Check(commsched_status_t code, const char* message) {
  if (code == COMMSCHED_OK) return;
  std::fprintf(stderr, "bench_window: %s\n", message);
  std::exit(1);
}

void CheckCore(commsched_status_t code) { Check(code, commsched_last_error()); }

void CheckEngine(commsched_status_t code) {
  Check(code, commsched_engine_last_error());
}

// Uniform in [-1, 1).
float Noise(uint64_t stream, uint64_t index) {
  return static_cast<float>(trainer::RandomBits(1, stream, index) >> 40) *
             0x1p-23f -
         1.0f;
}

}  // namespace

MlpRank::MlpRank(const MlpSpec& spec, const StepKind& kind,
                 commsched_world_t* world, int32_t rank,
                 double link_bytes_per_s, int64_t link_latency_ns)
    : spec_(spec), kind_(kind) {
  const auto rows = static_cast<size_t>(spec.batch * spec.hidden);
  results_.resize(rows * static_cast<size_t>(spec.layers + 1));
  d_result_.resize(rows);
  d_input_.resize(rows);
  for (size_t i = 0; i < rows; ++i) {
    results_[i] = Noise(1000 + static_cast<uint64_t>(rank), i);
  }
  CheckCore(commsched_context_create(world, rank, &context_));
  const int32_t all[] = {0, 1};
  CheckCore(commsched_group_create(context_, "dp_shard", all, 2, &group_));
  CreateModel();
  CreateEngine(link_bytes_per_s, link_latency_ns);
  SetWeights();
}

MlpRank::~MlpRank() {
  commsched_engine_destroy(engine_);
  commsched_model_destroy(model_);
  commsched_group_destroy(group_);
  commsched_context_destroy(context_);
}

void MlpRank::CreateEngine(double link_bytes_per_s, int64_t link_latency_ns) {
  commsched_plan_options_t plan = commsched_plan_options_init();
  plan.schedule = kind_.serial ? COMMSCHED_SERIAL : COMMSCHED_OVERLAP;
  plan.backend = commsched_context_backend(context_);
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  profile.link_bytes_per_s = link_bytes_per_s;
  profile.link_latency_ns = link_latency_ns;
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  options.plan = &plan;
  options.profile = &profile;
  options.zero_stage = kind_.zero_stage;
  options.micro_batches = kind_.micro_batches;
  options.accumulate_bytes = kind_.accumulate_bytes;
  options.bucket_bytes = spec_.bytes() / static_cast<uint64_t>(spec_.layers);
  commsched_step_plan_role_t role = commsched_step_plan_role_init();
  role.model = model_;
  role.num_ranks = 2;
  commsched_step_plan_t* step_plan = nullptr;
  CheckEngine(commsched_step_plan_build(&role, 1, &options, &step_plan));
  commsched_engine_desc_t desc = commsched_engine_desc_init();
  desc.context = context_;
  desc.group = group_;
  desc.step_plan = step_plan;
  CheckEngine(commsched_engine_create(&desc, &engine_));
  commsched_step_plan_destroy(step_plan);
}

void MlpRank::CreateModel() {
  CheckEngine(commsched_model_create(&model_));
  const double flops = 2.0 * static_cast<double>(spec_.batch) *
                       static_cast<double>(spec_.hidden * spec_.hidden);
  const uint64_t dims[] = {static_cast<uint64_t>(spec_.hidden),
                           static_cast<uint64_t>(spec_.hidden)};
  uint32_t id = 0;
  for (int64_t l = 0; l < spec_.layers; ++l) {
    const std::string name = "layer" + std::to_string(l);
    CheckEngine(commsched_model_add_module(model_, name.c_str(), flops,
                                           2 * flops, &id));
    const std::string weight = name + ".weight";
    commsched_parameter_desc_t desc = commsched_parameter_desc_init();
    desc.module = id;
    desc.name = weight.c_str();
    desc.dims = dims;
    desc.num_dims = 2;
    CheckEngine(commsched_model_add_parameter(model_, &desc, &id));
  }
}

void MlpRank::SetWeights() {
  std::vector<float> weights(static_cast<size_t>(spec_.hidden * spec_.hidden));
  // So that a layer keeps the size of what goes through it.
  const float scale = std::sqrt(6.0f / static_cast<float>(spec_.hidden));
  for (uint32_t l = 0; l < static_cast<uint32_t>(spec_.layers); ++l) {
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = scale * Noise(l, i);
    }
    CheckEngine(commsched_engine_set_parameter(engine_, l, weights.data(),
                                               weights.size()));
  }
}

MlpRank::Addresses MlpRank::Parameter(uint32_t layer) const {
  const void* weight = nullptr;
  void* gradient = nullptr;
  CheckEngine(
      commsched_engine_parameter_address(engine_, layer, &weight, &gradient));
  return {static_cast<const float*>(weight), static_cast<float*>(gradient)};
}

void MlpRank::Forward(uint32_t layer) {
  const float* const weight = Parameter(layer).weight;
  const int64_t h = spec_.hidden;
  float* out = Result(layer + 1);
  trainer::Matmul({spec_.batch, h, h}, {Result(layer), h}, {weight, h},
                  {out, h});
  for (int64_t i = 0; i < spec_.batch * h; ++i) {
    out[i] = out[i] > 0 ? out[i] : 0;
  }
}

void MlpRank::Backward(uint32_t layer) {
  const auto [weight, gradient] = Parameter(layer);
  const int64_t h = spec_.hidden;
  const float* out = Result(layer + 1);
  for (int64_t i = 0; i < spec_.batch * h; ++i) {
    const auto at = static_cast<size_t>(i);
    d_result_[at] = out[i] > 0 ? d_result_[at] : 0;
  }
  trainer::Matmul({h, h, spec_.batch}, {Result(layer), h, /*transposed=*/true},
                  {d_result_.data(), h}, {gradient, h, /*accumulate=*/true});
  trainer::Matmul({spec_.batch, h, h}, {d_result_.data(), h},
                  {weight, h, /*transposed=*/true}, {d_input_.data(), h});
  std::swap(d_result_, d_input_);
}

double MlpRank::Step() {
  const auto layers = static_cast<uint32_t>(spec_.layers);
  double loss = 0;
  CheckEngine(commsched_engine_step_begin(engine_, nullptr));
  for (uint32_t mb = 0; mb < kind_.micro_batches; ++mb) {
    for (uint32_t l = 0; l < layers; ++l) {
      const commsched_pass_t pass = {COMMSCHED_FORWARD, l, mb, 0};
      CheckEngine(commsched_engine_pass_begin(engine_, &pass));
      Forward(l);
      CheckEngine(commsched_engine_pass_end(engine_, &pass));
    }
    // The gradient of half the sum of squares is the result.
    loss = 0;
    for (size_t i = 0; i < d_result_.size(); ++i) {
      d_result_[i] = Result(layers)[i];
      loss += double{d_result_[i]} * d_result_[i];
    }
    for (uint32_t l = layers; l-- > 0;) {
      const commsched_pass_t pass = {COMMSCHED_BACKWARD, l, mb, 0};
      CheckEngine(commsched_engine_pass_begin(engine_, &pass));
      Backward(l);
      CheckEngine(commsched_engine_pass_end(engine_, &pass));
    }
  }
  commsched_engine_update_args_t args = commsched_engine_update_args_init();
  args.lr = 1e-4f;
  CheckEngine(commsched_engine_update(engine_, &args));
  CheckEngine(commsched_engine_step_end(engine_));
  CheckEngine(commsched_engine_drain(engine_));
  return loss;
}

uint64_t MlpRank::collectives() const {
  commsched_plan_info_t info = commsched_plan_info_init();
  CheckCore(commsched_plan_get_info(commsched_engine_plan(engine_), &info));
  return info.num_collectives;
}

uint64_t MlpRank::gradient_bytes() const {
  commsched_engine_info_t info = commsched_engine_info_init();
  CheckEngine(commsched_engine_get_info(engine_, &info));
  // ZeRO-3's arena has parameters, too.
  return info.gradient_bytes + (kind_.zero_stage == 3 ? info.arena_bytes : 0);
}

}  // namespace commsched::bench
