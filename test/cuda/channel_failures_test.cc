// What goes wrong with channels on devices, and what shares their lanes.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/device_channels.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/await.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::DeviceChannels;
using test::DeviceFloats;
using test::kSecondNs;
using test::OpOf;
using test::ReceiveFrom;
using test::RunOp;
using test::SendTo;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// Of launches, and of making a channel, which takes its time under sanitizers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kLimit_s = 5;
#else
constexpr int64_t kLimit_s = 1;
#endif

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

// What ranks say of channels of a short deadline, none of which ends before all
// have failed.
std::vector<absl::Status> RunToFailure(
    DeviceChannels& rig,
    const std::function<absl::Status(Channel& channel, int rank)>& body) {
  rig.set_timeout_ns(kLimit_s * kSecondNs);
  return rig.RunAll([&](Channel& channel, int rank) -> absl::Status {
    const absl::Status status = body(channel, rank);
    EXPECT_TRUE(test::Await([&] { return !channel.status().ok(); }));
    RETURN_IF_ERROR(rig.Meet(rank, "all have failed"));
    return status.ok() ? channel.status() : status;
  });
}

// Of each rank, which lives longer than any kernel.
using Memory = std::vector<std::unique_ptr<DeviceFloats>>;

Memory Ones(const DeviceChannels& rig) {
  Memory memory;
  for (int rank = 0; rank < rig.size(); ++rank) {
    memory.push_back(std::make_unique<DeviceFloats>(rig.device(rank),
                                                    std::vector<float>(4, 1)));
  }
  return memory;
}

TEST(CudaChannelFailureTest, ALaunchThatTakesTooLongIsNamed) {
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  const auto statuses =
      RunToFailure(rig, [&](Channel& channel, int rank) -> absl::Status {
        const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
        const ChannelOp op =
            OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1);
        RETURN_IF_ERROR(RunOp(channel, op));
        return rank == 1 ? absl::OkStatus() : RunOp(channel, op);
      });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      Text(statuses[0]),
      AllOf(HasSubstr("launch #2 all_reduce of the channel on axis dp "
                      "is not complete on rank 0 after"),
            HasSubstr(absl::StrCat("the limit is ", kLimit_s, ".0 s"))));
  EXPECT_THAT(Text(statuses[1]), HasSubstr("rank 0: launch #2 all_reduce"));
}

TEST(CudaChannelFailureTest, AnAbortEndsAllOnAllMembers) {
  DeviceChannels rig(3);
  const Memory memory = Ones(rig);
  std::atomic<int> num_waiting{0};
  const auto statuses =
      rig.RunAll([&](Channel& channel, int rank) -> absl::Status {
        const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
        const ChannelOp sum =
            OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1);
        RETURN_IF_ERROR(RunOp(channel, sum));
        if (rank == 1) {
          EXPECT_TRUE(test::Await([&] { return num_waiting.load() == 2; }));
          channel.Abort("enough");
          channel.Abort("more");
          return channel.status();
        }
        // A collective, and a receive whose pair is never connected.
        RETURN_IF_ERROR(channel.Submit(sum, CallerStream()).status());
        ASSIGN_OR_RETURN(
            const uint64_t request,
            channel.Submit(ReceiveFrom(1, data.at(1), 1), CallerStream()));
        ++num_waiting;
        const absl::Status status = channel.Wait(request, kNoDeadlineNs);
        EXPECT_EQ(channel.Submit(sum, CallerStream()).status(), status);
        return status;
      });
  EXPECT_EQ(Text(statuses[1]), "enough");
  for (const int rank : {0, 2}) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kAborted);
    EXPECT_THAT(Text(statuses[rank]), HasSubstr("rank 1: enough"));
  }
}

TEST(CudaChannelFailureTest, AFailureFinishesEveryRequestOnce) {
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    ChannelSpec spec = rig.Spec(rank);
    spec.max_in_flight = 2;  // So that one is not on the stream.
    spec.completions = std::make_shared<Completions>(64);
    const std::shared_ptr<Completions> completions = spec.completions;
    ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                     Channel::Create(std::move(spec)));
    if (rank == 1) {
      EXPECT_TRUE(test::Await([&] { return !channel->status().ok(); }));
      return absl::OkStatus();
    }
    for (size_t i = 0; i < 3; ++i) {
      float* const at = memory[0]->at(i);
      RETURN_IF_ERROR(
          channel->Submit(OpOf(COMMSCHED_ALL_REDUCE, at, at, 1), CallerStream())
              .status());
    }
    channel->Abort("enough");
    Completion out[8];
    EXPECT_EQ(completions->Next(absl::MakeSpan(out), 0), 3u);
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(out[i].request, i + 1);
      EXPECT_EQ(out[i].code, absl::StatusCode::kAborted);
    }
    return absl::OkStatus();
  }));
}

// Each is the first of its kind and type, which has NCCL connect the members
// and wait for all of them in that call.
TEST(CudaChannelFailureTest, OtherFirstLaunchesOnAnotherRankAreNamed) {
  DeviceChannels rig(3);
  const Memory memory = Ones(rig);
  const auto statuses =
      RunToFailure(rig, [&](Channel& channel, int rank) -> absl::Status {
        const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
        ChannelOp op = OpOf(rank == 2 ? COMMSCHED_BROADCAST : COMMSCHED_REDUCE,
                            data.at(), data.at(), 1);
        op.dtype = COMMSCHED_I32;
        return RunOp(channel, op);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(status), HasSubstr("rank 2 has kind broadcast, rank 0 has "
                                        "kind reduce"));
  }
}

TEST(CudaChannelFailureTest, AFirstLaunchThatOneRankDoesNotMakeIsNamed) {
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  const auto statuses =
      RunToFailure(rig, [&](Channel& channel, int rank) -> absl::Status {
        if (rank == 1) return absl::OkStatus();
        ChannelOp op =
            OpOf(COMMSCHED_ALL_REDUCE, memory[0]->at(), memory[0]->at(), 1);
        op.dtype = COMMSCHED_I32;
        return RunOp(channel, op);
      });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(statuses[0]),
              HasSubstr("launch #1 all_reduce of the channel "
                        "on axis dp is not complete"));
}

// The other one waits in NCCL to be connected.
TEST(CudaChannelFailureTest, AFirstLaunchThatFailsOnOneRankHoldsUpNobody) {
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  const auto statuses =
      RunToFailure(rig, [&](Channel& channel, int rank) -> absl::Status {
        RETURN_IF_ERROR(rig.Meet(rank, "made"));
        if (rank == 0) fake_gpu_fail("ncclAllReduce", 1, 2);
        RETURN_IF_ERROR(rig.Meet(rank, "one is to fail"));
        const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
        ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1);
        op.dtype = COMMSCHED_I32;
        return RunOp(channel, op);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(Text(status), HasSubstr("ncclAllReduce"));
  }
}

// As where a member is lost that NCCL has just begun to connect.
TEST(CudaChannelFailureTest, ALaunchThatNcclDoesNotReturnFromIsRevoked) {
  const int version = fake_nccl_version(0);
  fake_nccl_version(version);
  if (version < 22807) GTEST_SKIP() << "it has no ncclCommRevoke";
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  const uint64_t before = fake_gpu_num_calls("ncclCommRevoke");
  std::thread frees([&] {
    EXPECT_TRUE(test::Await(
        [&] { return fake_gpu_num_calls("ncclCommRevoke") > before; }));
    fake_gpu_hold("");
  });
  const auto statuses =
      RunToFailure(rig, [&](Channel& channel, int rank) -> absl::Status {
        RETURN_IF_ERROR(rig.Meet(rank, "made"));
        if (rank == 0) fake_gpu_hold("ncclAllReduce");
        RETURN_IF_ERROR(rig.Meet(rank, "held"));
        const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
        return RunOp(channel,
                     OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1));
      });
  frees.join();
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(status), HasSubstr("launch #1 all_reduce of the channel "
                                        "on axis dp is not complete"));
  }
}

// NCCL has both wait for a receive, for ever.
TEST(CudaChannelFailureTest, SendsFirstOnBothSidesOfAPairAreNamed) {
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  const auto statuses =
      RunToFailure(rig, [&](Channel& channel, int rank) -> absl::Status {
        const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
        RETURN_IF_ERROR(
            channel.Submit(SendTo(1 - rank, data.at(), 1), CallerStream())
                .status());
        return RunOp(channel, ReceiveFrom(1 - rank, data.at(1), 1));
      });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(
        Text(status),
        AllOf(ContainsRegex("launch send to rank [01] of the group of the "
                            "channel on axis dp is not complete on rank [01] "
                            "after"),
              ContainsRegex("a receive from rank [01] of the group was "
                            "submitted behind it")));
  }
}

TEST(CudaChannelFailureTest, APairOfWhichOneRankDoesNotComeIsNamed) {
  DeviceChannels rig(2);
  DeviceFloats data(rig.device(0), {1});
  const auto statuses =
      RunToFailure(rig, [&](Channel& channel, int rank) -> absl::Status {
        if (rank == 1) return absl::OkStatus();
        return RunOp(channel, ReceiveFrom(1, data.at(), 1));
      });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(statuses[0]),
              AllOf(HasSubstr("receive from rank 1 of the group of the channel "
                              "on axis dp"),
                    HasSubstr("rank 1 has submitted nothing to this rank or "
                              "from it")));
  EXPECT_THAT(Text(statuses[1]), HasSubstr("rank 0: "));
}

// Work of the caller's is no time of the launch's.
TEST(CudaChannelFailureTest, TheTimeOfALaunchBeginsWithWhatItWaitsFor) {
  DeviceChannels rig(2);
  rig.set_timeout_ns(kLimit_s * kSecondNs);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    DeviceFloats data(rig.device(rank), {1});
    ASSIGN_OR_RETURN(const auto stream, rig.device(rank)->CreateSideStream());
    const auto begin = std::chrono::steady_clock::now();
    test::RunOn(stream.get(), [&] {
      EXPECT_TRUE(test::Await([&] {
        return std::chrono::steady_clock::now() - begin >
               std::chrono::milliseconds(kLimit_s * 1000 + 500);
      }));
    });
    ASSIGN_OR_RETURN(
        const uint64_t request,
        channel.Submit(OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1),
                       stream.get()));
    RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
    EXPECT_EQ(data.Get()[0], 2);
    return absl::OkStatus();
  }));
}

// What a synchronised batch norm does in the middle of a backward pass.
TEST(CudaChannelFailureTest, AChannelLaunchesInTheMiddleOfASessionsStep) {
  for (const char* axis : {"dp", "tp"}) {  // On the session's lane, or not.
    const test::ReductionStep step(2, Ownership::kOwned, {"dp", "pp"});
    test::GpuRig sessions(2, step.graph(), {});
    DeviceChannels rig(2);
    EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
      Stream* const lane = sessions.lane(rank, 0);
      ASSIGN_OR_RETURN(const auto session,
                       Session::Create(sessions.Spec(rank)));
      ChannelSpec spec = rig.Spec(rank, axis);
      spec.world = sessions.world();
      ASSIGN_OR_RETURN(const auto channel, Channel::Create(std::move(spec)));
      DeviceFloats mean(rig.device(rank), {1});
      for (int i = 0; i < 10; ++i) {
        RETURN_IF_ERROR(session->StepBegin());
        for (OpId op : step.writes()) {
          RETURN_IF_ERROR(session->Before(op, lane));
          mean.Set({static_cast<float>(rank)});
          ASSIGN_OR_RETURN(
              const uint64_t request,
              channel->Submit(
                  OpOf(COMMSCHED_ALL_REDUCE, mean.at(), mean.at(), 1), lane));
          RETURN_IF_ERROR(channel->Before(request, lane));
          lane->Synchronize();
          EXPECT_EQ(mean.Get()[0], 1);
          RETURN_IF_ERROR(session->After(op, lane));
        }
        RETURN_IF_ERROR(session->StepEnd());
      }
      return session->Drain();
    }));
  }
}

// Two process groups, used in another order on two ranks.
class CudaChannelOrderTest : public testing::Test {
 protected:
  // Channels of two axes, which come last and wait for `timeout_ns` at most.
  // With `share` there is one lane for both: others have the rest twice.
  absl::Status Make(DeviceChannels& rig, int rank, bool share,
                    int64_t timeout_ns,
                    std::vector<std::unique_ptr<Channel>>* channels) {
    std::vector<std::string> axes;
    for (size_t i = 0; share && i + 1 < LaneBudget::kLanes; ++i) {
      axes.insert(axes.end(), 2, absl::StrCat("filler ", i));
    }
    const size_t num_others = axes.size();
    axes.insert(axes.end(), {"one", "other"});
    for (size_t i = 0; i < axes.size(); ++i) {
      ChannelSpec spec = rig.Spec(rank, axes[i]);
      if (i >= num_others) spec.launch_timeout_ns = timeout_ns;
      ASSIGN_OR_RETURN(auto channel, Channel::Create(std::move(spec)));
      channels->push_back(std::move(channel));
    }
    return absl::OkStatus();
  }
};

TEST_F(CudaChannelOrderTest, LanesOfTheirOwnNeedNoOrder) {
  DeviceChannels rig(2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    std::vector<std::unique_ptr<Channel>> channels;
    RETURN_IF_ERROR(
        Make(rig, rank, /*share=*/false, 20 * kSecondNs, &channels));
    DeviceFloats data(rig.device(rank), {1, 1});
    for (int i = 0; i < 50; ++i) {
      for (const int each : {rank, 1 - rank}) {
        const auto at = static_cast<size_t>(each);
        RETURN_IF_ERROR(channels[at]
                            ->Submit(OpOf(COMMSCHED_ALL_REDUCE, data.at(at),
                                          data.at(at), 1),
                                     CallerStream())
                            .status());
      }
    }
    for (const auto& channel : channels) {
      RETURN_IF_ERROR(channel->Wait(50, kNoDeadlineNs));
    }
    return absl::OkStatus();
  }));
}

TEST_F(CudaChannelOrderTest, AnotherOrderOnASharedLaneIsTheNamedCause) {
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  std::vector<absl::Status> failures(4);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    std::vector<std::unique_ptr<Channel>> channels;
    // For their communicators, too, which a busy machine takes a second for.
    RETURN_IF_ERROR(Make(rig, rank, /*share=*/true, 6 * kSecondNs, &channels));
    RETURN_IF_ERROR(rig.Meet(rank, "made"));
    Channel* const both[] = {channels.end()[-2].get(), channels.back().get()};
    for (const int each : {rank, 1 - rank}) {
      float* const at =
          memory[static_cast<size_t>(rank)]->at(static_cast<size_t>(each));
      RETURN_IF_ERROR(
          both[each]
              ->Submit(OpOf(COMMSCHED_ALL_REDUCE, at, at, 1), CallerStream())
              .status());
    }
    EXPECT_TRUE(test::Await(
        [&] { return !both[0]->status().ok() || !both[1]->status().ok(); }));
    RETURN_IF_ERROR(rig.Meet(rank, "failed"));
    for (int i = 0; i < 2; ++i) {
      failures[static_cast<size_t>(2 * rank + i)] = both[i]->status();
      both[i]->Abort("over");
    }
    return absl::OkStatus();
  }));
  int num_named = 0;
  for (const absl::Status& failure : failures) {
    const std::string both =
        "rank 0 has launch 1 of channel 0 on axis one before launch 1 of "
        "channel 0 on axis other";
    if (Text(failure).find(both) != std::string::npos) ++num_named;
  }
  EXPECT_GT(num_named, 0) << testing::PrintToString(failures);
}

// Worlds fail each for itself.
TEST(CudaChannelFailureTest, TheAbortOfAWorldLeavesAnothersChannelAlone) {
  DeviceChannels healthy(2);
  DeviceChannels aborted(2);
  const Memory memory = Ones(healthy);
  std::atomic<bool> is_launched{false};
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto lives, Channel::Create(healthy.Spec(rank)));
    ASSIGN_OR_RETURN(const auto fails, Channel::Create(aborted.Spec(rank)));
    const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
    const ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1);
    if (rank == 0) {
      RETURN_IF_ERROR(fails->Submit(op, CallerStream()).status());
      is_launched = true;
    } else {
      EXPECT_TRUE(test::Await([&] { return is_launched.load(); }));
      fails->Abort("enough");
    }
    for (int i = 0; i < 5; ++i) {
      RETURN_IF_ERROR(
          RunOp(*lives, OpOf(COMMSCHED_ALL_REDUCE, data.at(1), data.at(1), 1)));
    }
    EXPECT_EQ(data.Get()[1], 32);
    EXPECT_TRUE(test::Await([&] { return !fails->status().ok(); }));
    EXPECT_EQ(fails->status().code(), absl::StatusCode::kAborted);
    return absl::OkStatus();
  }));
}

// A call of the device's that fails is a failure of the channel on all members.
TEST(CudaChannelFailureTest, ALaunchThatNcclRefusesFailsAllMembers) {
  DeviceChannels rig(2);
  const Memory memory = Ones(rig);
  const auto statuses =
      rig.RunAll([&](Channel& channel, int rank) -> absl::Status {
        const DeviceFloats& data = *memory[static_cast<size_t>(rank)];
        RETURN_IF_ERROR(
            RunOp(channel, OpOf(COMMSCHED_BARRIER, nullptr, nullptr, 0)));
        if (rank == 1) fake_gpu_fail("ncclAllReduce", 1, 1);
        if (rank == 0) {
          EXPECT_TRUE(test::Await([&] { return !channel.status().ok(); }));
          return channel.status();
        }
        const absl::Status status =
            RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1));
        fake_gpu_fail("", 0, 0);
        return status;
      });
  EXPECT_THAT(Text(statuses[1]),
              AllOf(HasSubstr("launch #2 all_reduce of the channel on axis dp"),
                    HasSubstr("ncclAllReduce")));
  EXPECT_THAT(Text(statuses[0]), HasSubstr("rank 1: launch #2 all_reduce"));
}

}  // namespace
}  // namespace commsched
