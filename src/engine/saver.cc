#include "saver.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "files.h"
#include "json_text.h"
#include "safetensors.h"

namespace commsched::engine {
namespace {

constexpr char kTemporary[] = ".tmp";
// Leaves room for the tensors in an index.
constexpr uint64_t kMaxMetadataBytes = uint64_t{1} << 20;

uint64_t TotalCount(const std::vector<SavedPiece>& pieces) {
  uint64_t count = 0;
  for (const SavedPiece& piece : pieces) count += piece.count;
  return count;
}

Status CheckMetadata(const std::map<std::string, std::string>& metadata) {
  uint64_t bytes = 0;
  for (const auto& [key, value] : metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) {
      return InvalidArgument("engine: metadata '" + key + "' is not UTF-8");
    }
    if (key.rfind(kReservedPrefix, 0) == 0) {
      return InvalidArgument("engine: metadata '" + key + "' begins with '" +
                             kReservedPrefix + "', as only the engine's may");
    }
    bytes += key.size() + value.size();
  }
  if (bytes <= kMaxMetadataBytes) return Status();
  return InvalidArgument("engine: metadata of " + std::to_string(bytes) +
                         " bytes; the limit is " +
                         std::to_string(kMaxMetadataBytes));
}

// Calls `visit` with the names in `folder` that a saver made.
template <typename Visit>
std::error_code ForEachSavedName(const std::string& folder, Visit&& visit) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  const std::filesystem::directory_iterator end;
  while (!error && entry != end) {
    SavedName saved;
    const std::string name = entry->path().filename().string();
    if (ParseSavedName(name, &saved)) visit(name, saved);
    entry.increment(error);
  }
  return error;
}

}  // namespace

Status Saver::Create(Engine& engine, const std::string& folder,
                     const std::string& run, std::unique_ptr<Saver>* out) {
  ENGINE_RETURN_IF_ERROR(engine.CheckBuilt("saver_create"));
  const Status valid = CheckRun(run);
  if (!valid.ok()) return InvalidArgument("engine: saver: " + valid.message());
  ENGINE_RETURN_IF_ERROR(CheckFolder(folder));
  std::unique_ptr<Saver> saver(new Saver(engine, folder, run));
  ENGINE_RETURN_IF_ERROR(saver->CheckUnusedRun());
  ENGINE_RETURN_IF_ERROR(saver->Prepare());
  *out = std::move(saver);
  return Status();
}

// A file that is left of another save of this name would be taken for one of
// this.
Status Saver::CheckUnusedRun() const {
  std::string found;
  const std::error_code error = ForEachSavedName(
      folder_, [&](const std::string& name, const SavedName& saved) {
        if (saved.id.run == run_ && saved.rank == engine_.rank()) found = name;
      });
  if (error) {
    return Status(COMMSCHED_UNAVAILABLE,
                  "cannot list folder '" + folder_ + "': " + error.message());
  }
  if (found.empty()) return Status();
  return Status(COMMSCHED_ALREADY_EXISTS, "engine: run '" + run_ +
                                              "' has saved to '" + folder_ +
                                              "' before: '" + found +
                                              "'; each run needs a name of its "
                                              "own");
}

Status Saver::Prepare() {
  pieces_ = engine_.SavedPieces();
  std::vector<StateKind> kinds = engine_.Moments();
  kinds.push_back(StateKind::kValue);
  for (StateKind kind : kinds) {
    for (const SavedPiece& piece : pieces_) {
      const Parameter& parameter = engine_.parameters()[piece.parameter];
      if (!IsUtf8(parameter.name)) {
        return InvalidArgument("engine: the name of parameter " +
                               std::to_string(piece.parameter) +
                               " is not UTF-8; it cannot be saved");
      }
      part_.push_back({.kind = kind,
                       .parameter = parameter.name,
                       .dtype = "F32",
                       .shape = parameter.dims,
                       .begin = piece.begin,
                       .count = piece.count});
    }
  }
  TensorHeader header;
  ENGINE_RETURN_IF_ERROR(
      MakePartHeader(id_, engine_.rank(), engine_.world(), part_, &header));
  const uint64_t count = kinds.size() * TotalCount(pieces_);
  // A rank of a small model may have nothing but padding.
  copy_ = Array<float>::Zeros(std::max<uint64_t>(count, 1));
  if (copy_.data() == nullptr) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                  "engine: no memory for the copy of a checkpoint (" +
                      std::to_string(count * sizeof(float)) + " bytes)");
  }
  try {
    writer_ = std::thread([this] { WriteSaves(); });
  } catch (const std::system_error& e) {
    return Status(
        COMMSCHED_RESOURCE_EXHAUSTED,
        std::string("engine: no thread to write checkpoints: ") + e.what());
  }
  return Status();
}

Saver::~Saver() {
  if (!writer_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

Status Saver::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !writing_; });
  return failure_;
}

Status Saver::Save(std::map<std::string, std::string> metadata) {
  ENGINE_RETURN_IF_ERROR(CheckMetadata(metadata));
  ENGINE_RETURN_IF_ERROR(engine_.CheckCanSave());
  ENGINE_RETURN_IF_ERROR(Wait());
  const uint64_t step = engine_.steps();
  if (has_saved_ && step <= id_.step) {
    return Status(COMMSCHED_FAILED_PRECONDITION,
                  "engine: save at step " + std::to_string(step) +
                      "; that of step " + std::to_string(id_.step) +
                      " has been saved");
  }
  ENGINE_RETURN_IF_ERROR(engine_.CopyOut(pieces_, copy_.data()));
  id_ = {step, run_};
  engine_.AddMetadata(&metadata);
  metadata_ = std::move(metadata);
  has_saved_ = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = true;
  }
  changed_.notify_all();
  return Status();
}

// ---- On the writing thread --------------------------------------------------

void Saver::WriteSaves() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return writing_ || ending_; });
    if (!writing_) return;
    lock.unlock();
    Status status = WriteGuarded();
    lock.lock();
    writing_ = false;
    if (failure_.ok()) failure_ = std::move(status);
    changed_.notify_all();
  }
}

Status Saver::WriteGuarded() noexcept {
  try {
    return Write();
  } catch (const std::exception& e) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                  std::string("writing a checkpoint: ") + e.what());
  }
}

Status Saver::Write() {
  ENGINE_RETURN_IF_ERROR(WritePart());
  CheckpointIndex index;
  bool complete = false;
  ENGINE_RETURN_IF_ERROR(FindParts(&index, &complete));
  if (!complete) return Status();
  ENGINE_RETURN_IF_ERROR(WriteIndex(index));
  RemoveOlder();
  return Status();
}

Status Saver::WritePart() {
  const float* data = copy_.data();
  for (PartPiece& piece : part_) {
    piece.hash = HashOf(data, piece.count * sizeof(float));
    data += piece.count;
  }
  TensorHeader header;
  ENGINE_RETURN_IF_ERROR(
      MakePartHeader(id_, engine_.rank(), engine_.world(), part_, &header));
  const std::string text = FormatHeader(header);
  const std::string path =
      PathOf(PartName(id_, engine_.rank(), engine_.world()));
  NewFile file;
  ENGINE_RETURN_IF_ERROR(file.Create(path, path + kTemporary));
  ENGINE_RETURN_IF_ERROR(file.Append(text.data(), text.size()));
  ENGINE_RETURN_IF_ERROR(
      file.Append(copy_.data(),
                  static_cast<uint64_t>(data - copy_.data()) * sizeof(float)));
  return file.Publish();
}

Status Saver::FindParts(CheckpointIndex* index, bool* out_complete) const {
  *out_complete = false;
  for (uint64_t rank = 0; rank < engine_.world(); ++rank) {
    if (!Exists(PathOf(PartName(id_, rank, engine_.world())))) return Status();
  }
  for (uint64_t rank = 0; rank < engine_.world(); ++rank) {
    const std::string path = PathOf(PartName(id_, rank, engine_.world()));
    OldFile file;
    ENGINE_RETURN_IF_ERROR(file.Open(path));
    unsigned char length[kLengthBytes] = {};
    uint64_t bytes = 0;
    ENGINE_RETURN_IF_ERROR(
        file.Read(0, length, std::min(kLengthBytes, file.bytes())));
    ENGINE_RETURN_IF_ERROR(
        ParseHeaderLength("file '" + path + "'", length, file.bytes(), &bytes));
    std::string text(kLengthBytes + bytes, '\0');
    ENGINE_RETURN_IF_ERROR(file.Read(0, text.data(), text.size()));
    index->parts.push_back({file.bytes(), HashOf(text.data(), text.size())});
  }
  *out_complete = true;
  return Status();
}

Status Saver::WriteIndex(const CheckpointIndex& parts) const {
  CheckpointIndex index = parts;
  index.id = id_;
  index.zero_stage = engine_.zero_stage();
  index.metadata = metadata_;
  for (const Parameter& parameter : engine_.parameters()) {
    index.tensors.push_back({parameter.name, "F32", parameter.dims});
  }
  const std::string text = FormatIndex(index);
  NewFile file;
  ENGINE_RETURN_IF_ERROR(file.Create(
      PathOf(kIndexName), PathOf(TemporaryIndexName(id_, engine_.rank()))));
  ENGINE_RETURN_IF_ERROR(file.Append(text.data(), text.size()));
  return file.Publish();
}

// What the index of this save has replaced, and what runs have left that were
// killed. Ranks of this run may be writing the next save, or this index. What
// cannot be removed stays: the checkpoint is complete.
void Saver::RemoveOlder() const {
  std::vector<std::string> old;
  ForEachSavedName(folder_,
                   [&](const std::string& name, const SavedName& saved) {
                     if (saved.id.run != run_ || saved.id.step < id_.step)
                       old.push_back(name);
                   });
  for (const std::string& name : old) unlink(PathOf(name).c_str());
}

}  // namespace commsched::engine
