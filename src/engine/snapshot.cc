// Checkpoints of a rank's state.

#include "checkpoint/snapshot.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine.h"
#include "engine/update/loss_scale.h"

namespace commsched::engine {

Status Engine::MakeSnapshot(bool whole, Snapshot* out) {
  Snapshot snapshot;
  if (whole) {
    saved_state(group_rank_).DescribeWhole(&snapshot);
  } else {
    saved_state(group_rank_).Describe(&snapshot);
  }
  snapshot.slice = slice_;
  snapshot.check = [this](uint64_t* out_step) {
    if (!calls_.between_steps()) return calls_.OutOfOrder("save");
    *out_step = calls_.steps();
    return calls_.Failure();
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
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(calls_.Drain());
  SavedState saved = saved_state(group_rank_);
  ENGINE_RETURN_IF_ERROR(saved.CopyMoments(&out));
  ENGINE_RETURN_IF_ERROR(calls_.Drain());
  return saved.CopyMasters(&out);
}

// Collects every kind and parameter, in the order of a whole snapshot's pieces.
Status Engine::GatherOut(float* out) {
  ENGINE_RETURN_IF_ERROR(calls_.Drain());
  std::vector<std::string> kinds = saved_state(group_rank_).Moments();
  kinds.push_back(kValueKind);
  for (const std::string& kind : kinds) {
    for (uint32_t p = 0; p < model_.parameters().size(); ++p) {
      if (model_.parameters()[p].frozen && kind != kValueKind) continue;
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
    pieces.counts.push_back(saved_state(rank).PieceOf(parameter).count);
  }
  pieces.read = [&](float* mine) {
    SavedState saved = saved_state(group_rank_);
    return saved.CopyPiece(saved.PieceOf(parameter), kind, mine);
  };
  return gather_.Gather(pieces, root, out);
}

Status Engine::GatherParameter(uint32_t parameter, uint32_t root,
                               float* out_values, uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  if (root >= static_cast<uint32_t>(spec_.world)) {
    return InvalidArgument("engine: gather_parameter to rank " +
                           std::to_string(root) + "; the group has " +
                           std::to_string(spec_.world) + " ranks");
  }
  if (group_rank_ == root) {
    ENGINE_RETURN_IF_ERROR(
        model_.CheckCount("gather_parameter", parameter, count));
    if (out_values == nullptr && count > 0) {
      return InvalidArgument(
          "engine: out_values of gather_parameter are NULL on its root");
    }
  }
  ENGINE_RETURN_IF_ERROR(calls_.Drain());
  return GatherKind(parameter, kValueKind, root, out_values);
}

Status Engine::MasterRange(uint32_t parameter, uint64_t* out_offset,
                           uint64_t* out_count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  const SavedPiece piece = saved_state(group_rank_).PieceOf(parameter);
  *out_offset = piece.begin;
  *out_count = piece.count;
  return Status();
}

Status Engine::GetState(uint32_t parameter, const std::string& name,
                        float* out_values, uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  const std::vector<std::string> names = saved_state(group_rank_).Moments();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string has;
    for (const std::string& each : names) {
      has += (has.empty() ? "'" : ", '") + each + "'";
    }
    return Status(COMMSCHED_NOT_FOUND, "engine: get_state of '" + name + "'; " +
                                           optimizer_.name() + " keeps " +
                                           (has.empty() ? "nothing" : has));
  }
  if (model_.parameters()[parameter].frozen) {
    return FailedPrecondition("engine: get_state of '" +
                              model_.parameters()[parameter].name +
                              "', which is frozen and has none");
  }
  return ReadPiece("get_state", parameter, name, out_values, count);
}

Status Engine::ReadPiece(const char* call, uint32_t parameter,
                         const std::string& kind, float* out_values,
                         uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(calls_.CheckDrained(call));
  ENGINE_RETURN_IF_ERROR(calls_.Failure());
  SavedState saved = saved_state(group_rank_);
  const SavedPiece piece = saved.PieceOf(parameter);
  if (count != piece.count) {
    return InvalidArgument("engine: " + std::string(call) + " of '" +
                           model_.parameters()[parameter].name + "' with " +
                           std::to_string(count) +
                           " elements; this rank keeps " +
                           std::to_string(piece.count));
  }
  if (count == 0) return Status();
  ENGINE_RETURN_IF_ERROR(saved.CopyPiece(piece, kind, out_values));
  return kernels_.Synchronize();
}

// All that can be wrong with the files is found before anything changes.
Status Engine::Restore(const Checkpoint& checkpoint) {
  ENGINE_RETURN_IF_ERROR(calls_.CheckDrained("checkpoint_load"));
  ENGINE_RETURN_IF_ERROR(calls_.Failure());
  SavedState saved = saved_state(group_rank_);
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
  calls_.SetSteps(checkpoint.index().id.step);
  lineage_.Load(checkpoint.index().id);
  return Status();
}

}  // namespace commsched::engine
