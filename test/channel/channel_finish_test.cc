// In which order the collectives of a channel finish.
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "channel/channel.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

// Collectives of one rank that do nothing. The first that is polled becomes
// done after its poll and before the next one's, which is done, too: what a
// backend may do whose collectives become done in the order of their launches.
struct BetweenPolls {
  static commsched_status_t Launch(void* /*comm*/,
                                   const commsched_launch_t* /*launch*/,
                                   uint32_t /*request*/,
                                   commsched_stream_t /*stream*/,
                                   char* /*message*/,
                                   uint64_t /*message_size*/) {
    return COMMSCHED_OK;
  }

  static commsched_status_t Poll(void* /*comm*/, uint32_t request,
                                 commsched_launch_result_t* out_result,
                                 char* /*message*/, uint64_t /*message_size*/) {
    if (first == kNone) first = request;
    if (request != first) second_is_done = true;
    out_result->done = second_is_done ? 1 : 0;
    out_result->wake_at_ns = 1;
    return COMMSCHED_OK;
  }

  static constexpr uint32_t kNone = UINT32_MAX;
  static inline std::atomic<uint32_t> first{kNone};
  static inline std::atomic<bool> second_is_done{false};
};

TEST(ChannelFinishTest, NoCollectiveIsToldBeforeTheOneThatWasSubmittedFirst) {
  BetweenPolls::first = BetweenPolls::kNone;
  BetweenPolls::second_is_done = false;
  commsched_backend_t table =
      *PluginRegistry::Process().Backend("inproc").value();
  table.launch = &BetweenPolls::Launch;
  table.poll = &BetweenPolls::Poll;
  WorldSpec world;
  world.size = 1;
  world.table = &table;
  ChannelSpec spec;
  spec.world = World::Create(world).value();
  spec.group.axis = "dp";
  spec.group.ranks = {0};
  spec.launch_timeout_ns = 20 * test::kSecondNs;
  spec.completions = std::make_shared<Completions>(2);
  const std::shared_ptr<Completions> completions = spec.completions;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Channel> channel,
                       Channel::Create(std::move(spec)));
  float value = 1;
  const ChannelOp op = test::OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1);
  ASSERT_OK(channel->Submit(op, CallerStream()).status());
  ASSERT_OK(channel->Submit(op, CallerStream()).status());
  for (uint64_t expected : {1, 2}) {
    Completion out[1];
    ASSERT_EQ(completions->Next(out, kNoDeadlineNs), 1u);
    EXPECT_EQ(out[0].request, expected);
    EXPECT_EQ(out[0].code, absl::StatusCode::kOk);
  }
}

}  // namespace
}  // namespace commsched
