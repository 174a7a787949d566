#include "examples/trainer/config.h"

#include "absl/strings/str_cat.h"

namespace commsched::trainer {
namespace {

struct Limit {
  absl::string_view field;
  int64_t value;
  int64_t most;
};

}  // namespace

absl::StatusOr<GptConfig> PresetConfig(absl::string_view name) {
  if (name == "nano")
    return GptConfig{.layers = 4, .heads = 4, .channels = 128};
  if (name == "mini")
    return GptConfig{.layers = 6, .heads = 6, .channels = 384};
  if (name == "small") {
    return GptConfig{.layers = 12, .heads = 12, .channels = 768};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model '", name, "' is unknown; presets are nano, mini and small"));
}

absl::Status ValidateConfig(const GptConfig& config) {
  // The limits keep every product of two fields far inside int64.
  const Limit limits[] = {
      {"vocab", config.vocab, 256},
      {"context", config.context, 1 << 20},
      {"layers", config.layers, 1 << 16},
      {"heads", config.heads, 1 << 16},
      {"channels", config.channels, 1 << 20},
  };
  for (const Limit& limit : limits) {
    if (limit.value < 1 || limit.value > limit.most) {
      return absl::InvalidArgumentError(
          absl::StrCat("model ", limit.field, " is ", limit.value,
                       "; it must be 1 to ", limit.most));
    }
  }
  if (config.channels % config.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model channels is ", config.channels,
                     "; it must be a multiple of heads, ", config.heads));
  }
  if (config.kv_heads < 0 || config.kv_heads > config.heads ||
      config.heads % config.num_kv_heads() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model kv_heads is ", config.kv_heads,
                     "; it must be 0 or divide heads, ", config.heads));
  }
  return absl::OkStatus();
}

}  // namespace commsched::trainer
