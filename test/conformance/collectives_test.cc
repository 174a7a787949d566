// Every backend computes what the collectives are defined to compute.
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "test/conformance/backend_fixture.h"
#include "test/conformance/collective_case.h"
#include "test/support/property.h"

namespace commsched {
namespace {

class CollectivesTest : public BackendTest {
 protected:
  // Runs one case after the other on one communicator and checks each.
  void RunCases(const std::vector<std::unique_ptr<CollectiveCase>>& cases) {
    EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
      for (size_t i = 0; i < cases.size(); ++i) {
        absl::Status done = comm.LaunchAndWait(cases[i]->launch(rank));
        if (done.ok()) done = cases[i]->Check(rank);
        if (done.ok()) continue;
        return absl::Status(
            done.code(), absl::StrCat("case #", i, " (", cases[i]->Describe(),
                                      "): ", done.message()));
      }
      return absl::OkStatus();
    }));
  }

  std::unique_ptr<CollectiveCase> Make(const Shape& shape,
                                       std::vector<MemberCase> members,
                                       bool in_place, std::mt19937_64& random) {
    Shape on_backend = shape;
    on_backend.keeps_nan = GetParam().keeps_nan;
    return std::make_unique<CollectiveCase>(on_backend, std::move(members),
                                            in_place, deterministic(), random);
  }

  Shape ShapeOf(commsched_collective_t kind, commsched_dtype_t dtype,
                commsched_reduce_op_t op) {
    return {kind, dtype, op, size() - 1, size()};
  }
};

class PolledCollectivesTest : public CollectivesTest {};
class OneProcessCollectivesTest : public CollectivesTest {};
class StridedCollectivesTest : public CollectivesTest {};
class VectoredCollectivesTest : public CollectivesTest {};
class DeterministicCollectivesTest : public CollectivesTest {};

// Reductions that a backend has to name.
class NamedReductionsTest : public CollectivesTest {
 protected:
  bool Takes(commsched_reduce_op_t op) const {
    return (GetParam().reductions >> op & 1) != 0;
  }
  // By one of those of the type.
  Shape RandomNamedShape(std::mt19937_64& random) {
    static constexpr commsched_collective_t kKinds[] = {
        COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_REDUCE};
    while (true) {
      Shape shape = RandomShape(size(), random);
      shape.kind = kKinds[random() % 3];
      shape.reduce_op =
          shape.dtype <= COMMSCHED_BF16
              ? commsched_reduce_op_t{COMMSCHED_PREMUL_SUM}
              : COMMSCHED_BAND +
                    static_cast<commsched_reduce_op_t>(random() % 3);
      // No power of two, so that products are rounded.
      shape.scale = 1.1 - static_cast<double>(random() % 1000) / 700;
      if (Takes(shape.reduce_op)) return shape;
    }
  }
  // NCCL's own reductions have no order.
  bool MayBeInOrder() const { return deterministic() && !GetParam().on_cuda; }
};

TEST_P(CollectivesTest, TheBackendSaysWhatItCanDo) {
  const uint32_t said = WorldOf(0)->backend()->capabilities;
  EXPECT_EQ(said & GetParam().capabilities, GetParam().capabilities);
  EXPECT_EQ(said & ~GetParam().capabilities & BackendCase{}.capabilities, 0u);
  const uint32_t reductions = WorldOf(0)->backend()->reductions;
  EXPECT_EQ(reductions == 0 ? uint32_t{COMMSCHED_BACKEND_BASIC_REDUCTIONS}
                            : reductions,
            GetParam().reductions);
}

TEST_P(CollectivesTest, RandomLaunchesGiveWhatTheDefinitionSays) {
  const uint64_t seed = test::PropertySeed();
  SCOPED_TRACE("case #k is the one of the seed + k; " +
               test::DescribeSeed(seed));
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  const int num_cases = test::PropertyCases(300);
  for (int i = 0; i < num_cases; ++i) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(i));
    const Shape shape = RandomShape(size(), random);
    const uint64_t num_members =
        Can(COMMSCHED_BACKEND_VECTORED) ? 1 + random() % 4 : 1;
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < num_members; ++m) {
      members.push_back(RandomMember(shape, 200, random));
      const bool strided = Can(COMMSCHED_BACKEND_STRIDED) && random() % 3 == 0;
      if (strided && members.back().counts.empty()) {
        members.back().gap = 1 + random() % 50;
      }
    }
    cases.push_back(Make(shape, members, random() % 2 == 0, random));
  }
  RunCases(cases);
}

TEST_P(CollectivesTest, EveryTypeAndReductionIsReduced) {
  std::mt19937_64 random(1);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (const auto kind :
       {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_REDUCE}) {
    for (commsched_dtype_t dtype = 0; dtype < 8; ++dtype) {
      for (commsched_reduce_op_t op = 0; op < 5; ++op) {
        for (const bool in_place : {true, false}) {
          cases.push_back(
              Make(ShapeOf(kind, dtype, op), {{67, {}, 0}}, in_place, random));
        }
      }
    }
  }
  RunCases(cases);
}

// Also where nobody has asked for an order of sums.
TEST_P(CollectivesTest, MeansOfIntegersAreOfTheExactSum) {
  std::mt19937_64 random(14);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (const auto kind :
       {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_REDUCE}) {
    for (const auto dtype :
         {COMMSCHED_I8, COMMSCHED_I32, COMMSCHED_I64, COMMSCHED_U8}) {
      cases.push_back(std::make_unique<CollectiveCase>(
          ShapeOf(kind, dtype, COMMSCHED_AVG),
          std::vector<MemberCase>{{67, {}, 0}}, /*in_place=*/true,
          /*deterministic=*/false, random));
    }
  }
  RunCases(cases);
}

TEST_P(CollectivesTest, EveryTypeIsMoved) {
  std::mt19937_64 random(2);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (const auto kind :
       {COMMSCHED_ALL_GATHER, COMMSCHED_ALL_TO_ALL, COMMSCHED_BROADCAST}) {
    for (commsched_dtype_t dtype = 0; dtype < 8; ++dtype) {
      for (const bool in_place : {true, false}) {
        cases.push_back(
            Make(ShapeOf(kind, dtype, 0), {{33, {}, 0}}, in_place, random));
      }
    }
  }
  RunCases(cases);
}

// In the order of the tree where the backend has one: to the same bits.
TEST_P(NamedReductionsTest, GiveWhatTheDefinitionSays) {
  const uint64_t seed = test::PropertySeed();
  SCOPED_TRACE("case #k is the one of the seed + k; " +
               test::DescribeSeed(seed));
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  const int num_cases = test::PropertyCases(150);
  for (int i = 0; i < num_cases; ++i) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(i));
    const Shape shape = RandomNamedShape(random);
    const uint64_t num_members =
        Can(COMMSCHED_BACKEND_VECTORED) ? 1 + random() % 4 : 1;
    const uint64_t most = i % 16 == 0 ? 20'000 : 200;
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < num_members; ++m) {
      members.push_back(RandomMember(shape, most, random));
    }
    const bool in_order = MayBeInOrder() && random() % 4 != 0;
    cases.push_back(std::make_unique<CollectiveCase>(
        shape, members, random() % 2 == 0, in_order, random,
        in_order ? CollectiveCase::Values::kCancelling
                 : CollectiveCase::Values::kModerate));
  }
  RunCases(cases);
}

// Large enough to be shared out among the members' threads.
TEST_P(CollectivesTest, LargeTransfersGiveTheSame) {
  const auto count = static_cast<uint64_t>(140'000 / size() + 3);
  std::mt19937_64 random(3);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (commsched_collective_t kind = 0; kind <= COMMSCHED_REDUCE; ++kind) {
    for (const bool in_place : {true, false}) {
      cases.push_back(Make(ShapeOf(kind, COMMSCHED_F32, COMMSCHED_SUM),
                           {{count, {}, 0}}, in_place, random));
    }
  }
  RunCases(cases);
}

TEST_P(CollectivesTest, LargeUnevenPartsGiveTheSame) {
  std::mt19937_64 random(4);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (const auto kind :
       {COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER, COMMSCHED_ALL_TO_ALL}) {
    MemberCase member;
    const int64_t num_parts =
        kind == COMMSCHED_ALL_TO_ALL ? size() * size() : size();
    for (int64_t p = 0; p < num_parts; ++p) {
      member.counts.push_back(p % 3 == 1 ? 0 : 20'000 + random() % 60'000);
    }
    cases.push_back(Make(ShapeOf(kind, COMMSCHED_BF16, COMMSCHED_AVG), {member},
                         false, random));
  }
  RunCases(cases);
}

// Parts that do not lie one behind the other, as a piece of a collective has
// them; sides without parts have no use for a stride.
TEST_P(StridedCollectivesTest, PartsAreReadAndWrittenWhereTheyLie) {
  std::mt19937_64 random(11);
  // Parts of several blocks, but for many ranks, which would take long.
  const uint64_t large = size() <= 4 ? 40'000 : 7'000;
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (commsched_collective_t kind = 0; kind <= COMMSCHED_REDUCE; ++kind) {
    for (const bool in_place : {true, false}) {
      for (const uint64_t count :
           {uint64_t{0}, uint64_t{1}, uint64_t{100}, large}) {
        MemberCase member;
        member.count = count;
        member.gap = 7;
        cases.push_back(Make(ShapeOf(kind, COMMSCHED_F32, COMMSCHED_SUM),
                             {member}, in_place, random));
      }
    }
  }
  RunCases(cases);
}

TEST_P(CollectivesTest, ZeroElementsAreALaunchLikeAnyOther) {
  std::mt19937_64 random(5);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (commsched_collective_t kind = 0; kind <= COMMSCHED_REDUCE; ++kind) {
    cases.push_back(Make(ShapeOf(kind, COMMSCHED_F32, COMMSCHED_SUM),
                         {{0, {}, 0}}, false, random));
  }
  RunCases(cases);
}

TEST_P(VectoredCollectivesTest, GroupsOfManyMembersOfDifferentSizes) {
  std::mt19937_64 random(6);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (commsched_collective_t kind = 0; kind <= COMMSCHED_REDUCE; ++kind) {
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < 16; ++m) members.push_back({m * m * 20, {}, 0});
    cases.push_back(Make(ShapeOf(kind, COMMSCHED_F32, COMMSCHED_AVG), members,
                         kind % 2 == 0, random));
  }
  RunCases(cases);
}

// Together large enough to be shared out among the members' threads, each of
// which takes some of the many blocks in one go.
TEST_P(VectoredCollectivesTest, LargeGroupsOfSmallMembersGiveTheSame) {
  const uint64_t least = size() <= 4 ? 1000 : 200;
  std::mt19937_64 random(12);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (commsched_collective_t kind = 0; kind <= COMMSCHED_REDUCE; ++kind) {
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < 16; ++m) {
      members.push_back({least + m * 601 % (3 * least), {}, 0});
    }
    cases.push_back(Make(ShapeOf(kind, COMMSCHED_F32, COMMSCHED_SUM), members,
                         kind % 2 == 1, random));
  }
  RunCases(cases);
}

TEST_P(CollectivesTest, RanksMayArriveAtAnyTime) {
  std::mt19937_64 random(7);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (int i = 0; i < 64; ++i) {
    cases.push_back(Make(ShapeOf(COMMSCHED_ALL_REDUCE, COMMSCHED_I32, 0),
                         {{random() % 500, {}, 0}}, false, random));
  }
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    for (size_t i = 0; i < cases.size(); ++i) {
      YieldSometimes(i * 100 + rank);
      if (auto done = comm.LaunchAndWait(cases[i]->launch(rank)); !done.ok()) {
        return done;
      }
      if (auto right = cases[i]->Check(rank); !right.ok()) return right;
    }
    return absl::OkStatus();
  }));
}

TEST_P(CollectivesTest, AFullWindowOfLaunchesMayBeInFlight) {
  constexpr uint32_t kWindow = 4;
  std::mt19937_64 random(8);
  std::vector<std::unique_ptr<CollectiveCase>> cases;
  for (uint64_t i = 0; i < 64; ++i) {
    const Shape shape = RandomShape(size(), random);
    cases.push_back(
        Make(shape, {RandomMember(shape, i % 8 == 0 ? 60'000 : 300, random)},
             false, random));
  }
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    for (size_t i = 0; i < cases.size() + kWindow; ++i) {
      const auto request = static_cast<uint32_t>(i % kWindow);
      if (i >= kWindow) {
        if (auto done = comm.Wait(request); !done.ok()) return done.status();
        if (auto right = cases[i - kWindow]->Check(rank); !right.ok()) {
          return right;
        }
      }
      if (i >= cases.size()) continue;
      const auto launched = comm.Launch(cases[i]->launch(rank), request);
      if (!launched.ok()) return launched;
    }
    return absl::OkStatus();
  }));
}

// All ranks make them in one order, and look whether they are ready in another.
TEST_P(CollectivesTest, CommunicatorsAreAwaitedInAnyOrder) {
  std::vector<int32_t> reversed(static_cast<size_t>(size()));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  for (int round = 0; round < 5; ++round) {
    EXPECT_OK(OnRanksAll([&](int rank) -> absl::Status {
      CommDriver first, second;
      absl::Status status = first.Create(
          WorldOf(rank), {.id = absl::StrCat("first", round)}, rank);
      if (!status.ok()) return status;
      status = second.Create(
          WorldOf(rank),
          {.id = absl::StrCat("second", round), .ranks = reversed}, rank);
      if (!status.ok()) return status;
      CommDriver* const order[] = {&first, &second};
      status = order[rank % 2]->AwaitReady();
      if (status.ok()) status = order[1 - rank % 2]->AwaitReady();
      return status;
    }));
  }
}

TEST_P(CollectivesTest, SeveralCommunicatorsAreUsedAtOnce) {
  // Every rank in the whole world and in the group of its parity.
  std::vector<std::vector<int32_t>> groups(3);
  for (int rank = 0; rank < size(); ++rank) {
    groups[0].push_back(rank);
    groups[1 + rank % 2].insert(groups[1 + rank % 2].begin(), rank);
  }
  const auto max_elements = static_cast<uint64_t>(40'000 / size());
  std::mt19937_64 random(9);
  std::vector<std::vector<std::unique_ptr<CollectiveCase>>> cases(3);
  for (int g = 0; g < 3; ++g) {
    if (groups[g].empty()) continue;
    const int group_size = static_cast<int>(groups[g].size());
    for (int i = 0; i < 30; ++i) {
      const Shape shape = RandomShape(group_size, random);
      cases[g].push_back(Make(
          shape, {RandomMember(shape, max_elements, random)}, false, random));
    }
  }
  EXPECT_OK(OnRanksAll([&](int rank) -> absl::Status {
    const int mine[] = {0, 1 + rank % 2};
    CommDriver comms[2];
    int group_ranks[2] = {};
    for (int c = 0; c < 2; ++c) {
      const std::vector<int32_t>& ranks = groups[mine[c]];
      CommSpec spec;
      spec.id = absl::StrCat("group", mine[c]);
      spec.ranks = ranks;
      auto created = comms[c].Create(WorldOf(rank), spec, rank);
      if (!created.ok()) return created;
      while (ranks[group_ranks[c]] != rank) ++group_ranks[c];
    }
    for (int i = 0; i < 30; ++i) {
      for (int c = 0; c < 2; ++c) {
        const auto launched =
            comms[c].Launch(cases[mine[c]][i]->launch(group_ranks[c]));
        if (!launched.ok()) return launched;
      }
      for (int c = 0; c < 2; ++c) {
        if (auto done = comms[c].Wait(); !done.ok()) return done.status();
        auto right = cases[mine[c]][i]->Check(group_ranks[c]);
        if (!right.ok()) return right;
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(OneProcessCollectivesTest, ABarrierHoldsUntilAllHaveArrived) {
  std::atomic<int> num_before{0};
  commsched_launch_t barrier{};
  barrier.kind = COMMSCHED_BARRIER;
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    for (int round = 1; round <= 50; ++round) {
      YieldSometimes(static_cast<uint64_t>(round * 10 + rank));
      num_before.fetch_add(1);
      if (auto done = comm.LaunchAndWait(barrier); !done.ok()) return done;
      EXPECT_GE(num_before.load(), round * size());
    }
    return absl::OkStatus();
  }));
}

TEST_P(DeterministicCollectivesTest, SumsHaveTheSameBitsInEveryRun) {
  std::mt19937_64 random(10);
  for (const auto dtype : {COMMSCHED_F32, COMMSCHED_BF16}) {
    const auto one = Make(ShapeOf(COMMSCHED_ALL_REDUCE, dtype, COMMSCHED_SUM),
                          {{40'000, {}, 0}, {1000, {}, 0}}, true, random);
    std::vector<Bytes> first(size());
    EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
      for (uint64_t run = 0; run < 50; ++run) {
        one->Reset(rank);
        YieldSometimes(run * 1000 + static_cast<uint64_t>(rank));
        auto done = comm.LaunchAndWait(one->launch(rank));
        if (!done.ok()) return done;
        if (run == 0) first[rank] = one->Outputs(rank);
        if (one->Outputs(rank) != first[rank]) {
          return absl::InternalError(absl::StrCat("run ", run, " differs"));
        }
      }
      return absl::OkStatus();
    }));
    for (const Bytes& output : first) {
      // Those of other processes are not here.
      if (output.empty()) continue;
      EXPECT_EQ(output, first[OwnRank()]);
    }
  }
}

TEST_P(PolledCollectivesTest, ResultsSayWhenTheLaunchStarted) {
  EXPECT_OK(OnCommAll([&](int /*rank*/, CommDriver& comm) -> absl::Status {
    commsched_launch_t barrier{};
    barrier.kind = COMMSCHED_BARRIER;
    const int64_t before_ns = SystemClock::Get().NowNs();
    if (auto launched = comm.Launch(barrier); !launched.ok()) return launched;
    const auto result = comm.Wait();
    if (!result.ok()) return result.status();
    if (comm.is_inline()) return absl::OkStatus();
    EXPECT_LE(result->started_ns, SystemClock::Get().NowNs());
    if (result->started_ns != 0) {  // Else it may be known later (late_test).
      EXPECT_GE(result->started_ns, before_ns);
    }
    EXPECT_GE(result->cpu_ns, 0);
    return absl::OkStatus();
  }));
}

COMMSCHED_INSTANTIATE_CONFORMANCE(OneProcessCollectivesTest,
                                  BackendsWith(0, 1, IsOneProcess));
COMMSCHED_INSTANTIATE_CONFORMANCE(CollectivesTest, AllBackends());
COMMSCHED_INSTANTIATE_CONFORMANCE(
    NamedReductionsTest, BackendsWith(0, 1, [](const BackendCase& one) {
      return one.reductions != COMMSCHED_BACKEND_BASIC_REDUCTIONS;
    }));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NamedReductionsTest);
COMMSCHED_INSTANTIATE_CONFORMANCE(PolledCollectivesTest,
                                  BackendsWith(0, 1, IsPolled));
COMMSCHED_INSTANTIATE_CONFORMANCE(StridedCollectivesTest,
                                  BackendsWith(COMMSCHED_BACKEND_STRIDED));
COMMSCHED_INSTANTIATE_CONFORMANCE(VectoredCollectivesTest,
                                  BackendsWith(COMMSCHED_BACKEND_VECTORED));
COMMSCHED_INSTANTIATE_CONFORMANCE(DeterministicCollectivesTest,
                                  BackendsWith(COMMSCHED_BACKEND_TREE_SUMS, 1,
                                               [](const BackendCase& one) {
                                                 return one.deterministic;
                                               }));

}  // namespace
}  // namespace commsched
