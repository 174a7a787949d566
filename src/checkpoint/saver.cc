#include "checkpoint/saver.h"

#include <unistd.h>

#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "checkpoint/files.h"
#include "checkpoint/format/json_text.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/thread.h"

namespace commsched::engine {
namespace {

// Leaves room for the tensors in an index.
constexpr uint64_t kMaxMetadataBytes = uint64_t{1} << 20;

uint64_t TotalCount(const std::vector<PartPiece>& pieces) {
  uint64_t count = 0;
  for (const PartPiece& piece : pieces) count += piece.count;
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

// Calls `visit` with the names in `folder`.
template <typename Visit>
std::error_code ForEachName(const std::string& folder, Visit&& visit) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  const std::filesystem::directory_iterator end;
  while (!error && entry != end) {
    visit(entry->path().filename().string());
    entry.increment(error);
  }
  return error;
}

Status CannotList(const std::string& folder, const std::error_code& error) {
  return Status(COMMSCHED_UNAVAILABLE,
                "cannot list folder '" + folder + "': " + error.message());
}

}  // namespace

Saver::Saver(Snapshot snapshot, const Options& options)
    : snapshot_(std::move(snapshot)),
      folder_(options.folder),
      run_(RunOf(snapshot_.lineage->origin(), options.run)),
      slice_(options.slice == nullptr ? snapshot_.slice : options.slice),
      overwrite_(options.overwrite) {}

Status Saver::Create(Snapshot snapshot, const Options& options,
                     std::unique_ptr<Saver>* out) {
  Status valid = CheckRun(options.run);
  if (valid.ok() && options.slice != nullptr && *options.slice != '\0') {
    valid = CheckSlice(options.slice);
  }
  if (!valid.ok()) return InvalidArgument("engine: saver: " + valid.message());
  ENGINE_RETURN_IF_ERROR(CheckFolder(options.folder));
  std::unique_ptr<Saver> saver(new Saver(std::move(snapshot), options));
  if (!saver->snapshot_.writes) {
    *out = std::move(saver);
    return Status();
  }
  ENGINE_RETURN_IF_ERROR(saver->TakeFolder());
  ENGINE_RETURN_IF_ERROR(saver->Prepare());
  *out = std::move(saver);
  return Status();
}

Status Saver::TakeFolder() {
  std::string member = "rank " + std::to_string(snapshot_.rank) + " of " +
                       std::to_string(snapshot_.world);
  if (!slice_.empty()) member += " of slice '" + slice_ + "'";
  ENGINE_RETURN_IF_ERROR(lock_.Take(folder_, run_, member));
  ENGINE_RETURN_IF_ERROR(CheckUnusedRun());
  return overwrite_ ? Status() : CheckReplaced();
}

// A file that is left of another save of this name would be taken for one of
// this.
Status Saver::CheckUnusedRun() const {
  std::string found;
  const std::error_code error =
      ForEachName(folder_, [&](const std::string& name) {
        SavedName saved;
        if (ParseSavedName(name, &saved) && saved.id.run == run_ &&
            saved.id.slice == slice_ && saved.rank == snapshot_.rank) {
          found = name;
        }
      });
  if (error) return CannotList(folder_, error);
  if (found.empty()) return Status();
  return Status(COMMSCHED_ALREADY_EXISTS, "engine: run '" + run_ +
                                              "' has saved to '" + folder_ +
                                              "' before: '" + found +
                                              "'; each run needs a name of its "
                                              "own");
}

// No checkpoint would be lost that this run has not gone on from. What no index
// describes is none.
Status Saver::CheckReplaced() const {
  Status status;
  const std::error_code error =
      ForEachName(folder_, [&](const std::string& name) {
        if (status.ok()) status = CheckIndex(name);
      });
  return error ? CannotList(folder_, error) : status;
}

Status Saver::CheckIndex(const std::string& name) const {
  std::string slice;
  if (!ParseIndexName(name, &slice)) return Status();
  CheckpointIndex index;
  const Status read = ReadIndexFile(PathOf(name), &index);
  if (read.code() == COMMSCHED_NOT_FOUND) return Status();
  std::string what;
  if (!read.ok()) {
    what = "a checkpoint that cannot be read (" + read.message() + ")";
  } else if (index.id.run == run_ || snapshot_.lineage->Has(index.id) ||
             (slice != slice_ && OriginOf(index.id.run) == OriginOf(run_))) {
    return Status();
  } else {
    what = "the checkpoint of step " + std::to_string(index.id.step) +
           " of run '" + index.id.run + "' ('" + name + "')";
  }
  return Status(COMMSCHED_ALREADY_EXISTS,
                "engine: folder '" + folder_ + "' has " + what +
                    ", which run '" + run_ +
                    "' has not gone on from and would remove: load it, save to "
                    "another folder, or set overwrite");
}

Status Saver::Prepare() {
  for (size_t i = 0; i < snapshot_.tensors.size(); ++i) {
    if (IsUtf8(snapshot_.tensors[i].name)) continue;
    return InvalidArgument("engine: the name of parameter " +
                           std::to_string(i) +
                           " is not UTF-8; it cannot be saved");
  }
  TensorHeader header;
  ENGINE_RETURN_IF_ERROR(MakePartHeader(id_, snapshot_.rank, snapshot_.world,
                                        snapshot_.pieces, &header));
  const uint64_t count = TotalCount(snapshot_.pieces);
  copy_.reset(new (std::nothrow) float[count]());
  if (copy_ == nullptr) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED,
                  "engine: no memory for the copy of a checkpoint (" +
                      std::to_string(count * sizeof(float)) + " bytes)");
  }
  return StartThread(
      "the thread that writes checkpoints", [this] { WriteSaves(); }, &writer_);
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
  uint64_t step = 0;
  ENGINE_RETURN_IF_ERROR(snapshot_.check(&step));
  ENGINE_RETURN_IF_ERROR(Wait());
  if (has_saved_ && step <= id_.step) {
    return Status(COMMSCHED_FAILED_PRECONDITION,
                  "engine: save at step " + std::to_string(step) +
                      "; that of step " + std::to_string(id_.step) +
                      " has been saved");
  }
  ENGINE_RETURN_IF_ERROR(snapshot_.copy_out(copy_.get()));
  id_ = {step, run_, slice_};
  snapshot_.lineage->Save(run_);
  lineage_ = *snapshot_.lineage;
  snapshot_.add_metadata(&metadata);
  metadata_ = std::move(metadata);
  has_saved_ = true;
  if (!snapshot_.writes) return Status();
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
  const float* data = copy_.get();
  for (PartPiece& piece : snapshot_.pieces) {
    piece.hash = HashOf(data, piece.count * sizeof(float));
    data += piece.count;
  }
  TensorHeader header;
  ENGINE_RETURN_IF_ERROR(MakePartHeader(id_, snapshot_.rank, snapshot_.world,
                                        snapshot_.pieces, &header));
  const std::string text = FormatHeader(header);
  const std::string path =
      PathOf(PartName(id_, snapshot_.rank, snapshot_.world));
  NewFile file;
  ENGINE_RETURN_IF_ERROR(file.Create(path, path));
  ENGINE_RETURN_IF_ERROR(file.Append(text.data(), text.size()));
  ENGINE_RETURN_IF_ERROR(file.Append(
      copy_.get(), static_cast<uint64_t>(data - copy_.get()) * sizeof(float)));
  return file.Publish();
}

// What is on the disk must be what its header says: the index vouches for it.
Status Saver::FindParts(CheckpointIndex* index, bool* out_complete) const {
  *out_complete = false;
  for (uint64_t rank = 0; rank < snapshot_.world; ++rank) {
    if (!Exists(PathOf(PartName(id_, rank, snapshot_.world)))) return Status();
  }
  for (uint64_t rank = 0; rank < snapshot_.world; ++rank) {
    const std::string path = PathOf(PartName(id_, rank, snapshot_.world));
    const std::string what = "file '" + path + "'";
    OldFile file;
    ENGINE_RETURN_IF_ERROR(file.Open(path));
    std::string text;
    ENGINE_RETURN_IF_ERROR(ReadHeader(file, what, &text));
    TensorHeader header;
    ENGINE_RETURN_IF_ERROR(ParseHeader(what, text.substr(kLengthBytes),
                                       file.bytes() - text.size(), &header));
    index->parts.push_back({file.bytes(), HashOf(text.data(), text.size())});
  }
  *out_complete = true;
  return Status();
}

Status Saver::WriteIndex(const CheckpointIndex& parts) const {
  CheckpointIndex index = parts;
  index.id = id_;
  index.zero_stage = snapshot_.zero_stage;
  index.metadata = metadata_;
  index.tensors = snapshot_.tensors;
  const std::string text = FormatIndex(index);
  NewFile file;
  ENGINE_RETURN_IF_ERROR(
      file.Create(PathOf(IndexName(slice_)),
                  PathOf(TemporaryIndexPrefix(id_, snapshot_.rank))));
  ENGINE_RETURN_IF_ERROR(file.Append(text.data(), text.size()));
  return file.Publish();
}

// Ranks of this run may be writing the next save, or this index. What cannot be
// removed stays: the checkpoint is complete. Indexes go first, so that none is
// left without its files.
void Saver::RemoveOlder() const {
  std::vector<std::string> indexes;
  std::vector<std::string> files;
  ForEachName(folder_, [&](const std::string& name) {
    SavedName saved;
    if (ParseSavedName(name, &saved)) {
      if (IsOld(saved.id)) files.push_back(name);
    } else if (overwrite_ && IsOldIndex(name)) {
      indexes.push_back(name);
    }
  });
  for (const std::string& name : indexes) unlink(PathOf(name).c_str());
  for (const std::string& name : files) unlink(PathOf(name).c_str());
}

// What the index of this save has replaced, and what runs have left that were
// killed.
bool Saver::IsOld(const SaveId& id) const {
  const bool mine = id.slice == slice_;
  if (id.run == run_) return mine && id.step < id_.step;
  if (lineage_.HasRun(id.run) || OriginOf(id.run) == OriginOf(run_)) {
    return mine;
  }
  return overwrite_;
}

// That of another slice, of a run to be overwritten. A slice whose saver was
// killed before its first save has an index of the run before this one.
bool Saver::IsOldIndex(const std::string& name) const {
  std::string slice;
  if (!ParseIndexName(name, &slice) || slice == slice_) return false;
  CheckpointIndex index;
  return ReadIndexFile(PathOf(name), &index).ok() &&
         OriginOf(index.id.run) != OriginOf(run_) &&
         !lineage_.HasRun(index.id.run);
}

}  // namespace commsched::engine
