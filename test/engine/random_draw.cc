#include "test/engine/random_draw.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace commsched::engine {
namespace {

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
  if (draw.OneIn(16)) return {};
  if (draw.OneIn(16)) return {draw.Below(3), 0};
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
    parameter.frozen = p > 0 && draw.OneIn(5);
    parameter.atomic = draw.OneIn(4);
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

uint64_t BytesOfModel(const RandomModel& model) {
  uint64_t count = 1;  // There may be no elements at all.
  for (const RandomParameter& p : model.parameters) count += p.count();
  return count * sizeof(float);
}

void DrawEngine(Draw& draw, RandomCase& c) {
  commsched_engine_desc_t& engine = c.engine;
  commsched_step_plan_options_t& options = c.options;
  options.zero_stage = static_cast<uint32_t>(draw.Below(4));
  options.bucket_bytes =
      draw.Of<uint64_t>({1, 1024, 4096, 16384, 1 << 20, 1 + draw.Below(40000)});
  options.edge_bucket_bytes = draw.Of<uint64_t>({0, 0, 1024, 5000});
  options.micro_batches = static_cast<uint32_t>(draw.Below(5));
  options.accumulate_bytes =
      draw.Of<uint64_t>({0, 0, 1, 1, 1 + draw.Below(60000)});
  engine.clip_norm = draw.Of<float>({0, 0.5f, 1e6f});
  engine.weight_decay = draw.Of<float>({0, 0.1f});
  engine.measure_steps = static_cast<uint32_t>(draw.Below(3));
  engine.allow_skipped_modules = draw.OneIn(3) ? 1 : 0;
  engine.launch_timeout_ns = int64_t{60} * 1'000'000'000;
  if (options.zero_stage < 3) return;
  options.prefetch_bytes = draw.Of<uint64_t>({0, 0, 1, 9000, 40000});
  options.persist_below = draw.Of<uint64_t>({0, 0, 300, 7000, 1 << 20});
}

void DrawRecomputed(Draw& draw, RandomCase& c) {
  if (!draw.OneIn(3)) return;
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
  // A little more or less of a gradient near 0 must not turn a step around
  // where the order of additions is not known.
  c.optimizer = commsched_adamw(
      0.9f, 0.95f, c.is_fp32() || c.has_one_result() ? 1e-3f : 0.1f);
  if (!draw.OneIn(3)) return;
  const float momentum = draw.Of<float>({0, 0.9f});
  const auto nesterov =
      momentum > 0 ? static_cast<uint32_t>(draw.Below(2)) : uint32_t{0};
  c.optimizer = commsched_sgd(momentum, nesterov);
}

bool OfHalf(uint32_t dtype) { return dtype == COMMSCHED_F16; }

void DrawPrecision(Draw& draw, RandomCase& c) {
  if (draw.OneIn(2)) return;
  commsched_step_plan_options_t& options = c.options;
  const std::vector<uint32_t> dtypes = {COMMSCHED_F32, COMMSCHED_BF16,
                                        COMMSCHED_F16};
  for (uint32_t* dtype : {&options.parameter_dtype, &options.reduce_dtype}) {
    *dtype = draw.Of(dtypes);
  }
  if (draw.OneIn(2)) return;
  for (RandomParameter& parameter : c.model.parameters) {
    parameter.has_dtype = draw.OneIn(2);
    if (parameter.has_dtype) parameter.dtype = draw.Of(dtypes);
  }
}

void DrawOverflows(Draw& draw, RandomCase& c) {
  if (!draw.OneIn(3)) return;
  for (uint64_t i = 1 + draw.Below(2); i > 0; --i) {
    c.overflows.push_back(
        {static_cast<uint32_t>(draw.Below(c.after_step.size())),
         static_cast<int32_t>(draw.Below(static_cast<uint64_t>(c.ranks))),
         static_cast<uint32_t>(draw.Below(c.model.parameters.size()))});
  }
}

// Gradients of fp16 may overflow by themselves where it is known which do.
void DrawLossScale(Draw& draw, RandomCase& c) {
  commsched_engine_desc_t& engine = c.engine;
  commsched_step_plan_options_t& options = c.options;
  engine.loss_scale = draw.Of<float>({0, 0, 1, 1024});
  engine.loss_scale_window = 1 + static_cast<uint32_t>(draw.Below(3));
  if (engine.loss_scale == 0) return;
  const bool half =
      OfHalf(options.parameter_dtype) || OfHalf(options.reduce_dtype);
  if (half && c.has_one_result() && draw.OneIn(2)) {
    engine.loss_scale = draw.Of<float>({0x1p18f, 0x1p24f});
  }
  DrawOverflows(draw, c);
}

// Without a scale steps are skipped all the same.
void DrawCheckFinite(Draw& draw, RandomCase& c) {
  c.options.check_finite = draw.OneIn(4) ? 1 : 0;
  if (c.has_norm() && c.engine.loss_scale == 0) DrawOverflows(draw, c);
}

std::vector<uint32_t> DrawSome(Draw& draw, const std::vector<uint32_t>& of) {
  std::vector<uint32_t> some;
  for (uint32_t each : of) {
    if (draw.OneIn(2)) some.push_back(each);
  }
  return some;
}

// The steps of one forward or backward. Each reads what this forward or
// backward has written before, whatever others have left there.
class StepsDraw {
 public:
  StepsDraw(Draw& draw, uint32_t num_activations, const RandomModel& model,
            const std::vector<uint32_t>& used, bool backward)
      : draw_(draw),
        model_(model),
        used_(used),
        backward_(backward),
        written_(num_activations),
        unread_(num_activations) {}

  std::vector<RandomStep> Steps() {
    for (uint64_t more = 2 + draw_.Below(6); more > 0; --more) AddStep();
    for (uint32_t a = 0; a < unread_.size(); ++a) {
      if (unread_[a]) AddOp(a, kNoActivation);
    }
    return std::move(steps_);
  }

 private:
  void AddStep() {
    const auto any = static_cast<uint32_t>(draw_.Below(written_.size()));
    const uint32_t input = AnyWritten();
    if (input == kNoActivation || draw_.OneIn(4)) {
      AddOp(kNoActivation, any);
    } else if (draw_.OneIn(2)) {
      AddCollective(input, any);
    } else {
      AddOp(draw_.OneIn(3) ? kNoActivation : input,
            draw_.OneIn(2) || any == input ? kNoActivation : any);
    }
  }

  uint32_t AnyWritten() {
    std::vector<uint32_t> choice;
    for (uint32_t a = 0; a < written_.size(); ++a) {
      if (written_[a]) choice.push_back(a);
    }
    return choice.empty() ? kNoActivation : draw_.Of(choice);
  }

  void AddOp(uint32_t input, uint32_t output) {
    RandomStep step;
    step.input = input;
    step.output = output;
    step.parameters = DrawSome(draw_, used_);
    if (backward_) {
      step.gradients = DrawSome(draw_, step.parameters);
      std::erase_if(step.gradients,
                    [this](uint32_t p) { return model_.parameters[p].frozen; });
    }
    if (input != kNoActivation) unread_[input] = false;
    if (output != kNoActivation) {
      written_[output] = true;
      unread_[output] = false;
    }
    steps_.push_back(step);
  }

  void AddCollective(uint32_t input, uint32_t output) {
    RandomStep step;
    step.is_collective = true;
    step.input = input;
    step.output = output;
    step.in_sp = !draw_.OneIn(3);
    step.kind = draw_.Of<commsched_collective_t>(
        {COMMSCHED_ALL_TO_ALL, COMMSCHED_ALL_TO_ALL, COMMSCHED_ALL_GATHER,
         COMMSCHED_ALL_REDUCE, COMMSCHED_BROADCAST, COMMSCHED_REDUCE_SCATTER});
    const bool in_place_works =
        step.kind == COMMSCHED_ALL_REDUCE || step.kind == COMMSCHED_BROADCAST;
    if (input == output && !in_place_works) return;
    // What it leaves of the output must have been written, too.
    if (step.kind == COMMSCHED_REDUCE_SCATTER && !written_[output]) return;
    written_[output] = true;
    unread_[output] = true;
    steps_.push_back(step);
  }

  Draw& draw_;
  const RandomModel& model_;
  const std::vector<uint32_t>& used_;
  const bool backward_;
  std::vector<bool> written_;  // By activation.
  std::vector<bool> unread_;   // What a collective has left there.
  std::vector<RandomStep> steps_;
};

void DrawExchanges(Draw& draw, RandomCase& c) {
  if (!draw.OneIn(3)) return;
  RandomExchanges& exchanges = c.exchanges;
  std::vector<int32_t> divisors;
  for (int32_t n = std::min(c.ranks, draw.OneIn(4) ? 1 : 2); n <= c.ranks;
       ++n) {
    if (c.ranks % n == 0) divisors.push_back(n);
  }
  exchanges.sp = draw.Of(divisors);
  exchanges.num_activations = 2 + static_cast<uint32_t>(draw.Below(4));
  exchanges.count = static_cast<uint64_t>(c.ranks) * (1 + draw.Below(40));
  for (const std::vector<uint32_t>& used : c.model.used) {
    auto& steps = exchanges.steps.emplace_back();
    for (const bool backward : {false, true}) {
      if (draw.OneIn(3)) continue;
      steps[backward ? 1 : 0] =
          StepsDraw(draw, exchanges.num_activations, c.model, used, backward)
              .Steps();
    }
  }
}

// Every module once, and some again.
std::vector<uint32_t> DrawModules(Draw& draw, size_t num_modules) {
  std::vector<uint32_t> modules(num_modules);
  std::iota(modules.begin(), modules.end(), 0);
  for (uint64_t more = draw.Below(3); more > 0; --more) {
    modules.push_back(static_cast<uint32_t>(draw.Below(num_modules)));
  }
  for (size_t i = modules.size(); i > 1; --i) {
    std::swap(modules[i - 1], modules[draw.Below(i)]);
  }
  return modules;
}

// From the first step on or later, and again before some others.
void DrawOrders(Draw& draw, RandomCase& c) {
  // Steps within modules cannot be recorded.
  if (c.exchanges.any() || !draw.OneIn(2)) return;
  const size_t num_modules = c.model.used.size();
  for (uint32_t step = 0; step < c.after_step.size(); ++step) {
    if (draw.OneIn(3) == (step == 0)) continue;
    RecordedOrder order = {step, {}, draw.OneIn(4)};
    if (draw.OneIn(5)) {
      order.modules = c.Order(step);  // That of before.
    } else {
      order.modules = DrawModules(draw, num_modules);
    }
    c.orders.push_back(order);
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
  if (c.options.zero_stage < 2 || draw.OneIn(3)) return;
  const uint64_t limit = 1 + draw.Below(3 * BytesOfModel(c.model));
  if (c.options.zero_stage == 3 && !draw.OneIn(4)) {
    c.options.max_live_bytes = limit;
  } else {
    c.plan.arena_bytes = limit;
  }
}

// The default, or a slot for each bucket.
void DrawOffload(Draw& draw, RandomCase& c) {
  if (!draw.OneIn(3)) return;
  c.offloads = true;
  c.options.offload_staging_bytes = draw.Of<uint64_t>({0, 0, 1 << 26});
}

// Gradients that are sent before a step is cancelled for all are as good as any
// others, unless they are not finite.
void DrawCancelsOfAll(Draw& draw, RandomCase& c) {
  c.options.cancel_all = draw.OneIn(c.cancels.empty() ? 8 : 2) ? 1 : 0;
  if (c.options.cancel_all == 0) return;
  const bool finite = c.engine.loss_scale == 0 && c.overflows.empty();
  for (RandomCancel& each : c.cancels) {
    each.all = draw.OneIn(2);
    each.in_backward = each.all && finite && draw.OneIn(2);
  }
}

void DrawOptionSets(Draw& draw, RandomCase& c) {
  if (!draw.OneIn(4)) return;
  c.options.option_sets = 2;
  for (RandomParameter& parameter : c.model.parameters) {
    parameter.option_set = static_cast<uint32_t>(draw.Below(2));
  }
}

void DrawMoreOptions(Draw& draw, RandomCase& c) {
  c.options.gradient_divisor = draw.Of<double>({0, 0, 1, 3, 8});
  if (c.options.zero_stage == 3 && c.limit() == 0) {
    c.options.fixed_addresses = draw.OneIn(3) ? 1 : 0;
  }
  if (c.exchanges.any() || !c.orders.empty()) return;
  c.options.uneven_evaluations = draw.OneIn(3) ? 1 : 0;
}

void DrawGradientOffload(Draw& draw, RandomCase& c) {
  if (c.options.zero_stage < 2 || !draw.OneIn(3)) return;
  c.offloads_gradients = true;
  c.options.gradient_staging_bytes = draw.Of<uint64_t>({0, 0, 1 << 26});
}

void DrawWrong(Draw& draw, RandomCase& c) {
  // Ranks that record an order meet later.
  if (!c.orders.empty() || !draw.OneIn(20)) return;
  if (c.options.zero_stage < 3 && draw.OneIn(2)) {
    c.wrong = Wrong::kOptionOfStage3;
    (draw.OneIn(2) ? c.options.max_live_bytes : c.options.persist_below) = 4096;
  } else if (c.ranks > 1) {
    c.wrong = Wrong::kRanksDiffer;
    // Nothing keeps a rank from meeting the others.
    c.options.max_live_bytes = 0;
    c.plan.arena_bytes = 0;
  }
}

// Steps within modules and orders that are recorded know no list.
bool CanHavePasses(const RandomCase& c) {
  return !c.exchanges.any() && c.orders.empty() && c.recomputed.empty() &&
         c.wrong == Wrong::kNothing;
}

// Forwards so many micro-batches ahead of the backwards, and some of them
// without a backward before.
std::vector<commsched_pass_t> DrawList(Draw& draw, const RandomCase& c) {
  const auto modules = static_cast<uint32_t>(c.model.used.size());
  const uint32_t window = c.micro_batches();
  const auto ahead = static_cast<uint32_t>(1 + draw.Below(window));
  const bool again = draw.OneIn(2);
  const bool halves = draw.OneIn(3);
  std::vector<commsched_pass_t> passes;
  const auto add = [&](commsched_pass_kind_t kind, uint32_t mb) {
    for (uint32_t i = 0; i < modules; ++i) {
      const bool reversed = kind != COMMSCHED_NO_GRAD &&
                            kind != COMMSCHED_FORWARD &&
                            kind != COMMSCHED_RECOMPUTE;
      passes.push_back({kind, reversed ? modules - 1 - i : i, mb, 0});
    }
  };
  for (uint32_t mb = 0; draw.OneIn(3) && mb < window; ++mb) {
    add(COMMSCHED_NO_GRAD, mb);
  }
  for (uint32_t mb = 0; mb < window + ahead; ++mb) {
    if (mb < window) add(COMMSCHED_FORWARD, mb);
    if (mb < ahead) continue;
    if (again) add(COMMSCHED_RECOMPUTE, mb - ahead);
    if (!halves) {
      add(COMMSCHED_BACKWARD, mb - ahead);
      continue;
    }
    add(COMMSCHED_BACKWARD_INPUT, mb - ahead);
    add(COMMSCHED_BACKWARD_WEIGHT, mb - ahead);
  }
  return passes;
}

void DrawPasses(Draw& draw, RandomCase& c) {
  if (!CanHavePasses(c) || !draw.OneIn(3)) return;
  c.passes = DrawList(draw, c);
  c.tries_wrong_orders = false;
}

// What buckets are merged to depends on the passes, and a limit that is too
// small for them is told before there is an engine.
void DrawReplans(Draw& draw, RandomCase& c) {
  if (c.limit() > 0 || c.options.bucket_merge == COMMSCHED_BUCKET_MERGE_ON ||
      c.wrong != Wrong::kNothing) {
    return;
  }
  // While an order is recorded no plan can take over, and a plan does not have
  // the order that was.
  for (uint32_t step = 1; step < c.after_step.size(); ++step) {
    if (!c.orders.empty() && c.RecordedAt(step) == nullptr) continue;
    if (!draw.OneIn(4)) continue;
    RandomReplan replan;
    replan.step = step;
    if (CanHavePasses(c) && !draw.OneIn(4)) replan.passes = DrawList(draw, c);
    if (c.options.zero_stage == 3) {
      replan.prefetch_bytes = draw.Of<uint64_t>({0, 0, 1, 9000, 40000});
      replan.fixed_addresses = draw.OneIn(2) ? 1 : 0;
    }
    c.replans.push_back(replan);
  }
}

// What is sent of a gradient before a step is cancelled depends on the layout,
// so that it comes before the first backward.
void DrawShapes(Draw& draw, RandomCase& c) {
  c.options.gradient_ready = draw.OneIn(3) ? 1 : 0;
  c.options.absent_gradients = draw.OneIn(3) ? 1 : 0;
  if (c.exchanges.any() || !c.orders.empty()) return;
  c.comes_short = draw.OneIn(4);
  if (!draw.OneIn(4)) return;
  for (uint64_t i = 1 + draw.Below(2); i > 0; --i) {
    c.cancels.push_back(
        {static_cast<uint32_t>(draw.Below(c.after_step.size())),
         static_cast<int32_t>(draw.Below(static_cast<uint64_t>(c.ranks))),
         static_cast<uint32_t>(draw.Below(c.model.used.size()))});
  }
}

}  // namespace

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
  DrawPlan(draw, c);
  DrawPrecision(draw, c);
  c.tries_wrong_orders = draw.OneIn(2);
  DrawLossScale(draw, c);
  DrawOptimizer(draw, c);
  DrawRecomputed(draw, c);
  DrawExchanges(draw, c);
  DrawOrders(draw, c);
  DrawLimit(draw, c);
  DrawWrong(draw, c);
  DrawOffload(draw, c);
  DrawCheckFinite(draw, c);
  DrawPasses(draw, c);
  DrawShapes(draw, c);
  DrawGradientOffload(draw, c);
  DrawCancelsOfAll(draw, c);
  DrawOptionSets(draw, c);
  DrawMoreOptions(draw, c);
  c.options.bucket_merge =
      draw.OneIn(5) ? COMMSCHED_BUCKET_MERGE_ON : COMMSCHED_BUCKET_MERGE_AUTO;
  DrawReplans(draw, c);
  return c;
}

}  // namespace commsched::engine
