#ifndef COMMSCHED_EXAMPLES_TRAINER_SHARDED_ATTENTION_H_
#define COMMSCHED_EXAMPLES_TRAINER_SHARDED_ATTENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/trainer/carver.h"
#include "examples/trainer/head_split.h"
#include "examples/trainer/layers.h"
#include "examples/trainer/views.h"

namespace commsched::trainer {

// How elements of 16 bits are made of fp32, and the other way round.
struct NarrowFormat {
  void (*narrow)(const float* values, int64_t count, uint16_t* out) = nullptr;
  void (*widen)(const uint16_t* values, int64_t count, float* out) = nullptr;
};

// Which activations a rank has, and which of them it keeps.
struct ActivationOptions {
  SequenceShard shard;
  NarrowFormat exchanged;  // What ranks exchange; null: fp32.
  // Of a block only what enters it is kept until backward, and the others of
  // all blocks share memory.
  bool recompute = false;
  int64_t sharing_machine = 1;  // Models like this one that share its memory.
};

// What exchanges read or write.
struct Travelling {
  std::string name;
  int64_t count = 0;
  float* data = nullptr;       // What ops compute with.
  uint16_t* narrow = nullptr;  // What travels in its place, unless null.

  void* sent() const {
    return narrow != nullptr ? static_cast<void*>(narrow) : data;
  }
};

// `rows` rows of `columns` elements of a Travelling, from `offset` on, each
// `stride` after the one before.
struct TravellingRegion {
  int buffer = 0;  // Index in ShardedAttention::buffers().
  int64_t offset = 0;
  int64_t rows = 1;
  int64_t columns = 0;
  int64_t stride = 0;
};

// What attention consists of where a sequence is shared out: ops that compute,
// and all-to-alls between them.
struct ShardedStep {
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
    kQueryInput,
    kQueryWeight,
  };

  Kind kind = Kind::kExchange;
  int64_t chunk = 0;
  std::string name;

  // Of an op.
  std::vector<TravellingRegion> reads;
  std::vector<TravellingRegion> writes;
  std::vector<int> parameters;  // Counted from the module's first.
  std::vector<int> gradients;
  std::vector<int> completes;  // Of `gradients`: no later op adds to them.
  double flops = 0;

  // Of an exchange.
  TravellingRegion input;
  TravellingRegion output;
  std::vector<uint64_t> counts;  // Row s: what rank s sends to each; or equal.

  bool is_exchange() const { return kind == Kind::kExchange; }
};

// Self-attention of Ulysses: each rank has the tokens of a piece of each
// sequence, and during attention all tokens of some heads.
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
// Thread-compatible.
class ShardedAttention {
 public:
  // Of `batch` sequences of `seq` tokens in all. Requires a config and shard
  // that are valid.
  ShardedAttention(const GptConfig& config, int64_t batch, int64_t seq,
                   const ActivationOptions& options);

  void Carve(Carver& carver);

  const std::vector<Travelling>& buffers() const { return buffers_; }
  // In order; equal on all ranks.
  const std::vector<ShardedStep>& steps(int64_t layer, bool backward) const {
    return layers_[static_cast<size_t>(layer)].steps[backward ? 1 : 0];
  }

  // What the block lends to an op: R rows of C channels each.
  struct Block {
    const float* input;   // The residual stream.
    const float* normed;  // That, normalised.
    float* output;        // The residual stream with attention added.
    const float* d_output;
    float* d_normed;
    ParameterView parameters;  // Counted from the module's first.
    GradientView gradients;
  };

  // Runs `step`, an op of `layer`. Where elements of 16 bits travel, it widens
  // what the op reads before, and narrows what it writes afterwards.
  void Run(int64_t layer, const ShardedStep& step, const Block& block) const;

 private:
  // Indices of buffers_.
  struct Layer {
    int q, k, v;  // All tokens of this rank's heads.
    int o;        // This rank's tokens, all heads.
    float* probabilities = nullptr;
    std::vector<ShardedStep> steps[2];
  };

  // Columns of c_attn and of what is sent of its product.
  struct Columns {
    int64_t weight = 0;
    int64_t sent = 0;
    int64_t count = 0;
  };
  enum class Part { kQuery, kKey, kValue };

  // Taking part in the exchanges of one chunk.
  struct Mine {
    int64_t q_heads;
    int64_t kv_heads;
    int64_t q_offset;
    int64_t kv_offset;
    int64_t probabilities;
    HeadSplit::Share share;
  };

  int AddBuffer(std::string name, int64_t count);
  void AddForward(int64_t layer);
  void AddBackward(int64_t layer);
  ShardedStep Op(ShardedStep::Kind kind, const char* name, int64_t chunk) const;
  ShardedStep ToHeads(const char* name, int64_t chunk, int from, int to,
                      bool q) const;
  ShardedStep ToTokens(const char* name, int64_t chunk, int from, int to,
                       bool q) const;

  // Of a chunk: columns of this rank's tokens, and rows of its heads.
  TravellingRegion TokenColumns(int buffer, int64_t chunk, bool q) const;
  TravellingRegion HeadRows(int buffer, int64_t chunk, bool q) const;
  TravellingRegion Whole(int buffer) const;
  int64_t most(int64_t chunk, bool q) const {
    return q ? split_.most_q(chunk) : split_.most_kv(chunk);
  }
  int64_t token_stride(bool q) const {
    return (q ? config_.heads : split_.kv_sent()) * config_.head_size();
  }
  int64_t rows() const { return batch_ * seq_ / shard_.ranks; }
  int64_t all_rows() const { return batch_ * seq_; }
  float* data(int buffer) const {
    return buffers_[static_cast<size_t>(buffer)].data;
  }
  double GemmFlops(int64_t chunk, bool q) const;
  double AttentionFlops(int64_t chunk) const;

  std::vector<Columns> ColumnsOf(Part part, int64_t chunk) const;
  std::vector<Columns> AllColumnsOf(Part part) const;
  int64_t weight_begin(Part part) const;
  Mine MineOf(int64_t chunk) const;
  AttentionHead HeadAt(const Layer& layer, const Mine& mine, int64_t sequence,
                       int64_t head) const;
  template <typename Body>
  void ForEachHead(const Layer& layer, int64_t chunk, Body&& body) const;

  void Compute(int64_t layer, const ShardedStep& step,
               const Block& block) const;
  void Widen(const TravellingRegion& region) const;
  void Narrow(const TravellingRegion& region) const;
  void Project(Part part, int64_t chunk, int to, const Block& block) const;
  void Attend(const Layer& layer, int64_t chunk) const;
  void WayOut(const Layer& layer, int64_t chunk, const Block& block) const;
  void Context(int64_t chunk, const Block& block) const;
  void OutWeight(const Layer& layer, const Block& block) const;
  void ValueHeads(const Layer& layer, int64_t chunk) const;
  void QueryKeyHeads(const Layer& layer, int64_t chunk) const;
  void AddInput(Part part, int from, bool accumulate, const Block& block) const;
  void AddWeight(Part part, int from, const Block& block) const;

  const GptConfig config_;
  const int64_t batch_;
  const int64_t seq_;
  const SequenceShard shard_;
  const NarrowFormat format_;
  const bool recompute_;
  const HeadSplit split_;
  std::vector<Travelling> buffers_;
  std::vector<Layer> layers_;
  size_t first_layer_buffer_ = 0;  // From there on q, k, v and o of each.
  int64_t my_heads_ = 0;

  // Shared by the layers; indices of buffers_. On the way out: q, k, v and o of
  // a forward; of a backward, to heads do, and from them dq, dk, dv.
  int q_out_, k_out_, v_out_, o_out_;
  int do_out_, do_in_;
  int dq_out_, dk_out_, dv_out_;
  int dq_in_, dk_in_, dv_in_;
  float* scratch_ = nullptr;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_SHARDED_ATTENTION_H_
