#ifndef COMMSCHED_TEST_GPU_CHECK_JOB_H_
#define COMMSCHED_TEST_GPU_CHECK_JOB_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/world.h"
#include "device/cuda_runtime.h"
#include "plan/planner.h"
#include "session/session.h"

namespace commsched::gpu_check {

class StepGraph;

// Each step, `buckets` times: what the caller has given is copied to a
// gradient, and that is all-reduced, or gathered; at the end results are copied
// out.
struct StepShape {
  int ranks = 1;
  int buckets = 16;
  uint64_t elements = 1 << 16;  // Of a gradient.
  CollectiveKind kind = CollectiveKind::kAllReduce;
  // At the end of a step each result, of a gather the next rank's part, becomes
  // what is given to the next bucket: memory tells how many steps have run.
  bool feeds_back = false;
  // Sessions of one axis share a lane, and those of a world have numbers.
  const char* axis = "dp";
  uint64_t first_instance = 0;
};

struct RunSpec {
  uint64_t warm_up = 2;
  uint64_t steps = 10;
  // Off: no copies, only collectives of whatever there is.
  bool moves_data = true;
  // Waits for each step before the next, so that a queue that is full does not
  // count as the host's time.
  bool drains_each_step = false;
  // The steps are launches of a graph, which is captured after the warm-up of
  // at least one step.
  bool captured = false;
  // Ahead of the steps and behind them this many are enqueued one by one, with
  // no wait of the host between: then step_s has a part of those, too.
  uint64_t plain_around = 0;
  // Enqueues more of each compute op, of the calling rank. Not for captured
  // steps: the stand-ins run such a kernel once.
  std::function<absl::Status(int device, cudaStream_t stream)> work = {};
};

// Of rank 0.
struct Times {
  std::vector<double> enqueue_s;  // By step: until the host was done.
  double step_s = 0;              // Until all was done, on average.
};

// 0 of no values.
double Median(std::vector<double> values);

// The ranks of a job on devices, those that live here, with memory and a
// compute stream each.
class Job {
 public:
  class Steps;

  explicit Job(const StepShape& shape);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Ranks are threads with a device each; or `world` is this process' of
  // several.
  absl::Status Make(const PlanOptions& options,
                    std::shared_ptr<World> world = nullptr);
  // The same of one rank, which lives here.
  absl::Status MakeRank(const PlanOptions& options,
                        std::shared_ptr<World> world, int rank);
  absl::Status Run(const RunSpec& spec, Times* times);
  // Of two ranks, processes: rank 0 launches a captured step, which waits for
  // rank 1, and aborts its session. The kernels of that launch, and of one that
  // both launch behind it, end. `out_ended_s`: how long each took. No other run
  // comes after it.
  absl::Status Abort(std::vector<double>* out_ended_s);
  // A session of the one rank that there is.
  absl::StatusOr<std::unique_ptr<Steps>> Open();
  // Memory becomes what it was before the first run.
  absl::Status Reset();
  // The bits of all that is given and copied out, of the ranks that live here.
  absl::StatusOr<std::vector<uint32_t>> ReadMemory();
  // Results are those of 1, 2, ... of the ranks, as a run that moves data
  // gives, unless it feeds back.
  absl::Status CheckResults();

  uint64_t num_launches() const { return plan_->launches.size(); }

 private:
  struct Rank {
    int rank = 0;
    int device = 0;
    std::unique_ptr<Stream> lane;
    std::unique_ptr<Stream> origin;  // Of graphs.
    std::vector<void*> memory;       // By BufferId.
    uint64_t num_runs = 0;
  };
  struct Running;

  absl::Status MakePlan(const PlanOptions& options);
  absl::Status MakeWorld();
  absl::Status AddRank(int rank);
  absl::Status Fill(const Rank& rank);
  absl::Status RunRank(Rank& rank, const RunSpec& spec, Times* times);
  absl::Status AbortReplay(const Rank& rank, Session* session, StepGraph* graph,
                           std::vector<double>* out_ended_s);
  SessionSpec Spec(Rank& rank);
  uint64_t ResultElements() const;

  const StepShape shape_;
  Graph graph_;
  std::vector<BufferId> given_, gradients_, results_, copies_;
  std::vector<OpId> backward_;
  OpId update_;
  const CudaRuntime* cuda_ = nullptr;
  std::shared_ptr<const Plan> plan_;
  std::vector<Rank> ranks_;
  std::shared_ptr<World> world_;
};

// A session whose steps are enqueued one by one, and what is between their ops.
// It moves data. Its job outlives it.
//
// Owned by one thread.
class Job::Steps {
 public:
  ~Steps();
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // A step. `between`: called behind each of its compute ops.
  absl::Status Enqueue(const std::function<absl::Status()>& between = nullptr);
  absl::Status Drain();
  Session* session() { return session_.get(); }

 private:
  friend class Job;
  Steps(Job* job, std::unique_ptr<Session> session);

  const RunSpec spec_;
  const std::unique_ptr<Session> session_;
  const std::unique_ptr<Running> running_;
};

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_JOB_H_
