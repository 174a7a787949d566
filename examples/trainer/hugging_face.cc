#include "examples/trainer/hugging_face.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"

namespace commsched::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, int64_t GptConfig::*> kSizes[] = {
    {"vocab", &GptConfig::vocab},       {"context", &GptConfig::context},
    {"layers", &GptConfig::layers},     {"heads", &GptConfig::heads},
    {"channels", &GptConfig::channels}, {"kv_heads", &GptConfig::kv_heads},
};

// Returns 0 or the errno of the first call that failed.
int WriteTo(int descriptor, absl::string_view text) {
  std::FILE* const file = fdopen(descriptor, "w");
  if (file == nullptr) {
    const int error = errno;
    close(descriptor);
    return error;
  }
  int error = 0;
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size() ||
      std::fflush(file) != 0 || fchmod(descriptor, 0644) != 0 ||
      fsync(descriptor) != 0) {
    error = errno;
  }
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

std::string FormatConfig(const GptConfig& config) {
  Json json;
  for (const auto& [name, size] : kSizes) json[name] = config.*size;
  return json.dump();
}

absl::StatusOr<GptConfig> ParseConfig(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), /*cb=*/nullptr,
                                /*allow_exceptions=*/false);
  GptConfig config;
  bool complete = json.is_object() && json.size() == std::size(kSizes);
  for (const auto& [name, size] : kSizes) {
    const auto found = complete ? json.find(name) : json.end();
    complete = found != json.end() && found->is_number_integer();
    if (!complete) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s' are not the sizes of a model", text));
    }
    config.*size = found->get<int64_t>();
  }
  const absl::Status status = ValidateConfig(config);
  if (!status.ok()) return status;
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

absl::Status WriteWholeFile(const std::string& path, absl::string_view text) {
  std::string unfinished = path + ".XXXXXX";
  const int descriptor = mkstemp(unfinished.data());
  int error = descriptor < 0 ? errno : WriteTo(descriptor, text);
  if (error == 0 && std::rename(unfinished.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  if (descriptor >= 0) std::remove(unfinished.c_str());
  return absl::UnavailableError(
      absl::StrFormat("cannot write '%s': %s", path, std::strerror(error)));
}

}  // namespace commsched::trainer
