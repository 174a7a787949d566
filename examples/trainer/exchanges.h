#ifndef COMMSCHED_EXAMPLES_TRAINER_EXCHANGES_H_
#define COMMSCHED_EXAMPLES_TRAINER_EXCHANGES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "commsched/engine_ops.h"
#include "examples/trainer/model.h"

namespace commsched::trainer {

// The steps of a model whose sequences are shared (Gpt::steps) as ops and
// collectives of the engine's modules.
//
// Thread-compatible: the rank's thread.
class Exchanges {
 public:
  // Both outlive this; the modules and parameters of `gpt` are registered, with
  // the ids of its architecture. `group`: the ranks that share sequences.
  // `blocking`: an op without work follows each exchange and waits for it.
  absl::Status Register(Gpt& gpt, bool blocking, commsched_group_t* group,
                        commsched_engine_t* engine);

  // Within the forward or backward of `module`: runs the ops in order. Without
  // `compute` they are empty, so that only the exchanges go.
  absl::Status Run(int module, bool backward, uint32_t micro_batch,
                   ParameterView parameters, GradientView gradients,
                   bool compute = true);

 private:
  absl::Status AddBuffers(commsched_group_t* group);
  absl::Status AddOp(int module, bool backward, const ShardedStep& step);
  absl::Status AddExchange(int module, bool backward, const ShardedStep& step);

  Gpt* gpt_ = nullptr;
  bool blocking_ = false;
  commsched_engine_t* engine_ = nullptr;
  commsched_group_id_t group_ = 0;
  commsched_module_op_id_t num_ops_ = 0;  // Of the engine.
  // By module, of forward and backward; the others follow.
  std::vector<std::array<commsched_module_op_id_t, 2>> first_op_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_EXCHANGES_H_
