#ifndef COMMSCHED_EXAMPLES_TRAINER_EXCHANGES_H_
#define COMMSCHED_EXAMPLES_TRAINER_EXCHANGES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "commsched/engine_ops.h"
#include "examples/trainer/model.h"
#include "examples/trainer/wide_parameters.h"

namespace commsched::trainer {

// Of elements of `dtype`, which the model is to exchange; null for fp32.
NarrowFormat NarrowFormatOf(commsched_dtype_t dtype);

// The steps of a model whose sequences are shared (Gpt::steps) as ops and
// collectives of the engine's modules.
//
// Thread-compatible: the rank's thread.
class Exchanges {
 public:
  struct Setup {
    commsched_group_t* group = nullptr;       // The ranks that share sequences.
    commsched_dtype_t dtype = COMMSCHED_F32;  // Of what they exchange.
    // An op without work follows each exchange and waits for it.
    bool blocking = false;
    WideParameters* wide = nullptr;  // Gets gradients that are complete.
  };

  // All outlive this; the modules and parameters of `gpt` are registered, with
  // the ids of its architecture, and its format is that of `setup.dtype`.
  absl::Status Register(Gpt& gpt, const Setup& setup,
                        commsched_engine_t* engine);

  // Within the forward or backward of `module`: runs the ops in order. Without
  // `compute` they are empty, so that only the exchanges go.
  absl::Status Run(int module, bool backward, uint32_t micro_batch,
                   ParameterView parameters, GradientView gradients,
                   bool compute = true);

 private:
  absl::Status AddBuffers();
  absl::Status AddOp(int module, bool backward, const ShardedStep& step);
  absl::Status AddExchange(int module, bool backward, const ShardedStep& step);

  void EndGradients(int module, const ShardedStep& step);

  Gpt* gpt_ = nullptr;
  Setup setup_;
  commsched_engine_t* engine_ = nullptr;
  commsched_group_id_t group_ = 0;
  commsched_module_op_id_t num_ops_ = 0;  // Of the engine.
  // By module, of forward and backward; the others follow.
  std::vector<std::array<commsched_module_op_id_t, 2>> first_op_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_EXCHANGES_H_
