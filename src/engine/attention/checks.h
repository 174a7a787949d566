#ifndef COMMSCHED_SRC_ENGINE_ATTENTION_CHECKS_H_
#define COMMSCHED_SRC_ENGINE_ATTENTION_CHECKS_H_

#include <cstddef>
#include <cstdint>

#include "checkpoint/status.h"
#include "commsched/attention.h"

namespace commsched::engine {

inline constexpr size_t kAttentionAlignment = 64;

// Each fails with INVALID_ARGUMENT, naming the field.
Status CheckKernels(const commsched_attention_kernels_t& kernels);
// Checks the memory of a description that takes `bytes`.
Status CheckMemory(const commsched_attention_desc_t& desc, uint64_t bytes);
Status CheckBlock(const commsched_attention_block_t& block, bool backward);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ATTENTION_CHECKS_H_
