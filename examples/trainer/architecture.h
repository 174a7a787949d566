#ifndef COMMSCHED_EXAMPLES_TRAINER_ARCHITECTURE_H_
#define COMMSCHED_EXAMPLES_TRAINER_ARCHITECTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/trainer/config.h"

namespace commsched::trainer {

// How a parameter starts. GPT-2: matrices normal with deviation 0.02, and
// 0.02 / sqrt(2 layers) where a matrix writes into the residual stream.
struct InitRule {
  double constant = 0;   // Every element, before noise.
  double deviation = 0;  // Of the normal noise; 0 means none.
};

// One tensor, named and laid out as in Hugging Face's GPT-2: linear weights
// are [in, out] ("Conv1D").
struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count = 0;  // Product of shape.
  int module = 0;     // The module that owns it.
  InitRule init;

  // AdamW decays matrices only, as GPT-2 and nanoGPT do.
  bool decays() const { return shape.size() >= 2; }
};

// The parameters of an attention or MLP module, counted from its first. The
// first linear layer is c_attn or c_fc, the second c_proj.
enum BlockParameter {
  kNormWeight,
  kNormBias,
  kFirstWeight,
  kFirstBias,
  kProjectionWeight,
  kProjectionBias,
};

// A piece of the model whose parameters are needed, and whose gradients are
// produced, together.
struct ModuleSpec {
  std::string name;
  std::vector<int> owned;  // Parameter indices; each has exactly one owner.
  std::vector<int> used;   // owned, then parameters tied to another module.
};

// Modules in the order of first use: embed, h.0.attn, h.0.mlp, ..., head.
// Parameters in the order of their modules. The head is tied to wte.weight.
struct Architecture {
  GptConfig config;
  std::vector<ParameterSpec> parameters;
  std::vector<ModuleSpec> modules;

  int embed_module() const { return 0; }
  int attention_module(int64_t layer) const {
    return static_cast<int>(1 + 2 * layer);
  }
  int mlp_module(int64_t layer) const {
    return static_cast<int>(2 + 2 * layer);
  }
  bool is_attention(int module) const {
    return module % 2 == 1 && module != head_module();
  }
  int64_t layer_of(int module) const { return (module - 1) / 2; }
  int head_module() const { return static_cast<int>(modules.size()) - 1; }
};

// Requires ValidateConfig(config).ok().
Architecture BuildArchitecture(const GptConfig& config);

// Floating-point operations of one module, for cost hints: matrix products
// only, a multiplication and an addition each counted. Attention counts the
// causal half.
struct ModuleFlops {
  int64_t forward = 0;
  int64_t backward = 0;
};
ModuleFlops CountFlops(const Architecture& architecture, int module,
                       int64_t batch, int64_t seq);

// Writes the initial values of the `count` elements of `spec` from `offset` on:
// a pure function of (seed, name, init, index), so every rank can fill any part
// of the model by itself.
void InitializeRange(const ParameterSpec& spec, uint64_t seed, int64_t offset,
                     int64_t count, float* out);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_ARCHITECTURE_H_
