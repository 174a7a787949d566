#include "trace/flight_comparison.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using State = FlightComparison::State;

// A record of a plan of two launches.
FlightLog LogOf(int64_t rank, std::vector<FlightLog::Entry> events) {
  FlightLog log;
  log.rank = rank;
  log.fingerprint[0] = 7;
  log.launches = {"#0 all_reduce 'a' on axis dp",
                  "#1 all_reduce 'b' on axis dp"};
  log.events = std::move(events);
  log.num_events = log.events.size();
  return log;
}

FlightLog::Entry Event(FlightEvent event, uint64_t number) {
  return {.time_ns = 0, .number = number, .event = event};
}

// In step 4 rank 0 has both launches out, the first of them complete; rank 1 is
// complete; rank 2 has not come to the second.
std::vector<FlightLog> ThreeRanks() {
  return {
      LogOf(2, {Event(FlightEvent::kStepBegin, 4),
                Event(FlightEvent::kIssue, 8), Event(FlightEvent::kRetire, 8)}),
      LogOf(0, {Event(FlightEvent::kIssue, 8), Event(FlightEvent::kComplete, 8),
                Event(FlightEvent::kIssue, 9), Event(FlightEvent::kStart, 9)}),
      LogOf(1,
            {Event(FlightEvent::kIssue, 8), Event(FlightEvent::kIssue, 9),
             Event(FlightEvent::kRetire, 9), Event(FlightEvent::kRetire, 8)})};
}

TEST(FlightComparisonTest, TheFirstThatIsNotCompleteOnAllIsNamedWithRanks) {
  const std::vector<FlightLog> logs = ThreeRanks();
  ASSERT_OK_AND_ASSIGN(const FlightComparison made,
                       FlightComparison::Make(logs));
  ASSERT_EQ(made.sections.size(), 1u);
  ASSERT_EQ(made.sections[0].launches.size(), 1u);
  EXPECT_EQ(made.sections[0].launches[0].number, 9u);
  EXPECT_THAT(
      made.sections[0].launches[0].states,
      ElementsAre(State::kStarted, State::kComplete, State::kNotIssued));
  const std::string text = made.Text();
  EXPECT_THAT(text, HasSubstr("first that is not complete on all: #1 "
                              "all_reduce 'b' on axis dp of step 4: not issued "
                              "on rank 2, started on rank 0, complete on rank "
                              "1\n"));
  EXPECT_THAT(text, HasSubstr("  sc.  #1 all_reduce 'b'"));
  EXPECT_THAT(text, HasSubstr("rank 2: step 4 has begun; the last launch "
                              "issued is #0 all_reduce 'a' on axis dp of step "
                              "4, complete\n"));
}

TEST(FlightComparisonTest, WhatARecordDoesNotHoldAnyMoreIsComplete) {
  const std::vector<FlightLog> logs = {
      LogOf(0, {Event(FlightEvent::kIssue, 100)}),
      LogOf(1, {Event(FlightEvent::kIssue, 3)})};
  ASSERT_OK_AND_ASSIGN(const FlightComparison made,
                       FlightComparison::Make(logs));
  EXPECT_EQ(made.sections[0].launches[0].number, 3u);
  EXPECT_THAT(made.sections[0].launches[0].states,
              ElementsAre(State::kComplete, State::kIssued));
}

TEST(FlightComparisonTest, WhereAllIsCompleteItSaysSo) {
  const std::vector<FlightLog> logs = {
      LogOf(0, {Event(FlightEvent::kIssue, 0), Event(FlightEvent::kRetire, 0)}),
      LogOf(1,
            {Event(FlightEvent::kIssue, 0), Event(FlightEvent::kRetire, 0)})};
  EXPECT_THAT(FlightComparison::Make(logs)->Text(),
              HasSubstr("  all launches that were issued are complete\n"));
}

TEST(FlightComparisonTest, RanksOfOtherPlansAreApart) {
  std::vector<FlightLog> logs = ThreeRanks();
  logs[0].launches.pop_back();
  ASSERT_OK_AND_ASSIGN(const FlightComparison made,
                       FlightComparison::Make(logs));
  ASSERT_EQ(made.sections.size(), 2u);
  EXPECT_EQ(made.sections[0].ranks[1]->rank, 1);
  EXPECT_EQ(made.sections[1].ranks[0]->rank, 2);
}

TEST(FlightComparisonTest, JsonSaysTheSame) {
  const std::vector<FlightLog> logs = ThreeRanks();
  const auto json = nlohmann::json::parse(FlightComparison::Make(logs)->Json());
  EXPECT_EQ(json["format"], "commsched-flight/1");
  const auto& plan = json["plans"][0];
  EXPECT_EQ(plan["ranks"][2]["rank"], 2);
  EXPECT_EQ(plan["ranks"][2]["step"], 4);
  EXPECT_EQ(plan["ranks"][2]["issued"], 9);
  EXPECT_EQ(plan["launches"][0]["number"], 9);
  EXPECT_EQ(plan["launches"][0]["states"][2], "not issued");
}

TEST(FlightComparisonTest, ARankIsThereOnce) {
  EXPECT_THAT(FlightComparison::Make({LogOf(1, {}), LogOf(1, {})}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "two flight records are of rank 1"));
  EXPECT_THAT(FlightComparison::Make({}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no flight record"));
}

// As of a forged file.
TEST(FlightComparisonTest, NumbersMayBeAnything) {
  const uint64_t most = ~uint64_t{0};
  const std::vector<FlightLog> logs = {
      LogOf(0, {Event(FlightEvent::kIssue, most),
                Event(FlightEvent::kStepBegin, most)}),
      LogOf(-5, {Event(FlightEvent::kStart, most - 1)})};
  ASSERT_OK_AND_ASSIGN(const FlightComparison made,
                       FlightComparison::Make(logs));
  EXPECT_THAT(made.Text(), HasSubstr("rank -5: "));
}

}  // namespace
}  // namespace commsched
