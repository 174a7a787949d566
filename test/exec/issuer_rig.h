// An issuer of one rank, without a session: its program, and fakes of all that
// it calls.
#ifndef COMMSCHED_TEST_EXEC_ISSUER_RIG_H_
#define COMMSCHED_TEST_EXEC_ISSUER_RIG_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "comm/backend_rank.h"
#include "exec/failure.h"
#include "exec/issuer.h"
#include "exec/late_bindings.h"
#include "exec/program.h"
#include "graph/graph.h"
#include "plan/options.h"
#include "test/exec/logged_device.h"
#include "test/exec/scripted_backend.h"
#include "test/support/fake_clock.h"

namespace commsched::test {

struct IssuerRigSpec {
  Graph graph;
  PlanOptions options = {};
  enum class Mode { kPolled, kInline, kEnqueued };
  Mode mode = Mode::kPolled;
  // Whether compute lanes are the calling thread; those of kInline always are.
  bool caller_lanes = false;
  bool by_caller = false;  // else manual
  int64_t launch_timeout_ns = 1'000'000'000;
  Recorder* recorder = nullptr;
};

// The defaults, but for one field.
template <typename T>
PlanOptions With(T PlanOptions::*field, std::type_identity_t<T> value) {
  PlanOptions options;
  options.*field = value;
  return options;
}

// "make_a" writes 4 floats, "sum_a" sums them over the group "dp"; so do
// "make_b" and "sum_b", and so on; in this order.
Graph Buckets(int num_buckets);

// Plans and flattens a graph for a rank 0 of groups of any size. What the
// compute ops do is the test's to say: Make().
//
// One thread.
class IssuerRig {
 public:
  explicit IssuerRig(const IssuerRigSpec& spec);

  // Made by the first call, so that a test may change the program before.
  Issuer& issuer();

  Program& program() { return *program_; }
  // Of op or launch `name`: its index in the program.
  uint32_t Node(const std::string& name) const;
  uint32_t Launch(const std::string& name) const;
  // Compute op `name` of `step` has done its work.
  void Make(const std::string& name, uint64_t step = 0);
  // The event of launch `name` has come to the step, as on a device.
  void EndOnDevice(const std::string& name, uint64_t step = 0);
  // Pumps until nothing gets on.
  void PumpAll();
  // What has been launched, as "sum_a@0 sum_b@0".
  std::string Launched();
  bool HasCompleted(const std::string& launch, uint64_t step = 0);
  // As float memory.
  float* Memory(const std::string& buffer);

  ScriptedBackend& backend() { return backend_; }
  LoggedDevice& device() { return device_; }
  // Of a communication lane. After issuer().
  Turn& turn(uint32_t lane) { return turns_[lane]; }
  FakeClock& clock() { return clock_; }
  Failure& failure() { return failure_; }
  LateBindings* late() { return late_.get(); }
  // What the communicators were aborted with.
  const std::vector<absl::Status>& aborts() const { return aborts_; }
  // Called when they are.
  std::function<void()> on_abort = [] {};

 private:
  static std::unique_ptr<BackendRank> OpenRank(ScriptedBackend* backend);
  void Flatten();
  void NameEvents();

  const IssuerRigSpec spec_;
  ScriptedBackend backend_;
  LoggedDevice device_;
  FakeClock clock_;
  Failure failure_;
  std::vector<absl::Status> aborts_;
  std::shared_ptr<const Plan> plan_;
  std::vector<std::vector<float>> memory_;  // by BufferId
  std::vector<char> arena_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<LateBindings> late_;
  std::vector<std::unique_ptr<Stream>> side_streams_;
  std::deque<Turn> turns_;  // of the lanes
  std::unique_ptr<BackendRank> rank_;
  std::unique_ptr<Issuer> issuer_;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_EXEC_ISSUER_RIG_H_
