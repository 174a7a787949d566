#include "examples/trainer/rank.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "examples/trainer/c_status.h"
#include "examples/trainer/job.h"
#include "examples/trainer/optimizer_constants.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

// A rank that is this late will not come. With an emulated link, or between
// processes, a launch may take any time; then the engine's default holds.
constexpr int64_t kLaunchTimeoutS = 60;

// 0: the engine's default.
int64_t LaunchTimeoutNs(const Options& options) {
  int64_t seconds = options.timeout_s;
  if (seconds == 0 && options.link.bytes_per_s == 0 &&
      !options.has_processes()) {
    seconds = kLaunchTimeoutS;
  }
  return seconds * 1'000'000'000;
}

// Sets the cores of the rank that has least of one: all ranks plan alike.
absl::Status SetLeastCores(const std::vector<std::string>& shown,
                           commsched_cost_profile_t* profile) {
  for (const std::string& one : shown) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(one, ' ');
    uint32_t ranks = 0;
    uint32_t cores = 0;
    if (!absl::SimpleAtoi(parts.first, &ranks) ||
        !absl::SimpleAtoi(parts.second, &cores) || cores == 0) {
      return absl::InternalError(
          absl::StrCat("a rank shows '", one, "' of its cores"));
    }
    if (uint64_t{ranks} * profile->num_cores <=
        uint64_t{profile->num_ranks_sharing} * cores) {
      continue;
    }
    profile->num_ranks_sharing = ranks;
    profile->num_cores = cores;
  }
  return absl::OkStatus();
}

// Links and cores, if the links are known: they are once all have joined;
// --timeout says how long that may take.
absl::Status FillCosts(const Options& options, commsched_context_t* context,
                       commsched_cost_profile_t* profile) {
  SetCores(options, context, profile);
  if (options.has_processes()) {
    const absl::StatusOr<std::vector<std::string>> joined = Gather(
        context, "joined",
        absl::StrCat(profile->num_ranks_sharing, " ", profile->num_cores),
        std::chrono::seconds(options.timeout_s));
    if (!joined.ok()) return joined.status();
    TRAINER_RETURN_IF_ERROR(SetLeastCores(*joined, profile));
  }
  const absl::StatusOr<bool> known = SetLinks(options, context, profile);
  if (!known.ok()) return known.status();
  if (!*known) profile->num_ranks_sharing = profile->num_cores = 0;
  return absl::OkStatus();
}

// Records that a trace keeps at most: 40 bytes each.
constexpr uint64_t kMaxTraceRecords = uint64_t{1} << 18;
constexpr uint64_t kMinTraceRecords = 1024;

// Room for all steps of most runs: per step two records per op.
uint64_t TraceCapacity(const Gpt& gpt,
                       const commsched_attention_info_t& attention,
                       const Options& options) {
  const Architecture& model = gpt.architecture();
  const auto micro_batches = static_cast<uint64_t>(options.micro_batches);
  const uint64_t forwards = options.recompute ? 2 : 1;
  uint64_t ops = (forwards + 1) * model.modules.size() * micro_batches +
                 4 * model.parameters.size() + 4;
  ops += static_cast<uint64_t>(options.config.layers) * micro_batches *
         (forwards * (attention.forward_ops + attention.forward_collectives) +
          attention.backward_ops + attention.backward_collectives);
  if (options.zero == 3) ops += 2 * model.parameters.size() * micro_batches;
  if (options.dtype != "fp32" || options.reduce_dtype != "fp32") {
    ops += 2 * model.parameters.size() * micro_batches;  // fold and cast
  }
  if (options.accumulate_bytes > 0) {
    ops += 2 * model.parameters.size() * micro_batches;
  }
  if (!options.offload_dir.empty()) ops += 2 * model.parameters.size();
  const uint64_t records = 2 * ops + 1;
  const auto steps = static_cast<uint64_t>(options.steps + 1);
  if (records > kMaxTraceRecords / steps) return kMaxTraceRecords;
  return std::max(records * steps, kMinTraceRecords);
}

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
  TRAINER_RETURN_IF_ERROR(rank->CreateContext(world));
  const absl::StatusOr<commsched_attention_info_t> attention =
      SequenceAttention::Measure(options, index);
  if (!attention.ok()) return attention.status();
  absl::StatusOr<std::unique_ptr<Gpt>> gpt = Gpt::Create(
      options.config, options.local_batch(), options.seq,
      {.shard = {.ranks = options.sp, .rank = index % options.sp},
       .attention_bytes = static_cast<int64_t>(attention->memory_bytes),
       .recompute = options.recompute,
       .sharing_machine = NumSharing(options, rank->context())});
  if (!gpt.ok()) return gpt.status();
  rank->gpt_ = *std::move(gpt);
  const auto tokens = static_cast<size_t>(options.local_batch() * options.seq);
  rank->inputs_.resize(tokens);
  rank->targets_.resize(tokens);
  rank->wide_ = std::make_unique<WideParameters>(rank->gpt_->architecture(),
                                                 DTypeOf(options.dtype));
  TRAINER_RETURN_IF_ERROR(rank->CreateHandles(*attention));
  TRAINER_RETURN_IF_ERROR(rank->CreatePool());
  TRAINER_RETURN_IF_ERROR(rank->RegisterModel());
  TRAINER_RETURN_IF_ERROR(rank->PlanSteps());
  return rank;
}

absl::Status Rank::CreateContext(commsched_world_t* world) {
  commsched_context_t* context = nullptr;
  TRAINER_RETURN_IF_ERROR(FromCore(
      commsched_context_create(world, static_cast<int32_t>(index_), &context)));
  context_.reset(context);
  return absl::OkStatus();
}

absl::Status Rank::CreateHandles(const commsched_attention_info_t& attention) {
  std::vector<int32_t> all(static_cast<size_t>(options_.ranks));
  std::iota(all.begin(), all.end(), 0);
  commsched_group_t* group = nullptr;
  TRAINER_RETURN_IF_ERROR(FromCore(
      commsched_group_create(context_.get(), "dp_shard", all.data(),
                             static_cast<uint32_t>(all.size()), &group)));
  group_.reset(group);
  TRAINER_RETURN_IF_ERROR(CreateSequenceGroup());
  commsched_trace_t* trace = nullptr;
  TRAINER_RETURN_IF_ERROR(FromCore(commsched_trace_create(
      context_.get(), TraceCapacity(*gpt_, attention, options_), &trace)));
  trace_.reset(trace);
  return absl::OkStatus();
}

// The ranks next to each other share sequences.
absl::Status Rank::CreateSequenceGroup() {
  const commsched_axis_t axes[] = {
      {"dp", static_cast<int32_t>(options_.data_ranks())},
      {"sp", static_cast<int32_t>(options_.sp)}};
  commsched_mesh_t* mesh = nullptr;
  TRAINER_RETURN_IF_ERROR(
      FromCore(commsched_mesh_create(context_.get(), axes, 2, &mesh)));
  commsched_group_t* group = nullptr;
  const absl::Status status =
      FromCore(commsched_mesh_group(mesh, "sp", &group));
  sequence_group_.reset(group);
  commsched_mesh_destroy(mesh);
  return status;
}

absl::Status Rank::CreatePool() {
  if (options_.offload_dir.empty()) return absl::OkStatus();
  commsched_file_pool_t* pool = nullptr;
  TRAINER_RETURN_IF_ERROR(FromEngine(
      commsched_file_pool_create(options_.offload_dir.c_str(), &pool)));
  pool_.reset(pool);
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
  commsched_step_plan_role_t role = commsched_step_plan_role_init();
  role.model = model_.get();
  role.num_ranks = static_cast<int32_t>(options_.ranks);
  commsched_step_plan_t* made = nullptr;
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_step_plan_build(&role, 1, &options, &made)));
  step_plan_.reset(made);
  return absl::OkStatus();
}

absl::Status Rank::CreateEngine() {
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
  commsched_engine_t* engine = nullptr;
  TRAINER_RETURN_IF_ERROR(FromEngine(commsched_engine_create(&desc, &engine)));
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
  commsched_model_t* made = nullptr;
  TRAINER_RETURN_IF_ERROR(FromEngine(commsched_model_create(&made)));
  model_.reset(made);
  const Architecture& model = gpt_->architecture();
  for (size_t m = 0; m < model.modules.size(); ++m) {
    const ModuleSpec& module = model.modules[m];
    const ModuleFlops flops = ModuleFlopsOf(static_cast<int>(m));
    commsched_module_id_t id = 0;
    TRAINER_RETURN_IF_ERROR(FromEngine(commsched_model_add_module(
        model_.get(), module.name.c_str(), static_cast<double>(flops.forward),
        static_cast<double>(flops.backward), &id)));
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
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_model_add_parameter(model_.get(), &desc, &id)));
  }
  for (size_t m = 0; m < model.modules.size(); ++m) {
    const ModuleSpec& module = model.modules[m];
    for (size_t i = module.owned.size(); i < module.used.size(); ++i) {
      TRAINER_RETURN_IF_ERROR(FromEngine(commsched_model_use_parameter(
          model_.get(), static_cast<uint32_t>(m),
          static_cast<uint32_t>(module.used[i]))));
    }
  }
  TRAINER_RETURN_IF_ERROR(RegisterRecomputed());
  return attention_.Register(options_, index_, sequence_group_.get(),
                             wide_.get(), gpt_.get(), model_.get());
}

absl::Status Rank::RegisterRecomputed() {
  for (int m = 0; m < gpt_->num_modules(); ++m) {
    const int first = gpt_->recomputed_from(m);
    if (first > m) continue;
    TRAINER_RETURN_IF_ERROR(FromEngine(commsched_model_recompute(
        model_.get(), static_cast<uint32_t>(first), static_cast<uint32_t>(m))));
  }
  return absl::OkStatus();
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
  TRAINER_RETURN_IF_ERROR(FromEngine(
      commsched_engine_loss_scale_address(engine_.get(), &loss_scale_)));
  TRAINER_RETURN_IF_ERROR(FindGathered());
  if (checkpoint == nullptr) return InitializeWeights();
  return FromEngine(
      commsched_engine_checkpoint_load(checkpoint, engine_.get()));
}

// Makes only what this rank keeps.
absl::Status Rank::InitializeWeights() {
  const std::vector<ParameterSpec>& parameters =
      gpt_->architecture().parameters;
  std::vector<float> values;
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    uint64_t offset = 0;
    uint64_t count = 0;
    TRAINER_RETURN_IF_ERROR(FromEngine(
        commsched_engine_parameter_range(engine_.get(), p, &offset, &count)));
    if (count == 0) continue;
    values.resize(count);
    InitializeRange(parameters[p], static_cast<uint64_t>(options_.seed),
                    static_cast<int64_t>(offset), static_cast<int64_t>(count),
                    values.data());
    TRAINER_RETURN_IF_ERROR(FromEngine(commsched_engine_set_parameter_range(
        engine_.get(), p, offset, values.data(), count)));
  }
  return absl::OkStatus();
}

absl::Status Rank::FindParameter(size_t p) {
  return FromEngine(commsched_engine_parameter_address(
      engine_.get(), static_cast<uint32_t>(p), &value_addresses_[p],
      &gradient_addresses_[p]));
}

absl::Status Rank::FindParameters(int m) {
  for (int p : gpt_->architecture().modules[static_cast<size_t>(m)].used) {
    TRAINER_RETURN_IF_ERROR(FindParameter(static_cast<size_t>(p)));
  }
  wide_->ReadValues(m, value_addresses_, &values_);
  return absl::OkStatus();
}

// Between steps those have no address.
absl::Status Rank::FindGathered() {
  for (size_t p = 0; p < value_addresses_.size(); ++p) {
    TRAINER_RETURN_IF_ERROR(FindParameter(p));
    gathered_.push_back(value_addresses_[p] == nullptr);
  }
  return absl::OkStatus();
}

void Rank::MeasureLive(int m) {
  const Architecture& model = gpt_->architecture();
  for (int p : model.modules[static_cast<size_t>(m)].used) {
    const auto i = static_cast<size_t>(p);
    if (!gathered_[i]) continue;
    const uint64_t bytes = static_cast<uint64_t>(model.parameters[i].count) *
                           BytesOf(DTypeOf(options_.dtype));
    live_.Include(value_addresses_[i], bytes);
    if (gradient_addresses_[i] != nullptr) {
      live_.Include(gradient_addresses_[i], bytes);
    }
  }
}

absl::StatusOr<double> Rank::Step(int64_t step) {
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_step_begin(engine_.get(), nullptr)));
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
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_update(engine_.get(), &args)));
  TRAINER_RETURN_IF_ERROR(FromEngine(commsched_engine_step_end(engine_.get())));
  return loss / static_cast<double>(options_.micro_batches);
}

std::optional<double> Rank::GradientNorm() const {
  double norm = 0;
  if (commsched_engine_norm(engine_.get(), &norm) != COMMSCHED_OK) {
    return std::nullopt;
  }
  return norm;
}

absl::Status Rank::Forward(uint32_t micro_batch) {
  commsched_engine_t* engine = engine_.get();
  for (int m = 0; m < gpt_->num_modules(); ++m) {
    const auto id = static_cast<commsched_module_id_t>(m);
    const commsched_pass_t pass = {COMMSCHED_FORWARD, id, micro_batch, 0};
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_pass_begin(engine, &pass)));
    TRAINER_RETURN_IF_ERROR(FindParameters(m));
    MeasureLive(m);
    gpt_->Forward(m, values_);
    TRAINER_RETURN_IF_ERROR(attention_.Run(engine_.get(), m, /*backward=*/false,
                                           micro_batch, values_, {}));
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_pass_end(engine, &pass)));
  }
  return absl::OkStatus();
}

// The forward of module `m`, within backward.
absl::Status Rank::Recompute(int m, uint32_t micro_batch) {
  const commsched_pass_t pass = {COMMSCHED_RECOMPUTE,
                                 static_cast<commsched_module_id_t>(m),
                                 micro_batch, 0};
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_pass_begin(engine_.get(), &pass)));
  TRAINER_RETURN_IF_ERROR(FindParameters(m));
  MeasureLive(m);
  gpt_->Recompute(m, values_);
  TRAINER_RETURN_IF_ERROR(attention_.Run(engine_.get(), m, /*backward=*/false,
                                         micro_batch, values_, {}));
  return FromEngine(commsched_engine_pass_end(engine_.get(), &pass));
}

absl::Status Rank::Backward(uint32_t micro_batch) {
  commsched_engine_t* engine = engine_.get();
  for (int m = gpt_->num_modules(); m-- > 0;) {
    for (int r = gpt_->recomputed_from(m); r <= m; ++r) {
      TRAINER_RETURN_IF_ERROR(Recompute(r, micro_batch));
    }
    const commsched_pass_t pass = {COMMSCHED_BACKWARD,
                                   static_cast<commsched_module_id_t>(m),
                                   micro_batch, 0};
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_pass_begin(engine, &pass)));
    TRAINER_RETURN_IF_ERROR(FindParameters(m));
    MeasureLive(m);
    wide_->BeginGradients(m, gradient_addresses_, &gradients_);
    gpt_->Backward(m, values_, gradients_);
    TRAINER_RETURN_IF_ERROR(attention_.Run(engine_.get(), m, /*backward=*/true,
                                           micro_batch, values_, gradients_));
    wide_->EndGradients(m);
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_pass_end(engine, &pass)));
  }
  return absl::OkStatus();
}

absl::Status Rank::Drain() {
  return FromEngine(commsched_engine_drain(engine_.get()));
}

absl::Status Rank::ForEachModule(
    const std::function<absl::Status(int)>& forward) {
  commsched_engine_t* engine = engine_.get();
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_evaluation_begin(engine)));
  for (int m = 0; m < gpt_->num_modules(); ++m) {
    const commsched_pass_t pass = {COMMSCHED_FORWARD,
                                   static_cast<commsched_module_id_t>(m), 0, 0};
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_pass_begin(engine, &pass)));
    TRAINER_RETURN_IF_ERROR(forward(m));
    TRAINER_RETURN_IF_ERROR(
        FromEngine(commsched_engine_pass_end(engine, &pass)));
  }
  return FromEngine(commsched_engine_evaluation_end(engine));
}

absl::Status Rank::EvaluateModule(int m) {
  TRAINER_RETURN_IF_ERROR(FindParameters(m));
  gpt_->Forward(m, values_);
  return attention_.Run(engine_.get(), m, /*backward=*/false, /*micro_batch=*/0,
                        values_, {});
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
    TRAINER_RETURN_IF_ERROR(
        ForEachModule([this](int m) { return EvaluateModule(m); }));
    loss += gpt_->loss();
  }
  return loss / static_cast<double>(chunks);
}

void Rank::Abort(const absl::Status& reason) {
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  abort_reason_ = absl::StrFormat("rank %d: %s", index_, reason.message());
  commsched_engine_abort(engine_.get(), abort_reason_.c_str());
}

absl::Status Rank::CopyWeights(int m) {
  const Architecture& model = gpt_->architecture();
  for (int p : model.modules[static_cast<size_t>(m)].owned) {
    const auto i = static_cast<size_t>(p);
    weights_[i].resize(static_cast<size_t>(model.parameters[i].count));
    TRAINER_RETURN_IF_ERROR(FromEngine(commsched_engine_get_parameter(
        engine_.get(), static_cast<uint32_t>(p), weights_[i].data(),
        weights_[i].size())));
  }
  return absl::OkStatus();
}

absl::Status Rank::ReadWeights(bool keep) {
  weights_.resize(gpt_->architecture().parameters.size());
  return ForEachModule([this, keep](int m) {
    if (keep) TRAINER_RETURN_IF_ERROR(CopyWeights(m));
    return attention_.RunEmpty(engine_.get(), m);
  });
}

absl::Status Rank::WriteTrace(const std::string& path) const {
  return FromCore(commsched_trace_write_kineto(trace_.get(), path.c_str()));
}

}  // namespace commsched::trainer
