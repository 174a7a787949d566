// What the scheduler itself costs, on a backend that answers at once.
//
//   build/release/bin/bench_exec
//
// BM_ReplayPlan/ops:N      one step of a plan of N ops, session-driven
// BM_ReplayRecorded/ops:N  the same with a trace that records it
// BM_HandWritten/ops:N     the same waits, launches and records in a plain loop
//                          over the same streams, events and backend table
// BM_BeforeAfter/ops:N     the same step through the C ABI, one before and one
//                          after per compute op
// BM_BeforeAfterBound/ops:N  that on the caller's memory, as a recording's is
// BM_ReplayFrozen/ops:N    the frozen replay of a recorded step of these calls,
//                          which submits each collective besides
//
// Look at ns_per_op (per op of the graph: half of them compute ops, half
// all-reduces) and compare within one run: ReplayPlan at most 10 ns over
// HandWritten; ns_per_pair of BeforeAfter (one before and one after, with the
// launch that the after issues) at most 100, and that of ReplayFrozen near that
// of BeforeAfterBound. `allocations` is what one step allocates: 0.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/world.h"
#include "commsched/commsched.h"
#include "device/host_device.h"
#include "plan/planner.h"
#include "session/session.h"
#include "test/support/alloc_counter.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

constexpr uint64_t kElements = 16;

// ops / 2 times: a compute op that writes a gradient, an all-reduce of it.
Graph ChainOfBuckets(int64_t num_ops) {
  Graph graph;
  const GroupId group = graph.AddGroup("dp", 1).value();
  for (int64_t i = 0; i < num_ops / 2; ++i) {
    Buffer buffer;
    buffer.name = absl::StrCat("grad", i);
    buffer.ownership = Ownership::kOwned;
    buffer.count = kElements;
    const BufferId id = graph.AddBuffer(buffer).value();
    Op compute;
    compute.name = absl::StrCat("backward", i);
    compute.accesses.push_back({id, AccessMode::kReadWrite, {}});
    (void)graph.AddOp(compute).value();
    Op reduce;
    reduce.name = absl::StrCat("reduce", i);
    reduce.kind = OpKind::kCollective;
    reduce.collective.group = group;
    reduce.collective.input = {id, AccessMode::kRead, {}};
    reduce.collective.output = {id, AccessMode::kWrite, {}};
    (void)graph.AddOp(reduce).value();
  }
  return graph;
}

// Counters that both loops report.
void Report(benchmark::State& state, int64_t num_ops, uint64_t allocations) {
  state.counters["ns_per_op"] =
      benchmark::Counter(static_cast<double>(num_ops) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert);
  state.counters["allocations"] =
      static_cast<double>(allocations) /
      static_cast<double>(std::max<int64_t>(1, state.iterations()));
}

absl::Status NoWork(void* user, OpId, Stream*) {
  benchmark::DoNotOptimize(user);
  return absl::OkStatus();
}

void Replay(benchmark::State& state, Recorder* recorder) {
  SessionSpec spec;
  WorldSpec world;
  world.size = 1;
  world.backend = "null";
  spec.world = World::Create(world).value();
  spec.plan =
      BuildPlan(ChainOfBuckets(state.range(0)), PlanOptions{}, CostProfile{})
          .value();
  spec.groups.push_back({"dp", {0}, 0});
  spec.recorder = recorder;
  std::unique_ptr<Session> session = Session::Create(spec).value();
  (void)session->Run(NoWork, nullptr, 2);
  const uint64_t before = HeapAllocations();
  for (auto _ : state) {
    if (!session->Run(NoWork, nullptr, 1).ok()) state.SkipWithError("failed");
  }
  Report(state, state.range(0), HeapAllocations() - before);
}

void BM_ReplayPlan(benchmark::State& state) { Replay(state, nullptr); }
BENCHMARK(BM_ReplayPlan)->ArgName("ops")->Arg(10000);

void BM_ReplayRecorded(benchmark::State& state) {
  Recorder recorder(1 << 16);
  Replay(state, &recorder);
}
BENCHMARK(BM_ReplayRecorded)->ArgName("ops")->Arg(10000);

// The loop that a careful engine author would write: per bucket, wait until the
// last reduction of the buffer is complete, compute, record; on the side
// stream, check the record, launch, record.
class HandWritten {
 public:
  explicit HandWritten(int64_t num_buckets) : buckets_(num_buckets) {
    WorldSpec spec;
    spec.size = 1;
    spec.backend = "null";
    world_ = World::Create(spec).value();
    const int32_t rank = 0;
    commsched_comm_desc_t desc = {};
    desc.struct_size = sizeof(desc);
    desc.id = "hand-written";
    desc.axis = "dp";
    desc.ranks = &rank;
    desc.size = 1;
    desc.max_in_flight = 1;
    desc.max_members = 1;
    char message[256];
    (void)world_->backend()->comm_create(world_->Rank(0).value()->handle(),
                                         &desc, &comm_, message,
                                         sizeof(message));
    for (Bucket& bucket : buckets_) {
      bucket.computed = device_.CreateEvent(1).value();
      bucket.reduced = device_.CreateEvent(1).value();
      bucket.member.input = bucket.member.output = bucket.values;
      bucket.member.count = kElements;
      bucket.launch.num_members = 1;
      bucket.launch.members = &bucket.member;
    }
  }
  ~HandWritten() {
    char message[256];
    (void)world_->backend()->comm_destroy(comm_, 0, message, sizeof(message));
  }

  bool Step() {
    const commsched_backend_t* backend = world_->backend();
    Stream* const stream = CallerStream();
    const uint64_t generation = ++generation_;
    char message[512];
    for (Bucket& bucket : buckets_) {
      stream->Wait(bucket.reduced.get(), generation - 1);
      if (!NoWork(nullptr, OpId(0), stream).ok()) return false;
      stream->Record(bucket.computed.get(), generation);
      if (!bucket.computed->IsComplete(generation)) return false;
      if (backend->launch(comm_, &bucket.launch, 0, commsched_stream_caller(),
                          message, sizeof(message)) != COMMSCHED_OK) {
        return false;
      }
      stream->Record(bucket.reduced.get(), generation);
    }
    return true;
  }

 private:
  struct Bucket {
    std::unique_ptr<Event> computed;
    std::unique_ptr<Event> reduced;
    float values[kElements] = {};
    commsched_member_t member = {};
    commsched_launch_t launch = {};
  };
  HostDevice device_;
  std::shared_ptr<World> world_;
  void* comm_ = nullptr;
  std::vector<Bucket> buckets_;
  uint64_t generation_ = 0;
};

void BM_HandWritten(benchmark::State& state) {
  HandWritten loop(state.range(0) / 2);
  (void)loop.Step();
  const uint64_t before = HeapAllocations();
  for (auto _ : state) {
    if (!loop.Step()) state.SkipWithError("failed");
  }
  Report(state, state.range(0), HeapAllocations() - before);
}
BENCHMARK(BM_HandWritten)->ArgName("ops")->Arg(10000);

// The same graph through the C ABI. Ends the benchmark on the first error.
class AbiJob {
 public:
  AbiJob() {
    commsched_world_desc_t world = commsched_world_desc_init();
    world.size = 1;
    world.backend = "null";
    Check(commsched_world_create_inproc(&world, &world_));
    Check(commsched_context_create(world_, 0, &context_));
    const int32_t rank = 0;
    Check(commsched_group_create(context_, "dp", &rank, 1, &group_));
  }
  ~AbiJob() {
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
    commsched_world_destroy(world_);
  }

  bool ok() const { return ok_; }

 protected:
  void Check(commsched_status_t status) { ok_ &= status == COMMSCHED_OK; }

  // Calls add_buffer(desc), add_compute(desc) and add_collective(desc) for each
  // bucket, which fill in ids.
  template <typename AddBuffer, typename AddCompute, typename AddCollective>
  void Declare(int64_t num_buckets, AddBuffer add_buffer,
               AddCompute add_compute, AddCollective add_collective) {
    for (int64_t i = 0; i < num_buckets; ++i) {
      const std::string gradient = absl::StrCat("grad", i);
      commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
      buffer.name = gradient.c_str();
      buffer.count = kElements;
      commsched_access_t access = {};
      access.buffer = add_buffer(buffer);
      access.mode = COMMSCHED_READ_WRITE;
      const std::string backward = absl::StrCat("backward", i);
      commsched_compute_desc_t compute = commsched_compute_desc_init();
      compute.name = backward.c_str();
      compute.accesses = &access;
      compute.num_accesses = 1;
      compute_.push_back(add_compute(compute));
      const std::string reduce = absl::StrCat("reduce", i);
      commsched_collective_desc_t collective = commsched_collective_desc_init();
      collective.name = reduce.c_str();
      collective.input = access;
      collective.output = access;
      reduce_.push_back(add_collective(collective));
    }
  }

  bool ok_ = true;
  commsched_world_t* world_ = nullptr;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  std::vector<commsched_op_id_t> compute_;  // by bucket, as the next
  std::vector<commsched_op_id_t> reduce_;
};

class AbiStep : public AbiJob {
 public:
  // `bound`: the gradients are in memory of the caller.
  AbiStep(int64_t num_buckets, bool bound)
      : memory_(bound ? static_cast<size_t>(num_buckets) * kElements : 0) {
    BuildGraph(num_buckets);
    const commsched_plan_options_t options = commsched_plan_options_init();
    Check(commsched_plan_build(graph_, &options, nullptr, &plan_));
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = context_;
    desc.plan = plan_;
    desc.groups = &group_;
    desc.num_groups = 1;
    desc.bindings = bindings_.data();
    desc.num_bindings = static_cast<uint32_t>(bindings_.size());
    Check(commsched_session_create(&desc, &session_));
  }
  ~AbiStep() {
    commsched_session_destroy(session_);
    commsched_plan_destroy(plan_);
    commsched_graph_destroy(graph_);
  }

  void Step() {
    const commsched_stream_t stream = commsched_stream_caller();
    Check(commsched_session_step_begin(session_));
    for (commsched_op_id_t op : compute_) {
      Check(commsched_session_before(session_, op, stream));
      Check(commsched_session_after(session_, op, stream));
    }
    Check(commsched_session_step_end(session_));
  }

 private:
  void BuildGraph(int64_t num_buckets) {
    Check(commsched_graph_create(&graph_));
    commsched_group_id_t group = 0;
    Check(commsched_graph_add_group(graph_, "dp", 1, &group));
    Declare(
        num_buckets,
        [&](commsched_buffer_desc_t& desc) {
          const size_t at = bindings_.size() * kElements;
          if (!memory_.empty()) desc.ownership = COMMSCHED_BOUND;
          commsched_buffer_id_t id = 0;
          Check(commsched_graph_add_buffer(graph_, &desc, &id));
          if (memory_.empty()) return id;
          bindings_.push_back({id, 0, &memory_[at], kElements * sizeof(float)});
          return id;
        },
        [&](const commsched_compute_desc_t& desc) {
          commsched_op_id_t id = 0;
          Check(commsched_graph_add_compute(graph_, &desc, &id));
          return id;
        },
        [&](const commsched_collective_desc_t& desc) {
          commsched_op_id_t id = 0;
          Check(commsched_graph_add_collective(graph_, &desc, &id));
          return id;
        });
  }

  std::vector<float> memory_;
  std::vector<commsched_binding_t> bindings_;
  commsched_graph_t* graph_ = nullptr;
  commsched_plan_t* plan_ = nullptr;
  commsched_session_t* session_ = nullptr;
};

// The same, submitted eagerly.
class RecordedStep : public AbiJob {
 public:
  explicit RecordedStep(int64_t num_buckets)
      : memory_(static_cast<size_t>(num_buckets) * kElements) {
    commsched_recording_desc_t desc = commsched_recording_desc_init();
    desc.context = context_;
    desc.groups = &group_;
    desc.num_groups = 1;
    Check(commsched_recording_create(&desc, &recording_));
    size_t at = 0;
    Declare(
        num_buckets,
        [&](commsched_buffer_desc_t& buffer) {
          buffer.ownership = COMMSCHED_BOUND;
          commsched_buffer_id_t id = 0;
          Check(commsched_recording_add_buffer(recording_, &buffer,
                                               &memory_[at], &id));
          at += kElements;
          return id;
        },
        [&](const commsched_compute_desc_t& compute) {
          commsched_op_id_t id = 0;
          Check(commsched_recording_add_compute(recording_, &compute, 0, &id));
          return id;
        },
        [&](const commsched_collective_desc_t& collective) {
          commsched_op_id_t id = 0;
          Check(commsched_recording_add_collective(recording_, &collective, 0,
                                                   0, &id));
          return id;
        });
    for (int i = 0; i < kStepsToFreeze && ok_; ++i) Step();
    commsched_recording_info_t info = commsched_recording_info_init();
    Check(commsched_recording_get_info(recording_, &info));
    ok_ &= info.phase == COMMSCHED_RECORDING_FROZEN;
  }
  ~RecordedStep() { commsched_recording_destroy(recording_); }

  void Step() {
    const commsched_stream_t stream = commsched_stream_caller();
    Check(commsched_recording_step_begin(recording_));
    for (size_t i = 0; i < compute_.size(); ++i) {
      Check(commsched_recording_before(recording_, compute_[i], stream));
      Check(commsched_recording_after(recording_, compute_[i], stream));
      Check(commsched_recording_submit(recording_, reduce_[i]));
    }
    Check(commsched_recording_step_end(recording_));
  }

 private:
  static constexpr int kStepsToFreeze = 4;

  std::vector<float> memory_;
  commsched_recording_t* recording_ = nullptr;
};

template <typename AnyStep>
void MeasureCalls(benchmark::State& state, AnyStep& step) {
  step.Step();
  const uint64_t before = HeapAllocations();
  for (auto _ : state) step.Step();
  Report(state, state.range(0), HeapAllocations() - before);
  state.counters["ns_per_pair"] =
      benchmark::Counter(static_cast<double>(state.range(0) / 2) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert);
  if (!step.ok()) state.SkipWithError(commsched_last_error());
}

void BM_BeforeAfter(benchmark::State& state) {
  AbiStep step(state.range(0) / 2, /*bound=*/false);
  MeasureCalls(state, step);
}
BENCHMARK(BM_BeforeAfter)->ArgName("ops")->Arg(10000);

void BM_BeforeAfterBound(benchmark::State& state) {
  AbiStep step(state.range(0) / 2, /*bound=*/true);
  MeasureCalls(state, step);
}
BENCHMARK(BM_BeforeAfterBound)->ArgName("ops")->Arg(10000);

void BM_ReplayFrozen(benchmark::State& state) {
  RecordedStep step(state.range(0) / 2);
  MeasureCalls(state, step);
}
BENCHMARK(BM_ReplayFrozen)->ArgName("ops")->Arg(10000);

}  // namespace
}  // namespace commsched
