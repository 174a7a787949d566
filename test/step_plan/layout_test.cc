#include "engine/step_plan/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace commsched::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Parameter MakeParameter(uint64_t count, uint32_t module) {
  return {"p", count, 1, module};
}

// One module per entry, owning the parameters listed.
std::vector<Module> MakeModules(
    std::vector<std::vector<uint32_t>> parameters_of_modules) {
  std::vector<Module> modules;
  for (auto& used : parameters_of_modules) {
    modules.push_back({"m", 0, 0, std::move(used)});
  }
  return modules;
}

TEST(LayoutTest, ParametersStartAtBlocksAndBucketsArePaddedToTheShards) {
  const Layout layout = BuildLayout(
      MakeModules({{0, 1}}), {MakeParameter(10, 0), MakeParameter(300, 0)},
      {.bucket_bytes = 1 << 20, .num_shards = 4});
  ASSERT_EQ(layout.buckets.size(), 1u);
  EXPECT_EQ(layout.slots[0].offset, 0u);
  EXPECT_EQ(layout.slots[1].offset, 256u);
  EXPECT_EQ(layout.buckets[0].count, 1024u);
  EXPECT_EQ(layout.num_elements, 310u);
}

TEST(LayoutTest, AParameterThatDoesNotFitOpensANewBucket) {
  const Layout layout = BuildLayout(
      MakeModules({{0}, {1}, {2}}),
      {MakeParameter(256, 0), MakeParameter(256, 1), MakeParameter(1, 2)},
      {.bucket_bytes = 512 * sizeof(float), .num_shards = 1});
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(0, 1));
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(2));
}

TEST(LayoutTest, ResidentParametersHaveBucketsOfTheirOwn) {
  const Layout layout = BuildLayout(
      MakeModules({{0, 1}, {2, 3}}),
      {MakeParameter(512, 0), MakeParameter(8, 0), MakeParameter(512, 1),
       MakeParameter(9, 1)},
      {.bucket_bytes = 1 << 20, .persist_bytes = 9 * sizeof(float)});
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(0, 2, 3));
  EXPECT_FALSE(layout.buckets[0].resident);
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(1));
  EXPECT_TRUE(layout.buckets[1].resident);
  EXPECT_THAT(layout.module_buckets[0], ElementsAre(0, 1));
  EXPECT_THAT(layout.module_buckets[1], ElementsAre(0));
}

TEST(LayoutTest, BucketsThatFillSideBySideKeepTheirOffsets) {
  const Layout layout =
      BuildLayout(MakeModules({{0, 1, 2, 3}}),
                  {MakeParameter(300, 0), MakeParameter(8, 0),
                   MakeParameter(300, 0), MakeParameter(8, 0)},
                  {.bucket_bytes = 1 << 20, .persist_bytes = 64});
  EXPECT_EQ(layout.slots[2].bucket, 0u);
  EXPECT_EQ(layout.slots[2].offset, 512u);
  EXPECT_EQ(layout.slots[3].bucket, 1u);
  EXPECT_EQ(layout.slots[3].offset, 256u);
}

TEST(LayoutTest, AnOversizedParameterGoesAlone) {
  const Layout layout = BuildLayout(
      MakeModules({{0, 1, 2}}),
      {MakeParameter(8, 0), MakeParameter(5000, 0), MakeParameter(8, 0)},
      {.bucket_bytes = 1024 * sizeof(float), .num_shards = 2});
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(1));
  EXPECT_EQ(layout.buckets[1].count, 5120u);
}

TEST(LayoutTest, FirstAndLastBucketCanBeSmaller) {
  std::vector<Parameter> parameters;
  for (int i = 0; i < 8; ++i) parameters.push_back(MakeParameter(200, 0));
  const auto modules = MakeModules({{0, 1, 2, 3, 4, 5, 6, 7}});
  const Layout layout = BuildLayout(modules, parameters,
                                    {.bucket_bytes = 1024 * sizeof(float),
                                     .num_shards = 1,
                                     .edge_bytes = 256 * sizeof(float)});
  ASSERT_EQ(layout.buckets.size(), 4u);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(0));
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(layout.buckets[2].parameters, ElementsAre(5, 6));
  EXPECT_THAT(layout.buckets[3].parameters, ElementsAre(7));
}

TEST(LayoutTest, AnEdgeHoldsOneParameterAtLeastAndNeverMoreThanABucket) {
  const std::vector<Parameter> parameters = {
      MakeParameter(600, 0), MakeParameter(8, 0), MakeParameter(700, 0)};
  const auto modules = MakeModules({{0, 1, 2}});
  const Layout small = BuildLayout(
      modules, parameters,
      {.bucket_bytes = 2048 * sizeof(float), .num_shards = 1, .edge_bytes = 4});
  ASSERT_EQ(small.buckets.size(), 3u);
  EXPECT_THAT(small.buckets[0].parameters, ElementsAre(0));
  EXPECT_THAT(small.buckets[2].parameters, ElementsAre(2));
  const Layout one = BuildLayout(
      MakeModules({{0}}), {MakeParameter(600, 0)},
      {.bucket_bytes = 2048 * sizeof(float), .num_shards = 1, .edge_bytes = 4});
  EXPECT_EQ(one.buckets.size(), 1u);
  const Layout large = BuildLayout(modules, parameters,
                                   {.bucket_bytes = 512 * sizeof(float),
                                    .num_shards = 1,
                                    .edge_bytes = 1 << 20});
  EXPECT_EQ(large.buckets.size(), 3u);
}

TEST(LayoutTest, FirstUseDecidesTheOrderWhateverTheRegistration) {
  const Layout layout = BuildLayout(MakeModules({{1}, {0}}),
                                    {MakeParameter(4, 1), MakeParameter(4, 0)},
                                    {.bucket_bytes = 1 << 20, .num_shards = 1});
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(1, 0));
}

TEST(LayoutTest, AModuleKnowsTheBucketsOfTiedParametersToo) {
  const Layout layout = BuildLayout(
      MakeModules({{0}, {1}, {2, 0}}),
      {MakeParameter(256, 0), MakeParameter(256, 1), MakeParameter(256, 2)},
      {.bucket_bytes = 256 * sizeof(float), .num_shards = 1});
  EXPECT_THAT(layout.module_buckets[2], ElementsAre(0, 2));
}

TEST(LayoutTest, AModuleWithoutParametersHasNoBuckets) {
  const Layout layout =
      BuildLayout(MakeModules({{0}, {}}), {MakeParameter(1, 0)},
                  {.bucket_bytes = 1 << 20, .num_shards = 1});
  EXPECT_THAT(layout.module_buckets[1], IsEmpty());
}

TEST(LayoutTest, ShardsOfABucketCoverEveryElementOnce) {
  const std::vector<Parameter> parameters = {
      MakeParameter(1000, 0), MakeParameter(70, 0), MakeParameter(2049, 0)};
  const Layout layout = BuildLayout(MakeModules({{0, 1, 2}}), parameters,
                                    {.bucket_bytes = 1 << 20, .num_shards = 3});
  const uint64_t shard_count = layout.buckets[0].count / 3;
  std::vector<int> seen(layout.buckets[0].count, 0);
  for (uint64_t shard = 0; shard < 3; ++shard) {
    for (const Segment& s : ShardSegments(layout, parameters, 0, shard, 3)) {
      EXPECT_EQ(s.in_bucket, shard * shard_count + s.in_shard);
      EXPECT_EQ(s.in_shard % kBlockElements, 0u);
      for (uint64_t i = 0; i < s.count; ++i) ++seen[s.in_bucket + i];
    }
  }
  for (uint32_t p = 0; p < 3; ++p) {
    for (uint64_t i = 0; i < parameters[p].count; ++i) {
      ASSERT_EQ(seen[layout.slots[p].offset + i], 1);
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 1000 + 70 + 2049);
}

TEST(WholeTensorsLayoutTest, AParameterThatABoundaryWouldCutBeginsBehindIt) {
  const Layout layout = BuildLayout(
      MakeModules({{0, 1, 2}}),
      {MakeParameter(256, 0), MakeParameter(1024, 0), MakeParameter(32, 0)},
      {.bucket_bytes = 1 << 20, .num_shards = 2, .whole_tensors = true});
  // The first two share a shard.
  EXPECT_EQ(layout.buckets[0].count, 2 * 1280u);
  EXPECT_EQ(layout.slots[0].offset, 0u);
  EXPECT_EQ(layout.slots[1].offset, 256u);
  EXPECT_EQ(layout.slots[2].offset, 1280u);
}

// Others are cut where it saves room.
TEST(WholeTensorsLayoutTest, OnlyWhatIsAtomicIsKeptWhole) {
  std::vector<Parameter> parameters = {MakeParameter(600, 0),
                                       MakeParameter(600, 0)};
  parameters[1].atomic = true;
  const Layout layout = BuildLayout(MakeModules({{0, 1}}), parameters,
                                    {.bucket_bytes = 1 << 20, .num_shards = 2});
  EXPECT_EQ(layout.buckets[0].count, 2 * 768u);
  EXPECT_EQ(layout.slots[1].offset, 768u);
  parameters[0].count = 1000;
  const Layout cut = BuildLayout(MakeModules({{0, 1}}), parameters,
                                 {.bucket_bytes = 1 << 20, .num_shards = 2});
  EXPECT_EQ(cut.buckets[0].count, 2 * 1024u);
  parameters[0].count = 1100;
  EXPECT_EQ(BuildLayout(MakeModules({{0, 1}}), parameters,
                        {.bucket_bytes = 1 << 20, .num_shards = 2})
                .buckets[0]
                .count,
            2 * 1024u);
}

// Of any sizes: in order, in one shard each, and no shard is without need.
TEST(WholeTensorsLayoutTest, EveryParameterOfAnySizeLiesInOneShard) {
  uint64_t random = 1;
  for (int trial = 0; trial < 300; ++trial) {
    const auto draw = [&](uint64_t below) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      return (random >> 33) % below;
    };
    std::vector<Parameter> parameters;
    std::vector<uint32_t> ids;
    uint64_t sum = 0;
    for (uint64_t n = 1 + draw(12); n > 0; --n) {
      ids.push_back(static_cast<uint32_t>(ids.size()));
      parameters.push_back(
          MakeParameter(1 + draw(draw(2) == 0 ? 5000 : 300), 0));
      sum += (parameters.back().count + kBlockElements - 1) / kBlockElements *
             kBlockElements;
    }
    const uint64_t shards = 1 + draw(5);
    const Layout layout = BuildLayout(
        MakeModules({ids}), parameters,
        {.bucket_bytes = 8192, .num_shards = shards, .whole_tensors = true});
    for (uint32_t b = 0; b < layout.buckets.size(); ++b) {
      const uint64_t shard = layout.buckets[b].count / shards;
      EXPECT_EQ(shard % kBlockElements, 0u);
      EXPECT_LE(shard, sum);
      uint64_t end = 0;
      for (uint32_t id : layout.buckets[b].parameters) {
        const uint64_t offset = layout.slots[id].offset;
        EXPECT_GE(offset, end);
        EXPECT_LE(offset % shard + parameters[id].count, shard) << trial;
        end = offset + parameters[id].count;
      }
      EXPECT_LE(end, layout.buckets[b].count);
    }
  }
}

TEST(LayoutTest, BucketsAreOfOneDTypeAndAllTrainedOrNone) {
  std::vector<Parameter> parameters(5, MakeParameter(300, 0));
  parameters[1].frozen = true;
  parameters[2].has_dtype = true;
  parameters[2].dtype = COMMSCHED_F32;
  parameters[3].frozen = true;
  const Layout layout =
      BuildLayout(MakeModules({{0, 1, 2, 3, 4}}), parameters,
                  {.bucket_bytes = 1 << 20, .dtype = COMMSCHED_BF16});
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(0, 4));
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(1, 3));
  EXPECT_THAT(layout.buckets[2].parameters, ElementsAre(2));
  EXPECT_EQ(layout.buckets[0].dtype, COMMSCHED_BF16);
  EXPECT_EQ(layout.buckets[2].dtype, COMMSCHED_F32);
  EXPECT_TRUE(layout.buckets[1].frozen);
  EXPECT_FALSE(layout.buckets[2].frozen);
}

TEST(LayoutTest, ABucketOfParametersWithoutElementsHasMemory) {
  const Layout layout = BuildLayout(MakeModules({{0, 1}}),
                                    {MakeParameter(0, 0), MakeParameter(0, 0)},
                                    {.bucket_bytes = 1 << 20, .num_shards = 2});
  ASSERT_EQ(layout.buckets.size(), 1u);
  EXPECT_EQ(layout.buckets[0].count, 512u);
  EXPECT_EQ(layout.num_elements, 0u);
}

Parameter MakeAtomic(uint64_t count) {
  Parameter parameter = MakeParameter(count, 0);
  parameter.atomic = true;
  return parameter;
}

// Two of 600 elements do not fit into a shard of 1024 and one of 256.
TEST(LayoutTest, AnAtomicParameterLiesInOneShard) {
  const Layout layout =
      BuildLayout(MakeModules({{0, 1, 2}}),
                  {MakeParameter(100, 0), MakeAtomic(600), MakeAtomic(600)},
                  {.bucket_bytes = 1 << 20, .num_shards = 2});
  ASSERT_EQ(layout.buckets.size(), 1u);
  EXPECT_EQ(layout.slots[1].offset, 256u);
  EXPECT_EQ(layout.slots[2].offset, 1024u);
  EXPECT_EQ(layout.buckets[0].count, 2048u);
}

// The first one makes the bucket as large as one for each rank; three more come
// for nothing, a fifth does not.
TEST(LayoutTest, ParametersFillABucketThatAnAtomicOneHasMadeLarge) {
  const Layout layout = BuildLayout(MakeModules({{0, 1, 2, 3, 4}}),
                                    std::vector<Parameter>(5, MakeAtomic(512)),
                                    {.bucket_bytes = 1, .num_shards = 4});
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_THAT(layout.buckets[0].parameters, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(layout.buckets[0].count, 4u * 512);
  EXPECT_THAT(layout.buckets[1].parameters, ElementsAre(4));
}

TEST(LayoutTest, WhereNothingIsShardedAtomicChangesNothing) {
  const std::vector<Parameter> atomic(3, MakeAtomic(700));
  const std::vector<Parameter> plain(3, MakeParameter(700, 0));
  const LayoutOptions options = {
      .bucket_bytes = 1 << 20, .num_shards = 4, .sharded = false};
  const Layout one = BuildLayout(MakeModules({{0, 1, 2}}), atomic, options);
  const Layout other = BuildLayout(MakeModules({{0, 1, 2}}), plain, options);
  EXPECT_EQ(one.buckets[0].count, other.buckets[0].count);
  EXPECT_EQ(one.slots[2].offset, other.slots[2].offset);
}

// Whether the parameters of a bucket fit into shards of `shard` elements, one
// after the other.
bool FitsInShards(const std::vector<Parameter>& parameters,
                  const std::vector<uint32_t>& ids, uint64_t shard,
                  uint64_t num_shards) {
  uint64_t end = 0;
  for (uint32_t id : ids) {
    const Parameter& p = parameters[id];
    uint64_t begin = (end + 255) / 256 * 256;
    if (p.atomic && p.count > 0) {
      if (p.count > shard) return false;
      while (begin / shard != (begin + p.count - 1) / shard) ++begin;
    }
    end = begin + p.count;
  }
  return end <= shard * num_shards;
}

TEST(LayoutTest, AnyModelLiesInOrderWithAtomicOnesWholeInTheSmallestShards) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    const uint64_t shards = 1 + below(6);
    std::vector<Parameter> parameters;
    std::vector<uint32_t> ids;
    for (uint64_t n = 1 + below(12); n > 0; --n) {
      ids.push_back(static_cast<uint32_t>(parameters.size()));
      Parameter& p = parameters.emplace_back(MakeParameter(below(1500), 0));
      if (below(10) == 0) p.count = 0;
      p.atomic = below(2) == 0;
      p.frozen = below(4) == 0;
      p.has_dtype = below(4) == 0;
      p.dtype = COMMSCHED_BF16;
    }
    const Layout layout =
        BuildLayout(MakeModules({ids}), parameters,
                    {.bucket_bytes = 1 + below(16000),
                     .num_shards = shards,
                     .edge_bytes = below(2) * below(9000),
                     .persist_bytes = below(2) * below(3000)});
    uint64_t placed = 0;
    for (uint32_t b = 0; b < layout.buckets.size(); ++b) {
      const Bucket& bucket = layout.buckets[b];
      ASSERT_EQ(bucket.count % (shards * 256), 0u);
      const uint64_t shard = bucket.count / shards;
      uint64_t end = 0;
      bool atomic = false;
      for (uint32_t id : bucket.parameters) {
        const Parameter& p = parameters[id];
        ++placed;
        EXPECT_EQ(layout.slots[id].bucket, b);
        EXPECT_EQ(layout.slots[id].offset % 256, 0u);
        EXPECT_GE(layout.slots[id].offset, end);
        end = layout.slots[id].offset + p.count;
        EXPECT_EQ(p.frozen, bucket.frozen);
        EXPECT_EQ(p.has_dtype, bucket.dtype == COMMSCHED_BF16);
        if (!p.atomic || p.count == 0) continue;
        atomic = true;
        EXPECT_EQ(layout.slots[id].offset / shard, (end - 1) / shard);
      }
      EXPECT_LE(end, bucket.count);
      if (!atomic || shards == 1) continue;
      EXPECT_TRUE(FitsInShards(parameters, bucket.parameters, shard, shards));
      EXPECT_TRUE(shard == 256 || !FitsInShards(parameters, bucket.parameters,
                                                shard - 256, shards));
    }
    EXPECT_EQ(placed, parameters.size());
  }
}

}  // namespace
}  // namespace commsched::engine
