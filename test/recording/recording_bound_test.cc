// Collectives on memory that moves from step to step.
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/recording/bound_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/surprises.h"

namespace commsched {
namespace {

using test::BoundRank;
using test::ExpectAllOk;
using test::RunBound;

constexpr uint64_t kCount = 6;

std::vector<int32_t> Filled(int step, int rank, uint64_t count = kCount) {
  std::vector<int32_t> memory(count);
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] =
        static_cast<int32_t>(100 * step + 10 * rank + 1 + static_cast<int>(i));
  }
  return memory;
}

// The sum over the ranks that `takes` part in step `step`.
std::vector<int32_t> SumOf(int step, const std::vector<bool>& takes,
                           uint64_t count = kCount) {
  std::vector<int32_t> sum(count);
  for (size_t r = 0; r < takes.size(); ++r) {
    const std::vector<int32_t> of_rank =
        Filled(step, static_cast<int>(r), count);
    for (size_t i = 0; takes[r] && i < count; ++i) sum[i] += of_rank[i];
  }
  return sum;
}

TEST(RecordingBoundTest, EachSubmitReducesTheMemoryItBinds) {
  ExpectAllOk(RunBound(3, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
    ASSIGN_OR_RETURN(
        const uint32_t ar,
        self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
    std::vector<std::vector<int32_t>> memory;  // of every step
    memory.reserve(20);
    for (int t = 0; t < 20; ++t) {
      memory.push_back(Filled(t, self.rank));
      RETURN_IF_ERROR(recording.StepBegin());
      RETURN_IF_ERROR(self.Submit(ar, grad, &memory.back()));
      RETURN_IF_ERROR(self.Wait(ar));
      EXPECT_EQ(memory.back(), SumOf(t, {true, true, true})) << "step " << t;
      RETURN_IF_ERROR(recording.StepEnd());
    }
    for (int t = 0; t < 20; ++t) {
      EXPECT_EQ(memory[t], SumOf(t, {true, true, true})) << "step " << t;
    }
    EXPECT_EQ(recording.info().plans, 1u);
    EXPECT_EQ(recording.info().steps_deviating, 0u);
    return recording.Drain();
  }));
}

TEST(RecordingBoundTest, SubmissionsOfOneStepHaveMemoryOfTheirOwn) {
  for (const uint64_t coalesce_bytes : {0, 1 << 20}) {
    ExpectAllOk(RunBound(
        2,
        [](BoundRank& self) -> absl::Status {
          Recording& recording = *self.recording;
          ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
          ASSIGN_OR_RETURN(const BufferId other, self.Late("other", kCount));
          ASSIGN_OR_RETURN(
              const uint32_t ar,
              self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
          ASSIGN_OR_RETURN(
              const uint32_t br,
              self.Collective("br", CollectiveKind::kAllReduce, other, other));
          for (int t = 0; t < 8; ++t) {
            std::vector<int32_t> a = Filled(t, self.rank);
            std::vector<int32_t> b = Filled(t + 1000, self.rank);
            std::vector<int32_t> c = Filled(t + 2000, self.rank);
            RETURN_IF_ERROR(recording.StepBegin());
            RETURN_IF_ERROR(self.Submit(ar, grad, &a));
            RETURN_IF_ERROR(self.Submit(br, other, &b));
            RETURN_IF_ERROR(self.Submit(ar, grad, &c));
            RETURN_IF_ERROR(recording.StepEnd());
            RETURN_IF_ERROR(recording.BufferRelease(grad, CallerStream()));
            RETURN_IF_ERROR(recording.BufferRelease(other, CallerStream()));
            EXPECT_EQ(a, SumOf(t, {true, true})) << "step " << t;
            EXPECT_EQ(b, SumOf(t + 1000, {true, true})) << "step " << t;
            EXPECT_EQ(c, SumOf(t + 2000, {true, true})) << "step " << t;
          }
          return recording.Drain();
        },
        [&](RecordingSpec* spec) {
          spec->options.coalesce_bytes = coalesce_bytes;
        }));
  }
}

TEST(RecordingBoundTest, OpsThatReadTheBufferWaitForTheResult) {
  ExpectAllOk(RunBound(3, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
    ASSIGN_OR_RETURN(const uint32_t bwd,
                     self.Compute("bwd", {{grad, AccessMode::kReadWrite, {}}}));
    ASSIGN_OR_RETURN(
        const uint32_t ar,
        self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
    ASSIGN_OR_RETURN(const uint32_t opt,
                     self.Compute("opt", {{grad, AccessMode::kRead, {}}}));
    for (int t = 0; t < 8; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      RETURN_IF_ERROR(recording.Before(bwd, CallerStream()));
      std::vector<int32_t> memory = Filled(t, self.rank);
      RETURN_IF_ERROR(recording.After(bwd, CallerStream()));
      RETURN_IF_ERROR(self.Submit(ar, grad, &memory));
      RETURN_IF_ERROR(recording.Before(opt, CallerStream()));
      EXPECT_EQ(memory, SumOf(t, {true, true, true})) << "step " << t;
      RETURN_IF_ERROR(recording.After(opt, CallerStream()));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    return recording.Drain();
  }));
}

// Also as one member of a launch of two.
TEST(RecordingBoundTest, LeftOutItAddsZerosAndTouchesNoMemoryOfThatRank) {
  for (const uint64_t coalesce_bytes : {0, 1 << 20}) {
    ExpectAllOk(RunBound(
        3,
        [](BoundRank& self) -> absl::Status {
          Recording& recording = *self.recording;
          ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
          ASSIGN_OR_RETURN(const BufferId other, self.Late("other", kCount));
          ASSIGN_OR_RETURN(
              const uint32_t ar,
              self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
          ASSIGN_OR_RETURN(
              const uint32_t br,
              self.Collective("br", CollectiveKind::kAllReduce, other, other));
          std::vector<int32_t> before;  // what was bound last
          for (int t = 0; t < 12; ++t) {
            const bool deviates = t == 5 || t == 6;
            const bool takes = !deviates || self.rank != 1;
            std::vector<int32_t> a = Filled(t, self.rank);
            std::vector<int32_t> b = Filled(t + 1000, self.rank);
            const std::vector<int32_t> stale = before;
            RETURN_IF_ERROR(recording.StepBegin());
            if (takes) {
              RETURN_IF_ERROR(self.Submit(ar, grad, &a));
            }
            RETURN_IF_ERROR(self.Submit(br, other, &b));
            RETURN_IF_ERROR(recording.StepEnd());
            RETURN_IF_ERROR(recording.BufferRelease(grad, CallerStream()));
            RETURN_IF_ERROR(recording.BufferRelease(other, CallerStream()));
            EXPECT_EQ(a, takes ? SumOf(t, {true, !deviates, true})
                               : Filled(t, self.rank))
                << "step " << t << ", rank " << self.rank;
            EXPECT_EQ(b, SumOf(t + 1000, {true, true, true})) << "step " << t;
            EXPECT_EQ(before, stale);
            if (takes) before.swap(a);
          }
          if (self.rank == 1) {
            EXPECT_EQ(recording.info().collectives_left_out, 2u);
          }
          return recording.Drain();
        },
        [&](RecordingSpec* spec) {
          spec->options.coalesce_bytes = coalesce_bytes;
        }));
  }
}

TEST(RecordingBoundTest, CountsMayBeToldAtEachSubmit) {
  ExpectAllOk(RunBound(2, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
    ASSIGN_OR_RETURN(const BufferId from, self.Late("from", kCount));
    ASSIGN_OR_RETURN(const BufferId to, self.Late("to", kCount));
    ASSIGN_OR_RETURN(const uint32_t ar,
                     self.Collective("ar", CollectiveKind::kAllReduce, grad,
                                     grad, {.tells_counts = true}));
    ASSIGN_OR_RETURN(const uint32_t experts,
                     self.Collective("experts", CollectiveKind::kAllToAll, from,
                                     to, {.tells_counts = true}, {3, 3, 3, 3}));
    for (int t = 0; t < 9; ++t) {
      const auto count = static_cast<uint64_t>(1 + t % 6);
      std::vector<int32_t> memory = Filled(t, self.rank, count);
      // Rank r sends 1 + (t + r) % 3 elements to itself, 2 to the other.
      const uint64_t n0 = 1 + t % 3, n1 = 1 + (t + 1) % 3;
      const std::vector<uint64_t> counts = {n0, 2, 2, n1};
      const uint64_t own = self.rank == 0 ? n0 : n1;
      std::vector<int32_t> sent = Filled(t, self.rank, own + 2);
      std::vector<int32_t> got(own + 2);
      RETURN_IF_ERROR(recording.StepBegin());
      RETURN_IF_ERROR(self.Submit(ar, grad, &memory));
      RETURN_IF_ERROR(
          recording.Submit(experts, {{from, sent.data(), sent.size(), counts},
                                     {to, got.data(), got.size(), counts}}));
      RETURN_IF_ERROR(self.Wait(ar));
      RETURN_IF_ERROR(self.Wait(experts));
      EXPECT_EQ(memory, SumOf(t, {true, true}, count)) << "step " << t;
      // Own part first on rank 0, last on rank 1.
      const std::vector<int32_t> theirs =
          Filled(t, 1 - self.rank, (self.rank == 0 ? n1 : n0) + 2);
      std::vector<int32_t> expected;
      if (self.rank == 0) {
        expected.assign(sent.begin(), sent.begin() + static_cast<int>(n0));
        expected.insert(expected.end(), theirs.begin(), theirs.begin() + 2);
      } else {
        expected.assign(theirs.end() - 2, theirs.end());
        expected.insert(expected.end(), sent.begin() + 2, sent.end());
      }
      EXPECT_EQ(got, expected) << "step " << t << ", rank " << self.rank;
      RETURN_IF_ERROR(recording.StepEnd());
    }
    EXPECT_EQ(recording.info().plans, 1u);
    return recording.Drain();
  }));
}

TEST(RecordingBoundTest, WhatTellsItsCountsCannotBeLeftOut) {
  ExpectAllOk(RunBound(2, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
    ASSIGN_OR_RETURN(const uint32_t ar,
                     self.Collective("ar", CollectiveKind::kAllReduce, grad,
                                     grad, {.tells_counts = true}));
    for (int t = 0; t < 6; ++t) {
      std::vector<int32_t> memory = Filled(t, self.rank, 3);
      RETURN_IF_ERROR(recording.StepBegin());
      if (t == 4 && self.rank == 1) {
        EXPECT_THAT(
            recording.StepEnd(),
            StatusIs(absl::StatusCode::kFailedPrecondition,
                     "collective 'ar' has not been submitted in step 4 of rank "
                     "1, and cannot go without its data"));
      }
      RETURN_IF_ERROR(self.Submit(ar, grad, &memory));
      RETURN_IF_ERROR(recording.StepEnd());
      RETURN_IF_ERROR(recording.BufferRelease(grad, CallerStream()));
      EXPECT_EQ(memory, SumOf(t, {true, true}, 3)) << "step " << t;
    }
    return recording.Drain();
  }));
}

TEST(RecordingBoundTest, RanksThatTellOtherCountsAreNamedWhileRecording) {
  const std::vector<absl::Status> ended =
      RunBound(2, [](BoundRank& self) -> absl::Status {
        ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
        ASSIGN_OR_RETURN(const uint32_t ar,
                         self.Collective("ar", CollectiveKind::kAllReduce, grad,
                                         grad, {.tells_counts = true}));
        std::vector<int32_t> memory(self.rank == 0 ? 3 : 4);
        RETURN_IF_ERROR(self.recording->StepBegin());
        return self.Submit(ar, grad, &memory);
      });
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "'ar' of 3 elements"));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "'ar' of 4 elements"));
  }
}

// While recording, and frozen: each refusal changes nothing.
TEST(RecordingBoundTest, SubmitsWithOtherBindingsAreRefused) {
  ExpectAllOk(RunBound(1, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    std::vector<int32_t> fixed(kCount);
    ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
    ASSIGN_OR_RETURN(
        const BufferId bound,
        self.AddBuffer("bound", kCount, Ownership::kBound, fixed.data()));
    ASSIGN_OR_RETURN(
        const uint32_t ar,
        self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
    ASSIGN_OR_RETURN(
        const uint32_t br,
        self.Collective("br", CollectiveKind::kAllReduce, bound, bound));
    std::vector<int32_t> memory(kCount);
    const auto refuses = [&](uint32_t op, std::vector<LateBinding> late,
                             absl::StatusCode code, const std::string& why) {
      EXPECT_THAT(recording.Submit(op, late), StatusIs(code, why));
    };
    constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
    int32_t* const at = memory.data();
    for (int t = 0; t < 5; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      refuses(ar, {}, absl::StatusCode::kFailedPrecondition,
              "'ar' uses late-bound buffer 'grad' and must bind it");
      refuses(ar, {{bound, at, kCount, {}}}, kInvalid,
              "'ar' binds buffer 1, which it does not use late-bound");
      refuses(ar, {{BufferId(7), at, kCount, {}}}, kInvalid,
              "'ar' binds buffer 7, which it does not use late-bound");
      refuses(ar, {{grad, at, kCount, {}}, {grad, at, kCount, {}}}, kInvalid,
              "'grad' 2 times");
      refuses(ar, {{grad, nullptr, kCount, {}}}, kInvalid, "to NULL");
      refuses(ar, {{grad, at, 3, {}}}, kInvalid,
              "'grad' to 3 elements; it was declared with 6");
      refuses(ar, {{grad, fixed.data(), kCount, {}}}, kInvalid,
              "'grad' overlaps buffer 'bound'");
      refuses(br, {{bound, at, kCount, {}}}, kInvalid,
              "'br' uses no late-bound buffer");
      RETURN_IF_ERROR(self.Submit(ar, grad, &memory));
      RETURN_IF_ERROR(recording.Submit(br));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    EXPECT_EQ(recording.info().steps_deviating, 0u);
    EXPECT_THAT(recording.BufferRelease(BufferId(9), CallerStream()),
                StatusIs(absl::StatusCode::kNotFound, "buffer 9"));
    return recording.Drain();
  }));
}

TEST(RecordingBoundTest, WhatCannotBeBoundAtSubmitIsNotDeclared) {
  ExpectAllOk(RunBound(1, [](BoundRank& self) -> absl::Status {
    std::vector<int32_t> fixed(kCount);
    ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
    ASSIGN_OR_RETURN(
        const BufferId bound,
        self.AddBuffer("bound", kCount, Ownership::kBound, fixed.data()));
    const auto refuses = [&](BufferId buffer, RecordedCollective how,
                             const std::string& why) {
      EXPECT_THAT(
          self.Collective("x", CollectiveKind::kAllReduce, buffer, buffer, how),
          StatusIs(absl::StatusCode::kInvalidArgument, why));
    };
    refuses(grad, {.early = true}, "'x' is EARLY");
    refuses(bound, {.tells_counts = true}, "'x' tells its COUNTS, but uses no");
    refuses(grad, {.alternative = true, .tells_counts = true},
            "cannot be an ALTERNATIVE");
    EXPECT_THAT(
        self.AddBuffer("y", kCount, Ownership::kLateBound, fixed.data()),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 "'y' is LATE_BOUND, but has an address"));
    EXPECT_THAT(self.AddBuffer("z", kCount, Ownership::kOwned, fixed.data()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "'z' is OWNED, not BOUND or LATE_BOUND"));
    return absl::OkStatus();
  }));
}

// Both reductions are one launch.
TEST(RecordingBoundTest, MemoryOfALaunchThatIsNotDueIsNotReleased) {
  ExpectAllOk(RunBound(
      2,
      [](BoundRank& self) -> absl::Status {
        Recording& recording = *self.recording;
        ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
        ASSIGN_OR_RETURN(const BufferId other, self.Late("other", kCount));
        ASSIGN_OR_RETURN(
            const uint32_t ar,
            self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
        ASSIGN_OR_RETURN(
            const uint32_t br,
            self.Collective("br", CollectiveKind::kAllReduce, other, other));
        for (int t = 0; t < 6; ++t) {
          std::vector<int32_t> a = Filled(t, self.rank);
          std::vector<int32_t> b = Filled(t, self.rank);
          RETURN_IF_ERROR(recording.StepBegin());
          RETURN_IF_ERROR(self.Submit(ar, grad, &a));
          const absl::Status early =
              recording.BufferRelease(grad, CallerStream());
          if (recording.info().plans == 0) {
            EXPECT_OK(early);
          } else {
            EXPECT_THAT(early,
                        StatusIs(absl::StatusCode::kUnavailable,
                                 "collective 'ar', which uses buffer 'grad'"));
          }
          RETURN_IF_ERROR(self.Submit(br, other, &b));
          RETURN_IF_ERROR(recording.BufferRelease(grad, CallerStream()));
          EXPECT_EQ(a, SumOf(t, {true, true})) << "step " << t;
          RETURN_IF_ERROR(recording.StepEnd());
          RETURN_IF_ERROR(recording.BufferRelease(other, CallerStream()));
        }
        return recording.Drain();
      },
      [](RecordingSpec* spec) { spec->options.coalesce_bytes = 1 << 20; }));
}

// Its launch is on no memory, and yet somebody may wait for it.
TEST(RecordingBoundTest, ABarrierBindsNothingAndCanBeWaitedFor) {
  ExpectAllOk(RunBound(2, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    ASSIGN_OR_RETURN(const uint32_t barrier,
                     self.Collective("barrier", CollectiveKind::kBarrier,
                                     BufferId(), BufferId()));
    for (int t = 0; t < 6; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      RETURN_IF_ERROR(recording.Submit(barrier));
      RETURN_IF_ERROR(self.Wait(barrier));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    EXPECT_EQ(recording.info().plans, 1u);
    return recording.Drain();
  }));
}

TEST(RecordingBoundTest, AFrozenSubmitAllocatesNothing) {
  test::Surprises begin, end;
  const auto statuses = RunBound(2, [&](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    ASSIGN_OR_RETURN(const BufferId grad, self.Late("grad", kCount));
    ASSIGN_OR_RETURN(
        const uint32_t ar,
        self.Collective("ar", CollectiveKind::kAllReduce, grad, grad));
    std::vector<int32_t> memory[3];
    for (std::vector<int32_t>& one : memory) one.resize(kCount);
    for (int t = 0; t < 120; ++t) {
      if (t == 10 && self.rank == 0) begin = test::Surprises();
      if (t == 110 && self.rank == 0) end = test::Surprises();
      RETURN_IF_ERROR(recording.StepBegin());
      RETURN_IF_ERROR(self.Submit(ar, grad, &memory[t % 3]));
      RETURN_IF_ERROR(self.Wait(ar));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    return recording.Drain();
  });
  for (const absl::Status& status : statuses) ASSERT_OK(status);
  test::ExpectNoneBetween(begin, end);
}

}  // namespace
}  // namespace commsched
