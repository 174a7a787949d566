#ifndef COMMSCHED_EXAMPLES_TRAINER_RUN_IDENTITY_H_
#define COMMSCHED_EXAMPLES_TRAINER_RUN_IDENTITY_H_

#include <string>
#include <vector>

#include "examples/trainer/data.h"
#include "examples/trainer/options.h"

namespace commsched::trainer {

// One of the settings that decide what a run computes, as text.
struct Setting {
  // Whether a checkpoint says it.
  enum class Kind {
    kAlways,     // One that does not is not the trainer's.
    kSince,      // One that does not was made before it was kept.
    kSometimes,  // It means nothing without others.
  };
  std::string key;  // "trainer.seed"
  std::string value;
  Kind kind = Kind::kSince;
};

// What the trainer keeps with a checkpoint beside the engine's state. Random
// numbers are a function of seed and step (random.h, data.h), so the settings
// and the number of steps are the generator's state and the place in the data.
//
// What decides how the run is laid out, ranks, ZeRO stage, buckets, caps,
// offloading, is not among the settings: it may change at any time.
struct RunIdentity {
  // Key of the setting that has the model's sizes, as FormatConfig() says them.
  static constexpr char kConfigKey[] = "trainer.gpt_config";

  std::string name;  // Of this run; random.
  std::vector<Setting> settings;
};

RunIdentity IdentifyRun(const Options& options, const Dataset& dataset);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_RUN_IDENTITY_H_
