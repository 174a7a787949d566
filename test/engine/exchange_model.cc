#include "test/engine/exchange_model.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "test/engine/create_engine.h"
#include "test/engine/float_address.h"
#include "test/engine/messages.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

enum ExchangeActivation : uint32_t { kA, kB, kC, kD };

}  // namespace

ExchangeRank::ExchangeRank(const ExchangeRun& run, commsched_world_t* world,
                           int32_t rank)
    : run_(run), rank_(rank) {
  for (std::vector<float>& each : memory_) each.resize(kExchanged);
  Require(commsched_context_create(world, rank, &context_));
  std::vector<int32_t> all(static_cast<size_t>(run.ranks()));
  std::iota(all.begin(), all.end(), 0);
  Require(commsched_group_create(context_, "dp_shard", all.data(),
                                 static_cast<uint32_t>(all.size()), &group_));
  const commsched_axis_t axes[] = {{"dp", run.dp}, {"sp", run.sp}};
  commsched_mesh_t* mesh = nullptr;
  Require(commsched_mesh_create(context_, axes, 2, &mesh));
  Require(commsched_mesh_group(mesh, "sp", &sp_group_));
  commsched_mesh_destroy(mesh);
  Register();
}

commsched_status_t ExchangeRank::Create() {
  commsched_engine_desc_t desc = run_.engine;
  desc.context = context_;
  desc.group = group_;
  desc.groups = &sp_group_;
  desc.num_groups = 1;
  commsched_step_plan_options_t options = run_.options;
  options.plan = &run_.plan;
  return CreateEngine(desc, model_.get(), options, &engine_);
}

ExchangeRank::~ExchangeRank() {
  commsched_engine_destroy(engine_);
  commsched_group_destroy(sp_group_);
  commsched_group_destroy(group_);
  commsched_context_destroy(context_);
}

void ExchangeRank::Register() {
  uint32_t id = 0;
  for (const char* name : {"plain", "mix"}) {
    Require(commsched_model_add_module(model_.get(), name, 1e4, 2e4, &id));
    const uint64_t count = id == kPlainModule ? kPlain : kExchanged;
    Require(AddParameter(model_.get(), id, name, &count, 1, &id));
  }
  Require(commsched_model_add_group(model_.get(), "sp", run_.sp, &id));
  const char* names[] = {"a", "b", "c", "d"};
  for (size_t i = 0; i < memory_.size(); ++i) {
    commsched_activation_desc_t desc = commsched_activation_desc_init();
    desc.name = names[i];
    desc.count = memory_[i].size();
    desc.address = memory_[i].data();
    Require(commsched_model_add_activation(model_.get(), &desc, &id));
  }
  AddOp("make", false, {On(kA, COMMSCHED_WRITE)}, true, false);
  AddExchange("swap", false, kA, kB);
  AddOp("other", false, {}, true, false);
  AddOp("use", false, {On(kB, COMMSCHED_READ)}, true, false);
  AddOp("turn", true, {On(kB, COMMSCHED_READ), On(kC, COMMSCHED_WRITE)}, false,
        false);
  AddExchange("back", true, kC, kD);
  AddOp("weigh", true, {}, false, true);
  AddOp("add", true, {On(kD, COMMSCHED_READ)}, false, true);
  if (run_.halves) {
    std::vector<commsched_pass_t> passes;
    for (uint32_t mb = 0; mb < run_.micro_batches(); ++mb) {
      for (const auto& [kind, module] :
           std::vector<std::pair<commsched_pass_kind_t, uint32_t>>{
               {COMMSCHED_FORWARD, kPlainModule},
               {COMMSCHED_FORWARD, kMixModule},
               {COMMSCHED_BACKWARD_INPUT, kMixModule},
               {COMMSCHED_BACKWARD_INPUT, kPlainModule},
               {COMMSCHED_BACKWARD_WEIGHT, kPlainModule},
               {COMMSCHED_BACKWARD_WEIGHT, kMixModule}}) {
        passes.push_back({kind, module, mb, 0});
      }
    }
    Require(
        commsched_model_set_passes(model_.get(), passes.data(), passes.size()));
  }
  if (!run_.recompute) return;
  Require(commsched_model_recompute(model_.get(), kPlainModule, kMixModule));
}

void ExchangeRank::AddOp(const char* name, bool backward,
                         const std::vector<commsched_access_t>& accesses,
                         bool reads, bool adds) {
  const uint32_t w = kMixModule;  // Each module has one parameter.
  commsched_module_op_desc_t desc = commsched_module_op_desc_init();
  desc.name = name;
  desc.accesses = accesses.empty() ? nullptr : accesses.data();
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  desc.backward = backward;
  desc.flops = 1e5;
  if (reads) {
    desc.parameters = &w;
    desc.num_parameters = 1;
  }
  if (adds) {
    desc.gradients = &w;
    desc.num_gradients = 1;
  }
  uint32_t id = 0;
  Require(commsched_model_add_op(model_.get(), kMixModule, &desc, &id));
}

void ExchangeRank::AddExchange(const char* name, bool backward, uint32_t from,
                               uint32_t to) {
  commsched_module_collective_desc_t desc =
      commsched_module_collective_desc_init();
  desc.name = name;
  desc.kind = COMMSCHED_ALL_TO_ALL;
  desc.group = 1;
  desc.backward = backward;
  desc.input = On(from, COMMSCHED_READ);
  desc.output = On(to, COMMSCHED_WRITE);
  Require(commsched_model_add_collective(model_.get(), kMixModule, &desc));
}

std::string ExchangeRank::Build() {
  RETURN_MESSAGE_IF_ERROR(Create());
  for (uint32_t p : {kPlainModule, kMixModule}) {
    std::vector<float> values(p == kPlainModule ? kPlain : kExchanged);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.25f + 0.01f * static_cast<float>(i);
    }
    RETURN_MESSAGE_IF_ERROR(Message(commsched_engine_set_parameter(
        engine_, p, values.data(), values.size())));
  }
  return "";
}

float ExchangeRank::Factor(int32_t rank, uint32_t micro_batch) const {
  return static_cast<float>(static_cast<uint32_t>(rank) + 1 + step_ +
                            micro_batch);
}

template <typename Body>
std::string ExchangeRank::Run(Op op, uint32_t micro_batch, Body&& body) {
  RETURN_MESSAGE_IF_ERROR(
      Message(commsched_engine_op_begin(engine_, op, micro_batch)));
  RETURN_MESSAGE_IF_ERROR(body());
  return Message(commsched_engine_op_end(engine_, op, micro_batch));
}

// b holds, part after part, what each rank of the sp group has for this one.
std::string ExchangeRank::CheckArrived(uint32_t micro_batch) const {
  const int32_t me = rank_ % run_.sp;
  const auto part = static_cast<uint64_t>(kExchanged / run_.sp);
  for (int32_t peer = 0; peer < run_.sp; ++peer) {
    const int32_t world_rank = rank_ - me + peer;
    for (uint64_t i = 0; i < part; ++i) {
      const float sent = w_[static_cast<uint64_t>(me) * part + i] *
                         Factor(world_rank, micro_batch);
      if (memory_[kB][static_cast<uint64_t>(peer) * part + i] != sent) {
        return "rank " + std::to_string(rank_) + " has not what rank " +
               std::to_string(world_rank) + " sent in step " +
               std::to_string(step_) + ", micro-batch " +
               std::to_string(micro_batch);
      }
    }
  }
  return "";
}

std::string ExchangeRank::ForwardMix(uint32_t micro_batch) {
  RETURN_MESSAGE_IF_ERROR(
      Message(FloatAddress(engine_, kMixModule, &w_, &w_gradient_)));
  const std::vector<float>& a = memory_[kA];
  RETURN_MESSAGE_IF_ERROR(Run(kMake, micro_batch, [&] {
    for (size_t i = 0; i < a.size(); ++i) {
      memory_[kA][i] = w_[i] * Factor(rank_, micro_batch);
    }
    return std::string();
  }));
  RETURN_MESSAGE_IF_ERROR(
      Run(kOther, micro_batch, [] { return std::string(); }));
  return Run(kUse, micro_batch, [&] { return CheckArrived(micro_batch); });
}

std::string ExchangeRank::BackwardMix(uint32_t micro_batch) {
  RETURN_MESSAGE_IF_ERROR(
      Message(FloatAddress(engine_, kMixModule, &w_, &w_gradient_)));
  RETURN_MESSAGE_IF_ERROR(Turn(micro_batch));
  return AddUp(micro_batch);
}

std::string ExchangeRank::Turn(uint32_t micro_batch) {
  return Run(kTurn, micro_batch, [&] {
    for (size_t i = 0; i < kExchanged; ++i) memory_[kC][i] = 2 * memory_[kB][i];
    return std::string();
  });
}

std::string ExchangeRank::AddUp(uint32_t micro_batch) {
  RETURN_MESSAGE_IF_ERROR(Run(kWeigh, micro_batch, [&] {
    for (size_t i = 0; i < kExchanged; ++i) w_gradient_[i] += 0.5f;
    return std::string();
  }));
  return Run(kAdd, micro_batch, [&] {
    for (size_t i = 0; i < kExchanged; ++i) {
      if (memory_[kD][i] != 2 * memory_[kA][i]) {
        return std::string("what comes back is not what was sent");
      }
      w_gradient_[i] += memory_[kD][i];
    }
    return std::string();
  });
}

// In the second ones the values of parameters are not there.
std::string ExchangeRank::Halves(uint32_t mb) {
  const auto begin = [&](commsched_pass_kind_t kind, uint32_t module) {
    return Message(PassBegin(engine_, kind, module, mb));
  };
  const auto end = [&](commsched_pass_kind_t kind, uint32_t module) {
    return Message(PassEnd(engine_, kind, module, mb));
  };
  RETURN_MESSAGE_IF_ERROR(begin(COMMSCHED_BACKWARD_INPUT, kMixModule));
  RETURN_MESSAGE_IF_ERROR(Turn(mb));
  RETURN_MESSAGE_IF_ERROR(end(COMMSCHED_BACKWARD_INPUT, kMixModule));
  RETURN_MESSAGE_IF_ERROR(begin(COMMSCHED_BACKWARD_INPUT, kPlainModule));
  const void* values = nullptr;
  void* gradient = nullptr;
  RETURN_MESSAGE_IF_ERROR(Message(commsched_engine_parameter_address(
      engine_, kPlainModule, &values, &gradient)));
  const auto* const floats = static_cast<const float*>(values);
  const std::vector<float> kept(floats, floats + kPlain);
  RETURN_MESSAGE_IF_ERROR(end(COMMSCHED_BACKWARD_INPUT, kPlainModule));
  RETURN_MESSAGE_IF_ERROR(begin(COMMSCHED_BACKWARD_WEIGHT, kPlainModule));
  RETURN_MESSAGE_IF_ERROR(Message(
      commsched_engine_gradient_begin(engine_, kPlainModule, &gradient)));
  for (size_t i = 0; i < kPlain; ++i) {
    static_cast<float*>(gradient)[i] += kept[i] * Factor(rank_, mb);
  }
  RETURN_MESSAGE_IF_ERROR(end(COMMSCHED_BACKWARD_WEIGHT, kPlainModule));
  RETURN_MESSAGE_IF_ERROR(begin(COMMSCHED_BACKWARD_WEIGHT, kMixModule));
  RETURN_MESSAGE_IF_ERROR(
      Message(commsched_engine_gradient_begin(engine_, kMixModule, &gradient)));
  w_gradient_ = static_cast<float*>(gradient);
  RETURN_MESSAGE_IF_ERROR(AddUp(mb));
  return end(COMMSCHED_BACKWARD_WEIGHT, kMixModule);
}

std::string ExchangeRank::ForwardPlain(uint32_t micro_batch,
                                       commsched_pass_kind_t kind) {
  RETURN_MESSAGE_IF_ERROR(
      Message(PassBegin(engine_, kind, kPlainModule, micro_batch)));
  return Message(PassEnd(engine_, kind, kPlainModule, micro_batch));
}

std::string ExchangeRank::BackwardPlain(uint32_t micro_batch) {
  RETURN_MESSAGE_IF_ERROR(
      Message(BackwardBegin(engine_, kPlainModule, micro_batch)));
  const float* values = nullptr;
  float* gradient = nullptr;
  RETURN_MESSAGE_IF_ERROR(
      Message(FloatAddress(engine_, kPlainModule, &values, &gradient)));
  for (size_t i = 0; i < kPlain; ++i) {
    gradient[i] += values[i] * Factor(rank_, micro_batch);
  }
  return Message(BackwardEnd(engine_, kPlainModule, micro_batch));
}

std::string ExchangeRank::Forward(uint32_t micro_batch,
                                  commsched_pass_kind_t kind) {
  RETURN_MESSAGE_IF_ERROR(ForwardPlain(micro_batch, kind));
  RETURN_MESSAGE_IF_ERROR(
      Message(PassBegin(engine_, kind, kMixModule, micro_batch)));
  RETURN_MESSAGE_IF_ERROR(ForwardMix(micro_batch));
  return Message(PassEnd(engine_, kind, kMixModule, micro_batch));
}

std::string ExchangeRank::Backward(uint32_t micro_batch) {
  if (run_.halves) return Halves(micro_batch);
  if (run_.recompute) {
    for (std::vector<float>& each : memory_) {
      std::fill(each.begin(), each.end(), -1.0f);
    }
    RETURN_MESSAGE_IF_ERROR(Forward(micro_batch, COMMSCHED_RECOMPUTE));
  }
  RETURN_MESSAGE_IF_ERROR(
      Message(BackwardBegin(engine_, kMixModule, micro_batch)));
  RETURN_MESSAGE_IF_ERROR(BackwardMix(micro_batch));
  RETURN_MESSAGE_IF_ERROR(
      Message(BackwardEnd(engine_, kMixModule, micro_batch)));
  return BackwardPlain(micro_batch);
}

std::string ExchangeRank::StepWithoutExchanges(uint32_t step) {
  step_ = step;
  RETURN_MESSAGE_IF_ERROR(
      Message(commsched_engine_step_begin(engine_, nullptr)));
  for (uint32_t mb = 0; mb < run_.micro_batches(); ++mb) {
    RETURN_MESSAGE_IF_ERROR(ForwardPlain(mb));
    RETURN_MESSAGE_IF_ERROR(BackwardPlain(mb));
  }
  RETURN_MESSAGE_IF_ERROR(Message(UpdateWith(engine_, 0.01f)));
  return Message(commsched_engine_step_end(engine_));
}

std::string ExchangeRank::Step(uint32_t step) {
  step_ = step;
  RETURN_MESSAGE_IF_ERROR(
      Message(commsched_engine_step_begin(engine_, nullptr)));
  for (uint32_t mb = 0; mb < run_.micro_batches(); ++mb) {
    RETURN_MESSAGE_IF_ERROR(Forward(mb));
    RETURN_MESSAGE_IF_ERROR(Backward(mb));
  }
  RETURN_MESSAGE_IF_ERROR(Message(UpdateWith(engine_, 0.01f)));
  return Message(commsched_engine_step_end(engine_));
}

std::string ExchangeRank::Evaluate() {
  RETURN_MESSAGE_IF_ERROR(Message(commsched_engine_evaluation_begin(engine_)));
  RETURN_MESSAGE_IF_ERROR(Forward(0));
  return Message(commsched_engine_evaluation_end(engine_));
}

std::string ExchangeRank::Weights(std::vector<float>* out_weights) {
  std::vector<float> plain(kPlain);
  std::vector<float> mix(kExchanged);
  RETURN_MESSAGE_IF_ERROR(Message(commsched_engine_evaluation_begin(engine_)));
  for (uint32_t m : {kPlainModule, kMixModule}) {
    std::vector<float>& values = m == kPlainModule ? plain : mix;
    RETURN_MESSAGE_IF_ERROR(Message(ForwardBegin(engine_, m, 0)));
    RETURN_MESSAGE_IF_ERROR(Message(commsched_engine_get_parameter(
        engine_, m, values.data(), values.size())));
    if (m == kMixModule) RETURN_MESSAGE_IF_ERROR(ForwardMix(0));
    RETURN_MESSAGE_IF_ERROR(Message(ForwardEnd(engine_, m, 0)));
  }
  out_weights->insert(out_weights->end(), plain.begin(), plain.end());
  out_weights->insert(out_weights->end(), mix.begin(), mix.end());
  return Message(commsched_engine_evaluation_end(engine_));
}

std::string OnExchangeRanks(
    const ExchangeRun& run,
    const std::function<std::string(ExchangeRank&, int32_t)>& body) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = run.ranks();
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
  std::vector<std::string> messages(static_cast<size_t>(run.ranks()));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < run.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      ExchangeRank each(run, world, rank);
      messages[static_cast<size_t>(rank)] = body(each, rank);
      // So that no other rank waits for one that has given up.
      if (!messages[static_cast<size_t>(rank)].empty()) {
        commsched_engine_abort(each.engine(), "another rank has failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  commsched_world_destroy(world);
  const auto first =
      std::find_if(messages.begin(), messages.end(),
                   [](const std::string& m) { return !m.empty(); });
  return first == messages.end() ? "" : *first;
}

}  // namespace commsched::engine
