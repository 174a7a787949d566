#ifndef COMMSCHED_TEST_ENGINE_TOY_MODEL_H_
#define COMMSCHED_TEST_ENGINE_TOY_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/test_pools.h"

namespace commsched::engine {

// The modules of a toy of two blocks, in the order of registration.
enum Modules : uint32_t { kEmbed, kBlock0, kBlock1, kHead };

// A model without a forward: four modules of parameters with awkward sizes, the
// first tied to the last, whose gradients are a function of value, rank, step,
// micro-batch and position. What the engine makes of it can be computed by a
// plain loop.

struct ToyParameter {
  const char* name;
  std::vector<uint64_t> dims;
  uint32_t module;

  uint64_t count() const;
};

struct ToyModule {
  const char* name;
  std::vector<uint32_t> used;  // Owned, then tied.
};

const std::vector<ToyParameter>& ToyParameters();
const std::vector<ToyModule>& ToyModules();
float ToyInitialValue(uint32_t parameter, uint64_t index);

// Where something is added to a gradient.
struct ToyPlace {
  int32_t rank;
  uint32_t step;
  uint32_t micro_batch;
  uint32_t module;
  uint32_t parameter;
};

float ToyGradient(const ToyPlace& place, uint64_t index, float value);

inline constexpr float kToyLearningRate = 0.01f;

// A pass of a module on a rank.
struct ToyPass {
  int32_t rank;
  uint32_t step;
  uint32_t micro_batch;
  uint32_t module;
};

// What a step begins next.
struct ToyBegin {
  ToyPass pass;
  bool backward = false;
  bool again = false;  // A forward within backward.
};

enum class ToyCancel { kNot, kBefore, kWithin };

// Devices on which ranks compute, each with a stream.
class ToyDevices {
 public:
  // Bytes that a kernel reads, and writes if it says so.
  struct Touched {
    const void* address = nullptr;
    uint64_t bytes = 0;
    bool writes = false;
  };

  virtual ~ToyDevices() = default;
  // Which `desc` of a world asks for.
  virtual void Describe(commsched_world_desc_t* desc) = 0;
  virtual commsched_stream_t stream(int32_t rank) = 0;
  // Enqueues, as a kernel.
  virtual void Run(int32_t rank, const std::vector<Touched>& touched,
                   std::function<void()> body) = 0;
  // Where such a body finds what is at `address`.
  virtual void* Peek(const void* address) = 0;
};

struct ToyRun {
  int32_t ranks = 2;
  uint32_t steps = 3;
  commsched_engine_desc_t engine = commsched_engine_desc_init();
  // Without what `engine` and the fields below say, too.
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  commsched_optimizer_table_t optimizer = commsched_adamw(0.9f, 0.95f, 1e-8f);
  commsched_plan_options_t plan = commsched_plan_options_init();
  uint32_t unused_parameter = ~0u;  // To which nobody adds a gradient.
  std::function<bool(const ToyPass&)> skips;  // Empty: no module is left out.
  // The order of forwards of a step; empty: that of registration. Recorded,
  // unless it is empty; again whenever it changes.
  std::function<std::vector<uint32_t>(uint32_t step)> order;
  std::shared_ptr<TestPools> pools;  // Null: the optimizer's is memory.
  std::shared_ptr<TestPools> gradient_pools;  // The same of gradients.
  std::shared_ptr<ToyDevices> devices;  // Null: ranks compute on the host.

  // Says more of a parameter; empty: all else is at its default.
  std::function<void(uint32_t parameter, commsched_parameter_desc_t* desc)>
      describe;
  // Updates a step; empty: with kToyLearningRate. "" or a message.
  std::function<std::string(commsched_engine_t*)> update;
  // Called before each forward and backward of a step; empty: nothing is.
  std::function<void(commsched_engine_t*, const ToyBegin& next)> before_begin;

  ToyRun() {
    options.zero_stage = 2;
    options.bucket_bytes = 16384;
    engine.weight_decay = 0.1f;
    engine.clip_norm = 1;
    plan.deterministic = 1;
  }
  bool has_sgd() const { return std::string(optimizer.name) == "sgd"; }
  uint32_t micro_batches() const {
    return options.micro_batches == 0 ? 1 : options.micro_batches;
  }
  // How many micro-batches of a step come; empty: all.
  std::function<uint32_t(int32_t rank, uint32_t step)> num_micro_batches;
  // Whose backward does not come, though its forward does.
  std::function<bool(const ToyPass&)> skips_backward;
  // Whether a rank cancels the step before a begin, or within that pass, when
  // it has added gradients.
  std::function<ToyCancel(const ToyBegin&)> cancels;
  // Of which parameters a backward says that the gradient is ready. On the host
  // only.
  std::function<bool(const ToyPass&, uint32_t parameter)> ready;
  // To which gradients a backward adds nothing; it says so where
  // `absent_gradients` is set. On the host only.
  std::function<bool(const ToyPass&, uint32_t parameter)> absent;
  commsched_cancel_scope_t cancel_scope = COMMSCHED_CANCEL_LOCAL;
  // The passes of a step, if not those by default. On the host only.
  std::vector<commsched_pass_t> passes;
  // First and last modules of what is recomputed.
  std::vector<std::pair<uint32_t, uint32_t>> recomputed;

  std::vector<uint32_t> Order(uint32_t step) const;
  // In a forward of modules in `order`: where the segment begins that is over
  // at `end`, or `end` - 1 for a module that is not recomputed.
  size_t SegmentBegin(const std::vector<uint32_t>& order, size_t end) const;
  bool Recomputes(uint32_t module) const;
  void BeforeBegin(commsched_engine_t* with, const ToyBegin& next) const {
    if (before_begin != nullptr) before_begin(with, next);
  }
  bool SkipsBackward(const ToyPass& pass) const {
    return Skips(pass) || (skips_backward != nullptr && skips_backward(pass));
  }
  ToyCancel Cancels(const ToyBegin& next) const {
    return cancels == nullptr ? ToyCancel::kNot : cancels(next);
  }
  bool IsAbsent(const ToyPass& pass, uint32_t parameter) const {
    return absent != nullptr && absent(pass, parameter);
  }
  bool Skips(const ToyPass& pass) const {
    return skips != nullptr && skips(pass);
  }
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_TOY_MODEL_H_
