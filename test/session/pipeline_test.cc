// Pipelines from graph to result: roles planned together, each stage's plan on
// a rank of its own.
#include "test/support/pipeline.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "session/session.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::PipelineSpec;
using Values = std::vector<float>;

constexpr float kModulus = 1021;  // whole numbers stay exact

// What the ops compute, on the buffers of one stage.
class Stage {
 public:
  Stage(const PipelineSpec& spec, int stage) : spec_(spec), stage_(stage) {
    (*this)["data"] = Filled(3);
    (*this)["norm"] = {0};
    for (int v = 0; v < spec.chunks; ++v) {
      (*this)[absl::StrCat("w.", v)] =
          Filled(static_cast<float>(1 + stage + 10 * v));
      (*this)[absl::StrCat("g.", v)] = Filled(0);
    }
  }

  Values& operator[](const std::string& buffer) { return memory_[buffer]; }
  Values Filled(float value) const { return Values(spec_.count, value); }

  bool IsFirst(int chunk) const { return stage_ == 0 && chunk == 0; }
  bool IsLast(int chunk) const {
    return stage_ == spec_.stages - 1 && chunk == spec_.chunks - 1;
  }

  void Run(const std::string& op) {
    const std::vector<std::string> parts = absl::StrSplit(op, '.');
    if (parts[0] == "fwd") Forward(std::stoi(parts[1]), parts[2]);
    if (parts[0] == "bwd") Backward(std::stoi(parts[1]), parts[2]);
    if (parts[0] == "square") {
      Values& norm = (*this)["norm"];
      norm[0] = 0;
      for (int v = 0; v < spec_.chunks; ++v) {
        for (float g : (*this)[absl::StrCat("g.", v)]) {
          norm[0] = std::fmod(norm[0] + g, kModulus);
        }
      }
    }
    if (parts[0] == "opt") Optimize();
  }

 private:
  void Forward(int v, const std::string& k) {
    const std::string id = absl::StrCat(".", v, ".", k);
    const Values& in = (*this)[IsFirst(v) ? "data" : "in" + id];
    const Values& w = (*this)[absl::StrCat("w.", v)];
    Values& out = (*this)["out" + id];
    out.resize(spec_.count);
    const float offset = IsFirst(v) ? std::stof(k) : 0;
    for (size_t i = 0; i < in.size(); ++i) {
      out[i] = std::fmod(2 * in[i] + w[i] + offset, kModulus);
    }
  }

  void Backward(int v, const std::string& k) {
    const std::string id = absl::StrCat(".", v, ".", k);
    const Values& from = (*this)[(IsLast(v) ? "out" : "din") + id];
    const Values& out = (*this)["out" + id];
    const Values& w = (*this)[absl::StrCat("w.", v)];
    Values& g = (*this)[absl::StrCat("g.", v)];
    Values& to = (*this)["dout" + id];
    to.resize(spec_.count);
    for (size_t i = 0; i < from.size(); ++i) {
      g[i] += std::fmod(from[i] + out[i], kModulus);
      to[i] = std::fmod(3 * from[i] + w[i], kModulus);
    }
  }

  void Optimize() {
    for (int v = 0; v < spec_.chunks; ++v) {
      Values& w = (*this)[absl::StrCat("w.", v)];
      Values& g = (*this)[absl::StrCat("g.", v)];
      for (size_t i = 0; i < w.size(); ++i) {
        w[i] = std::fmod(w[i] + g[i] + (*this)["norm"][0], kModulus);
        g[i] = 0;
      }
    }
  }

  const PipelineSpec& spec_;
  const int stage_;
  std::map<std::string, Values> memory_;
};

std::vector<Stage> MakeStages(const PipelineSpec& spec) {
  std::vector<Stage> stages;
  for (int s = 0; s < spec.stages; ++s) stages.emplace_back(spec, s);
  return stages;
}

// One micro-batch after the other, through all chunks and back.
std::vector<Stage> RunAlone(const PipelineSpec& spec, int steps) {
  std::vector<Stage> stages = MakeStages(spec);
  const int last = spec.stages * spec.chunks - 1;
  auto name = [&](const char* what, int chunk, int k) {
    return absl::StrCat(what, ".", chunk / spec.stages, ".", k);
  };
  auto at = [&](int chunk) -> Stage& {
    return stages[static_cast<size_t>(chunk % spec.stages)];
  };
  for (int step = 0; step < steps; ++step) {
    for (int k = 0; k < spec.micro_batches; ++k) {
      for (int c = 0; c <= last; ++c) {
        if (c > 0) at(c)[name("in", c, k)] = at(c - 1)[name("out", c - 1, k)];
        at(c).Run(name("fwd", c, k));
      }
      for (int c = last; c >= 0; --c) {
        if (c < last) {
          at(c)[name("din", c, k)] = at(c + 1)[name("dout", c + 1, k)];
        }
        at(c).Run(name("bwd", c, k));
      }
    }
    float norm = 0;
    for (Stage& stage : stages) {
      stage.Run("square");
      norm += stage["norm"][0];
    }
    for (Stage& stage : stages) {
      stage["norm"][0] = norm;
      stage.Run("opt");
    }
  }
  return stages;
}

SessionSpec SpecOf(const std::shared_ptr<World>& world,
                   const std::shared_ptr<const Plan>& plan, Stage* stage) {
  SessionSpec spec;
  spec.world = world;
  spec.world_rank = static_cast<int>(plan->role);
  spec.plan = plan;
  for (const Group& group : plan->graph->groups()) {
    GroupSpec members;
    members.axis = group.name;
    for (int r = 0; r < group.size; ++r) members.ranks.push_back(r);
    members.rank = spec.world_rank;
    spec.groups.push_back(members);
  }
  for (uint32_t i = 0; i < plan->graph->buffers().size(); ++i) {
    const Buffer& buffer = plan->graph->buffers()[i];
    Values& memory = (*stage)[buffer.name];
    memory.resize(buffer.count);
    spec.bindings.push_back({BufferId(i), memory.data(), buffer.bytes()});
  }
  spec.launch_timeout_ns = 20'000'000'000;
  return spec;
}

struct Context {
  const Graph* graph;
  Stage* stage;
};

absl::Status Compute(void* user, OpId op, Stream*) {
  auto* context = static_cast<Context*>(user);
  context->stage->Run(context->graph->op(op).name);
  return absl::OkStatus();
}

void ExpectSameWeights(const PipelineSpec& spec, const PlanOptions& options) {
  constexpr int kSteps = 3;
  const auto graphs = test::MakePipeline(spec);
  const auto plans = BuildPlans(test::RolesOf(graphs), options);
  ASSERT_OK(plans);
  WorldSpec world_spec;
  world_spec.size = spec.stages;
  const auto world = World::Create(world_spec);
  ASSERT_OK(world);
  std::vector<Stage> stages = MakeStages(spec);
  ASSERT_OK(RunAllRanks(spec.stages, [&](int rank) {
    const size_t r = static_cast<size_t>(rank);
    auto session = Session::Create(SpecOf(*world, (*plans)[r], &stages[r]));
    if (!session.ok()) return session.status();
    Context context{&graphs[r], &stages[r]};
    const absl::Status status = (*session)->Run(Compute, &context, kSteps);
    return status.ok() ? (*session)->Drain() : status;
  }));
  std::vector<Stage> expected = RunAlone(spec, kSteps);
  for (size_t s = 0; s < stages.size(); ++s) {
    for (int v = 0; v < spec.chunks; ++v) {
      const std::string w = absl::StrCat("w.", v);
      EXPECT_EQ(stages[s][w], expected[s][w]) << "stage " << s << " " << w;
    }
  }
}

TEST(PipelineTest, TwoStagesComputeWhatOneWould) {
  for (bool interleave : {false, true}) {
    ExpectSameWeights({.stages = 2,
                       .micro_batches = 4,
                       .one_forward_one_backward = interleave},
                      {});
  }
}

TEST(PipelineTest, FourStagesComputeWhatOneWould) {
  for (bool interleave : {false, true}) {
    ExpectSameWeights({.stages = 4,
                       .micro_batches = 8,
                       .one_forward_one_backward = interleave},
                      {});
  }
}

TEST(PipelineTest, InterleavedChunksComputeWhatOneStageWould) {
  ExpectSameWeights({.stages = 2, .micro_batches = 4, .chunks = 2}, {});
  ExpectSameWeights({.stages = 4, .micro_batches = 4, .chunks = 3}, {});
}

// A send that waits for its peer does not keep the window from what that peer
// waits for.
TEST(PipelineTest, AnyWindowIsWideEnough) {
  for (uint32_t launches : {1u, 2u}) {
    for (bool serial : {false, true}) {
      PlanOptions options;
      options.max_launches_in_flight = launches;
      options.max_bytes_in_flight = 1;
      if (serial) options.schedule = Schedule::kSerial;
      ExpectSameWeights({.stages = 3, .micro_batches = 5}, options);
    }
  }
}

}  // namespace
}  // namespace commsched
