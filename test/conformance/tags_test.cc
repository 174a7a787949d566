// Tagged sends and receives: matched by pair of ranks and tag, and done
// whenever they are, whatever else the communicator has in flight.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
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

std::vector<int32_t> Values(int from, int to, int number, uint64_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(),
            (from * 100 + to * 10 + number) * 1000);
  return values;
}

// A launch with its memory: sends and receives of a tag, or an all-reduce.
class Work {
 public:
  static std::unique_ptr<Work> Send(int peer, uint64_t tag,
                                    std::vector<int32_t> values) {
    auto work = std::make_unique<Work>(tag);
    work->Add(COMMSCHED_SEND, peer, values, values);
    return work;
  }
  // Gets `expected`.
  static std::unique_ptr<Work> Receive(int peer, uint64_t tag,
                                       std::vector<int32_t> expected) {
    auto work = std::make_unique<Work>(tag);
    work->Add(COMMSCHED_RECV, peer, expected,
              std::vector<int32_t>(expected.size(), -1));
    return work;
  }
  static std::unique_ptr<Work> Sum(int size, uint64_t count) {
    auto work = std::make_unique<Work>(0);
    work->launch_.flags = 0;
    work->launch_.kind = COMMSCHED_ALL_REDUCE;
    work->Add(0, 0, std::vector<int32_t>(count, size),
              std::vector<int32_t>(count, 1));
    return work;
  }

  explicit Work(uint64_t tag) {
    launch_ = LaunchOf(COMMSCHED_SEND, COMMSCHED_I32, COMMSCHED_SUM, 0, 1, 0,
                       nullptr);
    launch_.flags = COMMSCHED_LAUNCH_TAGGED;
    launch_.tag = tag;
  }
  Work(const Work&) = delete;

  void Add(commsched_collective_t direction, int peer,
           std::vector<int32_t> expected, std::vector<int32_t> values) {
    memory_.push_back({std::move(values), std::move(expected)});
    std::vector<int32_t>& held = memory_.back().values;
    commsched_member_t member{};
    member.count = held.size();
    if (direction != COMMSCHED_RECV) member.input = held.data();
    if (direction != COMMSCHED_SEND) member.output = held.data();
    member.peer = peer;
    member.direction = direction;
    members_.push_back(member);
  }
  void Untag() {
    launch_.flags = 0;
    launch_.tag = 0;
  }
  commsched_launch_t& launch() {
    launch_.num_members = static_cast<uint32_t>(members_.size());
    launch_.members = members_.data();
    return launch_;
  }
  absl::Status Check() const {
    for (const Memory& memory : memory_) {
      if (memory.values == memory.expected) continue;
      return absl::InternalError(
          absl::StrCat("tag ", launch_.tag, ": what has come is wrong"));
    }
    return absl::OkStatus();
  }

 private:
  struct Memory {
    std::vector<int32_t> values;
    std::vector<int32_t> expected;
  };
  std::vector<Memory> memory_;
  std::vector<commsched_member_t> members_;
  commsched_launch_t launch_;
};

using Works = std::vector<std::unique_ptr<Work>>;

class TagsTest : public BackendTest {
 protected:
  int Next(int rank) const { return (rank + 1) % size(); }
  int Before(int rank) const { return (rank + size() - 1) % size(); }

  // Fails instead of waiting for ever.
  static absl::Status Finish(CommDriver& comm, const Work& work,
                             uint32_t request) {
    absl::Status status = absl::OkStatus();
    const bool is_done = test::Await([&] {
      const auto polled = comm.Poll(request);
      status = polled.status();
      return !polled.ok() || polled->done != 0;
    });
    if (!is_done) {
      status = absl::DeadlineExceededError(
          absl::StrCat("request ", request, " is never done"));
      comm.Abort(COMMSCHED_DEADLINE_EXCEEDED, "never done");
    }
    return status.ok() ? work.Check() : status;
  }

  // Launches all, request by request, and then waits for them in `order`.
  static absl::Status RunAll(CommDriver& comm, const Works& works,
                             const std::vector<uint32_t>& order) {
    for (uint32_t i = 0; i < works.size(); ++i) {
      const absl::Status launched = comm.Launch(works[i]->launch(), i);
      if (!launched.ok()) return launched;
    }
    for (const uint32_t request : order) {
      const absl::Status done = Finish(comm, *works[request], request);
      if (!done.ok()) return done;
    }
    return absl::OkStatus();
  }

  // Of sizes that go at once, by pieces, and by reading.
  static std::vector<uint64_t> Counts() {
    return {0, 1, 1000, 20'000, 300'000, 1'000'000};
  }
};

TEST_P(TagsTest, ARingOfSendsThatComeFirstGoesRound) {
  for (const uint64_t count : Counts()) {
    EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) {
      Works works;
      works.push_back(
          Work::Send(Next(rank), 3, Values(rank, Next(rank), 0, count)));
      works.push_back(
          Work::Receive(Before(rank), 3, Values(Before(rank), rank, 0, count)));
      return RunAll(comm, works, {0, 1});
    }));
  }
}

// Each pair both ways, in another order on each rank.
TEST_P(TagsTest, SendsThatComeFirstOnBothSidesOfAllPairsAreDone) {
  CommSpec spec;
  spec.max_in_flight = 64;
  EXPECT_OK(OnCommAll(
      [&](int rank, CommDriver& comm) {
        constexpr uint64_t kCount = 200'000;
        Works works;
        for (int distance = 1; distance < size(); ++distance) {
          const int peer = (rank + distance) % size();
          works.push_back(Work::Send(peer, 9, Values(rank, peer, 1, kCount)));
        }
        for (int distance = 1; distance < size(); ++distance) {
          const int peer = (rank + distance) % size();
          works.push_back(
              Work::Receive(peer, 9, Values(peer, rank, 1, kCount)));
        }
        std::vector<uint32_t> order(works.size());
        std::iota(order.rbegin(), order.rend(), 0);
        return RunAll(comm, works, order);
      },
      spec));
}

TEST_P(TagsTest, AReceivePostedEarlyHoldsNothingBack) {
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    const std::unique_ptr<Work> sum = Work::Sum(size(), 5000);
    const std::unique_ptr<Work> late =
        rank == 0 ? Work::Receive(1, 1, Values(1, 0, 0, 300))
                  : Work::Send(0, 1, Values(1, 0, 0, 300));
    if (rank == 0) {
      if (auto ok = comm.Launch(late->launch(), 0); !ok.ok()) return ok;
    }
    for (int round = 0; round < 3; ++round) {
      const std::unique_ptr<Work> one = Work::Sum(size(), 5000);
      if (auto ok = comm.Launch(one->launch(), 1); !ok.ok()) return ok;
      if (auto ok = Finish(comm, *one, 1); !ok.ok()) return ok;
    }
    if (rank > 1) return absl::OkStatus();
    if (rank == 1) {
      if (auto ok = comm.Launch(late->launch(), 0); !ok.ok()) return ok;
    }
    return Finish(comm, *late, 0);
  }));
}

TEST_P(TagsTest, ReceivesAreMatchedByTheirTags) {
  for (const uint64_t count : Counts()) {
    CommSpec spec;
    spec.max_in_flight = 8;
    EXPECT_OK(OnCommAll(
        [&](int rank, CommDriver& comm) -> absl::Status {
          if (rank > 1) return absl::OkStatus();
          Works works;
          // Tags that differ in the upper half, too.
          const std::vector<uint64_t> sent = {7, uint64_t{7} << 32, 0,
                                              UINT64_MAX, 8};
          const std::vector<uint64_t> received = {8, 0, uint64_t{7} << 32, 7,
                                                  UINT64_MAX};
          for (const uint64_t tag : rank == 0 ? sent : received) {
            const auto number = static_cast<int>(
                std::find(sent.begin(), sent.end(), tag) - sent.begin());
            const auto values =
                Values(0, 1, number, count + static_cast<uint64_t>(number));
            works.push_back(rank == 0 ? Work::Send(1, tag, values)
                                      : Work::Receive(0, tag, values));
          }
          return RunAll(comm, works, {4, 3, 2, 1, 0});
        },
        spec));
  }
}

TEST_P(TagsTest, OfOneTagTheyMeetInTheOrderOfLaunchesAndLists) {
  CommSpec spec;
  spec.max_in_flight = 8;
  EXPECT_OK(OnCommAll(
      [&](int rank, CommDriver& comm) -> absl::Status {
        if (rank > 1) return absl::OkStatus();
        Works works;
        if (rank == 0) {
          for (int number = 0; number < 6; ++number) {
            works.push_back(Work::Send(
                1, 5, Values(0, 1, number, 40'000 * (number % 2) + 10)));
          }
        } else {
          // Two lists of three.
          for (const int first : {0, 3}) {
            works.push_back(std::make_unique<Work>(5));
            for (int number = first; number < first + 3; ++number) {
              const auto values =
                  Values(0, 1, number, 40'000 * (number % 2) + 10);
              works.back()->Add(COMMSCHED_RECV, 0, values,
                                std::vector<int32_t>(values.size(), -1));
            }
          }
        }
        std::vector<uint32_t> order(works.size());
        std::iota(order.begin(), order.end(), 0);
        return RunAll(comm, works, order);
      },
      spec));
}

TEST_P(TagsTest, WhatHasNoTagIsNotMatchedWithWhatHas) {
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    if (rank > 1) return absl::OkStatus();
    const auto plain = Values(0, 1, 1, 100);
    const auto tagged = Values(0, 1, 2, 200);
    Works works;
    works.push_back(rank == 0 ? Work::Send(1, 0, plain)
                              : Work::Receive(0, 0, tagged));
    works.push_back(rank == 0 ? Work::Send(1, 0, tagged)
                              : Work::Receive(0, 0, plain));
    works[rank == 0 ? 0 : 1]->Untag();
    return RunAll(comm, works, {1, 0});
  }));
}

TEST_P(TagsTest, OneIsDoneThoughAnEarlierOneIsNot) {
  EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
    if (rank > 1) return absl::OkStatus();
    const auto first = Values(1, 0, 1, 10);
    const auto second = Values(1, 0, 2, 10);
    Works works;
    if (rank == 0) {
      works.push_back(Work::Receive(1, 1, first));
      works.push_back(Work::Receive(1, 2, second));
    } else {
      works.push_back(Work::Send(0, 2, second));
    }
    // Rank 1 sends the first once it has this.
    const auto go =
        rank == 0 ? Work::Send(1, 3, {7}) : Work::Receive(0, 3, {7});
    const absl::Status second_done =
        RunAll(comm, works, {static_cast<uint32_t>(works.size() - 1)});
    if (!second_done.ok()) return second_done;
    if (rank == 0) {
      const auto polled = comm.Poll(0);
      if (!polled.ok()) return polled.status();
      if (polled->done != 0) return absl::InternalError("nobody sent that");
    }
    if (auto ok = comm.Launch(go->launch(), 2); !ok.ok()) return ok;
    if (auto ok = Finish(comm, *go, 2); !ok.ok()) return ok;
    if (rank == 0) return Finish(comm, *works[0], 0);
    const auto send = Work::Send(0, 1, first);
    if (auto ok = comm.Launch(send->launch(), 1); !ok.ok()) return ok;
    return Finish(comm, *send, 1);
  }));
}

// All that a program may do with tags, in any order, beside collectives.
TEST_P(TagsTest, RandomProgramsEnd) {
  const uint64_t seed = test::PropertySeed();
  const int num_programs = test::PropertyCases(15);
  for (int program = 0; program < num_programs; ++program) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(program));
    struct Sent {
      int from, to, number;
      uint64_t tag, count;
    };
    constexpr int kSums = 3;
    std::vector<Sent> sent;
    const int num_sent = 1 + static_cast<int>(random() % 30);
    for (int number = 0; number < num_sent; ++number) {
      const int from = static_cast<int>(random() % size());
      const int to =
          (from + 1 + static_cast<int>(random() % (size() - 1))) % size();
      const uint64_t counts[] = {0, 3, 2000, 40'000, 150'000};
      sent.push_back({from, to, number % 10, random() % 3,
                      counts[random() % 5] + random() % 3});
    }
    CommSpec spec;
    spec.max_in_flight = 128;
    const std::vector<absl::Status> statuses = OnComm(
        [&](int rank, CommDriver& comm) {
          // Messages of a pair and tag keep their order, all else is shuffled:
          // each goes to a random place behind the one before it.
          std::mt19937_64 own(seed +
                              static_cast<uint64_t>(program * 64 + rank));
          struct Placed {
            uint64_t place;
            std::unique_ptr<Work> work;
          };
          std::vector<Placed> placed;
          std::vector<std::pair<Sent, uint64_t>> last;
          for (const Sent& one : sent) {
            for (const bool is_send : {true, false}) {
              if (rank != (is_send ? one.from : one.to)) continue;
              uint64_t after = 0;
              for (const auto& [other, place] : last) {
                if (other.from == one.from && other.to == one.to &&
                    other.tag == one.tag) {
                  after = std::max(after, place);
                }
              }
              const uint64_t place = after + 1 + own() % 1000;
              last.emplace_back(one, place);
              const auto values =
                  Values(one.from, one.to, one.number, one.count);
              placed.push_back(
                  {place, is_send ? Work::Send(one.to, one.tag, values)
                                  : Work::Receive(one.from, one.tag, values)});
            }
          }
          uint64_t sum_place = 0;
          for (int sum = 0; sum < kSums; ++sum) {
            sum_place += 1 + own() % 1000;
            placed.push_back({sum_place, Work::Sum(size(), 3000)});
          }
          std::stable_sort(placed.begin(), placed.end(),
                           [](const Placed& a, const Placed& b) {
                             return a.place < b.place;
                           });
          Works works;
          for (Placed& one : placed) works.push_back(std::move(one.work));
          std::vector<uint32_t> order(works.size());
          std::iota(order.begin(), order.end(), 0);
          return RunAll(comm, works, order);
        },
        spec);
    for (const absl::Status& status : statuses) {
      ASSERT_OK(status) << "seed " << seed << ", program " << program;
    }
  }
}

TEST_P(TagsTest, WhoLeavesWithoutWhatIsWaitedForIsNamed) {
  for (const bool receives : {true, false}) {
    const auto statuses =
        OnComm([&](int rank, CommDriver& comm) -> absl::Status {
          if (rank != 0) return absl::OkStatus();
          const auto values = Values(1, 0, 1, 200'000);
          const auto work =
              receives ? Work::Receive(1, 4, values) : Work::Send(1, 4, values);
          if (auto ok = comm.Launch(work->launch()); !ok.ok()) return ok;
          return Finish(comm, *work, 0);
        });
    EXPECT_THAT(statuses[0],
                StatusIs(absl::StatusCode::kAborted, "rank 1 left"));
  }
}

TEST_P(TagsTest, WhoHasNotSentOrReceivedIsMissing) {
  for (const bool receives : {true, false}) {
    EXPECT_OK(OnCommAll([&](int rank, CommDriver& comm) -> absl::Status {
      if (rank > 1) return absl::OkStatus();
      // One of tag 1 is there, one of tag 2 is not.
      const auto work = [&](bool is_receive, uint64_t tag) {
        const auto values = Values(is_receive == (rank == 0) ? 1 : 0,
                                   is_receive == (rank == 0) ? 0 : 1,
                                   static_cast<int>(tag), 1000);
        return is_receive ? Work::Receive(1 - rank, tag, values)
                          : Work::Send(1 - rank, tag, values);
      };
      const bool is_receive = receives == (rank == 0);
      const auto first = work(is_receive, 1);
      const auto second = work(is_receive, 2);
      const auto go =
          rank == 0 ? Work::Send(1, 77, {1}) : Work::Receive(0, 77, {1});
      if (auto ok = comm.Launch(first->launch(), 0); !ok.ok()) return ok;
      if (rank == 1) {
        if (auto ok = comm.Launch(go->launch(), 2); !ok.ok()) return ok;
        if (auto ok = Finish(comm, *go, 2); !ok.ok()) return ok;
        if (auto ok = comm.Launch(second->launch(), 1); !ok.ok()) return ok;
        if (auto ok = Finish(comm, *first, 0); !ok.ok()) return ok;
        return Finish(comm, *second, 1);
      }
      if (auto ok = comm.Launch(second->launch(), 1); !ok.ok()) return ok;
      if (auto ok = Finish(comm, *first, 0); !ok.ok()) return ok;
      const bool is_named = test::Await([&] {
        (void)comm.Poll(1);
        return comm.Missing(1) == std::vector<int32_t>{1};
      });
      if (!is_named) return absl::InternalError("rank 1 is not missing");
      if (auto ok = comm.Launch(go->launch(), 2); !ok.ok()) return ok;
      if (auto ok = Finish(comm, *go, 2); !ok.ok()) return ok;
      return Finish(comm, *second, 1);
    }));
  }
}

class RefusedTagsTest : public TagsTest {};

// The sender may be done with it before it learns of that.
TEST_P(RefusedTagsTest, OtherSizesAreNamedOnBothSides) {
  const auto statuses = OnComm([&](int rank, CommDriver& comm) -> absl::Status {
    if (rank > 1) return absl::OkStatus();
    const auto work = rank == 0 ? Work::Send(1, 6, Values(0, 1, 1, 10))
                                : Work::Receive(0, 6, Values(0, 1, 1, 7));
    if (auto ok = comm.Launch(work->launch()); !ok.ok()) return ok;
    absl::Status status = Finish(comm, *work, 0);
    if (!status.ok()) return status;
    const bool is_told = test::Await([&] {
      status = comm.status();
      return !status.ok();
    });
    return is_told ? status : absl::InternalError("nobody has failed");
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(statuses[rank].message()),
                testing::AllOf(testing::HasSubstr("tag 6"),
                               testing::HasSubstr("rank 0 sen")));
  }
}

TEST_P(RefusedTagsTest, CollectivesWithATagAndUnknownFlagsAre) {
  for (const uint32_t flags : {uint32_t{COMMSCHED_LAUNCH_TAGGED}, 1u << 31}) {
    const auto statuses =
        OnComm([&](int rank, CommDriver& comm) -> absl::Status {
          if (rank != 0) return absl::OkStatus();
          const auto work = Work::Sum(size(), 10);
          work->launch().flags = flags;
          if (auto ok = comm.Launch(work->launch()); !ok.ok()) return ok;
          return Finish(comm, *work, 0);
        });
    EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kInvalidArgument,
                                      absl::StrCat("flags ", flags)));
  }
}

COMMSCHED_INSTANTIATE_CONFORMANCE(TagsTest,
                                  BackendsWith(COMMSCHED_BACKEND_TAGS, 2));
COMMSCHED_INSTANTIATE_CONFORMANCE(RefusedTagsTest,
                                  BackendsWith(COMMSCHED_BACKEND_TAGS, 2));
// A backend that is named need not have them.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TagsTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RefusedTagsTest);

}  // namespace
}  // namespace commsched
