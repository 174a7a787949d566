// What an engine says of its memory before it takes it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/create_engine.h"
#include "test/engine/expect_error.h"
#include "test/engine/model_handle.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Parameters, gradients and two moments, of 4 bytes each.
constexpr uint64_t kBytesPerElement = 16;

// Rank 0 of a world, with one parameter.
class EngineRanksMemoryTest : public ::testing::Test {
 protected:
  void CreateWorld(int32_t size) { CreateWorld(size, size); }

  // The group is of the first `members` ranks.
  void CreateWorld(int32_t size, int32_t members) {
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = size;
    ASSERT_EQ(commsched_world_create_inproc(&desc, &world_), COMMSCHED_OK);
    ASSERT_EQ(commsched_context_create(world_, 0, &context_), COMMSCHED_OK);
    std::vector<int32_t> ranks(static_cast<size_t>(members));
    std::iota(ranks.begin(), ranks.end(), 0);
    ASSERT_EQ(commsched_group_create(context_, "dp_shard", ranks.data(),
                                     static_cast<uint32_t>(members), &group_),
              COMMSCHED_OK);
  }

  static uint64_t BytesOfMachine() {
    return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  }

  commsched_status_t Create(uint64_t elements) {
    uint32_t id = 0;
    EXPECT_EQ(commsched_model_add_module(model_.get(), "m", 0, 0, &id),
              COMMSCHED_OK);
    EXPECT_EQ(AddParameter(model_.get(), 0, "p", &elements, 1, &id),
              COMMSCHED_OK);
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    return CreateEngine(desc, model_.get(), commsched_step_plan_options_init(),
                        &engine_);
  }

  void TearDown() override {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
    commsched_world_destroy(world_);
  }

  commsched_world_t* world_ = nullptr;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
};

// A 32nd of the machine on each of 64 ranks.
TEST_F(EngineRanksMemoryTest, RanksOfOneMachineMustFitIntoItTogether) {
  CreateWorld(64);
  EXPECT_ENGINE_ERROR(
      Create(BytesOfMachine() / kBytesPerElement / 32),
      COMMSCHED_RESOURCE_EXHAUSTED,
      AllOf(
          HasSubstr("bytes on each of the 64 ranks, which share this machine"),
          HasSubstr("the machine has")));
}

// As in tensor parallelism, where each group has an engine on its own ranks.
TEST_F(EngineRanksMemoryTest, RanksOfOtherGroupsShareTheMachine) {
  CreateWorld(/*size=*/64, /*members=*/1);
  EXPECT_ENGINE_ERROR(
      Create(BytesOfMachine() / kBytesPerElement / 32),
      COMMSCHED_RESOURCE_EXHAUSTED,
      HasSubstr("bytes on each of the 64 ranks, which share this machine"));
}

TEST_F(EngineRanksMemoryTest, IsWhatTheParametersTake) {
  CreateWorld(1);
  ASSERT_EQ(Create(1024), COMMSCHED_OK);
  commsched_engine_info_t info = commsched_engine_info_init();
  ASSERT_EQ(commsched_engine_get_info(engine_, &info), COMMSCHED_OK);
  EXPECT_EQ(info.state_bytes, 1024 * kBytesPerElement);
}

}  // namespace
}  // namespace commsched::engine
