#include "comm/meeting/comparison.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "comm/meeting/memory_meeting.h"
#include "gtest/gtest.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int64_t kPatientNs = int64_t{60} * 1'000'000'000;

// The ranks of a world that meets in memory.
class ComparingRanks {
 public:
  explicit ComparingRanks(int size) : meeting_(size) {
    for (int rank = 0; rank < size; ++rank) {
      all_.push_back(rank);
      comparisons_.push_back(std::make_unique<Comparisons>(&meeting_, rank));
    }
  }

  Comparisons& of(int rank) { return *comparisons_[rank]; }
  ComparisonName name() const { return {.name = "options", .members = all_}; }
  int64_t NumOpen() { return meeting_.NumOpen(); }

  // Every rank shows `facts(rank)`; the statuses, by rank.
  template <typename Facts>
  std::vector<absl::Status> Compare(const Facts& facts,
                                    const std::string& scope = "") {
    return RunRanks(static_cast<int>(all_.size()), [&](int rank) {
      return of(rank).Compare(name(), scope, facts(rank), kPatientNs).status();
    });
  }

 private:
  MemoryMeeting meeting_;
  std::vector<int> all_;
  std::vector<std::unique_ptr<Comparisons>> comparisons_;
};

void ExpectAll(const std::vector<absl::Status>& statuses,
               const std::string& message) {
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition, message));
  }
}

TEST(ComparisonTest, EqualFactsAgreeAndLeaveNothing) {
  ComparingRanks ranks(3);
  for (uint64_t time = 0; time < 3; ++time) {
    EXPECT_OK(RunAllRanks(3, [&](int rank) -> absl::Status {
      const auto number = ranks.of(rank).Compare(
          ranks.name(), "", {{"lr", "0.1"}, {"decay", "0"}}, kPatientNs);
      if (!number.ok()) return number.status();
      EXPECT_EQ(*number, time);
      return absl::OkStatus();
    }));
  }
  EXPECT_EQ(ranks.NumOpen(), 0);
}

TEST(ComparisonTest, NamesTheFirstValueThatDiffersAndBothRanks) {
  ComparingRanks ranks(4);
  ExpectAll(ranks.Compare([](int rank) {
    return std::vector<Fact>{{"lr", "1"},
                             {"decay", rank < 2 ? "0.1" : "0"},
                             {"clip", rank == 1 ? "5" : "6"}};
  }),
            "options: clip is 6 on rank 0 and 5 on rank 1");
  EXPECT_EQ(ranks.NumOpen(), 0);
}

TEST(ComparisonTest, NamesWhatOneRankDoesNotHave) {
  ComparingRanks ranks(2);
  ExpectAll(ranks.Compare([](int rank) {
    std::vector<Fact> facts = {{"parameter 0", "a"}, {"module 0", "m"}};
    if (rank == 1) facts.erase(facts.begin());
    return facts;
  }),
            "parameter 0 is a on rank 0 and does not exist on rank 1");
  ExpectAll(ranks.Compare([](int rank) {
    return std::vector<Fact>(rank == 0 ? 1 : 2, {"parameter", "a"});
  }),
            "parameter is a on rank 1 and does not exist on rank 0");
}

TEST(ComparisonTest, OtherOrdersAreNamed) {
  ComparingRanks ranks(2);
  ExpectAll(ranks.Compare([](int rank) {
    std::vector<Fact> facts = {{"x", "1"}, {"y", "2"}};
    if (rank == 1) std::swap(facts[0], facts[1]);
    return facts;
  }),
            "rank 0 has x (1) where rank 1 has y (2)");
}

TEST(ComparisonTest, RanksOfOtherScopesMayDiffer) {
  ComparingRanks ranks(4);
  EXPECT_OK(RunAllRanks(4, [&](int rank) {
    return ranks.of(rank)
        .Compare(ranks.name(), rank % 2 == 0 ? "even" : "odd",
                 {{"half", std::to_string(rank % 2)}}, kPatientNs)
        .status();
  }));
}

TEST(ComparisonTest, OnlyMembersMeet) {
  ComparingRanks ranks(4);
  const ComparisonName name = {.name = "pair", .members = {3, 1}};
  EXPECT_OK(RunAllRanks(2, [&](int thread) {
    return ranks.of(name.members[thread])
        .Compare(name, "", {{"x", "1"}}, kPatientNs)
        .status();
  }));
  EXPECT_THAT(
      ranks.of(3).Compare(name, "", {}, 1),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "missing of 2 ranks: 1"));
}

TEST(ComparisonTest, ARankThatDeclinesFailsTheOthersAndKeepsCount) {
  ComparingRanks ranks(2);
  ranks.of(1).Decline(ranks.name(), absl::InternalError("no plan"));
  EXPECT_THAT(ranks.of(0).Compare(ranks.name(), "", {}, kPatientNs),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "rank 1 will not come: no plan"));
  for (const absl::Status& status :
       ranks.Compare([](int) { return std::vector<Fact>(); })) {
    EXPECT_OK(status);
  }
  EXPECT_EQ(ranks.NumOpen(), 0);
}

TEST(ComparisonTest, WhoWaitsGetsOutByDecliningAndNeverComesAfterAnAbort) {
  ComparingRanks ranks(2);
  std::thread waits([&] {
    EXPECT_THAT(ranks.of(0).Compare(ranks.name(), "", {}, kPatientNs),
                StatusIs(absl::StatusCode::kAborted, "enough"));
  });
  ranks.of(0).Decline(ranks.name(), absl::AbortedError("enough"));
  waits.join();
  EXPECT_THAT(ranks.of(0).Compare(ranks.name(), "", {}, kPatientNs),
              StatusIs(absl::StatusCode::kAborted, "enough"));
  EXPECT_THAT(ranks.of(1).Compare(ranks.name(), "", {}, kPatientNs),
              StatusIs(absl::StatusCode::kAborted, "rank 0"));
}

}  // namespace
}  // namespace commsched
