// Channels on devices, from submit to wait.
#include <algorithm>
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
#include "device/device_counters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/device_channels.h"
#include "test/cuda/reduction_step.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/alloc_counter.h"
#include "test/support/await.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

using test::DeviceChannels;
using test::DeviceFloats;
using test::OnDevice;
using test::OpOf;
using test::ReceiveFrom;
using test::RunOp;
using test::SendTo;
using testing::ElementsAre;

using Floats = std::vector<float>;

// 10 r, 10 r + 1, ...
Floats Filled(int rank, size_t count) {
  Floats values(count);
  std::iota(values.begin(), values.end(), 10.0F * static_cast<float>(rank));
  return values;
}

ChannelOp Rooted(commsched_collective_t kind, int root, const void* input,
                 void* output, uint64_t count) {
  ChannelOp op = OpOf(kind, input, output, count);
  op.peer = root;
  return op;
}

// ---- What collectives do ----

TEST(CudaChannelTest, CollectivesDoWhatTheyShould) {
  DeviceChannels rig(3);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    const DeviceFloats in(rig.device(rank), Filled(rank, 3));
    DeviceFloats out(rig.device(rank), Floats(9));
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, in.at(), out.at(), 3)));
    Floats sums = out.Get();
    sums.resize(3);
    EXPECT_THAT(sums, ElementsAre(30, 33, 36));
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_GATHER, in.at(), out.at(), 3)));
    EXPECT_THAT(out.Get(), ElementsAre(0, 1, 2, 10, 11, 12, 20, 21, 22));
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_REDUCE_SCATTER, in.at(), out.at(), 1)));
    EXPECT_EQ(out.Get()[0], static_cast<float>(30 + 3 * rank));
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_TO_ALL, in.at(), out.at(), 1)));
    for (int from = 0; from < 3; ++from) {
      EXPECT_EQ(out.Get()[static_cast<size_t>(from)],
                static_cast<float>(10 * from + rank));
    }
    RETURN_IF_ERROR(
        RunOp(channel, Rooted(COMMSCHED_BROADCAST, 2, in.at(), out.at(), 3)));
    EXPECT_EQ(out.Get()[1], 21);
    RETURN_IF_ERROR(
        RunOp(channel, Rooted(COMMSCHED_REDUCE, 1, in.at(), out.at(), 3)));
    EXPECT_EQ(out.Get()[1], rank == 1 ? 33 : 21);
    return RunOp(channel, OpOf(COMMSCHED_BARRIER, nullptr, nullptr, 0));
  }));
}

TEST(CudaChannelTest, CollectivesMayBeInPlace) {
  DeviceChannels rig(2);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    DeviceFloats data(rig.device(rank), Filled(rank, 2));
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 2)));
    EXPECT_THAT(data.Get(), ElementsAre(10, 12));
    data.Set({static_cast<float>(rank), static_cast<float>(rank)});
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_GATHER,
                            data.at(static_cast<size_t>(rank)), data.at(), 1)));
    EXPECT_THAT(data.Get(), ElementsAre(0, 1));
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, PartsMayBeUneven) {
  DeviceChannels rig(2);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    const DeviceFloats in(rig.device(rank), Filled(rank, 4));
    const uint64_t counts[] = {1, 3};
    DeviceFloats part(rig.device(rank), Floats(counts[rank]));
    ChannelOp op = OpOf(COMMSCHED_REDUCE_SCATTER, in.at(), part.at(), 0);
    op.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, op));
    DeviceFloats all(rig.device(rank), Floats(4));
    op = OpOf(COMMSCHED_ALL_GATHER, part.at(), all.at(), 0);
    op.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, op));
    EXPECT_THAT(all.Get(), ElementsAre(10, 12, 14, 16));
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, AnAllToAllTellsEachRanksOwnCountsOnly) {
  DeviceChannels rig(3);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    // Rank r sends r elements to each, so that it gets 0, 1 and 2.
    const auto each = static_cast<uint64_t>(rank);
    const uint64_t counts[] = {each, each, each, 0, 1, 2};
    const DeviceFloats own(rig.device(rank),
                           Floats(7, static_cast<float>(rank)));
    DeviceFloats out(rig.device(rank), Floats(3));
    ChannelOp op = OpOf(COMMSCHED_ALL_TO_ALL, own.at(), out.at(), 0);
    op.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, op));
    EXPECT_THAT(out.Get(), ElementsAre(1, 2, 2));
    const uint64_t other[] = {each, each, each, 9, 9, 9};
    op.counts = other;
    EXPECT_THAT(RunOp(channel, op), StatusIs(absl::StatusCode::kInvalidArgument,
                                             "elements to itself, and get 9"));
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, GathersAndScattersHaveTheirRoot) {
  DeviceChannels rig(3);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    const DeviceFloats in(rig.device(rank), Filled(rank, 6));
    DeviceFloats out(rig.device(rank), Floats(6, -1));
    RETURN_IF_ERROR(RunOp(channel, Rooted(kGather, 1, in.at(), out.at(), 2)));
    if (rank == 1) {
      EXPECT_THAT(out.Get(), ElementsAre(0, 1, 10, 11, 20, 21));
    } else {
      EXPECT_EQ(out.Get()[0], -1);
    }
    const uint64_t counts[] = {1, 2, 3};
    ChannelOp op = Rooted(kScatter, 2, in.at(), out.at(), 0);
    op.counts = counts;
    RETURN_IF_ERROR(RunOp(channel, op));
    EXPECT_EQ(out.Get()[0], (Floats{20, 21, 23})[static_cast<size_t>(rank)]);
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, EveryTypeTravels) {
  DeviceChannels rig(2);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    for (int i = 0; i < kNumDTypes; ++i) {
      constexpr uint64_t kCount = 3;
      const uint64_t bytes = kCount * DTypeSize(static_cast<DType>(i));
      const OnDevice<char> in(
          rig.device(rank),
          std::vector<char>(bytes, static_cast<char>(rank + 1)));
      OnDevice<char> out(rig.device(rank), std::vector<char>(2 * bytes));
      ChannelOp op = OpOf(COMMSCHED_ALL_GATHER, in.at(), out.at(), kCount);
      op.dtype = static_cast<commsched_dtype_t>(i);
      RETURN_IF_ERROR(RunOp(channel, op));
      EXPECT_EQ(out.Get().front(), 1) << "dtype " << i;
      EXPECT_EQ(out.Get()[bytes], 2) << "dtype " << i;
    }
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, TypesAreReducedAsTheyShould) {
  DeviceChannels rig(2);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    const auto reduce = [&](void* data, commsched_dtype_t dtype,
                            commsched_reduce_op_t by, double scale = 0) {
      ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, data, data, 1);
      op.dtype = dtype;
      op.reduce_op = by;
      op.scale = scale;
      return RunOp(channel, op);
    };
    OnDevice<char> truth(rig.device(rank), {rank == 0 ? char{2} : char{0}});
    RETURN_IF_ERROR(reduce(truth.at(), COMMSCHED_BOOL, COMMSCHED_SUM));
    EXPECT_NE(truth.Get()[0], 0);
    DeviceFloats complex(rig.device(rank), {1, static_cast<float>(rank)});
    RETURN_IF_ERROR(reduce(complex.at(), COMMSCHED_C64, COMMSCHED_SUM));
    EXPECT_THAT(complex.Get(), ElementsAre(2, 1));
    DeviceFloats scaled(rig.device(rank), {static_cast<float>(rank + 1)});
    RETURN_IF_ERROR(
        reduce(scaled.at(), COMMSCHED_F32, COMMSCHED_PREMUL_SUM, 0.5));
    EXPECT_EQ(scaled.Get()[0], 1.5);
    EXPECT_THAT(reduce(complex.at(), COMMSCHED_I32, COMMSCHED_BAND),
                StatusIs(absl::StatusCode::kUnimplemented,
                         "all_reduce: backend 'nccl' does not reduce by band"));
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, ASumMayBeInTheOrderOfTheTree) {
  DeviceChannels rig(3);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    // Lost, but where ranks 0 and 1 are added first.
    const Floats values = {1e8F, -1e8F, 1};
    DeviceFloats data(rig.device(rank), {values[static_cast<size_t>(rank)]});
    ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1);
    op.deterministic = true;
    RETURN_IF_ERROR(RunOp(channel, op));
    EXPECT_EQ(data.Get()[0], 1);
    return absl::OkStatus();
  }));
}

// ---- Requests and streams ----

TEST(CudaChannelTest, SubmitsWaitForNoPeer) {
  DeviceChannels rig(2);
  std::atomic<bool> all_submitted{false};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    constexpr size_t kMany = 300;  // More than may be in flight.
    DeviceFloats data(rig.device(rank), Floats(kMany, 1));
    if (rank == 1) {
      EXPECT_TRUE(test::Await([&] { return all_submitted.load(); }));
    }
    uint64_t last = 0;
    for (size_t i = 0; i < kMany; ++i) {
      ASSIGN_OR_RETURN(last, channel.Submit(OpOf(COMMSCHED_ALL_REDUCE,
                                                 data.at(i), data.at(i), 1),
                                            CallerStream()));
    }
    if (rank == 0) all_submitted.store(true);
    RETURN_IF_ERROR(channel.Wait(last, kNoDeadlineNs));
    EXPECT_EQ(data.Get(), Floats(kMany, 2));
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, AWaitThatGivesUpChangesNothing) {
  DeviceChannels rig(2);
  std::atomic<bool> gave_up{false};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    if (rank == 1) {
      EXPECT_TRUE(test::Await([&] { return gave_up.load(); }));
    }
    DeviceFloats data(rig.device(rank), {1});
    ASSIGN_OR_RETURN(
        const uint64_t request,
        channel.Submit(OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1),
                       CallerStream()));
    if (rank == 0) {
      EXPECT_EQ(channel.Wait(request, 1'000'000).code(),
                absl::StatusCode::kDeadlineExceeded);
      ASSIGN_OR_RETURN(const bool done, channel.Test(request));
      EXPECT_FALSE(done);
      gave_up.store(true);
    }
    RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
    EXPECT_EQ(data.Get()[0], 2);
    return absl::OkStatus();
  }));
}

// Neither host waits: the streams do.
TEST(CudaChannelTest, ARequestIsBehindTheWorkOfItsStreamAndBeforeThatOfOthers) {
  DeviceChannels rig(2);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto writes, rig.device(rank)->CreateSideStream());
    ASSIGN_OR_RETURN(const auto reads, rig.device(rank)->CreateSideStream());
    DeviceFloats data(rig.device(rank), {1});
    std::atomic<bool> may_write{false};
    std::atomic<float> seen{0};
    test::RunOn(writes.get(), [&] {
      EXPECT_TRUE(test::Await([&] { return may_write.load(); }));
      test::Peek(data.at())[0] = 5;
    });
    ASSIGN_OR_RETURN(
        const uint64_t request,
        channel.Submit(OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1),
                       writes.get()));
    RETURN_IF_ERROR(channel.Before(request, reads.get()));
    test::RunOn(reads.get(), [&] { seen.store(test::Peek(data.at())[0]); });
    // All have launched: one that ran before its data was written would end.
    RETURN_IF_ERROR(rig.Meet(rank, "launched"));
    EXPECT_EQ(channel.Wait(request, 20'000'000).code(),
              absl::StatusCode::kDeadlineExceeded);
    may_write.store(true);
    reads->Synchronize();
    EXPECT_EQ(seen.load(), 10);
    return channel.Wait(request, kNoDeadlineNs);
  }));
}

TEST(CudaChannelTest, CompletionsComeByThemselves) {
  constexpr uint64_t kMany = 40;
  DeviceChannels rig(2);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    const auto completions = std::make_shared<Completions>(kMany);
    std::unique_ptr<Channel> channels[2];
    for (uint64_t key : {0, 1}) {
      ChannelSpec spec = rig.Spec(rank, key == 0 ? "dp" : "tp");
      spec.completions = completions;
      spec.key = key;
      ASSIGN_OR_RETURN(channels[key], Channel::Create(std::move(spec)));
    }
    DeviceFloats data(rig.device(rank), Floats(kMany, 1));
    for (uint64_t i = 0; i < kMany; ++i) {
      ChannelOp op = OpOf(COMMSCHED_ALL_REDUCE, data.at(i), data.at(i), 1);
      op.user = i;
      RETURN_IF_ERROR(channels[i % 2]->Submit(op, CallerStream()).status());
    }
    uint64_t next[2] = {0, 1};
    for (uint64_t taken = 0; taken < kMany;) {
      Completion out[8];
      const size_t count =
          completions->Next(absl::MakeSpan(out), kNoDeadlineNs);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(out[i].code, absl::StatusCode::kOk);
        EXPECT_EQ(out[i].user, next[out[i].key]);
        next[out[i].key] += 2;
      }
      taken += count;
    }
    EXPECT_EQ(data.Get(), Floats(kMany, 2));
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, WhatIsNotOnTheDeviceIsRefusedByName) {
  DeviceChannels rig(2);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    float on_host = 1;
    DeviceFloats data(rig.device(rank), {1});
    DeviceFloats elsewhere(rig.device(1 - rank), {1});
    const auto submit = [&](const void* input, void* output, Stream* stream) {
      return channel
          .Submit(OpOf(COMMSCHED_ALL_REDUCE, input, output, 1), stream)
          .status();
    };
    EXPECT_THAT(
        submit(&on_host, data.at(), CallerStream()),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("all_reduce: its input is not memory of CUDA "
                              "device ",
                              rank, " but of the host")));
    EXPECT_THAT(submit(data.at(), elsewhere.at(), CallerStream()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("all_reduce: its output is not memory of "
                                      "CUDA device ",
                                      rank, " but of device ", 1 - rank)));
    ASSIGN_OR_RETURN(const std::unique_ptr<HostStream> worker,
                     HostStream::Create("worker", 16));
    EXPECT_THAT(submit(data.at(), data.at(), worker.get()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "the stream is a HOST stream, but backend 'nccl' "
                         "works on CUDA device"));
    EXPECT_THAT(
        channel.Submit(ReceiveFrom(kAnyPeer, data.at(), 1), CallerStream())
            .status(),
        StatusIs(absl::StatusCode::kUnimplemented,
                 "recv: the peer is COMMSCHED_ANY_PEER"));
    EXPECT_THAT(
        channel
            .Submit(SendTo(1 - rank, data.at(), 1, /*tag=*/5), CallerStream())
            .status(),
        StatusIs(absl::StatusCode::kUnimplemented,
                 "send: the tag is 5; backend 'nccl' matches"));
    // Nothing of it was submitted.
    return RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1));
  }));
}

TEST(CudaChannelTest, ASteadyChannelMakesNothingOnTheDevice) {
  constexpr size_t kMany = 64;  // As many as may be under way.
  DeviceChannels rig(2);
  std::atomic<uint64_t> before{0};
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    const auto completions = std::make_shared<Completions>(kMany);
    ChannelSpec spec = rig.Spec(rank);
    spec.completions = completions;
    ASSIGN_OR_RETURN(const auto channel, Channel::Create(std::move(spec)));
    DeviceFloats data(rig.device(rank), Floats(kMany, 1));
    // All of a round have finished before the next one begins.
    const auto round = [&]() -> absl::Status {
      for (size_t i = 0; i < kMany; ++i) {
        RETURN_IF_ERROR(
            channel
                ->Submit(OpOf(COMMSCHED_ALL_REDUCE, data.at(i), data.at(i), 1),
                         CallerStream())
                .status());
      }
      Completion out[kMany];
      for (size_t taken = 0; taken < kMany;) {
        taken += completions->Next(absl::MakeSpan(out), kNoDeadlineNs);
      }
      return absl::OkStatus();
    };
    const auto made = [] {
      return GlobalDeviceCounters().events_created.load() +
             fake_gpu_allocated_bytes();
    };
    RETURN_IF_ERROR(round());
    RETURN_IF_ERROR(rig.Meet(rank, "warm"));
    if (rank == 0) before = made();
    RETURN_IF_ERROR(rig.Meet(rank, "counted"));
    for (int i = 0; i < 10; ++i) RETURN_IF_ERROR(round());
    RETURN_IF_ERROR(rig.Meet(rank, "steady"));
    if (rank == 0) {
      EXPECT_EQ(made(), before.load());
    }
    return rig.Meet(rank, "compared");
  }));
}

// The stand-ins do nothing meanwhile, so that what is left is the library's.
TEST(CudaChannelTest, ASteadyChannelAllocatesNothing) {
  DeviceChannels rig(2);
  std::atomic<bool> is_idle{false};
  std::atomic<uint64_t> before{0};
  std::atomic<uint64_t> after{0};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    DeviceFloats data(rig.device(rank), Floats(64, 1));
    const auto round = [&]() -> absl::Status {
      uint64_t last = 0;
      for (size_t i = 0; i < 16; ++i) {
        ASSIGN_OR_RETURN(last, channel.Submit(OpOf(COMMSCHED_ALL_REDUCE,
                                                   data.at(i), data.at(i), 1),
                                              CallerStream()));
      }
      return channel.Wait(last, kNoDeadlineNs);
    };
    for (int i = 0; i < 20; ++i) RETURN_IF_ERROR(round());
    RETURN_IF_ERROR(rig.Meet(rank, "warm"));
    if (rank == 1) {
      is_idle = true;
      EXPECT_TRUE(test::Await([&] { return after.load() != 0; }));
      return rig.Meet(rank, "compared");
    }
    EXPECT_TRUE(test::Await([&] { return is_idle.load(); }));
    fake_gpu_null(1);
    absl::Status status = round();
    // More is made, once, where the thread that looks at events gets no core.
    uint64_t first = 0;
    uint64_t last = 1;
    for (int tries = 0; tries < 10 && first != last; ++tries) {
      first = HeapAllocations();
      for (int i = 0; i < 100 && status.ok(); ++i) status = round();
      last = HeapAllocations();
    }
    before = first;
    after = last;
    fake_gpu_null(0);
    EXPECT_OK(status);
    return rig.Meet(rank, "compared");
  }));
  EXPECT_EQ(after.load(), before.load());
}

// ---- Sends and receives ----

TEST(CudaChannelTest, ASendMeetsItsReceive) {
  DeviceChannels rig(3);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    DeviceFloats data(rig.device(rank), Filled(rank, 2));
    // Each pair in another order; nobody waits for the one before.
    std::vector<uint64_t> requests;
    DeviceFloats got(rig.device(rank), Floats(6));
    for (int step = 1; step < 3; ++step) {
      const int peer = (rank + step) % 3;
      const auto at = static_cast<size_t>(2 * peer);
      ChannelOp ops[] = {SendTo(peer, data.at(), 2),
                         ReceiveFrom(peer, got.at(at), 2)};
      if (peer < rank) std::swap(ops[0], ops[1]);
      for (const ChannelOp& op : ops) {
        ASSIGN_OR_RETURN(const uint64_t request,
                         channel.Submit(op, CallerStream()));
        requests.push_back(request);
      }
    }
    for (const uint64_t request : requests) {
      RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
    }
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(got.Get()[static_cast<size_t>(2 * peer)],
                static_cast<float>(10 * peer));
    }
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, LaunchesAreRecordedByKindRequestAndBytes) {
  const auto recorder = std::make_shared<Recorder>(Recorder::kMinCapacity);
  DeviceChannels rig(2);
  test::ExpectAllOk(RunRanks(2, [&](int rank) -> absl::Status {
    ChannelSpec spec = rig.Spec(rank);
    if (rank == 0) spec.recorder = recorder;
    ASSIGN_OR_RETURN(const auto channel, Channel::Create(std::move(spec)));
    DeviceFloats data(rig.device(rank), Filled(rank, 4));
    RETURN_IF_ERROR(
        RunOp(*channel, OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 4)));
    RETURN_IF_ERROR(RunOp(*channel, rank == 0 ? SendTo(1, data.at(), 3)
                                              : ReceiveFrom(0, data.at(), 3)));
    // Whoever has waited may know it before who looks at all of them.
    EXPECT_TRUE(test::Await([&] {
      return rank != 0 || recorder->SnapshotOfChannels().size() == 2;
    }));
    return absl::OkStatus();
  }));
  const std::vector<Record> records = recorder->SnapshotOfChannels();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(recorder->LaunchNameOf(records[0])->name,
            "all_reduce of channel 0 on axis dp");
  EXPECT_EQ(recorder->LaunchNameOf(records[1])->name,
            "send_recv of channel 0 on axis dp");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].step, i + 1);
    EXPECT_GE(records[i].end_ns, records[i].begin_ns);
  }
  EXPECT_EQ(records[0].value, 16u);
  EXPECT_EQ(records[1].value, 12u);
}

// Of other pairs, of collectives, and of batches.
TEST(CudaChannelTest, AReceiveThatWaitsHoldsUpNothingElse) {
  DeviceChannels rig(3);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    DeviceFloats data(rig.device(rank), Filled(rank, 4));
    uint64_t early = 0;
    if (rank == 0) {
      ASSIGN_OR_RETURN(
          early, channel.Submit(ReceiveFrom(1, data.at(3), 1), CallerStream()));
    }
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_ALL_REDUCE, data.at(), data.at(), 1)));
    if (rank == 0) {
      RETURN_IF_ERROR(RunOp(channel, ReceiveFrom(2, data.at(1), 1)));
      EXPECT_EQ(data.Get()[1], 23);
    } else if (rank == 2) {
      RETURN_IF_ERROR(RunOp(channel, SendTo(0, data.at(3), 1)));
    }
    const ChannelOp ring[] = {SendTo((rank + 1) % 3, data.at(), 1),
                              ReceiveFrom((rank + 2) % 3, data.at(2), 1)};
    ASSIGN_OR_RETURN(const uint64_t batch,
                     channel.SubmitBatch(ring, CallerStream()));
    RETURN_IF_ERROR(channel.Wait(batch, kNoDeadlineNs));
    EXPECT_EQ(data.Get()[2], 30);
    if (rank == 0) {
      ASSIGN_OR_RETURN(const bool done, channel.Test(early));
      EXPECT_FALSE(done);
    }
    RETURN_IF_ERROR(
        RunOp(channel, OpOf(COMMSCHED_BARRIER, nullptr, nullptr, 0)));
    if (rank == 1) RETURN_IF_ERROR(RunOp(channel, SendTo(0, data.at(3), 1)));
    if (rank == 0) {
      RETURN_IF_ERROR(channel.Wait(early, kNoDeadlineNs));
      EXPECT_EQ(data.Get()[3], 13);
    }
    return absl::OkStatus();
  }));
}

TEST(CudaChannelTest, AStreamWaitsForAReceiveWhosePairIsNotConnectedYet) {
  DeviceChannels rig(2);
  std::atomic<bool> is_enqueued{false};
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    DeviceFloats data(rig.device(rank), {static_cast<float>(rank + 1)});
    ASSIGN_OR_RETURN(const auto stream, rig.device(rank)->CreateSideStream());
    if (rank == 1) {
      EXPECT_TRUE(test::Await([&] { return is_enqueued.load(); }));
      return RunOp(channel, SendTo(0, data.at(), 1));
    }
    ASSIGN_OR_RETURN(
        const uint64_t request,
        channel.Submit(ReceiveFrom(1, data.at(), 1), stream.get()));
    is_enqueued.store(true);
    RETURN_IF_ERROR(channel.Before(request, stream.get()));
    stream->Synchronize();
    EXPECT_EQ(data.Get()[0], 2);
    return channel.Wait(request, kNoDeadlineNs);
  }));
}

TEST(CudaChannelTest, ABatchExchangesWithSeveralPeersBothWays) {
  DeviceChannels rig(4);
  EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
    DeviceFloats data(rig.device(rank), Filled(rank, 4));
    DeviceFloats got(rig.device(rank), Floats(4));
    std::vector<ChannelOp> ops;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      ops.push_back(SendTo(peer, data.at(static_cast<size_t>(peer)), 1));
      ops.push_back(ReceiveFrom(peer, got.at(static_cast<size_t>(peer)), 1));
    }
    for (int i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const uint64_t request,
                       channel.SubmitBatch(ops, CallerStream()));
      RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
    }
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(got.Get()[static_cast<size_t>(peer)],
                peer == rank ? 0 : static_cast<float>(10 * peer + rank));
    }
    return absl::OkStatus();
  }));
}

// Three ranks, each of which begins with another pair: a circle, if each waited
// until its first one is connected.
TEST(CudaChannelTest, PairsAreConnectedInAnyOrder) {
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    DeviceChannels rig(3);
    EXPECT_OK(rig.Run([&](Channel& channel, int rank) -> absl::Status {
      DeviceFloats data(rig.device(rank), {static_cast<float>(rank)});
      DeviceFloats got(rig.device(rank), Floats(1));
      const int next = (rank + 1) % 3;
      const int previous = (rank + 2) % 3;
      RETURN_IF_ERROR(
          channel.Submit(SendTo(next, data.at(), 1), CallerStream()).status());
      RETURN_IF_ERROR(RunOp(channel, ReceiveFrom(previous, got.at(), 1)));
      EXPECT_EQ(got.Get()[0], static_cast<float>(previous));
      return RunOp(channel, OpOf(COMMSCHED_BARRIER, nullptr, nullptr, 0));
    }));
  }
}

}  // namespace
}  // namespace commsched
