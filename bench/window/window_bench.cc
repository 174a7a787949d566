// What one reduction per window of N backwards gains over one per backward.
//
//   build/release/bin/bench_window [--rounds 15] [--hidden 512] [--json]
//
// The case of DeepSpeed's #7992, scaled: an MLP of 8 layers on 2 ranks, N = 4.
// There a step without the window took 203 ms in ZeRO-2 and 177 in ZeRO-3, of
// which each reduction was 27.7 and 14.7. So the link is set, before anything
// is compared, to where a reduction of all gradients takes that share of a step
// that has four of them one after the other: from the time of a step without a
// link, C, it is C x 27.7 / (203 - 4 x 27.7), and for ZeRO-3 likewise. A bucket
// per layer, 50 us per collective.
//
// Rows: serial and overlapped; no bucket accumulates, half of them, all. The
// steps of a round go one after the other, in an order that turns; times are
// medians over the rounds, from all ranks at the start to all drained. Beside
// serial without the window over serial with it stand #7992's 1.7 and 1.3: that
// window had no overlap either. With overlap there is less to gain.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/window/mlp_rank.h"
#include "examples/trainer/standard_streams.h"
#include "nlohmann/json.hpp"

namespace commsched::bench {
namespace {

constexpr int32_t kRanks = 2;
constexpr int64_t kLatencyNs = 50'000;

struct Link {
  double bytes_per_s = 0;  // 0: no emulation.
  int64_t latency_ns = 0;
};

// One way to run a step, and what it took.
struct Row {
  std::string name;
  StepKind kind;
  uint64_t collectives = 0;
  uint64_t gradient_bytes = 0;
  std::vector<double> seconds;
  double loss = 0;  // Of the last step.

  double median() const {
    std::vector<double> sorted = seconds;
    auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
};

[[noreturn]] void Die(const char* message) {
  std::fprintf(stderr, "bench_window: %s\n", message);
  std::exit(1);
}

// Runs every row's step in turns, `rounds` times after a first.
void Measure(const MlpSpec& spec, const Link& link, int rounds,
             std::vector<Row>* rows) {
  std::vector<commsched_world_t*> worlds(rows->size());
  for (commsched_world_t*& world : worlds) {
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = kRanks;
    const std::string config =
        "link_bytes_per_s=" + std::to_string(link.bytes_per_s) +
        ",link_latency_ns=" + std::to_string(link.latency_ns);
    if (link.bytes_per_s > 0) desc.backend_config = config.c_str();
    if (commsched_world_create_inproc(&desc, &world) != COMMSCHED_OK) {
      Die(commsched_last_error());
    }
  }
  std::barrier together(kRanks);
  const auto run = [&](int32_t index) {
    std::vector<std::unique_ptr<MlpRank>> ranks;
    for (size_t i = 0; i < rows->size(); ++i) {
      ranks.push_back(
          std::make_unique<MlpRank>(spec, (*rows)[i].kind, worlds[i], index,
                                    link.bytes_per_s, link.latency_ns));
    }
    for (int round = 0; round <= rounds; ++round) {
      for (size_t turn = 0; turn < rows->size(); ++turn) {
        const size_t i = (turn + static_cast<size_t>(round)) % rows->size();
        together.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        const double loss = ranks[i]->Step();
        together.arrive_and_wait();
        const std::chrono::duration<double> took =
            std::chrono::steady_clock::now() - begin;
        if (index != 0) continue;
        Row& row = (*rows)[i];
        row.loss = loss;
        row.collectives = ranks[i]->collectives();
        row.gradient_bytes = ranks[i]->gradient_bytes();
        if (round > 0) row.seconds.push_back(took.count());
      }
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  for (commsched_world_t* world : worlds) commsched_world_destroy(world);
}

std::vector<Row> RowsOf(const MlpSpec& spec, uint32_t stage) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, bool serial, uint64_t budget) {
    Row& row = rows.emplace_back();
    row.name = (serial ? "serial, " : "overlap, ") + name;
    row.kind.zero_stage = stage;
    row.kind.serial = serial;
    row.kind.accumulate_bytes = budget;
  };
  for (bool serial : {true, false}) {
    add("none accumulates", serial, 1);
    add("half accumulate", serial, spec.bytes() / 2);
    add("all accumulate", serial, 0);
  }
  return rows;
}

// Where a reduction of all gradients takes `reduction_ms` where a step with
// four takes `step_ms`.
Link LinkFor(const MlpSpec& spec, uint32_t stage, double step_ms,
             double reduction_ms, int rounds) {
  std::vector<Row> without_link(1);
  without_link[0].kind.zero_stage = stage;
  without_link[0].kind.serial = true;
  Measure(spec, Link(), rounds, &without_link);
  const double reduction_s =
      without_link[0].median() * reduction_ms / (step_ms - 4 * reduction_ms);
  const double latency_s =
      static_cast<double>(kLatencyNs) * 1e-9 * static_cast<double>(spec.layers);
  if (reduction_s <= latency_s) Die("the model is too small for the latency");
  // Of a reduce-scatter on n ranks, (n - 1) / n of the bytes cross a link.
  return {
      static_cast<double>(spec.bytes()) / kRanks / (reduction_s - latency_s),
      kLatencyNs};
}

void CheckLosses(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (std::fabs(row.loss - rows[0].loss) <= 1e-3 * rows[0].loss) continue;
    Die("the rows do not compute the same");
  }
}

void Print(uint32_t stage, const Link& link, double reported,
           const std::vector<Row>& rows) {
  std::printf("ZeRO-%u, link %.1f MB/s, 50 us; #7992: %.1f x\n", stage,
              link.bytes_per_s * 1e-6, reported);
  for (const Row& row : rows) {
    std::printf("  %-26s %7.1f ms  %4.2f x  %3d collectives  %6.2f MiB\n",
                row.name.c_str(), row.median() * 1e3,
                rows[0].median() / row.median(),
                static_cast<int>(row.collectives),
                static_cast<double>(row.gradient_bytes) / (1 << 20));
  }
}

nlohmann::json Json(uint32_t stage, const Link& link, double reported,
                    const std::vector<Row>& rows) {
  nlohmann::json json = {{"zero", stage},
                         {"link_bytes_per_s", link.bytes_per_s},
                         {"reported_ratio", reported}};
  for (const Row& row : rows) {
    json["rows"].push_back({{"name", row.name},
                            {"step_s", row.median()},
                            {"gain", rows[0].median() / row.median()},
                            {"collectives", row.collectives},
                            {"gradient_bytes", row.gradient_bytes}});
  }
  return json;
}

int Main(int argc, char** argv) {
  int rounds = 15;
  bool as_json = false;
  MlpSpec spec;
  CLI::App app("One reduction per window of 4 backwards, and one per backward");
  app.add_option("--rounds", rounds)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--hidden", spec.hidden, "Width of the 8 layers")
      ->check(CLI::Range(64, 8192))
      ->capture_default_str();
  app.add_option("--batch", spec.batch, "Rows per backward and rank")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_flag("--json", as_json);
  CLI11_PARSE(app, argc, argv);
  struct Case {
    uint32_t stage;
    double step_ms, reduction_ms, gain;
  };
  nlohmann::json all = nlohmann::json::array();
  for (const Case& c : {Case{2, 203, 27.7, 1.7}, Case{3, 177, 14.7, 1.3}}) {
    const Link link = LinkFor(spec, c.stage, c.step_ms, c.reduction_ms, rounds);
    std::vector<Row> rows = RowsOf(spec, c.stage);
    Measure(spec, link, rounds, &rows);
    CheckLosses(rows);
    if (as_json) {
      all.push_back(Json(c.stage, link, c.gain, rows));
    } else {
      Print(c.stage, link, c.gain, rows);
    }
  }
  if (as_json) std::printf("%s\n", all.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace commsched::bench

int main(int argc, char** argv) {
  if (!commsched::OpenStandardStreams()) return 1;
  return commsched::FinishOutput(argv[0], commsched::bench::Main(argc, argv));
}
