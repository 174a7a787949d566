// Ranks with channels, as threads of a test.
#ifndef COMMSCHED_TEST_CHANNEL_CHANNEL_RIG_H_
#define COMMSCHED_TEST_CHANNEL_CHANNEL_RIG_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "channel/channel.h"
#include "comm/plugin/registry.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/support/joined_ranks.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched::test {

constexpr int64_t kSecondNs = int64_t{1} * 1000 * 1000 * 1000;

// What is built.
inline std::vector<const char*> Backends() {
#ifdef COMMSCHED_TEST_UCX
  return {"inproc", "ucx"};
#else
  return {"inproc"};
#endif
}

// A world of threads, or of ranks that have joined as processes do.
class ChannelRig {
 public:
  ChannelRig(const std::string& backend, int size) : size_(size) {
    WorldSpec spec;
    spec.size = size;
    spec.backend = backend;
    if (backend != "ucx") {
      threads_ = World::Create(spec).value();
      return;
    }
#ifdef COMMSCHED_TEST_UCX
    EXPECT_OK(PluginRegistry::Process().Load(COMMSCHED_TEST_UCX));
#endif
    EXPECT_OK(joined_.Join(spec, size));
  }

  int size() const { return size_; }
  const std::shared_ptr<World>& WorldOf(int rank) {
    return threads_ != nullptr ? threads_ : joined_.WorldOf(rank);
  }

  bool Has(uint32_t capability) {
    return (WorldOf(0)->backend()->capabilities & capability) != 0;
  }

  // Of a channel of `rank` on axis dp, among all ranks.
  ChannelSpec Spec(int rank) {
    std::vector<int> all;
    for (int r = 0; r < size_; ++r) all.push_back(r);
    return SpecOf(rank, std::move(all), "dp");
  }
  ChannelSpec SpecOf(int rank, std::vector<int> ranks,
                     const std::string& axis) {
    ChannelSpec spec;
    spec.world = WorldOf(rank);
    spec.world_rank = rank;
    spec.group.axis = axis;
    spec.group.rank = static_cast<int>(
        std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    spec.group.ranks = std::move(ranks);
    spec.launch_timeout_ns = 20 * kSecondNs;
    return spec;
  }

  // Runs `body` with a channel of all ranks.
  absl::Status Run(
      const std::function<absl::Status(Channel& channel, int rank)>& body) {
    return RunAllRanks(size_, [&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                       Channel::Create(Spec(rank)));
      return body(*channel, rank);
    });
  }

 private:
  const int size_;
  std::shared_ptr<World> threads_;
  JoinedRanks joined_;
};

// Ops of floats, unless told.

inline ChannelOp OpOf(commsched_collective_t kind, const void* input,
                      void* output, uint64_t count) {
  ChannelOp op;
  op.kind = kind;
  op.input = input;
  op.output = output;
  op.count = count;
  return op;
}

inline ChannelOp SendTo(int peer, const void* input, uint64_t count,
                        uint64_t tag = 0) {
  ChannelOp op = OpOf(COMMSCHED_SEND, input, nullptr, count);
  op.peer = peer;
  op.tag = tag;
  return op;
}

inline ChannelOp ReceiveFrom(int peer, void* output, uint64_t count,
                             uint64_t tag = 0) {
  ChannelOp op = OpOf(COMMSCHED_RECV, nullptr, output, count);
  op.peer = peer;
  op.tag = tag;
  return op;
}

// Submits, and waits until it has finished.
inline absl::Status RunOp(Channel& channel, const ChannelOp& op) {
  ASSIGN_OR_RETURN(const uint64_t request, channel.Submit(op, CallerStream()));
  return channel.Wait(request, kNoDeadlineNs);
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CHANNEL_CHANNEL_RIG_H_
