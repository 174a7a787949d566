#include "examples/trainer/config.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr ModelPreset kPresets[] = {
    {"nano", {.layers = 4, .heads = 4, .channels = 128}, 3e-3, 256 << 10},
    {"mini", {.layers = 6, .heads = 6, .channels = 384}, 1e-3, 4 << 20},
    {"small", {.layers = 12, .heads = 12, .channels = 768}, 6e-4, 25 << 20},
};

// With these limits every product of two sizes is far inside int64.
struct Size {
  const char* name;
  int64_t GptConfig::*value;
  int64_t most;
  int64_t least = 1;
};
constexpr Size kSizes[] = {
    {"vocab", &GptConfig::vocab, 256},
    {"context", &GptConfig::context, 1 << 20},
    {"layers", &GptConfig::layers, 1 << 16},
    {"heads", &GptConfig::heads, 1 << 16},
    {"channels", &GptConfig::channels, 1 << 20},
    {"kv_heads", &GptConfig::kv_heads, 1 << 16, 0},
};

}  // namespace

absl::StatusOr<ModelPreset> PresetOf(absl::string_view name) {
  for (const ModelPreset& preset : kPresets) {
    if (name == preset.name) return preset;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model '", name, "' is unknown; presets are nano, mini and small"));
}

absl::Status ValidateConfig(const GptConfig& config) {
  for (const Size& size : kSizes) {
    const int64_t value = config.*size.value;
    if (value < size.least || value > size.most) {
      return absl::InvalidArgumentError(
          absl::StrFormat("model %s is %d; it must be %d to %d", size.name,
                          value, size.least, size.most));
    }
  }
  if (config.channels % config.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model channels is ", config.channels,
                     "; it must be a multiple of heads, ", config.heads));
  }
  if (config.heads % config.num_kv_heads() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model kv_heads is ", config.kv_heads,
                     "; it must be 0 or divide heads, ", config.heads));
  }
  return absl::OkStatus();
}

std::string FormatConfig(const GptConfig& config) {
  Json json;
  for (const Size& size : kSizes) json[size.name] = config.*size.value;
  return json.dump();
}

absl::StatusOr<GptConfig> ParseConfig(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), /*cb=*/nullptr,
                                /*allow_exceptions=*/false);
  GptConfig config;
  bool complete = json.is_object() && json.size() == std::size(kSizes);
  for (const Size& size : kSizes) {
    const auto found = complete ? json.find(size.name) : json.end();
    complete = found != json.end() && found->is_number_integer();
    if (!complete) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s' are not the sizes of a model", text));
    }
    config.*size.value = found->get<int64_t>();
  }
  TRAINER_RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

absl::StatusOr<std::string> HuggingFaceConfig(const GptConfig& config) {
  if (config.num_kv_heads() != config.heads) {
    return absl::UnimplementedError(absl::StrFormat(
        "transformers has no architecture for GPT-2 with %d heads of keys and "
        "values and %d of queries (--kv-heads)",
        config.num_kv_heads(), config.heads));
  }
  // Tokens are bytes: none begins or ends a text. Nothing was dropped in
  // training.
  const Json json = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"vocab_size", config.vocab},
      {"n_positions", config.context},
      {"n_embd", config.channels},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_inner", 4 * config.channels},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", 1e-5},
      {"embd_pdrop", 0.0},
      {"attn_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"scale_attn_weights", true},
      {"tie_word_embeddings", true},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"torch_dtype", "float32"},
  };
  return json.dump(2) + "\n";
}

}  // namespace commsched::trainer
