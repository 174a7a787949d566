#include "examples/trainer/rank.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/job.h"
#include "examples/trainer/options.h"
#include "examples/trainer/sha256.h"

namespace commsched::trainer {
namespace {

// 0: the engine's default. A rank that is 60 s late will not come; but with an
// emulated link, or between processes, a launch may take any time.
int64_t LaunchTimeoutNs(const Options& options) {
  const bool is_slow = options.link.bytes_per_s > 0 || options.has_processes();
  const int64_t seconds =
      options.timeout_s == 0 && !is_slow ? 60 : options.timeout_s;
  return seconds * 1'000'000'000;
}

// Links and cores, if the links are known: they are once all have joined;
// --timeout says how long that may take.
absl::Status FillCosts(const Options& options, commsched_context_t* context,
                       commsched_cost_profile_t* profile) {
  SetCores(options, context, profile);
  if (options.has_processes()) {
    struct Cores {
      uint32_t num_ranks;
      uint32_t num_cores;
    };
    TRAINER_ASSIGN_OR_RETURN(
        const std::vector<Cores> all,
        GatherValues<Cores>(context, "joined",
                            {profile->num_ranks_sharing, profile->num_cores},
                            std::chrono::seconds(options.timeout_s)));
    // All ranks plan alike: for the one that has least of a core.
    const Cores least = *std::max_element(
        all.begin(), all.end(), [](const Cores& a, const Cores& b) {
          return uint64_t{a.num_ranks} * b.num_cores <
                 uint64_t{b.num_ranks} * a.num_cores;
        });
    profile->num_ranks_sharing = least.num_ranks;
    profile->num_cores = least.num_cores;
  }
  TRAINER_ASSIGN_OR_RETURN(const bool known,
                           SetLinks(options, context, profile));
  if (!known) profile->num_ranks_sharing = profile->num_cores = 0;
  return absl::OkStatus();
}

// Records that a trace keeps at most: 40 bytes each.
constexpr uint64_t kMaxTraceRecords = uint64_t{1} << 18;
constexpr uint64_t kMinTraceRecords = 1024;  // As a trace wants.

}  // namespace

Rank::Rank(const Options& options, const Sampler& sampler, int64_t index)
    : options_(options),
      sampler_(sampler),
      index_(index),
      schedule_{.peak = options.lr, .total_steps = options.steps} {}

absl::StatusOr<std::unique_ptr<Rank>> Rank::Create(const Options& options,
                                                   const Sampler& sampler,
                                                   commsched_world_t* world,
                                                   int64_t index) {
  std::unique_ptr<Rank> rank(new Rank(options, sampler, index));
  TRAINER_CALL(commsched_context_create(world, static_cast<int32_t>(index),
                                        Out(rank->context_)));
  TRAINER_ASSIGN_OR_RETURN(const commsched_attention_info_t attention,
                           SequenceAttention::Measure(options, index));
  TRAINER_ASSIGN_OR_RETURN(
      std::unique_ptr<Gpt> gpt,
      Gpt::Create(
          options.config, options.local_batch(), options.seq,
          {.shard = {.ranks = options.sp, .rank = index % options.sp},
           .attention_bytes = static_cast<int64_t>(attention.memory_bytes),
           .recompute = options.recompute,
           .sharing_machine = NumSharing(options, rank->context())}));
  rank->gpt_ = std::move(gpt);
  const auto tokens = static_cast<size_t>(options.local_batch() * options.seq);
  rank->inputs_.resize(tokens);
  rank->targets_.resize(tokens);
  rank->wide_ = std::make_unique<WideParameters>(rank->gpt_->architecture(),
                                                 DTypeOf(options.dtype));
  TRAINER_RETURN_IF_ERROR(rank->CreateHandles());
  TRAINER_RETURN_IF_ERROR(rank->RegisterModel());
  TRAINER_RETURN_IF_ERROR(rank->PlanSteps());
  return rank;
}

// The ranks next to each other share sequences.
absl::Status Rank::CreateHandles() {
  std::vector<int32_t> all(static_cast<size_t>(options_.ranks));
  std::iota(all.begin(), all.end(), 0);
  TRAINER_CALL(commsched_group_create(context_.get(), "dp_shard", all.data(),
                                      static_cast<uint32_t>(all.size()),
                                      Out(group_)));
  TRAINER_CALL(commsched_group_create(
      context_.get(), "sp", all.data() + index_ / options_.sp * options_.sp,
      static_cast<uint32_t>(options_.sp), Out(sequence_group_)));
  if (!options_.offload_dir.empty()) {
    TRAINER_CALL(
        commsched_file_pool_create(options_.offload_dir.c_str(), Out(pool_)));
  }
  if (!options_.offload_gradients_dir.empty()) {
    TRAINER_CALL(commsched_file_pool_create(
        options_.offload_gradients_dir.c_str(), Out(gradient_pool_)));
  }
  return absl::OkStatus();
}

absl::Status Rank::PlanSteps() {
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  TRAINER_RETURN_IF_ERROR(FillCosts(options_, context_.get(), &profile));
  commsched_plan_options_t plan = commsched_plan_options_init();
  plan.backend = commsched_context_backend(context_.get());
  plan.schedule = options_.serial ? COMMSCHED_SERIAL : COMMSCHED_OVERLAP;
  plan.deterministic = options_.deterministic;
  plan.max_launches_in_flight = static_cast<uint32_t>(options_.cap_launches);
  plan.max_bytes_in_flight = options_.cap_bytes;
  plan.coalesce_bytes = options_.coalesce_bytes;
  plan.arena_bytes = options_.arena_bytes;
  plan.partition_bytes = options_.partition_bytes;
  plan.priority = options_.priority == "on"    ? COMMSCHED_PRIORITY_ON
                  : options_.priority == "off" ? COMMSCHED_PRIORITY_OFF
                                               : COMMSCHED_PRIORITY_AUTO;
  const commsched_optimizer_table_t optimizer =
      options_.optimizer == "sgd" ? commsched_sgd(kMomentum, 0)
                                  : commsched_adamw(kBeta1, kBeta2, kEpsilon);
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  options.plan = &plan;
  options.profile = &profile;
  options.optimizer = &optimizer;
  options.zero_stage = static_cast<uint32_t>(options_.zero);
  options.micro_batches = static_cast<uint32_t>(options_.micro_batches);
  options.bucket_bytes = options_.bucket_bytes;
  options.bucket_merge = options_.bucket_merge == "on"
                             ? COMMSCHED_BUCKET_MERGE_ON
                             : COMMSCHED_BUCKET_MERGE_OFF;
  options.edge_bucket_bytes = options_.edge_bytes;
  options.parameter_dtype = DTypeOf(options_.dtype);
  options.reduce_dtype = DTypeOf(options_.reduce_dtype);
  options.clips = options_.clip > 0 ? 1 : 0;
  options.scales_loss = options_.loss_scale > 0 ? 1 : 0;
  options.max_live_bytes = options_.max_live_bytes;
  options.persist_below = options_.persist_below;
  options.accumulate_bytes = options_.accumulate_bytes;
  if (pool_ != nullptr) {
    options.offloads = 1;
    options.offload_staging_bytes = options_.offload_staging_bytes;
  }
  options.offloads_gradients = gradient_pool_ != nullptr ? 1 : 0;
  commsched_step_plan_role_t role = commsched_step_plan_role_init();
  role.model = model_.get();
  role.num_ranks = static_cast<int32_t>(options_.ranks);
  return FromC(commsched_step_plan_build(&role, 1, &options, Out(step_plan_)));
}

// With room for all steps of most runs: per step two records per op.
absl::Status Rank::CreateTrace() {
  TRAINER_ASSIGN_OR_RETURN(const commsched_step_plan_info_t info,
                           PlannedInfo());
  const uint64_t records = 2 * info.num_ops + 1;
  const auto steps = static_cast<uint64_t>(options_.steps + 1);
  return FromC(commsched_trace_create(
      context_.get(),
      std::clamp(records * steps, kMinTraceRecords, kMaxTraceRecords),
      Out(trace_)));
}

absl::Status Rank::CreateEngine() {
  TRAINER_RETURN_IF_ERROR(CreateTrace());
  commsched_engine_desc_t desc = commsched_engine_desc_init();
  desc.step_plan = step_plan_.get();
  desc.context = context_.get();
  desc.group = group_.get();
  commsched_group_t* const groups[] = {sequence_group_.get()};
  desc.groups = groups;
  desc.num_groups = options_.sp > 1 ? 1 : 0;
  desc.trace = trace_.get();
  if (!options_.observers.empty()) desc.observers = options_.observers.c_str();
  const std::string flight_path =
      absl::StrFormat("%s/rank%d.flight", options_.flight_dir, index_);
  if (!options_.flight_dir.empty()) desc.flight_path = flight_path.c_str();
  desc.launch_timeout_ns = LaunchTimeoutNs(options_);
  desc.weight_decay = kWeightDecay;
  desc.loss_scale = static_cast<float>(options_.loss_scale);
  desc.clip_norm = static_cast<float>(options_.clip);
  // Every step: the least that an op ever took is what no plan can go below.
  // The first steps alone can be slower than all later ones.
  desc.measure_steps = static_cast<uint32_t>(
      std::min<int64_t>(options_.steps, std::numeric_limits<uint32_t>::max()));
  commsched_pool_t pool = commsched_pool_init();
  if (pool_ != nullptr) {
    pool = commsched_file_pool_table(pool_.get());
    desc.optimizer_pool = &pool;
  }
  commsched_pool_t gradient_pool = commsched_pool_init();
  if (gradient_pool_ != nullptr) {
    gradient_pool = commsched_file_pool_table(gradient_pool_.get());
    desc.gradient_pool = &gradient_pool;
  }
  commsched_engine_t* engine = nullptr;
  TRAINER_CALL(commsched_engine_create(&desc, &engine));
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  engine_.reset(engine);
  if (!abort_reason_.empty()) {
    commsched_engine_abort(engine, abort_reason_.c_str());
  }
  return absl::OkStatus();
}

// Modules and parameters in the order of the architecture, so that ids are its
// indices.
absl::Status Rank::RegisterModel() {
  TRAINER_CALL(commsched_model_create(Out(model_)));
  const Architecture& model = gpt_->architecture();
  for (size_t m = 0; m < model.modules.size(); ++m) {
    const ModuleSpec& module = model.modules[m];
    const ModuleFlops flops = ModuleFlopsOf(static_cast<int>(m));
    commsched_module_id_t id = 0;
    TRAINER_CALL(commsched_model_add_module(
        model_.get(), module.name.c_str(), static_cast<double>(flops.forward),
        static_cast<double>(flops.backward), &id));
  }
  for (const ParameterSpec& parameter : model.parameters) {
    const std::vector<uint64_t> dims(parameter.shape.begin(),
                                     parameter.shape.end());
    commsched_parameter_desc_t desc = commsched_parameter_desc_init();
    desc.module = static_cast<uint32_t>(parameter.module);
    desc.name = parameter.name.c_str();
    desc.dims = dims.data();
    desc.num_dims = static_cast<uint32_t>(dims.size());
    commsched_parameter_id_t id = 0;
    TRAINER_CALL(commsched_model_add_parameter(model_.get(), &desc, &id));
  }
  for (size_t m = 0; m < model.modules.size(); ++m) {
    const ModuleSpec& module = model.modules[m];
    for (size_t i = module.owned.size(); i < module.used.size(); ++i) {
      TRAINER_CALL(
          commsched_model_use_parameter(model_.get(), static_cast<uint32_t>(m),
                                        static_cast<uint32_t>(module.used[i])));
    }
  }
  for (int m = 0; m < gpt_->num_modules(); ++m) {
    const int first = gpt_->recomputed_from(m);
    if (first > m) continue;
    TRAINER_CALL(commsched_model_recompute(
        model_.get(), static_cast<uint32_t>(first), static_cast<uint32_t>(m)));
  }
  return attention_.Register(options_, index_, sequence_group_.get(),
                             wide_.get(), gpt_.get(), model_.get());
}

// Of this rank's tokens; ops of shared attention have their own.
ModuleFlops Rank::ModuleFlopsOf(int m) const {
  if (options_.sp > 1 && gpt_->architecture().is_attention(m)) return {};
  ModuleFlops flops =
      CountFlops(gpt_->architecture(), m, options_.local_batch(), options_.seq);
  flops.forward /= options_.sp;
  flops.backward /= options_.sp;
  return flops;
}

absl::Status Rank::Build(const commsched_engine_checkpoint_t* checkpoint) {
  TRAINER_RETURN_IF_ERROR(CreateEngine());
  const size_t count = gpt_->architecture().parameters.size();
  value_addresses_.resize(count);
  gradient_addresses_.resize(count);
  values_.resize(count);
  gradients_.resize(count);
  TRAINER_CALL(
      commsched_engine_loss_scale_address(engine_.get(), &loss_scale_));
  for (size_t p = 0; p < count; ++p) {
    TRAINER_RETURN_IF_ERROR(FindParameter(p));
    // Between steps those that are gathered have no address.
    gathered_.push_back(value_addresses_[p] == nullptr);
  }
  if (checkpoint == nullptr) return InitializeWeights();
  return FromC(commsched_engine_checkpoint_load(checkpoint, engine_.get()));
}

// Makes only what this rank keeps.
absl::Status Rank::InitializeWeights() {
  const std::vector<ParameterSpec>& parameters =
      gpt_->architecture().parameters;
  std::vector<float> values;
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    uint64_t offset = 0;
    uint64_t count = 0;
    TRAINER_CALL(
        commsched_engine_parameter_range(engine_.get(), p, &offset, &count));
    if (count == 0) continue;
    values.resize(count);
    InitializeRange(parameters[p], static_cast<uint64_t>(options_.seed),
                    static_cast<int64_t>(offset), static_cast<int64_t>(count),
                    values.data());
    TRAINER_CALL(commsched_engine_set_parameter_range(engine_.get(), p, offset,
                                                      values.data(), count));
  }
  return absl::OkStatus();
}

absl::Status Rank::FindParameter(size_t p) {
  return FromC(commsched_engine_parameter_address(
      engine_.get(), static_cast<uint32_t>(p), &value_addresses_[p],
      &gradient_addresses_[p]));
}

void Rank::MeasureLive(size_t p) {
  const uint64_t bytes =
      static_cast<uint64_t>(gpt_->architecture().parameters[p].count) *
      BytesOf(DTypeOf(options_.dtype));
  const void* const pieces[] = {value_addresses_[p], gradient_addresses_[p]};
  for (const void* piece : pieces) {
    if (piece == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(piece);
    live_begin_ = std::min(live_begin_, begin);
    live_end_ = std::max(live_end_, begin + bytes);
  }
}

absl::StatusOr<double> Rank::Step(int64_t step) {
  TRAINER_CALL(commsched_engine_step_begin(engine_.get(), nullptr));
  in_step_ = true;
  double loss = 0;
  for (int64_t mb = 0; mb < options_.micro_batches; ++mb) {
    const int64_t first =
        (mb * options_.data_ranks() + data_index()) * options_.local_batch();
    sampler_.FillTraining(step, first, options_.local_batch(), inputs_.data(),
                          targets_.data());
    gpt_->SetBatch(inputs_.data(), targets_.data());
    gpt_->set_loss_scale(static_cast<float>(*loss_scale_) /
                         static_cast<float>(options_.micro_batches));
    TRAINER_RETURN_IF_ERROR(Forward(static_cast<uint32_t>(mb)));
    loss += gpt_->loss();
    TRAINER_RETURN_IF_ERROR(Backward(static_cast<uint32_t>(mb)));
  }
  commsched_engine_update_args_t args = commsched_engine_update_args_init();
  args.lr = static_cast<float>(LearningRate(step));
  TRAINER_CALL(commsched_engine_update(engine_.get(), &args));
  TRAINER_CALL(commsched_engine_step_end(engine_.get()));
  in_step_ = false;
  return loss / static_cast<double>(options_.micro_batches);
}

std::optional<double> Rank::GradientNorm() const {
  double norm = 0;
  if (commsched_engine_norm(engine_.get(), &norm) != COMMSCHED_OK) {
    return std::nullopt;
  }
  return norm;
}

template <typename Body>
absl::Status Rank::RunPass(uint32_t kind, int m, uint32_t micro_batch,
                           Body body) {
  const commsched_pass_t pass = {kind, static_cast<commsched_module_id_t>(m),
                                 micro_batch, 0};
  TRAINER_CALL(commsched_engine_pass_begin(engine_.get(), &pass));
  for (int parameter :
       gpt_->architecture().modules[static_cast<size_t>(m)].used) {
    const auto p = static_cast<size_t>(parameter);
    TRAINER_RETURN_IF_ERROR(FindParameter(p));
    if (in_step_ && gathered_[p]) MeasureLive(p);
  }
  wide_->ReadValues(m, value_addresses_, &values_);
  const bool backward = kind == COMMSCHED_BACKWARD;
  body(m);
  TRAINER_RETURN_IF_ERROR(
      attention_.Run(engine_.get(), m, backward, micro_batch, values_,
                     backward ? GradientView(gradients_) : GradientView()));
  if (backward) wide_->EndGradients(m);
  return FromC(commsched_engine_pass_end(engine_.get(), &pass));
}

absl::Status Rank::Forward(uint32_t micro_batch) {
  for (int m = 0; m < gpt_->num_modules(); ++m) {
    TRAINER_RETURN_IF_ERROR(
        RunPass(COMMSCHED_FORWARD, m, micro_batch,
                [this](int module) { gpt_->Forward(module, values_); }));
  }
  return absl::OkStatus();
}

absl::Status Rank::Backward(uint32_t micro_batch) {
  for (int m = gpt_->num_modules(); m-- > 0;) {
    for (int r = gpt_->recomputed_from(m); r <= m; ++r) {
      TRAINER_RETURN_IF_ERROR(
          RunPass(COMMSCHED_RECOMPUTE, r, micro_batch,
                  [this](int module) { gpt_->Recompute(module, values_); }));
    }
    TRAINER_RETURN_IF_ERROR(
        RunPass(COMMSCHED_BACKWARD, m, micro_batch, [this](int module) {
          wide_->BeginGradients(module, gradient_addresses_, &gradients_);
          gpt_->Backward(module, values_, gradients_);
        }));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Rank::Evaluate() {
  const int64_t windows = options_.val_batches * options_.batch;
  const int64_t chunks =
      windows / (options_.data_ranks() * options_.local_batch());
  double loss = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t first =
        (chunk * options_.data_ranks() + data_index()) * options_.local_batch();
    sampler_.FillValidation(windows, first, options_.local_batch(),
                            inputs_.data(), targets_.data());
    gpt_->SetBatch(inputs_.data(), targets_.data());
    TRAINER_CALL(commsched_engine_evaluation_begin(engine_.get()));
    TRAINER_RETURN_IF_ERROR(Forward(/*micro_batch=*/0));
    TRAINER_CALL(commsched_engine_evaluation_end(engine_.get()));
    loss += gpt_->loss();
  }
  return loss / static_cast<double>(chunks);
}

void Rank::Abort(const absl::Status& reason) {
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  abort_reason_ = absl::StrFormat("rank %d: %s", index_, reason.message());
  commsched_engine_abort(engine_.get(), abort_reason_.c_str());
}

absl::StatusOr<std::string> Rank::WeightsSha256() {
  const std::vector<ParameterSpec>& parameters =
      gpt_->architecture().parameters;
  std::vector<uint32_t> by_name(parameters.size());
  std::iota(by_name.begin(), by_name.end(), 0);
  std::sort(by_name.begin(), by_name.end(), [&](uint32_t a, uint32_t b) {
    return parameters[a].name < parameters[b].name;
  });
  Sha256 digest;
  std::vector<float> values;  // On rank 0, with room for the largest.
  for (const uint32_t p : by_name) {
    if (index_ == 0) values.resize(static_cast<size_t>(parameters[p].count));
    TRAINER_CALL(commsched_engine_gather_parameter(
        engine_.get(), p, /*root=*/0, values.data(), values.size()));
    digest.Update(values.data(), values.size() * sizeof(float));
  }
  return digest.HexDigest();
}

}  // namespace commsched::trainer
