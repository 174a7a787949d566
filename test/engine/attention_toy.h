#ifndef COMMSCHED_TEST_ENGINE_ATTENTION_TOY_H_
#define COMMSCHED_TEST_ENGINE_ATTENTION_TOY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commsched/attention.h"

namespace commsched::engine {

// A model of attention modules alone, which fits fixed noise to fixed noise:
// each module scales its input by a vector, its "norm", and adds the attention
// of that to its input.
struct AttentionToy {
  uint64_t layers = 2;
  uint64_t heads = 4;
  uint64_t kv_heads = 0;
  uint64_t head_size = 3;
  uint64_t width = 10;
  uint64_t batch = 2;
  uint64_t seq = 12;
  int32_t ranks = 2;
  uint32_t chunks = 1;
  commsched_dtype_t dtype = COMMSCHED_F32;
  bool blocking = false;
  bool recompute = false;
  bool lends_memory = false;   // Otherwise create allocates.
  bool product_fails = false;  // With "no product today", on rank 0.
  uint32_t zero_stage = 0;
  uint32_t steps = 3;

  uint64_t num_kv_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  uint64_t qkv_channels() const {
    return (heads + 2 * num_kv_heads()) * head_size;
  }
  // Of parameter `p` of a module: norm, qkv weight and bias, out weight and
  // bias.
  uint64_t CountOf(uint32_t p) const;
};
inline constexpr uint32_t kToyParameters = 5;

struct AttentionTraining {
  std::string error;           // Of the first rank that failed; empty: none.
  std::vector<double> losses;  // By step, mean over the ranks.
  std::vector<std::vector<float>> weights;  // By parameter.
  // Of rank 0, the gradients that its last backward called complete, in order.
  std::vector<commsched_parameter_id_t> completed;
};

// By SGD: with commsched/attention.h on a thread per rank, and in plain loops
// over whole sequences.
AttentionTraining TrainShared(const AttentionToy &toy);
AttentionTraining TrainWhole(const AttentionToy &toy);

// Products and heads in plain loops; the other entries are NULL.
commsched_attention_kernels_t PlainAttentionKernels();

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_ATTENTION_TOY_H_
