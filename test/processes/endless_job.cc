// One rank of a job that goes on until something ends it:
// endless_job ELEMENTS DETERMINISTIC [CONFIG]
//
// Joins the job that its environment states, with CONFIG for the backend, and
// all-reduces as many elements (f32) step after step, their sums in the order
// that is promised if DETERMINISTIC is 1. Says "at work" every 16 steps, a few
// times: nobody need read more. On SIGUSR1 it stops before its next step, as by
// SIGSTOP. Exits with 1, saying why, when a call fails.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "commsched/commsched.hpp"

namespace {

namespace cs = commsched::api;

constexpr int kStepsPerLine = 16;
constexpr int kLines = 40;

volatile std::sig_atomic_t stops = 0;

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

struct Step {
  cs::Graph graph;
  cs::BufferId gradient;
  cs::OpId backward;
};

Step Describe(uint32_t ranks, uint64_t count) {
  Step step;
  const cs::GroupId group = Value(step.graph.AddGroup("dp", ranks));
  cs::Buffer buffer;
  buffer.name = "gradient";
  buffer.count = count;
  buffer.ownership = COMMSCHED_BOUND;
  step.gradient = Value(step.graph.AddBuffer(buffer));
  cs::Compute backward;
  backward.name = "backward";
  backward.accesses = {cs::Writes(step.gradient)};
  step.backward = Value(step.graph.Add(backward));
  cs::Collective reduce;
  reduce.name = "reduce";
  reduce.kind = COMMSCHED_ALL_REDUCE;
  reduce.reduce_op = COMMSCHED_SUM;
  reduce.group = group;
  reduce.input = cs::Reads(step.gradient);
  reduce.output = cs::Writes(step.gradient);
  Value(step.graph.Add(reduce));
  return step;
}

cs::Plan MakePlan(const Step& step, bool deterministic) {
  commsched_plan_options_t options = commsched_plan_options_init();
  options.deterministic = deterministic ? 1 : 0;
  return Value(cs::Plan::Build(step.graph, options));
}

// A step; what a failed call says is what all later ones do.
cs::Status RunStep(cs::Session* session, const Step& step) {
  (void)session->StepBegin();
  (void)session->Before(step.backward);
  (void)session->After(step.backward);
  (void)session->StepEnd();
  return session->Drain();
}

cs::Status RunForEver(cs::Session* session, const Step& step) {
  std::signal(SIGUSR1, [](int) { stops = 1; });
  for (int t = 1;; t = t % (1 << 30) + 1) {
    if (stops == 1) std::raise(SIGSTOP);
    const cs::Status status = RunStep(session, step);
    if (!status.ok()) return status;
    if (t % kStepsPerLine != 0 || t > kLines * kStepsPerLine) continue;
    std::printf("at work\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc > 1 ? std::atol(argv[1]) : 0;
  if (argc < 3 || argc > 4 || count < 1) {
    std::fprintf(stderr,
                 "usage: endless_job ELEMENTS DETERMINISTIC [CONFIG]\n");
    return 2;
  }
  commsched_join_desc_t desc = commsched_join_desc_init();
  if (argc == 4) desc.backend_config = argv[3];
  const cs::World world = Value(cs::World::Join(desc));
  const cs::Context context = Value(cs::Context::Create(world, world.rank()));
  const cs::Group group = Value(cs::Group::CreateWorld(context, "dp"));
  const Step step = Describe(static_cast<uint32_t>(world.size()),
                             static_cast<uint64_t>(count));
  const cs::Plan plan = MakePlan(step, std::atoi(argv[2]) == 1);
  std::vector<float> gradient(static_cast<size_t>(count));
  cs::SessionSpec spec;
  spec.context = &context;
  spec.plan = &plan;
  spec.groups = {&group};
  spec.Bind(step.gradient, gradient.data(), gradient.size() * sizeof(float));
  cs::Session session = Value(cs::Session::Create(spec));
  const cs::Status status = RunForEver(&session, step);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;  // Leaves the job as a program should: the others learn why.
}
