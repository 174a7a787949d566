// What comes before the first step: what each rank does alone, which is memory,
// and meeting the others. Also going on with another plan.

#include <algorithm>
#include <utility>

#include "engine.h"
#include "engine/step_plan/bucket_buffers.h"
#include "engine/step_plan/step_plan.h"

namespace commsched::engine {
namespace {

// Whether this rank has what the model says that modules exchange.
Status CheckExchanges(const Exchanges& exchanges,
                      const std::vector<commsched_group_t*>& groups) {
  if (groups.size() != exchanges.groups.size()) {
    return InvalidArgument("engine: num_groups is " +
                           std::to_string(groups.size()) + "; the model has " +
                           std::to_string(exchanges.groups.size()));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const AddedGroup& expected = exchanges.groups[i];
    if (commsched_group_size(groups[i]) == expected.num_ranks) continue;
    return InvalidArgument("engine: groups[" + std::to_string(i) + "] has " +
                           std::to_string(commsched_group_size(groups[i])) +
                           " ranks; the model's group " +
                           std::to_string(i + 1) + " '" + expected.name +
                           "' has " + std::to_string(expected.num_ranks));
  }
  for (const Activation& activation : exchanges.activations) {
    if (activation.address != nullptr) continue;
    return InvalidArgument("engine: activation '" + activation.name +
                           "' has no memory: its address is NULL");
  }
  return Status();
}

bool HasRank(const commsched_group_t* group, int32_t world_rank) {
  for (int32_t i = 0; i < commsched_group_size(group); ++i) {
    if (commsched_group_world_rank(group, i) == world_rank) return true;
  }
  return false;
}

// The first rank of the group over which a parameter is replicated counts it
// for all of them, and so has to tell each of them.
Status CheckReplication(const StepSpec& spec, const Model& model,
                        const std::vector<commsched_group_t*>& groups,
                        const commsched_group_t* norm_group) {
  if (!spec.gathers_parts()) return Status();
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.replicated_over == 0) continue;
    const uint32_t id = parameter.replicated_over;
    const commsched_group_t* const group = groups[id - 1];
    for (int32_t i = 0; i < commsched_group_size(group); ++i) {
      const int32_t rank = commsched_group_world_rank(group, i);
      if (HasRank(norm_group, rank)) continue;
      return InvalidArgument(
          "engine: parameter '" + parameter.name +
          "' is replicated over group " + std::to_string(id) + " '" +
          model.exchanges().groups[id - 1].name + "', whose rank " +
          std::to_string(rank) +
          " is not in norm_group: the norm counts the parameter once among "
          "the ranks of norm_group, all of which have to be there");
    }
  }
  return Status();
}

}  // namespace

Status Engine::Prepare() {
  ENGINE_RETURN_IF_ERROR(CheckExchanges(model_.exchanges(), groups_));
  ENGINE_RETURN_IF_ERROR(
      CheckReplication(spec_, model_, groups_, desc_.norm_group));
  if (desc_.record_order != 0) {
    ENGINE_RETURN_IF_ERROR(OrderRecorder::Check(model_));
    calls_.Record();
  }
  ENGINE_RETURN_IF_ERROR(agreement_.KeepContext());
  ENGINE_RETURN_IF_ERROR(CheckFits(*role_.plan));
  return Allocate();
}

Status Engine::CheckFits(const StepPlan& plan) const {
  return RankState::CheckFits(
      plan.spec(), plan.layout(), plan.arena_bytes(),
      static_cast<uint64_t>(commsched_context_local_size(desc_.context)));
}

Status Engine::Allocate() {
  ENGINE_RETURN_IF_ERROR(state_.Allocate(*role_.plan, model_.parameters()));
  ENGINE_RETURN_IF_ERROR(update_.Prepare(*role_.plan));
  ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
  if (!spec_.offloads && !spec_.offloads_gradients) return Status();
  return Offload::Create({.context = desc_.context,
                          .pool = pool_,
                          .gradient_pool = gradient_pool_,
                          .rank = group_rank_,
                          .step = spec_,
                          .memory = &allocator_,
                          .kernels = &kernels_},
                         layout(), &offload_);
}

Status Engine::Meet() {
  ENGINE_RETURN_IF_ERROR(
      agreement_.OnCreation(*role_.options, optimizer_, model_));
  state_.Bind(*role_.plan);
  return calls_.recording() ? StartRecording() : Connect();
}

Status Engine::Connect() {
  update_.Bind(role_.plan.get(), offload_.get());
  calls_.Bind(role_.plan.get(), offload_.get());
  return bound_.Connect(role_.plan.get(), offload_.get(), calls_.steps_done());
}

// ---- An order that is recorded ----------------------------------------------

Status Engine::RecordOrder() {
  ENGINE_RETURN_IF_ERROR(OrderRecorder::Check(*role_.model));
  if (!calls_.between_steps()) return calls_.OutOfOrder("record_order");
  ENGINE_RETURN_IF_ERROR(calls_.Drain());
  if (calls_.recording()) return Status();
  if (offload_ != nullptr) offload_->Settle();
  bound_.Drop();
  calls_.Record();
  return StartRecording();
}

// Stages 0 to 2 have all parameters.
Status Engine::StartRecording() {
  calls_.Bind(role_.plan.get(), offload_.get());
  state_.Bind(*role_.plan);
  if (spec_.zero_stage != 3) return Status();
  OrderRecording::Spec spec;
  spec.context = desc_.context;
  spec.group = desc_.group;
  spec.launch_timeout_ns = desc_.launch_timeout_ns;
  spec.step = role_.plan->spec();
  spec.memory = &allocator_;
  spec.kernels = &kernels_;
  bool gathers = false;
  for (uint32_t b = 0; b < state_.buckets().size(); ++b) {
    spec.shards.push_back(
        role_.plan->gathers(b)
            ? state_.bucket(b).of(BufferKind::kParameters).data()
            : nullptr);
    gathers = gathers || role_.plan->gathers(b);
  }
  if (!gathers) return Status();
  std::unique_ptr<OrderRecording> made;
  ENGINE_RETURN_IF_ERROR(OrderRecording::Create(spec, layout(), &made));
  bound_.Record(std::move(made));
  return Status();
}

Status Engine::Freeze(Sequence sequence) {
  if (bound_.recording() != nullptr) {
    ENGINE_RETURN_IF_ERROR(bound_.recording()->End());
    bound_.TakeRecording();
  }
  if (sequence != role_.plan->sequence()) {
    std::unique_ptr<const StepPlan> plan;
    ENGINE_RETURN_IF_ERROR(StepPlan::Build(role_.options->spec(), *role_.model,
                                           role_.options->OfPlan(), layout(),
                                           std::move(sequence), &plan));
    role_.plan = std::move(plan);
  }
  return Connect();
}

Status Engine::Replan(const PlannedRole& next) {
  if (!calls_.between_steps() || calls_.recording()) {
    return calls_.OutOfOrder("replan");
  }
  ENGINE_RETURN_IF_ERROR(CheckSameState(role_, next));
  ENGINE_RETURN_IF_ERROR(CheckFits(*next.plan));
  ENGINE_RETURN_IF_ERROR(calls_.Drain());
  if (offload_ != nullptr) offload_->Settle();
  Status allocated = state_.AllocateMissing(*next.plan);
  if (allocated.ok()) allocated = kernels_.Synchronize();
  if (!allocated.ok()) {
    state_.ReleaseUnused(*role_.plan);
    return allocated;
  }
  bound_.Drop();
  role_ = next;
  state_.ReleaseUnused(*role_.plan);
  state_.Bind(*role_.plan);
  return Connect();
}

}  // namespace commsched::engine
