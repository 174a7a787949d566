// What channels launch, in a trace.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "channel/channel.h"
#include "device/host_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/support/alloc_counter.h"
#include "test/support/status_matchers.h"
#include "trace/kineto.h"
#include "trace/perfetto.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

using test::ChannelRig;
using test::OpOf;
using test::RunOp;
using testing::ElementsAre;
using testing::HasSubstr;

class ChannelTraceTest : public testing::TestWithParam<const char*> {
 protected:
  // Runs `body` on two ranks with a channel that rank 0 traces.
  void Run(
      const std::function<absl::Status(Channel& channel, int rank)>& body) {
    ChannelRig rig(GetParam(), 2);
    if (!rig.Has(COMMSCHED_BACKEND_TAGS)) GTEST_SKIP() << "no tags";
    EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
      ChannelSpec spec = rig.Spec(rank);
      if (rank == 0) spec.recorder = recorder_;
      ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                       Channel::Create(std::move(spec)));
      return body(*channel, rank);
    }));
  }

  const std::shared_ptr<Recorder> recorder_ =
      std::make_shared<Recorder>(Recorder::kMinCapacity);
};

INSTANTIATE_TEST_SUITE_P(Backends, ChannelTraceTest,
                         testing::ValuesIn(test::Backends()),
                         [](const auto& info) { return info.param; });

TEST_P(ChannelTraceTest, LaunchesAreRecordedByKindRequestAndBytes) {
  const int64_t begin_ns = SystemClock::Get().NowNs();
  Run([](Channel& channel, int rank) -> absl::Status {
    float values[8] = {};
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, values, values, 4)));
    RETURN_IF_ERROR(RunOp(channel, OpOf(kGather, values, values + 2, 2)));
    return RunOp(channel, rank == 0 ? test::SendTo(1, values, 3)
                                    : test::ReceiveFrom(0, values, 3));
  });
  const std::vector<Record> records = recorder_->SnapshotOfChannels();
  ASSERT_EQ(records.size(), 3u);
  std::vector<std::string> names;
  int64_t last_ns = begin_ns;
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].step, i + 1);
    EXPECT_GE(records[i].begin_ns, last_ns);
    EXPECT_GE(records[i].end_ns, records[i].begin_ns);
    last_ns = records[i].end_ns;
    ASSERT_NE(recorder_->LaunchNameOf(records[i]), nullptr);
    names.push_back(recorder_->LaunchNameOf(records[i])->name);
  }
  EXPECT_THAT(names, ElementsAre("all_reduce of channel 0 on axis dp",
                                 "gather of channel 0 on axis dp",
                                 "send_recv of channel 0 on axis dp"));
  EXPECT_EQ(records[0].value, 16u);
  EXPECT_EQ(records[2].value, 12u);
  // Steps are a session's.
  EXPECT_TRUE(recorder_->Snapshot().empty());
}

TEST_P(ChannelTraceTest, TheyAreInTheFiles) {
  Run([](Channel& channel, int /*rank*/) {
    float values[8] = {};
    return RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, values, values, 4));
  });
  const std::string json = KinetoJson(*recorder_);
  for (const char* text :
       {"ncclDevKernel_AllReduce_of_channel_0_on_axis_dp(commsched)",
        "\"commsched request\": 1", "\"commsched bytes\": 16",
        "\"Process Group Description\": \"dp\"",
        "\"Process Group Ranks\": \"[0, 1]\"", ": channel 0"}) {
    EXPECT_THAT(json, HasSubstr(text));
  }
  const std::string perfetto = PerfettoTrace(*recorder_);
  EXPECT_THAT(perfetto, HasSubstr("all_reduce of channel 0 on axis dp"));
  EXPECT_THAT(perfetto, HasSubstr("request"));
}

TEST_P(ChannelTraceTest, ARecordAllocatesNothing) {
  std::atomic<int> num_warm{0};
  std::atomic<uint64_t> before{0};
  std::atomic<int> num_done{0};
  std::atomic<uint64_t> after{0};
  Run([&](Channel& channel, int /*rank*/) -> absl::Status {
    float values[8] = {};
    const ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, values, values, 4);
    for (int i = 0; i < 100; ++i) RETURN_IF_ERROR(RunOp(channel, op));
    // Nobody allocates between the two.
    if (num_warm.fetch_add(1) == 1) before.store(HeapAllocations());
    while (before.load() == 0) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) RETURN_IF_ERROR(RunOp(channel, op));
    if (num_done.fetch_add(1) == 1) after.store(HeapAllocations());
    while (after.load() == 0) std::this_thread::yield();
    return absl::OkStatus();
  });
  EXPECT_EQ(after.load(), before.load());
}

}  // namespace
}  // namespace commsched
