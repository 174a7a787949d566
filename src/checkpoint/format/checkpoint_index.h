#ifndef COMMSCHED_SRC_CHECKPOINT_FORMAT_CHECKPOINT_INDEX_H_
#define COMMSCHED_SRC_CHECKPOINT_FORMAT_CHECKPOINT_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/status.h"

namespace commsched::engine {

inline constexpr char kCheckpointFormat[] = "commsched-checkpoint/1";
// The index of an engine on all ranks of its world.
inline constexpr char kIndexName[] = "index.json";
inline constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxCheckpointRanks = 1 << 16;
inline constexpr uint64_t kMaxStep = uint64_t{1} << 62;

// Which save it is. `run` tells saves of one step apart that different runs
// made: the name that the run has given itself or, if it went on from a
// checkpoint, "ORIGIN.NAME", with the name of the run that began at step 0.
// `slice` tells engines apart that save to one folder, each a checkpoint of its
// own: "" or a name (CheckSlice).
struct SaveId {
  uint64_t step = 0;
  std::string run;
  std::string slice;

  bool operator==(const SaveId&) const = default;
};

// 1 to 64 letters, digits or '_': it is part of file names.
Status CheckRun(const std::string& run);

// 1 to 96 letters, digits, '_' or '.', and neither "rank" nor "index": it is
// part of file names.
Status CheckSlice(const std::string& slice);

// SaveId::run of the run called `name`; `origin` is empty if it began at step
// 0.
std::string RunOf(const std::string& origin, const std::string& name);
// The name of the run that began at step 0.
std::string OriginOf(const std::string& run);

// The name of a slice for the engine on the group of `axis` whose first rank in
// the world is `first_rank`: "dp_shard.1".
std::string DefaultSlice(const std::string& axis, int32_t first_rank);

// "index.json"; of a slice "index-SLICE.json".
std::string IndexName(const std::string& slice);
// False if it is another name.
bool ParseIndexName(const std::string& name, std::string* out_slice);

// "step-00000300-RUN-rank-00002-of-00004.safetensors", one rank's file; of a
// slice "step-00000300-RUN-SLICE-rank-...".
std::string PartName(const SaveId& id, uint64_t rank, uint64_t world);

// A name that PartName() makes or the temporary name of it or of an index,
// taken apart.
struct SavedName {
  SaveId id;
  uint64_t rank = 0;
};

// False if it is another name.
bool ParseSavedName(const std::string& name, SavedName* out);

// What the temporary name begins with under which `rank` writes the index.
std::string TemporaryIndexPrefix(const SaveId& id, uint64_t rank);

std::string FormatHash(uint64_t hash);  // 16 hexadecimal digits.
bool ParseHash(const std::string& text, uint64_t* out);
uint64_t HashOf(const void* data, uint64_t bytes);  // XXH3, 64 bits.

// What makes the files of the ranks a checkpoint: written last.
struct CheckpointIndex {
  struct Part {
    uint64_t bytes = 0;
    uint64_t header_hash = 0;  // Length included.
    bool operator==(const Part&) const = default;
  };
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    bool operator==(const Tensor&) const = default;
  };

  SaveId id;
  uint64_t zero_stage = 0;
  std::vector<Part> parts;      // By rank.
  std::vector<Tensor> tensors;  // The parameters, as registered.
  std::map<std::string, std::string> metadata;  // The caller's.

  bool operator==(const CheckpointIndex&) const = default;
};

// Texts are UTF-8.
std::string FormatIndex(const CheckpointIndex& index);

// `what` names the file in messages. Fails with INVALID_ARGUMENT for a text
// that is no index and with DATA_LOSS for one that has changed since.
Status ParseIndex(const std::string& what, const std::string& text,
                  CheckpointIndex* out);

// Fails with what ParseIndex() fails with, or as the disk does.
Status ReadIndexFile(const std::string& path, CheckpointIndex* out);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_FORMAT_CHECKPOINT_INDEX_H_
