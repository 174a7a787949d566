// Many channels of a rank, beside each other and beside sessions.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "channel/channel.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/session/bucket_graph.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ChannelRig;
using test::OpOf;
using test::RunOp;

class ChannelServiceTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, ChannelServiceTest,
                         testing::ValuesIn(test::Backends()),
                         [](const auto& info) { return info.param; });

// Ten groups of four ranks, and of each what it is called.
const std::vector<std::pair<std::string, std::vector<int>>>& TenGroups() {
  static const auto* const groups =
      new std::vector<std::pair<std::string, std::vector<int>>>{
          {"dp", {0, 1, 2, 3}}, {"ep", {3, 2, 1, 0}}, {"tp", {0, 1}},
          {"tp", {2, 3}},       {"pp", {0, 2}},       {"pp", {1, 3}},
          {"cp", {0, 3}},       {"cp", {1, 2}},       {"sp", {0, 1, 2}},
          {"sp", {3}}};
  return *groups;
}

bool IsMember(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

TEST_P(ChannelServiceTest, OneThreadServesTenGroups) {
  constexpr int kRounds = 40;
  ChannelRig rig(GetParam(), 4);
  EXPECT_OK(RunAllRanks(4, [&](int rank) -> absl::Status {
    const auto completions = std::make_shared<Completions>(1024);
    std::map<uint64_t, std::unique_ptr<Channel>> channels;
    for (uint64_t g = 0; g < TenGroups().size(); ++g) {
      const auto& [axis, ranks] = TenGroups()[g];
      if (!IsMember(ranks, rank)) continue;
      ChannelSpec spec = rig.SpecOf(rank, ranks, axis);
      spec.completions = completions;
      spec.key = g;
      ASSIGN_OR_RETURN(channels[g], Channel::Create(std::move(spec)));
    }
    std::map<uint64_t, std::array<float, kRounds>> sums;
    absl::Status submitted;
    std::thread submitter([&] {
      for (int round = 0; round < kRounds; ++round) {
        for (auto& [g, channel] : channels) {
          float* const at = &sums[g][static_cast<size_t>(round)];
          *at = static_cast<float>(round + 1);
          ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, at, at, 1);
          op.user = static_cast<uint64_t>(round);
          submitted.Update(channel->Submit(op, CallerStream()).status());
        }
      }
    });
    const size_t expected = channels.size() * kRounds;
    size_t num_taken = 0;
    std::map<uint64_t, uint64_t> next;  // Of a channel: its next round.
    while (num_taken < expected) {
      Completion out[16];
      const size_t count =
          completions->Next(absl::MakeSpan(out), kNoDeadlineNs);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(out[i].code, absl::StatusCode::kOk);
        EXPECT_EQ(out[i].user, next[out[i].key]++);
        EXPECT_EQ(out[i].request, next[out[i].key]);
      }
      num_taken += count;
    }
    submitter.join();
    for (const auto& [g, values] : sums) {
      const auto size = static_cast<float>(TenGroups()[g].second.size());
      for (size_t round = 0; round < kRounds; ++round) {
        EXPECT_EQ(values[round], size * static_cast<float>(round + 1));
      }
    }
    return submitted;
  }));
}

TEST_P(ChannelServiceTest, ASubmitWithoutRoomForItsCompletionIsRefused) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    ChannelSpec spec = rig.Spec(rank);
    spec.completions = std::make_shared<Completions>(1);
    const std::shared_ptr<Completions> completions = spec.completions;
    ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                     Channel::Create(std::move(spec)));
    float value = 1;
    const ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1);
    RETURN_IF_ERROR(RunOp(*channel, op));
    EXPECT_EQ(channel->Submit(op, CallerStream()).status().code(),
              absl::StatusCode::kResourceExhausted);
    Completion out[1];
    EXPECT_EQ(completions->Next(out, 0), 1u);
    RETURN_IF_ERROR(RunOp(*channel, op));
    EXPECT_EQ(value, 4);
    return absl::OkStatus();
  }));
}

// As of a synchronised batch norm in the middle of a backward pass.
TEST_P(ChannelServiceTest, ASessionAndAChannelGoOnBesideEachOther) {
  constexpr int kSize = 2;
  constexpr int kSteps = 20;
  const test::BucketGraph made = test::MakeBuckets(kSize, 3, 1000);
  ChannelRig rig(GetParam(), kSize);
  std::vector<std::shared_ptr<World>> worlds;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == 0 || rig.WorldOf(rank) != worlds[0]) {
      worlds.push_back(rig.WorldOf(rank));
    }
  }
  test::SessionRig sessions(std::move(worlds), made.graph, {});
  EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                     Session::Create(sessions.Spec(rank)));
    ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                     Channel::Create(rig.Spec(rank)));
    for (int step = 0; step < kSteps; ++step) {
      RETURN_IF_ERROR(session->StepBegin());
      for (size_t i = 0; i < made.backward.size(); ++i) {
        RETURN_IF_ERROR(session->Before(made.backward[i], CallerStream()));
        float mean = static_cast<float>(rank);
        RETURN_IF_ERROR(
            RunOp(*channel, OpOf(COMMSCHED_ALL_REDUCE, &mean, &mean, 1)));
        EXPECT_EQ(mean, 1);
        sessions.Memory(rank, made.gradient[i])[0] = mean;
        RETURN_IF_ERROR(session->After(made.backward[i], CallerStream()));
      }
      for (OpId op : made.use) RETURN_IF_ERROR(test::Call(*session, op));
      RETURN_IF_ERROR(session->StepEnd());
      for (BufferId gradient : made.gradient) {
        EXPECT_EQ(sessions.Memory(rank, gradient)[0], 2);
      }
    }
    return session->Drain();
  }));
}

TEST_P(ChannelServiceTest, AChannelIsMadeAgainAfterItsEnd) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    for (uint64_t number = 0; number < 5; ++number) {
      ChannelSpec spec = rig.Spec(rank);
      spec.number = number;
      ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                       Channel::Create(std::move(spec)));
      float value = 1;
      RETURN_IF_ERROR(
          RunOp(*channel, OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1)));
      EXPECT_EQ(value, 2);
    }
    return absl::OkStatus();
  }));
}

// The end of a channel waits for what was submitted.
TEST_P(ChannelServiceTest, WhatWasSubmittedIsDoneWhenItsChannelEnds) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    std::vector<float> data(100, 1);
    {
      ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                       Channel::Create(rig.Spec(rank)));
      for (float& value : data) {
        RETURN_IF_ERROR(
            channel
                ->Submit(OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1),
                         CallerStream())
                .status());
      }
    }
    EXPECT_EQ(data, std::vector<float>(100, 2));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace commsched
