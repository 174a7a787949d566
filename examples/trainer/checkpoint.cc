#include "examples/trainer/checkpoint.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/trainer/config.h"
#include "examples/trainer/output_paths.h"
#include "examples/trainer/units.h"

namespace commsched::trainer {
namespace {

absl::StatusOr<CheckpointHandle> Open(const std::string& folder) {
  CheckpointHandle checkpoint;
  TRAINER_CALL(
      commsched_engine_checkpoint_open(folder.c_str(), Out(checkpoint)));
  return checkpoint;
}

// Compares the settings of the run with the checkpoint's.
absl::Status CompareSettings(const Options& options,
                             const RunIdentity& identity, Resumed* resumed) {
  const std::string& folder = options.resume_dir;
  std::vector<std::string> unsaid;  // By the checkpoint.
  for (const auto& [key, value, kind] : identity.settings) {
    const char* const saved = commsched_engine_checkpoint_metadata(
        resumed->checkpoint.get(), key.c_str());
    std::string difference;
    if (saved != nullptr && value != saved) {
      difference = absl::StrFormat(
          "--resume: '%s' of the checkpoint in '%s' is %s; this run has %s",
          key, folder, saved, value);
    } else if (saved == nullptr && kind == Setting::Kind::kAlways) {
      difference = absl::StrFormat(
          "--resume: the checkpoint in '%s' has no '%s'; the trainer did not "
          "save it",
          folder, key);
    } else if (saved == nullptr && kind == Setting::Kind::kSince) {
      unsaid.push_back(key);
    }
    if (difference.empty()) continue;
    if (!options.force) {
      return absl::InvalidArgumentError(
          absl::StrCat(difference, "; --force goes on all the same"));
    }
    resumed->remarks.push_back(
        absl::StrCat(difference, "; goes on, as --force says"));
  }
  if (!unsaid.empty()) {
    resumed->remarks.push_back(absl::StrFormat(
        "--resume: the checkpoint in '%s' is of an older version, which did "
        "not keep %s: not compared",
        folder, absl::StrJoin(unsaid, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ConfigJsonOf(
    const std::string& folder,
    const commsched_engine_checkpoint_t* checkpoint) {
  const char* saved =
      commsched_engine_checkpoint_metadata(checkpoint, RunIdentity::kConfigKey);
  if (saved == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--export: the checkpoint in '%s' has no '%s', so that no config.json "
        "can be written; export to a .safetensors file",
        folder, RunIdentity::kConfigKey));
  }
  TRAINER_ASSIGN_OR_RETURN(const GptConfig config, ParseConfig(saved));
  return HuggingFaceConfig(config);
}

}  // namespace

absl::StatusOr<Resumed> OpenForResume(const Options& options,
                                      const RunIdentity& identity) {
  const std::string& folder = options.resume_dir;
  Resumed resumed;
  TRAINER_ASSIGN_OR_RETURN(resumed.checkpoint, Open(folder));
  TRAINER_RETURN_IF_ERROR(CompareSettings(options, identity, &resumed));
  TRAINER_ASSIGN_OR_RETURN(
      const commsched_engine_checkpoint_info_t info,
      Filled(commsched_engine_checkpoint_info_init(),
             commsched_engine_checkpoint_get_info, resumed.checkpoint.get()));
  if (info.step >= static_cast<uint64_t>(options.end_step())) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "--resume: the checkpoint in '%s' has taken %d steps; this run ends "
        "after %d",
        folder, info.step, options.end_step()));
  }
  resumed.step = static_cast<int64_t>(info.step);
  return resumed;
}

absl::Status CheckExportPath(const Options& options) {
  if (options.export_path.empty()) return absl::OkStatus();
  return options.exports_folder() ? CheckFolder("--export", options.export_path)
                                  : CheckFile("--export", options.export_path);
}

absl::Status ExportWeights(const std::string& folder, const Options& options) {
  const std::string& path = options.export_path;
  TRAINER_ASSIGN_OR_RETURN(const CheckpointHandle checkpoint, Open(folder));
  if (!options.exports_folder()) {
    TRAINER_RETURN_IF_ERROR(CheckExportPath(options));
    return FromC(
        commsched_engine_checkpoint_export(checkpoint.get(), path.c_str()));
  }
  TRAINER_ASSIGN_OR_RETURN(const std::string config,
                           ConfigJsonOf(folder, checkpoint.get()));
  TRAINER_RETURN_IF_ERROR(CheckExportPath(options));
  const std::string weights = absl::StrCat(path, "/", kHuggingFaceWeights);
  TRAINER_CALL(
      commsched_engine_checkpoint_export(checkpoint.get(), weights.c_str()));
  return WriteWholeFile(absl::StrCat(path, "/", kHuggingFaceConfig), config);
}

absl::StatusOr<std::unique_ptr<RankSaver>> RankSaver::Create(
    const Options& options, const RunIdentity& identity,
    commsched_engine_t* engine, std::atomic<bool>* out_writes) {
  std::unique_ptr<RankSaver> result(new RankSaver(identity, out_writes));
  commsched_engine_saver_desc_t desc = commsched_engine_saver_desc_init();
  desc.folder = options.save_dir.c_str();
  desc.run = identity.name.c_str();
  desc.overwrite = options.overwrite ? 1 : 0;
  const absl::Status created =
      FromC(commsched_engine_saver_create(engine, &desc, Out(result->saver_)));
  if (absl::IsAlreadyExists(created)) {
    const bool unreadable =
        absl::StrContains(created.message(), "cannot be read");
    return absl::AlreadyExistsError(absl::StrCat(
        created.message(), unreadable ? " (--overwrite replaces it)"
                                      : " (--resume goes on from it, "
                                        "--overwrite replaces it)"));
  }
  TRAINER_RETURN_IF_ERROR(created);
  return result;
}

absl::Status RankSaver::Save() {
  std::vector<commsched_engine_metadata_t> metadata;
  for (const Setting& setting : identity_.settings) {
    metadata.push_back({setting.key.c_str(), setting.value.c_str()});
  }
  const auto begin = std::chrono::steady_clock::now();
  TRAINER_RETURN_IF_ERROR(Wait());
  const double wait_s = SecondsSince(begin);
  TRAINER_CALL(commsched_engine_saver_save(
      saver_.get(), metadata.data(), static_cast<uint32_t>(metadata.size())));
  stalls_.push_back({wait_s, SecondsSince(begin) - wait_s});
  return absl::OkStatus();
}

absl::Status RankSaver::Wait() {
  out_writes_.store(true);
  const absl::Status status = FromC(commsched_engine_saver_wait(saver_.get()));
  out_writes_.store(false);
  return status;
}

}  // namespace commsched::trainer
