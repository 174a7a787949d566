#include "engine/attention/checks.h"

#include <string>
#include <utility>

namespace commsched::engine {

Status CheckKernels(const commsched_attention_kernels_t& kernels) {
  const std::pair<const char*, bool> entries[] = {
      {"product", kernels.product != nullptr},
      {"head_forward", kernels.head_forward != nullptr},
      {"head_backward_value", kernels.head_backward_value != nullptr},
      {"head_backward_query_key", kernels.head_backward_query_key != nullptr}};
  for (const auto& [name, present] : entries) {
    if (!present) {
      return InvalidArgument(std::string("attention: desc.kernels has no ") +
                             name);
    }
  }
  return Status();
}

Status CheckMemory(const commsched_attention_desc_t& desc, uint64_t bytes) {
  if (desc.memory == nullptr) return Status();
  if (reinterpret_cast<uintptr_t>(desc.memory) % kAttentionAlignment != 0) {
    return InvalidArgument("attention: desc.memory is not aligned to " +
                           std::to_string(kAttentionAlignment) + " bytes");
  }
  if (desc.memory_bytes < bytes) {
    return InvalidArgument("attention: desc.memory_bytes is " +
                           std::to_string(desc.memory_bytes) +
                           "; this description takes " + std::to_string(bytes));
  }
  return Status();
}

Status CheckBlock(const commsched_attention_block_t& block, bool backward) {
  const std::pair<const char*, const void*> forward_fields[] = {
      {"input", block.input},           {"output", block.output},
      {"qkv_weight", block.qkv_weight}, {"qkv_bias", block.qkv_bias},
      {"out_weight", block.out_weight}, {"out_bias", block.out_bias}};
  const std::pair<const char*, const void*> backward_fields[] = {
      {"input", block.input},           {"d_output", block.d_output},
      {"d_input", block.d_input},       {"qkv_weight", block.qkv_weight},
      {"out_weight", block.out_weight}, {"d_qkv_weight", block.d_qkv_weight},
      {"d_qkv_bias", block.d_qkv_bias}, {"d_out_weight", block.d_out_weight},
      {"d_out_bias", block.d_out_bias}};
  const auto check = [](const auto& fields) {
    for (const auto& [name, pointer] : fields) {
      if (pointer == nullptr) {
        return InvalidArgument(std::string("attention: block.") + name +
                               " is NULL");
      }
    }
    return Status();
  };
  return backward ? check(backward_fields) : check(forward_fields);
}

}  // namespace commsched::engine
