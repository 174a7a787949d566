#ifndef COMMSCHED_SRC_ENGINE_ATTENTION_STEPS_H_
#define COMMSCHED_SRC_ENGINE_ATTENTION_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/attention/head_split.h"

namespace commsched::engine {

// Activations that exchanges read or write. The layers share those up to kDvIn,
// named by the side of an exchange that they are on; each layer has its own
// kQ, kK, kV (all tokens of this rank's heads) and kO (this rank's tokens, all
// heads), unless forwards run again.
enum class AttentionBuffer {
  kQOut,
  kKOut,
  kVOut,
  kOOut,
  kDoOut,
  kDoIn,
  kDqOut,
  kDkOut,
  kDvOut,
  kDqIn,
  kDkIn,
  kDvIn,
  kQ,
  kK,
  kV,
  kO,
};
inline constexpr int kSharedBuffers = 12;
inline constexpr int kLayerBuffers = 4;

// `rows` rows of `columns` elements, from `offset` on, each `stride` after the
// one before.
struct AttentionRegion {
  AttentionBuffer buffer = AttentionBuffer::kQOut;
  int64_t offset = 0;
  int64_t rows = 1;
  int64_t columns = 0;
  int64_t stride = 0;
};

enum class AttentionParameter { kQkvWeight, kQkvBias, kOutWeight, kOutBias };

// An op that computes, or an all-to-all.
struct AttentionStep {
  enum class Kind {
    kExchange,
    kQuery,  // Forward: projections, attention, the way out.
    kKey,
    kValue,
    kAttend,
    kOut,
    kContext,  // Backward: of the way out, of attention, of projections.
    kOutWeight,
    kValueHeads,
    kQueryKeyHeads,
    kValueInput,
    kValueWeight,
    kKeyInput,
    kKeyWeight,
    kQueryInput,  // What the caller does with the input's gradient follows.
    kQueryWeight,
  };

  Kind kind = Kind::kExchange;
  int64_t chunk = 0;
  std::string name;

  // An op has these.
  std::vector<AttentionRegion> reads;
  std::vector<AttentionRegion> writes;
  std::vector<AttentionParameter> parameters;
  std::vector<AttentionParameter> gradients;
  double flops = 0;

  // An exchange has these. Row s of the counts is what rank s sends to each.
  AttentionRegion input;
  AttentionRegion output;
  std::vector<uint64_t> counts;

  bool is_exchange() const { return kind == Kind::kExchange; }
};

// What the forward and the backward of a layer consist of; equal on all ranks.
//
//   forward   for each chunk of heads:  q -> A_q, k -> A_k, v -> A_v
//             for each chunk:           attend -> A_o
//             for each chunk:           out
//   backward  for each chunk:           context -> A_do
//             out_weight
//             for each chunk:           v_heads -> A_dv, qk_heads -> A_dk, A_dq
//             v_input, v_weight, k_input, k_weight, q_input, q_weight
//
// Under each exchange runs what does not need it: A_q under the projections of
// keys, A_k under those of values, A_v under the projections and the attention
// of other chunks, A_o under the attention of the next chunk and the way out of
// those before, A_do under the weights' gradient of the way out, A_dv under the
// gradients of queries and keys, A_dk and A_dq under those of the projections
// of values, and A_dq also of keys.
//
// Rows are time-major, (T, B): so what arrives from the ranks, piece after
// piece, is the whole sequence, and nothing is packed or unpacked.
//
// Immutable.
class AttentionSteps {
 public:
  explicit AttentionSteps(const AttentionShape& shape);

  const AttentionShape& shape() const { return shape_; }
  const HeadSplit& split() const { return split_; }
  const std::vector<AttentionStep>& of(bool backward) const {
    return backward ? backward_ : forward_;
  }

  int64_t CountOf(AttentionBuffer buffer) const;  // Elements.
  // Distance between the rows of tokens that are sent.
  int64_t TokenStride(bool q) const;
  // Where a chunk is: columns of this rank's tokens, and rows of its heads.
  AttentionRegion TokenColumns(AttentionBuffer buffer, int64_t chunk,
                               bool q) const;
  AttentionRegion HeadRows(AttentionBuffer buffer, int64_t chunk, bool q) const;

 private:
  using Kind = AttentionStep::Kind;
  using Buffer = AttentionBuffer;
  using Parameter = AttentionParameter;

  AttentionRegion Whole(Buffer buffer) const;
  AttentionStep ToHeads(const char* name, int64_t chunk, Buffer from, Buffer to,
                        bool q) const;
  AttentionStep ToTokens(const char* name, int64_t chunk, Buffer from,
                         Buffer to, bool q) const;
  double GemmFlops(int64_t chunk, bool q) const;
  double AttentionFlops(int64_t chunk) const;
  // The forward.
  void AddProjections();
  void AddAttention();
  void AddWayOut();
  // The backward.
  void AddContexts();
  void AddHeads();
  void AddProjectionGradients();

  const AttentionShape shape_;
  const HeadSplit split_;
  std::vector<AttentionStep> forward_;
  std::vector<AttentionStep> backward_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ATTENTION_STEPS_H_
