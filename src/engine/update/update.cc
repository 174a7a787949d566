#include "engine/update/update.h"

#include <algorithm>
#include <cmath>

namespace commsched::engine {
namespace {

// A set's beta, if it has one.
float BetaOr(float beta, float otherwise) {
  return beta > 0 ? beta : otherwise;
}

// What the optimizer is told of a bucket, but for what a step changes.
std::vector<commsched_optimizer_segment_t> SegmentsOf(
    const BucketMemory& bucket, const Model& model, const Layout& layout) {
  std::vector<commsched_optimizer_segment_t> segments;
  for (const Segment& each : bucket.segments) {
    const Parameter& parameter = model.parameters()[each.parameter];
    segments.push_back(
        {.parameter = each.parameter,
         .num_dims = parameter.num_dims,
         .dims = parameter.dims.data(),
         .begin = each.in_shard,
         .count = each.count,
         .in_parameter = each.in_bucket - layout.slots[each.parameter].offset,
         .lr = 0,
         .decay = 0,
         .beta1 = 0,
         .beta2 = 0,
         .control = nullptr});
  }
  return segments;
}

}  // namespace

// ---- Before the first step --------------------------------------------------

Status Update::Prepare(const StepPlan& plan) {
  Bind(&plan, /*offload=*/nullptr);
  for (const Parameter& each : spec_.model->parameters()) {
    const uint32_t sets = std::max(plan.spec().option_sets, 1u);
    if (each.option_set < sets) continue;
    return InvalidArgument(
        "engine: parameter '" + each.name + "' is of option set " +
        std::to_string(each.option_set) + "; option_sets of the engine is " +
        std::to_string(plan.spec().option_sets));
  }
  segments_.clear();
  for (uint32_t b = 0; b < spec_.state->buckets().size(); ++b) {
    segments_.push_back(
        SegmentsOf(spec_.state->bucket(b), *spec_.model, plan.layout()));
  }
  LossScale state;
  if (plan.spec().scales_loss) state.scale = spec_.loss_scale;
  ENGINE_RETURN_IF_ERROR(SetState(state));
  const StepSpec& spec = plan.spec();
  values_.assign(spec.agreed_values(), 0);
  of_sets_.assign(spec.option_sets, nullptr);
  for (commsched_step_state_t*& of_set : of_sets_) {
    ENGINE_RETURN_IF_ERROR(spec_.state->Keep(1, &of_set));
  }
  own_controls_.assign(spec.option_sets, nullptr);
  if (spec.needs_norm()) ENGINE_RETURN_IF_ERROR(PrepareNorm());
  if (spec.has_flags()) {
    ENGINE_RETURN_IF_ERROR(
        flags_.Init(spec_.state, kernels_, spec, spec_.model->parameters()));
    const NormMemory& norm = spec_.state->norm();
    const uint64_t sums =
        std::max({norm.part_sums.count(), norm.parts.count(), uint64_t{1}});
    ENGINE_RETURN_IF_ERROR(spec_.state->Keep(sums + 1, &told_));
  }
  if (!spec.needs_norm() && !spec.gathers_rates() &&
      !spec.gathers_part_rates() && !spec.has_flags()) {
    return Status();
  }
  return reports_.Init(
      spec_.state, spec.agreed_values() * static_cast<uint64_t>(spec.world),
      spec.agreed_values() * static_cast<uint64_t>(spec.norm_members));
}

void Update::Bind(const StepPlan* plan, Offload* offload) {
  plan_ = plan;
  copies_.Bind(plan, offload);
}

Status Update::SetState(const LossScale& state) {
  reported_ = state;
  // Where no norm is, nothing else decides it.
  reported_.control.gradient_scale =
      plan_->spec().gradient_factor() / reported_.scale;
  return spec_.state->SetControl(reported_);
}

// ---- The step ---------------------------------------------------------------

Status Update::Accumulate(uint32_t bucket, commsched_op_id_t op, bool first,
                          uint32_t micro_batch) {
  const BucketMemory& memory = spec_.state->bucket(bucket);
  const auto combine = first ? &Kernels::Convert : &Kernels::Add;
  return spec_.ops->Run(op, [&] {
    return (kernels_.*combine)(
        memory.my_gradients, kSumDType, memory.summand_of(micro_batch),
        plan_->spec().precision.reduced, plan_->ShardCount(bucket));
  });
}

Status Update::TakeTurns(uint64_t num_passes, bool adds) {
  for (const GradientTurn* turn = copies_.NextTurn(num_passes);
       turn != nullptr && (adds || !turn->adds);
       turn = copies_.NextTurn(num_passes)) {
    if (turn->adds) {
      const int64_t asked_ns = copies_.Now();
      ENGINE_RETURN_IF_ERROR(Accumulate(turn->bucket, turn->accumulate,
                                        turn->first, turn->micro_batch));
      copies_.NoteTurn(asked_ns);
    }
    ENGINE_RETURN_IF_ERROR(copies_.EndTurn());
  }
  return Status();
}

Status Update::CheckArgs(const commsched_engine_update_args_t& args) const {
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("lr", double{args.lr}));
  ENGINE_RETURN_IF_ERROR(CheckNotNegative("clip_norm", double{args.clip_norm}));
  if (args.clip_norm > 0 && !plan_->spec().needs_norm()) {
    return InvalidArgument(
        "engine: clip_norm of update is " + std::to_string(args.clip_norm) +
        ", but no norm is computed: set norm or clip_norm of the engine's "
        "description");
  }
  if (args.num_sets == 0) return Status();
  if (args.num_sets != of_sets_.size()) {
    return InvalidArgument("engine: update was given values of " +
                           std::to_string(args.num_sets) +
                           " option sets; option_sets of the engine is " +
                           std::to_string(of_sets_.size()));
  }
  if (args.sets == nullptr) {
    return InvalidArgument("engine: sets of update are NULL");
  }
  for (uint32_t i = 0; i < args.num_sets; ++i) {
    const auto check = [&](const char* name, float value, bool is_fraction) {
      if (std::isfinite(value) && value >= 0 && (!is_fraction || value < 1)) {
        return Status();
      }
      return InvalidArgument(
          "engine: " + std::string(name) + " of option set " +
          std::to_string(i) + " is " + std::to_string(value) +
          (is_fraction ? "; it must be in [0, 1)" : "; it must be 0 or more"));
    };
    const commsched_option_values_t& set = args.sets[i];
    ENGINE_RETURN_IF_ERROR(check("lr_scale", set.lr_scale, false));
    ENGINE_RETURN_IF_ERROR(check("decay", set.decay, false));
    ENGINE_RETURN_IF_ERROR(check("beta1", set.beta1, true));
    ENGINE_RETURN_IF_ERROR(check("beta2", set.beta2, true));
  }
  return Status();
}

Status Update::Step(uint64_t step, const commsched_engine_update_args_t& args) {
  step_ = step;
  const bool needs_norm = plan_->spec().needs_norm();
  // Where the norm was read, those of the step before have gone with it.
  values_are_late_ = norm_begun_;
  if (!values_are_late_ || plan_->spec().gathers_rates()) {
    SetAgreedValues(args, &values_);
  }
  ENGINE_RETURN_IF_ERROR(needs_norm ? SendSums()
                                    : TakeTurns(graph().passes.size()));
  if (plan_->spec().has_flags()) {
    ENGINE_RETURN_IF_ERROR(spec_.ops->Run(
        graph().set_flags, [&] { return flags_.Set(kernels_); }));
  }
  if (needs_norm) {
    ENGINE_RETURN_IF_ERROR(ReceiveSums());
    ENGINE_RETURN_IF_ERROR(EndNorm(args.clip_norm));
  } else {
    ENGINE_RETURN_IF_ERROR(plan_->spec().has_flags()
                               ? ReadFlags()
                               : Decide({}, 0, spec_.state->control()));
  }
  ENGINE_RETURN_IF_ERROR(DecideSets(args));
  ENGINE_RETURN_IF_ERROR(copies_.BeginUpdate(/*has_squares=*/needs_norm));
  for (uint32_t b : graph().first_use) {
    if (!needs_norm) ENGINE_RETURN_IF_ERROR(FinishGradients(b));
    ENGINE_RETURN_IF_ERROR(StepBucket(b, args));
    ENGINE_RETURN_IF_ERROR(copies_.AfterUpdate(b));
  }
  SetAgreedValues(args, &values_);
  sums_sent_ = false;
  cancelled_ = false;
  return Status();
}

Status Update::DecideSets(const commsched_engine_update_args_t& args) {
  std::fill(own_controls_.begin(), own_controls_.end(), nullptr);
  for (uint32_t i = 0; i < args.num_sets; ++i) {
    const commsched_option_values_t& set = args.sets[i];
    if (set.beta1 == 0 && set.beta2 == 0) continue;
    own_controls_[i] = &of_sets_[i]->control;
    ENGINE_RETURN_IF_ERROR(kernels_.Copy(of_sets_[i], spec_.state->control(),
                                         sizeof(commsched_step_state_t)));
    commsched_decide_args_t decide = {};
    decide.state = of_sets_[i];
    decide.step = static_cast<double>(step_);
    decide.beta1 = double{BetaOr(set.beta1, spec_.optimizer->beta1)};
    decide.beta2 = double{BetaOr(set.beta2, spec_.optimizer->beta2)};
    ENGINE_RETURN_IF_ERROR(kernels_.Decide(decide));
  }
  return flags_.Decide(kernels_, spec_.state->control()->control,
                       own_controls_);
}

// What the parameter is skipped by is of the step, too.
const commsched_step_control_t* Update::ControlOf(uint32_t parameter) const {
  if (flags_.Control(parameter) != nullptr) return flags_.Control(parameter);
  const uint32_t set = spec_.model->parameters()[parameter].option_set;
  if (set < own_controls_.size() && own_controls_[set] != nullptr) {
    return own_controls_[set];
  }
  return &spec_.state->control()->control;
}

void Update::SetSegments(uint32_t bucket,
                         const commsched_engine_update_args_t& args) {
  for (commsched_optimizer_segment_t& each : segments_[bucket]) {
    each.lr = args.lr;
    each.decay = each.num_dims >= 2 ? spec_.weight_decay : 0;
    each.beta1 = spec_.optimizer->beta1;
    each.beta2 = spec_.optimizer->beta2;
    each.control = ControlOf(each.parameter);
    if (args.num_sets == 0) continue;
    const uint32_t index = spec_.model->parameters()[each.parameter].option_set;
    const commsched_option_values_t& set = args.sets[index];
    each.lr = args.lr * set.lr_scale;
    each.decay = set.decay;
    each.beta1 = BetaOr(set.beta1, each.beta1);
    each.beta2 = BetaOr(set.beta2, each.beta2);
  }
}

Status Update::StepBucket(uint32_t bucket,
                          const commsched_engine_update_args_t& args) {
  const int64_t asked_ns = copies_.Now();
  return spec_.ops->Run(graph().buckets[bucket].optimizer, [&] {
    copies_.NoteUpdate(bucket, asked_ns);
    if (bucket == graph().rate_bucket) ENGINE_RETURN_IF_ERROR(SendRates());
    SetSegments(bucket, args);
    const commsched_optimizer_bucket_t stepped = BucketFor(bucket);
    const commsched_status_t code =
        spec_.optimizer->step(spec_.optimizer, kernels_.stream(), &stepped);
    if (code == COMMSCHED_OK) return Status();
    return Status(code, std::string("optimizer '") + spec_.optimizer->name +
                            "': " + commsched_last_error());
  });
}

commsched_optimizer_bucket_t Update::BucketFor(uint32_t bucket) const {
  const BucketMemory& memory = spec_.state->bucket(bucket);
  const std::vector<commsched_optimizer_segment_t>& segments =
      segments_[bucket];
  return {
      .bucket = bucket,
      .num_segments = static_cast<uint32_t>(segments.size()),
      .segments = segments.data(),
      .shard_count = plan_->ShardCount(bucket),
      .masters = memory.my_masters,
      .gradients = memory.my_gradients,
      .copy = memory.my_copy,
      .state = memory.my_state,
      .gradient_dtype = plan_->spec().reduced(plan_->layout().buckets[bucket]),
      .copy_dtype = plan_->layout().buckets[bucket].dtype,
      .kernels = &kernels_};
}

Status Update::Begin() {
  flags_.Begin();
  return copies_.BeginStep();
}

// Adds the last micro-batch, unless it was reduced with the others.
Status Update::FinishGradients(uint32_t bucket) {
  const commsched_op_id_t op = graph().buckets[bucket].accumulate;
  return op == kNoId ? Status() : Accumulate(bucket, op, /*first=*/false);
}

}  // namespace commsched::engine
