// What plugins in C++ share, and the plugin of docs/writing_a_plugin.md that is
// written with it.
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#include "comm/plugin/registry.h"
#include "commsched/plugin.h"
#include "gtest/gtest.h"
#include "support/outcome.h"
#include "support/table.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

void ThrowIfAsked(int number) {
  if (number == 7) throw std::bad_alloc();
  if (number == 9) throw std::runtime_error("nine");
  if (number == 11) throw number;
}

Outcome Half(int number, int* out) {
  ThrowIfAsked(number);
  if (number % 2 != 0) {
    return {COMMSCHED_INVALID_ARGUMENT, std::to_string(number) + " is odd"};
  }
  *out = number / 2;
  if (number == 0) return {COMMSCHED_OK, "nothing to halve"};
  return {};
}

uint32_t Quarter(int number) {
  ThrowIfAsked(number);
  return static_cast<uint32_t>(number / 4);
}

void Double(int* number) {
  ThrowIfAsked(*number);
  *number *= 2;
}

// Half as a table calls it, with room for `size` bytes of message.
struct Called {
  explicit Called(int number, uint64_t size = 64) {
    code = kGuarded<&Half>(number, &half, message, size);
  }
  char message[64] = "before";
  int half = -1;
  commsched_status_t code = -1;
};

TEST(PluginSupportTest, SuccessLeavesTheMessageAlone) {
  const Called called(8);
  EXPECT_EQ(called.code, COMMSCHED_OK);
  EXPECT_EQ(called.half, 4);
  EXPECT_STREQ(called.message, "before");
}

TEST(PluginSupportTest, FailureHasItsReason) {
  const Called called(3);
  EXPECT_EQ(called.code, COMMSCHED_INVALID_ARGUMENT);
  EXPECT_STREQ(called.message, "3 is odd");
}

TEST(PluginSupportTest, SuccessMayHaveAReasonToo) {
  const Called called(0);
  EXPECT_EQ(called.code, COMMSCHED_OK);
  EXPECT_STREQ(called.message, "nothing to halve");
}

TEST(PluginSupportTest, ReasonsAreCutToTheirRoom) {
  EXPECT_STREQ(Called(3, 5).message, "3 is");
  EXPECT_STREQ(Called(3, 0).message, "before");
}

TEST(PluginSupportTest, WhatIsThrownBecomesACodeAndAReason) {
  EXPECT_EQ(Called(7).code, COMMSCHED_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(Called(7).message, "no memory");
  EXPECT_EQ(Called(9).code, COMMSCHED_INTERNAL);
  EXPECT_STREQ(Called(9).message, "nine");
  EXPECT_EQ(Called(11).code, COMMSCHED_INTERNAL);
  EXPECT_STREQ(Called(11).message, "an exception");
}

TEST(PluginSupportTest, FunctionsWithAnotherResultReturn0InPlaceOfThrowing) {
  EXPECT_EQ(kGuarded<&Quarter>(8), 2u);
  for (const int thrown : {7, 9, 11}) EXPECT_EQ(kGuarded<&Quarter>(thrown), 0u);
}

TEST(PluginSupportTest, FunctionsWithoutAResultDoNotThrow) {
  int number = 4;
  kGuarded<&Double>(&number);
  EXPECT_EQ(number, 8);
  for (int thrown : {7, 9, 11}) {
    const int before = thrown;
    kGuarded<&Double>(&thrown);
    EXPECT_EQ(thrown, before);
  }
}

TEST(PluginSupportTest, AListHasAllThatIsGiven) {
  static constexpr commsched_plugin_t kTwo[] = {
      {COMMSCHED_PLUGIN_POLICY, 0, nullptr},
      {COMMSCHED_PLUGIN_CODEC, 0, nullptr}};
  constexpr commsched_plugin_list_t kList = PluginList(kTwo, nullptr);
  EXPECT_EQ(kList.struct_size, sizeof(commsched_plugin_list_t));
  EXPECT_EQ(kList.abi, uint32_t{COMMSCHED_PLUGIN_LIST_ABI});
  EXPECT_EQ(kList.num_plugins, 2u);
  EXPECT_EQ(kList.plugins, kTwo);
  EXPECT_EQ(kList.init, nullptr);
}

TEST(WritingAPluginTest, TheObserverOfThePageNamesWhatIsDone) {
  const std::string page = COMMSCHED_TEST_PLUGINS "/page";
  PluginRegistry registry({page});
  ASSERT_OK_AND_ASSIGN(const commsched_observer_t* names,
                       registry.Observer("names"));
  commsched_observed_plan_t plan = {};
  plan.struct_size = sizeof(plan);
  void* observation = nullptr;
  char message[64] = "";
  EXPECT_EQ(names->attach(&plan, &observation, message, sizeof(message)),
            COMMSCHED_FAILED_PRECONDITION);
  EXPECT_STREQ(message, "the plan has no launches");

  commsched_observed_launch_t launch = {};
  launch.struct_size = sizeof(launch);
  launch.name = "#0 all_reduce 'grad'";
  const commsched_observed_launch_t* launches[] = {&launch};
  plan.num_launches = 1;
  plan.launches = launches;
  ASSERT_EQ(names->attach(&plan, &observation, message, sizeof(message)),
            COMMSCHED_OK);
  commsched_observer_event_t event = {};
  event.struct_size = sizeof(event);
  event.kind = COMMSCHED_OBSERVE_LAUNCH_END;
  testing::internal::CaptureStderr();
  EXPECT_EQ(names->on_event(observation, &event, message, sizeof(message)),
            COMMSCHED_OK);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "#0 all_reduce 'grad' is done\n");
  names->detach(observation);
}

}  // namespace
}  // namespace commsched
