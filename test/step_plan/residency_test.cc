#include "engine/step_plan/search/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace commsched::engine {
namespace {

using ::testing::ElementsAre;

// Forward and backward of modules that use the buckets listed, 100 bytes each.
LiveNeeds ForwardBackward(std::vector<std::vector<uint32_t>> modules) {
  LiveNeeds needs;
  uint32_t num_buckets = 0;
  for (const auto& used : modules) {
    for (uint32_t bucket : used)
      num_buckets = std::max(num_buckets, bucket + 1);
  }
  needs.used = modules;
  needs.used.insert(needs.used.end(), modules.rbegin(), modules.rend());
  needs.bucket_bytes.assign(num_buckets, 100);
  needs.other_bytes.assign(needs.used.size(), 0);
  return needs;
}

// Bytes alive at each op.
std::vector<uint64_t> LiveBytes(const LiveNeeds& needs,
                                const std::vector<Stay>& stays) {
  std::vector<uint64_t> live = needs.other_bytes;
  for (const Stay& stay : stays) {
    for (uint32_t op = stay.launch; op <= stay.last; ++op) {
      live[op] += needs.bucket_bytes[stay.bucket];
    }
  }
  return live;
}

TEST(ResidencyTest, WithoutALimitEveryBucketIsGatheredOnceAtTheBegin) {
  EXPECT_THAT(PlanStays(ForwardBackward({{0}, {1}, {0, 2}}), 0),
              ElementsAre(Stay{0, 0, 0, 0, 5}, Stay{1, 0, 0, 1, 4},
                          Stay{2, 0, 0, 2, 3}));
}

TEST(ResidencyTest, RoomForOneModuleGathersAndReleasesEach) {
  // The last module's backward follows its forward at once: it stays.
  EXPECT_THAT(
      PlanStays(ForwardBackward({{0}, {1}, {2}}), 100),
      ElementsAre(Stay{0, 0, 0, 0, 0}, Stay{1, 0, 1, 1, 1}, Stay{2, 0, 2, 2, 3},
                  Stay{1, 1, 4, 4, 4}, Stay{0, 1, 5, 5, 5}));
}

TEST(ResidencyTest, GathersGoOutAheadByNoMoreThanThePrefetchLimit) {
  const LiveNeeds needs = ForwardBackward({{0}, {1}, {2}, {3}});
  EXPECT_THAT(PlanStays(needs, 0, 200),
              ElementsAre(Stay{0, 0, 0, 0, 7}, Stay{1, 0, 0, 1, 6},
                          Stay{2, 0, 0, 2, 5}, Stay{3, 0, 1, 3, 4}));
  EXPECT_THAT(PlanStays(needs, 0, 99),
              ElementsAre(Stay{0, 0, 0, 0, 7}, Stay{1, 0, 1, 1, 6},
                          Stay{2, 0, 2, 2, 5}, Stay{3, 0, 3, 3, 4}));
}

TEST(ResidencyTest, RoomForTwoPrefetchesTheNextModule) {
  EXPECT_THAT(PlanStays(ForwardBackward({{0}, {1}, {2}, {3}}), 200),
              ElementsAre(Stay{0, 0, 0, 0, 0}, Stay{1, 0, 0, 1, 1},
                          Stay{2, 0, 1, 2, 5}, Stay{3, 0, 2, 3, 4},
                          Stay{1, 1, 5, 6, 6}, Stay{0, 1, 6, 7, 7}));
}

TEST(ResidencyTest, WhatIsUsedAgainSoonStays) {
  // The forward of module 3 lies between the uses of module 2, those of both
  // between the uses of module 1: the inner gaps are kept first.
  const std::vector<Stay> stays =
      PlanStays(ForwardBackward({{0}, {1}, {2}, {3}}), 300);
  std::set<uint32_t> gathered_again;
  for (const Stay& stay : stays) {
    if (stay.index == 1) gathered_again.insert(stay.bucket);
  }
  EXPECT_THAT(gathered_again, ElementsAre(0));
}

TEST(ResidencyTest, OtherBytesTakeRoom) {
  LiveNeeds needs = ForwardBackward({{0}, {1}, {2}});
  std::fill(needs.other_bytes.begin() + 3, needs.other_bytes.end(), 100);
  const std::vector<Stay> stays = PlanStays(needs, 200);
  EXPECT_THAT(stays, ElementsAre(Stay{0, 0, 0, 0, 0}, Stay{1, 0, 0, 1, 1},
                                 Stay{2, 0, 1, 2, 3}, Stay{1, 1, 4, 4, 4},
                                 Stay{0, 1, 5, 5, 5}));
}

TEST(ResidencyTest, ABucketOfTwoModulesIsOneStayWhereItIsShared) {
  EXPECT_THAT(PlanStays(ForwardBackward({{0}, {0}, {1}}), 100),
              ElementsAre(Stay{0, 0, 0, 0, 1}, Stay{1, 0, 2, 2, 3},
                          Stay{0, 1, 4, 4, 5}));
}

// Whatever the model and the budget: each use is covered by one stay, stays of
// a bucket do not meet, gathers go out in order of need, and what is alive
// stays within the budget wherever the needs do.
TEST(ResidencyTest, HoldsTheBudgetForAnyModel) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) {
      return static_cast<uint32_t>(random() % n);
    };
    std::vector<std::vector<uint32_t>> modules(1 + below(8));
    for (auto& used : modules) {
      std::set<uint32_t> buckets;
      for (uint32_t i = below(4); i > 0; --i) buckets.insert(below(6));
      used.assign(buckets.begin(), buckets.end());
    }
    LiveNeeds needs = ForwardBackward(modules);
    needs.bucket_bytes.resize(6);
    for (uint64_t& bytes : needs.bucket_bytes) bytes = 1 + below(100);
    for (uint64_t& bytes : needs.other_bytes) bytes = below(50);
    uint64_t least = 0;
    for (size_t op = 0; op < needs.used.size(); ++op) {
      least = std::max(least, needs.BytesAt(op));
    }
    const uint64_t budget = least + below(300);
    const std::vector<Stay> stays = PlanStays(needs, budget);
    for (uint64_t bytes : LiveBytes(needs, stays)) EXPECT_LE(bytes, budget);
    for (uint32_t op = 0; op < needs.used.size(); ++op) {
      for (uint32_t bucket : needs.used[op]) {
        EXPECT_EQ(std::count_if(stays.begin(), stays.end(),
                                [&](const Stay& stay) {
                                  return stay.bucket == bucket &&
                                         stay.first <= op && op <= stay.last;
                                }),
                  1);
      }
    }
    uint32_t launch = 0;
    for (const Stay& stay : stays) {
      EXPECT_LE(launch, stay.launch);
      EXPECT_LE(stay.launch, stay.first);
      launch = stay.launch;
    }
  }
}

}  // namespace
}  // namespace commsched::engine
