#ifndef COMMSCHED_SRC_CHECKPOINT_SNAPSHOT_H_
#define COMMSCHED_SRC_CHECKPOINT_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/checkpoint_index.h"
#include "checkpoint/format/checkpoint_part.h"
#include "checkpoint/lineage.h"
#include "checkpoint/status.h"

namespace commsched::engine {

// Keys of metadata that begin so belong to `add_metadata`.
inline constexpr char kReservedPrefix[] = "commsched.";

// What a saver is given by the one whose state it saves. That one outlives the
// saver, which calls the functions in its caller's thread.
struct Snapshot {
  // These name this rank's file, and the index.
  uint64_t rank = 0;
  uint64_t world = 1;
  uint64_t zero_stage = 0;
  std::string slice;  // Unless the saver's caller names another.
  bool writes =
      true;  // Else another rank has all of it: no file is this one's.
  // The parameters, as registered.
  std::vector<CheckpointIndex::Tensor> tensors;
  // What this rank saves; hashes and offsets are the saver's.
  std::vector<PartPiece> pieces;

  // Fails if the state cannot be copied now. The step is the last one that it
  // has taken.
  std::function<Status(uint64_t* out_step)> check;
  // Copies the elements of all pieces, end to end.
  std::function<Status(float* out)> copy_out;
  // Adds what the state has besides its pieces.
  std::function<void(std::map<std::string, std::string>* metadata)>
      add_metadata;
  Lineage* lineage = nullptr;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_SNAPSHOT_H_
