#ifndef COMMSCHED_SRC_ENGINE_ATTENTION_ATTENTION_H_
#define COMMSCHED_SRC_ENGINE_ATTENTION_ATTENTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/attention/compute.h"
#include "engine/attention/layer_ids.h"

namespace commsched::engine {

// Ulysses: the attention modules of one rank's model, as ops and collectives of
// an engine that it uses by the C ABI alone. The contract of each function is
// that of commsched/attention.h.
//
// Thread-compatible.
class Attention {
 public:
  static Status GetInfo(const commsched_attention_desc_t& desc,
                        commsched_attention_info_t* out);
  static Status Create(const commsched_attention_desc_t& desc,
                       const commsched_attention_kernels_t& kernels,
                       std::unique_ptr<Attention>* out);

  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  Status Register(commsched_model_t* model, const char* axis,
                  commsched_group_t* group,
                  const std::vector<commsched_attention_layer_t>& layers);
  Status Run(commsched_engine_t* engine, uint32_t layer, bool backward,
             uint32_t micro_batch, const commsched_attention_block_t* block);

 private:
  // One direction of a layer, as it is registered.
  struct Direction {
    commsched_module_op_id_t first_op = 0;  // The others follow.
    std::vector<ParameterIds> completes;    // By step: gradients it ends.
  };

  struct FreeMemory {
    void operator()(float* memory) const;
  };
  using Memory = std::unique_ptr<float, FreeMemory>;

  Attention(const AttentionShape& shape, const commsched_attention_desc_t& desc,
            const commsched_attention_kernels_t& kernels, Memory owned,
            float* base);

  Status AddActivations(const std::vector<commsched_attention_layer_t>& layers);
  Status AddDirection(const commsched_attention_layer_t& layer, int64_t index,
                      bool backward, Direction* out);
  Status AddOp(const commsched_attention_layer_t& layer, int64_t index,
               bool backward, const AttentionStep& step);
  Status AddExchange(const commsched_attention_layer_t& layer, int64_t index,
                     bool backward, const AttentionStep& step);
  commsched_access_t AccessTo(const AttentionRegion& region, int64_t layer,
                              commsched_access_mode_t mode) const;
  Status RunOp(uint32_t layer, const AttentionStep& step,
               const ParameterIds& completes,
               const commsched_attention_block_t& block);

  const AttentionSteps steps_;
  const commsched_dtype_t dtype_;
  const bool blocking_;
  const commsched_attention_kernels_t kernels_;
  const Memory owned_;
  const AttentionMemory memory_;
  AttentionCompute compute_;

  // Null until it is registered, and used only then.
  commsched_model_t* model_ = nullptr;
  commsched_group_id_t group_ = 0;
  commsched_activation_id_t first_activation_ = 0;
  commsched_module_op_id_t last_op_ = 0;
  std::vector<std::array<Direction, 2>> layers_;  // Forward, backward.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ATTENTION_ATTENTION_H_
