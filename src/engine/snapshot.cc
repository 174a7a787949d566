// Checkpoints of a rank's state.

#include "checkpoint/snapshot.h"

#include <utility>

#include "engine.h"

namespace commsched::engine {

Status Engine::MakeSnapshot(bool whole, Snapshot* out) {
  if (!built()) return OutOfOrder("saver_create");
  Snapshot snapshot;
  if (whole) {
    saved_state().DescribeWhole(&snapshot);
  } else {
    saved_state().Describe(&snapshot);
  }
  snapshot.slice = slice_;
  snapshot.check = [this](uint64_t* out_step) {
    if (phase_ != Phase::kBetweenSteps) return OutOfOrder("save");
    *out_step = steps();
    return SessionFailure();
  };
  snapshot.copy_out = [this, whole](float* values) {
    return whole ? GatherOut(values) : CopyOut(values);
  };
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

// Of every kind and parameter, in the order of the pieces of a whole snapshot.
Status Engine::GatherOut(float* out) {
  ENGINE_RETURN_IF_ERROR(Drain());
  std::vector<std::string> kinds = saved_state().Moments();
  kinds.push_back(kValueKind);
  for (const std::string& kind : kinds) {
    for (uint32_t p = 0; p < model_.parameters().size(); ++p) {
      ENGINE_RETURN_IF_ERROR(GatherKind(p, kind, /*root=*/0, out));
      if (group_rank_ == 0) out += model_.parameters()[p].count;
    }
  }
  return Status();
}

Status Engine::GatherKind(uint32_t parameter, const std::string& kind,
                          uint32_t root, float* out) {
  ENGINE_RETURN_IF_ERROR(gather_.Open(agreement_.context(), agreement_.group(),
                                      desc_.launch_timeout_ns));
  StateGather::Pieces pieces;
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(spec_.world); ++rank) {
    pieces.counts.push_back(saved_state_of(rank).PieceOf(parameter).count);
  }
  pieces.read = [&](float* mine) {
    SavedState saved = saved_state();
    return saved.CopyPiece(saved.PieceOf(parameter), kind, mine);
  };
  return gather_.Gather(pieces, root, out);
}

Status Engine::GatherParameter(uint32_t parameter, uint32_t root,
                               float* out_values, uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  if (!built()) return OutOfOrder("gather_parameter");
  if (root >= static_cast<uint32_t>(spec_.world)) {
    return InvalidArgument("engine: gather_parameter to rank " +
                           std::to_string(root) + "; the group has " +
                           std::to_string(spec_.world) + " ranks");
  }
  if (group_rank_ == root) {
    ENGINE_RETURN_IF_ERROR(CheckCount("gather_parameter", parameter, count));
    if (out_values == nullptr) {
      return InvalidArgument(
          "engine: out_values of gather_parameter are NULL on its root");
    }
  }
  ENGINE_RETURN_IF_ERROR(Drain());
  return GatherKind(parameter, kValueKind, root, out_values);
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
