// What goes wrong with channels, and how it is named.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "channel/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ChannelRig;
using test::kSecondNs;
using test::OpOf;
using test::RunOp;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kShortNs = kSecondNs / 2;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

class ChannelFailureTest : public testing::TestWithParam<const char*> {
 protected:
  // Runs `body` with a channel of a short deadline; its status on each rank.
  std::vector<absl::Status> Run(
      ChannelRig& rig,
      const std::function<absl::Status(Channel& channel, int rank)>& body) {
    return RunRanks(rig.size(), [&](int rank) -> absl::Status {
      ChannelSpec spec = rig.Spec(rank);
      spec.launch_timeout_ns = kShortNs;
      ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                       Channel::Create(std::move(spec)));
      const absl::Status status = body(*channel, rank);
      // A rank that leaves early is another matter.
      num_over_.fetch_add(1);
      while (num_over_.load() < rig.size()) std::this_thread::yield();
      return status;
    });
  }

  std::atomic<int> num_over_{0};
};

INSTANTIATE_TEST_SUITE_P(Backends, ChannelFailureTest,
                         testing::ValuesIn(test::Backends()),
                         [](const auto& info) { return info.param; });

TEST_P(ChannelFailureTest, ALaunchThatTakesTooLongNamesWhoHasNotIssuedIt) {
  ChannelRig rig(GetParam(), 3);
  const auto statuses = Run(rig, [](Channel& channel, int rank) {
    if (rank == 1) {  // Until it is told.
      while (channel.status().ok()) std::this_thread::yield();
      return channel.status();
    }
    float value = 1;
    return RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1));
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(status),
                AllOf(HasSubstr("rank 1 has not issued #1 all_reduce of the "
                                "channel on axis dp; ranks 0, 2 have waited"),
                      HasSubstr("the limit is 0.5 s")));
  }
}

TEST_P(ChannelFailureTest, AReceiveOfNothingNamesItsPairAndTag) {
  ChannelRig rig(GetParam(), 2);
  if (!rig.Has(COMMSCHED_BACKEND_TAGS)) GTEST_SKIP() << "no tags";
  const auto statuses = Run(rig, [](Channel& channel, int rank) {
    if (rank == 1) {
      while (channel.status().ok()) std::this_thread::yield();
      return channel.status();
    }
    float value = 1;
    return RunOp(channel, test::ReceiveFrom(1, &value, 1, 42));
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(statuses[0]),
              HasSubstr("receive from rank 1 of the group with tag 42 of the "
                        "channel on axis dp"));
  EXPECT_THAT(Text(statuses[1]), HasSubstr("rank 0: "));
}

TEST_P(ChannelFailureTest, TheFirstFailureSticksOnAllMembers) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = Run(rig, [](Channel& channel, int rank) {
    float value = 1;
    const ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1);
    if (rank == 0) {
      channel.Abort("enough");
      channel.Abort("more");
      EXPECT_THAT(Text(channel.Submit(op, CallerStream()).status()), "enough");
      return channel.status();
    }
    return RunOp(channel, op);
  });
  EXPECT_EQ(Text(statuses[0]), "enough");
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Text(statuses[1]), HasSubstr("rank 0: enough"));
}

TEST_P(ChannelFailureTest, AFailureFinishesEveryRequestOnce) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    ChannelSpec spec = rig.Spec(rank);
    spec.completions = std::make_shared<Completions>(64);
    const std::shared_ptr<Completions> completions = spec.completions;
    ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                     Channel::Create(std::move(spec)));
    float value[3] = {1, 1, 1};
    if (rank == 1) {
      while (channel->status().ok()) std::this_thread::yield();
      return absl::OkStatus();
    }
    for (float& each : value) {
      ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, &each, &each, 1);
      op.user = 70;
      RETURN_IF_ERROR(channel->Submit(op, CallerStream()).status());
    }
    channel->Abort("enough");
    Completion out[8];
    EXPECT_EQ(completions->Next(out, 0), 3u);
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(out[i].request, i + 1);
      EXPECT_EQ(out[i].user, 70u);
      EXPECT_EQ(out[i].code, absl::StatusCode::kAborted);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_OK(status);
}

TEST_P(ChannelFailureTest, OtherCountsOfOtherRanksAreNamed) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = Run(rig, [](Channel& channel, int rank) {
    float value[8] = {};
    return RunOp(channel,
                 OpOf(COMMSCHED_ALL_REDUCE, value, value, rank == 0 ? 4 : 5));
  });
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Text(status), HasSubstr("#1 all_reduce of the channel"));
  }
}

// ---- Creation ----

TEST_P(ChannelFailureTest, ChannelsThatWaitForEachOtherAreBothNamed) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    return Channel::Create(rig.SpecOf(rank, {0, 1}, rank == 0 ? "dp" : "tp"))
        .status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Text(status),
                AllOf(HasSubstr("creates channel 0 on axis 'dp' of ranks "
                                "[0, 1]"),
                      HasSubstr("creates channel 0 on axis 'tp' of ranks "
                                "[0, 1]")));
  }
}

TEST_P(ChannelFailureTest, OtherRanksOfTheGroupAreNamed) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    return Channel::Create(rig.SpecOf(rank,
                                      rank == 0 ? std::vector<int>{0, 1}
                                                : std::vector<int>{1, 0},
                                      "dp"))
        .status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(Text(status), AllOf(HasSubstr("[0, 1]"), HasSubstr("[1, 0]")));
  }
}

TEST_P(ChannelFailureTest, OtherLimitsAreNamed) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    ChannelSpec spec = rig.Spec(rank);
    spec.max_in_flight = rank == 0 ? 8 : 4;
    return Channel::Create(std::move(spec)).status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 0 has max_in_flight 8"),
                                    HasSubstr("rank 1 has max_in_flight 4")));
  }
}

TEST_P(ChannelFailureTest, AMemberThatCannotTakePartFailsAll) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    ChannelSpec spec = rig.Spec(rank);
    if (rank == 1) spec.max_in_flight = 1000;
    return Channel::Create(std::move(spec)).status();
  });
  EXPECT_THAT(Text(statuses[1]),
              HasSubstr("max_in_flight is 1000, outside 1..64"));
  EXPECT_THAT(Text(statuses[0]),
              AllOf(HasSubstr("rank 1 cannot take part"),
                    HasSubstr("max_in_flight is 1000, outside 1..64")));
}

TEST_P(ChannelFailureTest, AMemberThatDeclinesIsNamed) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    if (rank == 0) return Channel::Create(rig.Spec(rank)).status();
    Channel::Decline(rig.Spec(rank), absl::InvalidArgumentError("no desc"));
    return absl::OkStatus();
  });
  EXPECT_THAT(Text(statuses[0]),
              AllOf(HasSubstr("rank 1"), HasSubstr("no desc")));
}

TEST_P(ChannelFailureTest, WhoDoesNotComeIsNamed) {
  ChannelRig rig(GetParam(), 2);
  const auto statuses = RunRanks(2, [&](int rank) -> absl::Status {
    if (rank == 1) return absl::OkStatus();
    ChannelSpec spec = rig.Spec(rank);
    spec.launch_timeout_ns = kShortNs / 4;
    return Channel::Create(std::move(spec)).status();
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(statuses[0]),
              AllOf(HasSubstr("channel 0 on axis dp of ranks 0,1"),
                    HasSubstr("missing of 2 ranks: 1")));
}

// ---- Who asks ----

TEST_P(ChannelFailureTest, WhoAsksIsToldWhatIsWaitedFor) {
  ChannelRig rig(GetParam(), 2);
  std::atomic<bool> has_asked{false};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    float value = 1;
    const ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1);
    if (rank == 1) {
      while (!has_asked.load()) std::this_thread::yield();
      return RunOp(channel, op);
    }
    ASSIGN_OR_RETURN(const uint64_t request,
                     channel.Submit(op, CallerStream()));
    std::string text;
    while (text.find("has been in flight") == std::string::npos) {
      text = DescribeWaiters();
    }
    EXPECT_THAT(text, HasSubstr("rank 0: channel 0 on axis dp of ranks 0,1: "
                                "launch #1 all_reduce of the channel on axis "
                                "dp has been in flight for 0.0 s"));
    has_asked.store(true);
    return channel.Wait(request, kNoDeadlineNs);
  }));
}

// ---- Arguments ----

struct Wrong {
  std::string name;
  ChannelOp op;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  std::string text;
};

TEST_P(ChannelFailureTest, EachWrongArgumentIsNamedAndChangesNothing) {
  static float memory[16];
  float* const in = memory;
  float* const out = memory + 8;
  const uint64_t three[] = {1, 1, 1};
  const auto with = [](ChannelOp op, auto change) {
    change(&op);
    return op;
  };
  const ChannelOp reduce = OpOf(COMMSCHED_ALL_REDUCE, in, out, 2);
  const std::vector<Wrong> wrongs = {
      {"no input", OpOf(COMMSCHED_ALL_REDUCE, nullptr, out, 2),
       absl::StatusCode::kInvalidArgument, "its input of 8 bytes is NULL"},
      {"overlap", OpOf(COMMSCHED_ALL_REDUCE, in, in + 1, 2),
       absl::StatusCode::kInvalidArgument, "overlap other than in place"},
      {"kind", with(reduce, [](ChannelOp* op) { op->kind = 99; }),
       absl::StatusCode::kInvalidArgument, "collective 99"},
      {"dtype", with(reduce, [](ChannelOp* op) { op->dtype = 99; }),
       absl::StatusCode::kInvalidArgument, "99"},
      {"reduction", with(reduce, [](ChannelOp* op) { op->reduce_op = 99; }),
       absl::StatusCode::kInvalidArgument, "99"},
      {"root",
       with(OpOf(COMMSCHED_BROADCAST, in, out, 2),
            [](ChannelOp* op) { op->peer = 2; }),
       absl::StatusCode::kInvalidArgument,
       "the root is 2, outside the group, 0..1"},
      {"counts",
       with(OpOf(COMMSCHED_ALL_GATHER, in, out, 0),
            [&](ChannelOp* op) { op->counts = three; }),
       absl::StatusCode::kInvalidArgument,
       "num_counts is 3; among 2 ranks it is 0 or 2"},
      {"counts of a kind without parts",
       with(reduce, [&](ChannelOp* op) { op->counts = three; }),
       absl::StatusCode::kInvalidArgument,
       "num_counts is 3, but it has no parts"},
      {"itself", test::SendTo(0, in, 1), absl::StatusCode::kInvalidArgument,
       "the peer is 0, not another rank of the group, 0..1"},
      {"any source", test::ReceiveFrom(kAnyPeer, out, 1),
       absl::StatusCode::kUnimplemented, "COMMSCHED_ANY_PEER"},
      {"tag", test::SendTo(1, in, 1, kFirstOwnTag),
       absl::StatusCode::kInvalidArgument, "the greatest is"},
  };
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    for (const Wrong& wrong : wrongs) {
      if (rank == 1) break;  // They are of rank 0.
      const absl::Status refused =
          channel.Submit(wrong.op, CallerStream()).status();
      EXPECT_EQ(refused.code(), wrong.code) << wrong.name << refused;
      EXPECT_THAT(Text(refused), HasSubstr(wrong.text)) << wrong.name;
    }
    EXPECT_THAT(Text(channel.Test(1).status()),
                HasSubstr("request 1: nothing has been submitted"));
    EXPECT_FALSE(channel.SubmitBatch({}, CallerStream()).ok());
    float value = 1;
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1)));
    EXPECT_EQ(value, 2);
    EXPECT_THAT(Text(channel.Wait(2, 0)),
                HasSubstr("request 2 is not one of the channel's, 1..1"));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace commsched
