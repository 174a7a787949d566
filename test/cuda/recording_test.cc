// Recordings on stand-in devices.
#include "recording/recording.h"

#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completions.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/cuda/recording_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/recording/bound_rig.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BoundRank;
using test::DeviceModulesRank;
using test::DeviceWords;
using test::ExpectAllOk;
using test::FakeDevice;
using test::ModulesReference;
using test::ModulesSpec;
using test::RunDeviceModules;
using test::WorldOnDevices;

using Takes = ModulesReference::Takes;
constexpr Takes kNothing = {false, false, false};
constexpr int64_t kLongNs = int64_t{20} * 1000 * 1000 * 1000;
// Steps from one that deviates to the one whose end tells, on a device.
constexpr int kDistance = 4;

absl::Status Same(const DeviceModulesRank& rank,
                  const ModulesReference& reference, int modules) {
  for (int m = 0; m < modules; ++m) {
    const auto& weight = reference.weight(rank.rank(), m);
    const auto& grad = reference.grad(rank.rank(), m);
    if (rank.weight(m) == weight && rank.grad(m) == grad) continue;
    return absl::InternalError(
        absl::StrCat("rank ", rank.rank(), ", module ", m, ": weight ",
                     rank.weight(m)[0], ", expected ", weight[0], "; grad ",
                     rank.grad(m)[0], ", expected ", grad[0]));
  }
  return absl::OkStatus();
}

// Runs `steps` steps in which rank r takes part in module m of step t as
// `takes(t, r, m)` says, and compares at the end.
void RunAndCompare(
    const ModulesSpec& spec, int steps,
    const std::function<Takes(int, int, int)>& takes,
    const std::function<void(Recording&, int rank, int t)>& check =
        [](Recording&, int, int) {}) {
  ModulesReference reference(spec);
  for (int t = 0; t < steps; ++t) {
    for (int m = 0; m < spec.modules; ++m) {
      std::vector<Takes> of_rank;
      for (int r = 0; r < spec.ranks; ++r) of_rank.push_back(takes(t, r, m));
      reference.Step(m, t, of_rank);
    }
  }
  ExpectAllOk(
      RunDeviceModules(spec, [&](DeviceModulesRank& rank) -> absl::Status {
        Recording& recording = rank.recording();
        for (int t = 0; t < steps; ++t) {
          RETURN_IF_ERROR(recording.StepBegin());
          for (int m = 0; m < spec.modules; ++m) {
            const Takes now = takes(t, rank.rank(), m);
            if (now.backward) RETURN_IF_ERROR(rank.Backward(m, t));
            if (now.reduce) RETURN_IF_ERROR(rank.Reduce(m));
          }
          for (int m = 0; m < spec.modules; ++m) {
            const Takes now = takes(t, rank.rank(), m);
            if (now.optimize) RETURN_IF_ERROR(rank.Optimize(m));
          }
          RETURN_IF_ERROR(recording.StepEnd());
          check(recording, rank.rank(), t);
        }
        RETURN_IF_ERROR(recording.Drain());
        return Same(rank, reference, spec.modules);
      }));
}

Takes All(int, int, int) { return {}; }

class CudaRecordingTest : public testing::Test {
 protected:
  CudaRecordingTest() { fake_gpu_delay(17, 300); }
  ~CudaRecordingTest() override { fake_gpu_delay(0, 0); }
};

TEST_F(CudaRecordingTest, EqualStepsAreFrozenAndReplayed) {
  RunAndCompare({}, 12, All, [](Recording& recording, int, int t) {
    const RecordingInfo info = recording.info();
    EXPECT_EQ(info.phase,
              t < 1 ? RecordingPhase::kRecording : RecordingPhase::kFrozen);
    EXPECT_EQ(info.plans, t < 1 ? 0u : 1u);
    EXPECT_EQ(info.steps_deviating, 0u);
  });
}

// Of one thread of the program, while the device is at work.
TEST_F(CudaRecordingTest, CompletionsTellWhatTheDeviceHasDone) {
  constexpr int kSteps = 8;
  for (const bool by_caller : {false, true}) {
    std::vector<std::shared_ptr<Completions>> completions;
    ModulesSpec spec;
    for (int r = 0; r < spec.ranks; ++r) {
      completions.push_back(std::make_shared<Completions>(64));
    }
    spec.adjust = [&](RecordingSpec* recording) {
      recording->completions = completions[recording->world_rank];
      recording->by_caller = by_caller;
    };
    std::vector<ModulesReference> after(kSteps, ModulesReference(spec));
    for (int t = 0; t < kSteps; ++t) {
      if (t > 0) after[t] = after[t - 1];
      for (int m = 0; m < spec.modules; ++m) {
        after[t].Step(m, t, std::vector<Takes>(spec.ranks));
      }
    }
    ExpectAllOk(
        RunDeviceModules(spec, [&](DeviceModulesRank& rank) -> absl::Status {
          Recording& recording = rank.recording();
          for (int t = 0; t < kSteps; ++t) {
            RETURN_IF_ERROR(recording.StepBegin());
            for (int m = 0; m < spec.modules; ++m) {
              RETURN_IF_ERROR(rank.Backward(m, t));
              RETURN_IF_ERROR(rank.Reduce(m));
            }
            if (by_caller) {
              for (int m = 0; m < spec.modules; ++m) {
                RETURN_IF_ERROR(recording.Wait(rank.ar(m), kLongNs));
              }
            }
            for (int told = 0; !by_caller && told < spec.modules; ++told) {
              Completion out[1];
              EXPECT_EQ(
                  completions[rank.rank()]->Next(
                      out, DeadlineAfter(SystemClock::Get().NowNs(), kLongNs)),
                  1u);
              EXPECT_EQ(out[0].code, absl::StatusCode::kOk);
              EXPECT_EQ(out[0].request, t * spec.modules + told + 1);
              for (int m = 0; m < spec.modules; ++m) {
                if (rank.ar(m) != out[0].user) continue;
                EXPECT_EQ(rank.grad(m), after[t].grad(rank.rank(), m));
              }
            }
            for (int m = 0; m < spec.modules; ++m) {
              RETURN_IF_ERROR(rank.Optimize(m));
            }
            RETURN_IF_ERROR(recording.StepEnd());
          }
          RETURN_IF_ERROR(recording.Drain());
          Completion out[64];
          const size_t left =
              completions[rank.rank()]->Next(absl::MakeSpan(out), 0);
          EXPECT_EQ(left, by_caller ? kSteps * spec.modules : 0u);
          return absl::OkStatus();
        }));
  }
}

TEST_F(CudaRecordingTest, NothingIsLeftBehind) {
  const uint64_t streams = fake_gpu_num_streams();
  const uint64_t events = fake_gpu_num_events();
  const uint64_t bytes = fake_gpu_allocated_bytes();
  RunAndCompare({}, 6, All);
  EXPECT_EQ(fake_gpu_num_comms(), 0u);
  EXPECT_EQ(fake_gpu_num_streams(), streams);
  EXPECT_EQ(fake_gpu_num_events(), events);
  EXPECT_EQ(fake_gpu_allocated_bytes(), bytes);
}

// All members of launches of each way: alone, in lists, packed and in parts.
TEST_F(CudaRecordingTest, WhatOneRankLeavesOutIsZerosAndLeavesItsMemoryAlone) {
  const auto takes = [](int t, int rank, int m) -> Takes {
    const bool leaves_out = rank == 1 && (m == 0 || m == 2) && t >= 4 && t < 9;
    return leaves_out ? kNothing : Takes{};
  };
  for (const uint64_t coalesce_bytes : {0, 200, 1 << 20}) {
    for (const uint64_t partition_bytes : {0, 64}) {
      ModulesSpec spec;
      spec.count = 40;
      spec.coalesce_bytes = coalesce_bytes;
      spec.partition_bytes = partition_bytes;
      RunAndCompare(spec, 12, takes, [](Recording& recording, int rank, int t) {
        EXPECT_EQ(recording.info().collectives_left_out != 0,
                  rank == 1 && t >= 4);
      });
    }
  }
}

// Each step all of them are left out, one by one in launches of their own: the
// scratch memory of one is the next one's.
TEST_F(CudaRecordingTest, LaunchesOnTwoLanesThatAreLeftOutShareScratchMemory) {
  fake_gpu_delay(0, 0);
  fake_gpu_deterministic(5);
  fake_gpu_hosts_share(1);
  ModulesSpec spec;
  spec.ranks = 1;
  spec.modules = 6;
  spec.count = 500;
  spec.adjust = [](RecordingSpec* recording) {
    recording->options.num_comm_lanes = 2;
    GroupSpec other = recording->groups.front();
    other.axis = "tp";
    recording->groups.push_back(other);
  };
  RunAndCompare(spec, 8, [](int t, int, int) -> Takes {
    return t >= 2 && t % 2 == 0 ? kNothing : Takes{};
  });
  EXPECT_EQ(fake_gpu_races(), 0u) << fake_gpu_first_race();
  fake_gpu_deterministic(0);
}

TEST_F(CudaRecordingTest, AllRanksKnowOfADeviationAtTheEndOfTheSameStep) {
  constexpr int kDeviates = 4;
  RunAndCompare(
      {}, 20,
      [](int t, int rank, int m) {
        return t == kDeviates && rank == 2 && m == 1 ? kNothing : Takes{};
      },
      [](Recording& recording, int rank, int t) {
        if (t == 0) return;
        const RecordingInfo info = recording.info();
        const bool is_known = t >= kDeviates + kDistance;
        EXPECT_EQ(info.deviating_rank, is_known ? 2 : -1) << "step " << t;
        EXPECT_EQ(info.deviating_step, is_known ? kDeviates : 0u);
        const bool is_recording = is_known && t < kDeviates + kDistance + 2;
        EXPECT_EQ(info.phase, is_recording ? RecordingPhase::kRerecording
                                           : RecordingPhase::kFrozen)
            << "rank " << rank << ", step " << t;
        EXPECT_EQ(info.plans, 1u) << "the calls are the same as before";
      });
}

// What ranks said before they had recorded again is no reason to do it once
// more.
TEST_F(CudaRecordingTest, WhatIsRecordedAgainIsRecordedOnce) {
  RunAndCompare(
      {}, 40,
      [](int t, int rank, int m) {
        return t >= 4 && rank == 2 && m == 1 ? kNothing : Takes{};
      },
      [](Recording& recording, int, int t) {
        EXPECT_EQ(recording.info().rerecordings, t < 10 ? 0u : 1u)
            << "step " << t;
      });
}

TEST_F(CudaRecordingTest, ABranchThatNoRankTakesAnyMoreIsDropped) {
  RunAndCompare(
      {}, 20,
      [](int t, int, int m) { return t >= 5 && m == 3 ? kNothing : Takes{}; },
      [](Recording& recording, int, int t) {
        if (t < 19) return;
        EXPECT_EQ(recording.info().plans, 2u);
        EXPECT_EQ(recording.info().rerecordings, 1u);
      });
}

// As is the host, of events, streams and memory: those of plans alone.
TEST_F(CudaRecordingTest, AFrozenStepMakesNothing) {
  constexpr const char* kMakes[] = {"cudaEventCreateWithFlags",
                                    "cudaStreamCreateWithPriority",
                                    "cuMemAlloc",
                                    "cuMemHostAlloc",
                                    "cuMemFree",
                                    "cudaMemset"};
  const auto num_made = [&] {
    uint64_t num = 0;
    for (const char* call : kMakes) num += fake_gpu_num_calls(call);
    return num;
  };
  ModulesSpec spec;
  spec.ranks = 1;
  uint64_t made = 0;
  RunAndCompare(
      spec, 20,
      [](int t, int, int m) { return t == 7 && m == 1 ? kNothing : Takes{}; },
      [&](Recording&, int, int t) {
        if (t == 1) made = num_made();  // with the plan
        if (t > 1) {
          EXPECT_EQ(num_made(), made) << "step " << t;
        }
      });
}

TEST_F(CudaRecordingTest, AnotherThreadSeesTheResultOfWhatWasSubmitted) {
  ModulesSpec spec;
  ModulesReference reference(spec);
  std::vector<std::vector<std::vector<int32_t>>> expected;  // by step, module
  for (int t = 0; t < 8; ++t) {
    expected.emplace_back();
    for (int m = 0; m < spec.modules; ++m) {
      reference.Step(m, t, std::vector<Takes>(spec.ranks));
      expected[t].push_back(reference.grad(0, m));
    }
  }
  ExpectAllOk(
      RunDeviceModules(spec, [&](DeviceModulesRank& rank) -> absl::Status {
        Recording& recording = rank.recording();
        for (int t = 0; t < 8; ++t) {
          RETURN_IF_ERROR(recording.StepBegin());
          for (int m = 0; m < spec.modules; ++m) {
            RETURN_IF_ERROR(rank.Backward(m, t));
            RETURN_IF_ERROR(rank.Reduce(m));
            absl::Status waited;
            bool is_equal = false;
            std::thread([&] {
              waited = recording.Wait(rank.ar(m), kLongNs);
              is_equal = rank.grad(m) == expected[t][m];
            }).join();
            RETURN_IF_ERROR(waited);
            EXPECT_TRUE(is_equal) << "module " << m << ", step " << t;
          }
          for (int m = 0; m < spec.modules; ++m) {
            RETURN_IF_ERROR(rank.Optimize(m));
          }
          RETURN_IF_ERROR(recording.StepEnd());
        }
        return recording.Drain();
      }));
}

// All four reductions are one launch.
TEST_F(CudaRecordingTest, AWaitEndsAtItsDeadlineAndNamesWhatIsYetToBeCalled) {
  ModulesSpec spec;
  spec.coalesce_bytes = 1 << 20;
  ExpectAllOk(
      RunDeviceModules(spec, [&](DeviceModulesRank& rank) -> absl::Status {
        Recording& recording = rank.recording();
        for (int t = 0; t < 2; ++t) RETURN_IF_ERROR(rank.Step(t));
        RETURN_IF_ERROR(recording.StepBegin());
        RETURN_IF_ERROR(rank.Backward(0, 2));
        RETURN_IF_ERROR(rank.Reduce(0));
        EXPECT_THAT(recording.Wait(rank.ar(0), 2'000'000),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             "that the program has yet to call"));
        for (int m = 1; m < spec.modules; ++m) {
          RETURN_IF_ERROR(rank.Backward(m, 2));
          RETURN_IF_ERROR(rank.Reduce(m));
        }
        EXPECT_OK(recording.Wait(rank.ar(0), kLongNs));
        for (int m = 0; m < spec.modules; ++m) {
          RETURN_IF_ERROR(rank.Optimize(m));
        }
        RETURN_IF_ERROR(recording.StepEnd());
        return recording.Drain();
      }));
}

// ---- Progress of the caller ----

ModulesSpec ByCaller(ModulesSpec spec) {
  spec.adjust = [](RecordingSpec* recording) { recording->by_caller = true; };
  return spec;
}

TEST_F(CudaRecordingTest, ProgressOfTheCallerNeedsNoThread) {
  const int before = test::NumProgressThreads();
  RunAndCompare(
      ByCaller({}), 14,
      [](int t, int rank, int m) {
        return t == 5 && rank == 1 && m == 1 ? kNothing : Takes{};
      },
      [&](Recording&, int, int) {
        EXPECT_EQ(test::NumProgressThreads(), before);
      });
}

// Rank 0 waits for a rank that calls nothing any more.
TEST_F(CudaRecordingTest, WhoDrivesFindsTheDeadline) {
  ModulesSpec spec;
  spec.ranks = 2;
  spec.launch_timeout_ns = 300'000'000;
  std::latch over(1);
  const auto statuses = RunDeviceModules(
      ByCaller(spec), [&](DeviceModulesRank& rank) -> absl::Status {
        for (int t = 0; t < 4; ++t) RETURN_IF_ERROR(rank.Step(t));
        RETURN_IF_ERROR(rank.recording().Drain());
        if (rank.rank() == 0) {
          absl::Status status = rank.Step(4);
          if (status.ok()) status = rank.recording().Drain();
          over.count_down();
          return status;
        }
        over.wait();
        const absl::Status status = rank.Step(4);
        return status.ok() ? rank.recording().Drain() : status;
      });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    "is not complete on rank 0"));
  EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    "is not complete on rank 0"));
}

// ---- Memory that moves, declarations that change ----

constexpr uint64_t kCount = 70;

std::vector<int32_t> Filled(int step, int rank) {
  std::vector<int32_t> words(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    words[i] = static_cast<int32_t>(1000 * step + 100 * rank + i);
  }
  return words;
}

std::vector<int32_t> SumOf(int step, const std::vector<bool>& takes) {
  std::vector<int32_t> sum(kCount);
  for (size_t r = 0; r < takes.size(); ++r) {
    const std::vector<int32_t> of_rank = Filled(step, static_cast<int>(r));
    for (size_t i = 0; takes[r] && i < kCount; ++i) sum[i] += of_rank[i];
  }
  return sum;
}

absl::Status Submit(BoundRank* self, uint32_t op, BufferId buffer,
                    const DeviceWords& memory) {
  return self->recording->Submit(
      op, {{buffer, memory.address(), memory.count(), {}}});
}

// Also as one member of a launch of two. Each step has memory of its own, which
// goes when the collective is complete.
TEST_F(CudaRecordingTest, EachSubmitReducesTheMemoryItBindsOrZeros) {
  for (const uint64_t coalesce_bytes : {0, 1 << 20}) {
    ExpectAllOk(test::RunBoundIn(
        WorldOnDevices(3),
        [](BoundRank& self) -> absl::Status {
          Recording& recording = *self.recording;
          const std::shared_ptr<Device> device = FakeDevice(self.rank);
          ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
          ASSIGN_OR_RETURN(const BufferId other, self.Late("other", kCount));
          ASSIGN_OR_RETURN(
              const uint32_t ar,
              self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
          ASSIGN_OR_RETURN(
              const uint32_t br,
              self.Collective("br", CollectiveKind::kAllReduce, other, other));
          for (int t = 0; t < 24; ++t) {
            const bool deviates = t >= 5 && t < 8;
            const bool takes = !deviates || self.rank != 1;
            DeviceWords a(device, kCount), b(device, kCount);
            a.Write(Filled(t, self.rank));
            b.Write(Filled(t + 1000, self.rank));
            RETURN_IF_ERROR(recording.StepBegin());
            if (takes) {
              RETURN_IF_ERROR(Submit(&self, ar, grad, a));
            }
            RETURN_IF_ERROR(Submit(&self, br, other, b));
            RETURN_IF_ERROR(recording.StepEnd());
            RETURN_IF_ERROR(recording.BufferRelease(grad, CallerStream()));
            RETURN_IF_ERROR(recording.BufferRelease(other, CallerStream()));
            EXPECT_EQ(a.Read(), takes ? SumOf(t, {true, !deviates, true})
                                      : Filled(t, self.rank))
                << "step " << t << ", rank " << self.rank;
            EXPECT_EQ(b.Read(), SumOf(t + 1000, {true, true, true}))
                << "step " << t;
          }
          EXPECT_EQ(recording.info().collectives_left_out,
                    self.rank == 1 ? 3u : 0u);
          return recording.Drain();
        },
        [&](RecordingSpec* spec) {
          spec->options.coalesce_bytes = coalesce_bytes;
        }));
  }
}

TEST_F(CudaRecordingTest, AProgramIsDeclaredAnewAndItsMemoryMoves) {
  ExpectAllOk(
      test::RunBoundIn(WorldOnDevices(2), [](BoundRank& self) -> absl::Status {
        Recording& recording = *self.recording;
        const std::shared_ptr<Device> device = FakeDevice(self.rank);
        auto memory = std::make_unique<DeviceWords>(device, kCount);
        const auto declare = [&](const std::string& name, BufferId* buffer,
                                 uint32_t* op) -> absl::Status {
          ASSIGN_OR_RETURN(*buffer,
                           self.AddBuffer(name, kCount, Ownership::kBound,
                                          memory->address()));
          ASSIGN_OR_RETURN(
              *op, self.Collective("reduce " + name, CollectiveKind::kAllReduce,
                                   *buffer, *buffer));
          return absl::OkStatus();
        };
        BufferId buffer;
        uint32_t op = 0;
        RETURN_IF_ERROR(declare("first", &buffer, &op));
        for (int t = 0; t < 24; ++t) {
          if (t == 1 || t == 9) {
            RETURN_IF_ERROR(recording.RemoveOp(op));
            RETURN_IF_ERROR(recording.RemoveBuffer(buffer));
            RETURN_IF_ERROR(recording.Drain());
            RETURN_IF_ERROR(declare(absl::StrCat("of ", t), &buffer, &op));
          }
          if (t == 16) {
            auto moved = std::make_unique<DeviceWords>(device, kCount);
            RETURN_IF_ERROR(recording.MoveBuffer(buffer, moved->address()));
            RETURN_IF_ERROR(recording.Drain());
            memory.swap(moved);
          }
          memory->Write(Filled(t, self.rank));
          RETURN_IF_ERROR(recording.StepBegin());
          RETURN_IF_ERROR(recording.Submit(op));
          RETURN_IF_ERROR(recording.StepEnd());
          RETURN_IF_ERROR(recording.Drain());
          EXPECT_EQ(memory->Read(), SumOf(t, {true, true})) << "step " << t;
        }
        EXPECT_EQ(recording.info().plans, 3u);
        EXPECT_EQ(recording.info().steps_deviating, 0u);
        return absl::OkStatus();
      }));
}

TEST_F(CudaRecordingTest, MemoryOfTheHostIsRefused) {
  ExpectAllOk(
      test::RunBoundIn(WorldOnDevices(1), [](BoundRank& self) -> absl::Status {
        std::vector<int32_t> memory(kCount);
        EXPECT_THAT(
            self.AddBuffer("grad", kCount, Ownership::kBound, memory.data())
                .status(),
            StatusIs(absl::StatusCode::kInvalidArgument,
                     "recording: buffer 'grad' is not memory of CUDA device 0 "
                     "but of the host"));
        ASSIGN_OR_RETURN(const BufferId late, self.Late("late", kCount));
        ASSIGN_OR_RETURN(
            const uint32_t ar,
            self.Collective("ar", CollectiveKind::kAllReduce, late, late));
        RETURN_IF_ERROR(self.recording->StepBegin());
        EXPECT_THAT(self.Submit(ar, late, &memory),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             "submit: late-bound buffer 'late' is not memory "
                             "of CUDA device 0 but of the host"));
        return absl::OkStatus();
      }));
}

TEST_F(CudaRecordingTest, AStreamOfTheHostIsRefused) {
  const auto worker = HostStream::Create("worker", 16).value();
  const auto statuses = test::RunBoundIn(
      WorldOnDevices(1), [](BoundRank&) { return absl::OkStatus(); },
      [&](RecordingSpec* spec) { spec->lanes = {worker.get()}; });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "recording: lane 0 is a HOST stream, but backend "
                       "'nccl' works on CUDA device 0"));
}

// ---- Failures ----

// One rank aborts when the others have enqueued what it does not.
TEST_F(CudaRecordingTest, AnAbortOfAFrozenStepEndsTheKernelsOfAll) {
  const auto statuses =
      RunDeviceModules({}, [&](DeviceModulesRank& rank) -> absl::Status {
        for (int t = 0; t < 6; ++t) RETURN_IF_ERROR(rank.Step(t));
        RETURN_IF_ERROR(rank.recording().Drain());
        if (rank.rank() == 1) {
          rank.recording().Abort("enough");
          return rank.recording().status();
        }
        absl::Status status;
        for (int t = 6; t < 200 && status.ok(); ++t) status = rank.Step(t);
        return status;
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
  }
}

TEST_F(CudaRecordingTest, AnAbortOfARecordedStepEndsTheMeetingOfAll) {
  std::latch ended(ModulesSpec{}.ranks);
  const auto statuses =
      RunDeviceModules({}, [&](DeviceModulesRank& rank) -> absl::Status {
        const absl::Status first = rank.Step(0);
        ended.arrive_and_wait();  // Nobody is in that step any more.
        RETURN_IF_ERROR(first);
        if (rank.rank() == 1) {
          rank.recording().Abort("enough");
          return rank.recording().status();
        }
        return rank.Step(1);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "enough"));
  }
}

TEST_F(CudaRecordingTest, ALaunchThatFailsWhileRecordingFailsAllRanks) {
  ModulesSpec spec;
  spec.ranks = 2;
  const auto statuses =
      RunDeviceModules(spec, [&](DeviceModulesRank& rank) -> absl::Status {
        RETURN_IF_ERROR(rank.recording().StepBegin());
        RETURN_IF_ERROR(rank.Backward(0, 0));
        if (rank.rank() == 0) {
          fake_gpu_fail("ncclAllReduce", 1, /*ncclInternalError*/ 3);
        }
        return rank.Reduce(0);
      });
  fake_gpu_fail("", 0, 0);
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "ncclAllReduce"));
  }
}

// Each step, each rank leaves out what it likes.
TEST_F(CudaRecordingTest, AnyDeviationGivesWhatSequentialRanksGet) {
  const int cases = test::PropertyCases(6);
  for (int k = 0; k < cases; ++k) {
    const uint64_t seed = test::PropertySeed() + k;
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    ModulesSpec spec;
    spec.ranks = 2 + static_cast<int>(random() % 2);
    spec.modules = 2 + static_cast<int>(random() % 4);
    spec.alternative = true;
    spec.segments = 1 + static_cast<uint32_t>(random() % 2);
    spec.coalesce_bytes = random() % 3 == 0 ? 0 : 64 << (random() % 8);
    if (random() % 4 == 0) spec.partition_bytes = 16;
    const uint64_t rarely = 2 + random() % 6;
    const int steps = 24;
    std::vector<Takes> takes;  // by step, rank and module
    for (int t = 0; t < steps; ++t) {
      for (int r = 0; r < spec.ranks; ++r) {
        const bool deviates = t >= 2 && random() % rarely == 0;
        for (int m = 0; m < spec.modules; ++m) {
          Takes each;
          if (deviates && random() % 3 == 0) each.backward = false;
          if (deviates && random() % 3 == 0) each.reduce = false;
          if (deviates && random() % 3 == 0) each.optimize = false;
          takes.push_back(each);
        }
      }
    }
    RunAndCompare(spec, steps, [&](int t, int r, int m) {
      return takes[static_cast<size_t>((t * spec.ranks + r) * spec.modules +
                                       m)];
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace commsched
