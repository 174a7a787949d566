// Turns the framework's calls into due launches.
#ifndef COMMSCHED_SRC_EXEC_DISPATCHER_H_
#define COMMSCHED_SRC_EXEC_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "device/device.h"
#include "exec/failure.h"
#include "exec/issuer.h"
#include "exec/late_bindings.h"
#include "exec/launch_cursor.h"
#include "exec/program.h"
#include "exec/replays.h"
#include "exec/step_instruments.h"
#include "trace/recorder.h"

namespace commsched {

// What says that a device is through with a step's work on a compute lane.
struct LaneEnd {
  Stream* stream = nullptr;
  Event* event = nullptr;
};

struct DispatcherSpec {
  const Program* program = nullptr;  // all outlive the dispatcher
  Issuer* issuer = nullptr;
  Failure* failure = nullptr;
  StepInstruments instruments;
  LateBindings* late = nullptr;    // null if nothing is late-bound
  bool manual = false;             // nothing may block
  std::vector<Stream*> lanes;      // by compute lane
  std::vector<LaneEnd> lane_ends;  // of those of a device
  Replays* replays = nullptr;      // null if no step is a launch of a graph
};

// The host's side of a step: `before` and `after` of compute nodes, in any
// order that the dependencies allow, from any number of threads; or Run(),
// which replays the planned order from one thread.
//
// A launch is due once every compute node it depends on has had its `after`,
// and every launch before it is due: the due head moves in key order only (I1).
// There is one issue token: of the threads whose `after` completes something,
// one moves the head for all.
//
// Before, After: any thread. StepBegin, StepEnd, ReplayBegin, ReplayEnd,
// AwaitReplay, Run: one thread, with no other call running.
class Dispatcher {
 public:
  explicit Dispatcher(DispatcherSpec spec);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  absl::Status StepBegin();
  absl::Status StepEnd();
  // `node`: index in Program::nodes.
  absl::Status Before(uint32_t node, Stream* stream);
  // `late`: the node's late-bound buffers in this step; read during the call.
  // If manual, kUnavailable where it would have to wait: then again later.
  absl::Status After(uint32_t node, Stream* stream,
                     absl::Span<const LateBinding> late = {});
  // Opens one gate of `launch`, which is not due before all are open. Within a
  // step, LaunchProgram::gates times per step at most.
  void Submit(uint32_t launch) {
    if (CountDown(launch)) MoveHead(0);
  }

  using Compute = absl::Status (*)(void* user, OpId op, Stream* stream);
  absl::Status Run(Compute compute, void* user, uint64_t num_steps);

  // In place of StepBegin, Before, After and StepEnd, of a step that is a
  // launch of a graph: the caller launches it on `stream` between the two. Only
  // of a program that is enqueued.
  absl::Status ReplayBegin(Stream* stream);
  absl::Status ReplayEnd();
  // Blocks until the latest step is complete, if it was a launch of a graph.
  // Between steps.
  void AwaitReplay() {
    if (replays_ != nullptr) replays_->Await(steps());
  }

  bool in_step() const { return in_step_ || in_replay_; }
  // Steps that have ended. Any thread.
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  // The step as the program counts it: for messages and records.
  uint64_t named_step() const { return program_.first_step + steps(); }
  // An op that has been begun and not ended, for who asks.
  struct OpAtWork {
    uint32_t node = 0;
    // Of its `before`, which waits; 0 and null: it has returned.
    int64_t since_ns = 0;
    const ProgramWait* wait = nullptr;
  };
  // Those of the current step. Of Run(), those that wait. Any thread.
  std::vector<OpAtWork> OpsAtWork() const;
  // Steps in which `node` has had its `before`. Any thread.
  uint64_t BeforeGenerations(uint32_t node) const {
    return (state_[node].load(std::memory_order_acquire) + 1) / 2;
  }
  // Steps in which `node` has had its `after`. Any thread.
  uint64_t AfterGenerations(uint32_t node) const {
    return state_[node].load(std::memory_order_acquire) / 2;
  }

 private:
  // A node's state counts up through the steps: 2g - 1 once `before` of
  // generation g (step g - 1) has been accepted, 2g once `after` has.
  static constexpr uint64_t Begun(uint64_t generation) {
    return 2 * generation - 1;
  }
  static constexpr uint64_t Done(uint64_t generation) { return 2 * generation; }

  uint64_t generation() const { return steps() + 1; }
  // For the trace: a step has begun.
  void NoteBegun();
  // For NVIDIA's tools: the work of `node` lies between the two.
  void BeginRange(uint32_t node) {
    if (ABSL_PREDICT_FALSE(ranges_ != nullptr)) ranges_->OpBegun(node);
  }
  void EndRange(uint32_t node) {
    if (ABSL_PREDICT_FALSE(ranges_ != nullptr)) ranges_->OpEnded(node);
  }
  absl::Status BeginOnDevice();
  absl::Status AwaitRoom();
  void EndStep();
  // The checks of a call. CallError() says what is wrong: out of line, so that
  // the fast path stays small.
  absl::Status CheckCall(uint32_t node, const Stream* stream,
                         const char* call) const {
    if (ABSL_PREDICT_TRUE(!failure_.failed() && in_step_ &&
                          stream == lanes_[program_.nodes[node].lane])) {
      return absl::OkStatus();
    }
    return CallError(node, call);
  }
  absl::Status CallError(uint32_t node, const char* call) const;
  absl::Status CheckDependencies(const NodeProgram& node) const;
  absl::Status CheckVersions(const NodeProgram& node) const;
  absl::Status StaleRead(const NodeProgram& node, const VersionedRead& read,
                         uint64_t version) const;
  absl::Status CheckProducersOfNeeded(const NodeProgram& node) const;
  absl::Status MissingAfter(const NodeProgram& node, uint32_t missing) const;
  // `now_ns`, for the trace: the current time if the caller has just read it,
  // else 0: where two records touch, they share one. Returns that of when the
  // waits were met, if traced.
  void Wait(const NodeProgram& node, Stream* stream, Event* event,
            uint64_t generation);
  void WaitOnCaller(const NodeProgram& node, Event* event, uint64_t generation);
  int64_t EnqueueWaits(const NodeProgram& node, Stream* stream,
                       uint64_t generation_now, int64_t now_ns);
  absl::Status CheckLate(uint32_t node,
                         absl::Span<const LateBinding> late) const;
  void CountDown(const NodeProgram& node, int64_t now_ns);
  // False: another thread has moved the node's state on meanwhile.
  bool MoveState(uint32_t node, uint64_t from, uint64_t to) {
    if (one_thread_) {
      state_[node].store(to, std::memory_order_release);
      return true;
    }
    return state_[node].compare_exchange_strong(from, to,
                                                std::memory_order_acq_rel);
  }
  // Whether that was the last that `launch` waited for. Acquire-release: the
  // thread that moves the head sees what every producer did before its `after`.
  bool CountDown(uint32_t launch) {
    std::atomic<uint32_t>& missing = missing_[launch];
    const uint32_t left = missing.load(std::memory_order_acquire) - 1;
    if (one_thread_ || left == 0) {  // nobody else has to count
      missing.store(left, std::memory_order_release);
      return left == 0;
    }
    return missing.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  // Producers and gates.
  uint32_t Awaited(uint32_t launch) const {
    return program_.launches[launch].producers.count +
           program_.launches[launch].gates;
  }
  void MoveHead(int64_t now_ns);
  void AdvanceHead(int64_t now_ns);
  // Returns the current time; 0 if what follows may take long.
  int64_t RecordCompute(const NodeProgram& node, int64_t begin);
  void RecordSpan(RecordKind kind, const NodeProgram& node, int64_t begin,
                  int64_t end);
  void AddRecord(const Record& record) {
    if (ABSL_PREDICT_TRUE(std::this_thread::get_id() == stepper_)) {
      writer_.Add(record);
    } else {
      recorder_->Add(record);
    }
  }
  absl::Status ReplayStep(Compute compute, void* user);

  // Constant after construction.
  const Program& program_;
  Issuer& issuer_;
  Failure& failure_;
  Recorder* const recorder_;
  FlightRecord* const flight_;
  NvtxRanges* const ranges_;
  LateBindings* const late_;
  const bool manual_;
  const Clock& clock_;
  const std::vector<Stream*> lanes_;
  const std::vector<LaneEnd> lane_ends_;
  Replays* const replays_;
  const uint32_t launches_per_step_;

  // Changed by what begins and ends steps only. `steps_` is read as a statistic
  // by other threads as well.
  bool in_step_ = false;
  bool in_replay_ = false;
  std::atomic<uint64_t> steps_{0};
  std::thread::id stepper_;  // if traced: who has begun the step, and ...
  Recorder::Writer writer_;  // ... may write here

  // Launches with gates are driven by one thread: then nothing here needs to be
  // atomic. Constant after construction.
  bool one_thread_ = false;

  std::vector<std::atomic<uint64_t>> state_;    // by node
  std::vector<std::atomic<uint32_t>> missing_;  // by launch: producers to come
  std::vector<int64_t> begun_;  // by node, if traced: when its waits were met
  // By node: since when its `before` waits on the calling thread; 0: it does
  // not. Only told, so relaxed.
  std::vector<std::atomic<int64_t>> waits_since_ns_;

  // Requests to move the head; who takes it from 0 holds the token.
  std::atomic<uint32_t> head_requests_{0};
  LaunchCursor head_;  // owned by the token holder: launches due
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_DISPATCHER_H_
