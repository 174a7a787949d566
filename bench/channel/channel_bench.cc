// What a call of a channel costs.
//
//   build/release/bin/bench_channel
//
// What to look at: Submit is one of many submits that nobody waits for yet, on
// one rank whose backend does nothing, so that it is the channel's own cost;
// AllReduce is a submit and its wait on two ranks, which are threads: over ucx
// they reach each other as processes of one host do. Small sizes are waiting
// for the ranks to take turns; NewShapes shows what it costs to have a shape
// expected for the first time, to the end of the launch, and FirstSubmit what
// of that the submit takes (medians and the most). Compare with `commsched
// bench coll` and with bench_peers in the same run, not between machines.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "channel/channel.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "control/server.h"
#include "device/host_device.h"

namespace commsched {
namespace {

constexpr int64_t kTimeoutNs = int64_t{60} * 1000 * 1000 * 1000;

ChannelSpec SpecOf(std::shared_ptr<World> world, int rank) {
  ChannelSpec spec;
  spec.group.axis = "dp";
  for (int r = 0; r < world->spec().size; ++r) spec.group.ranks.push_back(r);
  spec.group.rank = rank;
  spec.world = std::move(world);
  spec.world_rank = rank;
  spec.launch_timeout_ns = kTimeoutNs;
  return spec;
}

ChannelOp AllReduceOf(std::vector<char>* data) {
  ChannelOp op;
  op.kind = COMMSCHED_ALL_REDUCE;
  op.input = op.output = data->data();
  op.count = data->size() / sizeof(float);
  return op;
}

// The i-th count of sizes that each are a new shape, from some bytes to 1 MiB;
// and again from the start.
constexpr uint64_t kShapes = 60;
uint64_t CountOfShape(uint64_t i) {
  uint64_t count = 65;
  for (uint64_t k = 0; k < i % kShapes; ++k) count += count / 7 + 1;
  return count;
}

// Two ranks. The caller is rank 0; rank 1 is a thread that does as many
// all-reduces, of `bytes`, or if that is 0, of shapes one after the other.
class TwoRanks {
 public:
  // `num_small`: so many all-reduces come first, of kSmallCount.
  TwoRanks(const std::string& backend, uint64_t bytes, uint64_t num_small = 0)
      : bytes_(bytes), num_small_(num_small) {
    Open(backend);
    other_ = std::thread([this] { Follow(); });
    channel_ = Channel::Create(SpecOf(worlds_[0], 0)).value();
  }
  ~TwoRanks() {
    target_.fetch_or(kEnd, std::memory_order_release);
    target_.notify_one();
    channel_.reset();
    other_.join();
    std::thread leaves([this] { worlds_[1].reset(); });
    worlds_[0].reset();
    leaves.join();
  }
  TwoRanks(const TwoRanks&) = delete;
  TwoRanks& operator=(const TwoRanks&) = delete;

  // That rank 1 does so many more.
  void Announce(uint64_t count) {
    target_.fetch_add(count, std::memory_order_release);
    target_.notify_one();
  }
  Channel& channel() { return *channel_; }

  static constexpr uint64_t kSmallCount = 16;

 private:
  static constexpr uint64_t kMostBytes = uint64_t{1} << 22;
  // Beside the number in target_: there will be no more.
  static constexpr uint64_t kEnd = uint64_t{1} << 63;

  void Open(const std::string& backend) {
    WorldSpec spec;
    spec.size = 2;
    spec.backend = backend;
    if (backend != "ucx") {
      worlds_[0] = worlds_[1] = World::Create(spec).value();
      return;
    }
#ifdef COMMSCHED_BENCH_UCX
    PluginRegistry::Process().Load(COMMSCHED_BENCH_UCX).IgnoreError();
#endif
    ControlServerSpec server;
    server.size = 2;
    server_ = ControlServer::Start(server).value();
    for (int rank = 0; rank < 2; ++rank) {
      JobSpec job;
      job.environment.rank = rank;
      job.environment.size = 2;
      job.environment.local_size = 2;
      job.environment.server_host = "127.0.0.1";
      job.environment.server_port = server_->port();
      job.environment.rank_0_serves = false;
      worlds_[static_cast<size_t>(rank)] = World::Join(spec, job).value();
    }
  }

  void Follow() {
    const auto channel = Channel::Create(SpecOf(worlds_[1], 1)).value();
    std::vector<char> data(bytes_ != 0 ? bytes_ : kMostBytes);
    ChannelOp op = AllReduceOf(&data);
    const uint64_t count = op.count;
    uint64_t done = 0;
    while (true) {
      const uint64_t target = target_.load(std::memory_order_acquire);
      if (done == (target & ~kEnd)) {
        if ((target & kEnd) != 0) return;
        target_.wait(target, std::memory_order_acquire);
        continue;
      }
      op.count = done < num_small_ ? kSmallCount
                 : bytes_ == 0     ? CountOfShape(done)
                                   : count;
      const auto request = channel->Submit(op, CallerStream());
      if (!request.ok() || !channel->Wait(*request, kNoDeadlineNs).ok()) return;
      ++done;
    }
  }

  const uint64_t bytes_;
  const uint64_t num_small_;
  std::unique_ptr<ControlServer> server_;
  std::shared_ptr<World> worlds_[2];
  std::unique_ptr<Channel> channel_;
  std::atomic<uint64_t> target_{0};
  std::thread other_;
};

void BM_AllReduce(benchmark::State& state, const char* backend) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  std::vector<char> data(bytes);  // Until the last request has finished.
  TwoRanks ranks(backend, bytes);
  const ChannelOp op = AllReduceOf(&data);
  constexpr uint64_t kAtOnce = 256;
  uint64_t announced = 0;
  for (auto _ : state) {
    if (announced == 0) {
      ranks.Announce(kAtOnce);
      announced = kAtOnce;
    }
    --announced;
    const auto request = ranks.channel().Submit(op, CallerStream());
    if (!request.ok() || !ranks.channel().Wait(*request, kNoDeadlineNs).ok()) {
      state.SkipWithError("an all-reduce failed");
      break;
    }
  }
  while (announced-- > 0) {
    ranks.channel().Submit(op, CallerStream()).status().IgnoreError();
  }
}
BENCHMARK_CAPTURE(BM_AllReduce, inproc, "inproc")->Arg(4)->Arg(4096);
#ifdef COMMSCHED_BENCH_UCX
BENCHMARK_CAPTURE(BM_AllReduce, ucx, "ucx")->Arg(4)->Arg(4096);
#endif

// Beside each other: the first launches of shapes, and their second ones.
void BM_NewShapes(benchmark::State& state, const char* backend) {
  std::vector<char> data(uint64_t{1} << 22);
  ChannelOp op = AllReduceOf(&data);
  int64_t spent_ns[2] = {};
  for (auto _ : state) {
    TwoRanks ranks(backend, /*bytes=*/0);
    for (uint64_t i = 0; i < 2 * kShapes; ++i) {
      ranks.Announce(1);
      op.count = CountOfShape(i);
      const int64_t begin_ns = SystemClock::Get().NowNs();
      const auto request = ranks.channel().Submit(op, CallerStream());
      ranks.channel().Wait(request.value_or(0), kNoDeadlineNs).IgnoreError();
      spent_ns[i / kShapes] += SystemClock::Get().NowNs() - begin_ns;
    }
  }
  const double each = 1e-3 / static_cast<double>(kShapes * state.iterations());
  state.counters["first_us"] = static_cast<double>(spent_ns[0]) * each;
  state.counters["again_us"] = static_cast<double>(spent_ns[1]) * each;
}
BENCHMARK_CAPTURE(BM_NewShapes, inproc, "inproc")->Iterations(5);
#ifdef COMMSCHED_BENCH_UCX
BENCHMARK_CAPTURE(BM_NewShapes, ucx, "ucx")->Iterations(5);
#endif

// What the caller pays for the submit alone, which queues: of the first launch
// of a shape of so many bytes, and of those after it, on a channel that has
// done small ones before. Each is waited for before the next, so that the
// progress thread may rest, and the caller begins it.
void BM_FirstSubmit(benchmark::State& state, const char* backend) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  std::vector<char> data(bytes);
  ChannelOp op = AllReduceOf(&data);
  const uint64_t count = op.count;
  std::vector<int64_t> first_ns, again_ns;
  for (auto _ : state) {
    constexpr int kSmall = 40;
    TwoRanks ranks(backend, bytes, kSmall);
    for (int i = 0; i < kSmall + 6; ++i) {
      op.count = i < kSmall ? TwoRanks::kSmallCount : count;
      ranks.Announce(1);
      const int64_t begin_ns = SystemClock::Get().NowNs();
      const auto request = ranks.channel().Submit(op, CallerStream());
      const int64_t spent_ns = SystemClock::Get().NowNs() - begin_ns;
      if (i == kSmall) first_ns.push_back(spent_ns);
      if (i > kSmall) again_ns.push_back(spent_ns);
      ranks.channel().Wait(request.value_or(0), kNoDeadlineNs).IgnoreError();
    }
  }
  const auto add = [&](const char* name, std::vector<int64_t>* all_ns) {
    std::sort(all_ns->begin(), all_ns->end());
    state.counters[absl::StrCat(name, "_us")] =
        1e-3 * static_cast<double>((*all_ns)[all_ns->size() / 2]);
    state.counters[absl::StrCat(name, "_most_us")] =
        1e-3 * static_cast<double>(all_ns->back());
  };
  add("first", &first_ns);
  add("again", &again_ns);
}
#ifdef COMMSCHED_BENCH_UCX
BENCHMARK_CAPTURE(BM_FirstSubmit, ucx, "ucx")
    ->Iterations(15)
    ->Arg(4 << 10)
    ->Arg(256 << 10)
    ->Arg(1 << 20)
    ->Arg(4 << 20);
#endif

void BM_Submit(benchmark::State& state) {
  WorldSpec spec;
  spec.size = 1;
  spec.backend = "null";
  const auto channel =
      Channel::Create(SpecOf(World::Create(spec).value(), 0)).value();
  std::vector<char> data(static_cast<size_t>(state.range(0)));
  const ChannelOp op = AllReduceOf(&data);
  constexpr int kAtOnce = 1000;
  uint64_t last = 0;
  for (auto _ : state) {
    for (int i = 0; i < kAtOnce; ++i) {
      last = channel->Submit(op, CallerStream()).value_or(0);
    }
    state.PauseTiming();
    channel->Wait(last, kNoDeadlineNs).IgnoreError();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kAtOnce);
}
BENCHMARK(BM_Submit)->Arg(4)->Arg(4096);

}  // namespace
}  // namespace commsched
