// The order of modules, taken from the caller's first forward.
//
// Only a forward is needed: backward runs in reverse. When it is over, the step
// is planned and the ranks meet. The forwards that have run are then run empty,
// so that the rest of the step, and all later ones, are as if the order had
// been known.

#include <algorithm>
#include <utility>

#include "engine.h"

namespace commsched::engine {

Status Engine::CheckCanRecord() const {
  for (const Module& module : model_.modules()) {
    if (module.steps[0].empty() && module.steps[1].empty()) continue;
    return FailedPrecondition(
        "engine: the order of modules cannot be recorded, since module '" +
        module.name + "' has ops or collectives within");
  }
  return Status();
}

Status Engine::RecordOrder() {
  ENGINE_RETURN_IF_ERROR(CheckCanRecord());
  if (!built()) {
    recording_ = true;
    return Status();
  }
  if (phase_ != Phase::kBetweenSteps) return OutOfOrder("record_order");
  ENGINE_RETURN_IF_ERROR(Drain());
  if (recording_) return Status();
  if (offload_ != nullptr) offload_->Settle();
  bound_.Drop();
  recording_ = true;
  return StartRecording();
}

// Stages 0 to 2 have all parameters.
Status Engine::StartRecording() {
  recorded_.clear();
  state_.Bind(*step_plan_);
  if (spec_.zero_stage != 3) return Status();
  OrderRecording::Spec spec;
  spec.context = desc_.context;
  spec.group = desc_.group;
  spec.launch_timeout_ns = desc_.launch_timeout_ns;
  spec.step = spec_;
  spec.memory = &allocator_;
  spec.kernels = &kernels_;
  bool gathers = false;
  for (uint32_t b = 0; b < state_.buckets().size(); ++b) {
    spec.shards.push_back(
        gathered(b) ? state_.bucket(b).of(BufferKind::kParameters).data()
                    : nullptr);
    gathers = gathers || gathered(b);
  }
  if (!gathers) return Status();
  std::unique_ptr<OrderRecording> made;
  ENGINE_RETURN_IF_ERROR(OrderRecording::Create(spec, layout(), &made));
  bound_.Record(std::move(made));
  return Status();
}

Status Engine::BeginRecordedPass() {
  OrderRecording* const gathers = bound_.recording();
  return gathers == nullptr ? Status() : gathers->Begin();
}

std::string Engine::ExpectedRecordedCall() const {
  if (phase_ == Phase::kInModule) {
    return ModuleCall(/*backward=*/false, "end", recorded_.back(), 0);
  }
  const std::string any = "forward_begin of any module, micro-batch 0";
  if (evaluating_) return any + ", or evaluation_end";
  if (recorded_.empty()) return any;
  return any + ", or " +
         ModuleCall(/*backward=*/true, "begin", recorded_.back(), 0);
}

Status Engine::RecordForward(uint32_t module) {
  if (phase_ != Phase::kBetweenModules || module >= model_.modules().size()) {
    return OutOfOrder(ModuleCall(/*backward=*/false, "begin", module, 0));
  }
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  if (bound_.recording() != nullptr) {
    const std::vector<std::byte*>* addresses = nullptr;
    ENGINE_RETURN_IF_ERROR(bound_.recording()->Gather(module, &addresses));
    const std::vector<uint32_t>& buckets = layout().module_buckets[module];
    for (size_t i = 0; i < buckets.size(); ++i) {
      if ((*addresses)[i] == nullptr) continue;
      state_.bucket(buckets[i]).all_parameters = (*addresses)[i];
    }
  }
  recorded_.push_back(module);
  phase_ = Phase::kInModule;
  return Status();
}

Status Engine::RecordForwardEnd(bool backward, uint32_t module,
                                uint32_t micro_batch) {
  if (phase_ != Phase::kInModule || backward || micro_batch != 0 ||
      module != recorded_.back()) {
    return OutOfOrder(ModuleCall(backward, "end", module, micro_batch));
  }
  state_.HideBuckets(*step_plan_, module);
  phase_ = Phase::kBetweenModules;
  return Status();
}

// Whether what comes after a recorded forward is a backward of the module that
// ran last; or, if none ran, whatever there may be then.
bool Engine::EndsRecordedForward(bool backward, uint32_t module,
                                 uint32_t micro_batch) const {
  if (phase_ != Phase::kBetweenModules || evaluating_) return false;
  if (recorded_.empty()) return !backward && desc_.allow_skipped_modules != 0;
  return backward && micro_batch == 0 && module == recorded_.back();
}

// Of the modules at the end that are recomputed together: their forwards have
// then run twice, since no backward comes between.
size_t Engine::RecomputedAtEnd() const {
  size_t begin = recorded_.size();
  const uint32_t segment =
      begin == 0 ? 0 : model_.modules()[recorded_.back()].segment;
  while (segment > 0 && begin > 0 &&
         model_.modules()[recorded_[begin - 1]].segment == segment) {
    --begin;
  }
  const size_t count = (recorded_.size() - begin) / 2;
  const auto first = recorded_.begin() + static_cast<ptrdiff_t>(begin);
  const auto again = recorded_.end() - static_cast<ptrdiff_t>(count);
  return std::equal(first, again, again, recorded_.end()) ? count : 0;
}

// The recorded order. A module that was left out comes where its registration
// has it: behind the one registered before it.
Status Engine::FindSequence(Sequence* out_sequence,
                            std::vector<uint8_t>* out_left_out) const {
  Sequence sequence = recorded_;
  std::vector<uint8_t> left_out(sequence.size(), 0);
  for (uint32_t m = 0; m < model_.modules().size(); ++m) {
    if (std::find(sequence.begin(), sequence.end(), m) != sequence.end()) {
      continue;
    }
    if (desc_.allow_skipped_modules == 0) {
      return FailedPrecondition(
          "engine: module " + std::to_string(m) + " '" +
          model_.modules()[m].name +
          "' was not begun in the forward that records the order; "
          "allow_skipped_modules is 0");
    }
    auto at = sequence.begin();
    if (m > 0) at = std::find(at, sequence.end(), m - 1) + 1;
    left_out.insert(left_out.begin() + (at - sequence.begin()), 1);
    sequence.insert(at, m);
  }
  *out_sequence = std::move(sequence);
  *out_left_out = std::move(left_out);
  return Status();
}

Status Engine::EndRecording() {
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  const size_t recomputed = evaluating_ ? 0 : RecomputedAtEnd();
  recorded_.resize(recorded_.size() - recomputed);
  Sequence sequence;
  std::vector<uint8_t> left_out;
  ENGINE_RETURN_IF_ERROR(FindSequence(&sequence, &left_out));
  record_failure_ = Freeze(std::move(sequence));
  ENGINE_RETURN_IF_ERROR(record_failure_);
  return evaluating_ ? Status() : CatchUp(left_out, recomputed > 0);
}

Status Engine::Freeze(Sequence sequence) {
  if (bound_.recording() != nullptr) {
    ENGINE_RETURN_IF_ERROR(bound_.recording()->End());
    bound_.TakeRecording();
  }
  if (sequence != step_plan_->sequence()) {
    ENGINE_RETURN_IF_ERROR(StepPlan::Build(spec_, model_, PlanOptions(),
                                           layout(), std::move(sequence),
                                           &step_plan_));
  }
  ENGINE_RETURN_IF_ERROR(Connect());
  recording_ = false;
  return Status();
}

Status Engine::CatchUp(const std::vector<uint8_t>& left_out, bool recomputed) {
  ENGINE_RETURN_IF_ERROR(bound_.BeginStep(steps_begun_));
  ENGINE_RETURN_IF_ERROR(update_.FetchFirst());
  step_cursor_.Restart();
  for (size_t i = 0; i < left_out.size(); ++i) {
    ENGINE_RETURN_IF_ERROR(PassModule(/*is_left_out=*/left_out[i] != 0));
  }
  while (recomputed && cursor().pass().again) {
    ENGINE_RETURN_IF_ERROR(PassModule(/*is_left_out=*/false));
  }
  return Status();
}

}  // namespace commsched::engine
