#ifndef COMMSCHED_EXAMPLES_TRAINER_HEAD_SPLIT_H_
#define COMMSCHED_EXAMPLES_TRAINER_HEAD_SPLIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "examples/trainer/config.h"

namespace commsched::trainer {

// How the tokens of each sequence and, around attention, its heads are shared
// out among the ranks of a sequence-parallel group.
struct SequenceShard {
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t chunks = 1;  // Of heads, exchanged one after the other.
};

// Fails with kInvalidArgument, naming value and limit: `seq` must be a multiple
// of the ranks, and each rank get a head, and as many as there are chunks.
absl::Status ValidateShard(const GptConfig& config, int64_t seq,
                           const SequenceShard& shard);

// Which heads go to which rank in which chunk: in the order of chunks, and of
// ranks within a chunk, so that what a chunk sends is a range of columns. Ranks
// get equally many heads, or one more. A head of keys and values goes to each
// rank whose queries need it: where that are several, columns of keys and
// values are sent several times.
//
// A pure function of its arguments; equal on all ranks.
class HeadSplit {
 public:
  struct Range {
    int64_t first = 0;
    int64_t count = 0;

    int64_t end() const { return first + count; }
  };

  // What one rank gets of one chunk, in heads.
  struct Share {
    Range q;
    Range kv;
    int64_t kv_column = 0;  // Where its kv heads are among those sent.
  };

  // Requires ValidateShard(config, ..., shard).ok().
  HeadSplit(const GptConfig& config, const SequenceShard& shard);

  int64_t ranks() const { return ranks_; }
  int64_t chunks() const { return static_cast<int64_t>(shares_.size()); }
  const Share& share(int64_t chunk, int64_t rank) const {
    return shares_[static_cast<size_t>(chunk)][static_cast<size_t>(rank)];
  }
  // What all ranks get of a chunk, as columns of what is sent.
  Range q_columns(int64_t chunk) const;
  Range kv_columns(int64_t chunk) const;
  // The most that a rank gets of a chunk.
  int64_t most_q(int64_t chunk) const;
  int64_t most_kv(int64_t chunk) const;
  // Heads of keys and values that are sent, those sent twice counted twice.
  int64_t kv_sent() const { return kv_sent_; }
  // Query heads that share keys and values.
  int64_t group() const { return group_; }

 private:
  const int64_t ranks_;
  const int64_t group_;
  std::vector<std::vector<Share>> shares_;  // By chunk and rank.
  int64_t kv_sent_ = 0;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_HEAD_SPLIT_H_
