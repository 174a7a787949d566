#include "checkpoint/checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>
#include <utility>

namespace commsched::engine {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

// The limit for all checkpoints of a process, which may usually have 1,024
// files open, and whose ranks may open a checkpoint each.
constexpr size_t kMaxOpenFiles = 256;
std::atomic<size_t> g_open_files{0};  // A count; orders nothing.

// Each takes an index that has been replaced since the one before was read.
constexpr int kMaxTries = 100;

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// Calls `take` with `bytes` bytes from `offset` on, a chunk at a time.
template <typename Function>
Status ForEachChunk(const OldFile& file, uint64_t offset, uint64_t bytes,
                    Function&& take) {
  std::vector<char> chunk(std::min(bytes, kChunkBytes));
  while (bytes > 0) {
    const uint64_t now = std::min(bytes, kChunkBytes);
    ENGINE_RETURN_IF_ERROR(file.Read(offset, chunk.data(), now));
    ENGINE_RETURN_IF_ERROR(take(chunk.data(), now));
    offset += now;
    bytes -= now;
  }
  return Status();
}

std::string Describe(const std::string& kind, const std::string& tensor) {
  if (kind == kValueKind) return "tensor '" + tensor + "'";
  return kind + " of tensor '" + tensor + "'";
}

// The name of the only index in `folder`.
Status FindIndex(const std::string& folder, std::string* out_name) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    std::string slice;
    const std::string name = entry->path().filename().string();
    if (ParseIndexName(name, &slice)) names.push_back(name);
  }
  if (error || names.empty()) {
    return Status(
        COMMSCHED_NOT_FOUND,
        "no checkpoint in '" + folder +
            "': " + (error ? error.message() : std::string("no index there")));
  }
  if (names.size() == 1) {
    *out_name = names[0];
    return Status();
  }
  std::sort(names.begin(), names.end());
  std::string list;
  for (const std::string& name : names) {
    list += (list.empty() ? "'" : ", '") + name + "'";
  }
  return InvalidArgument("folder '" + folder + "' has several checkpoints, " +
                         list + ": open one by the name of its slice");
}

}  // namespace

Status Checkpoint::Open(const std::string& folder, const char* slice,
                        std::unique_ptr<Checkpoint>* out) {
  std::string name = IndexName(slice == nullptr ? "" : slice);
  if (slice == nullptr) ENGINE_RETURN_IF_ERROR(FindIndex(folder, &name));
  const std::string path = folder + "/" + name;
  std::string before;
  for (int tries = 0;; ++tries) {
    std::string text;
    const Status read = ReadWhole(path, kMaxIndexBytes, &text);
    if (read.code() == COMMSCHED_NOT_FOUND) {
      return Status(read.code(),
                    "no checkpoint in '" + folder + "': " + read.message());
    }
    ENGINE_RETURN_IF_ERROR(read);
    std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(folder));
    const Status status = checkpoint->ReadAll(path, text);
    if (status.ok()) *out = std::move(checkpoint);
    if (status.code() != COMMSCHED_NOT_FOUND || text == before ||
        tries == kMaxTries) {
      return status;
    }
    before = std::move(text);
  }
}

Status Checkpoint::ReadAll(const std::string& path,
                           const std::string& index_text) {
  ENGINE_RETURN_IF_ERROR(ReadIndex(path, index_text));
  for (size_t part = 0; part < index_.parts.size(); ++part) {
    ENGINE_RETURN_IF_ERROR(ReadPart(part));
  }
  return CheckCover();
}

std::string Checkpoint::PathOf(size_t part) const {
  return folder_ + "/" + PartName(index_.id, part, index_.parts.size());
}

Status Checkpoint::FileOf(size_t part, OldFile* opened,
                          const OldFile** out) const {
  if (part < files_.size()) {
    *out = &files_[part];
    return Status();
  }
  *out = opened;
  return opened->Open(PathOf(part));
}

// Files are read by their names then.
Status Checkpoint::OpenPart(const std::string& path, OldFile* out) {
  Status opened = out->Open(path);
  if (opened.code() != COMMSCHED_RESOURCE_EXHAUSTED || files_.empty()) {
    return opened;
  }
  CloseFiles();
  return out->Open(path);
}

void Checkpoint::KeepOpen(OldFile file) {
  if (!keeps_open_) return;
  if (g_open_files.fetch_add(1, std::memory_order_relaxed) >= kMaxOpenFiles) {
    g_open_files.fetch_sub(1, std::memory_order_relaxed);
    keeps_open_ = false;
    return;
  }
  files_.push_back(std::move(file));
}

void Checkpoint::CloseFiles() {
  g_open_files.fetch_sub(files_.size(), std::memory_order_relaxed);
  files_.clear();
  keeps_open_ = false;
}

Status Checkpoint::ReadIndex(const std::string& path, const std::string& text) {
  ENGINE_RETURN_IF_ERROR(ParseIndex("file '" + path + "'", text, &index_));
  for (size_t t = 0; t < index_.tensors.size(); ++t) {
    if (!by_name_.emplace(index_.tensors[t].name, t).second) {
      return InvalidArgument("file '" + path + "': tensor '" +
                             index_.tensors[t].name + "' appears twice");
    }
  }
  pieces_[kValueKind].resize(index_.tensors.size());
  return Status();
}

Status Checkpoint::ReadPart(size_t part) {
  const std::string path = PathOf(part);
  const std::string what = "file '" + path + "'";
  const CheckpointIndex::Part& expected = index_.parts[part];
  OldFile file;
  ENGINE_RETURN_IF_ERROR(OpenPart(path, &file));
  if (file.bytes() != expected.bytes) {
    return Status(COMMSCHED_DATA_LOSS, what + " has " +
                                           std::to_string(file.bytes()) +
                                           " bytes; the index says " +
                                           std::to_string(expected.bytes));
  }
  std::string text;
  ENGINE_RETURN_IF_ERROR(ReadHeader(file, what, &text));
  if (HashOf(text.data(), text.size()) != expected.header_hash) {
    return Status(COMMSCHED_DATA_LOSS,
                  what + ": the checksum of its header is " +
                      FormatHash(HashOf(text.data(), text.size())) +
                      "; the index says " + FormatHash(expected.header_hash));
  }
  const uint64_t data_begin = text.size();
  TensorHeader header;
  ENGINE_RETURN_IF_ERROR(ParseHeader(what, text.substr(kLengthBytes),
                                     file.bytes() - data_begin, &header));
  std::vector<PartPiece> pieces;
  ENGINE_RETURN_IF_ERROR(ReadPartHeader(what, index_.id, part,
                                        index_.parts.size(), header, &pieces));
  for (const PartPiece& piece : pieces) {
    ENGINE_RETURN_IF_ERROR(AddPiece(what, part, data_begin, piece));
  }
  KeepOpen(std::move(file));
  return Status();
}

Status Checkpoint::AddPiece(const std::string& what, size_t part,
                            uint64_t data_begin, const PartPiece& piece) {
  const int64_t t = Find(piece.parameter);
  if (t < 0) {
    return InvalidArgument(what + " has a piece of tensor '" + piece.parameter +
                           "', which the index has not");
  }
  const size_t tensor = static_cast<size_t>(t);
  if (piece.dtype != index_.tensors[tensor].dtype) {
    return InvalidArgument(what + ": " + Describe(piece.kind, piece.parameter) +
                           " is " + piece.dtype + "; the index says " +
                           index_.tensors[tensor].dtype);
  }
  if (piece.count == 0) return Status();
  std::vector<std::vector<Piece>>& by_tensor = pieces_[piece.kind];
  by_tensor.resize(index_.tensors.size());
  by_tensor[tensor].push_back(
      {part, piece.begin, piece.count, data_begin + piece.offset, piece.hash});
  return Status();
}

// Checks every tensor in each kind of state that it has: one that is not
// trained has values alone.
Status Checkpoint::CheckCover() {
  for (auto& [kind, by_tensor] : pieces_) {
    for (size_t tensor = 0; tensor < by_tensor.size(); ++tensor) {
      if (by_tensor[tensor].empty() && kind != kValueKind) continue;
      ENGINE_RETURN_IF_ERROR(CheckCoverOf(kind, tensor, &by_tensor[tensor]));
    }
  }
  return Status();
}

Status Checkpoint::CheckCoverOf(const std::string& kind, size_t tensor,
                                std::vector<Piece>* pieces) const {
  std::sort(pieces->begin(), pieces->end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  const CheckpointIndex::Tensor& of = index_.tensors[tensor];
  const std::string what =
      "checkpoint '" + folder_ + "': " + Describe(kind, of.name);
  uint64_t count = 0;
  ENGINE_RETURN_IF_ERROR(CountElements(what, of.shape, INT64_MAX, &count));
  uint64_t end = 0;
  for (const Piece& piece : *pieces) {
    if (piece.begin != end || piece.count > count - end) {
      return InvalidArgument(
          what + ": file '" + PathOf(piece.part) + "' has elements from " +
          std::to_string(piece.begin) + ", " + std::to_string(piece.count) +
          " of them; from " + std::to_string(end) + " of " +
          std::to_string(count) + " on they must come");
    }
    end += piece.count;
  }
  if (end == count) return Status();
  return InvalidArgument(what + ": no file has the elements from " +
                         std::to_string(end) + " to " + std::to_string(count));
}

std::vector<std::string> Checkpoint::Kinds() const {
  std::vector<std::string> kinds;
  for (const auto& [kind, by_tensor] : pieces_) kinds.push_back(kind);
  return kinds;
}

int64_t Checkpoint::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : static_cast<int64_t>(found->second);
}

std::vector<Checkpoint::Piece> Checkpoint::Touched(const Range& range) const {
  std::vector<Piece> touched;
  const auto of_kind = pieces_.find(range.kind);
  if (of_kind == pieces_.end()) return touched;
  for (const Piece& piece : of_kind->second[range.tensor]) {
    if (piece.begin < range.begin + range.count &&
        range.begin < piece.begin + piece.count) {
      touched.push_back(piece);
    }
  }
  return touched;
}

Status Checkpoint::ReadVerified(const Range& range, const Piece& piece,
                                const Take& take) const {
  const CheckpointIndex::Tensor& tensor = index_.tensors[range.tensor];
  OldFile opened;
  const OldFile* file = nullptr;
  ENGINE_RETURN_IF_ERROR(FileOf(piece.part, &opened, &file));
  const std::unique_ptr<XXH3_state_t, FreeHash> state(XXH3_createState());
  if (state == nullptr) {
    return Status(COMMSCHED_RESOURCE_EXHAUSTED, "no memory for a checksum");
  }
  XXH3_64bits_reset(state.get());
  ENGINE_RETURN_IF_ERROR(
      ForEachChunk(*file, piece.offset, piece.count * DTypeBytes(tensor.dtype),
                   [&](const char* data, uint64_t bytes) {
                     XXH3_64bits_update(state.get(), data, bytes);
                     return take == nullptr ? Status() : take(data, bytes);
                   }));
  const uint64_t hash = XXH3_64bits_digest(state.get());
  if (hash == piece.hash) return Status();
  return Status(COMMSCHED_DATA_LOSS,
                "file '" + PathOf(piece.part) +
                    "': " + Describe(range.kind, tensor.name) + ", elements " +
                    std::to_string(piece.begin) + " to " +
                    std::to_string(piece.begin + piece.count) +
                    ": their checksum is " + FormatHash(hash) +
                    "; the header says " + FormatHash(piece.hash));
}

Status Checkpoint::Verify(const Range& range) const {
  for (const Piece& piece : Touched(range)) {
    ENGINE_RETURN_IF_ERROR(ReadVerified(range, piece, nullptr));
  }
  return Status();
}

Status Checkpoint::Read(const Range& range, float* out) const {
  for (const Piece& piece : Touched(range)) {
    const uint64_t begin = std::max(range.begin, piece.begin);
    const uint64_t end =
        std::min(range.begin + range.count, piece.begin + piece.count);
    OldFile opened;
    const OldFile* file = nullptr;
    ENGINE_RETURN_IF_ERROR(FileOf(piece.part, &opened, &file));
    ENGINE_RETURN_IF_ERROR(
        file->Read(piece.offset + (begin - piece.begin) * sizeof(float),
                   out + (begin - range.begin), (end - begin) * sizeof(float)));
  }
  return Status();
}

Status Checkpoint::Export(const std::string& path) const {
  TensorHeader header;
  // What Hugging Face's loader asks for.
  header.metadata = {{"format", "pt"},
                     {"step", std::to_string(index_.id.step)}};
  std::vector<Range> ranges;
  uint64_t end = 0;
  for (size_t t = 0; t < index_.tensors.size(); ++t) {
    const CheckpointIndex::Tensor& tensor = index_.tensors[t];
    uint64_t count = 0;
    ENGINE_RETURN_IF_ERROR(
        CountElements(tensor.name, tensor.shape, INT64_MAX, &count));
    const uint64_t begin = end;
    end += count * DTypeBytes(tensor.dtype);
    header.tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, begin, end});
    ranges.push_back({t, kValueKind, 0, count});
  }
  NewFile file;
  ENGINE_RETURN_IF_ERROR(file.Create(path, path));
  const std::string text = FormatHeader(header);
  ENGINE_RETURN_IF_ERROR(file.Append(text.data(), text.size()));
  for (const Range& range : ranges) {
    for (const Piece& piece : Touched(range)) {
      ENGINE_RETURN_IF_ERROR(
          ReadVerified(range, piece, [&](const char* data, uint64_t bytes) {
            return file.Append(data, bytes);
          }));
    }
  }
  return file.Publish();
}

}  // namespace commsched::engine
