// Sessions on stand-in devices: launches of NCCL's on side streams, ordered
// with the caller's streams by events.
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::Peek;
using test::RunOn;

constexpr int kRanks = 4;
constexpr int kBuckets = 6;
constexpr uint64_t kElements = 4096;

// A step of ZeRO's shape: gradients written, reduce-scattered, a shard of the
// parameters stepped, gathered, and read by the next step.
struct ZeroStep {
  Graph graph;
  std::vector<BufferId> parameters, gradients;
  std::vector<OpId> backward, step;
};

ZeroStep MakeZeroStep() {
  ZeroStep made;
  Graph& graph = made.graph;
  const GroupId group = graph.AddGroup("dp", kRanks).value();
  Region shard;
  shard.kind = RegionKind::kShard;
  shard.group = group;
  for (int i = 0; i < kBuckets; ++i) {
    Buffer buffer;
    buffer.count = kElements;
    buffer.name = absl::StrCat("parameter", i);
    buffer.ownership = Ownership::kBound;
    const BufferId parameter = graph.AddBuffer(buffer).value();
    buffer.name = absl::StrCat("gradient", i);
    buffer.ownership = Ownership::kOwned;
    const BufferId gradient = graph.AddBuffer(buffer).value();
    made.parameters.push_back(parameter);
    made.gradients.push_back(gradient);
    const auto compute = [&](const char* prefix, std::vector<Access> accesses) {
      Op op;
      op.name = absl::StrCat(prefix, i);
      op.accesses = std::move(accesses);
      return graph.AddOp(op).value();
    };
    const auto collective = [&](const char* prefix, CollectiveKind kind,
                                Access input, Access output) {
      Op op;
      op.name = absl::StrCat(prefix, i);
      op.kind = OpKind::kCollective;
      op.collective.kind = kind;
      op.collective.group = group;
      op.collective.input = input;
      op.collective.output = output;
      (void)graph.AddOp(op).value();
    };
    made.backward.push_back(
        compute("backward", {{parameter, AccessMode::kRead, {}},
                             {gradient, AccessMode::kWrite, {}}}));
    collective("scatter", CollectiveKind::kReduceScatter,
               {gradient, AccessMode::kRead, {}},
               {gradient, AccessMode::kWrite, shard});
    made.step.push_back(
        compute("step", {{gradient, AccessMode::kRead, shard},
                         {parameter, AccessMode::kReadWrite, shard}}));
    collective("gather", CollectiveKind::kAllGather,
               {parameter, AccessMode::kRead, shard},
               {parameter, AccessMode::kWrite, {}});
  }
  return made;
}

// Gradients are parameter + 1 + rank; parameters lose the mean over ranks, over
// 8. Exact in fp32 for some steps.
class Trainer {
 public:
  Trainer(const ZeroStep& step, Session* session, int rank, GpuRig* rig)
      : step_(step), session_(*session), rank_(rank), rig_(*rig) {}

  absl::Status Run(uint64_t num_steps) {
    return session_.Run(
        [](void* user, OpId op, Stream* stream) {
          return static_cast<Trainer*>(user)->Compute(op, stream);
        },
        this, num_steps);
  }

  absl::Status ByCalls(uint64_t num_steps) {
    for (uint64_t t = 0; t < num_steps; ++t) {
      RETURN_IF_ERROR(session_.StepBegin());
      for (const ComputeNode& node : session_.plan().nodes) {
        Stream* const stream = rig_.lane(rank_, node.lane);
        RETURN_IF_ERROR(session_.Before(node.op, stream));
        RETURN_IF_ERROR(Compute(node.op, stream));
        RETURN_IF_ERROR(session_.After(node.op, stream));
      }
      RETURN_IF_ERROR(session_.StepEnd());
    }
    return absl::OkStatus();
  }

  absl::Status Compute(OpId op, Stream* stream) {
    for (int i = 0; i < kBuckets; ++i) {
      const bool is_step = op == step_.step[i];
      if (!is_step && op != step_.backward[i]) continue;
      ASSIGN_OR_RETURN(void* gradient,
                       session_.Address(op, step_.gradients[i]));
      float* const g = Peek(gradient);
      float* const p = Peek(rig_.Memory(rank_, step_.parameters[i]));
      const uint64_t shard = kElements / kRanks;
      const uint64_t first = static_cast<uint64_t>(rank_) * shard;
      const int rank = rank_;
      RunOn(stream, [=] {
        if (!is_step) {
          for (uint64_t k = 0; k < kElements; ++k)
            g[k] = p[k] + 1.f + float(rank);
          return;
        }
        for (uint64_t k = first; k < first + shard; ++k) {
          p[k] -= g[k] / (8.f * kRanks);
        }
      });
    }
    return absl::OkStatus();
  }

 private:
  const ZeroStep& step_;
  Session& session_;
  const int rank_;
  GpuRig& rig_;
};

float Expected(uint64_t num_steps) {
  float p = 0;
  for (uint64_t t = 0; t < num_steps; ++t) {
    float sum = 0;
    for (int r = 0; r < kRanks; ++r) sum += p + 1.f + float(r);
    p -= sum / (8.f * kRanks);
  }
  return p;
}

void ExpectParameters(GpuRig& rig, const ZeroStep& step, uint64_t num_steps) {
  const float expected = Expected(num_steps);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (BufferId parameter : step.parameters) {
      const float* values = Peek(rig.Memory(rank, parameter));
      for (uint64_t k = 0; k < kElements; ++k) {
        ASSERT_EQ(values[k], expected) << "rank " << rank << " buffer "
                                       << parameter.value() << " at " << k;
      }
    }
  }
}

class CudaSessionTest : public testing::TestWithParam<bool> {
 protected:
  ~CudaSessionTest() override { fake_gpu_delay(0, 0); }

  // To the bits of the plain loop, which adds in the order of the tree.
  void Train(PlanOptions options, uint64_t num_steps) {
    options.deterministic = true;
    const ZeroStep step = MakeZeroStep();
    GpuRig rig(kRanks, step.graph, options);
    for (const absl::Status& status :
         rig.RunSessions([&](Session&session, int rank) {
           Trainer trainer(step, &session, rank, &rig);
           return GetParam() ? trainer.ByCalls(num_steps)
                             : trainer.Run(num_steps);
         })) {
      EXPECT_OK(status);
    }
    ExpectParameters(rig, step, num_steps);
  }
};

TEST_P(CudaSessionTest, TrainsLikeAPlainLoop) { Train({}, 12); }

TEST_P(CudaSessionTest, LateDevicesChangeNothing) {
  fake_gpu_delay(/*seed=*/7, /*most_us=*/300);
  Train({}, 8);
}

TEST_P(CudaSessionTest, PackedLaunchesAreStagedOnTheirStream) {
  PlanOptions options;
  options.coalesce_bytes = 64 * 1024;
  fake_gpu_delay(/*seed=*/8, /*most_us=*/300);
  Train(options, 8);
}

TEST_P(CudaSessionTest, CapsAreKeptByTheStream) {
  PlanOptions options;
  options.max_launches_in_flight = 1;
  Train(options, 8);
}

INSTANTIATE_TEST_SUITE_P(ByRunOrByCalls, CudaSessionTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "calls" : "run";
                         });

TEST(CudaSessionsTest, NothingIsLeft) {
  const uint64_t streams = fake_gpu_num_streams();
  const uint64_t events = fake_gpu_num_events();
  const uint64_t bytes = fake_gpu_allocated_bytes();
  {
    const ZeroStep step = MakeZeroStep();
    GpuRig rig(kRanks, step.graph, {});
    for (const absl::Status& status :
         rig.RunSessions([&](Session&session, int rank) {
           return Trainer(step, &session, rank, &rig).Run(2);
         })) {
      EXPECT_OK(status);
    }
  }
  EXPECT_EQ(fake_gpu_num_comms(), 0u);
  EXPECT_EQ(fake_gpu_num_streams(), streams);
  EXPECT_EQ(fake_gpu_num_events(), events);
  EXPECT_EQ(fake_gpu_allocated_bytes(), bytes);
}

// Before returns once what the op reads is there, and after before it is read.
TEST(CudaSessionsTest, TheHostMayComputeOnWhatADeviceExchanges) {
  const ZeroStep step = MakeZeroStep();
  fake_gpu_delay(/*seed=*/5, /*most_us=*/200);
  for (const bool by_calls : {false, true}) {
    GpuRig rig(kRanks, step.graph, {});
    rig.compute_by_host();
    for (const absl::Status& status :
         rig.RunSessions([&](Session&session, int rank) {
           Trainer trainer(step, &session, rank, &rig);
           return by_calls ? trainer.ByCalls(8) : trainer.Run(8);
         })) {
      EXPECT_OK(status);
    }
    ExpectParameters(rig, step, 8);
  }
  fake_gpu_delay(0, 0);
}

// I6 on a device: nothing that could synchronize it, or make something.
TEST(CudaSessionsTest, ASteadyStepCallsOnlyWhatEnqueues) {
  const ZeroStep step = MakeZeroStep();
  GpuRig rig(kRanks, step.graph, {});
  const std::vector<std::string> never = {"cudaMalloc",
                                          "cudaFree",
                                          "cuMemAlloc",
                                          "cuMemFree",
                                          "cudaMemcpy",
                                          "cudaMemset",
                                          "cudaStreamCreateWithPriority",
                                          "cudaStreamDestroy",
                                          "cudaStreamSynchronize",
                                          "cudaEventCreateWithFlags",
                                          "cudaEventDestroy",
                                          "cuPointerGetAttributes",
                                          "ncclCommInitRankConfig",
                                          "ncclCommRegister",
                                          "ncclCommDeregister",
                                          "ncclCommDestroy"};
  std::vector<uint64_t> before, after;
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int rank) -> absl::Status {
         Trainer trainer(step, &session, rank, &rig);
         RETURN_IF_ERROR(trainer.Run(8));
         if (rank == 0) {
           for (const auto& name : never) {
             before.push_back(fake_gpu_num_calls(name.c_str()));
           }
         }
         RETURN_IF_ERROR(trainer.Run(50));
         if (rank == 0) {
           for (const auto& name : never) {
             after.push_back(fake_gpu_num_calls(name.c_str()));
           }
         }
         return trainer.Run(8);
       })) {
    EXPECT_OK(status);
  }
  EXPECT_THAT(after, testing::ElementsAreArray(before));
}

// One wait per wait of the plan, one record per event and one group per launch.
TEST(CudaSessionsTest, AStepEnqueuesWhatThePlanSays) {
  const ZeroStep step = MakeZeroStep();
  GpuRig rig(kRanks, step.graph, {});
  const Plan& plan = rig.plan();
  uint64_t planned_waits = 0;
  for (const ComputeNode& node : plan.nodes) planned_waits += node.waits.size();
  for (const Launch& launch : plan.launches) {
    planned_waits += launch.waits.size();
  }
  constexpr uint64_t kSteps = 10;
  // It warms up the communicators, which are those of the next one.
  for (const absl::Status& status : rig.RunSessions(
           [](Session&, int) -> absl::Status { return absl::OkStatus(); })) {
    EXPECT_OK(status);
  }
  const uint64_t waits = fake_gpu_num_calls("cudaStreamWaitEvent");
  const uint64_t groups = fake_gpu_num_calls("ncclGroupStart");
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int rank) {
         return Trainer(step, &session, rank, &rig).Run(kSteps);
       })) {
    EXPECT_OK(status);
  }
  // Those of earlier steps are none in the first.
  uint64_t first = 0;
  for (const ComputeNode& node : plan.nodes) {
    for (const Wait& wait : node.waits) first += wait.distance == 0 ? 1 : 0;
  }
  for (const Launch& launch : plan.launches) {
    for (const Wait& wait : launch.waits) first += wait.distance == 0 ? 1 : 0;
  }
  EXPECT_EQ(fake_gpu_num_calls("cudaStreamWaitEvent") - waits,
            kRanks * (first + (kSteps - 1) * planned_waits));
  EXPECT_EQ(fake_gpu_num_calls("ncclGroupStart") - groups,
            kRanks * kSteps * plan.launches.size());
}

// Run-ahead is what bounds the events of a device.
TEST(CudaSessionsTest, TheHostIsAFewStepsAheadAtMost) {
  const ZeroStep step = MakeZeroStep();
  PlanOptions options;
  options.deterministic = true;
  GpuRig rig(kRanks, step.graph, options);
  std::atomic<bool> released{false};
  std::atomic<uint64_t> begun{0};
  std::thread releaser([&] {
    while (begun.load() < Program::kRunAhead) std::this_thread::yield();
    // Long enough for a host that does not wait.
    for (int i = 0; i < 20000; ++i) std::this_thread::yield();
    EXPECT_EQ(begun.load(), uint64_t{Program::kRunAhead});
    released = true;
  });
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int rank) -> absl::Status {
         Trainer trainer(step, &session, rank, &rig);
         if (rank != 0) return trainer.Run(10);
         test::RunOn(rig.lane(0, 0), [&] {
           while (!released) std::this_thread::yield();
         });
         for (int t = 0; t < 10; ++t) {
           RETURN_IF_ERROR(session.StepBegin());
           ++begun;
           for (const ComputeNode& node : session.plan().nodes) {
             Stream* const stream = rig.lane(rank, node.lane);
             RETURN_IF_ERROR(session.Before(node.op, stream));
             RETURN_IF_ERROR(trainer.Compute(node.op, stream));
             RETURN_IF_ERROR(session.After(node.op, stream));
           }
           RETURN_IF_ERROR(session.StepEnd());
         }
         return absl::OkStatus();
       })) {
    EXPECT_OK(status);
  }
  releaser.join();
  ExpectParameters(rig, step, 10);
}

TEST(CudaSessionsTest, MemoryOfTheHostIsRefused) {
  const ZeroStep step = MakeZeroStep();
  GpuRig rig(kRanks, step.graph, {});
  std::vector<float> host(kElements);
  for (const absl::Status& status : RunRanks(kRanks, [&](int rank) {
         SessionSpec spec = rig.Spec(rank);
         spec.bindings[1].address = host.data();
         return Session::Create(spec).status();
       })) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "session: buffer 'parameter1' is not memory of CUDA"));
  }
}

}  // namespace
}  // namespace commsched
