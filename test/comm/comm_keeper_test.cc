#include "comm/comm_keeper.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// What the backend was asked to end, and why; and what was told.
struct Seen {
  std::vector<std::vector<void*>> aborts;
  std::string why;
  std::vector<uint64_t> told;
};
Seen* seen = nullptr;

void Abort(void* /*rank*/, void* const* comms, uint32_t num_comms,
           commsched_status_t /*status*/, const char* message) {
  seen->aborts.emplace_back(comms, comms + num_comms);
  seen->why = message;
}

class CommKeeperTest : public testing::Test {
 protected:
  CommKeeperTest() {
    seen = &seen_;
    WorldSpec spec;
    spec.size = 1;
    world_ = World::Create(spec).value();
    table_ = *world_->backend();
    table_.abort = &Abort;
    spec.table = &table_;
    world_ = World::Create(spec).value();
    keeper_ = std::make_unique<CommKeeper>(CommKeeper::Spec{
        .rank = world_->Rank(0).value(),
        .watch = [](const std::shared_ptr<FailureWatcher>&, uint64_t) {},
        .tell = [this](uint64_t number,
                       const absl::Status&) { seen_.told.push_back(number); }});
  }

  // Lent, and made.
  KeptComm* Make(CommGeneration* generation, const CommWish& wish, void* comm) {
    KeptComm* const kept = generation->Borrow(wish);
    EXPECT_EQ(kept->comm, nullptr);
    generation->Add(kept, comm);
    return kept;
  }

  int a_ = 0, b_ = 0;  // Handles.
  Seen seen_;
  commsched_backend_t table_;
  std::shared_ptr<World> world_;
  std::unique_ptr<CommKeeper> keeper_;
};

CommWish Wish(const std::string& group, int lane = 0) {
  return {.group = group, .lane = lane, .max_members = 4};
}

TEST_F(CommKeeperTest, OneIsLentToOneAtATime) {
  const auto generation = keeper_->Current();
  KeptComm* const first = Make(generation.get(), Wish("dp"), &a_);
  KeptComm* const second = Make(generation.get(), Wish("dp"), &b_);
  EXPECT_EQ(first->index, 0u);
  EXPECT_EQ(second->index, 1u);
  EXPECT_THAT(generation->Return({first}, /*keep=*/true), IsEmpty());
  EXPECT_EQ(generation->Borrow(Wish("dp")), first);
  EXPECT_EQ(generation->Borrow(Wish("dp"))->index, 2u);
}

TEST_F(CommKeeperTest, OneOfAnotherGroupOrLaneOrForSmallerLaunchesIsNotTaken) {
  const auto generation = keeper_->Current();
  KeptComm* const made = Make(generation.get(), Wish("dp", 1), &a_);
  generation->Return({made}, /*keep=*/true);
  CommWish larger = Wish("dp", 1);
  larger.max_members = 5;
  for (const CommWish& wish : {Wish("tp", 1), Wish("dp", 2), larger}) {
    EXPECT_EQ(generation->Borrow(wish)->comm, nullptr);
  }
  EXPECT_EQ(generation->Borrow(Wish("dp", 1))->comm, &a_);
}

TEST_F(CommKeeperTest, WhatWasNotMadeLeavesItsIndex) {
  const auto generation = keeper_->Current();
  generation->Return({generation->Borrow(Wish("dp"))}, /*keep=*/true);
  EXPECT_EQ(generation->Borrow(Wish("dp"))->index, 0u);
}

TEST_F(CommKeeperTest, WhatIsNotKeptIsTheCallersToDestroy) {
  const auto generation = keeper_->Current();
  KeptComm* const captured = Make(generation.get(), Wish("dp"), &a_);
  KeptComm* const own = generation->BorrowOwn(Wish("dp"));
  generation->Add(own, &b_);
  EXPECT_THAT(generation->Return({captured}, /*keep=*/false), ElementsAre(&a_));
  EXPECT_THAT(generation->Return({own}, /*keep=*/true), ElementsAre(&b_));
}

// A kernel of one may keep another from its end.
TEST_F(CommKeeperTest, AFailureAbortsAllInOneCallAndTellsOthersOnce) {
  const auto generation = keeper_->Current();
  KeptComm* const idle = Make(generation.get(), Wish("dp"), &a_);
  generation->Return({idle}, /*keep=*/true);
  CommWish wish = Wish("tp");
  wish.owner = this;
  KeptComm* const lent = Make(generation.get(), wish, &b_);
  generation->Fail(this, "session 7", absl::AbortedError("enough"));
  generation->Fail(this, "session 7", absl::AbortedError("more"));
  ASSERT_EQ(seen_.aborts.size(), 1u);
  EXPECT_THAT(seen_.aborts[0], UnorderedElementsAre(&a_, &b_));
  EXPECT_EQ(seen_.why, "enough");
  EXPECT_THAT(seen_.told, ElementsAre(0u));
  EXPECT_THAT(generation->Return({lent}, /*keep=*/true),
              UnorderedElementsAre(&a_, &b_));
}

TEST_F(CommKeeperTest, WhoIsSpoiledByAnotherIsToldByWhom) {
  const auto generation = keeper_->Current();
  CommWish others = Wish("dp");
  others.owner = &a_;
  Make(generation.get(), others, &a_);
  generation->Fail(&b_, "session 7", absl::AbortedError("enough"));
  EXPECT_THAT(seen_.why, HasSubstr("enough; with session 7 all"));
}

TEST_F(CommKeeperTest, WhatIsMadeAfterAFailureIsAborted) {
  const auto generation = keeper_->Current();
  KeptComm* const place = generation->Borrow(Wish("dp"));
  generation->OnFailure(absl::AbortedError("enough"));
  EXPECT_THAT(seen_.aborts, IsEmpty());
  EXPECT_THAT(seen_.told, IsEmpty()) << "the other rank has";
  generation->Add(place, &a_);
  EXPECT_THAT(seen_.aborts, ElementsAre(ElementsAre(&a_)));
}

TEST_F(CommKeeperTest, AGenerationFollowsOneThatHasFailed) {
  const auto first = keeper_->Current();
  EXPECT_EQ(keeper_->Current(), first);
  first->OnFailure(absl::AbortedError("enough"));
  const auto second = keeper_->Current();
  EXPECT_EQ(second->number(), 1u);
  EXPECT_OK(second->failure());
  EXPECT_EQ(keeper_->AtLeast(1), second);
  const auto later = keeper_->AtLeast(4);
  EXPECT_EQ(later->number(), 4u);
  EXPECT_THAT(second->failure(), StatusIs(absl::StatusCode::kAborted,
                                          "another rank has seen a failure"));
}

}  // namespace
}  // namespace commsched
