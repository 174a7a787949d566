// All-to-alls of `ucx` with several members, the small ones of which travel as
// one.
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/algorithms/packed_launch.h"
#include "test/conformance/collective_case.h"
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
    for (const ucx::Step& step : op.steps) ucx::TakeCopies(op, step);
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
  commsched_member_t member = {};
  member.count = 1000;
  const std::vector<commsched_member_t> members(64, member);
  commsched_launch_t launch = {};
  launch.kind = COMMSCHED_ALL_TO_ALL;
  launch.num_members = static_cast<uint32_t>(members.size());
  launch.members = members.data();
  Operation operation;
  operation.scratch.address = kNoScratch;
  ucx::Build(ucx::kExchange, {launch, layout, 0, 1 << 20, /*measures=*/true},
             &operation);
  EXPECT_EQ(operation.messages.size(), size_t{2 * 7});
}

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
    EXPECT_LE(scratch_bytes, 2 * ucx::PackRule::kMostBytes);
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
