#include "test/engine/toy_model.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <ranges>
#include <thread>

#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"

namespace commsched::engine {
namespace {

constexpr float kLearningRate = 0.01f;

// Uniform in [-1, 1), from a mixed hash of the coordinates.
float Noise(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t z = a * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + c;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
}

struct Coordinates {
  int32_t rank;
  uint32_t step;
  uint32_t micro_batch;
  uint32_t module;
  uint32_t parameter;
};

float ToyGradient(const Coordinates& at, uint64_t index, float value) {
  const uint64_t where = (((uint64_t{at.step} * 8 + at.micro_batch) * 8 +
                           static_cast<uint64_t>(at.rank)) *
                              8 +
                          at.module) *
                             8 +
                         at.parameter;
  return 0.05f * value + 0.1f * Noise(where, index, 7);
}

void Require(commsched_status_t code, const char* message) {
  if (code == COMMSCHED_OK) return;
  std::fprintf(stderr, "toy model: %s\n", message);
  std::abort();
}

std::string Message(commsched_status_t code) {
  return code == COMMSCHED_OK ? "" : commsched_engine_last_error();
}

#define TOY_RETURN_IF_ERROR(call)                 \
  do {                                            \
    std::string toy_message = Message(call);      \
    if (!toy_message.empty()) return toy_message; \
  } while (false)

}  // namespace

uint64_t ToyParameter::count() const {
  return std::accumulate(dims.begin(), dims.end(), uint64_t{1},
                         std::multiplies<>());
}

const std::vector<ToyParameter>& ToyParameters() {
  // Registered in another order than that of first use.
  static const auto& parameters = *new std::vector<ToyParameter>{
      {"head.norm", {17}, 3},         {"embed.weight", {50, 33}, 0},
      {"block0.weight", {64, 64}, 1}, {"block0.bias", {64}, 1},
      {"block1.weight", {300, 7}, 2}, {"block1.bias", {7}, 2},
  };
  return parameters;
}

const std::vector<ToyModule>& ToyModules() {
  static const auto& modules = *new std::vector<ToyModule>{
      {"embed", {1}}, {"block0", {2, 3}}, {"block1", {4, 5}}, {"head", {0, 1}}};
  return modules;
}

float ToyInitialValue(uint32_t parameter, uint64_t index) {
  return Noise(parameter, index, 1);
}

ToyRank::ToyRank(const ToyRun& run, commsched_world_t* world, int32_t rank)
    : run_(run), rank_(rank) {
  Require(commsched_context_create(world, rank, &context_),
          commsched_last_error());
  std::vector<int32_t> all(static_cast<size_t>(run.ranks));
  std::iota(all.begin(), all.end(), 0);
  Require(commsched_group_create(context_, "dp_shard", all.data(),
                                 static_cast<uint32_t>(all.size()), &group_),
          commsched_last_error());
  commsched_engine_desc_t desc = run.engine;
  desc.context = context_;
  desc.group = group_;
  desc.plan = &run.plan;
  commsched_pool_t pool = commsched_pool_init();
  if (run.pools != nullptr) {
    pool = run.pools->of_rank[static_cast<size_t>(rank)].table();
    desc.optimizer_pool = &pool;
  }
  const commsched_status_t created = commsched_engine_create(&desc, &engine_);
  Require(created, commsched_engine_last_error());
  uint32_t id = 0;
  for (const ToyModule& module : ToyModules()) {
    Require(commsched_engine_add_module(engine_, module.name, 1e6, 2e6, &id),
            commsched_engine_last_error());
  }
  for (const ToyParameter& p : ToyParameters()) {
    Require(commsched_engine_add_parameter(
                engine_, p.module, p.name, p.dims.data(),
                static_cast<uint32_t>(p.dims.size()), &id),
            commsched_engine_last_error());
  }
  Require(commsched_engine_use_parameter(engine_, 3, 1),
          commsched_engine_last_error());
  for (const auto& [first, last] : run.recomputed) {
    Require(commsched_engine_recompute(engine_, first, last),
            commsched_engine_last_error());
  }
}

ToyRank::~ToyRank() {
  commsched_engine_destroy(engine_);
  commsched_group_destroy(group_);
  commsched_context_destroy(context_);
}

bool ToyRun::Recomputes(uint32_t module) const {
  return std::any_of(recomputed.begin(), recomputed.end(), [&](auto& each) {
    return each.first <= module && module <= each.second;
  });
}

size_t ToyRun::SegmentBegin(const std::vector<uint32_t>& order,
                            size_t end) const {
  for (const auto& [first, last] : recomputed) {
    size_t begin = end;
    while (begin > 0 && first <= order[begin - 1] && order[begin - 1] <= last) {
      --begin;
    }
    if (begin < end) return begin;
  }
  return end - 1;
}

std::vector<uint32_t> ToyRun::Order(uint32_t step) const {
  return order == nullptr ? std::vector<uint32_t>{0, 1, 2, 3} : order(step);
}

std::string ToyRank::Build() {
  order_ = run_.Order(0);
  if (run_.order != nullptr) {
    TOY_RETURN_IF_ERROR(commsched_engine_record_order(engine_));
  }
  TOY_RETURN_IF_ERROR(commsched_engine_build(engine_));
  TOY_RETURN_IF_ERROR(
      commsched_engine_loss_scale_address(engine_, &loss_scale_));
  values_.resize(ToyParameters().size());
  gradients_.resize(ToyParameters().size());
  widened_.resize(ToyParameters().size());
  checksums_.resize(ToyModules().size());
  return SetInitialValues();
}

// Only what this rank keeps.
std::string ToyRank::SetInitialValues() {
  for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
    uint64_t offset = 0;
    uint64_t count = 0;
    TOY_RETURN_IF_ERROR(
        commsched_engine_parameter_range(engine_, p, &offset, &count));
    std::vector<float> initial(count + 1);
    for (uint64_t i = 0; i < count; ++i) {
      initial[i] = ToyInitialValue(p, offset + i);
    }
    TOY_RETURN_IF_ERROR(commsched_engine_set_parameter_range(
        engine_, p, offset, initial.data(), count));
  }
  return "";
}

std::string ToyRank::FindParameters(uint32_t module) {
  for (uint32_t p : ToyModules()[module].used) {
    const void* values = nullptr;
    TOY_RETURN_IF_ERROR(commsched_engine_parameter_address(engine_, p, &values,
                                                           &gradients_[p]));
    if (values == nullptr) return "a parameter in use has no address";
    values_[p] = Widened(p, values);
  }
  return "";
}

const float* ToyRank::Widened(uint32_t parameter, const void* address) {
  const auto dtype =
      static_cast<commsched_dtype_t>(run_.engine.parameter_dtype);
  if (dtype == COMMSCHED_F32) return static_cast<const float*>(address);
  std::vector<float>& wide = widened_[parameter];
  wide.resize(ToyParameters()[parameter].count());
  commsched_engine_cpu_kernels().convert(nullptr, wide.data(), COMMSCHED_F32,
                                         address, dtype, wide.size());
  return wide.data();
}

double ToyRank::Checksum(uint32_t module) const {
  double sum = 0;
  for (uint32_t p : ToyModules()[module].used) {
    const uint64_t count = ToyParameters()[p].count();
    for (uint64_t i = 0; i < count; ++i) sum = 0.9 * sum + values_[p][i];
  }
  return sum;
}

std::string ToyRank::Forward(uint32_t module, uint32_t micro_batch) {
  TOY_RETURN_IF_ERROR(
      commsched_engine_forward_begin(engine_, module, micro_batch));
  if (std::string m = FindParameters(module); !m.empty()) return m;
  checksums_[module] = Checksum(module);
  TOY_RETURN_IF_ERROR(
      commsched_engine_forward_end(engine_, module, micro_batch));
  return "";
}

std::string ToyRank::Backward(uint32_t module, uint32_t step,
                              uint32_t micro_batch, const Look& look) {
  TOY_RETURN_IF_ERROR(
      commsched_engine_backward_begin(engine_, module, micro_batch));
  if (std::string m = FindParameters(module); !m.empty()) return m;
  if (Checksum(module) != checksums_[module]) {
    return "backward has other parameters than forward";
  }
  if (look != nullptr) look(module);
  AddToyGradients(module, step, micro_batch);
  TOY_RETURN_IF_ERROR(
      commsched_engine_backward_end(engine_, module, micro_batch));
  return "";
}

void ToyRank::AddToyGradients(uint32_t module, uint32_t step,
                              uint32_t micro_batch) {
  for (uint32_t p : ToyModules()[module].used) {
    if (p == run_.unused_parameter) continue;
    const uint64_t count = ToyParameters()[p].count();
    const Coordinates at = {rank_, step, micro_batch, module, p};
    mine_.resize(count);
    const auto scale = static_cast<float>(*loss_scale_);
    for (uint64_t i = 0; i < count; ++i) {
      mine_[i] = scale * ToyGradient(at, i, values_[p][i]);
    }
    commsched_engine_cpu_kernels().add(
        nullptr, gradients_[p],
        static_cast<commsched_dtype_t>(run_.engine.gradient_dtype),
        mine_.data(), COMMSCHED_F32, count);
  }
}

std::string ToyRank::RecordAgain(uint32_t step) {
  if (run_.order == nullptr) return "";
  std::vector<uint32_t> order = run_.Order(step);
  if (order == order_) return "";
  order_ = std::move(order);
  TOY_RETURN_IF_ERROR(commsched_engine_record_order(engine_));
  return "";
}

std::string ToyRank::ForwardBackward(uint32_t step, const Look& look) {
  if (std::string m = RecordAgain(step); !m.empty()) return m;
  TOY_RETURN_IF_ERROR(commsched_engine_step_begin(engine_));
  for (uint32_t mb = 0; mb < run_.micro_batches(); ++mb) {
    arrival_ = order_;
    if (run_.arrival != nullptr) arrival_ = run_.arrival({rank_, step, mb, 0});
    for (uint32_t m : arrival_) {
      if (run_.Skips({rank_, step, mb, m})) continue;
      std::string message = Forward(m, mb);
      if (!message.empty()) return message;
    }
    std::string message = Backwards(step, mb, look);
    if (!message.empty()) return message;
  }
  return "";
}

std::string ToyRank::Backwards(uint32_t step, uint32_t mb, const Look& look) {
  size_t begin = arrival_.size();
  for (size_t end = begin; end > 0; end = begin) {
    begin = run_.SegmentBegin(arrival_, end);
    for (size_t i = begin; i < end; ++i) {
      const uint32_t m = arrival_[i];
      if (!run_.Recomputes(m) || run_.Skips({rank_, step, mb, m})) continue;
      if (std::string message = Forward(m, mb); !message.empty()) {
        return message;
      }
    }
    for (size_t i = end; i-- > begin;) {
      if (run_.Skips({rank_, step, mb, arrival_[i]})) continue;
      std::string message = Backward(arrival_[i], step, mb, look);
      if (!message.empty()) return message;
    }
  }
  return "";
}

std::string ToyRank::Step(uint32_t step, const Look& look) {
  if (std::string message = ForwardBackward(step, look); !message.empty()) {
    return message;
  }
  TOY_RETURN_IF_ERROR(commsched_engine_optimizer_step(engine_, kLearningRate));
  TOY_RETURN_IF_ERROR(commsched_engine_step_end(engine_));
  return "";
}

std::string ToyRank::Evaluate(
    const std::function<std::string(uint32_t)>& forward) {
  TOY_RETURN_IF_ERROR(commsched_engine_evaluation_begin(engine_));
  for (uint32_t m : order_) {
    TOY_RETURN_IF_ERROR(commsched_engine_forward_begin(engine_, m, 0));
    if (std::string message = forward(m); !message.empty()) return message;
    TOY_RETURN_IF_ERROR(commsched_engine_forward_end(engine_, m, 0));
  }
  TOY_RETURN_IF_ERROR(commsched_engine_evaluation_end(engine_));
  return "";
}

std::string ToyRank::Weights(std::vector<float>* out_weights) {
  std::vector<std::vector<float>> values;
  for (const ToyParameter& p : ToyParameters()) values.emplace_back(p.count());
  const auto read = [&](uint32_t p) {
    return Message(commsched_engine_get_parameter(engine_, p, values[p].data(),
                                                  values[p].size()));
  };
  std::string message;
  if (run_.engine.zero_stage == 3) {
    message = Evaluate([&](uint32_t module) {
      std::string failure;
      for (uint32_t p : ToyModules()[module].used) {
        if (failure.empty()) failure = read(p);
      }
      return failure;
    });
  } else {
    message = Message(commsched_engine_drain(engine_));
    for (uint32_t p = 0; message.empty() && p < values.size(); ++p) {
      message = read(p);
    }
  }
  for (const std::vector<float>& each : values) {
    out_weights->insert(out_weights->end(), each.begin(), each.end());
  }
  return message;
}

std::string OnRanks(const ToyRun& run,
                    const std::function<std::string(ToyRank&, int32_t)>& body) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = run.ranks;
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world), commsched_last_error());
  std::vector<std::string> messages(static_cast<size_t>(run.ranks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < run.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ToyRank toy(run, world, rank);
      messages[static_cast<size_t>(rank)] = body(toy, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  commsched_world_destroy(world);
  const auto first =
      std::find_if(messages.begin(), messages.end(),
                   [](const std::string& m) { return !m.empty(); });
  return first == messages.end() ? "" : *first;
}

ToyResult RunToy(const ToyRun& run) {
  ToyResult result;
  result.weights.resize(static_cast<size_t>(run.ranks));
  result.error = OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
    if (std::string message = toy.Build(); !message.empty()) return message;
    for (uint32_t step = 0; step < run.steps; ++step) {
      if (std::string message = toy.Step(step); !message.empty()) {
        return message;
      }
    }
    if (rank == 0) {
      TOY_RETURN_IF_ERROR(
          commsched_engine_get_info(toy.engine(), &result.info));
      if (run.engine.clip_norm > 0) {
        TOY_RETURN_IF_ERROR(
            commsched_engine_gradient_norm(toy.engine(), &result.norm));
      }
    }
    return toy.Weights(&result.weights[static_cast<size_t>(rank)]);
  });
  return result;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

uint64_t AllocationsOnceWarm(
    const ToyRun& run,
    const std::function<std::string(ToyRank&, uint32_t step)>& step) {
  constexpr uint32_t kWarmUp = 3, kSteps = 40;
  std::barrier all(run.ranks);
  uint64_t allocations = 0;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    const auto steps = [&](uint32_t from, uint32_t to) {
      for (uint32_t t = from; message.empty() && t < to; ++t) {
        message = step(toy, t);
      }
    };
    steps(0, kWarmUp);
    all.arrive_and_wait();
    if (rank == 0) allocations = HeapAllocations();
    all.arrive_and_wait();
    steps(kWarmUp, kWarmUp + kSteps);
    all.arrive_and_wait();
    if (rank == 0) allocations = HeapAllocations() - allocations;
    all.arrive_and_wait();
    return message;
  });
  EXPECT_EQ(error, "");
  return allocations;
}

uint64_t BytesSeenInBackwards(const ToyRun& run) {
  std::vector<uint64_t> bytes(static_cast<size_t>(run.ranks));  // By rank.
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    const float* begin = nullptr;
    const float* end = nullptr;
    const auto include = [&](const float* address, uint64_t count) {
      if (begin == nullptr || address < begin) begin = address;
      end = std::max(end, address + count);
    };
    const auto look = [&](uint32_t module) {
      for (uint32_t p : ToyModules()[module].used) {
        include(toy.values()[p], ToyParameters()[p].count());
        include(static_cast<const float*>(toy.gradients()[p]),
                ToyParameters()[p].count());
      }
    };
    for (uint32_t t = 0; message.empty() && t < 2; ++t) {
      message = toy.Step(t, look);
    }
    bytes[static_cast<size_t>(rank)] =
        static_cast<uint64_t>(end - begin) * sizeof(float);
    return message;
  });
  EXPECT_EQ(error, "");
  return *std::max_element(bytes.begin(), bytes.end());
}

Planned PlanOf(const ToyRun& run) {
  Planned planned;
  planned.error = OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
    std::string message = toy.Build();
    if (rank != 0 || !message.empty()) return message;
    char* text = nullptr;
    Require(commsched_plan_explain(commsched_engine_plan(toy.engine()),
                                   COMMSCHED_JSON, &text),
            commsched_last_error());
    planned.plan = nlohmann::json::parse(text);
    commsched_string_free(text);
    TOY_RETURN_IF_ERROR(commsched_engine_get_info(toy.engine(), &planned.info));
    return message;
  });
  return planned;
}

namespace {

// Training state of one parameter.
struct PlainParameter {
  std::vector<float> value, m, v, gradient;  // m: the velocity of SGD.
};

float Rounded(float value, uint32_t dtype) {
  const auto to = static_cast<commsched_dtype_t>(dtype);
  if (to == COMMSCHED_F32) return value;
  const commsched_engine_kernels_t cpu = commsched_engine_cpu_kernels();
  uint16_t narrow = 0;
  cpu.convert(nullptr, &narrow, to, &value, COMMSCHED_F32, 1);
  cpu.convert(nullptr, &value, COMMSCHED_F32, &narrow, to, 1);
  return value;
}

// One element of the gradients.
struct Element {
  uint32_t parameter;
  uint64_t index;
  float value;  // What the model reads.
};

// What the backwards of one micro-batch add to `sum`.
float AddBackwards(const ToyRun& run, const Element& element, Coordinates at,
                   float sum) {
  const std::vector<uint32_t> order = run.Order(at.step);
  for (uint32_t module : std::views::reverse(order)) {
    at.module = module;
    const auto& used = ToyModules()[at.module].used;
    if (run.Skips({at.rank, at.step, at.micro_batch, at.module})) continue;
    if (std::find(used.begin(), used.end(), element.parameter) == used.end()) {
      continue;
    }
    sum = Rounded(sum + ToyGradient(at, element.index, element.value),
                  run.engine.gradient_dtype);
  }
  return sum;
}

// The mean over the ranks, summed in rank order.
template <typename OfRank>
float PlainMean(const ToyRun& run, OfRank&& of_rank) {
  const uint32_t dtype = run.engine.reduce_dtype;
  float sum = Rounded(of_rank(0), dtype);
  for (int32_t rank = 1; rank < run.ranks; ++rank) {
    sum += Rounded(of_rank(rank), dtype);
  }
  return Rounded(sum * (1.0f / static_cast<float>(run.ranks)), dtype);
}

// What a rank accumulates over micro-batches.
float PlainWhole(const ToyRun& run, const Element& element, Coordinates at) {
  const commsched_engine_desc_t& desc = run.engine;
  const bool folds =
      desc.gradient_dtype != desc.accumulate_dtype && run.micro_batches() > 1;
  float mine = 0;
  for (at.micro_batch = 0; at.micro_batch < run.micro_batches();
       ++at.micro_batch) {
    mine = folds ? Rounded(mine + AddBackwards(run, element, at, 0),
                           desc.accumulate_dtype)
                 : AddBackwards(run, element, at, mine);
  }
  return mine;
}

// With buckets all of which accumulate whole, or none (accumulate_bytes 1).
float PlainGradient(const ToyRun& run, const Element& element, Coordinates at) {
  if (run.micro_batches() == 1 || run.engine.accumulate_bytes != 1) {
    return PlainMean(run, [&](int32_t rank) {
      at.rank = rank;
      return PlainWhole(run, element, at);
    });
  }
  float sum = 0;
  for (at.micro_batch = 0; at.micro_batch < run.micro_batches();
       ++at.micro_batch) {
    const float mean = PlainMean(run, [&](int32_t rank) {
      at.rank = rank;
      return AddBackwards(run, element, at, 0);
    });
    sum = Rounded(sum + mean, run.engine.accumulate_dtype);
  }
  return sum;
}

void PlainGradients(const ToyRun& run, uint32_t step,
                    std::vector<PlainParameter>& parameters) {
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    PlainParameter& plain = parameters[p];
    if (p == run.unused_parameter) continue;
    for (uint64_t i = 0; i < plain.value.size(); ++i) {
      const Element element = {
          p, i, Rounded(plain.value[i], run.engine.parameter_dtype)};
      plain.gradient[i] = PlainGradient(run, element, {0, step, 0, 0, p});
    }
  }
}

double PlainNorm(const std::vector<PlainParameter>& parameters) {
  double squares = 0;
  for (const PlainParameter& plain : parameters) {
    for (float g : plain.gradient) squares += double{g} * g;
  }
  return std::sqrt(squares);
}

void PlainAdamW(const ToyRun& run, uint32_t step, double norm, uint32_t p,
                PlainParameter& plain) {
  const double factor = run.engine.clip_norm > 0
                            ? std::min(1.0, run.engine.clip_norm / norm)
                            : 1.0;
  const double decay =
      ToyParameters()[p].dims.size() >= 2 ? run.engine.weight_decay : 0.0;
  for (size_t i = 0; i < plain.value.size(); ++i) {
    const double g = plain.gradient[i] * factor;
    plain.m[i] = static_cast<float>(0.9 * plain.m[i] + 0.1 * g);
    plain.v[i] = static_cast<float>(0.95 * plain.v[i] + 0.05 * g * g);
    const double m = plain.m[i] / (1 - std::pow(0.9, step + 1));
    const double v = plain.v[i] / (1 - std::pow(0.95, step + 1));
    plain.value[i] =
        static_cast<float>(plain.value[i] * (1 - kLearningRate * decay) -
                           kLearningRate * m / (std::sqrt(v) + 1e-8));
  }
}

void PlainSgd(const ToyRun& run, uint32_t step, double norm, uint32_t p,
              PlainParameter& plain) {
  const double factor = run.engine.clip_norm > 0
                            ? std::min(1.0, run.engine.clip_norm / norm)
                            : 1.0;
  const double decay =
      ToyParameters()[p].dims.size() >= 2 ? run.engine.weight_decay : 0.0;
  const double momentum = double{run.engine.momentum};
  for (size_t i = 0; i < plain.value.size(); ++i) {
    const double g = plain.gradient[i] * factor + decay * plain.value[i];
    const double velocity = step == 0 ? g : momentum * plain.m[i] + g;
    plain.m[i] = static_cast<float>(velocity);
    const double direction =
        run.engine.nesterov != 0 ? g + momentum * velocity : velocity;
    plain.value[i] =
        static_cast<float>(plain.value[i] - kLearningRate * direction);
  }
}

}  // namespace

std::vector<float> ReferenceWeights(const ToyRun& run) {
  std::vector<PlainParameter> parameters;
  for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
    const uint64_t count = ToyParameters()[p].count();
    PlainParameter plain = {
        std::vector<float>(count), std::vector<float>(count),
        std::vector<float>(count), std::vector<float>(count)};
    for (uint64_t i = 0; i < count; ++i) plain.value[i] = ToyInitialValue(p, i);
    parameters.push_back(std::move(plain));
  }
  for (uint32_t step = 0; step < run.steps; ++step) {
    PlainGradients(run, step, parameters);
    const double norm = PlainNorm(parameters);
    for (uint32_t p = 0; p < parameters.size(); ++p) {
      const auto plain_step =
          run.engine.optimizer == COMMSCHED_SGD ? PlainSgd : PlainAdamW;
      plain_step(run, step, norm, p, parameters[p]);
    }
  }
  std::vector<float> weights;
  for (const PlainParameter& plain : parameters) {
    for (float value : plain.value) {
      weights.push_back(Rounded(value, run.engine.parameter_dtype));
    }
  }
  return weights;
}

}  // namespace commsched::engine
