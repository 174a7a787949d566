#include "examples/trainer/data.h"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "examples/trainer/memory_watch.h"
#include "examples/trainer/random.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

constexpr uint64_t kSequences = StreamOf("training sequences");

absl::Status TooLong(absl::string_view source, absl::string_view bytes,
                     int64_t max_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      source, " has ", bytes, " bytes; texts are kept in memory and may have ",
      max_bytes));
}

absl::Status ReadAll(std::FILE* file, absl::string_view source,
                     int64_t max_bytes, std::vector<uint8_t>* text) {
  uint8_t buffer[1 << 16];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), file)) {
    if (text->size() + size > static_cast<size_t>(max_bytes)) {
      return TooLong(source, "more", max_bytes);
    }
    text->insert(text->end(), buffer, buffer + size);
  }
  if (std::ferror(file) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("reading ", source, ": ", std::strerror(errno)));
}

// A file, or a pipe: a device need not end.
absl::StatusOr<std::vector<uint8_t>> ReadFile(const std::string& path,
                                              int64_t max_bytes) {
  max_bytes = std::min(max_bytes, PhysicalBytes() / 4);
  const std::string source = absl::StrCat("data file '", path, "'");
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::is_regular_file(status)) {
    const auto size =
        static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (size > max_bytes) return TooLong(source, absl::StrCat(size), max_bytes);
  } else if (std::filesystem::exists(status) &&
             !std::filesystem::is_fifo(status)) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, " is ",
        std::filesystem::is_directory(status) ? "a folder" : "a device",
        "; it must be a file or a pipe"));
  }
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot open data file '", path,
                                            "': ", std::strerror(errno)));
  }
  const absl::Cleanup close_file = [&] { std::fclose(file); };
  std::vector<uint8_t> text;
  TRAINER_RETURN_IF_ERROR(ReadAll(file, source, max_bytes, &text));
  return text;
}

absl::StatusOr<std::vector<uint8_t>> ReadBible() {
  // One verse per line, unwrapped. The shell's code for a program that is not
  // there is 127.
  std::FILE* const pipe = popen(
      "command -v bible >/dev/null || exit 127; "
      "exec bible -f gen1:1-rev22:21 </dev/null",
      "re");
  if (pipe == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot start 'bible': ", std::strerror(errno)));
  }
  std::vector<uint8_t> text;
  const absl::Status status =
      ReadAll(pipe, "the output of 'bible'", kMaxTextBytes, &text);
  const int state = pclose(pipe);
  if (WIFEXITED(state) && WEXITSTATUS(state) == 127) {
    return absl::NotFoundError(
        "data 'kjv' needs the program 'bible'; install Debian's bible-kjv");
  }
  if (!status.ok()) return status;
  if (state == 0) return text;
  return absl::UnavailableError(
      absl::StrCat("'bible' failed with wait status ", state));
}

}  // namespace

Dataset::Dataset(std::vector<uint8_t> text) : text_(std::move(text)) {
  const size_t train_size = text_.size() - text_.size() / 10;
  train_ = std::span(text_).first(train_size);
  validation_ = std::span(text_).subspan(train_size);
}

absl::StatusOr<Dataset> LoadDataset(absl::string_view source, int64_t seq,
                                    int64_t max_bytes) {
  TRAINER_ASSIGN_OR_RETURN(
      std::vector<uint8_t> text,
      source == "kjv" ? ReadBible() : ReadFile(std::string(source), max_bytes));
  const int64_t least = 10 * (seq + 1);
  if (static_cast<int64_t>(text.size()) < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data '", source, "' has ", text.size(), " bytes; sequences of ", seq,
        " tokens and a tenth for validation need ", least));
  }
  return Dataset(std::move(text));
}

void Sampler::FillTraining(int64_t step, int64_t first, int64_t count,
                           uint8_t* inputs, uint8_t* targets) const {
  const std::span<const uint8_t> text = dataset_.train();
  const uint64_t starts = text.size() - seq_;
  // Steps get seeds and sequences get indices, so that no two (step, sequence)
  // pairs share a number.
  const uint64_t step_seed = RandomBits(seed_, kSequences, step);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t start =
        RandomBelow(starts, step_seed, kSequences, first + i);
    Copy(text, static_cast<int64_t>(start), i, inputs, targets);
  }
}

void Sampler::FillValidation(int64_t total, int64_t first, int64_t count,
                             uint8_t* inputs, uint8_t* targets) const {
  const std::span<const uint8_t> text = dataset_.validation();
  const int64_t last_start = static_cast<int64_t>(text.size()) - seq_ - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start =
        total == 1 ? 0 : (first + i) * last_start / (total - 1);
    Copy(text, start, i, inputs, targets);
  }
}

void Sampler::Copy(std::span<const uint8_t> text, int64_t start, int64_t row,
                   uint8_t* inputs, uint8_t* targets) const {
  std::copy_n(text.begin() + start, seq_, inputs + row * seq_);
  std::copy_n(text.begin() + start + 1, seq_, targets + row * seq_);
}

}  // namespace commsched::trainer
