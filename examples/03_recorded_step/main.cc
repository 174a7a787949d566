// Two ranks call eagerly, in their own order; the recording makes a plan of it.
// Layer 1 is a branch: from step 4 on, rank 1 does not take it.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commsched/recording.hpp"

namespace {

namespace cs = commsched::api;

constexpr int kRanks = 2;
constexpr int kLayers = 3;
constexpr int kSteps = 10;
constexpr int kCount = 4;

void Check(const cs::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Value(cs::Result<T> result) {
  Check(result.status());
  return *std::move(result);
}

struct Layer {
  float gradient[kCount] = {};
  cs::OpId backward, reduce, update;
};

void Declare(cs::Recording& recording, const std::string& number,
             Layer* layer) {
  const cs::BufferId gradient = Value(recording.AddBuffer(
      {"gradient." + number, COMMSCHED_F32, kCount}, layer->gradient));
  cs::Compute compute;
  compute.name = "backward." + number;
  compute.accesses = {cs::Writes(gradient)};
  layer->backward = Value(recording.Add(compute));
  compute.name = "update." + number;
  compute.accesses = {cs::Reads(gradient)};
  layer->update = Value(recording.Add(compute));
  cs::Collective reduce;
  reduce.name = "reduce." + number;
  reduce.input = cs::Reads(gradient);  // in place, on group 0
  reduce.output = cs::Writes(gradient);
  layer->reduce = Value(recording.Add(reduce));
}

bool Takes(int rank, int step, int layer) {
  return layer != 1 || step < 4 || rank == 0;
}

// What main() prints of a rank.
struct Outcome {
  float sums[kSteps][kLayers];
  commsched_recording_info_t info[kSteps];
};

void RunStep(cs::Recording& recording, int rank, int step, Layer* layers,
             Outcome* outcome) {
  Check(recording.StepBegin());
  for (int l = kLayers - 1; l >= 0; --l) {
    if (!Takes(rank, step, l)) continue;
    Check(recording.Before(layers[l].backward));
    for (float& each : layers[l].gradient) {
      each = static_cast<float>(10 * rank + l + 1);
    }
    Check(recording.After(layers[l].backward));
    Check(recording.Submit(layers[l].reduce));
  }
  for (int l = 0; l < kLayers; ++l) {
    if (!Takes(rank, step, l)) continue;
    Check(recording.Before(layers[l].update));
    outcome->sums[step][l] = layers[l].gradient[0];
    Check(recording.After(layers[l].update));
  }
  Check(recording.StepEnd());
  outcome->info[step] = Value(recording.GetInfo());
}

void RunRank(const cs::World& world, int rank, Outcome* outcome) {
  const cs::Context context = Value(cs::Context::Create(world, rank));
  const cs::Group group = Value(cs::Group::CreateWorld(context, "dp"));
  Layer layers[kLayers];
  cs::RecordingSpec spec;
  spec.context = &context;
  spec.groups = {&group};
  cs::Recording recording = Value(cs::Recording::Create(spec));
  for (int l = 0; l < kLayers; ++l) {
    Declare(recording, std::to_string(l), &layers[l]);
  }
  for (int step = 0; step < kSteps; ++step) {
    RunStep(recording, rank, step, layers, outcome);
  }
  Check(recording.Drain());
}

void Print(const std::vector<Outcome>& outcomes, int step) {
  static const char* const kPhases[] = {"recording", "frozen",
                                        "recording again"};
  std::printf("step %d:", step);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::printf(" rank %d", rank);
    for (int l = 0; l < kLayers; ++l) {
      if (Takes(rank, step, l)) {
        std::printf(" %g", outcomes[rank].sums[step][l]);
      } else {
        std::printf(" -");
      }
    }
  }
  const commsched_recording_info_t& info = outcomes[0].info[step];
  std::printf("; then %s, %d plan(s)\n", kPhases[info.phase],
              static_cast<int>(info.plans));
}

}  // namespace

int main() {
  const cs::World world = Value(cs::World::CreateInproc(kRanks));
  std::vector<Outcome> outcomes(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { RunRank(world, rank, &outcomes[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int step = 0; step < kSteps; ++step) Print(outcomes, step);
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : 1;
}
