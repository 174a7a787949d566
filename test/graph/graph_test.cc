#include "graph/graph.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "test/graph/builders.h"

namespace commsched {
namespace {

using absl::StatusCode;

using enum AccessMode;

class GraphTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(dp_, graph_.AddGroup("dp", 4));
    ASSERT_OK_AND_ASSIGN(w_, graph_.AddBuffer(F32("w", 16)));
    ASSERT_OK_AND_ASSIGN(first_, graph_.AddOp(Compute("first")));
  }

  // Adds `op`, which must fail with `code` saying `part` and change nothing.
  void ExpectRefused(Op op, StatusCode code, const std::string& part) {
    const Graph before = graph_;
    EXPECT_THAT(graph_.AddOp(std::move(op)), StatusIs(code, part));
    EXPECT_EQ(graph_, before);
  }

  Graph graph_;
  GroupId dp_;
  BufferId w_;
  OpId first_;
};

TEST_F(GraphTest, IdsAreDenseInTheOrderOfDeclaration) {
  EXPECT_EQ(first_, OpId(0));
  ASSERT_OK_AND_ASSIGN(const OpId second, graph_.AddOp(Compute("second")));
  EXPECT_EQ(second, OpId(1));
  EXPECT_EQ(graph_.op(second).name, "second");
}

TEST_F(GraphTest, NamesAreFoundAndUnknownOnesAreNamed) {
  ASSERT_OK_AND_ASSIGN(const OpId op, graph_.FindOp("first"));
  EXPECT_EQ(op, first_);
  ASSERT_OK_AND_ASSIGN(const BufferId buffer, graph_.FindBuffer("w"));
  EXPECT_EQ(buffer, w_);
  ASSERT_OK_AND_ASSIGN(const GroupId group, graph_.FindGroup("dp"));
  EXPECT_EQ(group, dp_);
  EXPECT_THAT(graph_.FindOp("w"),
              StatusIs(StatusCode::kNotFound, "no op is called 'w'"));
}

TEST_F(GraphTest, SecondThingOfTheSameNameIsRefused) {
  EXPECT_THAT(
      graph_.AddGroup("dp", 2),
      StatusIs(StatusCode::kAlreadyExists, "another group is called 'dp'"));
  EXPECT_THAT(
      graph_.AddBuffer(F32("w", 1)),
      StatusIs(StatusCode::kAlreadyExists, "another buffer is called 'w'"));
  ExpectRefused(Compute("first"), StatusCode::kAlreadyExists,
                "another op is called 'first'");
}

TEST_F(GraphTest, OneNameMayServeAnOpABufferAndAGroup) {
  EXPECT_OK(graph_.AddOp(Compute("dp")));
  EXPECT_OK(graph_.AddBuffer(F32("dp", 1)));
}

TEST_F(GraphTest, NamesAreNotEmptyNotLongAndUtf8) {
  ExpectRefused(Compute(""), StatusCode::kInvalidArgument, "op has an empty");
  EXPECT_OK(graph_.AddOp(Compute(std::string(256, 'x'))));
  ExpectRefused(Compute(std::string(257, 'x')), StatusCode::kInvalidArgument,
                "of 257 bytes is longer than 256");
  EXPECT_OK(graph_.AddOp(Compute("gradient \xE2\x88\x87w \xF0\x9F\x9A\x80")));
  for (const char* text : {"\xFF", "\xC0\x80", "\xE2\x88", "\xED\xA0\x80",
                           "\xF4\x90\x80\x80", "a\x80", "\xC3("}) {
    ExpectRefused(Compute(text), StatusCode::kInvalidArgument, "is not UTF-8");
  }
  ExpectRefused(Compute(std::string("a\0b", 3)), StatusCode::kInvalidArgument,
                "op name of 3 bytes contains a NUL");
}

TEST_F(GraphTest, GroupSizesAreOneToFourThousandNinetySix) {
  EXPECT_OK(graph_.AddGroup("one", 1));
  EXPECT_OK(graph_.AddGroup("most", 4096));
  for (const int size : {0, -1, 4097}) {
    EXPECT_THAT(graph_.AddGroup("other", size),
                StatusIs(StatusCode::kInvalidArgument,
                         "group 'other': size " + std::to_string(size) +
                             " is not in 1..4096"));
  }
}

TEST_F(GraphTest, BufferNeedsElementsAKnownTypeAndAKnownOwner) {
  EXPECT_THAT(graph_.AddBuffer(F32("b", 0)),
              StatusIs(StatusCode::kInvalidArgument, "'b' has 0 elements"));
  Buffer buffer = F32("b", 1);
  buffer.dtype = static_cast<DType>(kNumDTypes);
  EXPECT_THAT(graph_.AddBuffer(buffer),
              StatusIs(StatusCode::kInvalidArgument, "dtype 17"));
  buffer.dtype = DType::kF32;
  buffer.ownership = static_cast<Ownership>(3);
  EXPECT_THAT(graph_.AddBuffer(buffer),
              StatusIs(StatusCode::kInvalidArgument, "ownership 3"));
}

TEST_F(GraphTest, BufferOfATypeThatOnlyTravelsIsRefusedByName) {
  for (int d = kNumComputedDTypes; d < kNumDTypes; ++d) {
    Buffer buffer = F32("b", 1);
    buffer.dtype = static_cast<DType>(d);
    EXPECT_THAT(
        graph_.AddBuffer(buffer),
        StatusIs(StatusCode::kInvalidArgument,
                 "buffer 'b': dtype " + std::string(DTypeName(buffer.dtype)) +
                     " is for channels; graphs take f32, f64, f16, bf16, i8, "
                     "i32, i64, u8"));
  }
}

TEST_F(GraphTest, BufferOfMoreThanTwoToThe63BytesIsRefused) {
  constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();
  EXPECT_OK(graph_.AddBuffer(F32("largest", kMaxBytes / 4)));
  EXPECT_THAT(graph_.AddBuffer(F32("larger", kMaxBytes / 4 + 1)),
              StatusIs(StatusCode::kOutOfRange, "exceed 2^63-1 bytes"));
}

TEST_F(GraphTest, ReserveBeyondTheLimitOfOpsIsRefused) {
  EXPECT_OK(graph_.Reserve(1000));
  EXPECT_THAT(graph_.Reserve((1 << 24) + 1),
              StatusIs(StatusCode::kResourceExhausted,
                       "16777217 ops exceed the limit of 16777216"));
}

TEST_F(GraphTest, AccessToAnUnknownBufferOrGroupIsNotFound) {
  ExpectRefused(Compute("op", {Whole(BufferId(7))}), StatusCode::kNotFound,
                "op 'op' accesses buffer 7, but the graph has 1 buffers");
  ExpectRefused(Compute("op", {Whole(BufferId())}), StatusCode::kNotFound,
                "op 'op' accesses buffer");
  ExpectRefused(Compute("op", {Shard(w_, GroupId(3))}), StatusCode::kNotFound,
                "by group 3, but the graph has 1 groups");
}

TEST_F(GraphTest, RangeMustLieInItsBuffer) {
  EXPECT_OK(graph_.AddOp(Compute("all", {Range(w_, 0, 16)})));
  ExpectRefused(Compute("op", {Range(w_, 1, 16)}), StatusCode::kOutOfRange,
                "range of 16 elements from 1 ends outside buffer 'w' of 16");
  ExpectRefused(Compute("op", {Range(w_, ~uint64_t{0}, 2)}),
                StatusCode::kOutOfRange, "ends outside buffer 'w'");
  ExpectRefused(Compute("op", {Range(w_, 3, 0)}), StatusCode::kInvalidArgument,
                "a range of buffer 'w' has 0 elements");
}

TEST_F(GraphTest, TileMustLieInItsBuffer) {
  EXPECT_FALSE(graph_.has_tiles());
  EXPECT_OK(graph_.AddOp(Compute("all", {Tile(w_, 0, 4, 4, 4)})));
  EXPECT_OK(graph_.AddOp(Compute("last", {Tile(w_, 3, 1, 4, 4)})));
  EXPECT_TRUE(graph_.has_tiles());
  ExpectRefused(Compute("op", {Tile(w_, 3, 2, 4, 4)}), StatusCode::kOutOfRange,
                "tile of 4 rows of 2 elements at stride 4 from 3 ends outside "
                "buffer 'w' of 16 elements");
  ExpectRefused(Compute("op", {Tile(w_, 0, 0, 4, 4)}),
                StatusCode::kInvalidArgument,
                "a tile of buffer 'w' has rows of 0 elements");
  ExpectRefused(Compute("op", {Tile(w_, 0, 4, 0, 4)}),
                StatusCode::kInvalidArgument, "has 0 rows");
  ExpectRefused(Compute("op", {Tile(w_, 0, 4, 2, 3)}),
                StatusCode::kInvalidArgument,
                "has a stride of 3 elements, less than its rows of 4");
}

TEST_F(GraphTest, TileWhoseEndOverflowsIsRefused) {
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  for (const Access& tile :
       {Tile(w_, 0, 1, 3, kHuge), Tile(w_, 0, kHuge, 2, kHuge),
        Tile(w_, kHuge, 1, 2, kHuge), Tile(w_, 0, 1, ~uint64_t{0}, 1)}) {
    ExpectRefused(Compute("op", {tile}), StatusCode::kOutOfRange,
                  "ends outside buffer 'w'");
  }
}

TEST_F(GraphTest, WritesToInterleavedTilesAreApart) {
  const auto write = AccessMode::kWrite;
  EXPECT_OK(graph_.AddOp(Compute(
      "apart", {Tile(w_, 0, 2, 4, 4, write), Tile(w_, 2, 1, 4, 4, write),
                Tile(w_, 3, 1, 4, 4, write)})));
  ExpectRefused(
      Compute("op", {Tile(w_, 0, 2, 4, 4, write), Tile(w_, 2, 1, 4, 4, write),
                     Range(w_, 12, 1, write)}),
      StatusCode::kInvalidArgument, "two overlapping writes to buffer 'w'");
}

class LateBoundTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    Buffer buffer = F32("fresh", 16);
    buffer.ownership = Ownership::kLateBound;
    ASSERT_OK_AND_ASSIGN(fresh_, graph_.AddBuffer(buffer));
  }
  BufferId fresh_;
};

TEST_F(LateBoundTest, FirstAccessIsTheWriteOfAComputeOp) {
  const std::string problem =
      "op 'op' accesses, before a compute op has written, late-bound buffer "
      "'fresh'";
  ExpectRefused(Compute("op", {Whole(fresh_)}), StatusCode::kInvalidArgument,
                problem);
  ExpectRefused(Compute("op", {Whole(fresh_, AccessMode::kReadWrite)}),
                StatusCode::kInvalidArgument, problem);
  ExpectRefused(Collective("op", CollectiveKind::kAllReduce, dp_, Whole(w_),
                           Whole(fresh_)),
                StatusCode::kInvalidArgument, problem);
  EXPECT_FALSE(graph_.LateBoundWriter(fresh_).valid());
  ASSERT_OK_AND_ASSIGN(
      const OpId writer,
      graph_.AddOp(Compute("writer", {Whole(fresh_, AccessMode::kWrite)})));
  EXPECT_EQ(graph_.LateBoundWriter(fresh_), writer);
  EXPECT_FALSE(graph_.LateBoundWriter(w_).valid());
}

TEST_F(LateBoundTest, NoOtherComputeOpWritesIt) {
  ASSERT_OK(graph_.AddOp(Compute("w", {Whole(fresh_, AccessMode::kWrite)})));
  EXPECT_OK(graph_.AddOp(Compute("r", {Whole(fresh_)})));
  EXPECT_OK(graph_.AddOp(Collective("c", CollectiveKind::kAllReduce, dp_,
                                    Whole(w_), Whole(fresh_))));
  ExpectRefused(Compute("op", {Whole(fresh_, AccessMode::kReadWrite)}),
                StatusCode::kInvalidArgument,
                "op 'op' writes, as does 'w', which alone may: its `after` "
                "brings the address of late-bound buffer 'fresh'");
}

TEST_F(LateBoundTest, PartsOfItAreRefused) {
  ASSERT_OK(graph_.AddOp(Compute("w", {Whole(fresh_, AccessMode::kWrite)})));
  for (const Access& part :
       {Range(fresh_, 0, 16), Shard(fresh_, dp_), Tile(fresh_, 0, 4, 4, 4)}) {
    ExpectRefused(Compute("op", {part}), StatusCode::kInvalidArgument,
                  "accesses a part, not the whole, of late-bound buffer");
  }
}

TEST_F(LateBoundTest, TileOnTheOtherSideIsRefused) {
  ASSERT_OK(graph_.AddOp(Compute("w", {Whole(fresh_, AccessMode::kWrite)})));
  ASSERT_OK_AND_ASSIGN(const BufferId b, graph_.AddBuffer(F32("b", 32)));
  ExpectRefused(Collective("c", CollectiveKind::kAllToAll, dp_, Whole(fresh_),
                           Tile(b, 0, 4, 4, 8)),
                StatusCode::kInvalidArgument,
                "one side is late-bound, the other a tile; input 'fresh'");
}

TEST_F(LateBoundTest, BoundAtSubmitItIsAnyOpsInAnyOrder) {
  graph_.BindLateAtSubmit();
  EXPECT_OK(graph_.AddOp(Collective("c", CollectiveKind::kAllReduce, dp_,
                                    Whole(w_), Whole(fresh_))));
  EXPECT_OK(graph_.AddOp(Compute("r", {Whole(fresh_)})));
  EXPECT_OK(graph_.AddOp(Compute("w", {Whole(fresh_, AccessMode::kWrite)})));
  EXPECT_OK(graph_.AddOp(Compute("x", {Whole(fresh_, AccessMode::kWrite)})));
  EXPECT_FALSE(graph_.LateBoundWriter(fresh_).valid());
  ExpectRefused(Compute("op", {Range(fresh_, 0, 16)}),
                StatusCode::kInvalidArgument,
                "accesses a part, not the whole, of late-bound buffer");
}

TEST_F(GraphTest, WhatIsClearedLeavesItsNameAndKeepsItsId) {
  ASSERT_OK_AND_ASSIGN(const BufferId b, graph_.AddBuffer(F32("b", 16)));
  ASSERT_OK_AND_ASSIGN(const OpId op, graph_.AddOp(Compute("op", {Whole(b)})));
  ASSERT_OK_AND_ASSIGN(const OpId next, graph_.AddOp(Compute("next", {})));
  graph_.ClearOp(op);
  graph_.ClearBuffer(b);
  EXPECT_TRUE(graph_.IsClear(op));
  EXPECT_TRUE(graph_.IsClear(b));
  EXPECT_TRUE(graph_.op(op).accesses.empty());
  EXPECT_FALSE(graph_.IsClear(next));
  EXPECT_EQ(graph_.op(next).name, "next");
  EXPECT_THAT(graph_.FindOp("op"), StatusIs(StatusCode::kNotFound, "op"));
  ASSERT_OK_AND_ASSIGN(const BufferId again, graph_.AddBuffer(F32("b", 8)));
  EXPECT_NE(again, b);
  EXPECT_OK(graph_.AddOp(Compute("op", {Whole(again)})));
}

TEST_F(GraphTest, ShardNeedsABufferThatTheGroupCanShareEqually) {
  EXPECT_OK(graph_.AddOp(Compute("equal", {Shard(w_, dp_)})));
  ASSERT_OK_AND_ASSIGN(const BufferId odd, graph_.AddBuffer(F32("odd", 18)));
  ExpectRefused(Compute("op", {Shard(odd, dp_)}), StatusCode::kOutOfRange,
                "buffer 'odd' of 18 elements has no equal shards among the 4 "
                "ranks of group 'dp'");
}

TEST_F(GraphTest, UnknownModeRegionAndKindAreRefused) {
  ExpectRefused(Compute("op", {Whole(w_, static_cast<AccessMode>(4))}),
                StatusCode::kInvalidArgument, "access mode 4 is not in 1..3");
  Access access = Whole(w_);
  access.region.kind = static_cast<RegionKind>(9);
  ExpectRefused(Compute("op", {access}), StatusCode::kInvalidArgument,
                "region kind 9 is not in 0..3");
  Op op = Compute("op");
  op.kind = static_cast<OpKind>(3);
  ExpectRefused(op, StatusCode::kInvalidArgument, "kind 3 is not in 0..1");
}

TEST_F(GraphTest, LaneAboveFifteenIsRefused) {
  Op op = Compute("op");
  op.compute.lane = 16;
  ExpectRefused(op, StatusCode::kInvalidArgument, "lane 16 is not in 0..15");
  op.compute.lane = 15;
  EXPECT_OK(graph_.AddOp(op));
}

TEST_F(GraphTest, CostsAreFiniteAndNotNegative) {
  Op op = Compute("op");
  op.compute.cost_ns = -1;
  ExpectRefused(op, StatusCode::kInvalidArgument, "cost_ns is -1");
  op.compute.cost_ns = 0;
  op.compute.flops = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused(op, StatusCode::kInvalidArgument, "flops is nan");
  op.compute.flops = 0;
  op.compute.bytes = std::numeric_limits<double>::infinity();
  ExpectRefused(op, StatusCode::kInvalidArgument, "bytes is inf");
}

TEST_F(GraphTest, CostAboveTheLimitIsRefused) {
  Op op = Compute("op");
  op.compute.cost_ns = Graph::kMaxCostNs + 1;
  ExpectRefused(op, StatusCode::kInvalidArgument,
                "op 'op': cost_ns is 1000000000000001, above the limit of "
                "1000000000000000");
  op.compute.cost_ns = std::numeric_limits<int64_t>::max();
  ExpectRefused(op, StatusCode::kInvalidArgument,
                "cost_ns is 9223372036854775807, above the limit");
  op.compute.cost_ns = Graph::kMaxCostNs;
  EXPECT_OK(graph_.AddOp(op));
}

TEST_F(GraphTest, OverlappingWritesOfOneOpAreRefused) {
  const std::string message =
      "op 'op' has two overlapping writes to buffer 'w'";
  const std::vector<std::vector<Access>> overlapping = {
      {Whole(w_, kWrite), Whole(w_, kReadWrite)},
      {Range(w_, 8, 4, kWrite), Range(w_, 0, 4), Range(w_, 11, 2, kWrite)},
      {Range(w_, 12, 4, kWrite), Whole(w_, kWrite)},
      {Shard(w_, dp_, kWrite), Range(w_, 0, 1, kWrite)},
      {Shard(w_, dp_, kWrite), Shard(w_, dp_, kWrite)}};
  for (const auto& accesses : overlapping) {
    ExpectRefused(Compute("op", accesses), StatusCode::kInvalidArgument,
                  message);
  }
}

TEST_F(GraphTest, WritesThatTouchAndReadsThatOverlapAreFine) {
  EXPECT_OK(graph_.AddOp(
      Compute("op", {Range(w_, 4, 4, kWrite), Range(w_, 0, 4, kWrite),
                     Whole(w_, kRead), Range(w_, 2, 9, kRead)})));
}

TEST_F(GraphTest, OpComesAfterKnownOpsOnly) {
  EXPECT_OK(graph_.AddOp(Compute("second", {}, {first_})));
  ExpectRefused(Compute("op", {}, {OpId(2)}), StatusCode::kNotFound,
                "op 'op' comes after op 2, but the graph has 2 ops");
}

TEST_F(GraphTest, WhatTheKindDoesNotUseIsReset) {
  Op op = Compute("op", {Whole(w_)});
  op.accesses[0].region.offset = 3;
  op.accesses[0].region.group = GroupId(99);
  op.collective.root = 5;
  ASSERT_OK_AND_ASSIGN(const OpId id, graph_.AddOp(op));
  EXPECT_EQ(graph_.op(id), Compute("op", {Whole(w_)}));
}

TEST_F(GraphTest, EdgeNamesKnownOpsAndADistanceOfZeroOrOne) {
  EXPECT_THAT(graph_.AddEdge({first_, OpId(1), 0}),
              StatusIs(StatusCode::kNotFound,
                       "an edge names op 1, but the graph has 1 ops"));
  EXPECT_THAT(graph_.AddEdge({first_, first_, 2}),
              StatusIs(StatusCode::kInvalidArgument,
                       "edge 'first' -> 'first': distance 2 is not 0 or 1"));
  EXPECT_OK(graph_.AddEdge({first_, first_, 1}));
  EXPECT_EQ(graph_.edges().size(), 1u);
}

TEST_F(GraphTest, EdgeToItselfWithinTheStepIsACycle) {
  EXPECT_THAT(graph_.AddEdge({first_, first_, 0}),
              StatusIs(StatusCode::kInvalidArgument,
                       "a cycle of 1 ops within the step: 'first' -> 'first'"));
  EXPECT_TRUE(graph_.edges().empty());
}

TEST_F(GraphTest, EdgeThatClosesACycleIsRefusedAndItsOpsAreNamed) {
  ASSERT_OK_AND_ASSIGN(const OpId b, graph_.AddOp(Compute("b", {}, {first_})));
  ASSERT_OK_AND_ASSIGN(const OpId c, graph_.AddOp(Compute("c")));
  ASSERT_OK(graph_.AddEdge({b, c, 0}));
  const Graph before = graph_;
  EXPECT_THAT(graph_.AddEdge({c, first_, 0}),
              StatusIs(StatusCode::kInvalidArgument,
                       "'first' -> 'b' -> 'c' -> 'first'"));
  EXPECT_EQ(graph_, before);
  EXPECT_OK(graph_.AddEdge({c, first_, 1}));
}

TEST_F(GraphTest, ForwardEdgeMayCloseACycleWithAnEarlierBackwardOne) {
  ASSERT_OK_AND_ASSIGN(const OpId b, graph_.AddOp(Compute("b")));
  ASSERT_OK(graph_.AddEdge({b, first_, 0}));
  EXPECT_THAT(graph_.AddEdge({first_, b, 0}),
              StatusIs(StatusCode::kInvalidArgument, "'first' -> 'b' ->"));
}

TEST_F(GraphTest, EdgesAreAddedAllOrNone) {
  ASSERT_OK_AND_ASSIGN(const OpId b, graph_.AddOp(Compute("b")));
  const ExplicitEdge edges[] = {{first_, b, 0}, {first_, OpId(9), 0}};
  EXPECT_FALSE(graph_.AddEdges(edges).ok());
  EXPECT_TRUE(graph_.edges().empty());
  const ExplicitEdge cycle[] = {{first_, b, 0}, {b, first_, 0}};
  EXPECT_FALSE(graph_.AddEdges(cycle).ok());
  EXPECT_TRUE(graph_.edges().empty());
  // The refused backward edge left no trace.
  EXPECT_OK(graph_.AddEdge({first_, b, 0}));
}

TEST_F(GraphTest, LongCyclesAreCutInTheMessage) {
  OpId last = first_;
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK_AND_ASSIGN(
        last, graph_.AddOp(Compute(absl::StrCat("m", i), {}, {last})));
  }
  EXPECT_THAT(graph_.AddEdge({last, first_, 0}),
              StatusIs(StatusCode::kInvalidArgument,
                       "a cycle of 41 ops within the step: 'first' -> 'm0'"));
  EXPECT_THAT(
      graph_.AddEdge({last, first_, 0}),
      StatusIs(StatusCode::kInvalidArgument, "'m14' -> ... -> 'first'"));
}

}  // namespace
}  // namespace commsched
