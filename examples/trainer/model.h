#ifndef COMMSCHED_EXAMPLES_TRAINER_MODEL_H_
#define COMMSCHED_EXAMPLES_TRAINER_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/trainer/architecture.h"
#include "examples/trainer/layers.h"

namespace commsched::trainer {

// Where parameter i lies. Elements of parameters that the module at hand does
// not use may be null.
using ParameterView = std::span<const float* const>;

// Where to add the gradient of parameter i.
using GradientView = std::span<float* const>;

struct Carver;

// Which ranks share each sequence: each has the tokens of a piece of it.
struct SequenceShard {
  int64_t ranks = 1;
  int64_t rank = 0;
};

// Which activations a rank has, and which of them it keeps.
struct ActivationOptions {
  SequenceShard shard = {};
  // Bytes for the attention of shared sequences, a multiple of 64.
  int64_t attention_bytes = 0;
  // Of a block only what enters it is kept until backward, and the others of
  // all blocks share memory.
  bool recompute = false;
  int64_t sharing_machine = 1;  // Models like this one that share its memory.
};

// The activations of one rank and the computation on them: GPT-2 (pre-norm,
// learned positions, tanh GELU, tied head), fp32, module by module, so that
// whoever owns the parameters can fetch them late and send gradients early.
//
// One step of one micro-batch:
//
//   gpt.SetBatch(inputs, targets);
//   for (m = 0; m < num_modules; ++m) gpt.Forward(m, parameters);
//   gpt.loss();
//   for (m = num_modules; m-- > 0;) gpt.Backward(m, parameters, gradients);
//
// Where activations are recomputed, a block keeps what enters it only, and its
// forward runs again within backward, but for the last block, whose activations
// are still there:
//
//   for (m = num_modules; m-- > 0;) {
//     for (r = gpt.recomputed_from(m); r <= m; ++r) gpt.Recompute(r,
//     parameters); gpt.Backward(m, parameters, gradients);
//   }
//
// Where ranks share sequences, each has the tokens of a piece of each, and the
// caller does the attention itself, but for its norm, after Forward, Recompute
// and Backward of an attention module, on shared_attention(). Rows are then (T,
// B) instead of (B, T), and loss() is that of the rank's own tokens.
//
// All memory is allocated by Create and its pages are touched there; a step
// allocates nothing (oneDNN keeps packing buffers of its own). Results are the
// same bits in every run on one kind of CPU, whatever else runs.
//
// Thread-compatible: one rank's thread owns it.
class Gpt {
 public:
  static constexpr int64_t kMaxBatch = 1 << 16;

  // A model for `batch` sequences of `seq` tokens. Fails with kInvalidArgument
  // for a bad config, batch outside 1 to kMaxBatch, or seq outside 1
  // to config.context or no multiple of the ranks that share it, and with
  // kResourceExhausted, naming the bytes, when there is no memory.
  static absl::StatusOr<std::unique_ptr<Gpt>> Create(
      const GptConfig& config, int64_t batch, int64_t seq,
      const ActivationOptions& options = {});

  Gpt(const Gpt&) = delete;
  Gpt& operator=(const Gpt&) = delete;

  // Copies batch * seq tokens each, of which this rank's share is kept; every
  // token is below config.vocab.
  void SetBatch(const uint8_t* inputs, const uint8_t* targets);

  // What the loss is multiplied by before it is differentiated; 1 at first.
  // 1 / micro-batches makes gradients that add up to those of the whole batch.
  void set_loss_scale(float scale) { loss_scale_ = scale; }

  // Modules must run in order, each after the one before it.
  void Forward(int module, ParameterView parameters);

  // After a whole forward pass, in the opposite order. Adds to the gradients
  // of the module's used parameters and touches no others.
  void Backward(int module, ParameterView parameters, GradientView gradients);

  // The first of the modules up to `module` whose forwards run again before its
  // backward: those of a block before that of its MLP. `module` + 1: none.
  int recomputed_from(int module) const;
  // That forward, for Backward: it leaves out what leaves the block, which is
  // kept. Bits are those of the first time.
  void Recompute(int module, ParameterView parameters);

  // What attention of shared sequences reads and writes of block `layer`: R
  // rows of C channels each.
  struct SharedAttention {
    const float* residual;  // The residual stream.
    const float* input;     // That, normalised.
    float* output;          // The residual stream with attention added.
    const float* d_output;
    float* d_input;
  };
  SharedAttention shared_attention(int64_t layer);
  std::span<std::byte> shared_attention_memory();
  // Ends Backward of `module`, an attention, once d_input is complete.
  void EndAttention(int module, ParameterView parameters,
                    GradientView gradients);

  // Mean nats per token of the last Forward of the head.
  float loss() const { return loss_; }

  // (R, V), from the last Forward of the head.
  std::span<const float> logits() const;

  const Architecture& architecture() const { return architecture_; }
  int num_modules() const {
    return static_cast<int>(architecture_.modules.size());
  }
  int64_t activation_bytes() const { return activation_bytes_; }

 private:
  // What a norm keeps: its output (R, C), mean (R) and 1 / deviation (R).
  struct Norm {
    float* out;
    float* mean;
    float* inverse_deviation;
  };

  // Of R = B T rows; the first three pointers to floats are null where ranks
  // share sequences. Where activations are recomputed, blocks share all but
  // `mlp_residual`.
  struct Block {
    Norm ln_1;
    float* qkv;                 // (R, H + 2 K, C / H), K kv_heads.
    float* probabilities;       // (B, H, T, T)
    float* attention;           // (R, C)
    float* attention_residual;  // (R, C): the output of h.N.attn.
    Norm ln_2;
    float* hidden;        // (R, 4 C): before GELU.
    float* gelu;          // (R, 4 C)
    float* mlp_residual;  // (R, C): the output of h.N.mlp.
  };

  struct Activations {
    float* embedding;  // (R, C): the output of embed.
    std::vector<Block> blocks;
    Norm ln_f;
    float* logits;      // (R, V)
    float* log_sums;    // (R)
    float* d_logits;    // (R, V)
    float* d_residual;  // (R, C): gradient of the residual stream.
    float* d_narrow;    // (R, C): scratch.
    float* d_wide;      // (R, 4 C): scratch.
    float* d_scores;    // Scratch of AttentionBackward.
    float* attention;   // Of shared sequences.
  };

  struct AlignedDelete {
    void operator()(float* pointer) const;
  };

  Gpt(Architecture architecture, int64_t batch, int64_t seq,
      const ActivationOptions& options);

  // Takes every activation from `carver`, which may only be counting.
  void Carve(Carver& carver);
  Norm CarveNorm(Carver& carver) const;
  Block CarveBlock(Carver& carver) const;

  void ForwardAttention(int module, ParameterView parameters);
  void ForwardMlp(int module, ParameterView parameters);
  void ForwardHidden(int module, ParameterView parameters);
  void ForwardHead(ParameterView parameters);
  void BackwardAttention(int module, ParameterView parameters,
                         GradientView gradients);
  void BackwardMlp(int module, ParameterView parameters,
                   GradientView gradients);
  void BackwardHead(ParameterView parameters, GradientView gradients);

  void ForwardNorm(const float* x, const float* weight, const float* bias,
                   const Norm& norm);
  // Adds the gradient that is in d_narrow, passed through the norm, to
  // d_residual.
  void BackwardNorm(const float* x, const float* weight, const Norm& norm,
                    float* d_weight, float* d_bias);

  // The residual stream that enters block `layer`, or the head after the last.
  const float* BlockInput(int64_t layer) const;
  // Of this rank: per sequence, and in all.
  int64_t local_seq() const { return seq_ / shard_.ranks; }
  int64_t rows() const { return batch_ * local_seq(); }
  bool sharded() const { return shard_.ranks > 1; }
  AttentionShape attention_shape() const;
  EmbeddingShape embedding_shape() const;

  const Architecture architecture_;
  const int64_t batch_;
  const int64_t seq_;
  const SequenceShard shard_;
  const bool recompute_;
  const int64_t attention_bytes_;

  int64_t activation_bytes_ = 0;
  std::unique_ptr<float[], AlignedDelete> memory_;
  Activations act_;
  std::vector<uint8_t> inputs_;   // By row.
  std::vector<uint8_t> targets_;  // By row.
  float loss_scale_ = 1;
  float loss_ = 0;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_MODEL_H_
