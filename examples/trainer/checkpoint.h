#ifndef COMMSCHED_EXAMPLES_TRAINER_CHECKPOINT_H_
#define COMMSCHED_EXAMPLES_TRAINER_CHECKPOINT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "commsched/checkpoint.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/options.h"
#include "examples/trainer/run_identity.h"

namespace commsched::trainer {

using CheckpointHandle =
    Handle<commsched_engine_checkpoint_t, commsched_engine_checkpoint_close>;

// A checkpoint to go on from.
struct Resumed {
  CheckpointHandle checkpoint;
  int64_t step = 0;                  // Steps that it has taken.
  std::vector<std::string> remarks;  // What to tell the user.
};

// Opens the checkpoint of --resume. Fails, naming folder, value and limit, if
// it has no step left or, unless --force is given, if a setting of its run is
// not this run's: names the first. One that the checkpoint does not say is
// remarked, and so is what --force overrides.
absl::StatusOr<Resumed> OpenForResume(const Options& options,
                                      const RunIdentity& identity);

// Sees, before a run, that the export can be written where `options` say, if
// they say where. kUnavailable, naming the path.
absl::Status CheckExportPath(const Options& options);

// Writes the weights of the checkpoint in `folder` to the file or folder that
// `options` names for the export: a folder as transformers' from_pretrained
// takes it.
absl::Status ExportWeights(const std::string& folder, const Options& options);

// One rank's saver, and how long it held that rank's steps up.
//
// Thread-compatible: the rank's thread.
class RankSaver {
 public:
  // `engine` is built and outlives this, and so does `out_writes`: whether the
  // rank waits for the disk.
  static absl::StatusOr<std::unique_ptr<RankSaver>> Create(
      const Options& options, const RunIdentity& identity,
      commsched_engine_t* engine, std::atomic<bool>* out_writes);

  absl::Status Save();
  // Until it is on the disk.
  absl::Status Wait();

  struct Stall {
    double wait_s = 0;  // For the save before.
    double copy_s = 0;
  };
  const std::vector<Stall>& stalls() const { return stalls_; }  // By save.

 private:
  RankSaver(const RunIdentity& identity, std::atomic<bool>* out_writes)
      : identity_(identity), out_writes_(*out_writes) {}

  const RunIdentity identity_;
  std::atomic<bool>& out_writes_;
  Handle<commsched_engine_saver_t, commsched_engine_saver_destroy> saver_;
  std::vector<Stall> stalls_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_CHECKPOINT_H_
