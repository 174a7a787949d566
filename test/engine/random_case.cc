#include "test/engine/random_case.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <random>
#include <sstream>

namespace commsched::engine {
namespace {

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t Mix(uint64_t hash, std::initializer_list<uint64_t> parts) {
  for (uint64_t part : parts) {
    hash = Mix(hash * 0x9E3779B97F4A7C15u + part + 1);
  }
  return hash;
}

// Uniform in [-1, 1).
float Noise(uint64_t where, uint64_t index) {
  const uint64_t bits = Mix(where + index * 0x9E3779B97F4A7C15u);
  return static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  // 0 to below - 1.
  uint64_t Below(uint64_t below) { return random_() % below; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  template <typename T>
  T Of(const std::vector<T>& values) {
    return values[Below(values.size())];
  }

 private:
  std::mt19937_64 random_;
};

// Around the sizes at which blocks, shards and buckets end, and others.
std::vector<uint64_t> DrawDims(Draw& draw) {
  switch (draw.Below(8)) {
    case 0:
      return {draw.Of<uint64_t>({1, 255, 256, 257})};
    case 1:
      return {256 * (1 + draw.Below(8)) + draw.Below(3) - 1};
    case 2:
    case 3:
      return {1 + draw.Below(40), 1 + draw.Below(70)};
    case 4:
      return {1 + draw.Below(6), 1 + draw.Below(6), 1 + draw.Below(30)};
    case 5:
      return {64, 64};
    default:
      return {1 + draw.Below(200)};
  }
}

RandomModel DrawModel(Draw& draw) {
  RandomModel model;
  model.used.resize(1 + draw.Below(6));
  const uint64_t num_parameters = 1 + draw.Below(9);
  for (uint32_t p = 0; p < num_parameters; ++p) {
    RandomParameter parameter;
    parameter.name = "p" + std::to_string(p);
    parameter.dims = DrawDims(draw);
    parameter.module = static_cast<uint32_t>(draw.Below(model.used.size()));
    if (draw.OneIn(6)) parameter.gradients = Gradients::kSometimes;
    if (draw.OneIn(12)) parameter.gradients = Gradients::kNever;
    model.used[parameter.module].push_back(p);
    model.parameters.push_back(parameter);
  }
  for (uint32_t p = 0; p < num_parameters; ++p) {
    for (size_t m = model.parameters[p].module + 1; m < model.used.size();
         ++m) {
      if (draw.OneIn(8)) model.used[m].push_back(p);
    }
  }
  return model;
}

uint64_t Bytes(const RandomModel& model) {
  uint64_t count = 0;
  for (const RandomParameter& p : model.parameters) count += p.count();
  return count * sizeof(float);
}

void DrawEngine(Draw& draw, RandomCase& c) {
  commsched_engine_desc_t& engine = c.engine;
  engine.zero_stage = static_cast<uint32_t>(draw.Below(4));
  engine.bucket_bytes =
      draw.Of<uint64_t>({1, 1024, 4096, 16384, 1 << 20, 1 + draw.Below(40000)});
  engine.edge_bucket_bytes = draw.Of<uint64_t>({0, 0, 1024, 5000});
  engine.micro_batches = static_cast<uint32_t>(draw.Below(5));
  engine.accumulate_bytes =
      draw.Of<uint64_t>({0, 0, 1, 1, 1 + draw.Below(60000)});
  engine.clip_norm = draw.Of<float>({0, 0.5f, 1e6f});
  engine.weight_decay = draw.Of<float>({0, 0.1f});
  // A little more or less of a gradient near 0 must not turn a step around
  // where the order of additions is not known.
  engine.epsilon = 1e-3f;
  engine.measure_steps = static_cast<uint32_t>(draw.Below(3));
  engine.allow_skipped_modules = draw.OneIn(3) ? 1 : 0;
  engine.launch_timeout_ns = int64_t{60} * 1'000'000'000;
  if (engine.zero_stage < 3) return;
  engine.prefetch_bytes = draw.Of<uint64_t>({0, 0, 1, 9000, 40000});
  engine.persist_below = draw.Of<uint64_t>({0, 0, 300, 7000, 1 << 20});
}

void DrawRecomputed(Draw& draw, RandomCase& c) {
  if (!draw.OneIn(4)) return;
  const auto modules = static_cast<uint32_t>(c.model.used.size());
  for (uint32_t first = 0; first < modules; ++first) {
    if (draw.OneIn(2)) continue;
    const auto last =
        first + static_cast<uint32_t>(draw.Below(modules - first));
    c.recomputed.emplace_back(first, last);
    first = last;
  }
}

void DrawOptimizer(Draw& draw, RandomCase& c) {
  // A power of two, so that gradients keep their bits.
  c.engine.loss_scale = draw.Of<float>({0, 0, 1, 1024});
  c.engine.loss_scale_window = 1 + static_cast<uint32_t>(draw.Below(3));
  if (!draw.OneIn(3)) return;
  c.engine.optimizer = COMMSCHED_SGD;
  c.engine.epsilon = 0;
  c.engine.momentum = draw.Of<float>({0, 0.9f});
  if (c.engine.momentum > 0) {
    c.engine.nesterov = static_cast<uint32_t>(draw.Below(2));
  }
}

void DrawPlan(Draw& draw, RandomCase& c) {
  commsched_plan_options_t& plan = c.plan;
  plan.schedule = draw.OneIn(4) ? COMMSCHED_SERIAL : COMMSCHED_OVERLAP;
  plan.deterministic = draw.OneIn(4) ? 0 : 1;
  plan.max_launches_in_flight = draw.Of<uint32_t>({0, 0, 1, 2, 5});
  plan.max_bytes_in_flight = draw.Of<uint64_t>({0, 0, 1, 9000, 40000});
  plan.num_comm_lanes = static_cast<uint32_t>(draw.Below(4));
  plan.coalesce_bytes = draw.Of<uint64_t>({0, 0, 20000, 1 << 20});
  plan.partition_bytes = draw.Of<uint64_t>({0, 0, 2048, 10000});
  plan.priority = static_cast<commsched_priority_t>(draw.Below(3));
  if (draw.OneIn(3)) {
    c.link_bytes_per_s = draw.Of<double>({2e8, 2e9});
    c.link_latency_ns = draw.Of<int64_t>({0, 3000});
  }
  if (draw.OneIn(2)) {
    c.profile.link_bytes_per_s = draw.Of<double>({1e7, 1e9});
    c.profile.link_latency_ns = draw.Of<int64_t>({0, 50000});
  }
}

// Mostly less than all, so that it is often refused at first.
void DrawLimit(Draw& draw, RandomCase& c) {
  if (c.engine.zero_stage < 2 || draw.OneIn(3)) return;
  const uint64_t limit = 1 + draw.Below(3 * Bytes(c.model));
  if (c.engine.zero_stage == 3 && !draw.OneIn(4)) {
    c.engine.max_live_bytes = limit;
  } else {
    c.plan.arena_bytes = limit;
  }
}

void DrawWrong(Draw& draw, RandomCase& c) {
  if (!draw.OneIn(20)) return;
  if (c.engine.zero_stage < 3 && draw.OneIn(2)) {
    c.wrong = Wrong::kOptionOfStage3;
    (draw.OneIn(2) ? c.engine.max_live_bytes : c.engine.persist_below) = 4096;
  } else if (c.ranks > 1) {
    c.wrong = Wrong::kRanksDiffer;
    // Nothing keeps a rank from meeting the others.
    c.engine.max_live_bytes = 0;
    c.plan.arena_bytes = 0;
  }
}

}  // namespace

uint64_t RandomParameter::count() const {
  return std::accumulate(dims.begin(), dims.end(), uint64_t{1},
                         std::multiplies<>());
}

// With a budget for some of the buckets it depends on the layout which of them
// add up whole.
bool RandomCase::has_one_result() const {
  return plan.deterministic != 0 &&
         (engine.micro_batches <= 1 || engine.accumulate_bytes <= 1);
}

uint64_t RandomCase::limit() const {
  return engine.max_live_bytes > 0 ? engine.max_live_bytes : plan.arena_bytes;
}

void RandomCase::SetLimit(uint64_t bytes) {
  (engine.max_live_bytes > 0 ? engine.max_live_bytes : plan.arena_bytes) =
      bytes;
}

RandomCase RandomCase::Of(int32_t rank) const {
  RandomCase mine = *this;
  if (wrong == Wrong::kRanksDiffer && rank == ranks - 1) {
    mine.engine.micro_batches = std::max(1u, engine.micro_batches) + 1;
  }
  return mine;
}

RandomCase DrawCase(uint64_t seed) {
  Draw draw(seed);
  RandomCase c;
  c.seed = seed;
  c.model = DrawModel(draw);
  c.ranks = static_cast<int32_t>(draw.OneIn(8) ? 5 + draw.Below(4)
                                               : 1 + draw.Below(4));
  for (uint64_t steps = 1 + draw.Below(4); steps > 0; --steps) {
    c.after_step.push_back(
        draw.Of<Between>({Between::kNothing, Between::kNothing, Between::kDrain,
                          Between::kEvaluate}));
  }
  c.traced = draw.OneIn(4);
  DrawEngine(draw, c);
  DrawOptimizer(draw, c);
  DrawRecomputed(draw, c);
  DrawPlan(draw, c);
  DrawLimit(draw, c);
  DrawWrong(draw, c);
  return c;
}

std::string Describe(const RandomCase& c) {
  std::ostringstream text;
  text << c.ranks << " ranks, stage " << c.engine.zero_stage << ", "
       << c.after_step.size() << " steps x " << c.engine.micro_batches
       << " micro-batches, bucket " << c.engine.bucket_bytes << ", edge "
       << c.engine.edge_bucket_bytes << ", accumulate "
       << c.engine.accumulate_bytes << ", clip " << c.engine.clip_norm
       << ", optimizer " << c.engine.optimizer << ", skips "
       << c.engine.allow_skipped_modules << ", scale " << c.engine.loss_scale
       << ", prefetch " << c.engine.prefetch_bytes << ", recomputed "
       << c.recomputed.size() << ", persist " << c.engine.persist_below
       << ", live " << c.engine.max_live_bytes << ", arena "
       << c.plan.arena_bytes << ", schedule " << c.plan.schedule
       << ", deterministic " << c.plan.deterministic << ", launches "
       << c.plan.max_launches_in_flight << ", bytes "
       << c.plan.max_bytes_in_flight << ", lanes " << c.plan.num_comm_lanes
       << ", coalesce " << c.plan.coalesce_bytes << ", partition "
       << c.plan.partition_bytes << ", priority " << c.plan.priority
       << ", link " << c.link_bytes_per_s << "; modules";
  for (const std::vector<uint32_t>& used : c.model.used) {
    text << " (";
    for (uint32_t p : used) {
      text << " " << p << ":" << c.model.parameters[p].count();
    }
    text << " )";
  }
  return text.str();
}

float InitialValue(uint32_t parameter, uint64_t index) {
  return Noise(Mix(parameter + 1), index);
}

bool Skips(const RandomCase& random_case, int32_t rank, uint32_t step,
           uint32_t micro_batch, uint32_t module) {
  if (random_case.engine.allow_skipped_modules == 0) return false;
  const uint64_t hash = Mix(random_case.seed + 1, {static_cast<uint64_t>(rank),
                                                   step, micro_batch, module});
  return hash % 4 == 0;
}

GradientSource::GradientSource(const RandomCase& random_case, int32_t rank,
                               uint32_t step, uint32_t micro_batch,
                               uint32_t module, uint32_t parameter)
    : where_(Mix(random_case.seed, {static_cast<uint64_t>(rank), step,
                                    micro_batch, module, parameter})) {
  const Gradients gradients = random_case.model.parameters[parameter].gradients;
  any_ = gradients == Gradients::kAlways ||
         (gradients == Gradients::kSometimes && where_ % 2 == 0);
  if (Skips(random_case, rank, step, micro_batch, module)) any_ = false;
}

float GradientSource::At(uint64_t index, float value) const {
  return 0.05f * value + 0.1f * Noise(where_, index);
}

}  // namespace commsched::engine
