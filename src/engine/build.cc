// Registration and build: everything that happens before the first step.

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine.h"
#include "kernels.h"

namespace commsched::engine {
namespace {

constexpr uint64_t kDefaultBucketBytes = uint64_t{25} << 20;
constexpr uint64_t kMaxElements = uint64_t{1} << 40;

// The description with the documented meaning of 0 put in.
commsched_engine_desc_t WithDefaults(commsched_engine_desc_t desc) {
  if (desc.micro_batches == 0) desc.micro_batches = 1;
  if (desc.bucket_bytes == 0) desc.bucket_bytes = kDefaultBucketBytes;
  if (desc.beta1 == 0 && desc.beta2 == 0) {
    desc.beta1 = 0.9f;
    desc.beta2 = 0.95f;
  }
  if (desc.epsilon == 0) desc.epsilon = 1e-8f;
  // The engine has copies.
  desc.plan = nullptr;
  desc.profile = nullptr;
  desc.kernels = nullptr;
  return desc;
}

commsched_plan_options_t PlanOptions(const commsched_plan_options_t* given) {
  return given == nullptr ? commsched_plan_options_init() : *given;
}

commsched_cost_profile_t Profile(const commsched_cost_profile_t* given) {
  return given == nullptr ? commsched_cost_profile_init() : *given;
}

StepSpec MakeSpec(const commsched_engine_desc_t& desc,
                  const commsched_plan_options_t& plan) {
  StepSpec spec;
  spec.zero_stage = desc.zero_stage;
  spec.micro_batches = desc.micro_batches;
  spec.world = commsched_group_size(desc.group);
  spec.clip = desc.clip_norm > 0;
  spec.deterministic = plan.deterministic != 0;
  return spec;
}

Status CheckFinite(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return Status();
  return InvalidArgument(std::string("engine: ") + field + " is " +
                         std::to_string(value) + "; it must be 0 or more");
}

Status CheckBeta(const char* field, float value) {
  if (value >= 0 && value < 1) return Status();
  return InvalidArgument(std::string("engine: ") + field + " is " +
                         std::to_string(value) + "; it must be in [0, 1)");
}

Status CheckName(const char* object, const char* name) {
  if (name == nullptr || *name == '\0') {
    return InvalidArgument(std::string("engine: a ") + object +
                           " needs a name that is not empty");
  }
  return Status();
}

Status NoMemory(const std::string& what, uint64_t bytes) {
  return Status(COMMSCHED_RESOURCE_EXHAUSTED, "engine: no memory for " + what +
                                                  " (" + std::to_string(bytes) +
                                                  " bytes)");
}

template <typename T>
Status AllocateZeros(const std::string& what, uint64_t count, Array<T>* out) {
  *out = Array<T>::Zeros(count);
  if (out->data() == nullptr) return NoMemory(what, count * sizeof(T));
  return Status();
}

}  // namespace

Engine::Engine(const commsched_engine_desc_t& desc)
    : desc_(WithDefaults(desc)),
      kernels_(CompleteKernels(desc.kernels)),
      plan_options_(PlanOptions(desc.plan)),
      profile_(Profile(desc.profile)),
      spec_(MakeSpec(desc_, plan_options_)),
      group_rank_(static_cast<uint32_t>(commsched_group_rank(desc.group))) {}

Engine::~Engine() = default;

Status Engine::CheckDesc(const commsched_engine_desc_t& desc) {
  if (desc.context == nullptr)
    return InvalidArgument("engine: context is NULL");
  if (desc.group == nullptr) return InvalidArgument("engine: group is NULL");
  if (desc.zero_stage == 3) {
    return Status(COMMSCHED_UNIMPLEMENTED,
                  "engine: zero_stage is 3; this version has 0, 1 and 2");
  }
  if (desc.zero_stage > 3) {
    return InvalidArgument("engine: zero_stage is " +
                           std::to_string(desc.zero_stage) +
                           "; it must be 0, 1 or 2");
  }
  if (desc.launch_timeout_ns < 0) {
    return InvalidArgument("engine: launch_timeout_ns is " +
                           std::to_string(desc.launch_timeout_ns) +
                           "; it must be 0 or more");
  }
  if (desc.profile != nullptr && desc.profile->op_cost_ns != nullptr) {
    return InvalidArgument(
        "engine: profile.op_cost_ns is not NULL; the engine makes the graph");
  }
  ENGINE_RETURN_IF_ERROR(CheckBeta("beta1", desc.beta1));
  ENGINE_RETURN_IF_ERROR(CheckBeta("beta2", desc.beta2));
  ENGINE_RETURN_IF_ERROR(CheckFinite("epsilon", desc.epsilon));
  ENGINE_RETURN_IF_ERROR(CheckFinite("weight_decay", desc.weight_decay));
  return CheckFinite("clip_norm", desc.clip_norm);
}

Status Engine::CheckRegistering() const {
  if (phase_ == Phase::kRegistering) return Status();
  return FailedPrecondition(std::string("engine: it is ") +
                            (built() ? "built" : "prepared") +
                            "; nothing can be added and build comes once");
}

Status Engine::AddModule(const char* name, double forward_flops,
                         double backward_flops, uint32_t* out_module) {
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  ENGINE_RETURN_IF_ERROR(CheckName("module", name));
  ENGINE_RETURN_IF_ERROR(CheckFinite("forward_flops", forward_flops));
  ENGINE_RETURN_IF_ERROR(CheckFinite("backward_flops", backward_flops));
  if (!module_names_.insert(name).second) {
    return Status(
        COMMSCHED_ALREADY_EXISTS,
        std::string("engine: another module is called '") + name + "'");
  }
  *out_module = static_cast<uint32_t>(modules_.size());
  modules_.push_back({name, forward_flops, backward_flops, {}});
  return Status();
}

Status Engine::AddParameter(uint32_t module, const char* name,
                            const uint64_t* dims, uint32_t num_dims,
                            uint32_t* out_parameter) {
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  ENGINE_RETURN_IF_ERROR(CheckName("parameter", name));
  if (module >= modules_.size()) {
    return Status(COMMSCHED_NOT_FOUND,
                  std::string("engine: parameter '") + name + "' in module " +
                      std::to_string(module) + "; there are " +
                      std::to_string(modules_.size()));
  }
  if (num_dims == 0) {
    return InvalidArgument(std::string("engine: parameter '") + name +
                           "' has no dimensions");
  }
  uint64_t total = layout_.num_elements;
  uint64_t count = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    if (dims[i] == 0) {
      return InvalidArgument(std::string("engine: parameter '") + name +
                             "': dimension " + std::to_string(i) + " is 0");
    }
    if (dims[i] > (kMaxElements - total) / count) {
      return Status(COMMSCHED_OUT_OF_RANGE,
                    std::string("engine: with parameter '") + name +
                        "' the model has more than 2^40 elements");
    }
    count *= dims[i];
  }
  if (!parameter_names_.insert(name).second) {
    return Status(
        COMMSCHED_ALREADY_EXISTS,
        std::string("engine: another parameter is called '") + name + "'");
  }
  *out_parameter = static_cast<uint32_t>(parameters_.size());
  modules_[module].used.push_back(*out_parameter);
  parameters_.push_back({name, count, num_dims, module});
  layout_.num_elements = total + count;
  return Status();
}

Status Engine::CheckParameterId(uint32_t parameter) const {
  if (parameter < parameters_.size()) return Status();
  return Status(COMMSCHED_NOT_FOUND,
                "engine: parameter " + std::to_string(parameter) +
                    "; there are " + std::to_string(parameters_.size()));
}

Status Engine::UseParameter(uint32_t module, uint32_t parameter) {
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  ENGINE_RETURN_IF_ERROR(CheckParameterId(parameter));
  if (module >= modules_.size()) {
    return Status(COMMSCHED_NOT_FOUND,
                  "engine: module " + std::to_string(module) + "; there are " +
                      std::to_string(modules_.size()));
  }
  Module& user = modules_[module];
  const Parameter& used = parameters_[parameter];
  if (std::find(user.used.begin(), user.used.end(), parameter) !=
      user.used.end()) {
    return Status(COMMSCHED_ALREADY_EXISTS, "engine: module '" + user.name +
                                                "' uses parameter '" +
                                                used.name + "' already");
  }
  if (used.module > module) {
    return InvalidArgument(
        "engine: module '" + user.name + "' would use parameter '" + used.name +
        "', which the later module '" + modules_[used.module].name + "' owns");
  }
  user.used.push_back(parameter);
  return Status();
}

Status Engine::Prepare() {
  if (phase_ == Phase::kPrepared) return OutOfOrder("prepare");
  ENGINE_RETURN_IF_ERROR(CheckRegistering());
  if (parameters_.empty()) {
    return FailedPrecondition("engine: no parameters were added before build");
  }
  layout_ =
      BuildLayout(modules_, parameters_, desc_.bucket_bytes,
                  static_cast<uint64_t>(spec_.world), desc_.edge_bucket_bytes);
  ENGINE_RETURN_IF_ERROR(BuildStepGraph(spec_, modules_, layout_, &graph_));
  num_ops_ = commsched_graph_num_ops(graph_.graph.get());
  ENGINE_RETURN_IF_ERROR(Allocate());
  ENGINE_RETURN_IF_ERROR(MakePlan());
  phase_ = Phase::kPrepared;
  return Status();
}

Status Engine::Build() {
  if (phase_ != Phase::kPrepared) ENGINE_RETURN_IF_ERROR(Prepare());
  ENGINE_RETURN_IF_ERROR(CreateSession());
  ENGINE_RETURN_IF_ERROR(Bind());
  phase_ = Phase::kBetweenSteps;
  return Status();
}

// More than the machine has is refused rather than left to overcommit: the
// first touch of such memory would kill the process.
Status Engine::CheckMemory() const {
  const uint64_t elements = layout_.padded_elements();
  const uint64_t shard = elements / spec_.num_shards();
  const uint64_t bytes =
      sizeof(float) *
      (elements + 2 * shard + (spec_.owned_gradients() ? shard : elements));
  if (bytes <= PhysicalBytes()) return Status();
  return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                "engine: parameters, gradients and optimizer state take " +
                    std::to_string(bytes) + " bytes; the machine has " +
                    std::to_string(PhysicalBytes()) + " bytes of memory");
}

Status Engine::Allocate() {
  ENGINE_RETURN_IF_ERROR(CheckMemory());
  memory_.resize(layout_.buckets.size());
  for (size_t b = 0; b < memory_.size(); ++b) {
    BucketMemory& memory = memory_[b];
    const std::string name = "bucket " + std::to_string(b);
    const uint64_t count = layout_.buckets[b].count;
    const uint64_t shard = count / spec_.num_shards();
    ENGINE_RETURN_IF_ERROR(AllocateZeros(name, count, &memory.parameters));
    ENGINE_RETURN_IF_ERROR(AllocateZeros(name, 2 * shard, &memory.state));
    ENGINE_RETURN_IF_ERROR(spec_.owned_gradients()
                               ? AllocateZeros(name, shard, &memory.shard)
                               : AllocateZeros(name, count, &memory.gradients));
    memory.segments = ShardSegments(
        layout_, parameters_, static_cast<uint32_t>(b),
        spec_.zero_stage == 0 ? 0 : group_rank_, spec_.num_shards());
  }
  if (desc_.measure_steps > 0) {
    op_cost_ns_.assign(num_ops_, std::numeric_limits<int64_t>::max());
  }
  if (!spec_.clip) return Status();
  const uint64_t blocks = graph_.local_blocks;
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", blocks, &local_sums_));
  ENGINE_RETURN_IF_ERROR(
      AllocateZeros("norms", blocks * spec_.num_shards(), &all_sums_));
  ENGINE_RETURN_IF_ERROR(AllocateZeros("norms", 1, &total_));
  return AllocateZeros("norms", 1, &factor_);
}

// Gradient buckets of stage 2 share memory: unless a limit was given, within
// half of what they would take side by side, three quarters if that is not
// enough (a large bucket that is alive all the time), and else all of it.
Status Engine::MakePlan() {
  commsched_plan_options_t options = plan_options_;
  const uint64_t all_bytes = layout_.padded_elements() * sizeof(float);
  std::vector<uint64_t> limits = {plan_options_.arena_bytes};
  if (spec_.owned_gradients() && plan_options_.arena_bytes == 0) {
    limits = {all_bytes / 2, all_bytes / 4 * 3, 0};
  }
  commsched_plan_t* plan = nullptr;
  commsched_status_t code = COMMSCHED_RESOURCE_EXHAUSTED;
  for (uint64_t limit : limits) {
    options.arena_bytes = limit;
    code = commsched_plan_build(graph_.graph.get(), &options, &profile_, &plan);
    if (code != COMMSCHED_RESOURCE_EXHAUSTED) break;
  }
  ENGINE_RETURN_IF_ERROR(Status::FromCall(code, "planning the step"));
  plan_.reset(plan);
  return Status();
}

std::vector<commsched_binding_t> Engine::Bindings() const {
  std::vector<commsched_binding_t> bindings;
  auto add = [&](commsched_buffer_id_t buffer, const auto& memory) {
    if (buffer == kNoId || memory.data() == nullptr) return;
    commsched_binding_t binding = {};
    binding.buffer = buffer;
    binding.address = memory.data();
    binding.bytes = memory.bytes();
    bindings.push_back(binding);
  };
  for (size_t b = 0; b < memory_.size(); ++b) {
    const BucketIds& ids = graph_.buckets[b];
    add(ids.parameters, memory_[b].parameters);
    add(ids.gradients, memory_[b].gradients);
    add(ids.shard, memory_[b].shard);
    add(ids.state, memory_[b].state);
  }
  add(graph_.local_sums, local_sums_);
  add(graph_.all_sums, all_sums_);
  add(graph_.total, total_);
  add(graph_.factor, factor_);
  return bindings;
}

Status Engine::CreateSession() {
  const std::vector<commsched_binding_t> bindings = Bindings();
  commsched_session_desc_t desc = commsched_session_desc_init();
  desc.context = desc_.context;
  desc.plan = plan_.get();
  desc.groups = &desc_.group;
  desc.num_groups = 1;
  desc.bindings = bindings.data();
  desc.num_bindings = static_cast<uint32_t>(bindings.size());
  desc.trace = desc_.trace;
  desc.launch_timeout_ns = desc_.launch_timeout_ns;
  commsched_session_t* session = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_create(&desc, &session), "creating the session"));
  session_.reset(session);
  return Status();
}

// Resolves the addresses that a step uses.
Status Engine::Bind() {
  for (size_t b = 0; b < memory_.size(); ++b) {
    BucketMemory& memory = memory_[b];
    const BucketIds& ids = graph_.buckets[b];
    const uint64_t shard_begin =
        spec_.zero_stage == 0
            ? 0
            : group_rank_ * (layout_.buckets[b].count / spec_.num_shards());
    memory.my_parameters = memory.parameters.data() + shard_begin;
    if (!spec_.owned_gradients()) {
      memory.all_gradients = memory.gradients.data();
      memory.my_gradients = memory.gradients.data() + shard_begin;
      continue;
    }
    void* address = nullptr;
    ENGINE_RETURN_IF_ERROR(Status::FromCall(
        commsched_session_address(session_.get(), ids.first_backward,
                                  ids.gradients, &address),
        "finding a gradient bucket"));
    memory.all_gradients = static_cast<float*>(address);
    memory.my_gradients = memory.shard.data();
  }
  return Status();
}

Status Engine::GetInfo(commsched_engine_info_t* out_info) const {
  if (!built()) {
    return FailedPrecondition("engine: get_info before build");
  }
  commsched_plan_info_t plan_info = commsched_plan_info_init();
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_get_info(plan_.get(), &plan_info), "reading the plan"));
  commsched_engine_info_t info = commsched_engine_info_init();
  info.num_parameters = layout_.num_elements;
  info.num_buckets = layout_.buckets.size();
  info.arena_bytes = plan_info.arena_bytes;
  info.gradient_bytes = plan_info.arena_bytes;
  info.num_ops = num_ops_;
  for (const BucketMemory& memory : memory_) {
    info.parameter_bytes += memory.parameters.bytes();
    info.gradient_bytes += memory.gradients.bytes() + memory.shard.bytes();
    info.optimizer_bytes += memory.state.bytes();
  }
  *out_info = info;
  return Status();
}

}  // namespace commsched::engine
