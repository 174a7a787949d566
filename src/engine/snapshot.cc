#include "checkpoint/snapshot.h"

#include <algorithm>

#include "engine.h"

namespace commsched::engine {

Status Engine::MakeSnapshot(Snapshot* out) {
  ENGINE_RETURN_IF_ERROR(CheckBuilt("saver_create"));
  Snapshot snapshot;
  snapshot.rank = group_rank_;
  snapshot.world = static_cast<uint64_t>(spec_.world);
  snapshot.zero_stage = spec_.zero_stage;
  snapshot.slice = slice_;
  for (const Parameter& parameter : model_.parameters()) {
    snapshot.tensors.push_back({parameter.name, "F32", parameter.dims});
  }
  const std::vector<SavedPiece> pieces = SavedPieces();
  std::vector<StateKind> kinds = Moments();
  kinds.push_back(StateKind::kValue);
  for (StateKind kind : kinds) {
    for (const SavedPiece& piece : pieces) {
      const Parameter& parameter = model_.parameters()[piece.parameter];
      snapshot.pieces.push_back({.kind = kind,
                                 .parameter = parameter.name,
                                 .dtype = "F32",
                                 .shape = parameter.dims,
                                 .begin = piece.begin,
                                 .count = piece.count});
    }
  }
  snapshot.check = [this](uint64_t* out_step) {
    if (phase_ != Phase::kBetweenSteps) return OutOfOrder("save");
    *out_step = steps();
    return SessionFailure();
  };
  snapshot.copy_out = [this, pieces](float* values) {
    return CopyOut(pieces, values);
  };
  snapshot.add_metadata = [this](std::map<std::string, std::string>* metadata) {
    SaveLossScale(last_state_, spec_.scales_loss, metadata);
  };
  snapshot.lineage = &lineage_;
  *out = std::move(snapshot);
  return Status();
}

std::vector<Engine::SavedPiece> Engine::SavedPieces() const {
  std::vector<SavedPiece> pieces;
  for (uint32_t b = 0; b < layout().buckets.size(); ++b) {
    const std::vector<SavedPiece> some = SavedPiecesOf(b);
    pieces.insert(pieces.end(), some.begin(), some.end());
  }
  return pieces;
}

std::vector<Engine::SavedPiece> Engine::SavedPiecesOf(uint32_t bucket) const {
  std::vector<SavedPiece> pieces;
  for (const Segment& segment :
       ShardSegments(layout(), model_.parameters(), bucket, group_rank_,
                     static_cast<uint64_t>(spec_.world))) {
    pieces.push_back(
        {.parameter = segment.parameter,
         .begin = segment.in_bucket - layout().slots[segment.parameter].offset,
         .count = segment.count,
         .bucket = bucket,
         .at = spec_.zero_stage == 0 ? segment.in_bucket : segment.in_shard});
  }
  return pieces;
}

Engine::SavedPiece Engine::SavedPieceOf(uint32_t parameter) const {
  for (const SavedPiece& piece :
       SavedPiecesOf(layout().slots[parameter].bucket)) {
    if (piece.parameter == parameter) return piece;
  }
  return {};
}

Status Engine::MasterRange(uint32_t parameter, uint64_t* out_offset,
                           uint64_t* out_count) const {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(CheckBuilt("master_range"));
  const SavedPiece piece = SavedPieceOf(parameter);
  *out_offset = piece.begin;
  *out_count = piece.count;
  return Status();
}

Status Engine::GetMasterRange(uint32_t parameter, float* out_values,
                              uint64_t count) {
  ENGINE_RETURN_IF_ERROR(model_.CheckParameter(parameter));
  ENGINE_RETURN_IF_ERROR(CheckBuilt("get_master_range"));
  ENGINE_RETURN_IF_ERROR(CheckDrained("get_master_range"));
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  const SavedPiece piece = SavedPieceOf(parameter);
  if (count != piece.count) {
    return InvalidArgument(
        "engine: get_master_range of '" + model_.parameters()[parameter].name +
        "' with " + std::to_string(count) + " elements; this rank keeps " +
        std::to_string(piece.count));
  }
  return count == 0 ? Status()
                    : CopyPieces({piece}, spec_.moments, &out_values);
}

std::vector<StateKind> Engine::Moments() const {
  if (!spec_.sgd) return {StateKind::kFirstMoment, StateKind::kSecondMoment};
  if (spec_.moments == 0) return {};
  return {StateKind::kMomentum};
}

// No collective touches the moments, so they are copied while the gathers of
// the last step may still run, if copies of this step do not.
Status Engine::CopyOut(const std::vector<SavedPiece>& pieces, float* out) {
  if (offload_ != nullptr) ENGINE_RETURN_IF_ERROR(Drain());
  for (uint64_t moment = 0; moment < spec_.moments; ++moment) {
    ENGINE_RETURN_IF_ERROR(CopyPieces(pieces, moment, &out));
  }
  ENGINE_RETURN_IF_ERROR(Drain());
  return CopyPieces(pieces, spec_.moments, &out);
}

Status Engine::CopyPieces(const std::vector<SavedPiece>& pieces,
                          uint64_t moment, float** out) {
  const bool values = moment == spec_.moments;
  const bool offloaded =
      offload_ != nullptr && (!values || spec_.has_masters());
  for (const SavedPiece& piece : pieces) {
    const uint64_t begin = values ? 0 : MomentBegin(piece.bucket, moment);
    if (offloaded) {
      ENGINE_RETURN_IF_ERROR(
          offload_->Read(piece.bucket, begin + piece.at, *out, piece.count));
    } else {
      const BucketMemory& memory = state_.bucket(piece.bucket);
      const float* const from =
          (values ? memory.my_masters : memory.my_state) + begin;
      ENGINE_RETURN_IF_ERROR(
          kernels_.Copy(*out, from + piece.at, piece.count * sizeof(float)));
    }
    *out += piece.count;
  }
  return kernels_.Synchronize();
}

// The checkpoint is of this model: for each parameter the index of its tensor.
Status Engine::CheckTensors(const Checkpoint& checkpoint,
                            std::vector<size_t>* out_tensors) const {
  const std::vector<CheckpointIndex::Tensor>& saved =
      checkpoint.index().tensors;
  std::vector<size_t> tensors;
  for (const Parameter& parameter : model_.parameters()) {
    const int64_t found = checkpoint.Find(parameter.name);
    if (found < 0) {
      return InvalidArgument("engine: the checkpoint has no tensor '" +
                             parameter.name + "'");
    }
    const CheckpointIndex::Tensor& tensor = saved[static_cast<size_t>(found)];
    if (tensor.shape != parameter.dims) {
      return InvalidArgument(
          "engine: tensor '" + parameter.name +
          "' of the checkpoint has shape " + FormatShape(tensor.shape) +
          "; the parameter has " + FormatShape(parameter.dims));
    }
    if (tensor.dtype != "F32") {
      return InvalidArgument("engine: tensor '" + parameter.name +
                             "' of the checkpoint is " + tensor.dtype +
                             "; the engine keeps F32");
    }
    tensors.push_back(static_cast<size_t>(found));
  }
  if (saved.size() == tensors.size()) {
    *out_tensors = std::move(tensors);
    return Status();
  }
  for (const CheckpointIndex::Tensor& tensor : saved) {
    if (model_.HasParameter(tensor.name)) continue;
    return InvalidArgument("engine: tensor '" + tensor.name +
                           "' of the checkpoint is no parameter of the model");
  }
  return Status(COMMSCHED_INTERNAL, "engine: tensors and parameters differ");
}

// It is of this optimizer.
Status Engine::CheckMoments(const Checkpoint& checkpoint) const {
  const std::vector<StateKind> kept = Moments();
  for (uint32_t k = 0; k < kNumStateKinds; ++k) {
    const auto kind = static_cast<StateKind>(k);
    if (kind == StateKind::kValue) continue;
    const bool wanted = std::count(kept.begin(), kept.end(), kind) > 0;
    if (checkpoint.Has(kind) == wanted) continue;
    return InvalidArgument(std::string("engine: the checkpoint has ") +
                           (wanted ? "no " : "") + engine::NameOf(kind) +
                           ", which the engine's " + spec_.optimizer() +
                           (wanted ? " keeps" : " does not keep"));
  }
  return Status();
}

std::vector<Engine::Target> Engine::Targets(
    const std::vector<size_t>& tensors) const {
  const std::vector<StateKind> moments = Moments();
  std::vector<Target> targets;
  for (uint32_t b = 0; b < state_.buckets().size(); ++b) {
    const BucketMemory& memory = state_.bucket(b);
    for (const Segment& segment : memory.segments) {
      const uint32_t p = segment.parameter;
      Checkpoint::Range range = {
          .tensor = tensors[p],
          .kind = StateKind::kValue,
          .begin = segment.in_bucket - layout().slots[p].offset,
          .count = segment.count};
      if (gathered(b)) targets.push_back({.range = range, .parameter = p});
      for (size_t k = 0; k < moments.size(); ++k) {
        range.kind = moments[k];
        Target target = {.range = range,
                         .bucket = b,
                         .in_state = MomentBegin(b, k) + segment.in_shard};
        if (offload_ == nullptr) {
          target.state = memory.my_state + target.in_state;
        }
        targets.push_back(target);
      }
    }
    if (gathered(b)) continue;
    for (uint32_t p : layout().buckets[b].parameters) {
      targets.push_back({.range = {.tensor = tensors[p],
                                   .kind = StateKind::kValue,
                                   .begin = 0,
                                   .count = model_.parameters()[p].count},
                         .parameter = p});
    }
  }
  return targets;
}

Status Engine::ReadTarget(const Checkpoint& checkpoint, const Target& target) {
  if (target.state != nullptr && !on_device_) {
    return checkpoint.Read(target.range, target.state);
  }
  std::vector<float> values(target.range.count);
  ENGINE_RETURN_IF_ERROR(checkpoint.Read(target.range, values.data()));
  if (target.state != nullptr) {
    return kernels_.Copy(target.state, values.data(),
                         values.size() * sizeof(float));
  }
  if (target.range.kind != StateKind::kValue) {
    return offload_->Write(target.bucket, target.in_state, values.data(),
                           values.size());
  }
  const Slot& slot = layout().slots[target.parameter];
  return StoreValues(slot.bucket, slot.offset + target.range.begin,
                     values.data(), values.size());
}

// All that can be wrong with the files is found before anything changes.
Status Engine::Restore(const Checkpoint& checkpoint) {
  ENGINE_RETURN_IF_ERROR(CheckDrained("checkpoint_load"));
  ENGINE_RETURN_IF_ERROR(SessionFailure());
  std::vector<size_t> tensors;
  ENGINE_RETURN_IF_ERROR(CheckTensors(checkpoint, &tensors));
  ENGINE_RETURN_IF_ERROR(CheckMoments(checkpoint));
  LossScale loss_scale = last_state_;
  ENGINE_RETURN_IF_ERROR(LoadLossScale(checkpoint.index().metadata,
                                       checkpoint.index().id.step,
                                       spec_.scales_loss, &loss_scale));
  const std::vector<Target> targets = Targets(tensors);
  for (const Target& target : targets) {
    ENGINE_RETURN_IF_ERROR(checkpoint.Verify(target.range));
  }
  unchecked_ = true;
  for (const Target& target : targets) {
    ENGINE_RETURN_IF_ERROR(ReadTarget(checkpoint, target));
  }
  last_state_ = loss_scale;
  ENGINE_RETURN_IF_ERROR(state_.SetControl(last_state_));
  ENGINE_RETURN_IF_ERROR(kernels_.Synchronize());
  step_offset_ = checkpoint.index().id.step - steps_done_;
  lineage_.Load(checkpoint.index().id);
  return Status();
}

}  // namespace commsched::engine
