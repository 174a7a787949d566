// Meeting the other ranks: sessions, and the addresses that they give.

#include <utility>

#include "engine.h"

namespace commsched::engine {

Status Engine::Build() {
  if (built()) return CheckRegistering();
  ENGINE_RETURN_IF_ERROR(KeepContext());
  if (phase_ != Phase::kPrepared) {
    Status prepared = Caught([this] { return Prepare(); });
    if (!prepared.ok()) {
      DeclineToBuild(prepared);
      return prepared;
    }
  }
  ENGINE_RETURN_IF_ERROR(AgreeOnRegistration());
  state_.Bind(*step_plan_);
  ENGINE_RETURN_IF_ERROR(recording_ ? StartRecording() : Connect());
  phase_ = Phase::kBetweenSteps;
  return Status();
}

Status Engine::Connect() {
  ENGINE_RETURN_IF_ERROR(
      CreateSession(plan(), Bindings(), desc_.trace, &session_));
  first_step_ = steps_done_;
  Status ready = Caught([this] {
    if (offload_ != nullptr) BindOffload();
    ENGINE_RETURN_IF_ERROR(BindPasses());
    ENGINE_RETURN_IF_ERROR(PrepareEvaluation());
    step_cursor_.Take(&graph().passes, model_.ModuleNames());
    forward_cursor_.Take(&forward_.passes, model_.ModuleNames());
    return Status();
  });
  if (!evaluation_meets()) return ready;
  ENGINE_RETURN_IF_ERROR(AgreeThatEvaluationIsReady(ready));
  return CreateSession(forward_plan_.get(), forward_.bindings,
                       /*trace=*/nullptr, &forward_session_);
}

std::vector<commsched_binding_t> Engine::Bindings() const {
  std::vector<commsched_binding_t> bindings = state_.Bindings(*step_plan_);
  for (uint32_t slot = 0; slot < graph().staging.size(); ++slot) {
    commsched_binding_t binding = {};
    binding.buffer = graph().staging[slot];
    binding.address = offload_->slot(slot).data();
    binding.bytes = offload_->slot(slot).bytes();
    bindings.push_back(binding);
  }
  for (size_t i = 0; i < model_.exchanges().activations.size(); ++i) {
    bindings.push_back(
        BindingOf(model_.exchanges().activations[i],
                  graph().first_activation + static_cast<uint32_t>(i)));
  }
  return bindings;
}

Status Engine::CreateSession(commsched_plan_t* plan,
                             const std::vector<commsched_binding_t>& bindings,
                             commsched_trace_t* trace,
                             SessionHandle* out_session) {
  commsched_session_desc_t desc = commsched_session_desc_init();
  desc.context = desc_.context;
  desc.plan = plan;
  std::vector<commsched_group_t*> groups = {desc_.group};
  for (const AddedGroup& each : model_.exchanges().groups)
    groups.push_back(each.group);
  desc.groups = groups.data();
  desc.num_groups = static_cast<uint32_t>(groups.size());
  desc.bindings = DataOf(bindings);
  desc.num_bindings = static_cast<uint32_t>(bindings.size());
  const commsched_stream_t lanes[] = {
      kernels_.stream(),
      offload_ == nullptr ? commsched_stream_caller() : offload_->stream()};
  desc.lanes = lanes;
  desc.num_lanes = offload_ != nullptr && plan == step_plan_->plan() ? 2 : 1;
  // An evaluation has no file of its own, and would replace that of the steps.
  if (plan == step_plan_->plan()) {
    if (!observers_.empty()) desc.observers = observers_.c_str();
    if (!flight_path_.empty()) desc.flight_path = flight_path_.c_str();
  }
  const commsched_allocator_t allocator = allocator_.ForSessions();
  desc.allocator = &allocator;
  desc.trace = trace;
  desc.launch_timeout_ns = desc_.launch_timeout_ns;
  commsched_session_t* session = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_create(&desc, &session), "creating the session"));
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  out_session->reset(session);
  if (aborted_) commsched_session_abort(session, abort_reason_.c_str());
  return Status();
}

// The order in which buckets are stepped says which slots they have.
void Engine::BindOffload() {
  for (uint32_t b = 0; b < state_.buckets().size(); ++b) {
    float* const slot = offload_->slot(graph().buckets[b].slot).data();
    if (spec_.has_masters()) state_.bucket(b).my_masters = slot;
    state_.bucket(b).my_state = slot + MomentBegin(b, 0);
  }
  offload_->Bind(graph(), session_.get());
}

Status Engine::ArenaAddress(commsched_op_id_t op, commsched_buffer_id_t buffer,
                            std::byte** out_address) const {
  void* address = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_address(session_.get(), op, buffer, &address),
      "finding a bucket in the arena"));
  *out_address = static_cast<std::byte*>(address);
  return Status();
}

Status Engine::BindPasses() {
  for (uint32_t b = 0; b < state_.buckets().size(); ++b) {
    if (!spec_.owned_gradients() || short_lived_gradients(b)) continue;
    const BucketIds& ids = graph().buckets[b];
    ENGINE_RETURN_IF_ERROR(ArenaAddress(ids.first_backward,
                                        ids.of(BufferKind::kGradients),
                                        &state_.bucket(b).all_gradients));
  }
  addresses_.clear();
  for (size_t p = 0; p < graph().passes.size(); ++p) {
    const Pass& pass = graph().passes[p];
    const PassOps& ops = graph().pass_ops[p];
    PassAddresses& at = addresses_.emplace_back();
    const std::vector<uint32_t>& buckets = layout().module_buckets[pass.module];
    at.values.resize(buckets.size());
    at.gradients.resize(buckets.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      if (gathered(buckets[i])) {
        ENGINE_RETURN_IF_ERROR(
            ArenaAddress(ops.op, ops.values[i], &at.values[i]));
      }
      if (pass.backward && short_lived_gradients(buckets[i])) {
        ENGINE_RETURN_IF_ERROR(
            ArenaAddress(ops.op, ops.gradients[i], &at.gradients[i]));
      }
    }
    for (const Conversion& each : ops.conversions) {
      auto& [from, into] = at.conversions.emplace_back();
      ENGINE_RETURN_IF_ERROR(ArenaAddress(each.op, each.from, &from));
      ENGINE_RETURN_IF_ERROR(ArenaAddress(each.op, each.into, &into));
    }
  }
  return Status();
}

// Without gathers and ops of modules an evaluation only keeps to the order of
// calls.
bool Engine::evaluation_meets() const {
  return spec_.zero_stage == 3 || !model_.ops().empty() ||
         !model_.exchanges().empty();
}

// All that can fail on this rank alone before the evaluation's session.
Status Engine::PrepareEvaluation() {
  if (!evaluation_meets()) {
    forward_.passes =
        PassOrder(step_plan_->sequence(),
                  std::vector<uint32_t>(model_.modules().size()), 1);
    forward_.passes.resize(step_plan_->sequence().size());
    forward_.pass_ops.assign(step_plan_->sequence().size(), PassOps());
    return Status();
  }
  ForwardMemory memory;
  for (const Gathered& each : graph().gathered) {
    ENGINE_RETURN_IF_ERROR(ArenaAddress(graph().pass_ops[each.stay.first].op,
                                        each.buffer,
                                        &memory.gathered.emplace_back()));
  }
  for (uint32_t b = 0; b < state_.buckets().size(); ++b) {
    memory.shards.push_back(
        gathered(b) ? state_.bucket(b).of(BufferKind::kParameters).data()
                    : nullptr);
  }
  ENGINE_RETURN_IF_ERROR(
      BuildForwardGraph(spec_, model_.modules(), model_.exchanges(), layout(),
                        step_plan_->sequence(), graph(), memory, &forward_));
  commsched_plan_options_t options = plan_options_;
  options.arena_bytes = 0;
  // Packing would take memory.
  options.coalesce_bytes = 0;
  options.policy = nullptr;
  commsched_plan_t* plan = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_plan_build(forward_.graph.get(), &options, &profile_, &plan),
      "planning the evaluation"));
  forward_plan_.reset(plan);
  return Status();
}

Status Engine::GetInfo(commsched_engine_info_t* out_info) const {
  if (phase_ == Phase::kRegistering) {
    return FailedPrecondition("engine: get_info was called before prepare");
  }
  commsched_engine_info_t info = commsched_engine_info_init();
  info.num_parameters = layout().num_elements;
  info.num_buckets = layout().buckets.size();
  info.arena_bytes = step_plan_->arena_bytes();
  if (spec_.zero_stage != 3) info.gradient_bytes = step_plan_->arena_bytes();
  info.num_ops = step_plan_->num_ops();
  for (const BucketMemory& memory : state_.buckets()) {
    info.parameter_bytes += memory.of(BufferKind::kParameters).bytes();
    for (const BufferKind kind :
         {BufferKind::kGradients, BufferKind::kShard, BufferKind::kSummand}) {
      info.gradient_bytes += memory.of(kind).bytes();
    }
    for (const BufferKind kind : {BufferKind::kState, BufferKind::kMasters}) {
      info.optimizer_bytes += memory.of(kind).bytes();
    }
  }
  if (offload_ != nullptr) {
    info.offloaded_bytes = offload_->bytes();
    info.staging_bytes = offload_->staging_bytes();
    info.optimizer_bytes += info.staging_bytes;
    info.copied_bytes = offload_->copied_bytes();
    info.copy_ns = offload_->copy_ns();
    info.copy_exposed_ns = offload_->exposed_ns();
  }
  info.state_bytes =
      info.parameter_bytes + info.gradient_bytes + info.optimizer_bytes;
  if (spec_.zero_stage == 3) info.state_bytes += info.arena_bytes;
  info.norm_bytes = state_.norm().bytes();
  info.state_bytes += info.norm_bytes;
  const LossScale& control = last_state_;
  info.skipped_steps = static_cast<uint64_t>(control.skipped_steps);
  info.skipped_in_row = static_cast<uint64_t>(control.skipped_in_row);
  info.accumulated_bytes = AccumulatedBytes(spec_, layout());
  for (uint32_t bucket = 0; bucket < info.num_buckets; ++bucket) {
    info.due_bytes += DueBytes(spec_, step_plan_->BuffersOf(bucket));
  }
  *out_info = info;
  return Status();
}

Status Engine::GetBucketInfo(uint64_t bucket,
                             commsched_engine_bucket_info_t* out_info) const {
  if (phase_ == Phase::kRegistering) {
    return FailedPrecondition(
        "engine: get_bucket_info was called before prepare");
  }
  if (bucket >= layout().buckets.size()) {
    return Status(COMMSCHED_NOT_FOUND,
                  "engine: bucket " + std::to_string(bucket) + "; there are " +
                      std::to_string(layout().buckets.size()));
  }
  const Bucket& from = layout().buckets[bucket];
  commsched_engine_bucket_info_t info = commsched_engine_bucket_info_init();
  info.count = from.count;
  info.num_parameters = from.parameters.size();
  info.num_reductions = from.reduced_at_once ? spec_.micro_batches : 1;
  if (gathered(static_cast<uint32_t>(bucket))) {
    for (const Gathered& each : graph().gathered) {
      if (each.stay.bucket == bucket) ++info.num_gathers;
    }
  } else if (spec_.zero_stage > 0) {
    info.num_gathers = 1;
  }
  *out_info = info;
  return Status();
}

}  // namespace commsched::engine
