// The model as Hugging Face's transformers know it.
#ifndef COMMSCHED_EXAMPLES_TRAINER_HUGGING_FACE_H_
#define COMMSCHED_EXAMPLES_TRAINER_HUGGING_FACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "examples/trainer/config.h"

namespace commsched::trainer {

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

// Writes `text` to a file, which has it whole or stays as it was. kUnavailable,
// naming the file, if it cannot.
absl::Status WriteWholeFile(const std::string& path, absl::string_view text);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_HUGGING_FACE_H_
