// A recording that fails on one rank fails on all, and nobody waits for it
// (I7).
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/status_macros.h"
#include "comm/meeting/memory_meeting.h"
#include "gtest/gtest.h"
#include "recording/recording.h"
#include "test/recording/recording_rig.h"
#include "test/support/await.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ModulesRank;
using test::ModulesSpec;
using test::RunModules;

constexpr auto kAborted = absl::StatusCode::kAborted;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;

// Two ranks, of which rank 1 is given another spec.
ModulesSpec WithRank1(const std::function<void(RecordingSpec*)>& change) {
  ModulesSpec spec;
  spec.ranks = 2;
  spec.adjust = [change](RecordingSpec* recording) {
    if (recording->world_rank == 1) change(recording);
  };
  return spec;
}

absl::Status RunSteps(ModulesRank& rank) {
  for (int t = 0; t < 4; ++t) RETURN_IF_ERROR(rank.Step({0, 1}, t));
  return absl::OkStatus();
}

// Two ranks whose test sees whether one waits in a meeting.
class Watched {
 public:
  Watched() {
    spec_.ranks = 2;
    spec_.adjust = [this](RecordingSpec* recording) {
      if (recording->world_rank != 0) return;
      meeting_ = dynamic_cast<MemoryMeeting*>(recording->world->meeting());
    };
  }
  const ModulesSpec& spec() const { return spec_; }
  void AwaitMeeting() const {
    EXPECT_TRUE(test::Await([&] {
      return meeting_.load() != nullptr && meeting_.load()->NumOpen() != 0;
    }));
  }

 private:
  ModulesSpec spec_;
  std::atomic<MemoryMeeting*> meeting_ = nullptr;
};

TEST(RecordingFailureTest, ARankThatIsRefusedIsNamedToTheOthers) {
  const ModulesSpec spec = WithRank1(
      [](RecordingSpec* recording) { recording->steps_to_record = 0; });
  const auto statuses = RunModules(spec, RunSteps);
  EXPECT_THAT(
      statuses[0],
      StatusIs(kFailedPrecondition,
               "rank 1 will not come: recording: steps_to_record is 0"));
  EXPECT_THAT(statuses[1], StatusIs(kInvalidArgument, "steps_to_record is 0"));
}

TEST(RecordingFailureTest, ARankWhosePlanCannotBeMadeIsNamedToTheOthers) {
  const ModulesSpec spec = WithRank1(
      [](RecordingSpec* recording) { recording->options.num_comm_lanes = 99; });
  const auto statuses = RunModules(spec, RunSteps);
  EXPECT_THAT(statuses[0],
              StatusIs(kFailedPrecondition,
                       "rank 1 will not come: num_comm_lanes is 99"));
  EXPECT_THAT(statuses[1], StatusIs(kInvalidArgument, "num_comm_lanes is 99"));
}

TEST(RecordingFailureTest, ARankThatGoesBeforeItsFirstStepIsNamed) {
  ModulesSpec spec;
  spec.ranks = 2;
  const auto statuses = RunModules(spec, [](ModulesRank& rank) -> absl::Status {
    return rank.rank() == 1 ? absl::OkStatus() : RunSteps(rank);
  });
  EXPECT_THAT(statuses[0], StatusIs(kAborted,
                                    "rank 1 will not come: the recording was "
                                    "destroyed before step 0"));
}

// Rank 1 has recorded its step and goes, rank 0 shows what it has recorded.
TEST(RecordingFailureTest, ARankThatGoesBeforeItShowsItsStepsIsNamed) {
  Watched watched;
  const auto statuses =
      RunModules(watched.spec(), [&](ModulesRank& rank) -> absl::Status {
        if (rank.rank() == 0) return RunSteps(rank);
        RETURN_IF_ERROR(rank.Step({0, 1}, 0));
        RETURN_IF_ERROR(rank.recording().StepBegin());
        for (int m : {0, 1}) {
          RETURN_IF_ERROR(rank.Backward(m, 1));
          RETURN_IF_ERROR(rank.Reduce(m));
        }
        watched.AwaitMeeting();
        return absl::OkStatus();
      });
  EXPECT_THAT(statuses[0], StatusIs(kAborted, "destroyed inside step 1"));
}

// `last_step`: that in which rank 0 waits for rank 1 to show its steps.
void ExpectAbortEndsTheMeeting(int last_step, int aborting) {
  Watched watched;
  std::atomic<Recording*> waiting = nullptr;
  const auto statuses =
      RunModules(watched.spec(), [&](ModulesRank& rank) -> absl::Status {
        if (rank.rank() == 0) waiting = &rank.recording();
        for (int t = 0; t < last_step; ++t) {
          // In step 2 also module 2, which has not been recorded.
          RETURN_IF_ERROR(rank.recording().StepBegin());
          for (int m : {0, 1}) {
            RETURN_IF_ERROR(rank.Backward(m, t));
            RETURN_IF_ERROR(rank.Reduce(m));
          }
          if (t == 2) RETURN_IF_ERROR(rank.Backward(2, t));
          RETURN_IF_ERROR(rank.recording().StepEnd());
        }
        RETURN_IF_ERROR(rank.recording().StepBegin());
        for (int m : {0, 1}) {
          RETURN_IF_ERROR(rank.Backward(m, last_step));
          RETURN_IF_ERROR(rank.Reduce(m));
        }
        if (rank.rank() == 0) {
          const absl::Status ended = rank.recording().StepEnd();
          EXPECT_THAT(rank.recording().status(), StatusIs(kAborted, "enough"));
          return ended;
        }
        watched.AwaitMeeting();
        (aborting == 0 ? waiting.load() : &rank.recording())->Abort("enough");
        return rank.recording().StepEnd();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(kAborted, "enough"));
  }
}

TEST(RecordingFailureTest, AnAbortEndsAMeetingThatItsRankWaitsIn) {
  ExpectAbortEndsTheMeeting(/*last_step=*/1, /*aborting=*/0);
}

TEST(RecordingFailureTest, AnAbortEndsAMeetingThatAnotherRankWaitsIn) {
  ExpectAbortEndsTheMeeting(/*last_step=*/1, /*aborting=*/1);
}

// The segment is recorded again in steps 4 and 5.
TEST(RecordingFailureTest, AnAbortOfAFrozenStepEndsTheMeetingBehindIt) {
  ExpectAbortEndsTheMeeting(/*last_step=*/5, /*aborting=*/0);
  ExpectAbortEndsTheMeeting(/*last_step=*/5, /*aborting=*/1);
}

// Nobody is left that could be waited for.
TEST(RecordingFailureTest, NoMeetingIsLeftBehind) {
  std::shared_ptr<World> world;
  for (const bool fails : {false, true}) {
    ModulesSpec spec;
    spec.ranks = 2;
    spec.adjust = [&](RecordingSpec* recording) {
      if (recording->world_rank == 0) world = recording->world;
      if (fails && recording->world_rank == 1) recording->steps_to_record = 0;
    };
    RunModules(spec, RunSteps);
    EXPECT_EQ(dynamic_cast<MemoryMeeting*>(world->meeting())->NumOpen(), 0);
  }
}

}  // namespace
}  // namespace commsched
