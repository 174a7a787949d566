// What the ranks of a group build for a launch, run without a network.
#ifndef COMMSCHED_TEST_PLUGIN_BUILT_JOB_H_
#define COMMSCHED_TEST_PLUGIN_BUILT_JOB_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/reduce.h"
#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/choice.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "test/support/launches.h"

namespace commsched {

// Of a host's link, in bytes.
struct LinkBytes {
  uint64_t out = 0;
  uint64_t in = 0;
};

// Memory that launches of an operation need.
using Room = std::array<size_t, 15>;
inline Room RoomOf(const ucx::Operation& op) {
  return {op.messages.capacity(),     op.steps.capacity(),
          op.inputs.capacity(),       op.copies.capacity(),
          op.sent_on.capacity(),      op.shares.capacity(),
          op.part_begins.capacity(),  op.part_fills.capacity(),
          op.pack.members.capacity(), op.pack.arrays.capacity(),
          op.pack.counts.capacity(),  op.pack.begins.capacity(),
          op.pack.places.capacity(),  op.spreads.capacity(),
          op.relayed.capacity()};
}

// What rank 0 builds for a launch of f32 with `num_members` members of `count`
// elements, or of that part for each rank. Nothing is at their addresses.
inline ucx::Operation BuiltByRank0(const ucx::Algorithm& algorithm,
                                   const ucx::Layout& layout,
                                   commsched_collective_t kind, uint64_t count,
                                   size_t num_members = 1) {
  commsched_member_t member = {};
  member.count = count;
  const std::vector<commsched_member_t> members(num_members, member);
  const commsched_launch_t launch = LaunchOf(
      kind, COMMSCHED_F32, COMMSCHED_SUM, /*root=*/0,
      /*deterministic=*/0, static_cast<uint32_t>(num_members), members.data());
  ucx::Operation operation;
  ucx::BuildNowhere(algorithm,
                    {launch, layout, /*rank=*/0, /*chunk_bytes=*/1 << 20,
                     /*measures=*/true},
                    &operation);
  return operation;
}

// A launch as it is expected where its counts are not known yet: of parts with
// counts as many for each rank.
class ExpectedLaunch {
 public:
  ExpectedLaunch(const commsched_launch_t& launch, int size)
      : launch_(launch),
        members_(launch.members, launch.members + launch.num_members) {
    const auto n = static_cast<size_t>(size);
    const size_t num_counts = launch.kind == COMMSCHED_ALL_TO_ALL ? n * n : n;
    for (commsched_member_t& member : members_) {
      if (member.counts == nullptr) continue;
      const uint64_t most =
          *std::max_element(member.counts, member.counts + num_counts);
      member.counts = counts_.emplace_back(num_counts, most).data();
    }
    launch_.members = members_.data();
  }
  ExpectedLaunch(const ExpectedLaunch&) = delete;
  ExpectedLaunch& operator=(const ExpectedLaunch&) = delete;

  const commsched_launch_t& launch() const { return launch_; }

 private:
  commsched_launch_t launch_;
  std::vector<commsched_member_t> members_;
  std::deque<std::vector<uint64_t>> counts_;
};

// The ranks of a group in one launch.
class BuiltJob {
 public:
  using LaunchOf = std::function<const commsched_launch_t&(int rank)>;

  BuiltJob(const std::vector<int>& hosts, const ucx::ChoiceOptions& options,
           const LaunchOf& launch_of)
      : layout_(hosts), ranks_(hosts.size()), links_(layout_.num_hosts()) {
    ucx::Choices choices(layout_, options);
    algorithm_ = choices.Of(launch_of(0)).algorithm;
    for (int rank = 0; rank < layout_.size(); ++rank) {
      const commsched_launch_t& launch = launch_of(rank);
      EXPECT_EQ(choices.Of(launch).algorithm, algorithm_);
      const ucx::LaunchTask task = {launch, layout_, rank, options.chunk_bytes};
      ucx::Operation& op = ranks_[rank].operation;
      ucx::Operation measured;
      const uint64_t scratch_bytes =
          ucx::ScratchBytes(*algorithm_, task, &measured);
      // Guarded: nothing may be written behind it.
      ranks_[rank].scratch.assign(scratch_bytes + kGuardBytes, kGuard);
      op.scratch = {ranks_[rank].scratch.data(), scratch_bytes};
      const ExpectedLaunch expected(launch, layout_.size());
      EXPECT_GE(
          ucx::Measure({expected.launch(), layout_, rank, options.chunk_bytes},
                       &op),
          scratch_bytes);
      const Room room = RoomOf(op);
      ucx::Build(*algorithm_, task, &op);
      EXPECT_EQ(RoomOf(op), room) << "memory was allocated at a launch";
    }
  }

  // Until nothing more happens, without rank `late`. False: somebody waits for
  // ever.
  bool Run(std::mt19937_64& random, int late = -1) {
    for (Rank& rank : ranks_) {
      if (&rank - ranks_.data() == late) continue;
      Post(rank, 0, rank.operation.num_posted);
    }
    while (Act(random)) {
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.operation.IsDone() &&
             std::all_of(rank.scratch.end() - kGuardBytes, rank.scratch.end(),
                         [](char c) { return c == kGuard; });
    });
  }

  const ucx::Algorithm& algorithm() const { return *algorithm_; }
  const ucx::Operation& operation(int rank) const {
    return ranks_[rank].operation;
  }

  uint64_t BusiestLink() const {
    uint64_t most = 0;
    for (const LinkBytes& link : links_) {
      most = std::max({most, link.out, link.in});
    }
    return most;
  }

 private:
  static constexpr size_t kGuardBytes = 64;
  static constexpr char kGuard = 0x5a;

  struct Rank {
    ucx::Operation operation;
    std::vector<char> scratch;
  };
  struct Posted {
    int rank;
    uint32_t index;
  };
  // Of one pair of ranks and phase.
  struct Channel {
    std::deque<Posted> sends;
    std::deque<Posted> receives;
  };

  void Post(Rank& rank, uint32_t first, uint32_t count) {
    const auto number = static_cast<int>(&rank - ranks_.data());
    for (uint32_t i = first; i < first + count; ++i) {
      const ucx::Message& message = rank.operation.messages[i];
      ++rank.operation.outstanding;
      const int from = message.is_receive ? message.peer : number;
      const int to = message.is_receive ? number : message.peer;
      Channel& channel = channels_[{from, to, message.phase}];
      (message.is_receive ? channel.receives : channel.sends)
          .push_back({number, i});
    }
  }

  void Finish(const Posted& posted) {
    ucx::Operation& op = ranks_[posted.rank].operation;
    --op.outstanding;
    const uint32_t step = op.messages[posted.index].step;
    if (step != ucx::Operation::kNoStep) --op.steps[step].waiting;
  }

  // Something that can be done, at random; false if there is nothing.
  bool Act(std::mt19937_64& random) {
    std::vector<Channel*> matched;
    for (auto& [key, channel] : channels_) {
      if (!channel.sends.empty() && !channel.receives.empty()) {
        matched.push_back(&channel);
      }
    }
    std::vector<std::pair<Rank*, uint32_t>> due;
    for (Rank& rank : ranks_) {
      const ucx::Operation& op = rank.operation;
      for (uint32_t kind = 0; kind < ucx::kNumStepKinds; ++kind) {
        const uint32_t next = op.next_step[kind];
        if (next == op.end_step[kind] || op.steps[next].waiting != 0) continue;
        due.emplace_back(&rank, kind);
      }
    }
    if (matched.empty() && due.empty()) return false;
    const size_t chosen = random() % (matched.size() + due.size());
    if (chosen < matched.size()) {
      Deliver(matched[chosen]);
    } else {
      Take(*due[chosen - matched.size()].first,
           due[chosen - matched.size()].second);
    }
    return true;
  }

  void Deliver(Channel* channel) {
    const Posted send = channel->sends.front();
    const Posted receive = channel->receives.front();
    channel->sends.pop_front();
    channel->receives.pop_front();
    const ucx::Message& from = ranks_[send.rank].operation.messages[send.index];
    const ucx::Message& to =
        ranks_[receive.rank].operation.messages[receive.index];
    ASSERT_EQ(from.bytes, to.bytes);
    if (from.bytes != 0) std::memcpy(to.data, from.data, from.bytes);
    if (!layout_.ShareHost(send.rank, receive.rank)) {
      links_[layout_.HostOf(send.rank)].out += from.bytes;
      links_[layout_.HostOf(receive.rank)].in += from.bytes;
    }
    Finish(send);
    Finish(receive);
  }

  void Take(Rank& rank, uint32_t kind) {
    ucx::Operation& op = rank.operation;
    const ucx::Step step = op.steps[op.next_step[kind]++];
    if (step.num_inputs != 0) {
      std::vector<commsched_piece_t> pieces;
      for (uint32_t i = 0; i < step.num_inputs; ++i) {
        const ucx::Input& input = op.inputs[step.first_input + i];
        pieces.push_back({static_cast<uint32_t>(input.node.begin),
                          static_cast<uint32_t>(input.node.end),
                          input.is_partial ? 1u : 0u, 0, input.data});
      }
      Reduction sum;
      sum.op = static_cast<ReduceOp>(op.reduce_op);
      sum.num_inputs = static_cast<int>(pieces.size());
      sum.pieces = pieces.data();
      sum.size = static_cast<uint32_t>(layout_.size());
      sum.result = step.output;
      sum.result_is_partial = step.output_is_partial;
      sum.count = step.count;
      Reduce(static_cast<DType>(op.dtype), sum);
    }
    ucx::TakeCopies(op, step);
    Post(rank, step.first_post, step.num_posts);
  }

  const ucx::Layout layout_;
  std::vector<Rank> ranks_;
  const ucx::Algorithm* algorithm_ = nullptr;
  std::map<std::tuple<int, int, uint32_t>, Channel> channels_;
  std::vector<LinkBytes> links_;
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_PLUGIN_BUILT_JOB_H_
