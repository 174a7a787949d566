// Sessions of several worlds in which a rank is, over inproc and ucx.
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/joined_ranks.h"
#include "test/support/process_use.h"
#include "test/support/rank_group.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::MakeBuckets;
using test::RunStep;
using test::SessionRig;

constexpr int kWholeSize = 4;
constexpr int64_t kSplitNs = int64_t{60} * 1000 * 1000 * 1000;

// A part of the job: who is in it, and what its sessions are made of.
struct SplitPart {
  std::vector<int> members;
  std::unique_ptr<SessionRig> rig;

  // The rank in the part of a rank of the whole, or -1.
  int Find(int rank) const {
    const auto found = std::find(members.begin(), members.end(), rank);
    return found == members.end() ? -1
                                  : static_cast<int>(found - members.begin());
  }
};

class SplitWorldsTest : public testing::TestWithParam<const char*> {
 protected:
  SplitWorldsTest() {
    WorldSpec spec;
    spec.size = kWholeSize;
    spec.backend = GetParam();
    if (spec.backend == "inproc") {
      threads_ = World::Create(spec).value();
      return;
    }
#ifdef COMMSCHED_TEST_UCX
    EXPECT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_UCX));
#endif
    EXPECT_OK(ranks_.Join(spec, kWholeSize));
  }

  const std::shared_ptr<World>& WorldOf(int rank) {
    return threads_ != nullptr ? threads_ : ranks_.WorldOf(rank);
  }

  // The whole, as the only part.
  void TakeWhole() {
    std::vector<std::shared_ptr<World>> whole;
    for (int rank = 0; rank < kWholeSize; ++rank) {
      whole.push_back(WorldOf(rank));
    }
    parts_.clear();
    parts_.resize(1);
    parts_[0].members = {0, 1, 2, 3};
    parts_[0].rig = RigOf(std::move(whole), kWholeSize);
  }

  // The whole, in two pairs of neighbours, and in two of the others.
  void SplitAll() {
    TakeWhole();
    parts_.resize(5);
    parts_[1].members = {1, 0};
    parts_[2].members = {2, 3};
    parts_[3].members = {0, 2};
    parts_[4].members = {3, 1};
    std::vector<std::vector<std::shared_ptr<World>>> worlds(parts_.size());
    for (auto& of_part : worlds) of_part.resize(2);
    ASSERT_OK(RunAllRanks(kWholeSize, [&](int rank) -> absl::Status {
      for (size_t i = 1; i < parts_.size(); ++i) {
        const int own = parts_[i].Find(rank);
        if (own < 0) continue;
        ASSIGN_OR_RETURN(worlds[i][static_cast<size_t>(own)],
                         WorldOf(rank)->Split(rank, parts_[i].members,
                                              i < 3 ? "tp" : "dp", kSplitNs));
      }
      return absl::OkStatus();
    }));
    for (size_t i = 1; i < parts_.size(); ++i) {
      parts_[i].rig = RigOf(std::move(worlds[i]), 2);
    }
  }

  std::unique_ptr<SessionRig> RigOf(std::vector<std::shared_ptr<World>> worlds,
                                    int size) {
    if (threads_ != nullptr) worlds.resize(1);
    const BucketGraph& made = size == 2 ? of_two_ : of_four_;
    return std::make_unique<SessionRig>(std::move(worlds), made.graph,
                                        PlanOptions{});
  }

  // What a rank runs on each of the parts that it is in.
  struct Running {
    size_t part = 0;
    int rank = 0;
    std::unique_ptr<Session> session;
  };
  absl::StatusOr<std::vector<Running>> Begin(int rank, uint64_t instance = 0) {
    std::vector<Running> all;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int own = parts_[i].Find(rank);
      if (own < 0) continue;
      ASSIGN_OR_RETURN(auto session, Session::Create(SpecOf(i, own, instance)));
      all.push_back({i, own, std::move(session)});
    }
    return all;
  }
  SessionSpec SpecOf(size_t part, int own, uint64_t instance) {
    SessionSpec spec = parts_[part].rig->Spec(own);
    spec.instance = instance;
    return spec;
  }
  // And looks at the sum.
  absl::Status Step(const Running& one) {
    SessionRig& rig = *parts_[one.part].rig;
    const BucketGraph& made =
        parts_[one.part].members.size() == 2 ? of_two_ : of_four_;
    RETURN_IF_ERROR(RunStep(*one.session, rig, made, one.rank));
    RETURN_IF_ERROR(one.session->Drain());
    const float expected = parts_[one.part].members.size() == 2 ? 3 : 10;
    const float sum = rig.Memory(one.rank, made.gradient[0])[0];
    if (sum == expected) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("part ", one.part, ": the sum is ", sum));
  }

  const BucketGraph of_two_ = MakeBuckets(2, 3, 1000);
  const BucketGraph of_four_ = MakeBuckets(kWholeSize, 3, 1000);
  JoinedRanks ranks_;
  std::shared_ptr<World> threads_;
  std::vector<SplitPart> parts_;
};

#ifdef COMMSCHED_TEST_UCX
INSTANTIATE_TEST_SUITE_P(Backends, SplitWorldsTest,
                         testing::Values("inproc", "ucx"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });
#else
INSTANTIATE_TEST_SUITE_P(Backends, SplitWorldsTest, testing::Values("inproc"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });
#endif

TEST_P(SplitWorldsTest, ARankRunsSessionsOfAllItsWorlds) {
  SplitAll();
  EXPECT_OK(RunAllRanks(kWholeSize, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<Running> all, Begin(rank));
    EXPECT_EQ(all.size(), 3u);
    for (int t = 0; t < 10; ++t) {
      for (const Running& one : all) RETURN_IF_ERROR(Step(one));
    }
    return absl::OkStatus();
  }));
}

// Rank 3 gives up what it does with rank 2, or with all; all else goes on, that
// of the same ranks in other worlds, too, and they begin anew.
TEST_P(SplitWorldsTest, AFailureEndsTheSessionsOfItsWorldOnly) {
  SplitAll();
  // What rank 3 has seen the end of, others may not have.
  std::barrier all_stepped(kWholeSize);
  EXPECT_OK(RunAllRanks(kWholeSize, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<Running> all, Begin(rank));
    for (const Running& one : all) RETURN_IF_ERROR(Step(one));
    for (const size_t failing : {size_t{2}, size_t{0}}) {
      all_stepped.arrive_and_wait();
      for (const Running& one : all) {
        if (one.part != failing) continue;
        if (rank == 3) {
          one.session->Abort("enough");
        } else {
          EXPECT_THAT(Step(one),
                      StatusIs(absl::StatusCode::kAborted, "enough"));
        }
      }
      for (int t = 0; t < 10; ++t) {
        for (const Running& one : all) {
          if (one.part != failing) RETURN_IF_ERROR(Step(one));
        }
      }
      for (Running& one : all) {
        if (one.part != failing) continue;
        one.session.reset();
        ASSIGN_OR_RETURN(one.session,
                         Session::Create(SpecOf(one.part, one.rank, 1)));
      }
      for (const Running& one : all) RETURN_IF_ERROR(Step(one));
    }
    return absl::OkStatus();
  }));
}

// A world of ucx has a thread, memory and sockets of its own.
TEST_P(SplitWorldsTest, NothingIsLeftOfWorldsThatHaveEnded) {
  const auto step_all = [&](uint64_t instance) {
    EXPECT_OK(RunAllRanks(kWholeSize, [&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(const std::vector<Running> all, Begin(rank, instance));
      for (const Running& one : all) RETURN_IF_ERROR(Step(one));
      return absl::OkStatus();
    }));
  };
  // The world of all stays, with what it needs.
  TakeWhole();
  step_all(0);
  const test::ProcessUse before;
  for (uint64_t instance = 1; instance <= 3; ++instance) {
    SplitAll();
    step_all(instance);
  }
  parts_.clear();
  EXPECT_TRUE(test::Await([&] { return test::ProcessUse() == before; }))
      << test::ProcessUse() << ", before: " << before;
}

// As ranks do that are told to end by something else than each other.
TEST_P(SplitWorldsTest, RanksEndTheirWorldsInAnyOrder) {
  SplitAll();
  EXPECT_OK(RunAllRanks(kWholeSize, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<Running> all, Begin(rank));
    for (const Running& one : all) RETURN_IF_ERROR(Step(one));
    if (rank % 2 == 0) std::reverse(all.begin(), all.end());
    for (Running& one : all) one.session.reset();
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace commsched
