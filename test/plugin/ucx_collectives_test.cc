// What ranks of `ucx` do for a launch, without a network: messages of all ranks
// are matched in the order of their posts, and progress is made in a random
// one.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm/reduce.h"
#include "gtest/gtest.h"
#include "plugins/ucx/collectives.h"
#include "plugins/ucx/routes.h"
#include "test/conformance/collective_case.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ucx::Layout;
using ucx::Operation;

using Random = std::mt19937_64;

// Of a host's link, in bytes.
struct LinkBytes {
  uint64_t out = 0;
  uint64_t in = 0;
};

// The ranks of a group in one launch.
class Job {
 public:
  using LaunchOf = std::function<const commsched_launch_t&(int rank)>;

  Job(const std::vector<int>& hosts, uint64_t chunk_bytes,
      const LaunchOf& launch_of)
      : layout_(hosts), ranks_(hosts.size()), links_(layout_.num_hosts()) {
    for (int rank = 0; rank < layout_.size(); ++rank) {
      const commsched_launch_t& launch = launch_of(rank);
      Operation& op = ranks_[rank].operation;
      Operation measured;
      scratch_bytes_.push_back(
          ucx::ScratchBytes(launch, layout_, rank, chunk_bytes, &measured));
      // Guarded: nothing may be written behind it.
      ranks_[rank].scratch.assign(scratch_bytes_.back() + kGuardBytes, kGuard);
      op.scratch = {ranks_[rank].scratch.data(), scratch_bytes_.back()};
      ucx::Measure(launch, layout_, rank, chunk_bytes, &op);
      const std::array<size_t, 5> room = RoomOf(op);
      ucx::Build(launch, layout_, rank, chunk_bytes, &op);
      EXPECT_EQ(RoomOf(op), room) << "memory was allocated at a launch";
    }
  }

  // Until nothing more happens. False: somebody waits for ever.
  bool Run(Random& random) {
    for (Rank& rank : ranks_) Post(rank, 0, rank.operation.num_posted);
    while (Act(random)) {
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.operation.IsDone() &&
             std::all_of(rank.scratch.end() - kGuardBytes, rank.scratch.end(),
                         [](char c) { return c == kGuard; });
    });
  }

  const Layout& layout() const { return layout_; }
  const std::vector<LinkBytes>& links() const { return links_; }
  uint64_t scratch_bytes(int rank) const { return scratch_bytes_[rank]; }
  const Operation& operation(int rank) const { return ranks_[rank].operation; }

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
    Operation operation;
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

  static std::array<size_t, 5> RoomOf(const Operation& op) {
    return {op.messages.capacity(), op.steps.capacity(), op.inputs.capacity(),
            op.sent_on.capacity(), op.shares.capacity()};
  }

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
    Operation& op = ranks_[posted.rank].operation;
    --op.outstanding;
    const uint32_t step = op.messages[posted.index].step;
    if (step != Operation::kNoStep) --op.steps[step].waiting;
  }

  // Something that can be done, at random; false if there is nothing.
  bool Act(Random& random) {
    std::vector<Channel*> matched;
    for (auto& [key, channel] : channels_) {
      if (!channel.sends.empty() && !channel.receives.empty()) {
        matched.push_back(&channel);
      }
    }
    std::vector<std::pair<Rank*, uint32_t>> due;
    for (Rank& rank : ranks_) {
      const Operation& op = rank.operation;
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
    Operation& op = rank.operation;
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
    Post(rank, step.first_post, step.num_posts);
  }

  const Layout layout_;
  std::vector<Rank> ranks_;
  std::vector<uint64_t> scratch_bytes_;
  std::map<std::tuple<int, int, uint32_t>, Channel> channels_;
  std::vector<LinkBytes> links_;
};

// "0,0,1": ranks 0 and 1 on one host.
std::string Text(const std::vector<int>& hosts) {
  return absl::StrJoin(hosts, ",");
}

std::vector<int> RandomHosts(Random& random) {
  const int size = 1 + static_cast<int>(random() % 12);
  const int per_host = 1 + static_cast<int>(random() % 5);
  const uint64_t way = random() % 3;  // In a row, round robin, anyhow.
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) {
    const int num_hosts = (size + per_host - 1) / per_host;
    hosts.push_back(way == 0   ? rank / per_host
                    : way == 1 ? rank % num_hosts
                               : static_cast<int>(random() % num_hosts));
  }
  return hosts;
}

TEST(UcxCollectivesTest,
     RandomLaunchesOnRandomHostsGiveTheBitsOfTheDefinition) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const std::vector<int> hosts = RandomHosts(random);
    Shape shape = RandomShape(static_cast<int>(hosts.size()), random);
    if (shape.kind == COMMSCHED_BARRIER) continue;
    const uint64_t max_elements = random() % 4 == 0 ? 40'000 : 300;
    std::vector<MemberCase> members;
    for (uint64_t m = 0; m < 1 + random() % 3; ++m) {
      members.push_back(RandomMember(shape, max_elements, random));
    }
    const CollectiveCase launch(shape, members, random() % 2 == 0,
                                /*deterministic=*/true, random);
    const uint64_t chunk_bytes = random() % 2 == 0 ? 4096 : 1 << 20;
    Job job(hosts, chunk_bytes, [&](int rank) -> const commsched_launch_t& {
      return launch.launch(rank);
    });
    const std::string what = absl::StrCat("seed ", seed, ", hosts ",
                                          Text(hosts), ": ", launch.Describe());
    ASSERT_TRUE(job.Run(random)) << what;
    for (int rank = 0; rank < shape.size; ++rank) {
      ASSERT_OK(launch.Check(rank)) << what;
    }
  }
}

// What the busiest direction of a link carries, in units of the array's bytes.
struct LinkCase {
  const char* hosts;
  commsched_collective_t kind;
  commsched_dtype_t dtype;
  double least;
};

std::vector<int> HostsOf(const std::string& text) {
  std::vector<int> hosts;
  for (const char c : text) hosts.push_back(c - '0');
  return hosts;
}

// Counts of parts of the array of a kind with parts, else of the array.
uint64_t CountOf(const LinkCase& link, uint64_t array_bytes) {
  const uint64_t elements = array_bytes / ElementBytes(link.dtype);
  const bool has_parts = link.kind == COMMSCHED_ALL_GATHER ||
                         link.kind == COMMSCHED_REDUCE_SCATTER ||
                         link.kind == COMMSCHED_ALL_TO_ALL;
  return has_parts ? elements / std::string(link.hosts).size() : elements;
}

// By hand, from how many pieces cover the ranks of a host: with p of them of
// the others' results going out, and results coming in, shares are equal where
// the hosts are, and else such that no direction carries more than another.
constexpr LinkCase kLinkCases[] = {
    // Four hosts of one rank, two of two, two of four.
    {"0123", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1.5},
    {"0011", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1},
    {"00001111", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1},
    {"0123", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.75},
    {"0011", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.5},
    {"00001111", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.5},
    {"0123", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.75},
    {"0011", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.5},
    {"00001111", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.5},
    {"0123", COMMSCHED_ALL_TO_ALL, COMMSCHED_F32, 0.75},
    {"00001111", COMMSCHED_ALL_TO_ALL, COMMSCHED_F32, 2},
    {"0123", COMMSCHED_BROADCAST, COMMSCHED_F32, 1},
    {"00001111", COMMSCHED_BROADCAST, COMMSCHED_F32, 1},
    {"0123", COMMSCHED_REDUCE, COMMSCHED_F32, 1},
    {"00001111", COMMSCHED_REDUCE, COMMSCHED_F32, 1},
    // A host's three ranks are two nodes: of each byte of the other's half two
    // go out, and of its own one comes in.
    {"000111", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1.5},
    {"000111", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 1},
    // All of it on the greater host.
    {"0001", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1},
    {"0001", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.75},
    {"0001", COMMSCHED_REDUCE_SCATTER, COMMSCHED_F32, 0.75},
    {"00001122", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 4.0 / 3},
    {"00001122", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 1},
    {"00001122", COMMSCHED_REDUCE, COMMSCHED_F32, 1},
    // Round robin: no host has a node of two.
    {"0101", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 1.5},
    {"01010101", COMMSCHED_ALL_REDUCE, COMMSCHED_F32, 2.5},
    {"01010101", COMMSCHED_ALL_GATHER, COMMSCHED_F32, 0.5},
    // Sums of 16 bits travel in 32.
    {"0011", COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 1.5},
    {"00001111", COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 1.5},
    {"0123", COMMSCHED_ALL_REDUCE, COMMSCHED_BF16, 1.5},
};

TEST(UcxCollectivesTest, TheBusiestLinkCarriesTheLeastThatThereIs) {
  constexpr uint64_t kArrayBytes = 1 << 18;
  constexpr uint64_t kChunkBytes = 1 << 14;
  for (const LinkCase& link : kLinkCases) {
    Random random(1);
    Shape shape;
    shape.kind = link.kind;
    shape.dtype = link.dtype;
    shape.size = static_cast<int>(std::string(link.hosts).size());
    MemberCase member;
    member.count = CountOf(link, kArrayBytes);
    const CollectiveCase launch(shape, {member},
                                /*in_place=*/false, /*deterministic=*/true,
                                random);
    Job job(HostsOf(link.hosts), kChunkBytes,
            [&](int rank) -> const commsched_launch_t& {
              return launch.launch(rank);
            });
    ASSERT_TRUE(job.Run(random));
    EXPECT_NEAR(static_cast<double>(job.BusiestLink()) / kArrayBytes,
                link.least, 0.01 * link.least)
        << "hosts " << link.hosts << ", kind " << link.kind << ", dtype "
        << link.dtype;
  }
}

TEST(UcxCollectivesTest, ScratchIsBoundedWhateverALaunchHas) {
  constexpr uint64_t kMostBytes = 64 << 20;
  const std::vector<int> widths = {4, 64, 1024};
  for (const int size : widths) {
    for (const int per_host : {1, 4, 16}) {
      std::vector<int> hosts;
      for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / per_host);
      const Layout layout(hosts);
      for (const commsched_collective_t kind :
           {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE}) {
        commsched_member_t member = {};
        member.count = uint64_t{1} << 28;  // 1 GiB
        commsched_launch_t launch = {};
        launch.kind = kind;
        launch.dtype = COMMSCHED_F32;
        launch.num_members = 1;
        launch.members = &member;
        Operation operation;
        EXPECT_LE(
            ucx::ScratchBytes(launch, layout, size / 2, 1 << 20, &operation),
            kMostBytes)
            << size << " ranks, " << per_host << " per host, kind " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace commsched
