// What a recording says of steps that are not the recorded one, and what a
// strict one refuses.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "device/host_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recording/recording.h"
#include "test/recording/recording_rig.h"
#include "test/support/status_matchers.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

using test::ExpectAllOk;
using test::ModulesRank;
using test::ModulesReference;
using test::ModulesSpec;
using test::RunModules;
using testing::ElementsAre;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr int kFrozenFrom = 2;  // steps_to_record

absl::Status Steps(ModulesRank& rank, int from, int to) {
  for (int t = from; t < to; ++t) RETURN_IF_ERROR(rank.Step({0, 1}, t));
  return absl::OkStatus();
}

// Collects the log while it lives.
class Lines {
 public:
  Lines() {
    SetLogSink({[](void* lines, LogLevel, absl::string_view line) {
                  static_cast<Lines*>(lines)->lines_.emplace_back(line);
                },
                this});
  }
  ~Lines() { SetLogSink({nullptr, nullptr}); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

ModulesSpec TwoModules() {
  ModulesSpec spec;
  spec.ranks = 2;
  spec.modules = 2;
  return spec;
}

ModulesSpec Strict() {
  ModulesSpec spec = TwoModules();
  spec.adjust = [](RecordingSpec* recording) { recording->strict = true; };
  return spec;
}

// ---- Step numbers -----------------------------------------------------------

std::atomic<bool> fail_launches{false};
commsched_status_t (*launch_below)(void*, const commsched_launch_t*, uint32_t,
                                   commsched_stream_t, char*, uint64_t);

TEST(RecordingReportTest, AFailureInAFrozenStepNamesTheStepOfTheProgram) {
  commsched_backend_t table =
      *PluginRegistry::Process().Backend("null").value();
  launch_below = table.launch;
  table.launch = [](void* comm, const commsched_launch_t* launch,
                    uint32_t request, commsched_stream_t stream, char* message,
                    uint64_t size) {
    if (fail_launches) return commsched_status_t{COMMSCHED_DATA_LOSS};
    return launch_below(comm, launch, request, stream, message, size);
  };
  ModulesSpec spec = TwoModules();
  spec.ranks = 1;
  WorldSpec world_spec;
  world_spec.size = 1;
  world_spec.table = &table;
  std::shared_ptr<World> world = World::Create(world_spec).value();
  std::atomic<uint64_t> instances{0};
  const auto rank = ModulesRank::Create(spec, world, &instances, 0).value();
  ASSERT_OK(Steps(*rank, 0, kFrozenFrom + 3));
  fail_launches = true;
  EXPECT_THAT(
      rank->Step({0, 1}, kFrozenFrom + 3),
      StatusIs(absl::StatusCode::kDataLoss,
               absl::StrCat("'ar.0' on axis dp of step ", kFrozenFrom + 3)));
  fail_launches = false;
}

TEST(RecordingReportTest, RecordsOfFrozenStepsHaveTheStepsOfTheProgram) {
  Recorder recorders[2] = {Recorder(4096), Recorder(4096)};
  ModulesSpec spec = TwoModules();
  spec.adjust = [&](RecordingSpec* recording) {
    recording->recorder = &recorders[recording->world_rank];
  };
  ExpectAllOk(RunModules(spec, [](ModulesRank& rank) -> absl::Status {
    RETURN_IF_ERROR(Steps(rank, 0, kFrozenFrom + 3));
    return rank.recording().Drain();
  }));
  std::vector<uint64_t> begun;
  for (const Record& record : recorders[0].Snapshot()) {
    EXPECT_GE(record.step, uint64_t{kFrozenFrom});
    EXPECT_LT(record.step, uint64_t{kFrozenFrom + 3});
    if (record.kind == RecordKind::kStepBegin) begun.push_back(record.step);
  }
  EXPECT_THAT(begun, ElementsAre(2, 3, 4));
}

TEST(RecordingReportTest, ACollectiveSubmittedTooOftenIsNamedWithItsStep) {
  ExpectAllOk(RunModules(TwoModules(), [](ModulesRank& rank) -> absl::Status {
    RETURN_IF_ERROR(Steps(rank, 0, 5));
    RETURN_IF_ERROR(rank.recording().StepBegin());
    RETURN_IF_ERROR(rank.Backward(0, 5));
    RETURN_IF_ERROR(rank.Reduce(0));
    EXPECT_THAT(rank.Reduce(0),
                StatusIs(kRefused,
                         "collective 'ar.0' was submitted twice in step 5, but "
                         "the recorded step submits it once"));
    RETURN_IF_ERROR(rank.Backward(1, 5));
    RETURN_IF_ERROR(rank.Reduce(1));
    RETURN_IF_ERROR(rank.Optimize(0));
    RETURN_IF_ERROR(rank.Optimize(1));
    RETURN_IF_ERROR(rank.recording().StepEnd());
    return rank.recording().Drain();
  }));
}

// ---- Whose data is missing --------------------------------------------------

TEST(RecordingReportTest, AStepThatDeviatesSaysWhatWentWithoutWhoseData) {
  const Lines log;
  ExpectAllOk(RunModules(TwoModules(), [](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    RETURN_IF_ERROR(Steps(rank, 0, 5));
    EXPECT_EQ(recording.info().deviating_rank, -1);
    if (rank.rank() == 1) {
      RETURN_IF_ERROR(recording.StepBegin());
      RETURN_IF_ERROR(rank.Backward(0, 5));
      RETURN_IF_ERROR(rank.Reduce(0));
      RETURN_IF_ERROR(rank.Optimize(0));
      RETURN_IF_ERROR(recording.StepEnd());
    } else {
      RETURN_IF_ERROR(Steps(rank, 5, 6));
    }
    RETURN_IF_ERROR(Steps(rank, 6, 7));
    EXPECT_EQ(recording.info().collectives_left_out,
              rank.rank() == 1 ? 1u : 0u);
    EXPECT_EQ(recording.info().deviating_step, 5u);
    EXPECT_EQ(recording.info().deviating_rank, 1);
    return recording.Drain();
  }));
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_THAT(
      log.lines()[0],
      testing::HasSubstr("recording: step 5 of rank 1 is not the recorded one; "
                         "went without its data: 'ar.1'; not called: "));
  EXPECT_THAT(log.lines()[0], testing::HasSubstr("'bwd.1'"));
  EXPECT_THAT(log.lines()[0], testing::HasSubstr("'opt.1'"));
}

// ---- Strict -----------------------------------------------------------------

TEST(StrictRecordingTest, TheFirstCallThatDiffersIsRefusedAndChangesNothing) {
  const Lines log;
  ExpectAllOk(RunModules(Strict(), [](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    RETURN_IF_ERROR(Steps(rank, 0, 5));
    RETURN_IF_ERROR(recording.StepBegin());
    RETURN_IF_ERROR(rank.Backward(0, 5));
    EXPECT_THAT(recording.Before(rank.bwd(1), CallerStream()),
                StatusIs(kRefused,
                         absl::StrCat("before: op 'bwd.1' is not the next call "
                                      "of step 5 of rank ",
                                      rank.rank(),
                                      ": the recorded step has "
                                      "collective 'ar.0' here")));
    EXPECT_THAT(
        rank.Reduce(1),
        StatusIs(kRefused, "submit: collective 'ar.1' is not the next call"));
    EXPECT_THAT(recording.StepEnd(),
                StatusIs(kRefused,
                         absl::StrCat("step_end: step 5 of rank ", rank.rank(),
                                      " lacks collective 'ar.0'")));
    RETURN_IF_ERROR(rank.Reduce(0));
    EXPECT_THAT(rank.Reduce(0), StatusIs(kRefused, "has op 'bwd.1' here"));
    RETURN_IF_ERROR(rank.Backward(1, 5));
    RETURN_IF_ERROR(rank.Reduce(1));
    RETURN_IF_ERROR(rank.Optimize(0));
    RETURN_IF_ERROR(rank.Optimize(1));
    EXPECT_THAT(rank.Reduce(1), StatusIs(kRefused, "has no such call here"));
    RETURN_IF_ERROR(recording.StepEnd());
    RETURN_IF_ERROR(Steps(rank, 6, 9));
    EXPECT_EQ(recording.info().steps_deviating, 0u);
    EXPECT_EQ(recording.info().plans, 1u);
    return recording.Drain();
  }));
  EXPECT_THAT(log.lines(), ElementsAre());
}

// Module 1 every other step, from the start.
TEST(StrictRecordingTest, WhatRecordedStepsDifferedInMayDiffer) {
  ModulesSpec spec = Strict();
  spec.max_recorded_steps = 4;
  ExpectAllOk(RunModules(spec, [](ModulesRank& rank) -> absl::Status {
    for (int t = 0; t < 12; ++t) {
      RETURN_IF_ERROR(t % 2 == 0 ? rank.Step({0}, t) : rank.Step({0, 1}, t));
    }
    EXPECT_EQ(rank.recording().info().plans, 1u);
    RETURN_IF_ERROR(rank.recording().StepBegin());
    EXPECT_THAT(rank.recording().StepEnd(),
                StatusIs(kRefused, "step 12 of rank"));
    RETURN_IF_ERROR(rank.Backward(0, 12));
    RETURN_IF_ERROR(rank.Reduce(0));
    RETURN_IF_ERROR(rank.Optimize(0));
    RETURN_IF_ERROR(rank.recording().StepEnd());
    return rank.recording().Drain();
  }));
}

// Steps of one module in which ranks may do without the reduction, which the
// optimizer reads all the same: they end, on memory that a reference has too,
// and are no news.
void ExpectReductionMayBeLeftOut(ModulesSpec spec) {
  spec.modules = 1;
  spec.max_recorded_steps = 4;
  const auto reduces = [&spec](int t, int rank) {
    if (t < 4) return !spec.alternative && t % 2 == 1;
    return t % 3 == 0 || (t % 3 == 1 && rank == 1);
  };
  constexpr int kSteps = 13;
  ModulesReference reference(spec);
  for (int t = 0; t < kSteps; ++t) {
    std::vector<ModulesReference::Takes> takes(2);
    for (int r = 0; r < 2; ++r) takes[r].reduce = reduces(t, r);
    reference.Step(0, t, takes);
  }
  const Lines log;
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    for (int t = 0; t < kSteps; ++t) {
      RETURN_IF_ERROR(rank.recording().StepBegin());
      RETURN_IF_ERROR(rank.Backward(0, t));
      if (reduces(t, rank.rank())) RETURN_IF_ERROR(rank.Reduce(0));
      RETURN_IF_ERROR(rank.Optimize(0));
      RETURN_IF_ERROR(rank.recording().StepEnd());
    }
    RETURN_IF_ERROR(rank.recording().Drain());
    EXPECT_EQ(rank.weight(0), reference.weight(rank.rank(), 0));
    EXPECT_EQ(rank.recording().info().plans, 1u);
    EXPECT_EQ(rank.recording().info().rerecordings, 0u);
    EXPECT_EQ(rank.recording().info().deviating_rank, -1);
    return absl::OkStatus();
  }));
  EXPECT_THAT(log.lines(), ElementsAre());
}

TEST(StrictRecordingTest, AnOpMayReadWhatACollectiveLeftOutWouldHaveWritten) {
  ExpectReductionMayBeLeftOut(Strict());
}

TEST(StrictRecordingTest, AnAlternativeThatAnOpReadsMayBeLeftOut) {
  ModulesSpec spec = Strict();
  spec.alternative = true;
  ExpectReductionMayBeLeftOut(spec);
}

TEST(RecordingReportTest, AnOptionalCollectiveThatAnOpReadsIsNoNews) {
  ExpectReductionMayBeLeftOut(TwoModules());
}

absl::Status ReduceBoth(ModulesRank& rank, int first, int t) {
  RETURN_IF_ERROR(rank.recording().StepBegin());
  RETURN_IF_ERROR(rank.Backward(0, t));
  RETURN_IF_ERROR(rank.Backward(1, t));
  RETURN_IF_ERROR(rank.Reduce(first));
  RETURN_IF_ERROR(rank.Reduce(1 - first));
  RETURN_IF_ERROR(rank.Optimize(0));
  RETURN_IF_ERROR(rank.Optimize(1));
  return rank.recording().StepEnd();
}

// The reductions were recorded in both orders.
TEST(StrictRecordingTest, NoCollectiveGoesWithoutTheDataOfARank) {
  ModulesSpec spec = Strict();
  spec.max_recorded_steps = 4;
  ModulesReference reference(spec);
  for (int t = 0; t < 8; ++t) {
    for (size_t m : {0, 1}) {
      reference.Step(m, t, std::vector<ModulesReference::Takes>(2));
    }
  }
  const Lines log;
  ExpectAllOk(RunModules(spec, [&](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    for (int t = 0; t < 7; ++t) RETURN_IF_ERROR(ReduceBoth(rank, t % 2, t));
    RETURN_IF_ERROR(recording.StepBegin());
    RETURN_IF_ERROR(rank.Backward(0, 7));
    RETURN_IF_ERROR(rank.Backward(1, 7));
    RETURN_IF_ERROR(rank.Reduce(1));
    EXPECT_THAT(
        recording.Before(rank.opt(1), CallerStream()),
        StatusIs(kRefused,
                 absl::StrCat("before: op 'opt.1' conflicts with collective "
                              "'ar.1', which goes behind collective 'ar.0'; "
                              "step 7 of rank ",
                              rank.rank(), " has not submitted 'ar.0'")));
    EXPECT_THAT(recording.StepEnd(),
                StatusIs(kRefused, "lacks collective 'ar.0'"));
    RETURN_IF_ERROR(rank.Reduce(0));
    RETURN_IF_ERROR(rank.Optimize(0));
    RETURN_IF_ERROR(rank.Optimize(1));
    RETURN_IF_ERROR(recording.StepEnd());
    RETURN_IF_ERROR(recording.Drain());
    EXPECT_EQ(recording.info().collectives_left_out, 0u);
    for (int m : {0, 1}) {
      EXPECT_EQ(rank.weight(m), reference.weight(rank.rank(), m));
    }
    return absl::OkStatus();
  }));
  EXPECT_THAT(log.lines(), ElementsAre());
}

// Sums `in` into `mid` and that into `out`, then sums `soon`, which is read
// first and hence planned before them.
class Chain {
 public:
  explicit Chain(Recording* recording) : recording_(recording) {
    const BufferId in = Add("in", 0), out = Add("out", 1);
    const BufferId mid = Add("mid", 2), soon = Add("soon", 3);
    submits_ = {Sum("sum", in, mid), Sum("again", mid, out),
                Sum("soon", soon, soon)};
    uses_ = {Use("use.soon", soon), Use("use.out", out)};
  }
  absl::Status Run() {
    memory_ = {1, 0, 0, 1};
    for (OpId op : submits_) RETURN_IF_ERROR(recording_->Submit(op.value()));
    for (OpId op : uses_) {
      RETURN_IF_ERROR(recording_->Before(op.value(), CallerStream()));
      RETURN_IF_ERROR(recording_->After(op.value(), CallerStream()));
    }
    return absl::OkStatus();
  }
  const std::vector<int32_t>& memory() const { return memory_; }

 private:
  BufferId Add(const char* name, int at) {
    Buffer buffer;
    buffer.dtype = DType::kI32;
    buffer.ownership = Ownership::kBound;
    buffer.count = 1;
    buffer.name = name;
    return recording_->AddBuffer(buffer, &memory_[at]).value();
  }
  OpId Sum(const char* name, BufferId in, BufferId out) {
    Op op;
    op.name = name;
    op.kind = OpKind::kCollective;
    op.collective.group = GroupId(0);
    op.collective.input = {in, AccessMode::kRead, {}};
    op.collective.output = {out, AccessMode::kWrite, {}};
    return recording_->AddCollective(op, 0, {}).value();
  }
  OpId Use(const char* name, BufferId buffer) {
    Op op;
    op.name = name;
    op.accesses = {{buffer, AccessMode::kReadWrite, {}}};
    return recording_->AddCompute(op, 0).value();
  }

  Recording* recording_;
  std::vector<int32_t> memory_ = std::vector<int32_t>(4);
  std::vector<OpId> submits_, uses_;
};

void ExpectSubmitsLeaveLaterOnes(ModulesSpec spec) {
  spec.modules = 1;
  spec.max_recorded_steps = 4;
  const Lines log;
  ExpectAllOk(RunModules(spec, [](ModulesRank& rank) -> absl::Status {
    Recording& recording = rank.recording();
    Chain chain(&recording);
    for (int t = 0; t < 8; ++t) {
      RETURN_IF_ERROR(recording.StepBegin());
      if (t % 2 == 1) RETURN_IF_ERROR(rank.Backward(0, t));
      RETURN_IF_ERROR(chain.Run());
      RETURN_IF_ERROR(recording.StepEnd());
      RETURN_IF_ERROR(recording.Drain());
      EXPECT_THAT(chain.memory(), ElementsAre(1, 4, 2, 2)) << t;
    }
    return absl::OkStatus();
  }));
  EXPECT_THAT(log.lines(), ElementsAre());
}

TEST(StrictRecordingTest, ASubmitNeedsNoLaterOne) {
  ExpectSubmitsLeaveLaterOnes(Strict());
}

TEST(RecordingReportTest, ASubmitDropsNoLaterOne) {
  ExpectSubmitsLeaveLaterOnes(TwoModules());
}

TEST(StrictRecordingTest, RanksThatAreNotEquallyStrictAreNamed) {
  ModulesSpec spec = TwoModules();
  spec.adjust = [](RecordingSpec* recording) {
    recording->strict = recording->world_rank == 1;
  };
  const std::vector<absl::Status> statuses = RunModules(
      spec, [](ModulesRank& rank) { return rank.recording().StepBegin(); });
  EXPECT_THAT(statuses[0],
              StatusIs(kRefused,
                       "rank 1 records 2 to 16 steps strictly, rank "
                       "0 records 2 to 16 steps"));
}

}  // namespace
}  // namespace commsched
