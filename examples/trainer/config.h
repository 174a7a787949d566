#ifndef COMMSCHED_EXAMPLES_TRAINER_CONFIG_H_
#define COMMSCHED_EXAMPLES_TRAINER_CONFIG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched::trainer {

// The size of a GPT-2 model. Tokens are bytes, so `vocab` is 256.
struct GptConfig {
  int64_t vocab = 256;
  int64_t context = 128;  // Rows of wpe: the longest sequence.
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t channels = 0;
  // Heads of keys and values, each shared by heads / kv_heads of queries
  // (grouped-query attention); 0: as many as `heads`.
  int64_t kv_heads = 0;

  int64_t head_size() const { return channels / heads; }
  int64_t num_kv_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  int64_t kv_channels() const { return num_kv_heads() * head_size(); }
  // Columns of c_attn: queries, keys, values.
  int64_t qkv_channels() const { return channels + 2 * kv_channels(); }
};

// "nano" (4 layers of 128 channels), "mini" (6 x 384) or "small" (12 x 768).
// Fails with kInvalidArgument, listing the presets, for any other name.
absl::StatusOr<GptConfig> PresetConfig(absl::string_view name);

// Fails with kInvalidArgument, naming field, value and limit, if the config is
// not one that Gpt can run: every field at least 1, vocab at most 256,
// channels a multiple of heads, and heads of kv_heads unless that is 0.
absl::Status ValidateConfig(const GptConfig& config);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_CONFIG_H_
