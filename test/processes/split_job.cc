// One rank of a job of four whose ranks reduce in pairs, in worlds of their
// own: split_job SECONDS [CONFIG]
//
// Says "at work" after some steps. Ranks 0 and 1 reduce for so many seconds,
// and expect that the job has lost a rank by then: that nothing can be done in
// its world any more, but all in theirs, and in one that they make then. Ranks
// 2 and 3 reduce until that fails, and say why. Exits with 1, saying why, when
// something else fails.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "commsched/commsched.hpp"
#include "test/processes/job_rank.h"

namespace {

namespace cs = commsched::api;
using commsched::test::Say;
using commsched::test::Value;
using commsched::test::Work;
using commsched::test::WorkFor;
using Seconds = std::chrono::seconds;

constexpr int32_t kRanks = 4;
constexpr size_t kCount = 5000;
constexpr int kSteps = 16;

// All-reduces floats over all ranks of a context's world, step by step.
class Reducer {
 public:
  explicit Reducer(const cs::Context& context)
      : gradient_(kCount),
        group_(Value(cs::Group::CreateWorld(context, "dp"))) {
    const cs::GroupId dp = Value(
        graph_.AddGroup("dp", static_cast<uint32_t>(context.world_size())));
    cs::Buffer buffer;
    buffer.name = "gradient";
    buffer.count = kCount;
    buffer.ownership = COMMSCHED_BOUND;
    const cs::BufferId gradient = Value(graph_.AddBuffer(buffer));
    cs::Compute backward;
    backward.name = "backward";
    backward.accesses = {cs::Writes(gradient)};
    backward_ = Value(graph_.Add(backward));
    cs::Collective reduce;
    reduce.name = "reduce";
    reduce.kind = COMMSCHED_ALL_REDUCE;
    reduce.reduce_op = COMMSCHED_SUM;
    reduce.group = dp;
    reduce.input = cs::Reads(gradient);
    reduce.output = cs::Writes(gradient);
    Value(graph_.Add(reduce));
    plan_ = Value(cs::Plan::Build(graph_, commsched_plan_options_init()));
    cs::SessionSpec spec;
    spec.context = &context;
    spec.plan = &plan_;
    spec.groups = {&group_};
    spec.Bind(gradient, gradient_.data(), kCount * sizeof(float));
    session_ = Value(cs::Session::Create(spec));
  }

  // What the last element of all ranks' gradients is in sum, if this rank has
  // `value`.
  cs::Status Run(float value, float* sum) {
    (void)session_.StepBegin();
    (void)session_.Before(backward_);
    gradient_.back() = value;
    (void)session_.After(backward_);
    (void)session_.StepEnd();
    const cs::Status status = session_.Drain();
    *sum = gradient_.back();
    return status;
  }

 private:
  std::vector<float> gradient_;
  cs::Group group_;
  cs::Graph graph_;
  cs::OpId backward_ = {};
  cs::Plan plan_;
  cs::Session session_;
};

// What all ranks of the job are told that want something of all.
std::string AskAll(commsched_context_t* context) {
  commsched_gather_desc_t desc = commsched_gather_desc_init();
  desc.name = "everybody";
  desc.take = [](void*, int32_t, const void*, uint64_t) {};
  if (commsched_context_gather(context, &desc) == COMMSCHED_OK) return "OK";
  return commsched_last_error();
}

}  // namespace

int main(int argc, char** argv) {
  const Seconds time(argc > 1 ? std::atol(argv[1]) : 0);
  if (argc < 2 || argc > 3 || time.count() < 1) {
    std::fprintf(stderr, "usage: split_job SECONDS [CONFIG]\n");
    return 2;
  }
  commsched_join_desc_t desc = commsched_join_desc_init();
  if (argc == 3) desc.backend_config = argv[2];
  const cs::World world = Value(cs::World::Join(desc));
  if (world.size() != kRanks) {
    std::fprintf(stderr, "%d ranks, not %d\n", world.size(), kRanks);
    return 2;
  }
  const cs::Context job = Value(cs::Context::Create(world, world.rank()));
  const int32_t first = world.rank() / 2 * 2;
  const cs::Context pair = Value(job.Split({first, first + 1}, "pair"));
  Reducer of_pair(pair);
  Work(&of_pair, kSteps, 2);
  Say("at work");
  if (first == 2) {
    float sum = 0;
    cs::Status status;
    while (status.ok()) status = of_pair.Run(1, &sum);
    Say("pair: " + status.ToString());
    return 0;
  }
  WorkFor(time, &of_pair);
  Say("job: " + AskAll(job.get()));
  {
    const cs::Context again = Value(job.Split({1, 0}, "again"));
    Reducer of_again(again);
    Work(&of_again, kSteps, 2);
  }
  Work(&of_pair, kSteps, 2);
  Say("pair: OK");
  return 0;
}
