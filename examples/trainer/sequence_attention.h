#ifndef COMMSCHED_EXAMPLES_TRAINER_SEQUENCE_ATTENTION_H_
#define COMMSCHED_EXAMPLES_TRAINER_SEQUENCE_ATTENTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "commsched/attention.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/model.h"
#include "examples/trainer/options.h"
#include "examples/trainer/wide_parameters.h"

namespace commsched::trainer {

// The attention of a model whose sequences several ranks share: the library's,
// with the products and heads of the trainer. Where each rank has sequences of
// its own nothing is registered, and nothing runs.
//
// Thread-compatible: the rank's thread.
class SequenceAttention {
 public:
  SequenceAttention() = default;
  SequenceAttention(const SequenceAttention&) = delete;
  SequenceAttention& operator=(const SequenceAttention&) = delete;

  // What it comes to on rank `index`; zeros where no sequence is shared.
  static absl::StatusOr<commsched_attention_info_t> Measure(
      const Options& options, int64_t index);

  // All outlive this; the modules and parameters of `gpt` are registered, with
  // the ids of its architecture. `wide` gets gradients that are complete.
  absl::Status Register(const Options& options, int64_t index,
                        commsched_group_t* group, WideParameters* wide,
                        Gpt* gpt, commsched_model_t* model);

  // Within the forward or backward of `module`, after the model's own part.
  absl::Status Run(commsched_engine_t* engine, int module, bool backward,
                   uint32_t micro_batch, ParameterView parameters,
                   GradientView gradients);

 private:
  commsched_attention_kernels_t Kernels();

  Handle<commsched_attention_t, commsched_attention_destroy> attention_;
  Gpt* gpt_ = nullptr;
  WideParameters* wide_ = nullptr;

  // Of the Run at hand.
  int module_ = 0;
  ParameterView parameters_;
  GradientView gradients_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_SEQUENCE_ATTENTION_H_
