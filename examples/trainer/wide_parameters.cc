#include "examples/trainer/wide_parameters.h"

#include <algorithm>
#include <utility>

namespace commsched::trainer {

commsched_dtype_t DTypeOf(const std::string& name) {
  if (name == "fp32") return COMMSCHED_F32;
  if (name == "bf16") return COMMSCHED_BF16;
  if (name == "fp16") return COMMSCHED_F16;
  return COMMSCHED_F64;
}

WideParameters::WideParameters(const Architecture& architecture,
                               commsched_dtype_t dtype)
    : architecture_(architecture),
      dtype_(dtype),
      kernels_(commsched_engine_cpu_kernels()) {
  if (dtype_ == COMMSCHED_F32) return;
  uint64_t most = 0;
  for (const ModuleSpec& module : architecture.modules) {
    uint64_t count = 0;
    for (int p : module.used) count += Count(p);
    most = std::max(most, count);
  }
  values_.resize(most);
  gradients_.resize(most);
  begun_.resize(architecture.parameters.size());
}

void WideParameters::ReadValues(int module,
                                const std::vector<const void*>& addresses,
                                std::vector<const float*>* values) {
  float* at = values_.data();
  for (int p : Used(module)) {
    const auto i = static_cast<size_t>(p);
    if (dtype_ == COMMSCHED_F32) {
      (*values)[i] = static_cast<const float*>(addresses[i]);
      continue;
    }
    kernels_.convert(kernels_.user, commsched_stream_caller(), at,
                     COMMSCHED_F32, addresses[i], dtype_, Count(p));
    (*values)[i] = at;
    at += Count(p);
  }
}

void WideParameters::BeginGradients(int module,
                                    const std::vector<void*>& addresses,
                                    std::vector<float*>* gradients) {
  float* at = gradients_.data();
  for (int p : Used(module)) {
    const auto i = static_cast<size_t>(p);
    if (dtype_ == COMMSCHED_F32) {
      (*gradients)[i] = static_cast<float*>(addresses[i]);
      continue;
    }
    std::fill_n(at, Count(p), 0.0f);
    (*gradients)[i] = at;
    begun_[i] = {at, addresses[i]};
    at += Count(p);
  }
}

void WideParameters::EndGradient(int parameter) {
  if (dtype_ == COMMSCHED_F32) return;
  const Begun begun =
      std::exchange(begun_[static_cast<size_t>(parameter)], Begun());
  if (begun.from == nullptr) return;
  kernels_.add(kernels_.user, commsched_stream_caller(), begun.into, dtype_,
               begun.from, COMMSCHED_F32, Count(parameter));
}

void WideParameters::EndGradients(int module) {
  for (int p : Used(module)) EndGradient(p);
}

}  // namespace commsched::trainer
