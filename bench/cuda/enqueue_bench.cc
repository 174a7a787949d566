// What enqueuing a launch on a device costs the host, on stand-ins that answer
// at once.
//
//   build/release/bin/bench_cuda
//
// BM_HandWritten/launches:N  per launch: record on the compute stream, wait on
//                            the side stream, a group of one all-reduce, record
//                            there; and at the end of the step a wait on the
//                            compute stream
// BM_Replay/launches:N       the same by a session, session-driven
// BM_BeforeAfter/launches:N  the same by before and after of each compute op
//
// Look at ns_per_launch, within one run: at most 100 ns over BM_HandWritten.
// The calls of both are the same but for ncclGroupStart and ncclGroupEnd, which
// the backend makes for every launch, as the loop does.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "device/cuda_device.h"
#include "plan/planner.h"
#include "session/backend_model.h"
#include "session/session.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched {
namespace {

constexpr uint64_t kElements = 16;

// Before the library looks for them.
const bool kNamed = [] {
  setenv("COMMSCHED_CUDART_LIB", COMMSCHED_BENCH_FAKE_GPU, 1);
  setenv("COMMSCHED_NCCL_LIB", COMMSCHED_BENCH_FAKE_GPU, 1);
  return true;
}();

const commsched_backend_t* Nccl() {
  static const commsched_backend_t* const table = [] {
    PluginRegistry& registry = PluginRegistry::Process();
    registry.Load(COMMSCHED_BENCH_NCCL).IgnoreError();
    return registry.Backend("nccl").value();
  }();
  return table;
}

// Each gradient is written and all-reduced, and all are used at the end.
Graph Buckets(int64_t num_launches) {
  Graph graph;
  const GroupId group = graph.AddGroup("dp", 1).value();
  Op use;
  use.name = "use";
  for (int64_t i = 0; i < num_launches; ++i) {
    Buffer buffer;
    buffer.name = absl::StrCat("gradient", i);
    buffer.ownership = Ownership::kOwned;
    buffer.count = kElements;
    const BufferId id = graph.AddBuffer(buffer).value();
    Op compute;
    compute.name = absl::StrCat("backward", i);
    compute.accesses.push_back({id, AccessMode::kWrite, {}});
    (void)graph.AddOp(compute).value();
    Op reduce;
    reduce.name = absl::StrCat("reduce", i);
    reduce.kind = OpKind::kCollective;
    reduce.collective.group = group;
    reduce.collective.input = {id, AccessMode::kRead, {}};
    reduce.collective.output = {id, AccessMode::kWrite, {}};
    (void)graph.AddOp(reduce).value();
    use.accesses.push_back({id, AccessMode::kRead, {}});
  }
  (void)graph.AddOp(use).value();
  return graph;
}

void Report(benchmark::State& state) {
  state.counters["ns_per_launch"] =
      benchmark::Counter(static_cast<double>(state.range(0)) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert);
}

// A session of one rank on a stand-in, with a compute stream.
class Rig {
 public:
  explicit Rig(int64_t num_launches) : device_(OpenCudaDevice(0).value()) {
    PlanOptions options;
    options.backend = ModelOf(*Nccl());
    SessionSpec spec;
    spec.plan =
        BuildPlan(Buckets(num_launches), options, CostProfile{}).value();
    WorldSpec world;
    world.size = 1;
    world.table = Nccl();
    world.devices = {device_};
    spec.world = World::Create(world).value();
    spec.groups = {{"dp", {0}, 0}};
    for (uint32_t i = 0; i < spec.plan->num_compute_lanes; ++i) {
      lanes_.push_back(device_->CreateSideStream().value());
      spec.lanes.push_back(lanes_.back().get());
    }
    session_ = Session::Create(spec).value();
    fake_gpu_null(1);
  }
  ~Rig() {
    session_->Drain().IgnoreError();
    fake_gpu_null(0);
  }

  Session& session() { return *session_; }
  Stream* lane(uint32_t i) { return lanes_[i].get(); }

 private:
  const std::shared_ptr<Device> device_;
  std::vector<std::unique_ptr<Stream>> lanes_;
  std::unique_ptr<Session> session_;
};

void BM_Replay(benchmark::State& state) {
  Rig rig(state.range(0));
  const auto nothing = [](void*, OpId, Stream*) { return absl::OkStatus(); };
  for (auto _ : state) {
    if (!rig.session().Run(nothing, nullptr, 1).ok()) {
      state.SkipWithError("the session failed");
    }
  }
  Report(state);
}

void BM_BeforeAfter(benchmark::State& state) {
  Rig rig(state.range(0));
  Session& session = rig.session();
  bool ok = true;
  for (auto _ : state) {
    ok &= session.StepBegin().ok();
    for (const ComputeNode& node : session.plan().nodes) {
      Stream* const stream = rig.lane(node.lane);
      ok &= session.Before(node.op, stream).ok();
      ok &= session.After(node.op, stream).ok();
    }
    ok &= session.StepEnd().ok();
  }
  if (!ok) state.SkipWithError("the session failed");
  Report(state);
}

void BM_HandWritten(benchmark::State& state) {
  const auto num_launches = static_cast<size_t>(state.range(0));
  cudaStream_t compute = nullptr;
  cudaStream_t side = nullptr;
  cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0);
  cudaStreamCreateWithPriority(&side, cudaStreamNonBlocking, -5);
  std::vector<cudaEvent_t> computed(num_launches);
  std::vector<cudaEvent_t> reduced(num_launches);
  for (size_t i = 0; i < num_launches; ++i) {
    cudaEventCreateWithFlags(&computed[i], cudaEventDisableTiming);
    cudaEventCreateWithFlags(&reduced[i], cudaEventDisableTiming);
  }
  ncclUniqueId id = {};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = nullptr;
  ncclGetUniqueId(&id);
  ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  void* memory = nullptr;
  cudaMalloc(&memory, kElements * sizeof(float));
  fake_gpu_null(1);
  for (auto _ : state) {
    for (size_t i = 0; i < num_launches; ++i) {
      cudaEventRecord(computed[i], compute);
      cudaStreamWaitEvent(side, computed[i], 0);
      ncclGroupStart();
      ncclAllReduce(memory, memory, kElements, ncclFloat, ncclSum, comm, side);
      ncclGroupEnd();
      cudaEventRecord(reduced[i], side);
    }
    cudaStreamWaitEvent(compute, reduced[num_launches - 1], 0);
  }
  fake_gpu_null(0);
  for (size_t i = 0; i < num_launches; ++i) {
    cudaEventDestroy(computed[i]);
    cudaEventDestroy(reduced[i]);
  }
  cudaFree(memory);
  ncclCommDestroy(comm);
  cudaStreamDestroy(side);
  cudaStreamDestroy(compute);
  Report(state);
}

BENCHMARK(BM_HandWritten)->ArgName("launches")->Arg(100)->Arg(1000);
BENCHMARK(BM_Replay)->ArgName("launches")->Arg(100)->Arg(1000);
BENCHMARK(BM_BeforeAfter)->ArgName("launches")->Arg(100)->Arg(1000);

}  // namespace
}  // namespace commsched
