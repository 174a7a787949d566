#ifndef COMMSCHED_SRC_ENGINE_ATTENTION_HEAD_SPLIT_H_
#define COMMSCHED_SRC_ENGINE_ATTENTION_HEAD_SPLIT_H_

#include <cstdint>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/attention.h"

namespace commsched::engine {

// The sizes of a description, with what 0 stands for filled in.
struct AttentionShape {
  int64_t layers = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_size = 1;
  int64_t width = 1;
  int64_t batch = 1;
  int64_t seq = 1;
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t chunks = 1;
  int64_t kept_count = 1;
  int64_t scratch_count = 0;
  bool recompute = false;

  // Query heads that share keys and values.
  int64_t group() const { return heads / kv_heads; }
  int64_t rows() const { return batch * seq / ranks; }
  int64_t all_rows() const { return batch * seq; }
  int64_t q_channels() const { return heads * head_size; }
  int64_t kv_channels() const { return kv_heads * head_size; }
  int64_t qkv_channels() const { return q_channels() + 2 * kv_channels(); }
};

// Fails with INVALID_ARGUMENT or OUT_OF_RANGE, naming value and limit.
Status ReadShape(const commsched_attention_desc_t& desc, AttentionShape* out);

// Which heads go to which rank in which chunk: in the order of chunks, and of
// ranks within a chunk, so that what a chunk sends is a range of columns. Ranks
// get equally many heads, or one more. A head of keys and values goes to each
// rank whose queries need it. Columns of keys and values that several ranks
// need are sent several times.
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

  explicit HeadSplit(const AttentionShape& shape);

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

 private:
  const int64_t ranks_;
  std::vector<std::vector<Share>> shares_;  // By chunk and rank.
  int64_t kv_sent_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ATTENTION_HEAD_SPLIT_H_
