// Channels from submit to wait, over inproc and ucx.
#include "channel/channel.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/support/alloc_counter.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ChannelRig;
using test::OpOf;
using test::RunOp;
using testing::ElementsAre;
using testing::HasSubstr;

using Floats = std::vector<float>;

// 10 r, 10 r + 1, ...
Floats Filled(int rank, size_t count) {
  Floats values(count);
  std::iota(values.begin(), values.end(), 10.0F * static_cast<float>(rank));
  return values;
}

class ChannelTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, ChannelTest,
                         testing::ValuesIn(test::Backends()),
                         [](const auto& info) { return info.param; });

// ---- What collectives do ----

TEST_P(ChannelTest, AnAllReduceSumsWhatAllHave) {
  ChannelRig rig(GetParam(), 3);
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    const Floats in = Filled(rank, 2);
    Floats out(2);
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, in.data(), out.data(), 2)));
    EXPECT_THAT(out, ElementsAre(30, 33));
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, CollectivesMayBeInPlace) {
  ChannelRig rig(GetParam(), 3);
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    Floats data = Filled(rank, 2);
    RETURN_IF_ERROR(RunOp(
        channel, OpOf(COMMSCHED_ALL_REDUCE, data.data(), data.data(), 2)));
    EXPECT_THAT(data, ElementsAre(30, 33));
    Floats parts(3, -1);
    parts[static_cast<size_t>(rank)] = static_cast<float>(rank);
    RETURN_IF_ERROR(RunOp(
        channel, OpOf(COMMSCHED_ALL_GATHER, &parts[static_cast<size_t>(rank)],
                      parts.data(), 1)));
    EXPECT_THAT(parts, ElementsAre(0, 1, 2));
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, PartsMayBeEvenOrNot) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    const Floats in = Filled(rank, 4);
    Floats out(2);
    RETURN_IF_ERROR(RunOp(
        channel, OpOf(COMMSCHED_REDUCE_SCATTER, in.data(), out.data(), 2)));
    EXPECT_THAT(out, rank == 0 ? ElementsAre(10, 12) : ElementsAre(14, 16));
    const uint64_t counts[] = {1, 3};
    Floats part(counts[rank]);
    ChannelOp uneven =
        OpOf(COMMSCHED_REDUCE_SCATTER, in.data(), part.data(), 0);
    uneven.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, uneven));
    if (rank == 0) {
      EXPECT_THAT(part, ElementsAre(10));
    } else {
      EXPECT_THAT(part, ElementsAre(12, 14, 16));
    }
    Floats all(4);
    ChannelOp gather = OpOf(COMMSCHED_ALL_GATHER, part.data(), all.data(), 0);
    gather.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, gather));
    EXPECT_THAT(all, ElementsAre(10, 12, 14, 16));
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, RootedCollectivesHaveTheirRoot) {
  ChannelRig rig(GetParam(), 3);
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    Floats data = Filled(rank, 2);
    ChannelOp broadcast =
        OpOf(COMMSCHED_BROADCAST, data.data(), data.data(), 2);
    broadcast.peer = 2;
    RETURN_IF_ERROR(RunOp(channel, broadcast));
    EXPECT_THAT(data, ElementsAre(20, 21));
    Floats sum(2, -1);
    ChannelOp reduce = OpOf(COMMSCHED_REDUCE, data.data(), sum.data(), 2);
    reduce.peer = 1;
    RETURN_IF_ERROR(RunOp(channel, reduce));
    if (rank == 1) {
      EXPECT_THAT(sum, ElementsAre(60, 63));
    }
    return RunOp(channel, OpOf(COMMSCHED_BARRIER, nullptr, nullptr, 0));
  }));
}

TEST_P(ChannelTest, AnAllToAllTellsEachRanksOwnCountsOnly) {
  ChannelRig rig(GetParam(), 3);
  if (!rig.Has(COMMSCHED_BACKEND_OWN_COUNTS)) GTEST_SKIP() << "no own counts";
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    const Floats in = Filled(rank, 3);
    Floats out(3);
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_TO_ALL, in.data(), out.data(), 1)));
    EXPECT_THAT(out, ElementsAre(rank, 10 + rank, 20 + rank));
    // Rank r sends r elements to each, so that it gets 0, 1 and 2.
    const auto each = static_cast<uint64_t>(rank);
    const uint64_t counts[] = {each, each, each, 0, 1, 2};
    const Floats own(3 * each, static_cast<float>(rank));
    ChannelOp uneven = OpOf(COMMSCHED_ALL_TO_ALL, own.data(), out.data(), 0);
    uneven.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, uneven));
    EXPECT_THAT(out, ElementsAre(1, 2, 2));
    return absl::OkStatus();
  }));
}

// ---- Types ----

TEST_P(ChannelTest, EveryTypeTravels) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    for (int i = 0; i < kNumDTypes; ++i) {
      constexpr uint64_t kCount = 3;
      const uint64_t bytes = kCount * DTypeSize(static_cast<DType>(i));
      std::vector<char> in(bytes, static_cast<char>(rank + 1));
      std::vector<char> out(2 * bytes);
      ChannelOp op = OpOf(COMMSCHED_ALL_GATHER, in.data(), out.data(), kCount);
      op.dtype = static_cast<commsched_dtype_t>(i);
      RETURN_IF_ERROR(RunOp(channel, op));
      EXPECT_EQ(out.front(), 1) << "dtype " << i;
      EXPECT_EQ(out[bytes], 2) << "dtype " << i;
      EXPECT_EQ(out.back(), 2) << "dtype " << i;
    }
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, TypesAreReducedAsTheyShould) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    const auto reduce = [&](void* data, commsched_dtype_t dtype,
                            commsched_reduce_op_t by, double scale = 0) {
      ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, data, data, 1);
      op.dtype = dtype;
      op.reduce_op = by;
      op.scale = scale;
      return RunOp(channel, op);
    };
    char truth = rank == 0 ? 2 : 0;
    RETURN_IF_ERROR(reduce(&truth, COMMSCHED_BOOL, COMMSCHED_SUM));
    EXPECT_NE(truth, 0);
    float complex[2] = {1, static_cast<float>(rank)};
    RETURN_IF_ERROR(reduce(complex, COMMSCHED_C64, COMMSCHED_SUM));
    EXPECT_EQ(complex[0], 2);
    EXPECT_EQ(complex[1], 1);
    uint16_t bits = rank == 0 ? 0x0ff0 : 0x00ff;
    RETURN_IF_ERROR(reduce(&bits, COMMSCHED_U16, COMMSCHED_BAND));
    EXPECT_EQ(bits, 0x00f0);
    float scaled = static_cast<float>(rank + 1);
    RETURN_IF_ERROR(reduce(&scaled, COMMSCHED_F32, COMMSCHED_PREMUL_SUM, 0.5));
    EXPECT_EQ(scaled, 1.5);
    const absl::Status refused =
        reduce(&truth, COMMSCHED_F8_E4M3, COMMSCHED_SUM);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("all_reduce: dtype f8_e4m3 is not reduced by sum"));
    return absl::OkStatus();
  }));
}

// ---- Requests ----

TEST_P(ChannelTest, SubmitsWaitForNoPeer) {
  ChannelRig rig(GetParam(), 2);
  std::atomic<bool> all_submitted{false};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    constexpr size_t kMany = 300;  // More than may be in flight.
    Floats data(kMany, 1);
    if (rank == 1) {
      while (!all_submitted.load()) std::this_thread::yield();
    }
    uint64_t last = 0;
    for (float& value : data) {
      ASSIGN_OR_RETURN(
          last, channel.Submit(OpOf(COMMSCHED_ALL_REDUCE, &value, &value, 1),
                               CallerStream()));
    }
    if (rank == 0) all_submitted.store(true);
    RETURN_IF_ERROR(channel.Wait(last, kNoDeadlineNs));
    EXPECT_EQ(data, Floats(kMany, 2));
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, AnyThreadSubmitsAndAnyOtherWaits) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(rig.Run([](Channel& channel, int /*rank*/) -> absl::Status {
    Floats data(1, 1);
    absl::StatusOr<uint64_t> request = absl::UnknownError("not submitted");
    std::thread submitter([&] {
      request = channel.Submit(
          OpOf(COMMSCHED_ALL_REDUCE, data.data(), data.data(), 1),
          CallerStream());
    });
    submitter.join();
    RETURN_IF_ERROR(request.status());
    absl::Status waited[2];
    std::thread other(
        [&] { waited[0] = channel.Wait(*request, kNoDeadlineNs); });
    waited[1] = channel.Wait(*request, kNoDeadlineNs);
    other.join();
    RETURN_IF_ERROR(waited[0]);
    RETURN_IF_ERROR(waited[1]);
    EXPECT_EQ(data[0], 2);
    ASSIGN_OR_RETURN(const bool done, channel.Test(*request));
    EXPECT_TRUE(done);
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, AWaitThatGivesUpChangesNothing) {
  ChannelRig rig(GetParam(), 2);
  std::atomic<bool> gave_up{false};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    if (rank == 1) {
      while (!gave_up.load()) std::this_thread::yield();
    }
    Floats data(1, 1);
    ASSIGN_OR_RETURN(
        const uint64_t request,
        channel.Submit(OpOf(COMMSCHED_ALL_REDUCE, data.data(), data.data(), 1),
                       CallerStream()));
    if (rank == 0) {
      const absl::Status early = channel.Wait(request, 1'000'000);
      EXPECT_EQ(early.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(std::string(early.message()),
                  HasSubstr("request 1 of channel 0 on axis dp of ranks 0,1 "
                            "has not finished after 1 ms"));
      ASSIGN_OR_RETURN(const bool done, channel.Test(request));
      EXPECT_FALSE(done);
      gave_up.store(true);
    }
    RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
    EXPECT_EQ(data[0], 2);
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, ARequestIsBehindTheWorkOfItsStream) {
  ChannelRig rig(GetParam(), 2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<HostStream> stream,
                     HostStream::Create("worker", 16));
    ASSIGN_OR_RETURN(const std::unique_ptr<Channel> channel,
                     Channel::Create(rig.Spec(rank)));
    struct Work {
      std::atomic<bool> may_write{false};
      float in = 0;
      float out = 0;
      float seen = 0;
    } work;
    stream->Enqueue(
        [](void* user) {
          auto* const self = static_cast<Work*>(user);
          while (!self->may_write.load()) std::this_thread::yield();
          self->in = 5;
        },
        &work);
    ASSIGN_OR_RETURN(
        const uint64_t request,
        channel->Submit(OpOf(COMMSCHED_ALL_REDUCE, &work.in, &work.out, 1),
                        stream.get()));
    RETURN_IF_ERROR(channel->Before(request, stream.get()));
    stream->Enqueue(
        [](void* user) {
          auto* const self = static_cast<Work*>(user);
          self->seen = self->out;
        },
        &work);
    work.may_write.store(true);
    stream->Synchronize();
    EXPECT_EQ(work.seen, 10) << "on rank " << rank;
    return channel->Wait(request, kNoDeadlineNs);
  }));
}

TEST_P(ChannelTest, AShapeNoLargerThanOneSeenAllocatesNothing) {
  ChannelRig rig(GetParam(), 2);
  std::atomic<int> num_warm{0};
  std::atomic<uint64_t> before{0};
  std::atomic<int> num_done{0};
  std::atomic<uint64_t> after{0};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    Floats data(4096, 1);
    const auto round = [&](uint64_t count) -> absl::Status {
      uint64_t last = 0;
      for (int i = 0; i < 8; ++i) {
        float* const at = data.data() + 512 * i;
        ASSIGN_OR_RETURN(
            last, channel.Submit(OpOf(COMMSCHED_ALL_REDUCE, at, at, count),
                                 CallerStream()));
      }
      return channel.Wait(last, kNoDeadlineNs);
    };
    for (int i = 0; i < 50; ++i) RETURN_IF_ERROR(round(512));
    // Nobody allocates between the two.
    if (num_warm.fetch_add(1) == 1) before.store(HeapAllocations());
    while (before.load() == 0) std::this_thread::yield();
    for (uint64_t count = 1; count <= 512; count *= 2) {
      RETURN_IF_ERROR(round(count));
    }
    if (num_done.fetch_add(1) == 1) after.store(HeapAllocations());
    while (after.load() == 0) std::this_thread::yield();
    EXPECT_EQ(channel.totals().shapes, 1u) << "on rank " << rank;
    return absl::OkStatus();
  }));
  EXPECT_EQ(after.load(), before.load());
}

// ---- Sends and receives ----

TEST_P(ChannelTest, ARingMaySendFirstOnAllRanks) {
  ChannelRig rig(GetParam(), 3);
  if (!rig.Has(COMMSCHED_BACKEND_TAGS)) GTEST_SKIP() << "no tags";
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    const auto own = static_cast<float>(rank);
    float got = -1;
    ASSIGN_OR_RETURN(
        const uint64_t sent,
        channel.Submit(test::SendTo((rank + 1) % 3, &own, 1), CallerStream()));
    ASSIGN_OR_RETURN(const uint64_t received,
                     channel.Submit(test::ReceiveFrom((rank + 2) % 3, &got, 1),
                                    CallerStream()));
    RETURN_IF_ERROR(channel.Wait(received, kNoDeadlineNs));
    RETURN_IF_ERROR(channel.Wait(sent, kNoDeadlineNs));
    EXPECT_EQ(got, static_cast<float>((rank + 2) % 3));
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, AReceiveThatWaitsHoldsNothingUp) {
  ChannelRig rig(GetParam(), 2);
  if (!rig.Has(COMMSCHED_BACKEND_TAGS)) GTEST_SKIP() << "no tags";
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    float value = rank == 0 ? -1 : 7;
    float sum = 1;
    uint64_t received = 0;
    if (rank == 0) {
      ASSIGN_OR_RETURN(
          received,
          channel.Submit(test::ReceiveFrom(1, &value, 1, 3), CallerStream()));
    }
    RETURN_IF_ERROR(RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, &sum, &sum, 1)));
    EXPECT_EQ(sum, 2);
    if (rank == 1) return RunOp(channel, test::SendTo(0, &value, 1, 3));
    RETURN_IF_ERROR(channel.Wait(received, kNoDeadlineNs));
    EXPECT_EQ(value, 7);
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, MessagesAreMatchedByTheirTag) {
  ChannelRig rig(GetParam(), 2);
  if (!rig.Has(COMMSCHED_BACKEND_TAGS)) GTEST_SKIP() << "no tags";
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    const Floats values = {1, 2, 3};
    if (rank == 0) {
      std::vector<uint64_t> requests;
      for (uint64_t tag : {5, 6, 5, 9}) {
        const size_t value = tag == 5 ? 0 : tag == 6 ? 1 : 2;
        ASSIGN_OR_RETURN(const uint64_t request,
                         channel.Submit(test::SendTo(1, &values[value], 1, tag),
                                        CallerStream()));
        requests.push_back(request);
      }
      for (uint64_t request : requests) {
        RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
      }
      return absl::OkStatus();
    }
    Floats got(4);
    RETURN_IF_ERROR(RunOp(channel, test::ReceiveFrom(0, &got[0], 1, 9)));
    RETURN_IF_ERROR(RunOp(channel, test::ReceiveFrom(0, &got[1], 1, 6)));
    RETURN_IF_ERROR(RunOp(channel, test::ReceiveFrom(0, &got[2], 1, 5)));
    RETURN_IF_ERROR(RunOp(channel, test::ReceiveFrom(0, &got[3], 1, 5)));
    EXPECT_THAT(got, ElementsAre(3, 2, 1, 1));
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, ABatchFinishesOnceAllOfItHas) {
  ChannelRig rig(GetParam(), 2);
  if (!rig.Has(COMMSCHED_BACKEND_TAGS)) GTEST_SKIP() << "no tags";
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    const Floats out = Filled(rank, 2);
    Floats in(2, -1);
    const int peer = 1 - rank;
    const ChannelOp ops[] = {test::SendTo(peer, &out[0], 1, 1),
                             test::SendTo(peer, &out[1], 1, 2),
                             test::ReceiveFrom(peer, &in[0], 1, 2),
                             test::ReceiveFrom(peer, &in[1], 1, 1)};
    ASSIGN_OR_RETURN(const uint64_t request,
                     channel.SubmitBatch(ops, CallerStream()));
    RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
    EXPECT_THAT(in, ElementsAre(10 * peer + 1, 10 * peer));
    return absl::OkStatus();
  }));
}

TEST_P(ChannelTest, GathersAndScattersHaveEvenPartsOrNot) {
  ChannelRig rig(GetParam(), 3);
  if (!rig.Has(COMMSCHED_BACKEND_TAGS)) GTEST_SKIP() << "no tags";
  EXPECT_OK(rig.Run([](Channel& channel, int rank) -> absl::Status {
    constexpr int kRoot = 1;
    const auto own = static_cast<float>(rank);
    Floats all(3, -1);
    ChannelOp gather = OpOf(kGather, &own, all.data(), 1);
    gather.peer = kRoot;
    RETURN_IF_ERROR(RunOp(channel, gather));
    if (rank == kRoot) {
      EXPECT_THAT(all, ElementsAre(0, 1, 2));
    }
    const uint64_t counts[] = {2, 1, 3};
    const Floats parts = {1, 2, 3, 4, 5, 6};
    Floats part(counts[rank]);
    ChannelOp scatter = OpOf(kScatter, parts.data(), part.data(), 0);
    scatter.peer = kRoot;
    scatter.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, scatter));
    if (rank == 0) {
      EXPECT_THAT(part, ElementsAre(1, 2));
    }
    if (rank == 1) {
      EXPECT_THAT(part, ElementsAre(3));
    }
    if (rank == 2) {
      EXPECT_THAT(part, ElementsAre(4, 5, 6));
    }
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace commsched
