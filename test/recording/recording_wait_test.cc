// Threads that wait for a collective beside the program, and who drives.
#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/recording/recording_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ExpectAllOk;
using test::ModulesRank;
using test::ModulesReference;
using test::ModulesSpec;
using test::NumProgressThreads;
using test::RunModules;

constexpr int64_t kLongNs = int64_t{20} * 1000 * 1000 * 1000;

ModulesSpec ByCaller(ModulesSpec spec) {
  spec.adjust = [](RecordingSpec* recording) { recording->by_caller = true; };
  return spec;
}

// In each step another thread waits for each reduction, and compares what is
// there with the sequential sum before the program goes on.
void RunAndWait(const ModulesSpec& spec) {
  constexpr int kSteps = 8;
  using Grads = std::vector<std::vector<int32_t>>;
  std::vector<std::vector<Grads>> expected;  // by step and rank
  ModulesReference reference(spec);
  for (int t = 0; t < kSteps; ++t) {
    expected.emplace_back(spec.ranks);
    for (int m = 0; m < spec.modules; ++m) {
      reference.Step(m, t, std::vector<ModulesReference::Takes>(spec.ranks));
      for (int r = 0; r < spec.ranks; ++r) {
        expected[t][r].push_back(reference.grad(r, m));
      }
    }
  }
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < kSteps; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      for (int m = 0; m < spec.modules; ++m) {
        RETURN_IF_ERROR(rank.Backward(m, t));
        RETURN_IF_ERROR(rank.Reduce(m));
        absl::Status waited;
        bool equal = false;
        std::thread([&] {
          waited = recording.Wait(rank.ar(m), kLongNs);
          equal = rank.grad(m) == expected[t][rank.rank()][m];
        }).join();
        RETURN_IF_ERROR(waited);
        EXPECT_TRUE(equal) << "module " << m << ", step " << t;
      }
      for (int m = 0; m < spec.modules; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(recording.StepEnd());
    }
    EXPECT_EQ(recording.info().plans, 1u);
    return recording.Drain();
  }));
}

TEST(RecordingWaitTest, AnotherThreadSeesTheResultOfWhatWasSubmitted) {
  RunAndWait({});
}

TEST(RecordingWaitTest, AThreadThatWaitsDrivesWhereProgressIsTheCallers) {
  RunAndWait(ByCaller({}));
}

TEST(RecordingWaitTest, WhatWasNotSubmittedIsNamed) {
  ExpectAllOk(RunModules({}, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    EXPECT_THAT(recording.Wait(rank.ar(0), 0),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "collective 'ar.0': no step has begun"));
    for (int t = 0; t < 4; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      EXPECT_THAT(
          recording.Wait(rank.ar(1), kLongNs),
          StatusIs(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("collective 'ar.1' has not been submitted in "
                                "step ",
                                t)));
      for (int m = 0; m < 4; ++m) {
        RETURN_IF_ERROR(rank.Backward(m, t));
        RETURN_IF_ERROR(rank.Reduce(m));
      }
      for (int m = 0; m < 4; ++m) RETURN_IF_ERROR(rank.Optimize(m));
      RETURN_IF_ERROR(recording.StepEnd());
      EXPECT_OK(recording.Wait(rank.ar(1), kLongNs)) << "between steps";
    }
    EXPECT_THAT(recording.Wait(rank.bwd(2), 0),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "op 'bwd.2' is a compute op"));
    EXPECT_THAT(recording.Wait(12, 0),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "op 12 is not among the 12 that were declared"));
    EXPECT_THAT(recording.Wait(rank.ar(1), -1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "timeout_ns is -1, below 0"));
    return recording.Drain();
  }));
}

// All four reductions are one launch.
TEST(RecordingWaitTest, ADeadlineNamesWhatTheProgramHasYetToCall) {
  for (const bool by_caller : {false, true}) {
    ModulesSpec spec;
    spec.coalesce_bytes = 1 << 20;
    if (by_caller) spec = ByCaller(spec);
    ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
      Recording& recording = rank.recording();
      for (int t = 0; t < 5; ++t) {
        RETURN_IF_ERROR(recording.StepBegin());
        absl::Status waited;
        std::thread waiter;
        for (int m = 0; m < spec.modules; ++m) {
          RETURN_IF_ERROR(rank.Backward(m, t));
          RETURN_IF_ERROR(rank.Reduce(m));
          if (m != 0) continue;
          if (recording.info().plans != 0) {
            EXPECT_THAT(recording.Wait(rank.ar(0), 1000),
                        StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 "has not been issued"));
          }
          waiter = std::thread(
              [&] { waited = recording.Wait(rank.ar(0), kLongNs); });
        }
        waiter.join();
        RETURN_IF_ERROR(waited);
        for (int m = 0; m < spec.modules; ++m) {
          RETURN_IF_ERROR(rank.Optimize(m));
        }
        RETURN_IF_ERROR(recording.StepEnd());
      }
      return recording.Drain();
    }));
  }
}

// Module 1 is left out from step 6 on, so that another plan follows.
TEST(RecordingWaitTest, ThreadsMayWaitWhilePlansChange) {
  ModulesSpec spec;
  spec.coalesce_bytes = 40;
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    std::atomic<bool> stop{false};
    std::vector<std::thread> waiters;
    for (const int m : {1, 3}) {
      waiters.emplace_back([&, m] {
        while (!stop) {
          recording.Wait(rank.ar(m), kLongNs).IgnoreError();
          std::this_thread::yield();
        }
      });
    }
    absl::Status status;
    for (int t = 0; t < 16 && status.ok(); ++t) {
      std::vector<int> order = {0, 1, 2, 3};
      if (t >= 6) order = {0, 2, 3};
      status = rank.Step(order, t);
    }
    const uint64_t plans = recording.info().plans;
    if (status.ok()) status = recording.Drain();
    stop = true;
    for (std::thread& waiter : waiters) waiter.join();
    RETURN_IF_ERROR(status);
    EXPECT_EQ(plans, 2u);
    return absl::OkStatus();
  }));
}

TEST(RecordingWaitTest, AnAbortEndsWaits) {
  ModulesSpec spec;
  spec.ranks = 2;
  std::latch submitted(1);
  const std::vector<absl::Status> ended =
      RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
        Recording& recording = rank.recording();
        for (int t = 0; t < 3; ++t) {
          RETURN_IF_ERROR(rank.Step({0, 1, 2, 3}, t));
        }
        RETURN_IF_ERROR(recording.StepBegin());
        RETURN_IF_ERROR(rank.Backward(0, 3));
        if (rank.rank() == 0) {
          RETURN_IF_ERROR(rank.Reduce(0));
          submitted.count_down();
          return recording.Wait(rank.ar(0), kLongNs);
        }
        submitted.wait();
        recording.Abort("had enough");
        return recording.status();
      });
  EXPECT_THAT(ended[0], StatusIs(absl::StatusCode::kAborted, "had enough"));
  EXPECT_THAT(ended[1], StatusIs(absl::StatusCode::kAborted, "had enough"));
}

TEST(RecordingProgressTest, TheCallersNeedsNoThread) {
  const ModulesSpec spec = ByCaller({});
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    for (int t = 0; t < 10; ++t) {
      RETURN_IF_ERROR(rank.Step({0, 1, 2, 3}, t));
      if (t == 6) {
        EXPECT_EQ(NumProgressThreads(), 0);
      }
    }
    return rank.recording().Drain();
  }));
}

TEST(RecordingProgressTest, TheCallersTakesNoStreams) {
  const auto stream = HostStream::Create("worker", 16).value();
  ModulesSpec spec;
  spec.ranks = 1;
  spec.adjust = [&](RecordingSpec* recording) {
    recording->by_caller = true;
    recording->lanes = {stream.get()};
  };
  const std::vector<absl::Status> made =
      RunModules(spec, [](ModulesRank&) { return absl::OkStatus(); });
  EXPECT_THAT(made[0],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "lane 0 is a stream, but progress is the caller's"));
}

}  // namespace
}  // namespace commsched
