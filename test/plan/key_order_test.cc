#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "plan/predict/list_schedule.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

struct Before {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t distance = 0;
};

// Compute nodes 0 .. num_compute - 1, then the transfers.
JobModel ModelOf(uint32_t num_compute, uint32_t num_transfers,
                 std::vector<std::vector<uint32_t>> lanes,
                 const std::vector<Before>& edges) {
  JobModel model;
  model.compute.resize(num_compute);
  model.transfers.resize(num_transfers);
  model.lanes = std::move(lanes);
  for (uint32_t node = 0; node < model.num_nodes(); ++node) {
    model.in_begin.push_back(static_cast<uint32_t>(model.in.size()));
    for (const Before& edge : edges) {
      if (edge.to != node) continue;
      model.in.push_back({edge.from, edge.distance});
    }
  }
  model.in_begin.push_back(static_cast<uint32_t>(model.in.size()));
  return model;
}

using Nodes = std::vector<uint32_t>;

TEST(KeyOrderTest, ATransferGoesOnlyWhenNoLaneCanGoOn) {
  // 0 -> transfer 3 -> 2; op 1 needs nothing.
  const JobModel model = ModelOf(3, 1, {{0, 1, 2}}, {{0, 3}, {3, 2}});
  ASSERT_OK_AND_ASSIGN(const Nodes sequence, SequenceInKeyOrder(model));
  EXPECT_EQ(sequence, (Nodes{0, 1, 3, 2}));
}

TEST(KeyOrderTest, LanesWaitForOneAnother) {
  const JobModel model =
      ModelOf(4, 0, {{0, 1}, {2, 3}}, {{2, 0}, {0, 3}, {3, 1}});
  ASSERT_OK_AND_ASSIGN(const Nodes sequence, SequenceInKeyOrder(model));
  EXPECT_EQ(sequence, (Nodes{2, 0, 3, 1}));
}

TEST(KeyOrderTest, WhatTheNextStepWaitsForHoldsUpNobody) {
  const JobModel model = ModelOf(1, 1, {{0}}, {{1, 0, 1}, {0, 1}});
  ASSERT_OK_AND_ASSIGN(const Nodes sequence, SequenceInKeyOrder(model));
  EXPECT_EQ(sequence, (Nodes{0, 1}));
}

TEST(KeyOrderTest, TransfersThatAreNotNeededStillGoInKeyOrder) {
  const JobModel model = ModelOf(1, 3, {{0}}, {{2, 0}, {1, 2}});
  ASSERT_OK_AND_ASSIGN(const Nodes sequence, SequenceInKeyOrder(model));
  EXPECT_EQ(sequence, (Nodes{1, 2, 0, 3}));
}

TEST(KeyOrderTest, ALaunchThatNeedsALaterOneIsAnInternalError) {
  const JobModel model = ModelOf(0, 2, {}, {{1, 0}});
  EXPECT_THAT(SequenceInKeyOrder(model),
              StatusIs(absl::StatusCode::kInternal, "key order"));
}

TEST(KeyOrderTest, AnOpThatNobodyFreesIsAnInternalError) {
  const JobModel model = ModelOf(2, 0, {{0, 1}}, {{1, 0}});
  EXPECT_THAT(SequenceInKeyOrder(model),
              StatusIs(absl::StatusCode::kInternal, "key order"));
}

TEST(OutEdgesTest, AreTheInEdgesTurnedRound) {
  const JobModel model = ModelOf(2, 1, {{0, 1}}, {{0, 2}, {2, 1}, {2, 0, 1}});
  const OutEdges out = OutEdgesOf(model);
  ASSERT_EQ(out.Of(0).size(), 1u);
  EXPECT_EQ(out.Of(0)[0].node, 2u);
  EXPECT_TRUE(out.Of(1).empty());
  ASSERT_EQ(out.Of(2).size(), 2u);
  EXPECT_EQ(out.Of(2)[0].node, 0u);
  EXPECT_EQ(out.Of(2)[0].distance, 1u);
  EXPECT_EQ(out.Of(2)[1].node, 1u);
  EXPECT_EQ(out.Of(2)[1].distance, 0u);
}

}  // namespace
}  // namespace commsched
