// recording.hpp: what it adds to the C ABI. Compiled as C++17 too.
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commsched/recording.hpp"
#include "gtest/gtest.h"

namespace {

namespace cs = commsched::api;

static_assert(!std::is_copy_constructible_v<cs::Recording>);
static_assert(std::is_nothrow_move_constructible_v<cs::Recording>);

template <typename T>
T Value(cs::Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

// One rank: "backward" writes "grad", "reduce" sums it, "update" reads it.
class WrapperRecordingTest : public ::testing::Test {
 protected:
  WrapperRecordingTest() {
    const cs::World world = Value(cs::World::CreateInproc(1));
    const cs::Context context = Value(cs::Context::Create(world, 0));
    const cs::Group group = Value(cs::Group::CreateWorld(context, "dp"));
    trace_ = Value(cs::Trace::Create(context, 1024));
    cs::RecordingSpec spec;
    spec.context = &context;
    spec.groups = {&group};
    spec.trace = &trace_;
    spec.steps_to_record = 3;
    spec.progress = COMMSCHED_PROGRESS_CALLER;
    recording_ = Value(cs::Recording::Create(spec));
    Declare();
  }

  void Declare() {
    EXPECT_EQ(Value(recording_.AddSegment("optimizer")), 1u);
    const cs::BufferId id =
        Value(recording_.AddBuffer({"grad", COMMSCHED_F32, 4}, grad_.data()));
    cs::Compute compute;
    compute.name = "backward";
    compute.accesses = {cs::Writes(id)};
    backward_ = Value(recording_.Add(compute));
    cs::Collective reduce;
    reduce.name = "reduce";
    reduce.input = cs::Reads(id);
    reduce.output = cs::Writes(id);
    reduce_ = Value(recording_.Add(reduce, 0, COMMSCHED_RECORDING_EARLY));
    compute.name = "update";
    compute.accesses = {cs::Reads(id)};
    update_ = Value(recording_.Add(compute, 1));
  }

  cs::Status Step() {
    cs::Status status = recording_.StepBegin();
    if (status.ok()) status = recording_.Before(backward_);
    for (float& each : grad_) each += 1;
    if (status.ok()) status = recording_.After(backward_);
    if (status.ok()) status = recording_.Submit(reduce_);
    if (status.ok()) status = recording_.Wait(reduce_);
    if (status.ok()) status = recording_.Before(update_);
    if (status.ok()) status = recording_.After(update_);
    return status.ok() ? recording_.StepEnd() : status;
  }

  std::vector<float> grad_ = std::vector<float>(4);
  cs::OpId backward_ = 0, reduce_ = 0, update_ = 0;
  cs::Trace trace_;
  cs::Recording recording_;  // goes before its memory
};

TEST_F(WrapperRecordingTest, DeclaresRecordsAndReplays) {
  EXPECT_EQ(recording_.GetPlan().status().code(),
            COMMSCHED_FAILED_PRECONDITION);
  for (int step = 0; step < 6; ++step) {
    const cs::Status stepped = Step();
    ASSERT_TRUE(stepped.ok()) << stepped.ToString();
  }
  ASSERT_TRUE(recording_.Drain().ok());
  EXPECT_EQ(grad_, std::vector<float>(4, 6));
  const commsched_recording_info_t info = Value(recording_.GetInfo());
  EXPECT_EQ(info.phase, uint32_t{COMMSCHED_RECORDING_FROZEN});
  EXPECT_EQ(info.steps_recorded, 3u);
  const cs::Plan plan = Value(recording_.GetPlan());
  // The second is the one that tells all ranks of deviations.
  EXPECT_EQ(Value(plan.GetInfo()).num_collectives, 2u);
  EXPECT_GT(trace_.num_steps(), 0u);
}

TEST_F(WrapperRecordingTest, AbortSticks) {
  recording_.Abort("enough");
  EXPECT_EQ(recording_.status().code(), COMMSCHED_ABORTED);
  EXPECT_EQ(Step().message(), "enough");
}

TEST(WrapperRecordingSpecTest, EmptySpecIsRefusedByName) {
  const auto recording = cs::Recording::Create(cs::RecordingSpec());
  ASSERT_FALSE(recording.ok());
  EXPECT_EQ(recording.status().message(), "argument 'desc.context' is NULL");
}

}  // namespace
