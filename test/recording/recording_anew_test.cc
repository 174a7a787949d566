// Recordings that are declared anew between steps.
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/recording/bound_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BoundRank;
using test::ExpectAllOk;
using test::RunBound;

constexpr int kParameters = 12;

// Gradients of a program that reduces them in buckets, as many as it likes.
class Buckets {
 public:
  explicit Buckets(BoundRank* rank) : rank_(*rank) {}

  absl::Status Declare(int num_buckets) {
    const size_t each = kParameters / num_buckets;
    for (int b = 0; b < num_buckets; ++b) {
      memory_.emplace_back(each);
      ASSIGN_OR_RETURN(
          const BufferId buffer,
          rank_.AddBuffer(absl::StrCat("bucket.", b), each, Ownership::kBound,
                          memory_.back().data()));
      ASSIGN_OR_RETURN(
          const uint32_t reduce,
          rank_.Collective(absl::StrCat("reduce.", b),
                           CollectiveKind::kAllReduce, buffer, buffer));
      buffers_.push_back(buffer);
      reduces_.push_back(reduce);
    }
    return absl::OkStatus();
  }
  absl::Status Remove() {
    for (uint32_t reduce : reduces_) {
      RETURN_IF_ERROR(rank_.recording->RemoveOp(reduce));
    }
    for (BufferId buffer : buffers_) {
      RETURN_IF_ERROR(rank_.recording->RemoveBuffer(buffer));
    }
    RETURN_IF_ERROR(rank_.recording->Drain());
    for (std::vector<int32_t>& bucket : memory_) bucket.assign(1, -1);
    memory_.clear();
    buffers_.clear();
    reduces_.clear();
    return absl::OkStatus();
  }
  // Compares with the sum over `ranks` ranks.
  absl::Status Step(int t, int ranks) {
    RETURN_IF_ERROR(rank_.recording->StepBegin());
    int parameter = 0;
    for (size_t b = 0; b < memory_.size(); ++b) {
      for (int32_t& gradient : memory_[b]) {
        gradient = 100 * t + 10 * rank_.rank + parameter++;
      }
      RETURN_IF_ERROR(rank_.recording->Submit(reduces_[b]));
    }
    RETURN_IF_ERROR(rank_.recording->StepEnd());
    RETURN_IF_ERROR(rank_.recording->Drain());
    parameter = 0;
    for (const std::vector<int32_t>& bucket : memory_) {
      for (int32_t gradient : bucket) {
        EXPECT_EQ(gradient,
                  ranks * (100 * t + parameter) + 10 * ranks * (ranks - 1) / 2)
            << "step " << t << ", parameter " << parameter;
        ++parameter;
      }
    }
    return absl::OkStatus();
  }
  uint32_t reduce(int b) const { return reduces_[b]; }
  BufferId buffer(int b) const { return buffers_[b]; }
  std::vector<int32_t>& memory(int b) { return memory_[b]; }

 private:
  BoundRank& rank_;
  std::vector<std::vector<int32_t>> memory_;
  std::vector<BufferId> buffers_;
  std::vector<uint32_t> reduces_;
};

// As DistributedDataParallel: after its first step the buckets are others, and
// with a static graph once more later.
TEST(RecordingAnewTest, BucketsMayChangeBeforeAndAfterFreezing) {
  ExpectAllOk(RunBound(3, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    Buckets buckets(&self);
    RETURN_IF_ERROR(buckets.Declare(2));
    for (int t = 0; t < 20; ++t) {
      if (t == 1) {
        RETURN_IF_ERROR(buckets.Remove());
        RETURN_IF_ERROR(buckets.Declare(4));
      }
      if (t == 10) {
        EXPECT_EQ(recording.info().plans, 1u);
        EXPECT_EQ(recording.info().phase, RecordingPhase::kFrozen);
        EXPECT_EQ(recording.plan()->launches.size(), 5u);
        RETURN_IF_ERROR(buckets.Remove());
        RETURN_IF_ERROR(buckets.Declare(3));
      }
      RETURN_IF_ERROR(buckets.Step(t, 3));
      if (t == 1 || t == 10) {
        EXPECT_EQ(recording.info().phase, RecordingPhase::kRecording);
        EXPECT_EQ(recording.info().steps_recorded, 1u);
        EXPECT_EQ(recording.plan(), nullptr);
      }
    }
    EXPECT_EQ(recording.info().plans, 2u);
    EXPECT_EQ(recording.info().steps_deviating, 0u);
    EXPECT_EQ(recording.plan()->launches.size(), 4u);
    EXPECT_EQ(recording.info().steps, 20u);
    return absl::OkStatus();
  }));
}

// A session of each plan, and the recording's own.
TEST(RecordingAnewTest, TheCommunicatorsOfTheRecordingStay) {
  std::atomic<int> taken{0};
  ExpectAllOk(RunBound(
      2,
      [](BoundRank& self) -> absl::Status {
        Buckets buckets(&self);
        RETURN_IF_ERROR(buckets.Declare(2));
        for (int t = 0; t < 12; ++t) {
          if (t == 1 || t == 2 || t == 7) {
            RETURN_IF_ERROR(buckets.Remove());
            RETURN_IF_ERROR(buckets.Declare(3));
          }
          RETURN_IF_ERROR(buckets.Step(t, 2));
        }
        EXPECT_EQ(self.recording->info().plans, 2u);
        return absl::OkStatus();
      },
      [&](RecordingSpec* spec) {
        spec->take_instance = [&taken, take = spec->take_instance] {
          ++taken;
          return take();
        };
      }));
  EXPECT_EQ(taken.load(), 2 * (1 + 2));
}

TEST(RecordingAnewTest, ABufferMayMove) {
  ExpectAllOk(RunBound(2, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    Buckets buckets(&self);
    RETURN_IF_ERROR(buckets.Declare(2));
    std::vector<int32_t> first;
    for (int t = 0; t < 12; ++t) {
      if (t == 5) {
        std::vector<int32_t> moved(buckets.memory(1).size());
        RETURN_IF_ERROR(
            recording.MoveBuffer(buckets.buffer(0), buckets.memory(0).data()));
        RETURN_IF_ERROR(recording.MoveBuffer(buckets.buffer(1), moved.data()));
        first.swap(buckets.memory(1));
        buckets.memory(1).swap(moved);
        first.assign(first.size(), -7);
      }
      RETURN_IF_ERROR(buckets.Step(t, 2));
    }
    EXPECT_EQ(first, std::vector<int32_t>(first.size(), -7));
    EXPECT_EQ(recording.info().plans, 2u);
    return absl::OkStatus();
  }));
}

TEST(RecordingAnewTest, WhatWasRemovedIsRefused) {
  ExpectAllOk(RunBound(1, [](BoundRank& self) -> absl::Status {
    Recording& recording = *self.recording;
    Buckets buckets(&self);
    RETURN_IF_ERROR(buckets.Declare(2));
    RETURN_IF_ERROR(buckets.Step(0, 1));
    const uint32_t reduce = buckets.reduce(0);
    const BufferId buffer = buckets.buffer(0);
    EXPECT_THAT(recording.RemoveBuffer(buffer),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "'bucket.0' is accessed by op 'reduce.0'"));
    EXPECT_THAT(recording.RemoveOp(9),
                StatusIs(absl::StatusCode::kNotFound, "op 9 is not among"));
    RETURN_IF_ERROR(buckets.Remove());
    EXPECT_THAT(recording.RemoveOp(reduce),
                StatusIs(absl::StatusCode::kNotFound, "op 0 has been removed"));
    EXPECT_THAT(
        recording.MoveBuffer(buffer, nullptr),
        StatusIs(absl::StatusCode::kNotFound, "buffer 0 has been removed"));
    RETURN_IF_ERROR(buckets.Declare(3));
    constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
    for (int t = 1; t < 6; ++t) {
      RETURN_IF_ERROR(buckets.Step(t, 1));
      RETURN_IF_ERROR(recording.StepBegin());
      EXPECT_THAT(
          recording.RemoveOp(buckets.reduce(1)),
          StatusIs(absl::StatusCode::kFailedPrecondition, "inside step"));
      EXPECT_THAT(recording.Submit(reduce),
                  StatusIs(kInvalid, "op 0 has been removed"));
      EXPECT_THAT(recording.Before(reduce, CallerStream()),
                  StatusIs(kInvalid, "op 0 has been removed"));
      EXPECT_THAT(recording.Wait(reduce, 0),
                  StatusIs(kInvalid, "op 'reduce.0' has been removed"));
      for (int b = 0; b < 3; ++b) {
        RETURN_IF_ERROR(recording.Submit(buckets.reduce(b)));
      }
      RETURN_IF_ERROR(recording.StepEnd());
      RETURN_IF_ERROR(recording.Drain());
    }
    return absl::OkStatus();
  }));
}

TEST(RecordingAnewTest, RanksThatDeclareOtherThingsAreNamed) {
  const std::vector<absl::Status> ended =
      RunBound(2, [](BoundRank& self) -> absl::Status {
        Buckets buckets(&self);
        RETURN_IF_ERROR(buckets.Declare(2));
        for (int t = 0; t < 4; ++t) RETURN_IF_ERROR(buckets.Step(t, 2));
        RETURN_IF_ERROR(buckets.Remove());
        RETURN_IF_ERROR(buckets.Declare(self.rank == 0 ? 3 : 4));
        return self.recording->StepBegin();
      });
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "have declared different groups"));
  }
}

TEST(RecordingAnewTest, ARankThatDeclaresNothingAnewFailsAllByTheDeadline) {
  const std::vector<absl::Status> ended = RunBound(
      2,
      [](BoundRank& self) -> absl::Status {
        Buckets buckets(&self);
        RETURN_IF_ERROR(buckets.Declare(2));
        for (int t = 0; t < 4; ++t) RETURN_IF_ERROR(buckets.Step(t, 2));
        if (self.rank == 0) {
          RETURN_IF_ERROR(buckets.Remove());
          RETURN_IF_ERROR(buckets.Declare(3));
        }
        return buckets.Step(4, 2);
      },
      [](RecordingSpec* spec) {
        spec->launch_timeout_ns = int64_t{300} * 1000 * 1000;
      });
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[1].ok());
}

}  // namespace
}  // namespace commsched
