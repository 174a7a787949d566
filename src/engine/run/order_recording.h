#ifndef COMMSCHED_SRC_ENGINE_RUN_ORDER_RECORDING_H_
#define COMMSCHED_SRC_ENGINE_RUN_ORDER_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/status.h"
#include "commsched/recording.h"
#include "engine/model/model.h"
#include "engine/model/passes.h"
#include "engine/state/memory.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"

namespace commsched::engine {

// Gathers the buckets of one module after the other in stage 3, in the order in
// which the caller begins them, for a forward that has no plan yet. Each rank
// shows the others what it is about to gather: if they begin different modules,
// they get an error that names both (docs/recording.md).
//
// There is memory for the module that needs most.
//
// Thread-compatible, but for Abort().
class OrderRecording {
 public:
  struct Spec {
    commsched_context_t* context = nullptr;
    commsched_group_t* group = nullptr;
    int64_t launch_timeout_ns = 0;
    StepSpec step;
    const Memory* memory = nullptr;  // Outlives the recording.
    const Kernels* kernels = nullptr;
    std::vector<std::byte*>
        shards;  // By bucket, this rank's; null: not gathered.
  };

  // Local. Fails as the recording functions do, like all the rest.
  static Status Create(const Spec& spec, const Layout& layout,
                       std::unique_ptr<OrderRecording>* out_recording);
  OrderRecording(const OrderRecording&) = delete;
  OrderRecording& operator=(const OrderRecording&) = delete;

  Status Begin();
  // Where the buckets of `module` are whole until the next call; null for those
  // that always are.
  Status Gather(uint32_t module, const std::vector<std::byte*>** out_addresses);
  // Waits for all ranks.
  Status End();
  Status status() const;
  void Abort(const char* reason);  // From any thread.

 private:
  struct Destroy {
    void operator()(commsched_recording_t* recording) const {
      commsched_recording_destroy(recording);
    }
  };
  struct ModuleGathers {
    std::vector<commsched_op_id_t> ops;
    std::vector<std::byte*> addresses;
  };

  OrderRecording() = default;
  Status DeclareEnd();
  Status Declare(const Spec& spec, const Layout& layout);
  Status AddBuffer(const std::string& name, std::byte* address, uint64_t bytes,
                   commsched_buffer_id_t* out_buffer);

  Bytes memory_;  // Outlives the recording, in which all are bytes.
  std::vector<ModuleGathers> modules_;
  commsched_op_id_t end_ = kNoId;
  std::unique_ptr<commsched_recording_t, Destroy> recording_;
};

// The order of modules, taken from the caller's first forward. Only a forward
// is needed: backward runs in reverse. It is over with the first backward, of
// the module that ran last, or with the evaluation. Where the last modules are
// recomputed, their forwards run again before that.
//
// A pure automaton: it runs nothing.
//
// Thread-compatible.
class OrderRecorder {
 public:
  // `model` outlives it.
  OrderRecorder(const Model* model, bool may_skip)
      : model_(*model), may_skip_(may_skip) {}

  // Whether the order of `model` can be recorded.
  static Status Check(const Model& model);

  void Begin(bool evaluating);
  bool evaluating() const { return evaluating_; }

  // Whether `call` is part of what is recorded, if it comes in time.
  static bool IsRecorded(const PassCall& call) {
    return call.micro_batch == 0 && (call.kind == PassKind::kForward ||
                                     call.kind == PassKind::kRecompute);
  }
  bool CanBegin(const PassCall& call) const;
  void BeginPass(const PassCall& call);
  // The pass that has begun.
  PassCall pass() const;
  // Whether the forward is over and the step goes on with `call`: a backward of
  // the module that ran last or, if none ran, whatever there may be then.
  bool EndsWith(const PassCall& call) const;
  std::string Expected() const;

  // The recorded order. A module that was left out comes where its registration
  // has it: behind the one registered before it.
  Status FindSequence(Sequence* out_sequence,
                      std::vector<uint8_t>* out_left_out) const;
  // What of `planned` has not begun, in its order; nothing, once forwards have
  // run again.
  Sequence MissingOf(const Sequence& planned) const;
  // Forwards have run again.
  bool has_again() const { return num_again_ > 0; }

 private:
  size_t SegmentAtEnd() const;
  bool RunsAgain() const { return num_again_ < SegmentAtEnd(); }
  uint32_t AgainAt(size_t index) const {
    return recorded_[recorded_.size() - SegmentAtEnd() + index];
  }

  const Model& model_;
  const bool may_skip_;
  bool evaluating_ = false;
  Sequence recorded_;
  size_t num_again_ = 0;  // Of its last modules, those that have run again.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_ORDER_RECORDING_H_
