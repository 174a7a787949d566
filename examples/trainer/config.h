#ifndef COMMSCHED_EXAMPLES_TRAINER_CONFIG_H_
#define COMMSCHED_EXAMPLES_TRAINER_CONFIG_H_

#include <cstdint>
#include <string>

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

// A model with a name, and what suits its size.
struct ModelPreset {
  const char* name;
  GptConfig config;
  double lr;
  uint64_t bucket_bytes;
};

// "nano" (4 layers of 128 channels), "mini" (6 x 384) or "small" (12 x 768).
// Fails with kInvalidArgument, listing the presets, for any other name.
absl::StatusOr<ModelPreset> PresetOf(absl::string_view name);

// Fails with kInvalidArgument, naming field, value and limit, if the config is
// not one that Gpt can run: every field at least 1, vocab at most 256,
// channels a multiple of heads, and heads of kv_heads unless that is 0.
absl::Status ValidateConfig(const GptConfig& config);

// The sizes on one line, for a checkpoint: weights alone do not say how many
// heads there are.
std::string FormatConfig(const GptConfig& config);

// Reads them back. kInvalidArgument for what FormatConfig did not write, or
// what ValidateConfig refuses.
absl::StatusOr<GptConfig> ParseConfig(absl::string_view text);

// The names under which transformers' from_pretrained looks in a folder.
inline constexpr char kHuggingFaceWeights[] = "model.safetensors";
inline constexpr char kHuggingFaceConfig[] = "config.json";

// The text of config.json for weights of this model: GPT2LMHeadModel with bytes
// for tokens. kUnimplemented with grouped queries, which no architecture of
// transformers has in GPT-2's layout.
absl::StatusOr<std::string> HuggingFaceConfig(const GptConfig& config);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_CONFIG_H_
