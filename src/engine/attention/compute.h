#ifndef COMMSCHED_SRC_ENGINE_ATTENTION_COMPUTE_H_
#define COMMSCHED_SRC_ENGINE_ATTENTION_COMPUTE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/attention/memory.h"

namespace commsched::engine {

// Does the work of ops with the caller's kernels.
//
// Thread-compatible.
class AttentionCompute {
 public:
  using Block = commsched_attention_block_t;

  // `steps` and `memory` outlive it.
  AttentionCompute(const AttentionSteps& steps, const AttentionMemory& memory,
                   commsched_dtype_t dtype,
                   const commsched_attention_kernels_t& kernels);

  // Runs `step`, an op of `layer`. Where elements of 16 bits travel, it widens
  // what the op reads before, and narrows what it writes afterwards.
  Status Run(int64_t layer, const AttentionStep& step, const Block& block);

 private:
  using Kind = AttentionStep::Kind;
  using Buffer = AttentionBuffer;

  enum class Part { kQuery, kKey, kValue };

  // Columns of qkv_weight and of what is sent of its product.
  struct Columns {
    int64_t weight = 0;
    int64_t sent = 0;
    int64_t count = 0;
  };
  using Runs = std::vector<Columns>;

  // A row-major matrix.
  struct Matrix {
    const float* data;
    int64_t stride;
    bool transposed = false;
  };
  struct Result {
    float* data;
    int64_t stride;
    bool accumulate = false;
  };
  struct Size {
    int64_t rows;
    int64_t cols;
    int64_t inner;
  };

  int64_t FirstColumnOf(Part part) const;
  Runs ColumnsOf(Part part, int64_t chunk) const;
  static Runs Join(const std::vector<Runs>& chunks);
  const Runs& AllOf(Part part) const {
    return all_columns_[static_cast<size_t>(part)];
  }
  float* data(Buffer buffer, int64_t layer = 0) const {
    return memory_.Of(buffer, layer).data;
  }

  Status Convert(int64_t layer, const AttentionRegion& region,
                 bool widen) const;
  Status Compute(int64_t layer, const AttentionStep& step, const Block& block);
  Status Multiply(const Size& size, const Matrix& a, const Matrix& b,
                  const Result& out) const;
  // With the head's numbers, pointers and what its backward adds up; `call`
  // sets the rest, and calls a kernel. q and k come to the head's places in
  // what has the layout of queries, and of keys.
  template <typename Call>
  Status ForEachHead(int64_t layer, int64_t chunk, Call&& call) const;
  Status Project(Part part, int64_t chunk, Buffer to, const Block& block) const;
  Status Attend(int64_t layer, int64_t chunk) const;
  Status WayOut(int64_t layer, int64_t chunk, const Block& block) const;
  Status Context(int64_t chunk, const Block& block) const;
  Status OutWeight(int64_t layer, const Block& block) const;
  Status ValueHeads(int64_t layer, int64_t chunk) const;
  Status QueryKeyHeads(int64_t layer, int64_t chunk) const;
  Status AddInput(Part part, Buffer from, const Block& block) const;
  Status AddWeight(Part part, Buffer from, const Block& block) const;

  const AttentionSteps& steps_;
  const AttentionShape& shape_;
  const AttentionMemory& memory_;
  const commsched_dtype_t dtype_;
  const commsched_attention_kernels_t kernels_;
  const commsched_engine_kernels_t conversions_;
  std::array<std::vector<Runs>, 3> columns_;  // By part and chunk.
  std::array<Runs, 3> all_columns_;           // By part, of all chunks.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ATTENTION_COMPUTE_H_
