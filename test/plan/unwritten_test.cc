#include "plan/unwritten.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "test/support/graph_builder.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Range;
using test::Read;
using test::ReadWrite;
using test::Shard;
using test::Tile;
using test::Write;

constexpr auto kRefused = absl::StatusCode::kInvalidArgument;

absl::Status Planned(const GraphBuilder& builder) {
  return BuildPlan(builder.graph(), {}, {}).status();
}

// An op that writes some of a buffer of 64 elements, and one that reads some.
absl::Status WriteAndRead(const std::vector<Region>& written, Region read,
                          Ownership ownership = Ownership::kOwned) {
  GraphBuilder b;
  b.Group("dp", 4);
  b.Group("tp", 2);
  const BufferId x = b.Buffer("x", 64, ownership);
  for (size_t i = 0; i < written.size(); ++i) {
    b.Compute(absl::StrCat("make.", i), {Write(x, written[i])});
  }
  b.Compute("use", {Read(x, read)});
  return Planned(b);
}

const GroupId kDp(0);
const GroupId kTp(1);

TEST(UnwrittenTest, AReadOfOwnedMemoryThatNobodyWritesIsRefusedByName) {
  EXPECT_THAT(WriteAndRead({}, {}),
              StatusIs(kRefused,
                       "op 'use' reads elements 0 to 63 of OWNED buffer 'x'"));
  EXPECT_OK(WriteAndRead({}, {}, Ownership::kBound));
}

TEST(UnwrittenTest, AWriteOfTheWholeIsEnoughForAnyRead) {
  for (Region read : {Region{}, Range(3, 5), Shard(kDp), Tile(0, 4, 4, 16)}) {
    EXPECT_OK(WriteAndRead({{}}, read));
    EXPECT_OK(WriteAndRead({Range(0, 64)}, read));
  }
}

// The first step reads what the arena happens to hold; later ones do not.
TEST(UnwrittenTest, ALaterOpOfTheStepMayBeTheWriter) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 64, Ownership::kOwned);
  b.Compute("use", {Read(x)});
  b.Compute("make", {Write(x)});
  EXPECT_OK(Planned(b));
}

TEST(UnwrittenTest, AnOpMayKeepWhatItWroteInTheStepBefore) {
  GraphBuilder b;
  b.Compute("update", {ReadWrite(b.Buffer("moment", 64, Ownership::kOwned))});
  EXPECT_OK(Planned(b));
}

TEST(UnwrittenTest, ACollectiveMayBeTheWriter) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId in = b.Buffer("in", 32);
  const BufferId out = b.Buffer("out", 64, Ownership::kOwned);
  b.Collective("gather", test::Spec(CollectiveKind::kAllGather, dp, Read(in),
                                    Write(out)));
  b.Compute("use", {Read(out)});
  EXPECT_OK(Planned(b));
}

TEST(UnwrittenTest, ACollectiveMayBeTheReader) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 2);
  const BufferId in = b.Buffer("in", 64, Ownership::kOwned);
  b.ReduceScatter("reduce", dp, Read(in), Write(b.Buffer("out", 32)));
  EXPECT_THAT(Planned(b), StatusIs(kRefused,
                                   "op 'reduce' reads elements 0 to 63 of "
                                   "OWNED buffer 'in'"));
}

// An op that makes `made` of a buffer of 64 elements, none if it is empty, and
// a collective on it in place.
absl::Status InPlace(CollectiveKind kind, Region input, Region output,
                     const std::vector<Region>& made,
                     const std::vector<std::vector<int>>& positions = {
                         {0, 1, 2, 3}}) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", 4);
  const BufferId x = b.Buffer("x", 64, Ownership::kOwned);
  for (size_t i = 0; i < made.size(); ++i) {
    b.Compute(absl::StrCat("make.", i), {Write(x, made[i])});
  }
  b.Collective("move", test::Spec(kind, dp, Read(x, input), Write(x, output)));
  b.Compute("use", {Read(x)});
  return CheckOwnedReads(b.graph(), positions);
}

TEST(UnwrittenTest, ACollectiveInPlaceIsNoWriterOfWhatItReads) {
  for (CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduce,
        CollectiveKind::kBroadcast}) {
    EXPECT_THAT(InPlace(kind, {}, {}, {}),
                StatusIs(kRefused,
                         "op 'move' reads elements 0 to 63 of OWNED buffer "
                         "'x', which has 64, but no op of the step writes them "
                         "except 'move', which passes on in place what it "
                         "reads: declare"));
    EXPECT_THAT(InPlace(kind, {}, {}, {Range(0, 48)}),
                StatusIs(kRefused, "reads elements 48 to 63 of"));
    EXPECT_OK(InPlace(kind, {}, {}, {{}}));
    EXPECT_OK(InPlace(kind, {}, {}, {Range(0, 48), Range(48, 16)}));
  }
  EXPECT_THAT(InPlace(CollectiveKind::kReduceScatter, {}, Shard(kDp), {}),
              StatusIs(kRefused, "op 'move' reads elements 0 to 63 of"));
  EXPECT_OK(InPlace(CollectiveKind::kReduceScatter, {}, Shard(kDp), {{}}));
}

TEST(UnwrittenTest, AnAllGatherInPlaceWritesAllButItsOwnShard) {
  EXPECT_OK(InPlace(CollectiveKind::kAllGather, Shard(kDp), {}, {Shard(kDp)}));
  EXPECT_OK(InPlace(CollectiveKind::kAllGather, Shard(kDp), {}, {{}}));
  EXPECT_THAT(InPlace(CollectiveKind::kAllGather, Shard(kDp), {}, {}),
              StatusIs(kRefused,
                       "op 'move' reads elements 0 to 15 of OWNED buffer 'x'"));
  EXPECT_THAT(
      InPlace(CollectiveKind::kAllGather, Shard(kDp), {}, {Range(0, 48)}),
      StatusIs(kRefused,
               "reads elements 48 to 63 of OWNED buffer 'x', which "
               "has 64, at position 3 of group 'dp'"));
}

// The root is another role.
TEST(UnwrittenTest, ABroadcastInPlaceWritesWhereItIsNotTheRoot) {
  EXPECT_OK(InPlace(CollectiveKind::kBroadcast, {}, {}, {}, {{1, 2, 3}}));
  EXPECT_THAT(InPlace(CollectiveKind::kBroadcast, {}, {}, {}, {{0}}),
              StatusIs(kRefused, "op 'move' reads elements 0 to 63 of"));
}

TEST(UnwrittenTest, TwoCollectivesInPlaceAreNoWritersForEachOther) {
  GraphBuilder b;
  const BufferId x = b.Buffer("x", 64, Ownership::kOwned);
  for (const char* name : {"dp", "tp"}) {
    b.Collective(name, test::Spec(CollectiveKind::kAllReduce, b.Group(name, 2),
                                  Read(x), Write(x)));
  }
  EXPECT_THAT(Planned(b), StatusIs(kRefused, "op 'dp' reads elements 0 to 63"));
}

TEST(UnwrittenTest, RangesMustCoverWhatIsRead) {
  EXPECT_OK(WriteAndRead({Range(0, 32), Range(32, 32)}, {}));
  EXPECT_OK(WriteAndRead({Range(40, 8), Range(16, 24)}, Range(20, 28)));
  EXPECT_THAT(WriteAndRead({Range(0, 16), Range(48, 16)}, {}),
              StatusIs(kRefused, "reads elements 16 to 47 of"));
  EXPECT_THAT(WriteAndRead({Range(0, 32)}, Range(31, 2)),
              StatusIs(kRefused, "reads elements 32 to 32 of"));
  EXPECT_THAT(WriteAndRead({Range(8, 8)}, Range(0, 16)),
              StatusIs(kRefused, "reads elements 0 to 7 of"));
}

TEST(UnwrittenTest, AShardIsThatOfItsOwnRank) {
  EXPECT_OK(WriteAndRead({Shard(kDp)}, Shard(kDp)));
  EXPECT_OK(WriteAndRead({Range(0, 32), Range(32, 32)}, Shard(kDp)));
  EXPECT_THAT(WriteAndRead({Shard(kDp)}, {}),
              StatusIs(kRefused,
                       "reads elements 16 to 63 of OWNED buffer 'x', which has "
                       "64, at position 0 of group 'dp'"));
  EXPECT_THAT(WriteAndRead({Range(0, 48)}, Shard(kDp)),
              StatusIs(kRefused,
                       "reads elements 48 to 63 of OWNED buffer 'x', which has "
                       "64, at position 3 of group 'dp'"));
}

// Only a collective can say an uneven part.
TEST(UnwrittenTest, UnevenPartsAreTakenToCoverWhatIsRead) {
  for (const Region& read : {Region{}, Shard(kDp)}) {
    GraphBuilder b;
    const GroupId dp = b.Group("dp", 2);
    const BufferId whole = b.Buffer("whole", 8);
    const BufferId part = b.Buffer("part", 8, Ownership::kOwned);
    CollectiveSpec spec = test::Spec(CollectiveKind::kReduceScatter, dp,
                                     Read(whole), Write(part, Shard(dp)));
    spec.counts = {3, 5};
    b.Collective("rs", spec);
    b.Compute("use", {Read(part, read)});
    EXPECT_OK(Planned(b));
  }
}

TEST(UnwrittenTest, ShardsOfSeveralGroupsAreTakenToCoverEachOther) {
  EXPECT_OK(WriteAndRead({Shard(kTp)}, Shard(kDp)));
}

TEST(UnwrittenTest, TilesOfOneStrideAreExact) {
  const Region left = Tile(0, 8, 4, 16);
  const Region right = Tile(8, 8, 4, 16);
  EXPECT_OK(WriteAndRead({left, right}, {}));
  EXPECT_OK(WriteAndRead({left}, Tile(2, 4, 2, 16)));
  EXPECT_THAT(WriteAndRead({left}, right), StatusIs(kRefused, "'use' reads"));
  EXPECT_THAT(WriteAndRead({left}, {}), StatusIs(kRefused, "'use' reads"));
}

TEST(UnwrittenTest, OneRoleOfManyHasItsOwnPositionOnly) {
  // Role 0 is at position 0, so its shard is the first quarter.
  GraphBuilder b;
  const GroupId pp = b.Group("pp", 4);
  const BufferId x = b.Buffer("x", 64, Ownership::kOwned);
  b.Compute("make", {Write(x, Shard(pp))});
  b.Compute("use", {Read(x, Range(0, 16))});
  EXPECT_OK(CheckOwnedReads(b.graph(), {{0}}));
  EXPECT_THAT(CheckOwnedReads(b.graph(), {{0, 1}}),
              StatusIs(kRefused, "position 1 of group 'pp'"));
}

}  // namespace
}  // namespace commsched
