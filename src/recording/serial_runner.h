// Runs single collectives at once: what a recording does before it has a plan.
#ifndef COMMSCHED_SRC_RECORDING_SERIAL_RUNNER_H_
#define COMMSCHED_SRC_RECORDING_SERIAL_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/device_lanes.h"
#include "comm/plugin/table_support.h"
#include "device/device.h"
#include "exec/late_bindings.h"
#include "exec/program.h"
#include "graph/graph.h"
#include "plan/options.h"
#include "session/communicators.h"
#include "session/session_spec.h"

namespace commsched {

struct SerialRunnerSpec {
  std::shared_ptr<World> world;
  int world_rank = 0;
  uint64_t instance = 0;  // a session number
  std::vector<GroupSpec> groups;
  const Graph* ops = nullptr;  // outlives the runner; may grow
  const std::vector<void*>* addresses = nullptr;  // by BufferId; outlives it
  bool deterministic = false;
  int64_t launch_timeout_ns = 0;
};

// Runs collectives one after the other on the calling thread, each to its end.
// Before each, the members show each other what they are about to run, where
// ranks meet, so that those that do different things get an error rather than
// each other's data. On a device they go out on a lane of it.
//
// One thread; Abort() any.
class SerialRunner {
 public:
  explicit SerialRunner(SerialRunnerSpec spec);
  // Nothing may be in flight on any rank, unless a Run() failed here.
  ~SerialRunner();
  SerialRunner(const SerialRunner&) = delete;
  SerialRunner& operator=(const SerialRunner&) = delete;

  // Makes the communicators; collective.
  absl::Status Connect();

  // Whether Run() can use `late`, what the submission binds. Local.
  absl::Status CheckBound(OpId op, absl::Span<const LateBinding> late);

  // Runs collective `op` of step `step`, with `late`, which CheckBound() has
  // accepted. A failure breaks the communicators on all ranks.
  // kFailedPrecondition, naming both, if another member runs something else.
  absl::Status Run(OpId op, uint64_t step,
                   absl::Span<const LateBinding> late = {});

  // What has been declared may be another from here on. Nothing is running.
  void Forget() { prepared_.clear(); }

  // `others_know`: no other member waits for what this one would run.
  void Abort(const absl::Status& status, bool others_know);

 private:
  // A plan of one collective, ready to be launched.
  struct Prepared {
    std::unique_ptr<Program> program;
    std::unique_ptr<LateBindings> late;  // null if nothing is late-bound
    std::vector<BufferId> buffers;       // by its own buffer ids: the declared
    uint64_t times = 0;                  // that it has run
    Device* device = nullptr;
    void* staging = nullptr;
    ~Prepared();
  };

  absl::StatusOr<Prepared*> Prepare(OpId op);
  // `late` for the collective as it was prepared: with its own buffer ids.
  std::vector<LateBinding> Localize(OpId op,
                                    absl::Span<const LateBinding> late) const;
  absl::Status CheckPeers(OpId op, uint64_t step,
                          absl::Span<const LateBinding> late);
  std::string KeyLocked(size_t group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DeclineLocked(size_t group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RunOnHost(const Program& program, uint32_t index);
  absl::Status Await(BackendRank::Turn* turn, void* comm,
                     absl::string_view what);
  // The next three of a device.
  absl::Status BorrowLane();
  absl::Status RunOnDevice(const Program& program, uint32_t index);
  absl::Status AwaitDevice(void* comm, absl::string_view what);
  absl::Status LaunchOn(const Program& program, uint32_t index,
                        commsched_stream_t stream);
  absl::Status TooLate(absl::string_view what) const;

  const SerialRunnerSpec spec_;
  const commsched_backend_t* const backend_;
  Device* const device_;
  PluginMessage message_;  // of the backend's latest call
  absl::flat_hash_map<OpId, std::unique_ptr<Prepared>> prepared_;
  Mutex mu_;
  // By GroupId: how often its members have met.
  std::vector<uint64_t> num_met_ ABSL_GUARDED_BY(mu_);
  absl::Status gave_up_ ABSL_GUARDED_BY(mu_);
  // Of a device: one lane, for the communicators of all groups, its stream, and
  // what says that the latest launch of `num_enqueued_` is complete.
  std::shared_ptr<DeviceLane> lane_;
  std::vector<std::shared_ptr<DeviceLane>> lanes_;  // by group
  Stream* stream_ = nullptr;
  std::unique_ptr<Event> done_;
  uint64_t num_enqueued_ = 0;
  Communicators communicators_;  // goes first: programs hold counts it uses
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_RECORDING_SERIAL_RUNNER_H_
