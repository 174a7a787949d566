#include "examples/trainer/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/sha256.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

constexpr char kSeedKey[] = "trainer.seed";
constexpr char kDataKey[] = "trainer.data_sha256";
constexpr char kGeneratorKey[] = "trainer.generator";
// Of random.h: another one would make other numbers of the same seed.
constexpr char kGenerator[] = "splitmix64-counter/1";

absl::Status FromEngine(commsched_status_t code) {
  if (code == COMMSCHED_OK) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(code),
                      commsched_engine_last_error());
}

absl::StatusOr<CheckpointHandle> Open(const std::string& folder) {
  commsched_engine_checkpoint_t* checkpoint = nullptr;
  TRAINER_RETURN_IF_ERROR(FromEngine(
      commsched_engine_checkpoint_open(folder.c_str(), &checkpoint)));
  return CheckpointHandle(checkpoint);
}

absl::Status CheckEqual(const std::string& folder,
                        const commsched_engine_checkpoint_t* checkpoint,
                        const char* key, const std::string& mine) {
  const char* saved = commsched_engine_checkpoint_metadata(checkpoint, key);
  if (saved == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--resume: the checkpoint in '%s' has no '%s'; the "
                        "trainer did not save it",
                        folder, key));
  }
  if (mine == saved) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "--resume: '%s' of the checkpoint in '%s' is %s; this run has %s", key,
      folder, saved, mine));
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> passed =
      std::chrono::steady_clock::now() - begin;
  return passed.count();
}

}  // namespace

RunIdentity IdentifyRun(const Options& options, const Dataset& dataset) {
  RunIdentity identity;
  std::random_device random;
  identity.name = absl::StrFormat("%08x%08x", random(), random());
  identity.seed = options.seed;
  Sha256 digest;
  digest.Update(dataset.train().data(), dataset.train().size());
  digest.Update(dataset.validation().data(), dataset.validation().size());
  identity.data_sha256 = digest.HexDigest();
  return identity;
}

absl::StatusOr<CheckpointHandle> OpenForResume(const Options& options,
                                               const RunIdentity& identity,
                                               int64_t* out_step) {
  const std::string& folder = options.resume_dir;
  absl::StatusOr<CheckpointHandle> checkpoint = Open(folder);
  if (!checkpoint.ok()) return checkpoint.status();
  const commsched_engine_checkpoint_t* opened = checkpoint->get();
  TRAINER_RETURN_IF_ERROR(
      CheckEqual(folder, opened, kGeneratorKey, kGenerator));
  TRAINER_RETURN_IF_ERROR(
      CheckEqual(folder, opened, kSeedKey, absl::StrCat(identity.seed)));
  TRAINER_RETURN_IF_ERROR(
      CheckEqual(folder, opened, kDataKey, identity.data_sha256));
  commsched_engine_checkpoint_info_t info =
      commsched_engine_checkpoint_info_init();
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_checkpoint_get_info(opened, &info)));
  if (info.step >= static_cast<uint64_t>(options.end_step())) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "--resume: the checkpoint in '%s' has taken %d steps; this run ends "
        "after %d",
        folder, info.step, options.end_step()));
  }
  *out_step = static_cast<int64_t>(info.step);
  return checkpoint;
}

absl::Status ExportWeights(const std::string& folder, const std::string& path) {
  const absl::StatusOr<CheckpointHandle> checkpoint = Open(folder);
  if (!checkpoint.ok()) return checkpoint.status();
  return FromEngine(
      commsched_engine_checkpoint_export(checkpoint->get(), path.c_str()));
}

absl::StatusOr<std::unique_ptr<RankSaver>> RankSaver::Create(
    const std::string& folder, const RunIdentity& identity,
    commsched_engine_t* engine) {
  std::unique_ptr<RankSaver> result(new RankSaver(identity));
  commsched_engine_saver_desc_t desc = commsched_engine_saver_desc_init();
  desc.folder = folder.c_str();
  desc.run = identity.name.c_str();
  commsched_engine_saver_t* saver = nullptr;
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_saver_create(engine, &desc, &saver)));
  result->saver_.reset(saver);
  return result;
}

absl::Status RankSaver::Save() {
  const std::string seed = absl::StrCat(identity_.seed);
  const commsched_engine_metadata_t metadata[] = {
      {kGeneratorKey, kGenerator},
      {kSeedKey, seed.c_str()},
      {kDataKey, identity_.data_sha256.c_str()},
  };
  const auto begin = std::chrono::steady_clock::now();
  TRAINER_RETURN_IF_ERROR(Wait());
  const double wait_s = SecondsSince(begin);
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_saver_save(saver_.get(), metadata, 3)));
  stalls_.push_back({wait_s, SecondsSince(begin) - wait_s});
  return absl::OkStatus();
}

absl::Status RankSaver::Wait() {
  return FromEngine(commsched_engine_saver_wait(saver_.get()));
}

RankSaver::Stall SummarizeStalls(
    const std::vector<std::unique_ptr<RankSaver>>& savers) {
  const size_t count = savers[0]->stalls().size();
  if (count == 0) return {};
  std::vector<double> copies(count);
  std::vector<double> waits(count);
  for (const std::unique_ptr<RankSaver>& saver : savers) {
    for (size_t i = 0; i < count; ++i) {
      const RankSaver::Stall& stall = saver->stalls()[i];
      copies[i] = std::max(copies[i], stall.copy_s);
      waits[i] = std::max(waits[i], stall.wait_s);
    }
  }
  return {.wait_s = Median(std::move(waits)),
          .copy_s = Median(std::move(copies))};
}

}  // namespace commsched::trainer
