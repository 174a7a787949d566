#include "comm/failure_board.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

// Counts what it is told, and keeps the first.
class Listener final : public FailureWatcher {
 public:
  void OnFailure(const absl::Status& why) override {
    if (++num_told_ == 1) first_ = why;
  }
  const absl::Status& first() const { return first_; }
  int num_told() const { return num_told_; }

 private:
  absl::Status first_;
  int num_told_ = 0;
};

// Rank 1 of 4, which is a rank of both parts of the job.
class FailureBoardTest : public testing::Test {
 protected:
  std::shared_ptr<Listener> Watch(const std::shared_ptr<JobPart>& part,
                                  uint64_t scope = 0,
                                  std::vector<int> members = {}) {
    auto listener = std::make_shared<Listener>();
    board_.Watch(listener, {.part = part,
                            .rank = 1,
                            .scope = scope,
                            .members = std::move(members)});
    return listener;
  }

  const std::shared_ptr<JobPart> all_ = std::make_shared<JobPart>();
  const std::shared_ptr<JobPart> tp_ =
      std::make_shared<JobPart>("a", "tp", std::vector<int>{3, 1});
  const std::shared_ptr<JobPart> dp_ =
      std::make_shared<JobPart>("b", "dp", std::vector<int>{1, 2});
  FailureBoard board_;
};

TEST_F(FailureBoardTest, APartNumbersItsRanksInTheirOrder) {
  EXPECT_EQ(tp_->Find(1), 1);
  EXPECT_EQ(tp_->Find(3), 0);
  EXPECT_EQ(tp_->Find(2), -1);
  EXPECT_EQ(tp_->JobRank(0), 3);
  EXPECT_EQ(all_->Find(2), 2);
  EXPECT_EQ(all_->JobRank(2), 2);
}

TEST_F(FailureBoardTest, ALostRankConcernsTheWorldsThatItIsARankOf) {
  const auto in_all = Watch(all_);
  const auto in_tp = Watch(tp_);
  const auto in_dp = Watch(dp_);
  board_.OnLost(3, absl::AbortedError("rank 3 is lost: killed"));
  EXPECT_THAT(in_all->first(),
              StatusIs(absl::StatusCode::kAborted, "rank 3 is lost: killed"));
  EXPECT_THAT(in_tp->first(),
              StatusIs(absl::StatusCode::kAborted,
                       "world 'tp': rank 0 is gone: in the job, rank 3 is "
                       "lost: killed"));
  EXPECT_EQ(in_dp->num_told(), 0);
  // Those that come later, too.
  EXPECT_EQ(Watch(all_)->num_told(), 1);
  EXPECT_EQ(Watch(tp_)->num_told(), 1);
  EXPECT_EQ(Watch(dp_)->num_told(), 0);
}

TEST_F(FailureBoardTest, OfTheRanksOfAWorldThatAreLostTheFirstCounts) {
  const auto in_all = Watch(all_);
  const auto in_dp = Watch(dp_);
  board_.OnLost(3, absl::AbortedError("rank 3 is lost"));
  board_.OnLost(2, absl::AbortedError("rank 2 is lost"));
  EXPECT_EQ(in_all->num_told(), 1);
  EXPECT_THAT(in_dp->first(), StatusIs(absl::StatusCode::kAborted,
                                       "world 'dp': rank 1 is gone"));
  EXPECT_THAT(Watch(all_)->first(),
              StatusIs(absl::StatusCode::kAborted, "rank 3 is lost"));
}

TEST_F(FailureBoardTest, ALostRankConcernsWhoWatchesItOnly) {
  const auto without = Watch(all_, 0, {1, 2});
  const auto with = Watch(all_, 0, {3, 1});
  board_.OnLost(3, absl::AbortedError("rank 3 is lost"));
  EXPECT_EQ(without->num_told(), 0);
  EXPECT_THAT(with->first(),
              StatusIs(absl::StatusCode::kAborted, "rank 3 is lost"));
  // Those that come later, too.
  EXPECT_EQ(Watch(all_, 0, {1, 2})->num_told(), 0);
  EXPECT_EQ(Watch(all_, 0, {3, 1})->num_told(), 1);
  // The first that concerns a watcher, whoever was lost before.
  board_.OnLost(2, absl::AbortedError("rank 2 is lost"));
  EXPECT_THAT(without->first(),
              StatusIs(absl::StatusCode::kAborted, "rank 2 is lost"));
  EXPECT_EQ(with->num_told(), 1);
  // Who ends a world does not wait for who is gone, whatever is watched.
  EXPECT_NE(board_.FailedSinceNs(*all_), 0);
}

TEST_F(FailureBoardTest, TheLossOfTheServerConcernsAll) {
  const auto in_few = Watch(all_, 0, {1, 2});
  const auto in_all = Watch(all_);
  const auto in_dp = Watch(dp_);
  board_.OnLost(FailureBoard::kEveryRank, absl::UnavailableError("no server"));
  EXPECT_EQ(in_few->num_told(), 1);
  EXPECT_THAT(in_all->first(),
              StatusIs(absl::StatusCode::kUnavailable, "no server"));
  EXPECT_THAT(in_dp->first(), StatusIs(absl::StatusCode::kUnavailable,
                                       "world 'dp': in the job, no server"));
}

TEST_F(FailureBoardTest, AFailureConcernsWhoWatchesItsScope) {
  constexpr uint64_t kScope = FailureBoard::kPartsBit | 7;
  const auto in_tp = Watch(tp_, kScope);
  const auto in_all = Watch(all_, 7);
  board_.OnFailed(3, kScope, absl::DataLossError("rank 0: first"));
  board_.OnFailed(1, kScope, absl::DataLossError("rank 1: second"));
  EXPECT_THAT(in_tp->first(),
              StatusIs(absl::StatusCode::kDataLoss, "rank 0: first"));
  EXPECT_EQ(in_tp->num_told(), 1);
  EXPECT_EQ(in_all->num_told(), 0);
  EXPECT_EQ(Watch(tp_, kScope)->num_told(), 1);
}

TEST_F(FailureBoardTest, AFailureOfAPartLeavesTheOthersAsTheyWere) {
  constexpr uint64_t kScope = FailureBoard::kPartsBit | 7;
  const auto in_tp = Watch(tp_, kScope);
  EXPECT_EQ(board_.FailedSinceNs(*tp_), 0);
  board_.OnFailed(3, kScope, absl::DataLossError("rank 0"));
  EXPECT_NE(board_.FailedSinceNs(*tp_), 0);
  EXPECT_EQ(board_.FailedSinceNs(*all_), 0);
  EXPECT_EQ(board_.FailedSinceNs(*dp_), 0);
  board_.Recovered(*tp_, kScope + 1);
  EXPECT_EQ(board_.FailedSinceNs(*tp_), 0);
}

TEST_F(FailureBoardTest, NobodyRecoversFromALoss) {
  board_.OnLost(3, absl::AbortedError("rank 3 is lost"));
  board_.Recovered(*tp_, 1);
  EXPECT_NE(board_.FailedSinceNs(*tp_), 0);
  EXPECT_EQ(board_.FailedSinceNs(*dp_), 0);
}

}  // namespace
}  // namespace commsched
