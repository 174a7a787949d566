#include "engine/run/bound_step.h"

#include <time.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace commsched::engine {
namespace {

int64_t ThreadCpuNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

// ---- Sessions ---------------------------------------------------------------

Status BoundStep::Connect(const StepPlan* plan, Offload* offload,
                          uint64_t steps_done) {
  plan_ = plan;
  offload_ = offload;
  if (desc_.measure_steps > 0) {
    op_cost_ns_.assign(plan_->num_ops(), std::numeric_limits<int64_t>::max());
  }
  ENGINE_RETURN_IF_ERROR(CreateSession(plan_->plan(), Bindings(), &session_));
  first_step_ = steps_done;
  std::vector<commsched_binding_t> bindings;  // Of the evaluation.
  Status ready = Caught([&] {
    if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(BindOffload());
    ENGINE_RETURN_IF_ERROR(BindPasses());
    return evaluation_meets() ? BindEvaluation(&bindings) : Status();
  });
  if (!evaluation_meets()) return ready;
  ENGINE_RETURN_IF_ERROR(spec_.agreement->OnEvaluation(ready));
  return CreateSession(plan_->forward_plan(), bindings, &forward_session_);
}

void BoundStep::Drop() {
  SessionHandle step;
  SessionHandle forward;
  running_ = nullptr;
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  step = std::move(session_);
  forward = std::move(forward_session_);
}

std::vector<commsched_binding_t> BoundStep::Bindings() const {
  std::vector<commsched_binding_t> bindings = spec_.state->Bindings(*plan_);
  for (uint32_t slot = 0; slot < graph().staging.size(); ++slot) {
    commsched_binding_t binding = {};
    binding.buffer = graph().staging[slot];
    binding.address = offload_->slot(slot).data();
    binding.bytes = offload_->slot(slot).bytes();
    bindings.push_back(binding);
  }
  for (uint32_t slot = 0; slot < graph().gradient_staging.size(); ++slot) {
    commsched_binding_t binding = {};
    binding.buffer = graph().gradient_staging[slot];
    binding.address = offload_->gradient_slot(slot);
    binding.bytes = plan_->layout().gradient_slot_count *
                    SizeOf(plan_->spec().precision.reduced);
    bindings.push_back(binding);
  }
  BindActivations(graph().first_activation, &bindings);
  return bindings;
}

void BoundStep::BindActivations(
    commsched_buffer_id_t first,
    std::vector<commsched_binding_t>* bindings) const {
  for (const Activation& each : spec_.model->exchanges().activations) {
    bindings->push_back(BindingOf(each, first++));
  }
}

Status BoundStep::CreateSession(
    commsched_plan_t* plan, const std::vector<commsched_binding_t>& bindings,
    SessionHandle* out_session) {
  const bool steps = plan == plan_->plan();
  commsched_session_desc_t desc = commsched_session_desc_init();
  desc.context = desc_.context;
  desc.plan = plan;
  std::vector<commsched_group_t*> groups = {desc_.group};
  groups.insert(groups.end(), spec_.groups->begin(), spec_.groups->end());
  if (steps && plan_->spec().uses_norm_group())
    groups.push_back(desc_.norm_group);
  desc.groups = groups.data();
  desc.num_groups = static_cast<uint32_t>(groups.size());
  desc.bindings = DataOf(bindings);
  desc.num_bindings = static_cast<uint32_t>(bindings.size());
  const commsched_stream_t lanes[] = {
      spec_.kernels->stream(),
      offload_ == nullptr ? commsched_stream_caller() : offload_->stream()};
  desc.lanes = lanes;
  desc.num_lanes = steps && graph().has_copies() ? 2 : 1;
  // An evaluation has no file of its own, and would replace that of the steps.
  if (steps) {
    desc.observers = spec_.observers;
    desc.flight_path = spec_.flight_path;
    desc.trace = desc_.trace;
  }
  const commsched_allocator_t allocator = spec_.memory->ForSessions();
  desc.allocator = &allocator;
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
Status BoundStep::BindOffload() {
  for (uint32_t b = 0; b < spec_.state->buckets().size(); ++b) {
    const Bucket& bucket = plan_->layout().buckets[b];
    if (plan_->spec().offloads_gradients_of(bucket)) {
      spec_.state->bucket(b).my_gradients =
          offload_->gradient_slot(graph().buckets[b].gradient_slot);
    }
    if (!plan_->spec().offloads || plan_->spec().state_count(bucket) == 0) {
      continue;
    }
    float* const slot = offload_->slot(graph().buckets[b].slot).data();
    if (plan_->spec().has_masters(bucket)) {
      spec_.state->bucket(b).my_masters = slot;
    }
    spec_.state->bucket(b).my_state = slot + plan_->MomentBegin(b, 0);
  }
  for (const GradientTurn& turn : graph().gradient_turns) {
    if (!turn.adds) continue;
    auto& summands = spec_.state->bucket(turn.bucket).my_summands;
    summands.resize(plan_->spec().micro_batches);
    ENGINE_RETURN_IF_ERROR(ArenaAddress(turn.accumulate, turn.summand,
                                        &summands[turn.micro_batch]));
  }
  offload_->Bind(graph(), session_.get());
  return Status();
}

Status BoundStep::ArenaAddress(commsched_op_id_t op,
                               commsched_buffer_id_t buffer,
                               std::byte** out_address) const {
  void* address = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_address(session_.get(), op, buffer, &address),
      "finding a bucket in the arena"));
  *out_address = static_cast<std::byte*>(address);
  return Status();
}

Status BoundStep::BindPasses() {
  for (uint32_t b = 0; b < spec_.state->buckets().size(); ++b) {
    if (!plan_->spec().owned_gradients() || plan_->short_lived_gradients(b) ||
        plan_->layout().buckets[b].frozen) {
      continue;
    }
    const BucketIds& ids = graph().buckets[b];
    ENGINE_RETURN_IF_ERROR(ArenaAddress(ids.first_backward,
                                        ids.of(BufferKind::kGradients),
                                        &spec_.state->bucket(b).all_gradients));
  }
  addresses_.clear();
  for (size_t p = 0; p < graph().passes.size(); ++p) {
    ENGINE_RETURN_IF_ERROR(BindPass(graph().passes[p], graph().pass_ops[p],
                                    &addresses_.emplace_back()));
  }
  return Status();
}

Status BoundStep::BindPass(const Pass& pass, const PassOps& ops,
                           PassAddresses* out) {
  const std::vector<uint32_t>& buckets =
      plan_->layout().module_buckets[pass.module];
  out->values.resize(buckets.size());
  out->gradients.resize(buckets.size());
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (plan_->gathers(buckets[i]) && ReadsValues(pass.kind)) {
      ENGINE_RETURN_IF_ERROR(
          ArenaAddress(ops.op, ops.values[i], &out->values[i]));
    }
    if (AddsGradients(pass.kind) && plan_->short_lived_gradients(buckets[i])) {
      ENGINE_RETURN_IF_ERROR(
          ArenaAddress(ops.op, ops.gradients[i], &out->gradients[i]));
    }
  }
  for (const Conversion& each : ops.conversions) {
    auto& [from, into] = out->conversions.emplace_back();
    ENGINE_RETURN_IF_ERROR(ArenaAddress(each.op, each.from, &from));
    ENGINE_RETURN_IF_ERROR(ArenaAddress(each.op, each.into, &into));
  }
  return Status();
}

Status BoundStep::BindEvaluation(
    std::vector<commsched_binding_t>* out_bindings) {
  const ForwardGraph& forward = plan_->forward();
  const auto bind = [&](commsched_buffer_id_t buffer, std::byte* address,
                        uint64_t bytes) {
    commsched_binding_t& binding = out_bindings->emplace_back();
    binding.buffer = buffer;
    binding.address = address;
    binding.bytes = bytes;
  };
  for (uint32_t b = 0; b < forward.shards.size(); ++b) {
    if (forward.shards[b] == kNoId) continue;
    const Bytes& shard = spec_.state->bucket(b).of(BufferKind::kParameters);
    bind(forward.shards[b], shard.data(), shard.bytes());
  }
  if (forward.gathered != kNoId) {
    // All that is gathered lies in the arena, as the first does.
    const Gathered& first = graph().gathered.front();
    std::byte* address = nullptr;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    ENGINE_RETURN_IF_ERROR(ArenaAddress(graph().pass_ops[first.stay.first].op,
                                        first.buffer, &address));
    ENGINE_RETURN_IF_ERROR(Status::FromCall(
        commsched_plan_place(plan_->plan(), first.buffer, &offset, &bytes),
        "finding the arena"));
    bind(forward.gathered, address - offset + forward.arena_offset,
         forward.arena_bytes);
  }
  if (forward.more != kNoId) {
    const Array<double>& more = spec_.state->norm().more;
    bind(forward.more, reinterpret_cast<std::byte*>(more.data()), more.bytes());
  }
  BindActivations(forward.first_activation, out_bindings);
  return Status();
}

// ---- Recording --------------------------------------------------------------

void BoundStep::Record(std::unique_ptr<OrderRecording> recording) {
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  recording_ = std::move(recording);
  if (aborted_) recording_->Abort(abort_reason_.c_str());
}

std::unique_ptr<OrderRecording> BoundStep::TakeRecording() {
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  return std::move(recording_);
}

// ---- Running ----------------------------------------------------------------

Status BoundStep::BeginStep(uint64_t step) {
  ENGINE_RETURN_IF_ERROR(FromSession(
      commsched_session_step_begin(session_.get()), "beginning a step"));
  running_ = session_.get();
  measures_ = step <= desc_.measure_steps;
  return Status();
}

Status BoundStep::EndStep() {
  return FromSession(commsched_session_step_end(session_.get()),
                     "ending a step");
}

Status BoundStep::Drain() {
  return FromSession(commsched_session_drain(session_.get()), "draining");
}

Status BoundStep::DrainEvaluation() {
  return Status::FromCall(commsched_session_drain(forward_session_.get()),
                          "draining an evaluation");
}

Status BoundStep::Before(commsched_op_id_t op) {
  const commsched_status_t code =
      commsched_session_before(running_, op, spec_.kernels->stream());
  if (code != COMMSCHED_OK) return FromSession(code, "before an op");
  if (measures_) op_begin_ns_ = ThreadCpuNs();
  return Status();
}

Status BoundStep::After(commsched_op_id_t op) {
  return FromSession(
      commsched_session_after(running_, op, spec_.kernels->stream()),
      "after an op");
}

void BoundStep::Measure(commsched_op_id_t op) {
  if (!measures_) return;
  int64_t& least = op_cost_ns_[op];
  least = std::min(least, ThreadCpuNs() - op_begin_ns_);
}

Status BoundStep::OpCosts(uint64_t steps_done, int64_t* out_ns,
                          uint64_t num_ops) const {
  const uint64_t steps = session_ == nullptr ? 0 : steps_done - first_step_;
  if (desc_.measure_steps == 0 || steps == 0) {
    return FailedPrecondition(
        "engine: op_costs was called after " + std::to_string(steps) +
        " steps with measure_steps " + std::to_string(desc_.measure_steps));
  }
  if (num_ops != plan_->num_ops()) {
    return InvalidArgument("engine: op_costs with room for " +
                           std::to_string(num_ops) + " ops; the graph has " +
                           std::to_string(plan_->num_ops()));
  }
  std::vector<int64_t> costs(num_ops);
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_session_collective_cpu_ns(
                           session_.get(), costs.data(), num_ops),
                       "reading the cost of collectives"));
  for (uint64_t op = 0; op < num_ops; ++op) {
    const bool measured =
        op_cost_ns_[op] != std::numeric_limits<int64_t>::max();
    costs[op] =
        measured ? op_cost_ns_[op] : costs[op] / static_cast<int64_t>(steps);
  }
  std::copy(costs.begin(), costs.end(), out_ns);
  return Status();
}

void BoundStep::ShowBuckets(bool evaluating, uint64_t pass, uint32_t module) {
  const PassAddresses& at =
      addresses_[evaluating ? plan_->one_forward()[pass] : pass];
  const std::vector<uint32_t>& buckets = plan_->layout().module_buckets[module];
  for (size_t i = 0; i < buckets.size(); ++i) {
    BucketMemory& memory = spec_.state->bucket(buckets[i]);
    if (at.values[i] != nullptr) memory.all_parameters = at.values[i];
    if (at.gradients[i] != nullptr) memory.all_gradients = at.gradients[i];
  }
}

Status BoundStep::CheckVersion(const Pass& pass, uint32_t bucket,
                               commsched_buffer_id_t buffer,
                               uint64_t expected) const {
  uint64_t version = 0;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_session_buffer_version(session_.get(), buffer, &version),
      "reading a bucket's version"));
  version += first_step_;
  if (version == expected) return Status();
  return FailedPrecondition(
      "engine: parameter bucket " + std::to_string(bucket) + " of module '" +
      spec_.model->modules()[pass.module].name + "' holds the values after " +
      std::to_string(version) + " steps; " +
      (IsBackward(pass.kind) ? "backward" : "forward") + " needs those after " +
      std::to_string(expected));
}

Status BoundStep::CheckVersions(const Pass& pass, const PassOps& ops,
                                uint64_t steps_done) const {
  if (spec_.kernels->stream().kind != COMMSCHED_STREAM_CALLER ||
      !ReadsValues(pass.kind)) {
    return Status();
  }
  const std::vector<uint32_t>& buckets =
      plan_->layout().module_buckets[pass.module];
  for (size_t i = 0; i < buckets.size(); ++i) {
    const uint32_t b = buckets[i];
    const BucketIds& ids = graph().buckets[b];
    if (!plan_->layout().buckets[b].frozen) {
      ENGINE_RETURN_IF_ERROR(
          CheckVersion(pass, b, ids.of(BufferKind::kParameters), steps_done));
    }
    if (!plan_->gathers(b)) continue;
    ENGINE_RETURN_IF_ERROR(
        CheckVersion(pass, b, ops.values[i], steps_done + 1));
  }
  return Status();
}

// ---- Failures ---------------------------------------------------------------

Status BoundStep::FailureOfSessions() const {
  if (recording_ != nullptr) ENGINE_RETURN_IF_ERROR(recording_->status());
  for (const SessionHandle* session : {&session_, &forward_session_}) {
    if (*session == nullptr) continue;
    ENGINE_RETURN_IF_ERROR(Status::FromCall(
        commsched_session_status(session->get()), "the session has failed"));
  }
  return Status();
}

Status BoundStep::FromSession(commsched_status_t code,
                              const char* context) const {
  if (code == COMMSCHED_OK) return Status();
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(offload_->failure());
  return Status::FromCall(code, context);
}

void BoundStep::Abort(const char* reason) {
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  if (!std::exchange(aborted_, true)) abort_reason_ = reason;
  commsched_session_abort(session_.get(), reason);
  commsched_session_abort(forward_session_.get(), reason);
  if (recording_ != nullptr) recording_->Abort(reason);
  spec_.agreement->DeclineValues(reason);
}

}  // namespace commsched::engine
