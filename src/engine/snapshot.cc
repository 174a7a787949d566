// Checkpoints of a rank's state.

#include "checkpoint/snapshot.h"

#include <utility>

#include "engine.h"

namespace commsched::engine {

Status Engine::MakeSnapshot(Snapshot* out) {
  if (!built()) return OutOfOrder("saver_create");
  Snapshot snapshot;
  saved_state().Describe(&snapshot);
  snapshot.slice = slice_;
  snapshot.check = [this](uint64_t* out_step) {
    if (phase_ != Phase::kBetweenSteps) return OutOfOrder("save");
    *out_step = steps();
    return SessionFailure();
  };
  snapshot.copy_out = [this](float* values) { return CopyOut(values); };
  snapshot.add_metadata = [this](std::map<std::string, std::string>* metadata) {
    SaveLossScale(update_.reported(), spec_.scales_loss, metadata);
  };
  snapshot.lineage = &lineage_;
  *out = std::move(snapshot);
  return Status();
}

// No collective touches the moments, so they are copied while the gathers of
// the last step may still run, if copies of this step do not.
Status Engine::CopyOut(float* out) {
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(Drain());
  SavedState saved = saved_state();
  ENGINE_RETURN_IF_ERROR(saved.CopyMoments(&out));
  ENGINE_RETURN_IF_ERROR(Drain());
  return saved.CopyMasters(&out);
}

Status Engine::MasterRange(uint32_t parameter, uint64_t* out_offset,
                           uint64_t* out_count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  if (!built()) return OutOfOrder("master_range");
  const SavedPiece piece = saved_state().PieceOf(parameter);
  *out_offset = piece.begin;
  *out_count = piece.count;
  return Status();
}

Status Engine::GetMasterRange(uint32_t parameter, float* out_values,
                              uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  if (!built()) return OutOfOrder("get_master_range");
  ENGINE_RETURN_IF_ERROR(CheckDrained("get_master_range"));
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  const SavedPiece piece = saved_state().PieceOf(parameter);
  if (count != piece.count) {
    return InvalidArgument(
        "engine: get_master_range of '" + model_.parameters()[parameter].name +
        "' with " + std::to_string(count) + " elements; this rank keeps " +
        std::to_string(piece.count));
  }
  if (count == 0) return Status();
  ENGINE_RETURN_IF_ERROR(
      state_values().ReadMasters(piece.bucket, piece.at, out_values, count));
  return kernels_.Synchronize();
}

// All that can be wrong with the files is found before anything changes.
Status Engine::Restore(const Checkpoint& checkpoint) {
  ENGINE_RETURN_IF_ERROR(CheckDrained("checkpoint_load"));
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  SavedState saved = saved_state();
  std::vector<SavedState::Target> targets;
  ENGINE_RETURN_IF_ERROR(saved.FindTargets(checkpoint, &targets));
  LossScale loss_scale = update_.reported();
  ENGINE_RETURN_IF_ERROR(LoadLossScale(checkpoint.index().metadata,
                                       checkpoint.index().id.step,
                                       spec_.scales_loss, &loss_scale));
  for (const SavedState::Target& target : targets) {
    ENGINE_RETURN_IF_ERROR(checkpoint.Verify(target.range));
  }
  agreement_.NoteChangedValues();
  for (const SavedState::Target& target : targets) {
    ENGINE_RETURN_IF_ERROR(saved.Read(checkpoint, target));
  }
  ENGINE_RETURN_IF_ERROR(update_.SetState(loss_scale));
  ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
  step_offset_ = checkpoint.index().id.step - steps_done_;
  lineage_.Load(checkpoint.index().id);
  return Status();
}

}  // namespace commsched::engine
