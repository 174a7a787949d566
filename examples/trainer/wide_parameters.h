#ifndef COMMSCHED_EXAMPLES_TRAINER_WIDE_PARAMETERS_H_
#define COMMSCHED_EXAMPLES_TRAINER_WIDE_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "examples/trainer/architecture.h"

namespace commsched::trainer {

// "fp32", "bf16" or "fp16"; COMMSCHED_F64, which none of them is, for others.
commsched_dtype_t DTypeOf(const std::string& name);

// Bytes of an element of these types.
inline uint64_t BytesOf(commsched_dtype_t dtype) {
  return dtype == COMMSCHED_F32 ? sizeof(float) : sizeof(uint16_t);
}

// The parameters of one module at a time as fp32, which the model computes
// with, where the engine has them in 16 bits; and gradients back. For fp32 the
// engine's memory serves, and nothing is copied.
//
// Thread-compatible: one rank's thread owns it.
class WideParameters {
 public:
  // Takes memory for the largest module.
  WideParameters(const Architecture& architecture, commsched_dtype_t dtype);

  // `addresses` is by parameter; sets the values of those that `module` uses.
  void ReadValues(int module, const std::vector<const void*>& addresses,
                  std::vector<const float*>* values);

  // Sets where the backward of `module` adds its gradients.
  void BeginGradients(int module, const std::vector<void*>& addresses,
                      std::vector<float*>* gradients);

  // Adds the gradient of `parameter` there, rounded.
  void EndGradient(int parameter);
  // And those of `module` that are left.
  void EndGradients(int module);

 private:
  const std::vector<int>& Used(int module) const {
    return architecture_.modules[static_cast<size_t>(module)].used;
  }
  uint64_t Count(int parameter) const {
    return static_cast<uint64_t>(
        architecture_.parameters[static_cast<size_t>(parameter)].count);
  }

  const Architecture& architecture_;
  const commsched_dtype_t dtype_;
  const commsched_engine_kernels_t kernels_;
  std::vector<float> values_;     // Of the module at hand, end to end; empty
  std::vector<float> gradients_;  // for fp32.

  // Where a gradient is, and goes to. By parameter; null: not begun, or ended.
  struct Begun {
    const float* from = nullptr;
    void* into = nullptr;
  };
  std::vector<Begun> begun_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_WIDE_PARAMETERS_H_
