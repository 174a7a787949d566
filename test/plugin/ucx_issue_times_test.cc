// What ranks of `ucx` tell each other of when they issued launches, without a
// network: hosts with clocks of their own, and messages that take their time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/times/clock_offset.h"
#include "plugins/ucx/times/issue_times.h"
#include "test/support/property.h"

namespace commsched {
namespace {

using ucx::ClockOffset;
using ucx::IssueTimes;
using ucx::Layout;
using ucx::TimesMessage;

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1000 * kUs;

// ---- Clocks ----

TEST(ClockOffsetTest, ARoundTripShowsItToWithinHalfOfItsTimeUnderWay) {
  ClockOffset clock;
  EXPECT_FALSE(clock.is_known());
  // The other clock is 1 s ahead; 30 us there, 20 us of nothing, 10 us back.
  clock.Add({.asked_ns = 0,
             .heard_ns = 1000 * kMs + 30 * kUs,
             .answered_ns = 1000 * kMs + 50 * kUs,
             .back_ns = 60 * kUs});
  ASSERT_TRUE(clock.is_known());
  EXPECT_NEAR(static_cast<double>(clock.There(0)), 1000e6, 20e3);
  EXPECT_NEAR(static_cast<double>(clock.Here(1000 * kMs)), 0, 20e3);
  EXPECT_NEAR(static_cast<double>(clock.ErrorNs(60 * kUs)), 20e3, 10);
}

TEST(ClockOffsetTest, ClocksPartWhileAnAnswerWaits) {
  ClockOffset clock;
  // The other clock loses 100 us in the second that the answer waits.
  clock.Add({.asked_ns = 0,
             .heard_ns = 10 * kUs,
             .answered_ns = 1000 * kMs + 10 * kUs - 100 * kUs,
             .back_ns = 1000 * kMs + 20 * kUs});
  const int64_t back_ns = 1000 * kMs + 20 * kUs;
  EXPECT_LE(std::abs(clock.There(back_ns) - (back_ns - 100 * kUs)),
            clock.ErrorNs(back_ns));
}

TEST(ClockOffsetTest, ATimeIsAsUncertainAsItIsFarFromTheRoundTrip) {
  ClockOffset clock;
  const int64_t second_ns = 1000 * kMs;
  clock.Add({.asked_ns = 10 * second_ns,
             .heard_ns = 10 * second_ns,
             .answered_ns = 10 * second_ns,
             .back_ns = 10 * second_ns});
  EXPECT_LE(clock.ErrorNs(10 * second_ns), 1);
  for (const int64_t at_ns : {7 * second_ns, 13 * second_ns}) {
    EXPECT_GE(clock.ErrorNs(at_ns), 300 * kUs);
    EXPECT_LE(clock.ErrorNs(at_ns), 301 * kUs);
  }
}

TEST(ClockOffsetTest, TheBestRoundTripCountsUntilItIsTooOld) {
  ClockOffset clock;
  clock.Add({.asked_ns = 0, .heard_ns = 5, .answered_ns = 5, .back_ns = 10});
  EXPECT_EQ(clock.There(0), 0);
  // Soon after: worse, and says otherwise.
  clock.Add({.asked_ns = 100 * kUs,
             .heard_ns = 190 * kUs,
             .answered_ns = 190 * kUs,
             .back_ns = 200 * kUs});
  EXPECT_EQ(clock.There(0), 0);
  // A second after it the old one is worse.
  EXPECT_GE(clock.ErrorNs(1000 * kMs), 100 * kUs);
  clock.Add({.asked_ns = 1000 * kMs,
             .heard_ns = 1000 * kMs + 90 * kUs,
             .answered_ns = 1000 * kMs + 90 * kUs,
             .back_ns = 1000 * kMs + 100 * kUs});
  EXPECT_EQ(clock.There(0), 40 * kUs);
  EXPECT_LE(clock.ErrorNs(1000 * kMs + 100 * kUs), 51 * kUs);
}

TEST(ClockOffsetTest, OneClockHasNoOffset) {
  ClockOffset none = ClockOffset::None();
  none.Add({.asked_ns = 0, .heard_ns = 90, .answered_ns = 90, .back_ns = 100});
  EXPECT_TRUE(none.is_known());
  EXPECT_EQ(none.There(7), 7);
  EXPECT_EQ(none.ErrorNs(int64_t{1} << 60), 0);
}

// ---- Members ----

// A group whose members issue launches and exchange messages in virtual time.
class TimesGroup {
 public:
  // How long a message is on its way; by default 20 to 520 us.
  using DelayOf = std::function<int64_t(int from, int to)>;

  TimesGroup(const std::vector<int>& hosts, uint64_t seed,
             DelayOf delay_of = nullptr)
      : layout_(hosts), random_(seed), delay_of_(std::move(delay_of)) {
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      const auto ns = static_cast<int64_t>(random_() % (1'000'000 * kMs));
      // Up to 50 us per second fast or slow.
      const double rate =
          1 + (static_cast<double>(random_() % 101) - 50) * 1e-6;
      clocks_.push_back({ns, rate});
    }
    for (int rank = 0; rank < layout_.size(); ++rank) {
      members_.push_back(std::make_unique<IssueTimes>(layout_, rank));
    }
    starts_.resize(members_.size());
    for (int rank = 0; rank < layout_.size(); ++rank) Send(rank);
  }

  int size() const { return layout_.size(); }
  int64_t now_ns() const { return now_ns_; }
  // What the clock of a rank's host says at a time.
  int64_t ClockOf(int rank, int64_t at_ns) const {
    const auto& [begin_ns, rate] = clocks_[layout_.HostOf(rank)];
    return begin_ns + std::llround(static_cast<double>(at_ns) * rate);
  }

  // Messages that arrive until then, in their order.
  void RunUntil(int64_t until_ns) {
    while (!under_way_.empty() && under_way_.begin()->first <= until_ns) {
      const auto [at_ns, message] = *under_way_.begin();
      under_way_.erase(under_way_.begin());
      now_ns_ = at_ns;
      members_[message.to]->Hear(message.times, ClockOf(message.to, at_ns));
      Send(message.to);
      Take(message.to);
    }
    now_ns_ = std::max(now_ns_, until_ns);
  }

  void Issue(int rank, uint64_t step, uint64_t key) {
    members_[rank]->Issued(step, key, ClockOf(rank, now_ns_));
    Send(rank);
    Take(rank);
  }

  const std::vector<commsched_launch_start_t>& starts(int rank) const {
    return starts_[rank];
  }
  uint64_t num_messages() const { return num_messages_; }

 private:
  struct UnderWay {
    int to = 0;
    TimesMessage times;
  };

  void Send(int rank) {
    TimesMessage times;
    for (int peer = 0; peer >= 0;) {
      peer = members_[rank]->Next(ClockOf(rank, now_ns_), &times);
      if (peer < 0) break;
      ++num_messages_;
      under_way_.emplace(now_ns_ + DelayNs(rank, peer), UnderWay{peer, times});
    }
  }

  int64_t DelayNs(int from, int to) {
    if (delay_of_) return delay_of_(from, to);
    return 20 * kUs + static_cast<int64_t>(random_() % (500 * kUs));
  }

  void Take(int rank) {
    commsched_launch_start_t some[3];
    while (members_[rank]->HasStarts()) {
      const uint32_t count = members_[rank]->Take(some, 3);
      starts_[rank].insert(starts_[rank].end(), some, some + count);
    }
  }

  const Layout layout_;
  std::mt19937_64 random_;
  const DelayOf delay_of_;
  std::vector<std::pair<int64_t, double>> clocks_;  // By host.
  std::vector<std::unique_ptr<IssueTimes>> members_;
  std::vector<std::vector<commsched_launch_start_t>> starts_;
  std::multimap<int64_t, UnderWay> under_way_;
  int64_t now_ns_ = 0;
  uint64_t num_messages_ = 0;
};

std::vector<int> TimesHosts(std::mt19937_64& random) {
  std::vector<int> hosts(1 + random() % 12);
  const uint64_t num_hosts = 1 + random() % 5;
  for (int& host : hosts) host = static_cast<int>(random() % num_hosts);
  return hosts;
}

// Steps of launches that each rank issues at a time of its own.
struct TimedIssue {
  int64_t at_ns = 0;
  int rank = 0;
  uint64_t step = 0;
  uint64_t key = 0;
};

TEST(IssueTimesPropertyTest, MembersLearnWhoIssuedLastAndWhen) {
  for (int i = 0; i < test::PropertyCases(100); ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    TimesGroup group(TimesHosts(random), seed);
    group.RunUntil(100 * kMs);  // Clocks are compared.
    const uint64_t num_launches = 1 + random() % 40;
    constexpr uint64_t kSteps = 6;
    std::vector<TimedIssue> issues;
    std::map<std::pair<uint64_t, uint64_t>, TimedIssue> last;
    for (int rank = 0; rank < group.size(); ++rank) {
      int64_t at_ns = group.now_ns();
      for (uint64_t step = 0; step < kSteps; ++step) {
        for (uint64_t key = 0; key < num_launches; ++key) {
          at_ns += static_cast<int64_t>(random() % (2 * kMs));
          const TimedIssue issue = {at_ns, rank, step, 2 * key};
          issues.push_back(issue);
          TimedIssue& latest = last[{step, 2 * key}];
          if (at_ns > latest.at_ns) latest = issue;
        }
      }
    }
    std::stable_sort(issues.begin(), issues.end(),
                     [](const TimedIssue& a, const TimedIssue& b) {
                       return a.at_ns < b.at_ns;
                     });
    for (const TimedIssue& issue : issues) {
      group.RunUntil(issue.at_ns);
      group.Issue(issue.rank, issue.step, issue.key);
    }
    group.RunUntil(group.now_ns() + 1000 * kMs);
    for (int rank = 0; rank < group.size(); ++rank) {
      // Messages may overtake each other here.
      auto starts = group.starts(rank);
      std::sort(starts.begin(), starts.end(), [](const auto& a, const auto& b) {
        return std::pair(a.step, a.key) < std::pair(b.step, b.key);
      });
      // The last step may go on.
      ASSERT_GE(starts.size(), (kSteps - 1) * num_launches);
      uint64_t number = 0;
      for (const commsched_launch_start_t& start : starts) {
        ASSERT_EQ(start.step, number / num_launches);
        ASSERT_EQ(start.key, number++ % num_launches * 2);
        const TimedIssue& latest = last.at({start.step, start.key});
        const int64_t expected = group.ClockOf(rank, latest.at_ns);
        ASSERT_LE(std::abs(start.started_ns - expected), start.error_ns);
        // Up and down a few edges of 520 us at most.
        ASSERT_LE(start.error_ns, 5 * kMs);
        const auto is_close = [&](const TimedIssue& issue) {
          return issue.rank != latest.rank && issue.step == start.step &&
                 issue.key == start.key &&
                 issue.at_ns + 2 * start.error_ns > latest.at_ns;
        };
        if (std::none_of(issues.begin(), issues.end(), is_close)) {
          ASSERT_EQ(start.last_rank, latest.rank);
        }
      }
    }
  }
}

TEST(IssueTimesTest, RanksOfAHostHaveOneClockAndNoError) {
  TimesGroup group({0, 0, 0}, 1);
  const int64_t issued_ns[] = {300, 100, 200};
  for (const int rank : {1, 2, 0}) {
    group.RunUntil(issued_ns[rank]);
    group.Issue(rank, 0, 5);
  }
  group.RunUntil(kMs);
  for (const int rank : {0, 1, 2}) group.Issue(rank, 1, 5);
  group.RunUntil(10 * kMs);
  for (const int rank : {0, 1, 2}) {
    ASSERT_EQ(group.starts(rank).size(), 1u);
    const commsched_launch_start_t& start = group.starts(rank)[0];
    EXPECT_EQ(start.started_ns, group.ClockOf(rank, 300));
    EXPECT_EQ(start.error_ns, 0);
    EXPECT_EQ(start.last_rank, 0);
    EXPECT_EQ(start.key, 5u);
  }
}

// Of four hosts 1 and 2 are below 0, and 3 is below 1. A time of 3 is turned
// into that of 1, of 0 and of 2, each time with a clock that seems to be off to
// the same side, as one way of each round trip takes nearly all of its time.
TEST(IssueTimesTest, ErrorsOfClocksAddUpOnTheWay) {
  constexpr int64_t kShortNs = 20 * kUs;
  constexpr int64_t kLongNs = 500 * kUs;
  TimesGroup group({0, 1, 2, 3}, 1, [](int from, int to) {
    const bool is_long = from == 2 ? false : to == 2 ? true : from > to;
    return is_long ? kLongNs : kShortNs;
  });
  group.RunUntil(100 * kMs);
  for (const int rank : {0, 1, 2}) group.Issue(rank, 0, 0);
  group.RunUntil(110 * kMs);
  group.Issue(3, 0, 0);
  group.RunUntil(120 * kMs);
  for (const int rank : {0, 1, 2, 3}) group.Issue(rank, 1, 0);
  group.RunUntil(200 * kMs);
  for (const int rank : {0, 1, 2, 3}) {
    ASSERT_EQ(group.starts(rank).size(), 1u);
    const commsched_launch_start_t& start = group.starts(rank)[0];
    EXPECT_EQ(start.last_rank, 3);
    const int64_t off_ns =
        std::abs(start.started_ns - group.ClockOf(rank, 110 * kMs));
    EXPECT_LE(off_ns, start.error_ns) << "rank " << rank;
    if (rank == 2) {
      EXPECT_GT(off_ns, 5 * (kLongNs - kShortNs) / 4);
    }
  }
}

// Up and down the edges of a tree, once for 32 launches of a step.
TEST(IssueTimesTest, ABatchCostsTwoMessagesPerMember) {
  std::vector<int> hosts(16);
  for (int rank = 0; rank < 16; ++rank) hosts[rank] = rank / 4;
  TimesGroup group(hosts, 1);
  group.RunUntil(100 * kMs);
  const uint64_t before = group.num_messages();
  for (int rank = 0; rank < 16; ++rank) {
    for (uint64_t key = 0; key < 32; ++key) group.Issue(rank, 0, key);
    group.Issue(rank, 1, 0);
  }
  group.RunUntil(200 * kMs);
  EXPECT_EQ(group.num_messages() - before, 2u * 15);
  EXPECT_EQ(group.starts(7).size(), 32u);
}

TEST(IssueTimesTest, WhatHasNoRoomUntilAllHaveToldIsNotKnown) {
  TimesGroup group({0, 0}, 1);
  // Rank 0 runs 40 steps ahead; there is room for 16.
  for (uint64_t step = 0; step < 40; ++step) group.Issue(0, step, 0);
  group.RunUntil(kMs);
  for (uint64_t step = 0; step < 60; ++step) {
    if (step >= 40) group.Issue(0, step, 0);
    group.Issue(1, step, 0);
    group.RunUntil(group.now_ns() + kMs);
  }
  for (const int rank : {0, 1}) {
    const auto& starts = group.starts(rank);
    ASSERT_FALSE(starts.empty());
    EXPECT_GE(starts.front().step, 23u);
    EXPECT_EQ(starts.back().step, 58u);
    for (size_t i = 1; i < starts.size(); ++i) {
      EXPECT_EQ(starts[i].step, starts[i - 1].step + 1);
    }
  }
}

}  // namespace
}  // namespace commsched
