// Channels on devices: what their collectives, sends and receives give, what
// submits wait for, and what fails by name and ends.
#include "test/gpu_check/channels.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "channel/channel.h"
#include "device/host_device.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/job.h"
#include "test/gpu_check/lanes.h"

namespace commsched::gpu_check {
namespace {

using SteadyClock = std::chrono::steady_clock;
using WorldPtr = std::shared_ptr<World>;

constexpr int64_t kSecondNs = int64_t{1} * 1000 * 1000 * 1000;
constexpr int64_t kLimitNs = 30 * kSecondNs;

// Floats on a rank's device, and a stream there.
class Memory {
 public:
  static absl::StatusOr<std::unique_ptr<Memory>> Make(const WorldPtr& world,
                                                      int rank, size_t count) {
    std::unique_ptr<Memory> memory(new Memory(world, rank, count));
    ASSIGN_OR_RETURN(memory->stream_, memory->device_->CreateSideStream());
    ASSIGN_OR_RETURN(void* const address,
                     memory->device_->Allocate(count * sizeof(float)));
    memory->address_ = static_cast<float*>(address);
    return memory;
  }
  ~Memory() {
    if (address_ != nullptr) device_->Free(address_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  float* at(size_t index = 0) const { return address_ + index; }
  Stream* stream() const { return stream_.get(); }
  // Enqueued; `values` stay until the stream is at rest.
  void Set(const std::vector<float>& values, size_t index = 0) {
    Copy(at(index), values.data(), values.size());
  }
  absl::Status Fill(float value) {
    Set(std::vector<float>(count_, value));
    stream_->Synchronize();
    return device_->status();
  }
  // Once all before it is done.
  absl::StatusOr<std::vector<float>> Get(size_t count, size_t index = 0) {
    std::vector<float> values(count);
    Copy(values.data(), at(index), count);
    stream_->Synchronize();
    RETURN_IF_ERROR(device_->status());
    return values;
  }
  absl::Status Expect(const std::vector<float>& expected, size_t index = 0) {
    ASSIGN_OR_RETURN(const std::vector<float> values,
                     Get(expected.size(), index));
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == expected[i]) continue;
      return absl::InternalError(absl::StrCat(
          "element ", index + i, " is ", values[i], ", not ", expected[i]));
    }
    return absl::OkStatus();
  }

 private:
  Memory(WorldPtr world, int rank, size_t count)
      : world_(std::move(world)),
        device_(world_->device(rank)),
        count_(count) {}
  void Copy(void* to, const void* from, size_t count) {
    RowCopy copy;
    copy.to = to;
    copy.from = from;
    copy.row_bytes = count * sizeof(float);
    stream_->Copy(copy);
    stream_->Synchronize();
  }

  const WorldPtr world_;
  Device* const device_;
  const size_t count_;
  float* address_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

ChannelSpec SpecOf(const WorldPtr& world, int rank, const char* axis) {
  ChannelSpec spec;
  spec.world = world;
  spec.world_rank = rank;
  spec.group.axis = axis;
  spec.group.ranks = {0, 1};
  spec.group.rank = rank;
  spec.launch_timeout_ns = kLimitNs;
  return spec;
}

ChannelOp OpOf(commsched_collective_t kind, const void* input, void* output,
               uint64_t count, int32_t peer = 0) {
  ChannelOp op;
  op.kind = kind;
  op.input = input;
  op.output = output;
  op.count = count;
  op.peer = peer;
  return op;
}

ChannelOp Sum(float* data, uint64_t count) {
  return OpOf(COMMSCHED_ALL_REDUCE, data, data, count);
}

absl::Status RunOp(Channel& channel, const ChannelOp& op, Stream* stream) {
  ASSIGN_OR_RETURN(const uint64_t request, channel.Submit(op, stream));
  return channel.Wait(request, kNoDeadlineNs);
}

absl::Status Meet(const WorldPtr& world, int rank, const std::string& where) {
  return world->meeting()->AllGather(where, rank, "", kLimitNs).status();
}

double MsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - begin)
      .count();
}

// ---- What they give ----

// Rank r has 10 r, 10 r + 1, ...
absl::Status Collectives(const WorldPtr& world, int rank) {
  ASSIGN_OR_RETURN(const auto channel,
                   Channel::Create(SpecOf(world, rank, "dp")));
  ASSIGN_OR_RETURN(const auto in, Memory::Make(world, rank, 8));
  ASSIGN_OR_RETURN(const auto out, Memory::Make(world, rank, 8));
  std::vector<float> mine;
  for (int i = 0; i < 8; ++i) {
    mine.push_back(static_cast<float>(10 * rank + i));
  }
  in->Set(mine);
  const auto run = [&](const ChannelOp& op,
                       const std::vector<float>& expected) -> absl::Status {
    RETURN_IF_ERROR(RunOp(*channel, op, in->stream()));
    const absl::Status as_expected = out->Expect(expected);
    if (as_expected.ok()) return as_expected;
    return absl::InternalError(
        absl::StrCat("kind ", op.kind, ": ", as_expected.message()));
  };
  const auto r = static_cast<float>(rank);
  RETURN_IF_ERROR(
      run(OpOf(COMMSCHED_ALL_REDUCE, in->at(), out->at(), 3), {10, 12, 14}));
  RETURN_IF_ERROR(
      run(OpOf(COMMSCHED_ALL_GATHER, in->at(), out->at(), 2), {0, 1, 10, 11}));
  RETURN_IF_ERROR(run(OpOf(COMMSCHED_REDUCE_SCATTER, in->at(), out->at(), 2),
                      {10 + 4 * r, 12 + 4 * r}));
  RETURN_IF_ERROR(run(OpOf(COMMSCHED_ALL_TO_ALL, in->at(), out->at(), 2),
                      {2 * r, 2 * r + 1, 10 + 2 * r, 11 + 2 * r}));
  RETURN_IF_ERROR(
      run(OpOf(COMMSCHED_BROADCAST, in->at(), out->at(), 2, 1), {10, 11}));
  RETURN_IF_ERROR(
      run(OpOf(COMMSCHED_REDUCE, in->at(), out->at(), 2, 1),
          rank == 1 ? std::vector<float>{10, 12} : std::vector<float>{10, 11}));
  RETURN_IF_ERROR(out->Fill(-1));
  RETURN_IF_ERROR(run(OpOf(kGather, in->at(), out->at(), 2, 1),
                      rank == 1 ? std::vector<float>{0, 1, 10, 11}
                                : std::vector<float>{-1, -1, -1, -1}));
  RETURN_IF_ERROR(
      run(OpOf(kScatter, in->at(), out->at(), 2, 0), {2 * r, 2 * r + 1}));
  // Rank r sends r + 1 elements to each, so that it gets 1 and 2.
  const auto each = static_cast<uint64_t>(rank) + 1;
  const uint64_t counts[] = {each, each, 1, 2};
  ChannelOp own = OpOf(COMMSCHED_ALL_TO_ALL, in->at(), out->at(), 0);
  own.counts = counts;
  const uint64_t uneven[] = {1, 3};
  ChannelOp gather = OpOf(COMMSCHED_ALL_GATHER, in->at(), out->at(), 0);
  gather.counts = uneven;
  RETURN_IF_ERROR(run(own, rank == 0 ? std::vector<float>{0, 10, 11}
                                     : std::vector<float>{1, 12, 13}));
  RETURN_IF_ERROR(run(gather, {0, 10, 11, 12}));
  return RunOp(*channel, OpOf(COMMSCHED_BARRIER, nullptr, nullptr, 0),
               in->stream());
}

// Messages of pairs and in batches, a collective between them, and nobody waits
// for what is launched before.
absl::Status Messages(const WorldPtr& world, int rank) {
  ASSIGN_OR_RETURN(const auto channel,
                   Channel::Create(SpecOf(world, rank, "dp")));
  ASSIGN_OR_RETURN(const auto data, Memory::Make(world, rank, 4));
  const auto r = static_cast<float>(rank);
  data->Set({r, -1, r, -1});
  const int peer = 1 - rank;
  uint64_t early = 0;
  if (rank == 0) {
    ASSIGN_OR_RETURN(early, channel->Submit(OpOf(COMMSCHED_RECV, nullptr,
                                                 data->at(1), 1, peer),
                                            data->stream()));
  }
  RETURN_IF_ERROR(RunOp(*channel, Sum(data->at(2), 1), data->stream()));
  const ChannelOp both[] = {
      OpOf(COMMSCHED_SEND, data->at(0), nullptr, 1, peer),
      OpOf(COMMSCHED_RECV, nullptr, data->at(3), 1, peer)};
  ASSIGN_OR_RETURN(const uint64_t batch,
                   channel->SubmitBatch(both, data->stream()));
  RETURN_IF_ERROR(channel->Wait(batch, kNoDeadlineNs));
  if (rank == 0) {
    ASSIGN_OR_RETURN(const bool done, channel->Test(early));
    if (done) return absl::InternalError("a receive has ended without a send");
  }
  RETURN_IF_ERROR(Meet(world, rank, "before the send"));
  if (rank == 1) {
    RETURN_IF_ERROR(RunOp(*channel,
                          OpOf(COMMSCHED_SEND, data->at(3), nullptr, 1, peer),
                          data->stream()));
    return data->Expect({1, -1, 1, 0});
  }
  RETURN_IF_ERROR(channel->Wait(early, kNoDeadlineNs));
  return data->Expect({0, 0, 1, 1});
}

// ---- What they wait for ----

absl::Status Submits(const WorldPtr& world, int rank, std::string* figures) {
  constexpr size_t kMany = 300;  // More than may be in flight.
  ChannelSpec spec = SpecOf(world, rank, "dp");
  spec.completions = std::make_shared<Completions>(2 * kMany);
  const auto completions = spec.completions;
  ASSIGN_OR_RETURN(const auto channel, Channel::Create(std::move(spec)));
  ASSIGN_OR_RETURN(const auto data, Memory::Make(world, rank, kMany));
  RETURN_IF_ERROR(data->Fill(1));
  if (rank == 1) RETURN_IF_ERROR(Meet(world, rank, "all submitted"));
  const auto submit_all = [&]() -> absl::Status {
    for (size_t i = 0; i < kMany; ++i) {
      RETURN_IF_ERROR(
          channel->Submit(Sum(data->at(i), 1), data->stream()).status());
    }
    return absl::OkStatus();
  };
  const auto take_all = [&] {
    std::vector<Completion> out(kMany);
    for (size_t taken = 0; taken < kMany;) {
      taken += completions->Next(absl::MakeSpan(out), kNoDeadlineNs);
    }
  };
  const auto begin = SteadyClock::now();
  RETURN_IF_ERROR(submit_all());
  const double alone_ms = MsSince(begin);
  if (rank == 0) RETURN_IF_ERROR(Meet(world, rank, "all submitted"));
  take_all();
  RETURN_IF_ERROR(channel->status());
  RETURN_IF_ERROR(data->Expect(std::vector<float>(kMany, 2)));
  // Within the window, what a submit costs.
  double least_us = 1e9;
  for (int round = 0; round < 20; ++round) {
    RETURN_IF_ERROR(Meet(world, rank, absl::StrCat("round ", round)));
    const auto from = SteadyClock::now();
    for (size_t i = 0; i < 32; ++i) {
      RETURN_IF_ERROR(
          channel->Submit(Sum(data->at(i), 1), CallerStream()).status());
    }
    least_us = std::min(least_us, MsSince(from) * 1000 / 32);
    std::vector<Completion> out(32);
    for (size_t taken = 0; taken < 32;) {
      taken += completions->Next(absl::MakeSpan(out), kNoDeadlineNs);
    }
  }
  *figures = absl::StrFormat("%d in %.2f ms; one of 4 bytes in %.2f us", kMany,
                             alone_ms, least_us);
  return channel->status();
}

absl::Status OppositeOrders(const WorldPtr& world, int rank) {
  std::unique_ptr<Channel> channels[2];
  for (const int i : {0, 1}) {
    ASSIGN_OR_RETURN(channels[i], Channel::Create(SpecOf(
                                      world, rank, i == 0 ? "one" : "other")));
  }
  ASSIGN_OR_RETURN(const auto data, Memory::Make(world, rank, 2));
  RETURN_IF_ERROR(data->Fill(1));
  constexpr uint64_t kTimes = 15;
  for (uint64_t n = 0; n < kTimes; ++n) {
    for (const int i : {rank, 1 - rank}) {
      RETURN_IF_ERROR(
          channels[i]
              ->Submit(Sum(data->at(static_cast<size_t>(i)), 1), CallerStream())
              .status());
    }
  }
  for (const auto& channel : channels) {
    RETURN_IF_ERROR(channel->Wait(kTimes, kNoDeadlineNs));
  }
  return data->Expect({32768, 32768});
}

// As a synchronised batch norm does within a backward pass.
absl::Status InTheMiddle(const WorldPtr& world, int rank, const char* axis) {
  Job job({.ranks = 2, .buckets = 4, .elements = 1 << 12});
  RETURN_IF_ERROR(job.MakeRank({}, world, rank));
  ASSIGN_OR_RETURN(const auto steps, job.Open());
  ASSIGN_OR_RETURN(const auto channel,
                   Channel::Create(SpecOf(world, rank, axis)));
  ASSIGN_OR_RETURN(const auto mean, Memory::Make(world, rank, 1));
  float expected = 1;
  RETURN_IF_ERROR(mean->Fill(1));
  for (int i = 0; i < 12; ++i) {
    RETURN_IF_ERROR(steps->Enqueue([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const uint64_t request,
                       channel->Submit(Sum(mean->at(), 1), mean->stream()));
      RETURN_IF_ERROR(channel->Before(request, mean->stream()));
      mean->stream()->Synchronize();
      expected = expected > 1e6F ? expected : 2 * expected;
      if (expected > 1e6F) return mean->Fill(expected = 1);
      return absl::OkStatus();
    }));
  }
  RETURN_IF_ERROR(steps->Drain());
  RETURN_IF_ERROR(job.CheckResults());
  return mean->Expect({expected});
}

// ---- What fails ----

// Both ranks leave when both have failed.
absl::Status ExpectFailure(const WorldPtr& world, int rank, Channel& channel,
                           absl::StatusCode code, const std::string& text) {
  while (channel.status().ok()) std::this_thread::yield();
  const absl::Status status = channel.status();
  RETURN_IF_ERROR(Meet(world, rank, "both have failed"));
  if (status.code() == code && absl::StrContains(status.message(), text)) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("it says: ", status.ToString()));
}

absl::Status SendsFirst(const WorldPtr& world, int rank) {
  ChannelSpec spec = SpecOf(world, rank, "dp");
  // It is a limit for the channel's creation, too.
  spec.launch_timeout_ns = 8 * kSecondNs;
  // More than NCCL buffers.
  constexpr uint64_t kCount = uint64_t{1} << 24;
  ASSIGN_OR_RETURN(const auto data, Memory::Make(world, rank, 2 * kCount));
  ASSIGN_OR_RETURN(const auto channel, Channel::Create(std::move(spec)));
  const int peer = 1 - rank;
  RETURN_IF_ERROR(
      channel
          ->Submit(OpOf(COMMSCHED_SEND, data->at(), nullptr, kCount, peer),
                   CallerStream())
          .status());
  RETURN_IF_ERROR(channel
                      ->Submit(OpOf(COMMSCHED_RECV, nullptr, data->at(kCount),
                                    kCount, peer),
                               CallerStream())
                      .status());
  return ExpectFailure(world, rank, *channel,
                       absl::StatusCode::kDeadlineExceeded,
                       "was submitted behind it");
}

// Rank 0 has launches under way, for which rank 1 aborts; the channel of
// another world goes on.
absl::Status AnAbortBeside(const WorldPtr& world, const WorldPtr& other,
                           int rank) {
  // It lives longer than what an abort ends.
  ASSIGN_OR_RETURN(const auto data, Memory::Make(world, rank, 4));
  RETURN_IF_ERROR(data->Fill(1));
  ASSIGN_OR_RETURN(const auto fails,
                   Channel::Create(SpecOf(world, rank, "dp")));
  ASSIGN_OR_RETURN(const auto lives,
                   Channel::Create(SpecOf(other, rank, "dp")));
  if (rank == 0) {
    RETURN_IF_ERROR(fails->Submit(Sum(data->at(), 1), CallerStream()).status());
    RETURN_IF_ERROR(
        fails
            ->Submit(OpOf(COMMSCHED_RECV, nullptr, data->at(1), 1, 1),
                     CallerStream())
            .status());
  }
  RETURN_IF_ERROR(Meet(world, rank, "before the abort"));
  if (rank == 1) fails->Abort("enough");
  for (int i = 0; i < 12; ++i) {
    RETURN_IF_ERROR(RunOp(*lives, Sum(data->at(2), 1), CallerStream()));
  }
  RETURN_IF_ERROR(
      ExpectFailure(world, rank, *fails, absl::StatusCode::kAborted, "enough"));
  return data->Expect({4096}, 2);
}

}  // namespace

std::vector<Result> ChannelsOf(const std::shared_ptr<World>& world, int rank) {
  std::vector<Result> results;
  // Each in a world of its own. After a failure the ranks are not at one.
  const auto run = [&](const char* check, const auto& body) {
    if (!results.empty() && !results.back().status.ok()) return;
    std::string figures;
    const auto begin = SteadyClock::now();
    const absl::Status status = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(
          const WorldPtr own,
          world->Split(rank, {0, 1}, absl::StrCat("w", results.size()),
                       kLimitNs));
      return body(own, &figures);
    }();
    if (figures.empty()) figures = absl::StrFormat("%.0f ms", MsSince(begin));
    results.push_back({check, status, status.ok() ? figures : ""});
  };
  run("each kind of collective of a channel",
      [&](const WorldPtr& own, std::string*) {
        return Collectives(own, rank);
      });
  run("sends and receives of a pair, and of a batch",
      [&](const WorldPtr& own, std::string*) { return Messages(own, rank); });
  run("submits wait for no other rank",
      [&](const WorldPtr& own, std::string* figures) {
        return Submits(own, rank, figures);
      });
  run("channels of two axes in opposite orders",
      [&](const WorldPtr& own, std::string*) {
        return OppositeOrders(own, rank);
      });
  run("a channel in the middle of a session's step, on its lane",
      [&](const WorldPtr& own, std::string*) {
        return InTheMiddle(own, rank, "dp");
      });
  run("the same on a lane of its own", [&](const WorldPtr& own, std::string*) {
    return InTheMiddle(own, rank, "tp");
  });
  run("sends first on both sides of a pair are named at the deadline",
      [&](const WorldPtr& own, std::string*) { return SendsFirst(own, rank); });
  run("the abort of a world leaves another's channel alone",
      [&](const WorldPtr& own, std::string*) -> absl::Status {
        ASSIGN_OR_RETURN(const WorldPtr other,
                         world->Split(rank, {0, 1}, "healthy", kLimitNs));
        return AnAbortBeside(own, other, rank);
      });
  return results;
}

void CheckChannels(const Options& options, Results* results) {
  CheckTwoRanks(options, "channels", ChannelsOf, results);
}

}  // namespace commsched::gpu_check
