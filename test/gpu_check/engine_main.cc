// The part "engine" of gpu_check, on the public ABI: what the reference engine
// trains on devices is, bit for bit, what it trains on the host.
//
//   gpu_check_engine --part engine [--max-ranks N] [--quick] [--seed S]
//   gpu_check_engine --member train    one process of a job, on device 0
//
// Results go to file descriptor 3. Exit codes: 0 all hold, 1 one does not, 2
// usage.
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/engine_training.h"
#include "test/gpu_check/result.h"

namespace commsched::gpu_check {
namespace {

struct Way {
  const char* name;
  void (*set)(TrainingSpec* spec);
};

constexpr Way kWays[] = {
    {"fp32", [](TrainingSpec* spec) { spec->engine.clip_norm = 0.5f; }},
    {"bf16, 3 micro-batches",
     [](TrainingSpec* spec) {
       spec->options.parameter_dtype = COMMSCHED_BF16;
       spec->options.reduce_dtype = COMMSCHED_BF16;
       spec->options.micro_batches = 3;
       spec->options.accumulate_bytes = 40'000;
     }},
    {"fp16, scaled loss",
     [](TrainingSpec* spec) {
       spec->options.parameter_dtype = COMMSCHED_F16;
       spec->options.reduce_dtype = COMMSCHED_F16;
       spec->engine.loss_scale = 1024;
       spec->engine.loss_scale_window = 3;
       spec->engine.clip_norm = 1;
     }},
};

TrainingSpec SpecOf(const Way& way, uint32_t stage, int32_t ranks) {
  TrainingSpec spec;
  spec.ranks = ranks;
  spec.options.zero_stage = stage;
  spec.options.bucket_bytes = 16384;
  spec.engine.weight_decay = 0.1f;
  way.set(&spec);
  return spec;
}

absl::Status Compare(const TrainingEnd& host, const TrainingEnd& device,
                     size_t rank) {
  if (!host.error.empty()) {
    return absl::InternalError(absl::StrCat("on the host: ", host.error));
  }
  if (!device.error.empty()) {
    return absl::InternalError(absl::StrCat("rank ", rank, ": ", device.error));
  }
  if (host.weights.empty() || host.weights.size() != device.weights.size()) {
    return absl::InternalError(absl::StrCat(
        device.weights.size(), " weights, not ", host.weights.size()));
  }
  for (size_t i = 0; i < host.weights.size(); ++i) {
    if (std::memcmp(&host.weights[i], &device.weights[i], sizeof(float)) == 0) {
      continue;
    }
    return absl::InternalError(
        absl::StrFormat("rank %d: weight %d is %.9g, on the host %.9g", rank, i,
                        device.weights[i], host.weights[i]));
  }
  if (host.norm == device.norm) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("rank %d: the norm is %.17g, on the host %.17g", rank,
                      device.norm, host.norm));
}

std::string FiguresOf(const TrainingSpec& spec, const TrainingEnd& end) {
  // Of one rank collectives are copies.
  return absl::StrCat(spec.ranks,
                      spec.ranks == 1 ? " rank (copies), " : " ranks, ",
                      spec.steps, " steps, ", end.weights.size(), " weights");
}

std::string NameOf(const Way& way, uint32_t stage) {
  return absl::StrCat("ZeRO-", stage, ", ", way.name,
                      ": the host's weights, bit for bit");
}

void CheckEngine(int max_ranks, Results* results) {
  const auto launcher = Launcher::Get();
  if (!launcher.ok()) return results->Add("engine", launcher.status());
  const int32_t ranks = std::min({(*launcher)->num_devices(), max_ranks, 4});
  for (const Way& way : kWays) {
    for (uint32_t stage = 0; stage <= 3; ++stage) {
      TrainingSpec spec = SpecOf(way, stage, ranks);
      const std::vector<TrainingEnd> host = TrainAll(spec);
      spec.launcher = *launcher;
      const std::vector<TrainingEnd> device = TrainAll(spec);
      absl::Status same;
      for (size_t rank = 0; rank < host.size() && same.ok(); ++rank) {
        same = Compare(host[rank], device[rank], rank);
      }
      results->Add(NameOf(way, stage), same, FiguresOf(spec, device[0]));
    }
  }
}

void TrainMember(Results* results) {
  const auto launcher = Launcher::Get();
  if (!launcher.ok()) return results->Add("engine", launcher.status());
  commsched_join_desc_t desc = commsched_join_desc_init();
  desc.backend = "nccl";
  desc.device_kind = COMMSCHED_DEVICE_CUDA;
  desc.device = 0;
  commsched_world_t* world = nullptr;
  if (commsched_world_join(&desc, &world) != COMMSCHED_OK) {
    return results->Add("join", absl::InternalError(commsched_last_error()));
  }
  const int32_t rank = commsched_world_rank(world);
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    TrainingSpec spec = SpecOf(kWays[0], stage, commsched_world_size(world));
    const std::vector<TrainingEnd> host = TrainAll(spec);
    spec.launcher = *launcher;
    const TrainingEnd device = TrainRank(spec, world, rank);
    results->Add(NameOf(kWays[0], stage),
                 Compare(host[static_cast<size_t>(rank)], device,
                         static_cast<size_t>(rank)),
                 FiguresOf(spec, device));
    if (!device.error.empty()) break;  // The others have failed with it.
  }
  commsched_world_destroy(world);
}

int Main(int argc, char** argv) {
  std::string part, member;
  int max_ranks = 8;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") continue;
    if (i + 1 == argc) return 2;
    const std::string value = argv[++i];
    if (name == "--part") part = value;
    if (name == "--member") member = value;
    if (name == "--max-ranks" && !absl::SimpleAtoi(value, &max_ranks)) return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Results results(kResultsFile);
  if (part == "engine") {
    CheckEngine(max_ranks, &results);
  } else if (member == "train") {
    TrainMember(&results);
  } else {
    std::fprintf(stderr, "gpu_check_engine: usage: --part engine\n");
    return 2;
  }
  return results.all_hold() ? 0 : 1;
}

}  // namespace
}  // namespace commsched::gpu_check

int main(int argc, char** argv) {
  return commsched::gpu_check::Main(argc, argv);
}
