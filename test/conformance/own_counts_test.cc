// An all-to-all in which a rank knows what it sends and what it gets, and
// nothing of the others.
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/await.h"
#include "test/support/launches.h"
#include "test/support/property.h"

namespace commsched {
namespace {

// What one rank gives and gets. Member m has count_of(m, from, to) elements
// from a rank to another, each of which says who sends it to whom.
class OwnParts {
 public:
  using CountOf = std::function<uint64_t(size_t member, int from, int to)>;

  OwnParts(int size, int rank, size_t num_members, const CountOf& count_of)
      : size_(size), rank_(rank), counts_(num_members) {
    for (size_t m = 0; m < num_members; ++m) {
      for (int peer = 0; peer < size; ++peer) {
        counts_[m].push_back(count_of(m, rank, peer));
      }
      for (int peer = 0; peer < size; ++peer) {
        counts_[m].push_back(count_of(m, peer, rank));
      }
    }
  }
  OwnParts(const OwnParts&) = delete;

  uint64_t& sent(size_t member, int to) {
    return counts_[member][static_cast<size_t>(to)];
  }
  uint64_t& expected(size_t member, int from) {
    return counts_[member][static_cast<size_t>(size_ + from)];
  }

  // Valid until the next call.
  commsched_launch_t& launch() {
    in_.assign(counts_.size(), {});
    out_.assign(counts_.size(), {});
    members_.clear();
    for (size_t m = 0; m < counts_.size(); ++m) {
      uint64_t received = 0;
      for (int peer = 0; peer < size_; ++peer) {
        in_[m].insert(in_[m].end(), sent(m, peer), ValueOf(m, rank_, peer));
        received += expected(m, peer);
      }
      out_[m].assign(received, -1);
      members_.push_back(
          {in_[m].data(), out_[m].data(), 0, counts_[m].data(), 0, 0, 0, 0});
    }
    launch_ = LaunchOf(COMMSCHED_ALL_TO_ALL, COMMSCHED_I32, COMMSCHED_SUM, 0, 0,
                       static_cast<uint32_t>(members_.size()), members_.data());
    launch_.flags = COMMSCHED_LAUNCH_OWN_COUNTS;
    return launch_;
  }
  std::vector<commsched_member_t>& members() { return members_; }

  absl::Status Check() {
    for (size_t m = 0; m < counts_.size(); ++m) {
      size_t at = 0;
      for (int peer = 0; peer < size_; ++peer) {
        for (uint64_t i = 0; i < expected(m, peer); ++i, ++at) {
          if (out_[m][at] == ValueOf(m, peer, rank_)) continue;
          return absl::InternalError(absl::StrCat(
              "element ", i, " of member ", m, " from ", peer, " is wrong"));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static int32_t ValueOf(size_t m, int from, int to) {
    return static_cast<int32_t>(m) * 10'000 + from * 100 + to;
  }

  const int size_;
  const int rank_;
  std::vector<std::vector<uint64_t>> counts_;
  std::vector<std::vector<int32_t>> in_, out_;
  std::vector<commsched_member_t> members_;
  commsched_launch_t launch_ = {};
};

class OwnCountsTest : public BackendTest {
 protected:
  absl::Status RunAll(size_t num_members, const OwnParts::CountOf& count_of) {
    return OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
      OwnParts parts(size(), rank, num_members, count_of);
      const absl::Status done = comm.LaunchAndWait(parts.launch());
      return done.ok() ? parts.Check() : done;
    });
  }

  // What ranks say where rank 0 has `change`d what it was given. Rank 0 and the
  // last one learn of it, and nobody waits for ever.
  std::vector<absl::Status> RunChanged(
      size_t num_members, const OwnParts::CountOf& count_of,
      const std::function<void(OwnParts&)>& change) {
    return OnComm([&](int rank, CommDriver& comm) -> absl::Status {
      OwnParts parts(size(), rank, num_members, count_of);
      if (rank == 0) change(parts);
      absl::Status status = comm.Launch(parts.launch());
      bool is_done = false;
      // Until the failure of another rank is known here.
      const bool has_ended = test::Await([&] {
        if (!status.ok()) return true;
        status = comm.status();
        if (!status.ok() || is_done) return !status.ok();
        const auto polled = comm.Poll();
        is_done = polled.ok() && polled->done != 0;
        status = polled.status();
        return !status.ok();
      });
      if (!has_ended) {
        status = absl::DeadlineExceededError("nobody fails");
        comm.Abort(COMMSCHED_DEADLINE_EXCEEDED, "never ends");
      }
      comm.Destroy();  // Nobody uses the memory any more.
      return status;
    });
  }
  void ExpectNamed(size_t num_members, const OwnParts::CountOf& count_of,
                   const std::function<void(OwnParts&)>& change) {
    const auto statuses = RunChanged(num_members, count_of, change);
    for (const int rank : {0, size() - 1}) {
      const std::string message(statuses[rank].message());
      EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument)
          << message;
      EXPECT_THAT(message, testing::HasSubstr("rank 0 "));
      EXPECT_THAT(message,
                  testing::HasSubstr(absl::StrCat("rank ", size() - 1)));
    }
  }
};

// Both that are in no message of their own, and those that are; and none.
TEST_P(OwnCountsTest, EachGetsWhatItIsSent) {
  for (const uint64_t unit : {0, 1, 1000, 9000, 100'000, 700'000}) {
    EXPECT_OK(RunAll(1, [&](size_t, int from, int to) {
      return unit * static_cast<uint64_t>((from + 2 * to) % 3);
    }));
  }
}

TEST_P(OwnCountsTest, EachGetsWhatItIsSentOfSeveralMembers) {
  const uint64_t seed = test::PropertySeed();
  const int num_cases = test::PropertyCases(20);
  for (int number = 0; number < num_cases; ++number) {
    const auto count_of = [&](size_t m, int from, int to) {
      std::mt19937_64 random(seed + static_cast<uint64_t>(number) * 1'000'003 +
                             m * 10'007 + static_cast<uint64_t>(from) * 101 +
                             static_cast<uint64_t>(to));
      constexpr uint64_t kMost[] = {1, 10, 5000, 9000, 60'000};
      return random() % kMost[random() % 5];
    };
    std::mt19937_64 random(seed + static_cast<uint64_t>(number));
    ASSERT_OK(RunAll(1 + random() % 6, count_of))
        << test::DescribeSeed(seed + static_cast<uint64_t>(number));
  }
}

TEST_P(OwnCountsTest, MoreThanIsExpectedIsNamed) {
  for (const uint64_t count : {0, 1, 9000, 400'000}) {
    for (const size_t num_members : {1, 3}) {
      ExpectNamed(
          num_members, [&](size_t, int, int) { return count; },
          [&](OwnParts& parts) { ++parts.sent(0, size() - 1); });
    }
  }
}

TEST_P(OwnCountsTest, LessThanIsExpectedIsNamed) {
  for (const uint64_t count : {1, 9000, 400'000}) {
    for (const size_t num_members : {1, 3}) {
      ExpectNamed(
          num_members, [&](size_t, int, int) { return count; },
          [&](OwnParts& parts) { parts.sent(0, size() - 1) = 0; });
    }
  }
}

// 2 elements are as long as a digest, and 400,000 are several messages. 8,191
// travel behind a digest and are as long with it as 8,193, which do not.
TEST_P(OwnCountsTest, SomethingElseOfTheSameSizeIsNamed) {
  ExpectNamed(
      1, [&](size_t, int, int) { return 8193; },
      [&](OwnParts& parts) { parts.sent(0, size() - 1) = 8191; });
  ExpectNamed(
      1, [&](size_t, int, int) { return 400'000; },
      [&](OwnParts& parts) { parts.sent(0, size() - 1) = 2; });
  ExpectNamed(
      1, [&](size_t, int, int) { return 2; },
      [&](OwnParts& parts) { parts.sent(0, size() - 1) = 400'000; });
  ExpectNamed(
      3, [&](size_t, int, int) { return 10; },
      [&](OwnParts& parts) {
        ++parts.sent(0, size() - 1);
        --parts.sent(1, size() - 1);
      });
}

TEST_P(OwnCountsTest, WhatARankSendsToItselfItGets) {
  const auto statuses = RunChanged(
      2, [&](size_t, int, int) { return 5; },
      [&](OwnParts& parts) { parts.expected(1, 0) = 7; });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "member 1: its counts have rank 0 of the group send 5 "
                       "elements to itself, and get 7"));
}

TEST_P(OwnCountsTest, CountsAreNeverNull) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) -> absl::Status {
    OwnParts parts(size(), rank, 1, [](size_t, int, int) { return 5; });
    parts.launch();
    parts.members()[0].counts = nullptr;
    commsched_launch_t launch =
        LaunchOf(COMMSCHED_ALL_TO_ALL, COMMSCHED_I32, COMMSCHED_SUM, 0, 0, 1,
                 parts.members().data());
    launch.flags = COMMSCHED_LAUNCH_OWN_COUNTS;
    return rank == 0 ? comm.LaunchAndWait(launch) : absl::OkStatus();
  });
  EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                    "its counts are NULL"));
}

TEST_P(OwnCountsTest, OnlyAnAllToAllHasThem) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) -> absl::Status {
    OwnParts parts(size(), rank, 1, [](size_t, int, int) { return 5; });
    commsched_launch_t launch = parts.launch();
    launch.kind = COMMSCHED_ALL_GATHER;
    return rank == 0 ? comm.LaunchAndWait(launch) : absl::OkStatus();
  });
  EXPECT_THAT(statuses[0],
              StatusIs(absl::StatusCode::kInvalidArgument, "flags 2"));
}

COMMSCHED_INSTANTIATE_CONFORMANCE(OwnCountsTest,
                                  BackendsWith(COMMSCHED_BACKEND_OWN_COUNTS,
                                               2));
// A backend that is named need not have them.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OwnCountsTest);

}  // namespace
}  // namespace commsched
