#include "graph/dependencies.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/graph/builders.h"

namespace commsched {
namespace {

using enum AccessMode;

class DependenciesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(dp_, graph_.AddGroup("dp", 4));
    ASSERT_OK_AND_ASSIGN(a_, graph_.AddBuffer(F32("a", 16)));
    ASSERT_OK_AND_ASSIGN(b_, graph_.AddBuffer(F32("b", 16)));
  }

  OpId Add(Op op) {
    const auto id = graph_.AddOp(std::move(op));
    EXPECT_OK(id);
    return *id;
  }

  // Every edge as "from -> to RAW a", with +1 after the name of `to` if it is
  // loop-carried, in the order of the result.
  std::vector<std::string> Edges() const {
    constexpr const char* kNames[] = {"explicit", "RAW", "WAR", "WAW"};
    const auto dependencies = InferDependencies(graph_);
    EXPECT_OK(dependencies);
    std::vector<std::string> lines;
    for (const Dependency& edge : dependencies->edges) {
      const bool is_explicit = edge.hazard == Hazard::kExplicit;
      EXPECT_EQ(edge.buffer.valid(), !is_explicit);
      lines.push_back(absl::StrCat(
          graph_.op(edge.from).name, " -> ", graph_.op(edge.to).name,
          edge.distance == 1 ? "+1 " : " ",
          kNames[static_cast<int>(edge.hazard)],
          is_explicit ? ""
                      : absl::StrCat(" ", graph_.buffer(edge.buffer).name)));
    }
    return lines;
  }

  using Lines = std::vector<std::string>;

  Graph graph_;
  GroupId dp_;
  BufferId a_, b_;
};

TEST_F(DependenciesTest, EmptyGraphHasNone) { EXPECT_EQ(Edges(), Lines()); }

TEST_F(DependenciesTest, ReaderFollowsTheWriterAndHoldsUpTheNextStepsWriter) {
  Add(Compute("w", {Whole(a_, kWrite)}));
  Add(Compute("r", {Whole(a_, kRead)}));
  EXPECT_EQ(Edges(), Lines({"r -> w+1 WAR a", "w -> r RAW a"}));
}

TEST_F(DependenciesTest, ReadersDoNotOrderEachOther) {
  Add(Compute("r1", {Whole(a_, kRead)}));
  Add(Compute("r2", {Whole(a_, kRead)}));
  EXPECT_EQ(Edges(), Lines());
}

TEST_F(DependenciesTest, WriterFollowsAllReadersAndNotTheWriterTheyFollow) {
  Add(Compute("w1", {Whole(a_, kWrite)}));
  Add(Compute("r1", {Whole(a_, kRead)}));
  Add(Compute("r2", {Whole(a_, kRead)}));
  Add(Compute("w2", {Whole(a_, kWrite)}));
  EXPECT_EQ(Edges(),
            Lines({"w2 -> w1+1 WAW a", "w1 -> r1 RAW a", "w1 -> r2 RAW a",
                   "r1 -> w2 WAR a", "r2 -> w2 WAR a"}));
}

TEST_F(DependenciesTest, ReadBeforeTheWriteIsOfTheStepBefore) {
  Add(Compute("fwd", {Whole(a_, kRead)}));
  Add(Compute("opt", {Whole(a_, kWrite)}));
  EXPECT_EQ(Edges(), Lines({"opt -> fwd+1 RAW a", "fwd -> opt WAR a"}));
}

TEST_F(DependenciesTest, WriterAloneFollowsItselfOneStepLater) {
  Add(Compute("w", {Whole(a_, kWrite)}));
  EXPECT_EQ(Edges(), Lines({"w -> w+1 WAW a"}));
}

TEST_F(DependenciesTest, UpdateInPlaceFollowsItselfOneStepLater) {
  Add(Compute("w", {Whole(a_, kReadWrite)}));
  EXPECT_EQ(Edges(), Lines({"w -> w+1 RAW a"}));
}

TEST_F(DependenciesTest, DisjointRangesAreIndependent) {
  Add(Compute("w1", {Range(a_, 0, 8, kWrite)}));
  Add(Compute("w2", {Range(a_, 8, 8, kWrite)}));
  EXPECT_EQ(Edges(), Lines({"w1 -> w1+1 WAW a", "w2 -> w2+1 WAW a"}));
}

TEST_F(DependenciesTest, RangeReadFollowsThoseWhoWroteItsElementsLast) {
  Add(Compute("all", {Whole(a_, kWrite)}));
  Add(Compute("mid", {Range(a_, 4, 4, kWrite)}));
  Add(Compute("in", {Range(a_, 5, 2, kRead)}));
  Add(Compute("over", {Range(a_, 6, 4, kRead)}));
  EXPECT_EQ(Edges(), Lines({"all -> all+1 WAW a", "mid -> all+1 WAW a",
                            "in -> all+1 WAR a", "over -> all+1 WAR a",
                            "all -> mid WAW a", "mid -> in RAW a",
                            "all -> over RAW a", "mid -> over RAW a"}));
}

TEST_F(DependenciesTest, WholeWriteForgetsThePieces) {
  Add(Compute("w1", {Range(a_, 0, 8, kWrite)}));
  Add(Compute("w2", {Whole(a_, kWrite)}));
  Add(Compute("r", {Range(a_, 2, 2, kRead)}));
  EXPECT_EQ(Edges(),
            Lines({"w2 -> w1+1 WAW a", "r -> w1+1 WAR a", "w1 -> w2 WAW a",
                   "w2 -> w2+1 WAW a", "w2 -> r RAW a"}));
}

TEST_F(DependenciesTest, ShardCountsAsTheWholeBuffer) {
  Add(Compute("w", {Range(a_, 15, 1, kWrite)}));
  Add(Compute("s", {Shard(a_, dp_, kRead)}));
  EXPECT_EQ(Edges(), Lines({"s -> w+1 WAR a", "w -> s RAW a"}));
}

TEST_F(DependenciesTest, CollectiveReadsItsInputAndWritesItsOutput) {
  Add(Compute("bwd", {Whole(a_, kWrite)}));
  Add(Collective("ar", CollectiveKind::kAllReduce, dp_, Whole(a_), Whole(b_)));
  Add(Compute("opt", {Whole(b_, kRead)}));
  EXPECT_EQ(Edges(), Lines({"ar -> bwd+1 WAR a", "bwd -> ar RAW a",
                            "opt -> ar+1 WAR b", "ar -> opt RAW b"}));
}

TEST_F(DependenciesTest, TwoConflictsOfOnePairAreOneEdgeOfTheStrongest) {
  Add(Compute("x", {Whole(a_, kRead), Whole(b_, kWrite)}));
  Add(Compute("y", {Whole(a_, kWrite), Whole(b_, kRead)}));
  EXPECT_EQ(Edges(), Lines({"y -> x+1 RAW a", "x -> y RAW b"}));
}

TEST_F(DependenciesTest, ExplicitEdgesAreKeptUnlessAHazardSaysTheSame) {
  const OpId w = Add(Compute("w", {Whole(a_, kWrite)}));
  const OpId r = Add(Compute("r", {Whole(a_, kRead)}, {w, w}));
  const OpId m = Add(Compute("m", {}, {r}));
  ASSERT_OK(graph_.AddEdge({m, w, 1}));
  ASSERT_OK(graph_.AddEdge({w, m, 0}));
  EXPECT_EQ(Edges(),
            Lines({"r -> w+1 WAR a", "m -> w+1 explicit", "w -> r RAW a",
                   "w -> m explicit", "r -> m explicit"}));
}

TEST_F(DependenciesTest, OrderIsTheDeclaredOneUnlessAnEdgeGoesBack) {
  const OpId x = Add(Compute("x"));
  const OpId y = Add(Compute("y"));
  ASSERT_OK_AND_ASSIGN(const Dependencies forward, InferDependencies(graph_));
  EXPECT_EQ(forward.order, std::vector<OpId>({x, y}));
  ASSERT_OK(graph_.AddEdge({y, x, 0}));
  ASSERT_OK_AND_ASSIGN(const Dependencies backward, InferDependencies(graph_));
  EXPECT_EQ(backward.order, std::vector<OpId>({y, x}));
  EXPECT_EQ(backward.position, std::vector<uint32_t>({1, 0}));
}

TEST_F(DependenciesTest, EdgeAgainstAHazardIsACycleThatNamesTheOps) {
  const OpId w = Add(Compute("w", {Whole(a_, kWrite)}));
  Add(Compute("r", {Whole(a_, kRead), Whole(b_, kWrite)}));
  const OpId last = Add(Compute("last", {Whole(b_, kRead)}));
  ASSERT_OK(graph_.AddEdge({last, w, 0}));
  EXPECT_THAT(InferDependencies(graph_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "a cycle of 3 ops within the step: "
                       "'w' -> 'r' -> 'last' -> 'w'"));
}

TEST_F(DependenciesTest, ManyRangesOfOneBufferGiveOneEdgeEach) {
  constexpr uint64_t kRanges = 5000;
  ASSERT_OK_AND_ASSIGN(const BufferId flat,
                       graph_.AddBuffer(F32("flat", kRanges)));
  for (uint64_t i = 0; i < kRanges; ++i) {
    Add(Compute(absl::StrCat("w", i), {Range(flat, i, 1, kWrite)}));
  }
  Add(Compute("all", {Whole(flat, kRead)}));
  ASSERT_OK_AND_ASSIGN(const Dependencies result, InferDependencies(graph_));
  // Each range: read by `all`, and not to be overwritten before that.
  EXPECT_EQ(result.edges.size(), 2 * kRanges);
}

}  // namespace
}  // namespace commsched
