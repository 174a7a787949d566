#include "engine/attention/head_split.h"

#include <algorithm>
#include <string>

namespace commsched::engine {
namespace {

constexpr uint64_t kMostHeads = uint64_t{1} << 16;
constexpr uint64_t kMostRows = uint64_t{1} << 24;
constexpr double kMostBytes = 0x1p60;

Status RefuseSize(const char* field, uint64_t value, const std::string& limit) {
  return InvalidArgument(std::string("attention: ") + field + " is " +
                         std::to_string(value) + "; it must be " + limit);
}

Status CheckSize(const char* field, uint64_t value, uint64_t most) {
  if (value >= 1 && value <= most) return Status();
  return RefuseSize(field, value, "1 to " + std::to_string(most));
}

Status CheckSizes(const commsched_attention_desc_t& desc) {
  ENGINE_RETURN_IF_ERROR(CheckSize("layers", desc.layers, kMostHeads));
  ENGINE_RETURN_IF_ERROR(CheckSize("heads", desc.heads, kMostHeads));
  ENGINE_RETURN_IF_ERROR(CheckSize("head_size", desc.head_size, kMostHeads));
  ENGINE_RETURN_IF_ERROR(CheckSize("batch", desc.batch, kMostRows));
  ENGINE_RETURN_IF_ERROR(CheckSize("seq", desc.seq, kMostRows));
  if (desc.kv_heads != 0 && desc.heads % desc.kv_heads != 0) {
    return RefuseSize(
        "kv_heads", desc.kv_heads,
        "a divisor of the " + std::to_string(desc.heads) + " heads of queries");
  }
  if (desc.width > kMostRows) {
    return RefuseSize("width", desc.width,
                      "at most " + std::to_string(kMostRows));
  }
  if (desc.dtype != COMMSCHED_F32 && desc.dtype != COMMSCHED_F16 &&
      desc.dtype != COMMSCHED_BF16) {
    return RefuseSize("dtype", desc.dtype, "F32, F16 or BF16");
  }
  return Status();
}

// How ranks share the tokens and heads of `shape`.
Status CheckSharing(const AttentionShape& shape) {
  const std::string ranks = std::to_string(shape.ranks);
  if (shape.rank >= shape.ranks) {
    return InvalidArgument("attention: rank " + std::to_string(shape.rank) +
                           " of " + ranks + " that share a sequence");
  }
  if (shape.seq % shape.ranks != 0) {
    return InvalidArgument("sequence length is " + std::to_string(shape.seq) +
                           "; it must be a multiple of the " + ranks +
                           " ranks that share a sequence");
  }
  if (shape.heads < shape.ranks) {
    return InvalidArgument("the model has " + std::to_string(shape.heads) +
                           " heads; the " + ranks +
                           " ranks that share a sequence need one each");
  }
  const int64_t most = shape.heads / shape.ranks;
  if (shape.chunks > most) {
    return InvalidArgument("chunks of heads are " +
                           std::to_string(shape.chunks) + "; with " +
                           std::to_string(shape.heads) + " heads on " + ranks +
                           " ranks they must be 1 to " + std::to_string(most));
  }
  return Status();
}

// An upper bound of the memory, as a double since it may not fit an integer.
Status CheckBytes(const commsched_attention_desc_t& desc, double kept) {
  const auto rows = static_cast<double>(desc.batch * desc.seq);
  const auto layers = static_cast<double>(desc.layers);
  const auto heads = static_cast<double>(desc.heads);
  const double buffer = rows * heads * static_cast<double>(desc.head_size);
  const double bytes =
      2 * sizeof(float) *
      ((4 * layers + 12) * buffer +
       layers * static_cast<double>(desc.batch) * heads * kept +
       static_cast<double>(desc.scratch_count));
  if (bytes <= kMostBytes) return Status();
  return Status(COMMSCHED_OUT_OF_RANGE,
                "attention: " + std::to_string(desc.layers) + " layers of " +
                    std::to_string(desc.batch) + " sequences of " +
                    std::to_string(desc.seq) +
                    " tokens take more than 2^60 bytes");
}

}  // namespace

Status ReadShape(const commsched_attention_desc_t& desc, AttentionShape* out) {
  ENGINE_RETURN_IF_ERROR(CheckSizes(desc));
  const uint64_t kept =
      desc.kept_count != 0 ? desc.kept_count : desc.seq * desc.seq;
  ENGINE_RETURN_IF_ERROR(CheckBytes(desc, static_cast<double>(kept)));
  AttentionShape shape;
  shape.layers = static_cast<int64_t>(desc.layers);
  shape.heads = static_cast<int64_t>(desc.heads);
  shape.kv_heads =
      desc.kv_heads != 0 ? static_cast<int64_t>(desc.kv_heads) : shape.heads;
  shape.head_size = static_cast<int64_t>(desc.head_size);
  shape.width =
      desc.width != 0 ? static_cast<int64_t>(desc.width) : shape.q_channels();
  shape.batch = static_cast<int64_t>(desc.batch);
  shape.seq = static_cast<int64_t>(desc.seq);
  shape.ranks = std::max<int64_t>(desc.ranks, 1);
  shape.rank = desc.rank;
  shape.chunks = std::max<int64_t>(desc.chunks, 1);
  shape.kept_count = static_cast<int64_t>(kept);
  shape.scratch_count = static_cast<int64_t>(desc.scratch_count);
  shape.recompute = desc.recompute != 0;
  ENGINE_RETURN_IF_ERROR(CheckSharing(shape));
  *out = shape;
  return Status();
}

HeadSplit::HeadSplit(const AttentionShape& shape) : ranks_(shape.ranks) {
  int64_t first = 0;
  for (int64_t c = 0; c < shape.chunks; ++c) {
    std::vector<Share>& chunk = shares_.emplace_back();
    for (int64_t r = 0; r < ranks_; ++r) {
      const int64_t heads =
          shape.heads / ranks_ + (r < shape.heads % ranks_ ? 1 : 0);
      Share& share = chunk.emplace_back();
      share.q = {first,
                 heads * (c + 1) / shape.chunks - heads * c / shape.chunks};
      share.kv.first = first / shape.group();
      share.kv.count = (share.q.end() - 1) / shape.group() + 1 - share.kv.first;
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

}  // namespace commsched::engine
