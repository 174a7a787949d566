// A small all-reduce of one communicator while a large one of another is under
// way, and the first launch of a shape; on ranks that are processes:
//
//   build/release/bin/commsched run -n 2 -- build/release/bin/bench_beside
//   scripts/beside-table [--layout 4x1] [--rate 1gbit]
//
// What to look at: `beside` less `alone`, of the slowest rank. What a large
// launch still has to send must not be in front of what a small one sends.
// `first_us` is how long the launch call of a shape takes that was never seen
// nor expected, `again_us` of the same once more: both post what is sent first.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "comm/world.h"
#include "control/launch_environment.h"
#include "test/support/comm_driver.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

constexpr uint64_t kSmallBytes = 4 << 10;
constexpr int kRounds = 20;
constexpr int64_t kGapNs = int64_t{10} * 1000 * 1000;
constexpr int64_t kLookNs = int64_t{1} * 1000 * 1000;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

int64_t NowNs() { return SystemClock::Get().NowNs(); }

// An all-reduce in place.
struct Sum {
  explicit Sum(uint64_t bytes) : data(bytes / sizeof(float), 1.0f) {
    member.input = member.output = data.data();
    member.count = data.size();
    launch = LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 0,
                      1, &member);
  }
  Sum(const Sum&) = delete;

  std::vector<float> data;
  commsched_member_t member{};
  commsched_launch_t launch;
};

class Rank {
 public:
  explicit Rank(uint64_t large_bytes) : large_(large_bytes) {
    JobSpec job;
    auto environment =
        ReadLaunchEnvironment([](const char* name) { return getenv(name); });
    Check(environment.status());
    job.environment = *environment;
    rank_ = job.environment.rank;
    WorldSpec spec;
    spec.backend = "ucx";
    auto world = World::Join(spec, job);
    Check(world.status());
    world_ = *std::move(world);
    Create(&large_comm_, "large");
    Create(&small_comm_, "small");
    auto turns = world_->Rank(rank_);
    Check(turns.status());
    turns_ = *turns;
  }
  ~Rank() {
    large_comm_.Destroy();
    small_comm_.Destroy();
  }
  Rank(const Rank&) = delete;

  void Run() {
    Wait(&large_comm_, large_.launch);
    Wait(&small_comm_, small_.launch);
    std::vector<double> alone_ms;
    for (int round = 0; round < kRounds; ++round) {
      Rest(/*large_is_under_way=*/false);
      alone_ms.push_back(Small(/*large_is_under_way=*/false));
    }
    std::vector<double> beside_ms;
    const int64_t begin_ns = NowNs();
    Check(large_comm_.Launch(large_.launch));
    large_is_done_ = false;
    for (int round = 0; round < kRounds; ++round) {
      Rest(true);
      const double ms = Small(true);
      if (!large_is_done_) beside_ms.push_back(ms);
    }
    while (!large_is_done_) Look(true);
    const double large_ms = static_cast<double>(NowNs() - begin_ns) / 1e6;
    Print("alone", alone_ms);
    Print("beside", beside_ms);
    std::printf("rank %d  large %.1f ms\n", rank_, large_ms);
    FirstLaunches();
  }

 private:
  void Create(CommDriver* comm, const char* id) {
    CommSpec spec;
    spec.id = spec.axis = id;
    spec.max_in_flight = 8;
    Check(comm->Create(world_.get(), spec, rank_));
    Check(comm->AwaitReady());
  }

  static void Wait(CommDriver* comm, const commsched_launch_t& launch) {
    Check(comm->LaunchAndWait(launch));
  }

  void Look(bool large_is_under_way) {
    if (large_is_under_way && !large_is_done_) {
      const auto polled = large_comm_.Poll();
      Check(polled.status());
      large_is_done_ = polled->done != 0;
    }
    BackendRank::Turn turn(turns_);
    turn.Sleep(NowNs() + kLookNs);
  }
  void Rest(bool large_is_under_way) {
    const int64_t until_ns = NowNs() + kGapNs;
    while (NowNs() < until_ns) Look(large_is_under_way);
  }
  double Small(bool large_is_under_way) {
    const int64_t begin_ns = NowNs();
    Check(small_comm_.Launch(small_.launch));
    while (true) {
      const auto polled = small_comm_.Poll();
      Check(polled.status());
      if (polled->done != 0) break;
      Look(large_is_under_way);
    }
    return static_cast<double>(NowNs() - begin_ns) / 1e6;
  }

  void Print(const char* what, std::vector<double> ms) const {
    if (ms.empty()) return;
    std::sort(ms.begin(), ms.end());
    std::printf("rank %d  %s  n %zu  median %.3f ms  max %.3f ms\n", rank_,
                what, ms.size(), ms[ms.size() / 2], ms.back());
  }

  // Of several shapes of about a size each: medians.
  void FirstLaunches() {
    constexpr uint64_t kShapes = 9;
    for (uint64_t bytes = 1024; bytes <= 4 << 20; bytes *= 4) {
      std::vector<double> first_us, again_us;
      for (uint64_t shape = 0; shape < kShapes; ++shape) {
        Sum sum(bytes + shape * sizeof(float));
        for (std::vector<double>* us : {&first_us, &again_us}) {
          const int64_t begin_ns = NowNs();
          Check(small_comm_.Launch(sum.launch));
          us->push_back(static_cast<double>(NowNs() - begin_ns) / 1e3);
          Check(small_comm_.Wait().status());
        }
      }
      std::sort(first_us.begin(), first_us.end());
      std::sort(again_us.begin(), again_us.end());
      if (rank_ != 0) continue;
      std::printf("rank 0  %zu bytes  first_us %.1f  again_us %.1f\n",
                  static_cast<size_t>(bytes), first_us[kShapes / 2],
                  again_us[kShapes / 2]);
    }
  }

  int rank_ = 0;
  std::shared_ptr<World> world_;
  BackendRank* turns_ = nullptr;
  CommDriver large_comm_, small_comm_;
  Sum large_;
  Sum small_{kSmallBytes};
  bool large_is_done_ = true;
};

}  // namespace
}  // namespace commsched

int main(int argc, char** argv) {
  const uint64_t large_mib =
      argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64;
  commsched::Rank rank(large_mib << 20);
  rank.Run();
  return 0;
}
