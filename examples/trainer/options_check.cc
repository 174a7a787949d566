#include "examples/trainer/options_check.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/hugging_face.h"
#include "examples/trainer/model.h"

namespace commsched::trainer {
namespace {

constexpr int64_t kMaxRanks = 4096;
constexpr int64_t kMaxSteps = 1'000'000'000;
// Times a place in the text that fits in 64 bits.
constexpr int64_t kMaxValidationWindows = int64_t{1} << 30;
constexpr int64_t kMaxTimeoutS = 1'000'000;

absl::Status CheckBatch(const Options& o) {
  const int64_t parts = o.data_ranks() * o.micro_batches;
  const char* ranks = o.sp == 1 ? "--ranks" : "--ranks / --sp";
  if (o.batch % parts != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--batch is %d; it must be a multiple of %s x --micro-batches, %d x "
        "%d = %d, so that all ranks get the same number of sequences",
        o.batch, ranks, o.data_ranks(), o.micro_batches, parts));
  }
  if (o.local_batch() > Gpt::kMaxBatch) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--batch is %d; it must be at most %d x %s x --micro-batches, %d",
        o.batch, Gpt::kMaxBatch, ranks, Gpt::kMaxBatch * parts));
  }
  return CheckRange("--val-batches", o.val_batches, 1,
                    kMaxValidationWindows / o.batch);
}

}  // namespace

absl::Status CheckRange(const char* flag, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s is %d; it must be %d to %d", flag, value, least, most));
}

absl::Status CheckNumber(const char* flag, double value) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (value == 0 || (value >= kLeast && value <= kMost)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g; it must be 0 or more: 0, or %g to %g", flag,
                      value, kLeast, kMost));
}

absl::Status CheckRanges(const Options& o) {
  for (const absl::Status& status : {
           CheckRange("--ranks", o.ranks, 1, kMaxRanks),
           CheckRange("--sp", o.sp, 1, o.ranks),
           CheckRange("--zero", o.zero, 0, 3),
           CheckRange("--steps", o.steps, 1, kMaxSteps),
           CheckRange("--batch", o.batch, 1, 1 << 20),
           CheckRange("--seq", o.seq, 1, 1 << 16),
           CheckRange("--micro-batches", o.micro_batches, 1, 1 << 16),
           CheckRange("--cap-launches", o.cap_launches, 0, 1 << 20),
           CheckRange("--eval-every", o.eval_every, 0, kMaxSteps),
           CheckRange("--save-every", o.save_every, 0, kMaxSteps),
           CheckRange("--stop-after", o.stop_after, 0, o.steps),
           CheckRange("--seed", o.seed, 0, INT64_MAX),
           CheckRange("--sharing", o.sharing, 0, o.ranks),
           CheckRange("--timeout", o.timeout_s, 0, kMaxTimeoutS),
           CheckNumber("--clip", o.clip),
       }) {
    if (!status.ok()) return status;
  }
  if (o.ranks % o.sp != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--sp is %d; it must divide --ranks, %d", o.sp, o.ranks));
  }
  return CheckBatch(o);
}

absl::Status CheckFolders(const Options& o) {
  if (o.save_every > 0 && o.save_dir.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--save-every is %d; it goes with --save", o.save_every));
  }
  if (o.overwrite && o.save_dir.empty()) {
    return absl::InvalidArgumentError("--overwrite goes with --save");
  }
  if (o.force && o.resume_dir.empty()) {
    return absl::InvalidArgumentError("--force goes with --resume");
  }
  if (o.only_exports() && o.resume_dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--export is '", o.export_path, "'; it goes with --save or --resume"));
  }
  return absl::OkStatus();
}

absl::Status CheckExport(const Options& o) {
  if (!o.exports_folder() || o.only_exports()) return absl::OkStatus();
  const absl::Status status = HuggingFaceConfig(o.config).status();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrFormat(
      "--export is '%s', a folder with a config.json, but %s; name a "
      ".safetensors file",
      o.export_path, status.message()));
}

}  // namespace commsched::trainer
