// Communicators stay with the world when the session that made them ends, and
// end with the failure of any.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/capture_rig.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/await.h"
#include "test/support/joined_ranks.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::CaptureRank;
using test::CaptureStep;
using test::GpuRig;
using test::ReductionStep;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr int64_t kSplitNs = int64_t{60} * 1000 * 1000 * 1000;

// A step that all-reduces `count` elements, and memory for it.
struct Shape {
  explicit Shape(uint64_t count)
      : step(kRanks, Ownership::kOwned, {"dp"}, count),
        rig(kRanks, step.graph(), {}) {}

  absl::StatusOr<std::unique_ptr<Session>> Connect(
      const std::shared_ptr<World>& world, uint64_t instance, int rank) {
    SessionSpec spec = rig.Spec(rank);
    spec.world = world;
    spec.instance = instance;
    return Session::Create(std::move(spec));
  }
  absl::Status Run(Session* session, int rank) {
    return RunSteps(session, step, rig.lane(rank, 0), 2);
  }
  // A session of `world` on each rank, from its beginning to its end.
  void RunAll(const std::shared_ptr<World>& world, uint64_t instance) {
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(const auto session, Connect(world, instance, rank));
      return Run(session.get(), rank);
    }));
  }

  ReductionStep step;
  GpuRig rig;
};

// Calls of a function since it was made.
class Calls {
 public:
  explicit Calls(const char* name)
      : name_(name), before_(fake_gpu_num_calls(name)) {}
  uint64_t operator()() const { return fake_gpu_num_calls(name_) - before_; }

 private:
  const char* const name_;
  const uint64_t before_;
};

constexpr uint64_t kSmall = 1024;
constexpr uint64_t kLarge = 64 * 1024;
// Launches of all ranks in a Shape's session.
constexpr uint64_t kLaunches = 2 * kRanks;

TEST(KeptCommsTest, TheNextSessionMakesNoCommunicatorAndWarmsUpNothing) {
  Shape shape(kSmall);
  const auto& world = shape.rig.world();
  shape.RunAll(world, 0);
  const Calls ids("ncclGetUniqueId");
  const Calls joins("ncclCommInitRankConfig");
  const Calls reduces("ncclAllReduce");
  const uint64_t comms = fake_gpu_num_comms();
  const uint64_t bytes = fake_gpu_allocated_bytes();
  for (uint64_t instance = 1; instance < 4; ++instance) {
    shape.RunAll(world, instance);
  }
  EXPECT_EQ(ids(), 0u);
  EXPECT_EQ(joins(), 0u);
  EXPECT_EQ(reduces(), 3 * kLaunches);
  EXPECT_EQ(fake_gpu_num_comms(), comms);
  EXPECT_EQ(fake_gpu_allocated_bytes(), bytes);
}

TEST(KeptCommsTest, ASessionOfAnotherShapeWarmsUpWhatIsNewAndOnce) {
  Shape small(kSmall);
  Shape large(kLarge);
  const auto& world = small.rig.world();
  small.RunAll(world, 0);
  const Calls joins("ncclCommInitRankConfig");
  const Calls reduces("ncclAllReduce");
  large.RunAll(world, 1);
  EXPECT_EQ(reduces(), kRanks + kLaunches);
  small.RunAll(world, 2);
  large.RunAll(world, 3);
  EXPECT_EQ(reduces(), kRanks + 3 * kLaunches);
  EXPECT_EQ(joins(), 0u);
}

// NCCL matches launches of a communicator by their order alone.
TEST(KeptCommsTest, SessionsThatLiveAtOnceShareNone) {
  Shape shape(kSmall);
  const auto& world = shape.rig.world();
  const Calls joins("ncclCommInitRankConfig");
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto one, shape.Connect(world, 0, rank));
    ASSIGN_OR_RETURN(const auto other, shape.Connect(world, 1, rank));
    RETURN_IF_ERROR(shape.Run(one.get(), rank));
    return shape.Run(other.get(), rank);
  }));
  EXPECT_EQ(joins(), uint64_t{2 * kRanks});
  // Both are there for the next two.
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto one, shape.Connect(world, 2, rank));
    ASSIGN_OR_RETURN(const auto other, shape.Connect(world, 3, rank));
    RETURN_IF_ERROR(shape.Run(other.get(), rank));
    return shape.Run(one.get(), rank);
  }));
  EXPECT_EQ(joins(), uint64_t{2 * kRanks});
}

// Rank 0 would take the one that rank 1 has not given back.
TEST(KeptCommsTest, RanksThatWouldTakeOtherOnesMakeNewOnes) {
  Shape shape(kSmall);
  const auto& world = shape.rig.world();
  const Calls joins("ncclCommInitRankConfig");
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto first, shape.Connect(world, 0, rank));
    RETURN_IF_ERROR(shape.Run(first.get(), rank));
    if (rank == 0) first.reset();
    ASSIGN_OR_RETURN(const auto next, shape.Connect(world, 1, rank));
    return shape.Run(next.get(), rank);
  }));
  EXPECT_EQ(joins(), uint64_t{2 * kRanks});
  EXPECT_EQ(fake_gpu_num_comms(), uint64_t{kRanks})
      << "new ones end with their session";
  shape.RunAll(world, 2);
  EXPECT_EQ(joins(), uint64_t{2 * kRanks});
}

TEST(KeptCommsTest, TheyEndWithTheWorld) {
  const uint64_t before = fake_gpu_num_comms();
  {
    Shape shape(kSmall);
    shape.RunAll(shape.rig.world(), 0);
    EXPECT_EQ(fake_gpu_num_comms() - before, uint64_t{kRanks});
  }
  EXPECT_EQ(fake_gpu_num_comms(), before);
}

// Who goes on and launches would meet what frees their memory in the driver.
TEST(KeptCommsTest, ThoseOfAWorldOfSomeRanksHaveEndedOnceItIsLeft) {
  ReductionStep step(1, Ownership::kOwned, {"dp"}, kSmall);
  GpuRig rig(1, step.graph(), {});
  WorldSpec spec;
  spec.table = test::NcclTable();
  spec.devices = {test::FakeDevice(0)};
  JoinedRanks ranks;
  ASSERT_OK(ranks.Join(spec, 1));
  const uint64_t before = fake_gpu_num_comms();
  auto part = ranks.WorldOf(0)->Split(0, {0}, "part", kSplitNs);
  ASSERT_OK(part.status());
  {
    SessionSpec of_part = rig.Spec(0);
    of_part.world = *part;
    const auto session = Session::Create(std::move(of_part));
    ASSERT_OK(session.status());
    EXPECT_OK(RunSteps(session->get(), step, rig.lane(0, 0), 2));
  }
  EXPECT_EQ(fake_gpu_num_comms() - before, uint64_t{1});
  part->reset();
  EXPECT_EQ(fake_gpu_num_comms(), before);
}

// Whoever has launched nothing finds it, too; another world steps on.
TEST(KeptCommsTest, AFailureIsThatOfTheWorldByNameAndOfNoOther) {
  const uint64_t before = fake_gpu_num_comms();
  Shape shape(kSmall);
  Shape of_other_world(kSmall);
  const auto& world = shape.rig.world();
  const Calls aborts("ncclCommAbort");
  // An idle one, beside those of two sessions.
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto one, shape.Connect(world, 0, rank));
    ASSIGN_OR_RETURN(const auto two, shape.Connect(world, 1, rank));
    ASSIGN_OR_RETURN(const auto three, shape.Connect(world, 2, rank));
    return absl::OkStatus();
  }));
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto fails, shape.Connect(world, 3, rank));
    ASSIGN_OR_RETURN(const auto spoiled, shape.Connect(world, 4, rank));
    ASSIGN_OR_RETURN(
        const auto lives,
        of_other_world.Connect(of_other_world.rig.world(), 0, rank));
    if (rank == 1) fails->Abort("enough");
    EXPECT_TRUE(test::Await(
        [&] { return !fails->status().ok() && !spoiled->status().ok(); }));
    EXPECT_THAT(std::string(fails->status().message()), HasSubstr("enough"));
    EXPECT_THAT(std::string(spoiled->status().message()),
                HasSubstr("rank 1: enough; with session 3 all communicators of "
                          "its world"));
    return of_other_world.Run(lives.get(), rank);
  }));
  EXPECT_EQ(aborts(), uint64_t{3 * kRanks});
  EXPECT_EQ(fake_gpu_num_comms() - before, uint64_t{kRanks})
      << "those of the other world";
  // What comes next is made anew.
  shape.RunAll(world, 5);
  of_other_world.RunAll(of_other_world.rig.world(), 1);
}

// A graph may outlive the session that has captured it.
TEST(KeptCommsTest, OneThatIsInGraphsEndsWithItsSession) {
  const uint64_t before = fake_gpu_num_comms();
  const CaptureStep step(kRanks);
  GpuRig rig(kRanks, step.graph, {});
  test::ExpectAllOk(
      rig.RunSessions([&](Session& session, int number) -> absl::Status {
        CaptureRank rank(step, &session, &rig, number);
        RETURN_IF_ERROR(rank.RunPlain(1));
        RETURN_IF_ERROR(rank.Capture());
        RETURN_IF_ERROR(rank.Replay(2));
        return session.Drain();
      }));
  EXPECT_EQ(fake_gpu_num_comms(), before);
}

// NCCL frees no communicator before its graphs are destroyed.
TEST(KeptCommsTest, TheEndOfASessionWaitsForNoGraphOfAnother) {
  const uint64_t before = fake_gpu_num_comms();
  const CaptureStep step(kRanks);
  GpuRig rig(kRanks, step.graph, {});
  Shape shape(kSmall);
  std::atomic<int> num_ended{0};
  test::ExpectAllOk(RunRanks(kRanks, [&](int number) -> absl::Status {
    ASSIGN_OR_RETURN(const auto captures, Session::Create(rig.Spec(number)));
    CaptureRank rank(step, captures.get(), &rig, number);
    RETURN_IF_ERROR(rank.RunPlain(1));
    RETURN_IF_ERROR(rank.Capture());
    RETURN_IF_ERROR(captures->Drain());
    ASSIGN_OR_RETURN(auto fails, shape.Connect(rig.world(), 1, number));
    if (number == 1) fails->Abort("enough");
    EXPECT_TRUE(test::Await([&] { return !captures->status().ok(); }));
    fails.reset();
    ++num_ended;
    EXPECT_TRUE(test::Await([&] { return num_ended >= kRanks; }));
    EXPECT_EQ(fake_gpu_num_comms() - before, uint64_t{kRanks})
        << "those of the other session";
    ++num_ended;
    EXPECT_TRUE(test::Await([&] { return num_ended == 2 * kRanks; }));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace commsched
