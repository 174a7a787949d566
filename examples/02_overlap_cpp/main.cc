// The backward pass of a model of six layers, last layer first, whose gradients
// are averaged over two ranks while earlier layers are still computing. The
// same graph is planned twice, serial and overlapped, and run on an emulated
// link; both give the same bits.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commsched/commsched.hpp"

namespace {

namespace cs = commsched::api;

constexpr int kRanks = 2;
constexpr int kLayers = 6;
constexpr int kSteps = 4;
constexpr uint64_t kCount = 16 * 1024;  // elements of a layer's gradient
constexpr uint64_t kBytes = kCount * sizeof(float);
constexpr double kLinkBytesPerS = 1e9;
constexpr int64_t kLinkLatencyNs = 50 * 1000;

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

// Layer `layer`'s gradient is `gradients[layer]`, made by `backward[layer]`.
struct Step {
  cs::Graph graph;
  std::vector<cs::BufferId> gradients;
  std::vector<cs::OpId> backward;
};

Step Describe() {
  Step step;
  const cs::GroupId group = Value(step.graph.AddGroup("dp", kRanks));
  step.gradients.resize(kLayers);
  step.backward.resize(kLayers);
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    const std::string name = std::to_string(layer);
    cs::Buffer buffer;
    buffer.name = "gradient." + name;
    buffer.count = kCount;
    buffer.ownership = COMMSCHED_BOUND;
    step.gradients[layer] = Value(step.graph.AddBuffer(buffer));

    cs::Compute backward;
    backward.name = "backward." + name;
    backward.accesses = {cs::Writes(step.gradients[layer])};
    backward.cost_ns = 200 * 1000;
    step.backward[layer] = Value(step.graph.Add(backward));

    cs::Collective average;
    average.name = "average." + name;
    average.kind = COMMSCHED_ALL_REDUCE;
    average.reduce_op = COMMSCHED_AVG;
    average.group = group;
    average.input = cs::Reads(step.gradients[layer]);
    average.output = cs::Writes(step.gradients[layer]);
    Value(step.graph.Add(average));
  }
  return step;
}

// At most two launches in flight, and two layers' gradients in one launch.
cs::Plan MakePlan(const Step& step, commsched_schedule_t schedule) {
  commsched_plan_options_t options = commsched_plan_options_init();
  options.schedule = schedule;
  options.deterministic = 1;
  options.max_launches_in_flight = 2;
  options.coalesce_bytes = 2 * kBytes;
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  profile.link_bytes_per_s = kLinkBytesPerS;
  profile.link_latency_ns = kLinkLatencyNs;
  return Value(cs::Plan::Build(step.graph, options, profile));
}

// What one rank saw: the bits of its gradients after the last step.
struct Outcome {
  std::vector<std::vector<float>> gradients;
  commsched_session_counters_t counters;
};

void RunRank(const cs::World& world, int rank, const Step& step,
             const cs::Plan& plan, Outcome* outcome) {
  const cs::Context context = Value(cs::Context::Create(world, rank));
  const cs::Group group = Value(cs::Group::CreateWorld(context, "dp"));
  outcome->gradients.assign(kLayers, std::vector<float>(kCount));
  cs::SessionSpec spec;
  spec.context = &context;
  spec.plan = &plan;
  spec.groups = {&group};
  for (int layer = 0; layer < kLayers; ++layer) {
    spec.Bind(step.gradients[layer], outcome->gradients[layer].data(), kBytes);
  }
  cs::Session session = Value(cs::Session::Create(spec));
  for (int t = 0; t < kSteps; ++t) {
    Check(session.StepBegin());
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      Check(session.Before(step.backward[layer]));
      for (uint64_t i = 0; i < kCount; ++i) {
        outcome->gradients[layer][i] =
            static_cast<float>(i % 97 + layer) / static_cast<float>(t + 3) +
            static_cast<float>(rank) / 7;
      }
      Check(session.After(step.backward[layer]));
    }
    Check(session.StepEnd());
  }
  Check(session.Drain());
  outcome->counters = Value(session.GetCounters());
}

std::vector<Outcome> Run(const Step& step, const cs::Plan& plan) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = kRanks;
  const std::string link =
      "link_bytes_per_s=" + std::to_string(kLinkBytesPerS) +
      ",link_latency_ns=" + std::to_string(kLinkLatencyNs);
  desc.backend_config = link.c_str();
  const cs::World world = Value(cs::World::CreateInproc(desc));
  std::vector<Outcome> outcomes(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back(
        [&, rank] { RunRank(world, rank, step, plan, &outcomes[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void Print(const char* name, const cs::Plan& plan, const Outcome& outcome) {
  const commsched_plan_info_t info = Value(plan.GetInfo());
  const commsched_prediction_t prediction = Value(plan.Predict());
  std::printf("%s: %llu collectives in %llu launches per step\n", name,
              static_cast<unsigned long long>(info.num_collectives),
              static_cast<unsigned long long>(info.num_launches));
  std::printf(
      "  predicted: %lld %% of the communication is exposed\n",
      static_cast<long long>(100 * prediction.exposed_ns / prediction.comm_ns));
  std::printf("  ran: %llu steps, %llu launches\n",
              static_cast<unsigned long long>(outcome.counters.steps),
              static_cast<unsigned long long>(outcome.counters.launches));
}

}  // namespace

int main() {
  const Step step = Describe();
  const cs::Plan serial = MakePlan(step, COMMSCHED_SERIAL);
  const cs::Plan overlap = MakePlan(step, COMMSCHED_OVERLAP);
  const std::vector<Outcome> by_hand = Run(step, serial);
  const std::vector<Outcome> planned = Run(step, overlap);
  Print("serial", serial, by_hand[0]);
  Print("overlap", overlap, planned[0]);
  const bool same = by_hand[0].gradients == planned[0].gradients &&
                    by_hand[0].gradients == planned[1].gradients;
  std::printf("gradients: %s\n", same ? "the same bits" : "DIFFERENT");
  const bool printed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return same && printed ? 0 : 1;
}
