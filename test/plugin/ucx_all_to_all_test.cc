// All-to-alls of `ucx` with several members, the small ones of which travel as
// one.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/algorithms/pair_pack.h"
#include "test/conformance/collective_case.h"
#include "test/plugin/built_job.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using Random = std::mt19937_64;
using ucx::Layout;
using ucx::Operation;

char* const kNoScratch = reinterpret_cast<char*>(uintptr_t{1} << 32);

// What all ranks do, without a network: messages between two ranks of a phase
// come in the order in which they are sent.
void RunJob(const std::vector<int>& hosts, uint64_t chunk_bytes,
            CollectiveCase* launch) {
  const Layout layout(hosts);
  const auto size = static_cast<size_t>(layout.size());
  std::vector<Operation> ops(size);
  std::vector<std::vector<char>> scratch(size);
  std::map<std::tuple<int, int, uint32_t>, std::vector<const ucx::Message*>>
      sends;
  for (int rank = 0; rank < layout.size(); ++rank) {
    Operation& op = ops[static_cast<size_t>(rank)];
    launch->Reset(rank);
    const ucx::LaunchTask task = {launch->launch(rank), layout, rank,
                                  chunk_bytes};
    scratch[static_cast<size_t>(rank)].resize(
        ucx::ScratchBytes(ucx::kExchange, task, &op) + 1);
    op.scratch.address = scratch[static_cast<size_t>(rank)].data();
    ucx::Build(ucx::kExchange, task, &op);
    for (const ucx::Message& message : op.messages) {
      if (message.is_receive) continue;
      sends[{rank, message.peer, message.phase}].push_back(&message);
    }
  }
  std::map<std::tuple<int, int, uint32_t>, size_t> num_received;
  for (int rank = 0; rank < layout.size(); ++rank) {
    Operation& op = ops[static_cast<size_t>(rank)];
    for (const ucx::Message& message : op.messages) {
      if (!message.is_receive) continue;
      const std::tuple key(message.peer, rank, message.phase);
      const size_t number = num_received[key]++;
      ASSERT_LT(number, sends[key].size());
      const ucx::Message& sent = *sends[key][number];
      ASSERT_EQ(sent.bytes, message.bytes);
      if (sent.bytes != 0) std::memcpy(message.data, sent.data, sent.bytes);
    }
    for (const ucx::Step& step : op.steps) {
      EXPECT_TRUE(ucx::CountsAgree(step));
      ucx::TakeCopies(op, step);
    }
  }
  for (const auto& [key, messages] : sends) {
    EXPECT_EQ(num_received[key], messages.size());
  }
}

std::vector<int> DrawnHosts(Random& random) {
  std::vector<int> hosts(1 + random() % 7);
  for (int& host : hosts) host = static_cast<int>(random() % 3);
  return hosts;
}

Shape RandomAllToAll(int size, Random& random) {
  for (;;) {
    const Shape shape = RandomShape(size, random);
    if (shape.kind == COMMSCHED_ALL_TO_ALL) return shape;
  }
}

TEST(UcxAllToAllTest, SmallMembersAmongLargeOnesTravelAsOne) {
  int num_mixed = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::vector<int> hosts = DrawnHosts(random);
    const Shape shape = RandomAllToAll(static_cast<int>(hosts.size()), random);
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < 1 + random() % 9; ++m) {
      const uint64_t most = random() % 4 == 0 ? 80'000 : 300;
      members.push_back(RandomMember(shape, most, random));
      if (members.back().counts.empty()) members.back().gap = random() % 3;
    }
    CollectiveCase launch(shape, members, /*in_place=*/false,
                          /*deterministic=*/true, random);
    const std::string what =
        "seed " + std::to_string(seed) + ": " + launch.Describe();
    RunJob(hosts, random() % 2 == 0 ? 4096 : 1 << 20, &launch);
    for (int rank = 0; rank < shape.size; ++rank) {
      ASSERT_OK(launch.Check(rank)) << what;
    }
    const uint32_t num_arrays =
        ucx::ShapeOf(launch.launch(0), shape.size).num_arrays;
    num_mixed += num_arrays > 1 && num_arrays < members.size() ? 1 : 0;
  }
  EXPECT_GE(num_mixed, 10);
}

TEST(UcxAllToAllTest, ManySmallMembersTakeTheMessagesOfOne) {
  const Layout layout({0, 0, 0, 0, 1, 1, 1, 1});
  const Operation operation =
      BuiltByRank0(ucx::kExchange, layout, COMMSCHED_ALL_TO_ALL, 1000,
                   /*num_members=*/64);
  EXPECT_EQ(operation.messages.size(), size_t{2 * 7});
}

TEST(UcxAllToAllTest, PacksOfManyMembersAreBounded) {
  const Layout layout({0, 0, 1, 1});
  commsched_member_t member = {};
  member.count = ucx::PairPack::kMostPartBytes / sizeof(float);
  const std::vector<commsched_member_t> members(400, member);
  commsched_launch_t launch = {};
  launch.kind = COMMSCHED_ALL_TO_ALL;
  launch.num_members = static_cast<uint32_t>(members.size());
  launch.members = members.data();
  Operation operation;
  const uint64_t scratch_bytes = ucx::ScratchBytes(
      ucx::kExchange, {launch, layout, 0, 1 << 20, /*measures=*/true},
      &operation);
  EXPECT_LE(scratch_bytes, 2 * ucx::PairPack::kMostBytes);
  EXPECT_GT(scratch_bytes, ucx::PairPack::kMostBytes);
}

// ---- Ranks with other counts ----

// What a rank was given as counts, member by member, and what it builds of that
// in chunks of 4 KiB. Its inputs are zeros.
class CountedRank {
 public:
  static constexpr uint64_t kChunkElements = 1024;
  using Counts = std::vector<std::vector<uint64_t>>;

  CountedRank(const Layout& layout, int rank, Counts counts)
      : layout_(layout),
        rank_(rank),
        counts_(std::move(counts)),
        inputs_(counts_.size()),
        outputs_(counts_.size()),
        members_(counts_.size()) {
    const auto n = static_cast<size_t>(layout.size());
    const auto me = static_cast<size_t>(rank);
    for (size_t m = 0; m < counts_.size(); ++m) {
      for (size_t peer = 0; peer < n; ++peer) {
        inputs_[m].resize(inputs_[m].size() + counts_[m][me * n + peer]);
        outputs_[m].resize(outputs_[m].size() + counts_[m][peer * n + me]);
      }
      members_[m].input = inputs_[m].data();
      members_[m].output = outputs_[m].data();
      members_[m].counts = counts_[m].data();
    }
    launch_.kind = COMMSCHED_ALL_TO_ALL;
    launch_.num_members = static_cast<uint32_t>(members_.size());
    launch_.members = members_.data();
    const ucx::LaunchTask task = {launch_, layout_, rank_,
                                  kChunkElements * sizeof(float)};
    scratch_.resize(ucx::ScratchBytes(ucx::kExchange, task, &operation_) + 1);
    operation_.scratch.address = scratch_.data();
    ucx::Build(ucx::kExchange, task, &operation_);
  }
  CountedRank(const CountedRank&) = delete;
  CountedRank& operator=(const CountedRank&) = delete;

  std::vector<const ucx::Message*> Messages(int peer, bool receives) const {
    std::vector<const ucx::Message*> messages;
    for (const ucx::Message& message : operation_.messages) {
      if (message.peer == peer && message.is_receive == receives) {
        messages.push_back(&message);
      }
    }
    return messages;
  }
  const Operation& operation() const { return operation_; }

 private:
  const Layout& layout_;
  const int rank_;
  const Counts counts_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<commsched_member_t> members_;
  commsched_launch_t launch_ = {};
  Operation operation_;
  std::vector<char> scratch_;
};

// Whether what goes from `from` to `to` is what the latter expects: in sizes
// and, where it looks at them, in counts.
bool Agree(int from, const CountedRank& sender, int to,
           const CountedRank& receiver) {
  const auto sends = sender.Messages(to, /*receives=*/false);
  const auto receives = receiver.Messages(from, /*receives=*/true);
  for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
    if (sends[i]->phase != receives[i]->phase) return false;
    if (sends[i]->bytes != receives[i]->bytes) return false;
    if (sends[i]->bytes == 0) continue;
    std::memcpy(receives[i]->data, sends[i]->data, sends[i]->bytes);
  }
  for (const ucx::Step& step : receiver.operation().steps) {
    if (step.check.peer == from && !ucx::CountsAgree(step)) return false;
  }
  EXPECT_EQ(sends.size(), receives.size()) << "one of them hangs";
  return true;
}

CountedRank::Counts RandomCounts(int size, Random& random) {
  CountedRank::Counts counts(1 + random() % 4);
  for (std::vector<uint64_t>& of_member : counts) {
    for (int pair = 0; pair < size * size; ++pair) {
      const bool is_large = random() % 3 == 0;
      of_member.push_back(is_large ? 8000 + random() % 4000 : random() % 50);
    }
  }
  return counts;
}

TEST(UcxAllToAllTest, CountsOfOtherRanksDoNotMatter) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const Layout layout({0, 0, 1, 1, 2});
    const int size = layout.size();
    const CountedRank::Counts counts = RandomCounts(size, random);
    std::vector<std::unique_ptr<CountedRank>> ranks;
    for (int rank = 0; rank < size; ++rank) {
      CountedRank::Counts own = counts;
      for (std::vector<uint64_t>& of_member : own) {
        for (int pair = 0; pair < size * size; ++pair) {
          if (pair / size == rank || pair % size == rank) continue;
          of_member[static_cast<size_t>(pair)] = random() % 10'000;
        }
      }
      ranks.push_back(std::make_unique<CountedRank>(layout, rank, own));
    }
    for (int pair = 0; pair < size * size; ++pair) {
      const int from = pair / size;
      const int to = pair % size;
      if (from == to) continue;
      EXPECT_TRUE(Agree(from, *ranks[static_cast<size_t>(from)], to,
                        *ranks[static_cast<size_t>(to)]))
          << "seed " << seed << ", from " << from << " to " << to;
    }
  }
}

// What rank 0 sends to rank 1, as either was given it.
bool TwoRanksAgree(const std::vector<uint64_t>& sent,
                   const std::vector<uint64_t>& received) {
  const Layout layout({0, 0});
  const auto counts_of = [](const std::vector<uint64_t>& of_members) {
    CountedRank::Counts counts;
    for (const uint64_t count : of_members) counts.push_back({0, count, 0, 0});
    return counts;
  };
  const CountedRank sender(layout, 0, counts_of(sent));
  const CountedRank receiver(layout, 1, counts_of(received));
  return Agree(0, sender, 1, receiver);
}

TEST(UcxAllToAllTest, OtherCountsOfTheTwoAreSeen) {
  constexpr uint64_t kChunk = CountedRank::kChunkElements;
  EXPECT_TRUE(TwoRanksAgree({10, 20}, {10, 20}));
  EXPECT_FALSE(TwoRanksAgree({10, 20}, {20, 10}));  // Packed.
  EXPECT_FALSE(TwoRanksAgree({10, 20}, {10, 100'000}));
  EXPECT_FALSE(TwoRanksAgree({10, 100'000}, {10, 20}));
  EXPECT_TRUE(TwoRanksAgree({12 * kChunk}, {12 * kChunk}));
  EXPECT_FALSE(TwoRanksAgree({12 * kChunk}, {13 * kChunk}));
  EXPECT_FALSE(TwoRanksAgree({13 * kChunk}, {12 * kChunk}));
  EXPECT_FALSE(TwoRanksAgree({1}, {12 * kChunk}));
  EXPECT_FALSE(
      TwoRanksAgree({10 * kChunk, 20 * kChunk}, {20 * kChunk, 10 * kChunk}));
}

// ---- Room ----

// Members with equal parts, and some with counts of all pairs.
struct Members {
  Members(int size, Random& random)
      : counts(2 + random() % 6), members(counts.size()) {
    for (size_t m = 0; m < members.size(); ++m) {
      members[m].count = random() % (random() % 2 == 0 ? 1000 : 100'000);
      if (random() % 2 == 0) continue;
      counts[m].assign(static_cast<size_t>(size) * static_cast<size_t>(size),
                       members[m].count);
      members[m].counts = counts[m].data();
    }
  }
  void Shrink(Random& random) {
    for (size_t m = 0; m < members.size(); ++m) {
      if (random() % 3 == 0) continue;
      members[m].count = random() % (members[m].count + 1);
      for (uint64_t& count : counts[m]) count = random() % (count + 1);
    }
  }

  std::vector<std::vector<uint64_t>> counts;
  std::vector<commsched_member_t> members;
};

std::vector<size_t> NumbersOf(const Operation& op) {
  return {op.messages.capacity(),     op.steps.capacity(),
          op.copies.capacity(),       op.part_begins.capacity(),
          op.pack.members.capacity(), op.pack.places.capacity()};
}

TEST(UcxAllToAllTest, WhatWasMeasuredHasRoomForSmallerCounts) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Layout layout(DrawnHosts(random));
    Members all(layout.size(), random);
    commsched_launch_t launch = {};
    launch.kind = COMMSCHED_ALL_TO_ALL;
    launch.num_members = static_cast<uint32_t>(all.members.size());
    launch.members = all.members.data();
    const int rank =
        static_cast<int>(random() % all.members.size()) % layout.size();
    const ucx::LaunchTask task = {launch, layout, rank, 1 << 16,
                                  /*measures=*/true};
    Operation operation;
    operation.scratch.address = kNoScratch;
    const uint64_t scratch_bytes = ucx::Measure(task, &operation);
    EXPECT_LE(scratch_bytes, 2 * ucx::PairPack::kMostBytes);
    const std::vector<size_t> room = NumbersOf(operation);
    for (int i = 0; i < 4; ++i) {
      all.Shrink(random);
      EXPECT_LE(ucx::ScratchBytes(ucx::kExchange, task, &operation),
                scratch_bytes);
      ucx::Build(ucx::kExchange, task, &operation);
      EXPECT_EQ(NumbersOf(operation), room) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace commsched
