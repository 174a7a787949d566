#include "engine/tables/optimizer_table.h"

#include <string>

#include "commsched/engine.h"

namespace commsched::engine {

Status CheckOptimizerTable(const OptimizerTable& table) {
  const std::string optimizer =
      std::string("engine: optimizer '") + table.name + "' ";
  if (table.element_wise == table.whole_tensors) {
    return InvalidArgument(
        optimizer + (table.element_wise ? "says both" : "says neither") +
        " element_wise " + (table.element_wise ? "and" : "nor") +
        " whole_tensors; it must say one of them");
  }
  if (table.element_wise) return Status();
  return Status(
      COMMSCHED_UNIMPLEMENTED,
      optimizer + "needs whole_tensors, but shards cut parameters as yet");
}

OptimizerTable MakeOptimizer(uint32_t optimizer,
                             const OptimizerSettings* settings) {
  return optimizer == COMMSCHED_SGD ? Sgd(settings) : AdamW(settings);
}

}  // namespace commsched::engine
