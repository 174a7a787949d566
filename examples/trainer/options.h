#ifndef COMMSCHED_EXAMPLES_TRAINER_OPTIONS_H_
#define COMMSCHED_EXAMPLES_TRAINER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "examples/trainer/config.h"
#include "examples/trainer/units.h"

namespace commsched::trainer {

// Of AdamW and SGD, whatever the model.
inline constexpr float kWeightDecay = 0.1f;
inline constexpr float kBeta1 = 0.9f;
inline constexpr float kBeta2 = 0.95f;
inline constexpr float kEpsilon = 1e-8f;
inline constexpr float kMomentum = 0.9f;

// What the command line asks for, checked, with the defaults of the model put
// in.
struct Options {
  // "inproc": ranks are threads; else the library's backend of ranks that are
  // processes.
  std::string backend = "inproc";
  // What goes wrong below, as the library's plugin "fault" reads it.
  std::vector<std::string> faults;
  int64_t ranks = 4;
  int64_t sp = 1;         // Ranks that share sequences.
  int64_t sp_chunks = 1;  // Of heads.
  bool sp_blocking = false;
  std::string sp_dtype = "fp32";  // Of what they exchange; `dtype` by default.
  int64_t zero = 2;
  std::string model = "nano";
  std::string data = "kjv";
  int64_t steps = 300;
  int64_t batch = 48;  // Sequences per step over all ranks.
  int64_t seq = 128;
  int64_t micro_batches = 1;
  bool recompute = false;  // Blocks' activations, within backward.
  double clip = 1;
  std::string optimizer = "adamw";  // Or "sgd", with momentum 0.9.
  // Each "fp32", "bf16" or "fp16".
  std::string dtype = "fp32";         // Of parameters and gradients.
  std::string reduce_dtype = "fp32";  // `dtype`'s by default.
  double loss_scale = 0;              // 0: none. The type's by default.
  double lr = 0;                      // The model's by default.
  int64_t seed = 1;
  uint64_t bucket_bytes = 0;          // The model's by default.
  std::string bucket_merge = "auto";  // Then on, if these are the model's.
  uint64_t cap_bytes = 0;             // 0: no cap.
  int64_t cap_launches = 0;           // 0: no cap.
  // 0: no merging; COMMSCHED_COALESCE_AUTO: by cost.
  uint64_t coalesce_bytes = UINT64_MAX;
  uint64_t arena_bytes = 0;       // 0: the engine's choice.
  uint64_t max_live_bytes = 0;    // 0: no limit.
  uint64_t persist_below = 0;     // 0: nothing stays.
  uint64_t accumulate_bytes = 0;  // 0: no limit.
  std::string offload_dir;        // Empty: the optimizer's state is memory.
  uint64_t offload_staging_bytes = 0;  // 0: two buckets.
  std::string offload_gradients_dir;   // Empty: reduced ones are memory.
  uint64_t edge_bytes = 0;  // 0: first and last bucket like the others.
  uint64_t partition_bytes = 0;
  std::string priority = "auto";  // "auto", "off" or "on".
  bool serial = false;
  bool deterministic = false;
  LinkSpeed link;            // bytes_per_s 0: no emulation.
  std::string link_profile;  // A file; empty: the environment's, or none.
  std::string trace_dir;     // Empty: none.
  std::string save_dir;      // Empty: no checkpoints.
  int64_t save_every = 0;    // 0: after the last step only.
  std::string resume_dir;    // Empty: from the start.
  bool overwrite = false;    // The checkpoint of another run in save_dir.
  bool force = false;        // To resume a run with other settings.
  std::string export_path;
  int64_t stop_after = 0;  // 0: --steps.
  int64_t eval_every = 0;  // 0: after the last step only.
  int64_t val_batches = 8;
  std::string log_path;    // Of a CSV file; empty: none.
  std::string flight_dir;  // Of flight records; empty: none.
  std::string observers;   // Names, separated by commas.
  std::string plugin;      // Loaded first; empty: none.
  int64_t sharing = 0;     // Ranks on this machine; 0: as the launcher says.
  int64_t timeout_s = 0;   // Of a launch. 0: the trainer's choice.
  bool allow_nan = false;
  bool explain = false;
  bool describe = false;
  bool blame = false;
  bool json = false;

  GptConfig config;  // Of `model`, with room for `seq`, and --kv-heads.

  bool has_processes() const { return backend != "inproc"; }
  // The run ends after this step; the learning rate goes by `steps`.
  int64_t end_step() const { return stop_after == 0 ? steps : stop_after; }
  // The weights of a checkpoint are wanted, and no training.
  bool only_exports() const { return !export_path.empty() && save_dir.empty(); }
  // --export names a folder, not a file.
  bool exports_folder() const {
    constexpr absl::string_view kFile = ".safetensors";
    return !export_path.empty() && !absl::EndsWith(export_path, kFile);
  }
  // Ranks that train on sequences of their own, or groups of such.
  int64_t data_ranks() const { return ranks / sp; }
  // Sequences per data rank and micro-batch.
  int64_t local_batch() const { return batch / (data_ranks() * micro_batches); }
};

enum class ParseOutcome {
  kRun,
  kHelp,   // Help, or the version, was printed to stdout.
  kUsage,  // The mistake, naming flag, value and limit, was printed to stderr.
  kFailed  // The job could not be joined; why was printed to stderr.
};

// Joins the job of processes that --backend connects, and returns how many
// ranks it has.
using JoinJob = std::function<absl::StatusOr<int64_t>(const Options& options)>;

// Where ranks are processes, `join` is called once the command line has been
// read, and before it is checked against the number of ranks. If it fails, the
// outcome is kFailed. Null: there are none such.
ParseOutcome ParseOptions(int argc, char** argv, Options* out_options,
                          const JoinJob& join = nullptr);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_OPTIONS_H_
