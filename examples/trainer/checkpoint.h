#ifndef COMMSCHED_EXAMPLES_TRAINER_CHECKPOINT_H_
#define COMMSCHED_EXAMPLES_TRAINER_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "commsched/checkpoint.h"
#include "examples/trainer/data.h"
#include "examples/trainer/options.h"

namespace commsched::trainer {

struct CloseCheckpoint {
  void operator()(commsched_engine_checkpoint_t* checkpoint) const {
    commsched_engine_checkpoint_close(checkpoint);
  }
};
using CheckpointHandle =
    std::unique_ptr<commsched_engine_checkpoint_t, CloseCheckpoint>;

// What the trainer keeps with a checkpoint beside the engine's state. Random
// numbers are a function of seed and step (random.h, data.h), so these and the
// number of steps are the generator's state and the place in the data.
struct RunIdentity {
  std::string name;  // Of this run; random.
  int64_t seed = 0;
  std::string data_sha256;
};

RunIdentity IdentifyRun(const Options& options, const Dataset& dataset);

// Opens the checkpoint to go on from, and sets `out_step` to the number of
// steps that it has taken. Fails, naming folder, value and limit, if the run is
// of another seed or text, or has no step left.
absl::StatusOr<CheckpointHandle> OpenForResume(const Options& options,
                                               const RunIdentity& identity,
                                               int64_t* out_step);

// Writes the weights of the checkpoint in `folder` to one file.
absl::Status ExportWeights(const std::string& folder, const std::string& path);

// One rank's saver, and how long it held that rank's steps up.
//
// Thread-compatible: the rank's thread.
class RankSaver {
 public:
  // `engine` is built and outlives this.
  static absl::StatusOr<std::unique_ptr<RankSaver>> Create(
      const std::string& folder, const RunIdentity& identity,
      commsched_engine_t* engine);

  absl::Status Save();
  // Until it is on the disk.
  absl::Status Wait();

  struct Stall {
    double wait_s = 0;  // For the save before.
    double copy_s = 0;
  };
  const std::vector<Stall>& stalls() const { return stalls_; }  // By save.

 private:
  explicit RankSaver(const RunIdentity& identity) : identity_(identity) {}

  struct Destroy {
    void operator()(commsched_engine_saver_t* saver) const {
      commsched_engine_saver_destroy(saver);
    }
  };

  const RunIdentity identity_;
  std::unique_ptr<commsched_engine_saver_t, Destroy> saver_;
  std::vector<Stall> stalls_;
};

// The median over saves of what each held up longest, of any rank.
RankSaver::Stall SummarizeStalls(
    const std::vector<std::unique_ptr<RankSaver>>& savers);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_CHECKPOINT_H_
