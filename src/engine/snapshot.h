#ifndef COMMSCHED_SRC_ENGINE_SNAPSHOT_H_
#define COMMSCHED_SRC_ENGINE_SNAPSHOT_H_

#include <cstdint>

namespace commsched::engine {

// A piece of a parameter that one rank saves, and where the rank has it. Ranks
// share the parameters out alike in every stage: rank r saves shard r of each
// bucket, also where it has all of them.
struct SavedPiece {
  uint32_t parameter = 0;
  uint64_t begin = 0;  // Elements of the parameter before it.
  uint64_t count = 0;
  uint32_t bucket = 0;
  uint64_t at = 0;  // Elements of the bucket's memory of this rank before it:
                    // of the values as of either moment.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_SNAPSHOT_H_
