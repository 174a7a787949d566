// Collectives of every kind: the counts that fit, and the errors of those that
// do not.
#include <limits>
#include <string>

#include "graph/graph.h"
#include "test/graph/builders.h"

namespace commsched {
namespace {

using absl::StatusCode;
using Kind = CollectiveKind;

// A group of 4 ranks, buffers of 16 (a, b), 4 (part) and 64 (large) elements.
class CollectiveTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(dp_, graph_.AddGroup("dp", 4));
    ASSERT_OK_AND_ASSIGN(tp_, graph_.AddGroup("tp", 2));
    ASSERT_OK_AND_ASSIGN(a_, graph_.AddBuffer(F32("a", 16)));
    ASSERT_OK_AND_ASSIGN(b_, graph_.AddBuffer(F32("b", 16)));
    ASSERT_OK_AND_ASSIGN(part_, graph_.AddBuffer(F32("part", 4)));
    ASSERT_OK_AND_ASSIGN(large_, graph_.AddBuffer(F32("large", 64)));
  }

  absl::Status Add(Kind kind, Access input, Access output,
                   std::vector<uint64_t> counts = {}) {
    return graph_
        .AddOp(Collective("op" + std::to_string(graph_.ops().size()), kind, dp_,
                          input, output, std::move(counts)))
        .status();
  }

  void ExpectRefused(const Op& op, StatusCode code, const std::string& part) {
    const Graph before = graph_;
    EXPECT_THAT(graph_.AddOp(op), StatusIs(code, part));
    EXPECT_EQ(graph_, before);
  }
  void ExpectInvalid(Kind kind, Access input, Access output,
                     std::vector<uint64_t> counts, const std::string& part) {
    ExpectRefused(Collective("op", kind, dp_, input, output, std::move(counts)),
                  StatusCode::kInvalidArgument, part);
  }

  Graph graph_;
  GroupId dp_, tp_;
  BufferId a_, b_, part_, large_;
};

TEST_F(CollectiveTest, AccessesAreMadeFromInputAndOutput) {
  ASSERT_OK(Add(Kind::kReduceScatter, Whole(a_), Whole(part_)));
  const std::vector<Access> expected = {Whole(a_, AccessMode::kRead),
                                        Whole(part_, AccessMode::kWrite)};
  EXPECT_EQ(graph_.op(OpId(0)).accesses, expected);
}

TEST_F(CollectiveTest, BarrierHasNoAccessesAndIgnoresInputAndOutput) {
  ASSERT_OK(Add(Kind::kBarrier, Whole(BufferId(77)), Whole(BufferId(78))));
  EXPECT_TRUE(graph_.op(OpId(0)).accesses.empty());
  EXPECT_EQ(graph_.op(OpId(0)).collective.input, Access{});
  ExpectInvalid(Kind::kBarrier, {}, {}, {1, 1, 1, 1}, "takes no counts");
}

TEST_F(CollectiveTest, EqualSplitsOfEveryKindAreAccepted) {
  EXPECT_OK(Add(Kind::kAllReduce, Whole(a_), Whole(b_)));
  EXPECT_OK(Add(Kind::kBroadcast, Range(large_, 8, 16), Whole(b_)));
  EXPECT_OK(Add(Kind::kReduce, Shard(large_, dp_), Whole(b_)));
  EXPECT_OK(Add(Kind::kReduceScatter, Whole(a_), Range(b_, 3, 4)));
  EXPECT_OK(Add(Kind::kAllGather, Whole(part_), Whole(b_)));
  EXPECT_OK(Add(Kind::kAllToAll, Whole(a_), Whole(b_)));
}

TEST_F(CollectiveTest, InPlaceFormsAreAccepted) {
  for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kReduce}) {
    EXPECT_OK(Add(kind, Whole(a_), Whole(a_)));
    EXPECT_OK(Add(kind, Range(a_, 2, 5), Range(a_, 2, 5)));
    EXPECT_OK(Add(kind, Whole(a_), Range(a_, 0, 16)));
    EXPECT_OK(Add(kind, Shard(a_, tp_), Shard(a_, tp_)));
  }
  EXPECT_OK(Add(Kind::kAllGather, Shard(a_, dp_), Whole(a_)));
  EXPECT_OK(Add(Kind::kReduceScatter, Range(a_, 0, 16), Shard(a_, dp_)));
}

TEST_F(CollectiveTest, OtherOverlapsAreRefused) {
  const std::string message = "overlap in buffer 'a' but are not in place";
  ExpectInvalid(Kind::kAllReduce, Range(a_, 0, 8), Range(a_, 4, 8), {},
                message);
  ExpectInvalid(Kind::kBroadcast, Shard(a_, dp_), Range(a_, 0, 4), {}, message);
  ExpectInvalid(Kind::kReduceScatter, Whole(a_), Range(a_, 0, 4), {}, message);
  ExpectInvalid(Kind::kAllGather, Range(a_, 4, 4), Whole(a_), {}, message);
  ExpectInvalid(Kind::kAllToAll, Whole(a_), Whole(a_), {}, message);
}

TEST_F(CollectiveTest, DisjointRangesOfOneBufferAreNotAnOverlap) {
  EXPECT_OK(Add(Kind::kAllToAll, Range(a_, 0, 8), Range(a_, 8, 8)));
}

TEST_F(CollectiveTest, AllReduceNeedsEqualCounts) {
  ExpectInvalid(Kind::kAllReduce, Whole(a_), Whole(part_), {},
                "all_reduce 'op': input has 16 elements, output 4");
}

TEST_F(CollectiveTest, SplitsNeedAWholeOfGroupSizeParts) {
  ExpectInvalid(Kind::kReduceScatter, Whole(a_), Whole(b_), {},
                "the whole has 16 elements, not 4 parts of 16 (group 'dp')");
  ExpectInvalid(Kind::kAllGather, Whole(a_), Whole(part_), {},
                "the whole has 4 elements, not 4 parts of 16");
  ExpectInvalid(Kind::kAllToAll, Range(a_, 0, 6), Range(b_, 0, 6), {},
                "6 elements are not 4 equal parts");
}

TEST_F(CollectiveTest, PartsThatOverflowAreNotTheWhole) {
  constexpr uint64_t kHuge = std::numeric_limits<int64_t>::max() / 4;
  ASSERT_OK_AND_ASSIGN(const BufferId huge, graph_.AddBuffer(F32("h", kHuge)));
  ASSERT_OK_AND_ASSIGN(const GroupId all, graph_.AddGroup("all", 4096));
  ExpectRefused(Collective("op", Kind::kAllGather, all, Whole(huge), Whole(a_)),
                StatusCode::kInvalidArgument,
                "the whole has 16 elements, not 4096");
}

TEST_F(CollectiveTest, UnevenSplitsAreAccepted) {
  EXPECT_OK(
      Add(Kind::kReduceScatter, Whole(a_), Shard(a_, dp_), {1, 0, 5, 10}));
  EXPECT_OK(Add(Kind::kAllGather, Shard(b_, dp_), Whole(b_), {16, 0, 0, 0}));
  EXPECT_OK(
      Add(Kind::kAllGather, Whole(part_), Range(a_, 0, 10), {4, 3, 2, 1}));
  EXPECT_OK(
      Add(Kind::kAllToAll, Whole(a_), Whole(b_), std::vector<uint64_t>(16, 4)));
}

TEST_F(CollectiveTest, ShardOfABufferThatCannotBeSharedEquallyTakesCounts) {
  ASSERT_OK_AND_ASSIGN(const BufferId odd, graph_.AddBuffer(F32("odd", 7)));
  ExpectRefused(
      Collective("op", Kind::kAllGather, dp_, Shard(odd, dp_), Whole(odd)),
      StatusCode::kOutOfRange, "no equal shards");
  EXPECT_OK(Add(Kind::kAllGather, Shard(odd, dp_), Whole(odd), {2, 2, 2, 1}));
}

TEST_F(CollectiveTest, CountsMustBeAsManyAsTheKindNeeds) {
  ExpectInvalid(Kind::kAllReduce, Whole(a_), Whole(b_), {4, 4, 4, 4},
                "all_reduce 'op': this kind takes no counts");
  ExpectInvalid(Kind::kAllGather, Whole(part_), Whole(a_), {8, 8},
                "has 2 counts; a group of 4 ranks needs 4");
  ExpectInvalid(Kind::kAllToAll, Whole(a_), Whole(b_), {4, 4, 4, 4},
                "has 4 counts; a group of 4 ranks needs 16");
}

TEST_F(CollectiveTest, CountsMustFitTheRegions) {
  ExpectInvalid(Kind::kReduceScatter, Whole(a_), Whole(b_), {4, 4, 4, 3},
                "the counts' sum is 15, but the whole has 16 elements");
  ExpectInvalid(Kind::kReduceScatter, Whole(a_), Whole(part_), {5, 4, 4, 3},
                "the largest count is 5, but the part in buffer 'part' has 4");
  ExpectInvalid(Kind::kAllGather, Shard(large_, dp_), Whole(a_), {4, 4, 4, 4},
                "the sharded buffer 'large' has 64 elements");
  ExpectInvalid(Kind::kAllGather, Whole(part_), Whole(a_),
                {~uint64_t{0}, 1, 0, 0}, "the counts' sum is more than 2^64-1");
}

TEST_F(CollectiveTest, AllToAllRowsFitTheInputAndColumnsTheOutput) {
  std::vector<uint64_t> counts(16, 0);
  counts[4] = 17;  // rank 1 sends 17 to rank 0
  ExpectInvalid(Kind::kAllToAll, Whole(a_), Whole(large_), counts,
                "rank 1 sends 17 elements, but the input has 16");
  counts[4] = 10;
  counts[8] = 7;  // and rank 2 sends 7
  ExpectInvalid(Kind::kAllToAll, Whole(a_), Whole(b_), counts,
                "rank 0 receives 17 elements, but the output has 16");
  EXPECT_OK(Add(Kind::kAllToAll, Whole(a_), Whole(large_), counts));
}

TEST_F(CollectiveTest, OtherShardsBesideCountsAreRefused) {
  const std::vector<uint64_t> counts = {4, 4, 4, 4};
  ExpectInvalid(Kind::kAllGather, Shard(a_, tp_), Whole(b_), counts,
                "the input cannot be a shard");
  ExpectInvalid(Kind::kReduceScatter, Shard(large_, dp_), Whole(part_), counts,
                "the input cannot be a shard");
  ExpectInvalid(Kind::kAllToAll, Whole(a_), Shard(large_, dp_),
                std::vector<uint64_t>(16, 1), "the output cannot be a shard");
}

TEST_F(CollectiveTest, DifferentDtypesAreRefused) {
  Buffer half = F32("half", 16);
  half.dtype = DType::kF16;
  ASSERT_OK_AND_ASSIGN(const BufferId id, graph_.AddBuffer(half));
  ExpectInvalid(Kind::kAllReduce, Whole(a_), Whole(id), {},
                "input 'a' is f32, output 'half' is f16");
}

TEST_F(CollectiveTest, RootMustBeInTheGroup) {
  Op op = Collective("op", Kind::kBroadcast, dp_, Whole(a_), Whole(a_));
  for (const int root : {-1, 4}) {
    op.collective.root = root;
    ExpectRefused(
        op, StatusCode::kOutOfRange,
        "root " + std::to_string(root) + " is not in group 'dp' of 4 ranks");
  }
  op.collective.root = 3;
  EXPECT_OK(graph_.AddOp(op));
}

TEST_F(CollectiveTest, RootAndReductionOfKindsWithoutThemAreReset) {
  Op op = Collective("op", Kind::kAllGather, dp_, Whole(part_), Whole(a_));
  op.collective.root = 99;
  op.collective.reduce_op = ReduceOp::kMax;
  ASSERT_OK_AND_ASSIGN(const OpId id, graph_.AddOp(op));
  EXPECT_EQ(graph_.op(id).collective.root, 0);
  EXPECT_EQ(graph_.op(id).collective.reduce_op, ReduceOp::kSum);
}

TEST_F(CollectiveTest, UnknownGroupKindAndReductionAreRefused) {
  ExpectRefused(
      Collective("op", Kind::kAllReduce, GroupId(5), Whole(a_), Whole(a_)),
      StatusCode::kNotFound, "uses group 5, but the graph has 2 groups");
  ExpectInvalid(static_cast<Kind>(9), Whole(a_), Whole(a_), {},
                "collective kind 9 is not in 0..8");
  Op op = Collective("op", Kind::kAllReduce, dp_, Whole(a_), Whole(a_));
  op.collective.reduce_op = static_cast<ReduceOp>(kNumReduceOps);
  ExpectRefused(op, StatusCode::kInvalidArgument, "reduction 9");
  for (int r = kNumGraphReduceOps; r < kNumReduceOps; ++r) {
    op.collective.reduce_op = static_cast<ReduceOp>(r);
    ExpectRefused(op, StatusCode::kInvalidArgument,
                  "reduction " +
                      std::string(ReduceOpName(op.collective.reduce_op)) +
                      " is for channels; graphs take sum, avg, min, max, prod");
  }
}

class PointToPointTest : public CollectiveTest {
 protected:
  Op PeerOp(Kind kind, int peer_offset, Access side) {
    Op op = Collective("op" + std::to_string(graph_.ops().size()), kind, dp_,
                       side, side);
    op.collective.peer_offset = peer_offset;
    return op;
  }
};

TEST_F(PointToPointTest, SendHasAnInputOnlyAndReceiveAnOutputOnly) {
  ASSERT_OK_AND_ASSIGN(const OpId send,
                       graph_.AddOp(PeerOp(Kind::kSend, 1, Whole(a_))));
  ASSERT_OK_AND_ASSIGN(const OpId recv,
                       graph_.AddOp(PeerOp(Kind::kRecv, -5, Whole(a_))));
  EXPECT_EQ(graph_.op(send).accesses, std::vector<Access>{Whole(a_)});
  EXPECT_EQ(graph_.op(send).collective.output, Access{});
  EXPECT_EQ(graph_.op(recv).accesses,
            std::vector<Access>{Whole(a_, AccessMode::kWrite)});
  EXPECT_EQ(graph_.op(recv).collective.input, Access{});
  EXPECT_EQ(graph_.op(recv).collective.peer_offset, -5);
}

TEST_F(PointToPointTest, PeerIsAnotherMember) {
  for (const int offset : {0, 4, -8}) {
    ExpectRefused(PeerOp(Kind::kSend, offset, Whole(a_)),
                  StatusCode::kInvalidArgument,
                  "names the member itself in group 'dp' of 4 ranks");
  }
}

TEST_F(PointToPointTest, OnlyTheSideThatIsThereIsChecked) {
  Op op = PeerOp(Kind::kRecv, 1, Whole(a_));
  op.collective.input = Whole(BufferId(77));
  EXPECT_OK(graph_.AddOp(op));
  ExpectRefused(PeerOp(Kind::kRecv, 1, Whole(BufferId(77))),
                StatusCode::kNotFound, "accesses buffer 77");
}

TEST_F(PointToPointTest, CountsAreRefused) {
  Op op = PeerOp(Kind::kSend, 1, Whole(a_));
  op.collective.counts = {4, 4, 4, 4};
  ExpectRefused(op, StatusCode::kInvalidArgument, "this kind takes no counts");
}

TEST_F(PointToPointTest, OtherKindsForgetThePeer) {
  Op op = PeerOp(Kind::kAllReduce, 3, Whole(a_));
  ASSERT_OK_AND_ASSIGN(const OpId id, graph_.AddOp(op));
  EXPECT_EQ(graph_.op(id).collective.peer_offset, 0);
}

TEST_F(CollectiveTest, WhatIsOnlyMovedOrSummedByTheReceiverMayBeLossy) {
  const auto lossy = [&](Kind kind, Access input, Access output) {
    Op op = Collective("op" + std::to_string(graph_.ops().size()), kind, dp_,
                       input, output);
    op.collective.peer_offset = 1;
    op.collective.lossy = true;
    return op;
  };
  EXPECT_OK(graph_.AddOp(lossy(Kind::kAllGather, Whole(part_), Whole(a_))));
  EXPECT_OK(graph_.AddOp(lossy(Kind::kReduceScatter, Whole(a_), Whole(part_))));
  EXPECT_OK(graph_.AddOp(lossy(Kind::kAllToAll, Whole(a_), Whole(b_))));
  EXPECT_OK(graph_.AddOp(lossy(Kind::kBroadcast, Whole(a_), Whole(b_))));
  EXPECT_OK(graph_.AddOp(lossy(Kind::kSend, Whole(a_), {})));
  EXPECT_OK(graph_.AddOp(lossy(Kind::kRecv, {}, Whole(a_))));
  for (const Kind kind : {Kind::kAllReduce, Kind::kReduce}) {
    ExpectRefused(lossy(kind, Whole(a_), Whole(b_)),
                  StatusCode::kInvalidArgument,
                  "cannot be lossy; ask for reduce_scatter and all_gather");
  }
  ExpectRefused(lossy(Kind::kBarrier, {}, {}), StatusCode::kInvalidArgument,
                "cannot be lossy");
  Buffer integers = F32("integers", 16);
  integers.dtype = DType::kI32;
  ASSERT_OK_AND_ASSIGN(const BufferId i, graph_.AddBuffer(integers));
  ExpectRefused(lossy(Kind::kBroadcast, Whole(i), Whole(i)),
                StatusCode::kInvalidArgument,
                "buffer 'integers' is i32; only f32, f16 and bf16");
}

// a, b: 4 x 4 elements; large: 16 x 4.
TEST_F(CollectiveTest, TileCountsAsADenseArray) {
  const Access columns = Tile(a_, 1, 2, 4, 4);
  EXPECT_OK(Add(Kind::kAllReduce, columns, columns));
  EXPECT_OK(Add(Kind::kAllReduce, columns, Range(b_, 0, 8)));
  EXPECT_OK(Add(Kind::kAllGather, columns, Range(large_, 0, 32)));
  EXPECT_OK(Add(Kind::kReduceScatter, Range(large_, 0, 32), columns));
  ExpectInvalid(Kind::kAllReduce, columns, Range(b_, 0, 9), {},
                "input has 8 elements, output 9");
  ExpectInvalid(Kind::kAllReduce, columns, Tile(a_, 2, 2, 4, 4), {},
                "overlap in buffer 'a' but are not in place");
}

TEST_F(CollectiveTest, TileThatIsSplitNeedsRowsOfEqualParts) {
  EXPECT_OK(Add(Kind::kAllToAll, Tile(large_, 0, 8, 2, 16), Whole(a_)));
  EXPECT_OK(Add(Kind::kAllToAll, Whole(a_), Tile(large_, 4, 4, 4, 8)));
  EXPECT_OK(Add(Kind::kReduceScatter, Tile(large_, 0, 8, 2, 16), Whole(part_)));
  EXPECT_OK(Add(Kind::kAllGather, Whole(part_), Tile(large_, 0, 8, 2, 16)));
  const std::string not_equal =
      "the rows of 2 elements of the tile that is split are not 4 equal parts";
  const Access narrow = Tile(large_, 0, 2, 8, 8);
  ExpectInvalid(Kind::kAllToAll, narrow, Whole(a_), {}, not_equal);
  ExpectInvalid(Kind::kAllToAll, Whole(a_), narrow, {}, not_equal);
  ExpectInvalid(Kind::kReduceScatter, narrow, Whole(part_), {}, not_equal);
  ExpectInvalid(Kind::kAllGather, Whole(part_), narrow, {}, not_equal);
}

TEST_F(CollectiveTest, CountsSplitATileByColumns) {
  const Access tile = Tile(large_, 0, 8, 2, 16);
  EXPECT_OK(Add(Kind::kReduceScatter, tile, Whole(a_), {2, 4, 0, 10}));
  EXPECT_OK(Add(Kind::kReduceScatter, Whole(a_), tile, {2, 4, 0, 10}));
  ExpectInvalid(Kind::kReduceScatter, tile, Whole(a_), {2, 3, 1, 10},
                "count 3 is not a multiple of the 2 rows of the input");
  ExpectInvalid(Kind::kReduceScatter, Whole(a_), tile, {2, 3, 1, 10},
                "count 3 is not a multiple of the 2 rows of the output");
}

TEST_F(CollectiveTest, InputOutsideItsBufferIsRefused) {
  ExpectRefused(
      Collective("op", Kind::kAllReduce, dp_, Range(a_, 8, 9), Range(b_, 0, 9)),
      StatusCode::kOutOfRange, "ends outside buffer 'a'");
  ExpectRefused(
      Collective("op", Kind::kAllReduce, dp_, Whole(a_), Whole(BufferId(44))),
      StatusCode::kNotFound, "accesses buffer 44");
}

}  // namespace
}  // namespace commsched
