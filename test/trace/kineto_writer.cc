// Writes traces of made-up steps and what metrics.h says of them, for the tests
// in Python:  kineto_writer FOLDER RANKS STEPS GRID_NS SEED
//
// FOLDER/traces/rank<k>.json  what a user would hand to the analysis
// FOLDER/rank<k>.pftrace      the same for Perfetto
// FOLDER/metrics.json         our figures, summed over the complete steps
//
// Times are multiples of GRID_NS. At 1000 nothing is lost to the trace's whole
// microseconds and the figures must agree exactly.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trace/kineto.h"
#include "trace/metrics.h"
#include "trace/perfetto.h"

namespace commsched {
namespace {

struct Options {
  std::filesystem::path folder;
  int ranks;
  uint64_t steps;
  int64_t grid_ns;
  uint64_t seed;
};

// Names that would be something else than a computation, or no JSON, if they
// were copied as they are.
RecordNames Names(int rank, int world_size) {
  RecordNames names;
  names.rank = rank;
  names.world_size = world_size;
  names.ops = {"forward h.0",     "GradSync step",
               "windmap",         "nccl_prepare",
               "hip op",          "Memcpy weights",
               "ProfilerStep#9",  "say \"hi\"\\\n\xFF\xC3\xA9",
               "cudaLaunchKernel"};
  const std::pair<const char*, const char*> kinds[] = {
      {"_reduce_scatter_base", "sum"},
      {"_allgather_base", ""},
      {"allreduce", "avg"},
      {"all_to_all", ""}};
  for (const auto& [collective, reduction] : kinds) {
    RecordNames::LaunchName launch;
    launch.name = absl::StrCat(collective, " bucket \"rank\": 77 ",
                               names.launches.size());
    launch.collective = collective;
    launch.reduction = reduction;
    launch.dtype = "f32";
    launch.axis = names.launches.size() < 2 ? "dp_shard" : "sp";
    for (int r = 0; r < world_size; ++r) launch.ranks.push_back(r);
    launch.input_count = 1024;
    launch.output_count = 1024 / static_cast<uint64_t>(world_size);
    launch.bytes = 4096;
    launch.num_members = 2;
    names.launches.push_back(launch);
  }
  for (uint32_t op = 0; op < names.ops.size(); ++op) {
    names.launch_waits.push_back({{.launch = op % 4, .distance = op % 2}});
  }
  return names;
}

class Maker {
 public:
  Maker(const Options& options, int rank)
      : options_(options),
        random_(options.seed * 1000 + static_cast<uint64_t>(rank)),
        recorder_(1 << 16) {
    recorder_.SetNames(Names(rank, options.ranks));
  }

  // Two compute lanes, two communication lanes with several launches in flight;
  // launches run on into the next step, but not out of the last complete one,
  // where the analysis would count them whole and we cut them.
  const Recorder& Make() {
    int64_t now = 123456789 * Grid(1);
    for (uint64_t step = 0; step <= options_.steps; ++step) {
      const int64_t length = Grid(4000 + Below(2000));
      Add(RecordKind::kStepBegin, step, now, now, 0, 0);
      const bool last = step + 1 >= options_.steps;
      const int64_t limit = now + length;
      FillCompute(step, now, limit);
      for (int i = 0; i < 12; ++i) {
        const int64_t begin = now + Grid(Below(4000));
        int64_t end = begin + Grid(Below(700));
        if (last && end > limit) end = limit;
        const int64_t launch = Below(4);
        Add(RecordKind::kLaunch, step, begin, end, launch, Below(2));
        // Ready within the step, or at once.
        recorder_.Add(HoldRecord(
            {.ready_ns = i % 3 == 0 ? begin : now + (begin - now) / 2,
             .started_ns = begin},
            step, static_cast<uint32_t>(launch), 0));
      }
      now = limit;
    }
    return recorder_;
  }

 private:
  int64_t Grid(int64_t units) { return units * 1000 + Jitter(); }
  int64_t Jitter() {
    const int64_t steps = 1000 / options_.grid_ns;
    return steps > 1 ? Below(steps) * options_.grid_ns : 0;
  }
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }

  void FillCompute(uint64_t step, int64_t begin, int64_t limit) {
    for (int64_t lane = 0; lane < 2; ++lane) {
      int64_t at = begin;
      while (true) {
        const int64_t start = at + Grid(Below(300));
        const int64_t end = start + Grid(Below(400));
        if (end >= limit) break;
        Add(RecordKind::kWait, step, at, start, Below(9), lane);
        Add(RecordKind::kCompute, step, start, end, Below(9), lane);
        at = end;
      }
    }
  }

  void Add(RecordKind kind, uint64_t step, int64_t begin_ns, int64_t end_ns,
           int64_t index, int64_t lane) {
    Record record;
    record.kind = kind;
    record.step = step;
    record.begin_ns = begin_ns;
    record.end_ns = end_ns;
    record.index = static_cast<uint32_t>(index);
    record.lane = static_cast<uint8_t>(lane);
    recorder_.Add(record);
  }

  const Options& options_;
  std::mt19937_64 random_;
  Recorder recorder_;
};

std::string MetricsJson(int rank, const std::vector<StepMetrics>& steps) {
  StepMetrics sum;
  for (const StepMetrics& step : steps) {
    sum.step_ns += step.step_ns;
    sum.compute_ns += step.compute_ns;
    sum.comm_ns += step.comm_ns;
    sum.exposed_ns += step.exposed_ns;
    sum.num_launches += step.num_launches;
    sum.num_collectives += step.num_collectives;
  }
  return absl::StrCat(
      "{\"rank\": ", rank, ", \"steps\": ", steps.size(),
      ", \"step_ns\": ", sum.step_ns, ", \"compute_ns\": ", sum.compute_ns,
      ", \"comm_ns\": ", sum.comm_ns, ", \"exposed_ns\": ", sum.exposed_ns,
      ", \"launches\": ", sum.num_launches,
      ", \"collectives\": ", sum.num_collectives, "}");
}

int Run(const Options& options) {
  const std::filesystem::path traces = options.folder / "traces";
  std::filesystem::create_directories(traces);
  std::ofstream metrics(options.folder / "metrics.json");
  metrics << "[";
  for (int rank = 0; rank < options.ranks; ++rank) {
    Maker maker(options, rank);
    const Recorder& recorder = maker.Make();
    const std::string path =
        (traces / absl::StrCat("rank", rank, ".json")).string();
    if (const absl::Status status = WriteKineto(recorder, path); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
    const std::string perfetto =
        (options.folder / absl::StrCat("rank", rank, ".pftrace")).string();
    if (const absl::Status status = WritePerfetto(recorder, perfetto);
        !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
    metrics << (rank > 0 ? ",\n" : "\n")
            << MetricsJson(rank, ComputeStepMetrics(recorder));
  }
  metrics << "\n]\n";
  metrics.close();
  return metrics ? 0 : 1;
}

}  // namespace
}  // namespace commsched

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s FOLDER RANKS STEPS GRID_NS SEED\n",
                 argv[0]);
    return 2;
  }
  return commsched::Run(
      {argv[1], std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10),
       std::atoll(argv[4]), std::strtoull(argv[5], nullptr, 10)});
}
