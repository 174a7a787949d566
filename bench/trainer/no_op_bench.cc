// What the scheduler costs a real step when it schedules nothing (I10): the
// trainer with the serial schedule beside the same step written by hand, on the
// same ranks, model, data and kernels.
//
//   build/release/bin/bench_trainer [--pairs 20] [--batch 48] [--json]
//
// Both sides run in one process, step by step in pairs, the order within a pair
// alternating; the ratio is the median of the pairs'. At the end the weights of
// both must be the same bits, else it fails: the two do the same work. The aim
// is 1.05.
//
// With --only engine|by-hand it builds and runs one side, for counting
// instructions: under callgrind those of --pairs steps, after a first one that
// is not counted.
//
//   valgrind --tool=callgrind --instr-atstart=no --fair-sched=yes
//       build/release/bin/bench_trainer --only by-hand --pairs 2 --batch 4
#include <valgrind/callgrind.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "bench/trainer/by_hand.h"
#include "commsched/commsched.h"
#include "examples/trainer/random.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/sha256.h"
#include "examples/trainer/standard_streams.h"
#include "nlohmann/json.hpp"

namespace commsched::bench {
namespace {

struct Arguments {
  int64_t pairs = 20;
  std::string only;
  trainer::Options options;
  bool json = false;
};

double Median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "bench_trainer: %s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status());
  return *std::move(value);
}

void OrDie(const absl::Status& status) {
  if (!status.ok()) Die(status);
}

// Text enough to sample from; what it says does not matter.
trainer::Dataset MadeUpText() {
  std::vector<uint8_t> text(1 << 20);
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<uint8_t>(trainer::RandomBits(1, 2, i) % 64 + 32);
  }
  return trainer::Dataset(std::move(text));
}

// Rank 0's view of the pairs.
struct Times {
  std::vector<double> engine_s, by_hand_s;
};

class NoOpBench {
 public:
  explicit NoOpBench(const Arguments& arguments)
      : arguments_(arguments),
        options_(arguments.options),
        text_(MadeUpText()),
        sampler_(text_, options_.seq, 1),
        together_(options_.ranks) {}

  void Run() {
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = static_cast<int32_t>(options_.ranks);
    commsched_world_t* world = nullptr;
    if (commsched_world_create_inproc(&desc, &world) != COMMSCHED_OK) {
      Die(absl::InternalError(commsched_last_error()));
    }
    trainer::WorldHandle engine_world(world);
    WorldSpec spec;
    spec.size = desc.size;
    const auto hand_world = OrDie(World::Create(spec));
    std::vector<std::thread> threads;
    for (int r = 0; r < desc.size; ++r) {
      threads.emplace_back([&, r] { RunRank(world, hand_world.get(), r); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const Times& times() const { return times_; }

 private:
  // One rank of both sides, or of the one that is asked for.
  struct Sides {
    std::unique_ptr<trainer::Rank> engine;
    std::unique_ptr<ByHandRank> by_hand;
  };

  void RunRank(commsched_world_t* engine_world, World* hand_world, int rank) {
    Sides sides;
    if (arguments_.only != "by-hand") {
      sides.engine =
          OrDie(trainer::Rank::Create(options_, sampler_, engine_world, rank));
      OrDie(sides.engine->Build());
    }
    if (arguments_.only != "engine") {
      sides.by_hand =
          OrDie(ByHandRank::Create(options_, sampler_, hand_world, rank));
    }
    if (arguments_.only.empty()) {
      RunPairs(sides, rank);
    } else {
      RunCounted(sides, rank);
    }
  }

  void RunPairs(const Sides& sides, int rank) {
    for (int64_t step = 0; step < arguments_.pairs; ++step) {
      for (int i = 0; i < 2; ++i) {
        const bool engine_now = (step + i) % 2 == 0;
        const double seconds = TimedStep(sides, engine_now, step);
        if (rank != 0) continue;
        (engine_now ? times_.engine_s : times_.by_hand_s).push_back(seconds);
      }
    }
    const std::string ours = OrDie(sides.engine->WeightsSha256());
    const std::string theirs = OrDie(sides.by_hand->WeightsDigest());
    if (rank != 0 || ours == theirs) return;
    Die(absl::InternalError(absl::StrCat("rank ", rank, ": weights ", ours,
                                         " by the engine, ", theirs,
                                         " by hand")));
  }

  // Between all ranks at the end of the first step and all ranks at the end of
  // the last one. Without callgrind the two marks do nothing.
  void RunCounted(const Sides& sides, int rank) {
    const bool engine = sides.engine != nullptr;
    TimedStep(sides, engine, 0);
    if (rank == 0) CALLGRIND_START_INSTRUMENTATION;
    for (int64_t step = 1; step <= arguments_.pairs; ++step) {
      TimedStep(sides, engine, step);
    }
    if (rank == 0) CALLGRIND_STOP_INSTRUMENTATION;
  }

  // From all ranks at the start to all ranks at the end, drained.
  double TimedStep(const Sides& sides, bool engine_now, int64_t step) {
    together_.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    if (engine_now) {
      (void)OrDie(sides.engine->Step(step));
      OrDie(trainer::FromC(commsched_engine_drain(sides.engine->engine())));
    } else {
      (void)OrDie(sides.by_hand->Step(step));
    }
    together_.arrive_and_wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         begin)
        .count();
  }

  const Arguments& arguments_;
  const trainer::Options& options_;
  const trainer::Dataset text_;
  const trainer::Sampler sampler_;
  std::barrier<> together_;
  Times times_;  // written by rank 0
};

bool Parse(int argc, char** argv, Arguments* arguments, int* exit_code) {
  trainer::Options& options = arguments->options;
  options.zero = 1;
  options.clip = 0;
  options.serial = true;
  options.deterministic = true;
  options.lr = 1e-3;
  options.bucket_bytes = 256 << 10;
  CLI::App app(
      "The trainer's step with the serial schedule, beside the same step "
      "written by hand");
  app.add_option("--pairs", arguments->pairs, "Pairs of steps")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--ranks", options.ranks)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Sequences per step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--seq", options.seq)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--only", arguments->only, "Run one side")
      ->check(CLI::IsMember({"engine", "by-hand"}));
  app.add_flag("--json", arguments->json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return false;
  }
  if (options.batch % options.ranks != 0) {
    std::fprintf(stderr, "--batch is %ld, not a multiple of --ranks %ld\n",
                 static_cast<long>(options.batch),
                 static_cast<long>(options.ranks));
    *exit_code = 2;
    return false;
  }
  options.steps = 2 * arguments->pairs;
  options.config = OrDie(trainer::PresetOf(options.model)).config;
  options.config.context = std::max(options.config.context, options.seq);
  return true;
}

void Print(const Arguments& arguments, const Times& times) {
  if (!arguments.only.empty()) return;
  std::vector<double> ratios;
  for (size_t i = 0; i < times.engine_s.size(); ++i) {
    ratios.push_back(times.engine_s[i] / times.by_hand_s[i]);
  }
  if (arguments.json) {
    nlohmann::json json = {{"ratio", Median(ratios)},
                           {"pairs", ratios.size()},
                           {"engine_step_s", Median(times.engine_s)},
                           {"by_hand_step_s", Median(times.by_hand_s)}};
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  std::printf(
      "%zu pairs: engine %.1f ms, by hand %.1f ms, ratio %.3f (medians); the "
      "weights are the same bits\n",
      ratios.size(), 1e3 * Median(times.engine_s),
      1e3 * Median(times.by_hand_s), Median(ratios));
}

}  // namespace
}  // namespace commsched::bench

int main(int argc, char** argv) {
  if (!commsched::OpenStandardStreams()) return 1;
  commsched::bench::Arguments arguments;
  int exit_code = 0;
  if (!commsched::bench::Parse(argc, argv, &arguments, &exit_code)) {
    return commsched::FinishOutput(argv[0], exit_code);
  }
  commsched::bench::NoOpBench bench(arguments);
  bench.Run();
  commsched::bench::Print(arguments, bench.times());
  return commsched::FinishOutput(argv[0], 0);
}
