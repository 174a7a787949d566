#include "engine/attention/memory.h"

namespace commsched::engine {
namespace {

// Hands out consecutive pieces, each aligned to a cache line.
class PieceCutter {
 public:
  explicit PieceCutter(float* base) : base_(base) {}

  float* Take(int64_t count) {
    float* piece = base_ == nullptr ? nullptr : base_ + count_;
    count_ += (count + kLineFloats - 1) / kLineFloats * kLineFloats;
    return piece;
  }

  int64_t count() const { return count_; }

 private:
  static constexpr int64_t kLineFloats = 16;

  float* const base_;
  int64_t count_ = 0;
};

}  // namespace

AttentionMemory::AttentionMemory(const AttentionSteps& steps,
                                 commsched_dtype_t dtype, float* base)
    : recompute_(steps.shape().recompute) {
  const AttentionShape& shape = steps.shape();
  const int64_t layers = recompute_ ? 1 : shape.layers;
  const bool narrow = dtype != COMMSCHED_F32;
  PieceCutter cutter(base);
  const auto add = [&](int buffer, const Piece* shared) {
    Piece piece;
    piece.count = steps.CountOf(static_cast<AttentionBuffer>(buffer));
    if (narrow) piece.sent = cutter.Take((piece.count + 1) / 2);
    piece.data = shared != nullptr ? shared->data : cutter.Take(piece.count);
    if (!narrow) piece.sent = piece.data;
    pieces_.push_back(piece);
  };
  for (int b = 0; b < kSharedBuffers; ++b) add(b, nullptr);
  for (int64_t l = 0; l < layers; ++l) {
    for (int b = 0; b < kLayerBuffers; ++b) {
      // Widened for an op and no longer, so that the layers share it.
      const size_t first = static_cast<size_t>(kSharedBuffers + b);
      add(kSharedBuffers + b, narrow && l > 0 ? &pieces_[first] : nullptr);
    }
  }
  int64_t heads = 0;
  for (int64_t c = 0; c < shape.chunks; ++c) {
    heads += steps.split().share(c, shape.rank).q.count;
  }
  for (int64_t l = 0; l < layers; ++l) {
    kept_.push_back(cutter.Take(shape.batch * heads * shape.kept_count));
  }
  scratch_ = cutter.Take(shape.scratch_count);
  bytes_ = static_cast<uint64_t>(cutter.count()) * sizeof(float);
}

size_t AttentionMemory::IndexOf(AttentionBuffer buffer, int64_t layer) const {
  const auto index = static_cast<size_t>(buffer);
  if (recompute_ || index < kSharedBuffers) return index;
  return index + kLayerBuffers * static_cast<size_t>(layer);
}

}  // namespace commsched::engine
