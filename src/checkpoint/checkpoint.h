#ifndef COMMSCHED_SRC_CHECKPOINT_CHECKPOINT_H_
#define COMMSCHED_SRC_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/format/checkpoint_index.h"
#include "checkpoint/format/checkpoint_part.h"
#include "checkpoint/status.h"

namespace commsched::engine {

// A checkpoint in a folder, for reading. Once it is open all is known to be
// there and to fit together; whether data are what was written is known when
// they are read. Messages name file, tensor, value and limit.
//
// A run may save to the folder meanwhile, which replaces the index and removes
// the files: Open() then takes the new index. The files of a checkpoint stay
// open, and so readable when they have been removed, as long as the process has
// descriptors for that; else they are opened when they are read.
//
// Immutable, hence thread-safe.
class Checkpoint {
 public:
  // `slice` may be null: the only one there. Fails with
  //   NOT_FOUND         no folder, no index in it, a file of it is missing
  //   INVALID_ARGUMENT  something that is no checkpoint, or of another version;
  //                     several slices and no `slice`
  //   DATA_LOSS         a file that has changed since, or was cut off
  static Status Open(const std::string& folder, const char* slice,
                     std::unique_ptr<Checkpoint>* out);

  ~Checkpoint() { CloseFiles(); }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const CheckpointIndex& index() const { return index_; }

  // Its place in index().tensors, or -1.
  int64_t Find(const std::string& name) const;

  // Whether it has this kind of state of any tensor, or of one of elements.
  bool Has(const std::string& kind) const { return pieces_.count(kind) != 0; }
  bool HasOf(size_t tensor, const std::string& kind) const {
    const auto found = pieces_.find(kind);
    return found != pieces_.end() && !found->second[tensor].empty();
  }
  // All kinds that it has, in the order of their names.
  std::vector<std::string> Kinds() const;

  // Elements of a tensor.
  struct Range {
    size_t tensor = 0;  // In index().tensors.
    std::string kind = kValueKind;
    uint64_t begin = 0;
    uint64_t count = 0;
  };

  // Reads every piece that the range touches and compares checksums. Fails with
  // DATA_LOSS.
  Status Verify(const Range& range) const;

  // The range must be of F32 and within the tensor.
  Status Read(const Range& range, float* out) const;

  // Writes the parameters as one safetensors file, which other tools read;
  // verified on the way.
  Status Export(const std::string& path) const;

 private:
  struct Piece {
    size_t part = 0;
    uint64_t begin = 0;   // Elements of the tensor before it.
    uint64_t count = 0;   // Elements.
    uint64_t offset = 0;  // Bytes of the file before it.
    uint64_t hash = 0;
  };
  using Take = std::function<Status(const char* data, uint64_t bytes)>;

  explicit Checkpoint(std::string folder) : folder_(std::move(folder)) {}

  // Opens a file, if need be by giving up the ones that are open.
  Status OpenPart(const std::string& path, OldFile* out);
  // Keeps the file of the next part open, unless there are too many.
  void KeepOpen(OldFile file);
  void CloseFiles();

  // `index_text` is that of the file at `path`.
  Status ReadAll(const std::string& path, const std::string& index_text);
  Status ReadIndex(const std::string& path, const std::string& text);
  Status ReadPart(size_t part);
  // Opens the file of `part` unless it stays open.
  Status FileOf(size_t part, OldFile* opened, const OldFile** out) const;
  Status AddPiece(const std::string& what, size_t part, uint64_t data_begin,
                  const PartPiece& piece);
  Status CheckCover();
  std::string PathOf(size_t part) const;
  // The pieces of one kind of a tensor are all of it, once.
  Status CheckCoverOf(const std::string& kind, size_t tensor,
                      std::vector<Piece>* pieces) const;
  // Those of the range's tensor that it touches.
  std::vector<Piece> Touched(const Range& range) const;
  // Reads the piece chunk by chunk; fails if its checksum is another.
  Status ReadVerified(const Range& range, const Piece& piece,
                      const Take& take) const;

  const std::string folder_;
  CheckpointIndex index_;
  std::unordered_map<std::string, size_t> by_name_;  // In index_.tensors.
  // Pieces by kind, then by tensor, in the order of `begin`.
  std::map<std::string, std::vector<std::vector<Piece>>> pieces_;
  std::vector<OldFile> files_;  // Of the first parts.
  bool keeps_open_ = true;      // More of them.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_CHECKPOINT_H_
