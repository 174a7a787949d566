#include "test/engine/random_case.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <numeric>
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

}  // namespace

bool RandomStep::AddsTo(uint32_t parameter) const {
  return std::find(gradients.begin(), gradients.end(), parameter) !=
         gradients.end();
}

const std::vector<RandomStep>& RandomExchanges::StepsOf(uint32_t module,
                                                        bool backward) const {
  static const auto& none = *new std::vector<RandomStep>();
  return any() ? steps[module][backward ? 1 : 0] : none;
}

uint64_t RandomParameter::count() const {
  return std::accumulate(dims.begin(), dims.end(), uint64_t{1},
                         std::multiplies<>());
}

// With a budget for some of the buckets it depends on the layout which of them
// add up whole.
bool RandomCase::has_one_result() const {
  return plan.deterministic != 0 &&
         (options.micro_batches <= 1 || options.accumulate_bytes <= 1);
}

uint32_t RandomCase::MicroBatchesOf(int32_t rank, uint32_t step) const {
  if (!comes_short) return micro_batches();
  return 1 +
         static_cast<uint32_t>(Hash({static_cast<uint64_t>(rank), step, 77}) %
                               micro_batches());
}

const RandomCancel* RandomCase::CancelAt(int32_t rank, uint32_t step) const {
  for (const RandomCancel& each : cancels) {
    if (each.rank == rank && each.step == step) return &each;
  }
  return nullptr;
}

bool RandomCase::IsCancelled(uint32_t step) const {
  return std::any_of(cancels.begin(), cancels.end(),
                     [&](const RandomCancel& each) {
                       return each.all && each.step == step &&
                              CancelAt(each.rank, step) == &each;
                     });
}

std::vector<commsched_option_values_t> RandomCase::Sets() const {
  std::vector<commsched_option_values_t> sets(options.option_sets,
                                              commsched_option_values_init());
  for (size_t i = 0; i < sets.size(); ++i) {
    sets[i].lr_scale = i == 0 ? 1.0f : 0.5f;
    sets[i].decay = i == 0 ? 0.0f : 0.2f;
  }
  return sets;
}

const RecordedOrder* RandomCase::RecordedAt(uint32_t step) const {
  for (const RecordedOrder& order : orders) {
    if (order.step == step) return &order;
  }
  return nullptr;
}

const RandomReplan* RandomCase::ReplannedAt(uint32_t step) const {
  for (const RandomReplan& replan : replans) {
    if (replan.step == step) return &replan;
  }
  return nullptr;
}

std::vector<uint32_t> RandomCase::Order(uint32_t step) const {
  std::vector<uint32_t> modules(model.used.size());
  std::iota(modules.begin(), modules.end(), 0);
  for (const RecordedOrder& order : orders) {
    if (order.step <= step) modules = order.modules;
  }
  return modules;
}

std::vector<RandomPass> RandomCase::Backwards(
    const std::vector<uint32_t>& order) const {
  // 0: not recomputed.
  const auto segment_of = [this](uint32_t module) {
    for (size_t s = 0; s < recomputed.size(); ++s) {
      const auto& [first, last] = recomputed[s];
      if (first <= module && module <= last) return s + 1;
    }
    return size_t{0};
  };
  std::vector<RandomPass> passes;
  auto begin = static_cast<uint32_t>(order.size());
  for (uint32_t end = begin; end > 0; end = begin) {
    const size_t segment = segment_of(order[end - 1]);
    begin = end - 1;
    while (segment > 0 && begin > 0 &&
           segment_of(order[begin - 1]) == segment) {
      --begin;
    }
    for (uint32_t i = begin; segment > 0 && i < end; ++i) passes.push_back({i});
    for (uint32_t i = end; i-- > begin;) {
      passes.push_back({i, /*backward=*/true});
    }
  }
  return passes;
}

std::vector<uint32_t> RandomCase::PartsOf(uint32_t module,
                                          uint32_t parameter) const {
  std::vector<uint32_t> parts;
  if (AddsBeforeOps(module, parameter)) parts.push_back(0);
  uint32_t op = 0;
  for (const RandomStep& step : exchanges.StepsOf(module, true)) {
    if (step.is_collective) continue;
    ++op;
    if (step.AddsTo(parameter)) parts.push_back(op);
  }
  return parts;
}

// If no op does, and for some parameters anyway.
bool RandomCase::AddsBeforeOps(uint32_t module, uint32_t parameter) const {
  const std::vector<RandomStep>& steps = exchanges.StepsOf(module, true);
  return (module + parameter) % 3 == 0 ||
         std::none_of(steps.begin(), steps.end(), [&](const RandomStep& step) {
           return step.AddsTo(parameter);
         });
}

uint64_t RandomCase::Hash(std::initializer_list<uint64_t> parts) const {
  return Mix(seed + 2, parts);
}

uint64_t RandomCase::limit() const {
  return options.max_live_bytes > 0 ? options.max_live_bytes : plan.arena_bytes;
}

void RandomCase::SetLimit(uint64_t bytes) {
  (options.max_live_bytes > 0 ? options.max_live_bytes : plan.arena_bytes) =
      bytes;
}

RandomCase RandomCase::Of(int32_t rank) const {
  RandomCase mine = *this;
  if (wrong == Wrong::kRanksDiffer && rank == ranks - 1) {
    mine.options.micro_batches = std::max(1u, options.micro_batches) + 1;
  }
  return mine;
}

std::string Describe(const RandomCase& c) {
  std::ostringstream text;
  text << c.ranks << " ranks, stage " << c.options.zero_stage << ", "
       << c.after_step.size() << " steps x " << c.options.micro_batches
       << " micro-batches, bucket " << c.options.bucket_bytes << ", edge "
       << c.options.edge_bucket_bytes << ", accumulate "
       << c.options.accumulate_bytes << ", clip " << c.engine.clip_norm
       << ", optimizer " << c.optimizer.name << ", skips "
       << c.engine.allow_skipped_modules << ", wrong orders "
       << c.tries_wrong_orders << ", scale " << c.engine.loss_scale
       << ", prefetch " << c.options.prefetch_bytes << ", recomputed "
       << c.recomputed.size() << ", passes " << c.passes.size() << ", replans "
       << c.replans.size() << ", merge " << c.options.bucket_merge << ", short "
       << c.comes_short << ", cancels " << c.cancels.size() << ", ready "
       << c.options.gradient_ready << ", absent " << c.options.absent_gradients
       << ", recorded " << c.orders.size() << ", dtypes "
       << c.options.parameter_dtype << c.options.reduce_dtype << ", overflows "
       << c.overflows.size() << ", persist " << c.options.persist_below
       << ", live " << c.options.max_live_bytes << ", arena "
       << c.plan.arena_bytes << ", schedule " << c.plan.schedule
       << ", deterministic " << c.plan.deterministic << ", launches "
       << c.plan.max_launches_in_flight << ", bytes "
       << c.plan.max_bytes_in_flight << ", lanes " << c.plan.num_comm_lanes
       << ", coalesce " << c.plan.coalesce_bytes << ", partition "
       << c.plan.partition_bytes << ", priority " << c.plan.priority
       << ", link " << c.link_bytes_per_s << ", offloads " << c.offloads << "/"
       << c.options.offload_staging_bytes << ", gradients "
       << c.offloads_gradients << "/" << c.options.gradient_staging_bytes
       << ", divisor " << c.options.gradient_divisor << ", sets "
       << c.options.option_sets << ", fixed " << c.options.fixed_addresses
       << ", uneven " << c.options.uneven_evaluations << ", cancel all "
       << c.options.cancel_all << "; modules";
  for (const std::vector<uint32_t>& used : c.model.used) {
    text << " (";
    for (uint32_t p : used) {
      const RandomParameter& parameter = c.model.parameters[p];
      text << " " << p << ":" << parameter.count();
      if (parameter.has_dtype) text << "t" << parameter.dtype;
      if (parameter.frozen) text << "f";
      if (parameter.atomic) text << "a";
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
  if (micro_batch == 0 && random_case.RecordedAt(step) != nullptr) return false;
  if (random_case.exchanges.In(module)) rank = 0;
  const uint64_t hash = Mix(random_case.seed + 1, {static_cast<uint64_t>(rank),
                                                   step, micro_batch, module});
  return hash % 4 == 0;
}

GradientSource::GradientSource(const RandomCase& random_case,
                               const GradientPlace& place)
    : where_(
          Mix(random_case.seed,
              {static_cast<uint64_t>(place.rank), place.step, place.micro_batch,
               place.position, place.parameter, place.part})) {
  const RandomParameter& parameter =
      random_case.model.parameters[place.parameter];
  any_ = parameter.gradients == Gradients::kAlways ||
         (parameter.gradients == Gradients::kSometimes && where_ % 2 == 0);
  if (parameter.frozen) any_ = false;
  if (Skips(random_case, place.rank, place.step, place.micro_batch,
            place.module)) {
    any_ = false;
  }
  if (place.micro_batch >= random_case.MicroBatchesOf(place.rank, place.step) ||
      random_case.CancelAt(place.rank, place.step) != nullptr) {
    any_ = false;
  }
  for (const Overflow& overflow : random_case.overflows) {
    if (overflow.step == place.step && overflow.rank == place.rank &&
        overflow.parameter == place.parameter) {
      infinite_ = parameter.count() / 2;
    }
  }
}

bool SaysAbsent(const RandomCase& random_case, GradientPlace place) {
  if (random_case.options.absent_gradients == 0 ||
      random_case.model.parameters[place.parameter].frozen) {
    return false;
  }
  for (uint32_t part : random_case.PartsOf(place.module, place.parameter)) {
    place.part = part;
    if (GradientSource(random_case, place).any()) return false;
  }
  return random_case.Hash({place.step, place.parameter, 79}) % 4 != 0;
}

float GradientSource::At(uint64_t index, float value) const {
  if (index == infinite_) return std::numeric_limits<float>::infinity();
  return 0.05f * value + 0.1f * Noise(where_, index);
}

}  // namespace commsched::engine
