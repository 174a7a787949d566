#ifndef COMMSCHED_SRC_CHECKPOINT_FORMAT_CHECKPOINT_PART_H_
#define COMMSCHED_SRC_CHECKPOINT_FORMAT_CHECKPOINT_PART_H_

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/format/checkpoint_index.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/status.h"

namespace commsched::engine {

// One rank's file of a checkpoint: pieces of parameters and of their optimizer
// state. A piece that is all of a parameter has its name and shape, another is
// called "wte.weight[256:512]"; optimizer state has a prefix, "adamw.m:". Which
// kinds of state there are is the optimizer's. What a piece is of stands in the
// file's metadata, which no name can confuse.

// A kind of state is its name: "adamw.m". It has no space. This one is that of
// the parameters themselves.
inline constexpr char kValueKind[] = "value";

struct PartPiece {
  std::string kind = kValueKind;
  std::string parameter;
  std::string dtype;
  std::vector<uint64_t> shape;  // [count] unless it is all of the parameter.
  uint64_t begin = 0;           // Elements of the parameter before it.
  uint64_t count = 0;
  uint64_t hash = 0;    // HashOf() its data.
  uint64_t offset = 0;  // Bytes from the start of the data.
};

// The header of `rank`'s file; pieces lie end to end in their order. Fails with
// INVALID_ARGUMENT if two would have one name.
Status MakePartHeader(const SaveId& id, uint64_t rank, uint64_t world,
                      const std::vector<PartPiece>& pieces, TensorHeader* out);

// The pieces of a file that must be the one of `rank`. Fails with
// INVALID_ARGUMENT, in words that begin with `what`, if it is not, or none of
// a checkpoint.
Status ReadPartHeader(const std::string& what, const SaveId& id, uint64_t rank,
                      uint64_t world, const TensorHeader& header,
                      std::vector<PartPiece>* out);

// The header of `file` as it stands there, its length included.
Status ReadHeader(const OldFile& file, const std::string& what,
                  std::string* out_text);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_FORMAT_CHECKPOINT_PART_H_
