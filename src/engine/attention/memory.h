#ifndef COMMSCHED_SRC_ENGINE_ATTENTION_MEMORY_H_
#define COMMSCHED_SRC_ENGINE_ATTENTION_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/attention/steps.h"

namespace commsched::engine {

// Where everything lies in an attention's one piece of memory.
//
// Immutable.
class AttentionMemory {
 public:
  // The memory of one AttentionBuffer, of all layers or of one.
  struct Piece {
    int64_t count = 0;
    float* data = nullptr;  // What ops compute with.
    void* sent = nullptr;   // What travels: `data`, or 16 bits in its place.
  };

  // `base` is aligned to 64; with a null base bytes() alone has a meaning.
  AttentionMemory(const AttentionSteps& steps, commsched_dtype_t dtype,
                  float* base);

  uint64_t bytes() const { return bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Index of a piece.
  size_t IndexOf(AttentionBuffer buffer, int64_t layer) const;
  const Piece& Of(AttentionBuffer buffer, int64_t layer) const {
    return pieces_[IndexOf(buffer, layer)];
  }
  // What the forwards of a layer's heads leave for the backwards.
  float* kept(int64_t layer) const {
    return kept_[recompute_ ? 0 : static_cast<size_t>(layer)];
  }
  float* scratch() const { return scratch_; }

 private:
  const bool recompute_;
  uint64_t bytes_ = 0;
  std::vector<Piece> pieces_;
  std::vector<float*> kept_;  // By layer; one where forwards run again.
  float* scratch_ = nullptr;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ATTENTION_MEMORY_H_
