#ifndef COMMSCHED_TEST_ENGINE_TOY_CHECKPOINT_H_
#define COMMSCHED_TEST_ENGINE_TOY_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commsched/checkpoint.h"
#include "test/checkpoint/temporary_folder.h"
#include "test/engine/model_handle.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {

struct SaverDelete {
  void operator()(commsched_engine_saver_t* s) const {
    commsched_engine_saver_destroy(s);
  }
};
using SaverHandle = std::unique_ptr<commsched_engine_saver_t, SaverDelete>;

struct CheckpointDelete {
  void operator()(commsched_engine_checkpoint_t* c) const {
    commsched_engine_checkpoint_close(c);
  }
};
using CheckpointHandle =
    std::unique_ptr<commsched_engine_checkpoint_t, CheckpointDelete>;

// A stretch of training of the toy model.
struct ToyStretch {
  ToyRun run;
  std::string load;  // From this folder, unless empty.
  uint32_t end = 0;  // After this step.
  std::string save;  // To this folder, unless empty, as `name`.
  std::string name = "run";
  uint32_t save_every = 0;  // 0: after the last step.
  bool overwrite = false;   // Checkpoints of other runs.
  bool whole = false;       // One file.
};

// Returns "" or the message of the first failure. `out_weights` is by rank, and
// may be null.
std::string TrainToy(const ToyStretch& stretch,
                     std::vector<std::vector<float>>* out_weights = nullptr);

// Makes a saver; "" or the message.
std::string CreateToySaver(ToyRank& toy, const std::string& folder,
                           const std::string& name, SaverHandle* out,
                           bool overwrite = false, bool whole = false);

std::string OpenToyCheckpoint(const std::string& folder, CheckpointHandle* out);

// A stretch of 3 steps of `run` that saves to `folder`; "" or the message.
std::string SaveToy(const std::string& folder, const ToyRun& run);

ToyRun ToyRunOf(int32_t ranks, uint32_t stage, uint64_t bucket_bytes = 16384);

// Every tensor of the checkpoint and both moments of it, verified, as the
// engine's internals read them. Empty, with a failed expectation, if that
// fails.
std::vector<float> ContentOf(const std::string& folder);

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& text);

struct Named {
  std::string name;
  std::vector<uint64_t> dims;
};

// An engine of one rank and one module with these parameters, built.
class SmallEngine {
 public:
  explicit SmallEngine(const std::vector<Named>& parameters);
  ~SmallEngine();
  SmallEngine(const SmallEngine&) = delete;
  SmallEngine& operator=(const SmallEngine&) = delete;

  commsched_engine_t* get() { return engine_; }
  // "" or the message.
  std::string CreateSaver(const char* folder, const char* run,
                          SaverHandle* out);

 private:
  commsched_world_t* world_ = nullptr;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_TOY_CHECKPOINT_H_
