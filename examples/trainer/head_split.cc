#include "examples/trainer/head_split.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace commsched::trainer {

absl::Status ValidateShard(const GptConfig& config, int64_t seq,
                           const SequenceShard& shard) {
  if (shard.ranks < 1 || shard.rank < 0 || shard.rank >= shard.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", shard.rank, " of ", shard.ranks, " that share a sequence"));
  }
  if (seq % shard.ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sequence length is ", seq, "; it must be a multiple of the ",
        shard.ranks, " ranks that share a sequence"));
  }
  if (config.heads < shard.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model has ", config.heads, " heads; the ", shard.ranks,
        " ranks that share a sequence need one each"));
  }
  if (shard.chunks < 1 || shard.chunks > config.heads / shard.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks of heads are ", shard.chunks, "; with ",
                     config.heads, " heads on ", shard.ranks,
                     " ranks they must be 1 to ", config.heads / shard.ranks));
  }
  return absl::OkStatus();
}

HeadSplit::HeadSplit(const GptConfig& config, const SequenceShard& shard)
    : ranks_(shard.ranks), group_(config.heads / config.num_kv_heads()) {
  int64_t first = 0;
  for (int64_t c = 0; c < shard.chunks; ++c) {
    std::vector<Share>& chunk = shares_.emplace_back();
    for (int64_t r = 0; r < ranks_; ++r) {
      const int64_t heads =
          config.heads / ranks_ + (r < config.heads % ranks_ ? 1 : 0);
      Share& share = chunk.emplace_back();
      share.q = {first,
                 heads * (c + 1) / shard.chunks - heads * c / shard.chunks};
      share.kv.first = first / group_;
      share.kv.count = (share.q.end() - 1) / group_ + 1 - share.kv.first;
      share.kv_column = kv_sent_;
      first = share.q.end();
      kv_sent_ += share.kv.count;
    }
  }
}

HeadSplit::Range HeadSplit::q_columns(int64_t chunk) const {
  const Share& last = share(chunk, ranks_ - 1);
  const int64_t first = share(chunk, 0).q.first;
  return {first, last.q.end() - first};
}

HeadSplit::Range HeadSplit::kv_columns(int64_t chunk) const {
  const Share& last = share(chunk, ranks_ - 1);
  const int64_t first = share(chunk, 0).kv_column;
  return {first, last.kv_column + last.kv.count - first};
}

int64_t HeadSplit::most_q(int64_t chunk) const {
  int64_t most = 0;
  for (int64_t r = 0; r < ranks_; ++r) {
    most = std::max(most, share(chunk, r).q.count);
  }
  return most;
}

int64_t HeadSplit::most_kv(int64_t chunk) const {
  int64_t most = 0;
  for (int64_t r = 0; r < ranks_; ++r) {
    most = std::max(most, share(chunk, r).kv.count);
  }
  return most;
}

}  // namespace commsched::trainer
