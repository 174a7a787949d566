// What a collective reads and writes: tiles, pieces, peers, late-bound buffers;
// each against its definition, on one thread in random order.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "session/backend_model.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_job.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Ranks;
using test::Read;
using test::SessionRig;
using test::Tile;
using test::VirtualJob;
using test::Write;

constexpr int kGroupSize = 3;
constexpr uint64_t kRegionSteps = 20;

// What element `i` of a rank's input is in a step.
float ValueOf(int rank, uint64_t step, uint64_t i) {
  return static_cast<float>(1000 * rank + 37 * step % 101 + i % 97);
}

// A job over `graph`, all of whose ranks fill and check memory of the rig.
class RegionsJob {
 public:
  RegionsJob(const Graph& graph, const PlanOptions& options, uint64_t seed)
      : rig_(Ranks(kGroupSize), graph, options) {
    std::vector<SessionSpec> specs;
    for (int r = 0; r < kGroupSize; ++r) specs.push_back(rig_.Spec(r));
    job_ = VirtualJob::Create(specs, seed).value();
  }
  float* Memory(int rank, BufferId buffer) { return rig_.Memory(rank, buffer); }
  VirtualJob& operator*() { return *job_; }
  VirtualJob* operator->() { return job_.get(); }
  const Plan& plan() { return *rig_.plan(); }

 private:
  SessionRig rig_;
  std::unique_ptr<VirtualJob> job_;
};

// fill writes all of `in`; the collective takes `in_region` to `out_region`;
// check reads `out`.
struct OneCollective {
  BufferId in, out;
  OpId fill, check;
  Graph graph;
};

OneCollective Make(CollectiveKind kind, uint64_t in_count, Region in_region,
                   uint64_t out_count, Region out_region,
                   std::vector<uint64_t> counts = {}) {
  OneCollective made;
  GraphBuilder builder;
  const GroupId group = builder.Group("dp", kGroupSize);
  made.in = builder.Buffer("in", in_count);
  made.out = builder.Buffer("out", out_count);
  made.fill = builder.Compute("fill", {Write(made.in)});
  CollectiveSpec spec = test::Spec(kind, group, Read(made.in, in_region),
                                   Write(made.out, out_region));
  spec.counts = std::move(counts);
  builder.Collective("move", spec);
  made.check = builder.Compute("check", {Read(made.out)});
  made.graph = builder.graph();
  return made;
}

using Expected = std::function<float(int rank, uint64_t step, uint64_t i)>;

// Fills `in` with ValueOf() and compares the elements of `out` in [0, n) with
// `expected` in every step, in several orders.
void Expect(const OneCollective& made, const PlanOptions& options,
            const Expected& expected) {
  const uint64_t in_count = made.graph.buffer(made.in).count;
  const uint64_t out_count = made.graph.buffer(made.out).count;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    RegionsJob job(made.graph, options, seed);
    uint64_t wrong = 0, checked = 0;
    ASSERT_OK(job->Run(kRegionSteps, [&](int rank, OpId op, uint64_t step) {
      if (op == made.fill) {
        for (uint64_t i = 0; i < in_count; ++i) {
          job.Memory(rank, made.in)[i] = ValueOf(rank, step, i);
        }
        return;
      }
      for (uint64_t i = 0; i < out_count; ++i) {
        ++checked;
        const float want = expected(rank, step, i);
        wrong += want >= 0 && job.Memory(rank, made.out)[i] != want;
      }
    }));
    EXPECT_EQ(wrong, 0u) << "seed " << seed;
    EXPECT_EQ(checked, kRegionSteps * kGroupSize * out_count);
  }
}

float SumOver(uint64_t step, uint64_t i) {
  float sum = 0;
  for (int r = 0; r < kGroupSize; ++r) sum += ValueOf(r, step, i);
  return sum;
}

// The input is columns [2, 8) of 4 rows of 10; column pair p goes to rank p.
TEST(RegionsTest, AnAllToAllSplitsATileByColumns) {
  const auto made =
      Make(CollectiveKind::kAllToAll, 40, Tile(2, 6, 4, 10), 24, {});
  Expect(made, {}, [](int rank, uint64_t step, uint64_t i) {
    const uint64_t from = i / 8, row = i % 8 / 2, column = i % 2;
    return ValueOf(static_cast<int>(from), step,
                   2 + row * 10 + static_cast<uint64_t>(rank) * 2 + column);
  });
}

TEST(RegionsTest, AnAllGatherFillsATileByColumns) {
  const auto made =
      Make(CollectiveKind::kAllGather, 8, {}, 40, Tile(1, 6, 4, 10));
  Expect(made, {}, [](int, uint64_t step, uint64_t i) -> float {
    if (i < 1 || (i - 1) % 10 >= 6 || i - 1 >= 36) return -1;
    const uint64_t row = (i - 1) / 10, column = (i - 1) % 10;
    return ValueOf(static_cast<int>(column / 2), step, row * 2 + column % 2);
  });
}

// Parts of 1, 0 and 3 columns of 2 rows.
TEST(RegionsTest, UnevenPartsOfATileAreColumnsToo) {
  const auto made = Make(CollectiveKind::kReduceScatter, 16, Tile(0, 4, 2, 8),
                         6, {}, {2, 0, 6});
  Expect(made, {}, [](int rank, uint64_t step, uint64_t i) -> float {
    if (rank == 0 && i < 2) return SumOver(step, i * 8);
    if (rank == 2) return SumOver(step, 1 + i / 3 * 8 + i % 3);
    return -1;
  });
}

TEST(RegionsTest, AnAllReduceOfATileLeavesTheRestAlone) {
  const auto made =
      Make(CollectiveKind::kAllReduce, 40, Tile(3, 5, 4, 10), 20, {});
  Expect(made, {}, [](int, uint64_t step, uint64_t i) {
    return SumOver(step, 3 + i / 5 * 10 + i % 5);
  });
}

PlanOptions SmallPieces() {
  PlanOptions options;
  options.partition_bytes = 40;
  return options;
}

TEST(RegionsTest, PiecesOfAReduceScatterAreTheWhole) {
  const auto made = Make(CollectiveKind::kReduceScatter, 99, {}, 33, {});
  RegionsJob job(made.graph, SmallPieces(), 0);
  EXPECT_GT(job.plan().launches.size(), 2u);
  Expect(made, SmallPieces(), [](int rank, uint64_t step, uint64_t i) {
    return SumOver(step, static_cast<uint64_t>(rank) * 33 + i);
  });
}

TEST(RegionsTest, PiecesOfAnAllGatherAreTheWhole) {
  const auto made = Make(CollectiveKind::kAllGather, 33, {}, 99, {});
  Expect(made, SmallPieces(), [](int, uint64_t step, uint64_t i) {
    return ValueOf(static_cast<int>(i / 33), step, i % 33);
  });
}

TEST(RegionsTest, PiecesOfAnAllToAllAreTheWhole) {
  const auto made = Make(CollectiveKind::kAllToAll, 99, {}, 99, {});
  Expect(made, SmallPieces(), [](int rank, uint64_t step, uint64_t i) {
    return ValueOf(static_cast<int>(i / 33), step,
                   static_cast<uint64_t>(rank) * 33 + i % 33);
  });
}

TEST(RegionsTest, PiecesOfAnAllReduceAreTheWhole) {
  const auto made = Make(CollectiveKind::kAllReduce, 99, {}, 99, {});
  Expect(made, SmallPieces(),
         [](int, uint64_t step, uint64_t i) { return SumOver(step, i); });
}

// Every rank sends to the next and receives from the one before.
OneCollective Ring(Region in_region, uint64_t in_count) {
  OneCollective made;
  GraphBuilder builder;
  const GroupId group = builder.Group("pp", kGroupSize);
  made.in = builder.Buffer("in", in_count);
  made.out = builder.Buffer("out", 12);
  made.fill = builder.Compute("fill", {Write(made.in)});
  CollectiveSpec send;
  send.kind = CollectiveKind::kSend;
  send.group = group;
  send.peer_offset = 1;
  send.input = Read(made.in, in_region);
  builder.Collective("send", send);
  CollectiveSpec receive;
  receive.kind = CollectiveKind::kRecv;
  receive.group = group;
  receive.peer_offset = -1;
  receive.output = Write(made.out);
  builder.Collective("receive", receive);
  made.check = builder.Compute("check", {Read(made.out)});
  made.graph = builder.graph();
  return made;
}

int Previous(int rank) { return (rank + kGroupSize - 1) % kGroupSize; }

TEST(RegionsTest, ARingPassesOn) {
  Expect(Ring({}, 12), {}, [](int rank, uint64_t step, uint64_t i) {
    return ValueOf(Previous(rank), step, i);
  });
}

TEST(RegionsTest, ATileIsSentRowByRow) {
  Expect(Ring(Tile(1, 3, 4, 7), 30), {},
         [](int rank, uint64_t step, uint64_t i) {
           return ValueOf(Previous(rank), step, 1 + i / 3 * 7 + i % 3);
         });
}

// A backend without what the plan asks for.
commsched_backend_t Without(uint32_t capability) {
  static commsched_backend_t table;
  table = *World::Create(Ranks(1)).value()->backend();
  table.capabilities &= ~capability;
  return table;
}

TEST(RegionsTest, PiecesNeedABackendThatTakesThem) {
  const auto made = Make(CollectiveKind::kAllGather, 33, {}, 99, {});
  static commsched_backend_t table;
  table = Without(COMMSCHED_BACKEND_STRIDED);
  WorldSpec world = Ranks(kGroupSize);
  world.table = &table;
  SessionRig rig(world, made.graph, SmallPieces());
  EXPECT_THAT(Session::CreateAll({rig.Spec(0)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "partition_bytes 40 splits 'move'"));
}

TEST(RegionsTest, SendsNeedABackendThatTakesThem) {
  static commsched_backend_t table;
  table = Without(COMMSCHED_BACKEND_P2P);
  WorldSpec world = Ranks(kGroupSize);
  world.table = &table;
  SessionRig rig(world, Ring({}, 12).graph, {});
  EXPECT_THAT(
      Session::CreateAll({rig.Spec(0)}),
      StatusIs(absl::StatusCode::kFailedPrecondition, "COMMSCHED_BACKEND_P2P"));
}

TEST(RegionsTest, APlanForItsBackendHasNoPiecesThatItDoesNotTake) {
  const auto made = Make(CollectiveKind::kAllGather, 33, {}, 99, {});
  static commsched_backend_t table;
  table = Without(COMMSCHED_BACKEND_STRIDED);
  WorldSpec world = Ranks(1);
  world.table = &table;
  PlanOptions options = SmallPieces();
  options.backend = ModelOf(table);
  SessionRig rig(world, made.graph, options);
  EXPECT_EQ(rig.Spec(0).plan->launches.size(), 1u);
}

TEST(RegionsTest, ADeterministicPlanNeedsABackendThatSumsInTheOrderOfTheTree) {
  static commsched_backend_t table;
  table = Without(COMMSCHED_BACKEND_TREE_SUMS);
  WorldSpec world = Ranks(kGroupSize);
  world.table = &table;
  PlanOptions options;
  options.deterministic = true;
  SessionRig rig(world, Make(CollectiveKind::kAllReduce, 33, {}, 33, {}).graph,
                 options);
  EXPECT_THAT(Session::CreateAll({rig.Spec(0)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "COMMSCHED_BACKEND_TREE_SUMS"));
}

TEST(RegionsTest, AKindNeedsABackendThatTakesIt) {
  static commsched_backend_t table;
  table = Without(0);
  table.kinds = 1u << COMMSCHED_ALL_REDUCE;
  WorldSpec world = Ranks(kGroupSize);
  world.table = &table;
  SessionRig rig(world, Make(CollectiveKind::kAllGather, 33, {}, 99, {}).graph,
                 {});
  EXPECT_THAT(
      Session::CreateAll({rig.Spec(0)}),
      StatusIs(absl::StatusCode::kFailedPrecondition, "cannot do all_gather"));
}

// Else the plans of a backend, and their fingerprints, would change with what
// graphs never ask it for.
TEST(RegionsTest, APlanDoesNotSeeWhatIsForChannelsAlone) {
  commsched_backend_t table = Without(0);
  table.reductions = 0;
  const uint32_t of_all = ModelOf(table).reductions;
  table.reductions = COMMSCHED_BACKEND_BASIC_REDUCTIONS;
  EXPECT_EQ(ModelOf(table).reductions, of_all);
  table.reductions |= COMMSCHED_BACKEND_BITWISE_REDUCTIONS |
                      COMMSCHED_BACKEND_SCALED_REDUCTIONS;
  EXPECT_EQ(ModelOf(table).reductions, of_all);
  table.reductions = 1u << COMMSCHED_SUM;
  EXPECT_NE(ModelOf(table).reductions, of_all);
}

}  // namespace
}  // namespace commsched
