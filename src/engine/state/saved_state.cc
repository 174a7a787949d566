#include "engine/state/saved_state.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace commsched::engine {

void SavedState::Describe(Snapshot* snapshot) const {
  snapshot->rank = rank_;
  snapshot->world = static_cast<uint64_t>(spec_.world);
  snapshot->zero_stage = spec_.zero_stage;
  for (const Parameter& parameter : model_.parameters()) {
    snapshot->tensors.push_back({parameter.name, "F32", parameter.dims});
  }
  std::vector<std::string> kinds = Moments();
  kinds.push_back(kValueKind);
  const std::vector<SavedPiece> pieces = Pieces();
  for (const std::string& kind : kinds) {
    for (const SavedPiece& piece : pieces) {
      if (!HasKind(piece.bucket, kind)) continue;
      const Parameter& parameter = model_.parameters()[piece.parameter];
      snapshot->pieces.push_back({.kind = kind,
                                  .parameter = parameter.name,
                                  .dtype = "F32",
                                  .shape = parameter.dims,
                                  .begin = piece.begin,
                                  .count = piece.count});
    }
  }
}

void SavedState::DescribeWhole(Snapshot* snapshot) const {
  Describe(snapshot);
  snapshot->writes = rank_ == 0;
  snapshot->rank = 0;
  snapshot->world = 1;
  snapshot->pieces.clear();
  if (!snapshot->writes) return;
  std::vector<std::string> kinds = Moments();
  kinds.push_back(kValueKind);
  for (const std::string& kind : kinds) {
    for (const Parameter& parameter : model_.parameters()) {
      if (parameter.frozen && kind != kValueKind) continue;
      snapshot->pieces.push_back({.kind = kind,
                                  .parameter = parameter.name,
                                  .dtype = "F32",
                                  .shape = parameter.dims,
                                  .begin = 0,
                                  .count = parameter.count});
    }
  }
}

Status SavedState::CopyPiece(const SavedPiece& piece, const std::string& kind,
                             float* out) {
  if (piece.count == 0) return Status();
  if (kind == kValueKind) {
    return values_.ReadMasters(piece.bucket, piece.at, out, piece.count);
  }
  const std::vector<std::string> moments = Moments();
  const auto moment = static_cast<uint64_t>(
      std::find(moments.begin(), moments.end(), kind) - moments.begin());
  return values_.ReadMoment(piece.bucket, moment, piece.at, out, piece.count);
}

bool SavedState::HasKind(uint32_t bucket, const std::string& kind) const {
  return kind == kValueKind || !layout_.buckets[bucket].frozen;
}

Status SavedState::CopyMoments(float** out) {
  const std::vector<SavedPiece> pieces = Pieces();
  for (uint64_t moment = 0; moment < spec_.moments; ++moment) {
    for (const SavedPiece& piece : pieces) {
      if (layout_.buckets[piece.bucket].frozen) continue;
      ENGINE_RETURN_IF_ERROR(values_.ReadMoment(piece.bucket, moment, piece.at,
                                                *out, piece.count));
      *out += piece.count;
    }
  }
  return values_.Synchronize();
}

Status SavedState::CopyMasters(float** out) {
  for (const SavedPiece& piece : Pieces()) {
    ENGINE_RETURN_IF_ERROR(
        values_.ReadMasters(piece.bucket, piece.at, *out, piece.count));
    *out += piece.count;
  }
  return values_.Synchronize();
}

std::vector<SavedPiece> SavedState::Pieces() const {
  std::vector<SavedPiece> pieces;
  for (uint32_t b = 0; b < layout_.buckets.size(); ++b) {
    const std::vector<SavedPiece> some = PiecesOf(b);
    pieces.insert(pieces.end(), some.begin(), some.end());
  }
  return pieces;
}

std::vector<SavedPiece> SavedState::PiecesOf(uint32_t bucket) const {
  std::vector<SavedPiece> pieces;
  for (const Segment& segment :
       ShardSegments(layout_, model_.parameters(), bucket, rank_,
                     static_cast<uint64_t>(spec_.world))) {
    pieces.push_back(
        {.parameter = segment.parameter,
         .begin = segment.in_bucket - layout_.slots[segment.parameter].offset,
         .count = segment.count,
         .bucket = bucket,
         .at = spec_.zero_stage == 0 ? segment.in_bucket : segment.in_shard});
  }
  return pieces;
}

SavedPiece SavedState::PieceOf(uint32_t parameter) const {
  for (const SavedPiece& piece : PiecesOf(layout_.slots[parameter].bucket)) {
    if (piece.parameter == parameter) return piece;
  }
  return {};
}

std::vector<std::string> SavedState::Moments() const {
  std::vector<std::string> moments;
  for (uint32_t i = 0; i < optimizer_.table().state_values; ++i) {
    moments.push_back(optimizer_.state_name(i));
  }
  return moments;
}

Status SavedState::FindTensors(const Checkpoint& checkpoint,
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

Status SavedState::CheckMoments(const Checkpoint& checkpoint) const {
  const std::vector<std::string> kept = Moments();
  std::set<std::string> kinds(kept.begin(), kept.end());
  for (const std::string& kind : checkpoint.Kinds()) kinds.insert(kind);
  kinds.erase(kValueKind);
  for (const std::string& kind : kinds) {
    const bool wanted = std::count(kept.begin(), kept.end(), kind) > 0;
    if (checkpoint.Has(kind) == wanted) continue;
    return InvalidArgument(std::string("engine: the checkpoint has ") +
                           (wanted ? "no " : "") + kind +
                           ", which the engine's " + spec_.optimizer +
                           (wanted ? " keeps" : " does not keep"));
  }
  return Status();
}

// One that was frozen when the checkpoint was saved has no state to go on from.
Status SavedState::CheckMomentsOf(const Parameter& parameter,
                                  const Checkpoint& checkpoint,
                                  size_t tensor) const {
  if (parameter.frozen || parameter.count == 0) return Status();
  for (const std::string& kind : Moments()) {
    if (checkpoint.HasOf(tensor, kind)) continue;
    return InvalidArgument("engine: the checkpoint has no " + kind +
                           " of tensor '" + parameter.name +
                           "', which was frozen when it was saved; the "
                           "parameter is trained");
  }
  return Status();
}

void SavedState::AddTargets(uint32_t bucket, const std::vector<size_t>& tensors,
                            std::vector<Target>* targets) const {
  const bool gathered = spec_.gathers(layout_.buckets[bucket]);
  std::vector<std::string> moments = Moments();
  if (layout_.buckets[bucket].frozen) moments.clear();
  for (const Segment& segment :
       ShardSegments(layout_, model_.parameters(), bucket,
                     spec_.zero_stage == 0 ? 0 : rank_, spec_.num_shards())) {
    const uint32_t p = segment.parameter;
    Target target = {
        .range = {.tensor = tensors[p],
                  .kind = kValueKind,
                  .begin = segment.in_bucket - layout_.slots[p].offset,
                  .count = segment.count},
        .bucket = bucket,
        .at = segment.in_bucket};
    if (gathered) targets->push_back(target);
    target.at = segment.in_shard;
    for (size_t k = 0; k < moments.size(); ++k) {
      target.range.kind = moments[k];
      target.moment = k;
      targets->push_back(target);
    }
  }
  if (gathered) return;
  for (uint32_t p : layout_.buckets[bucket].parameters) {
    targets->push_back({.range = {.tensor = tensors[p],
                                  .kind = kValueKind,
                                  .begin = 0,
                                  .count = model_.parameters()[p].count},
                        .bucket = bucket,
                        .at = layout_.slots[p].offset});
  }
}

Status SavedState::FindTargets(const Checkpoint& checkpoint,
                               std::vector<Target>* out_targets) const {
  std::vector<size_t> tensors;
  ENGINE_RETURN_IF_ERROR(FindTensors(checkpoint, &tensors));
  ENGINE_RETURN_IF_ERROR(CheckMoments(checkpoint));
  for (size_t p = 0; p < tensors.size(); ++p) {
    ENGINE_RETURN_IF_ERROR(
        CheckMomentsOf(model_.parameters()[p], checkpoint, tensors[p]));
  }
  out_targets->clear();
  for (uint32_t b = 0; b < layout_.buckets.size(); ++b) {
    AddTargets(b, tensors, out_targets);
  }
  return Status();
}

Status SavedState::Read(const Checkpoint& checkpoint, const Target& target) {
  std::vector<float> values(target.range.count);
  ENGINE_RETURN_IF_ERROR(checkpoint.Read(target.range, values.data()));
  if (target.range.kind == kValueKind) {
    return values_.Store(target.bucket, target.at, values.data(),
                         values.size());
  }
  return values_.WriteMoment(target.bucket, target.moment, target.at,
                             values.data(), values.size());
}

}  // namespace commsched::engine
