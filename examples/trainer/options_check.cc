#include "examples/trainer/options_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/config.h"
#include "examples/trainer/model.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

// Times a place in the text that fits in 64 bits.
constexpr int64_t kMaxValidationWindows = int64_t{1} << 30;

absl::Status CheckRange(const char* flag, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s is %d; it must be %d to %d", flag, value, least, most));
}

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

absl::Status CheckNumbers(const Options& o) {
  TRAINER_RETURN_IF_ERROR(CheckRange("--sp", o.sp, 1, o.ranks));
  TRAINER_RETURN_IF_ERROR(CheckRange("--stop-after", o.stop_after, 0, o.steps));
  TRAINER_RETURN_IF_ERROR(CheckRange("--sharing", o.sharing, 0, o.ranks));
  if (o.ranks % o.sp != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--sp is %d; it must divide --ranks, %d", o.sp, o.ranks));
  }
  return CheckBatch(o);
}

absl::Status CheckPairs(const Options& o) {
  struct Rule {
    bool broken;
    std::string text;
  };
  const auto is = [](const char* flag, const auto& value, const char* rest) {
    return absl::StrCat(flag, " is ", value, "; ", rest);
  };
  const std::string stage =
      absl::StrCat("it goes with --zero 3 only, which is ", o.zero);
  const Rule rules[] = {
      {o.save_every > 0 && o.save_dir.empty(),
       is("--save-every", o.save_every, "it goes with --save")},
      {o.overwrite && o.save_dir.empty(), "--overwrite goes with --save"},
      {o.force && o.resume_dir.empty(), "--force goes with --resume"},
      {o.only_exports() && o.resume_dir.empty(),
       is("--export", absl::StrCat("'", o.export_path, "'"),
          "it goes with --save or --resume")},
      {o.offload_staging_bytes > 0 && o.offload_dir.empty(),
       is("--offload-staging-bytes", o.offload_staging_bytes,
          "it goes with --offload-optimizer")},
      {!o.offload_gradients_dir.empty() && o.zero < 2,
       is("--offload-gradients",
          absl::StrCat("'", o.offload_gradients_dir, "'"),
          absl::StrCat("it goes with --zero 2 or 3, which is ", o.zero)
              .c_str())},
      {o.max_live_bytes > 0 && o.zero != 3,
       is("--max-live-bytes", o.max_live_bytes, stage.c_str())},
      {o.persist_below > 0 && o.zero != 3,
       is("--persist-below", o.persist_below, stage.c_str())},
      {o.sp == 1 && !o.sp_dtype.empty(),
       is("--sp-dtype", o.sp_dtype, "it goes with --sp 2 or more, which is 1")},
      {o.link.bytes_per_s > 0 && !o.link_profile.empty(),
       absl::StrCat("--link and --link-profile '", o.link_profile,
                    "'; only one of them says what the links are")}};
  for (const Rule& rule : rules) {
    if (rule.broken) return absl::InvalidArgumentError(rule.text);
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
