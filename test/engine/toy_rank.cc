#include "test/engine/toy_rank.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "test/engine/messages.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

constexpr char kCancelled[] = "cancelled";

}  // namespace

commsched_step_plan_options_t ToyStepOptions(const ToyRun& run) {
  commsched_step_plan_options_t options = OptionsFor(run.engine, run.options);
  if (run.pools != nullptr) options.offloads = 1;
  if (run.gradient_pools != nullptr) options.offloads_gradients = 1;
  options.optimizer = &run.optimizer;
  options.plan = &run.plan;
  return options;
}

ToyRank::ToyRank(const ToyRun& run, commsched_world_t* world, int32_t rank)
    : run_(run), rank_(rank) {
  Require(commsched_context_create(world, rank, &context_));
  std::vector<int32_t> all(static_cast<size_t>(run.ranks));
  std::iota(all.begin(), all.end(), 0);
  Require(commsched_group_create(context_, "dp_shard", all.data(),
                                 static_cast<uint32_t>(all.size()), &group_));
  DescribeModel(run_, model_.get());
}

commsched_status_t ToyRank::TryPlan() {
  StepPlanHandle plan;
  return engine::TryPlan(model_.get(), run_.ranks, ToyStepOptions(run_), &plan);
}

commsched_status_t ToyRank::Create() {
  commsched_engine_desc_t desc = run_.engine;
  desc.context = context_;
  desc.group = group_;
  desc.record_order = run_.order == nullptr ? 0 : 1;
  if (run_.devices != nullptr)
    desc.compute_stream = run_.devices->stream(rank_);
  commsched_pool_t pool = commsched_pool_init();
  if (run_.pools != nullptr) {
    pool = run_.pools->of_rank[static_cast<size_t>(rank_)].table();
    desc.optimizer_pool = &pool;
  }
  commsched_pool_t gradient_pool = commsched_pool_init();
  if (run_.gradient_pools != nullptr) {
    gradient_pool =
        run_.gradient_pools->of_rank[static_cast<size_t>(rank_)].table();
    desc.gradient_pool = &gradient_pool;
  }
  return CreateEngine(desc, model_.get(), ToyStepOptions(run_), &engine_);
}

void ToyRank::DescribeModel(const ToyRun& run, commsched_model_t* model) {
  uint32_t id = 0;
  for (const ToyModule& module : ToyModules()) {
    Require(commsched_model_add_module(model, module.name, 1e6, 2e6, &id));
  }
  for (const ToyParameter& p : ToyParameters()) {
    commsched_parameter_desc_t parameter = commsched_parameter_desc_init();
    parameter.module = p.module;
    parameter.name = p.name;
    parameter.dims = p.dims.data();
    parameter.num_dims = static_cast<uint32_t>(p.dims.size());
    if (run.describe != nullptr) {
      run.describe(static_cast<uint32_t>(&p - ToyParameters().data()),
                   &parameter);
    }
    Require(commsched_model_add_parameter(model, &parameter, &id));
  }
  Require(commsched_model_use_parameter(model, 3, 1));
  Require(
      commsched_model_set_passes(model, run.passes.data(), run.passes.size()));
  for (const auto& [first, last] : run.recomputed) {
    Require(commsched_model_recompute(model, first, last));
  }
}

commsched_status_t ToyRank::Replan(const ToyRun& next) {
  const ModelHandle model = NewModel();
  DescribeModel(next, model.get());
  StepPlanHandle plan;
  commsched_status_t code =
      engine::TryPlan(model.get(), run_.ranks, ToyStepOptions(next), &plan);
  if (code == COMMSCHED_OK) code = commsched_engine_replan(engine_, plan.get());
  if (code == COMMSCHED_OK) run_ = next;
  return code;
}

ToyRank::~ToyRank() {
  commsched_engine_destroy(engine_);
  commsched_group_destroy(group_);
  commsched_context_destroy(context_);
}

std::string ToyRank::Build() {
  order_ = run_.Order(0);
  RETURN_MESSAGE_IF_ERROR(Create());
  RETURN_MESSAGE_IF_ERROR(
      commsched_engine_loss_scale_address(engine_, &loss_scale_));
  if (run_.devices != nullptr) {
    loss_scale_ = static_cast<const double*>(run_.devices->Peek(loss_scale_));
  }
  values_.resize(ToyParameters().size());
  found_values_.resize(ToyParameters().size());
  found_gradients_.resize(ToyParameters().size());
  gradients_.resize(ToyParameters().size());
  widened_.resize(ToyParameters().size());
  checksums_.resize(ToyModules().size());
  for (const ToyModule& module : ToyModules()) {
    for (uint32_t p : module.used) {
      kept_.resize(ToyModules().size());
      kept_[&module - ToyModules().data()].emplace_back(
          ToyParameters()[p].count());
    }
  }
  return SetInitialValues();
}

// Only what this rank keeps.
std::string ToyRank::SetInitialValues() {
  for (uint32_t p = 0; p < ToyParameters().size(); ++p) {
    uint64_t offset = 0;
    uint64_t count = 0;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_parameter_range(engine_, p, &offset, &count));
    std::vector<float> initial(count + 1);
    for (uint64_t i = 0; i < count; ++i) {
      initial[i] = ToyInitialValue(p, offset + i);
    }
    RETURN_MESSAGE_IF_ERROR(commsched_engine_set_parameter_range(
        engine_, p, offset, initial.data(), count));
  }
  return "";
}

std::string ToyRank::FindParameters(uint32_t module) {
  for (uint32_t p : ToyModules()[module].used) {
    const void* values = nullptr;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_parameter_address(
        engine_, p, &values, &found_gradients_[p]));
    if (values == nullptr) return "a parameter in use has no address";
    found_values_[p] = values;
  }
  return "";
}

template <typename Body>
void ToyRank::Compute(uint32_t module, bool adds_gradients, Body&& body) {
  const auto compute = [this, module, body](const auto& values,
                                            const auto& gradients) {
    for (uint32_t p : ToyModules()[module].used) {
      values_[p] = Widened(p, values[p]);
      gradients_[p] = gradients[p];
    }
    body();
  };
  if (run_.devices == nullptr) return compute(found_values_, found_gradients_);
  std::vector<const void*> values = found_values_;
  std::vector<void*> gradients = found_gradients_;
  std::vector<ToyDevices::Touched> touched;
  const uint64_t size = run_.options.parameter_dtype == COMMSCHED_F32 ? 4 : 2;
  for (uint32_t p : ToyModules()[module].used) {
    const uint64_t bytes = ToyParameters()[p].count() * size;
    touched.push_back({values[p], bytes, false});
    if (adds_gradients && p != run_.unused_parameter) {
      touched.push_back({gradients[p], bytes, true});
    }
    values[p] = run_.devices->Peek(values[p]);
    gradients[p] = run_.devices->Peek(gradients[p]);
  }
  run_.devices->Run(rank_, touched, [=] { compute(values, gradients); });
}

const float* ToyRank::Widened(uint32_t parameter, const void* address) {
  const auto dtype =
      static_cast<commsched_dtype_t>(run_.options.parameter_dtype);
  if (dtype == COMMSCHED_F32) return static_cast<const float*>(address);
  std::vector<float>& wide = widened_[parameter];
  wide.resize(ToyParameters()[parameter].count());
  commsched_engine_cpu_kernels().convert(nullptr, commsched_stream_caller(),
                                         wide.data(), COMMSCHED_F32, address,
                                         dtype, wide.size());
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

std::string ToyRank::Forward(commsched_pass_kind_t kind, uint32_t module,
                             uint32_t micro_batch) {
  RETURN_MESSAGE_IF_ERROR(PassBegin(engine_, kind, module, micro_batch));
  if (std::string m = FindParameters(module); !m.empty()) return m;
  Compute(module, /*adds_gradients=*/false,
          [this, module] { checksums_[module] = Checksum(module); });
  RETURN_MESSAGE_IF_ERROR(PassEnd(engine_, kind, module, micro_batch));
  return "";
}

std::string ToyRank::Backward(uint32_t module, uint32_t step,
                              uint32_t micro_batch, const Look& look) {
  RETURN_MESSAGE_IF_ERROR(BackwardBegin(engine_, module, micro_batch));
  if (std::string m = FindParameters(module); !m.empty()) return m;
  Compute(module, /*adds_gradients=*/true, [=, this] {
    if (Checksum(module) != checksums_[module]) {
      failure_ = "backward has other parameters than forward";
    }
    if (look != nullptr) look(module);
    AddToyGradients(module, step, micro_batch);
  });
  const ToyBegin at = {.pass = {rank_, step, micro_batch, module},
                       .backward = true};
  RETURN_MESSAGE_IF_ERROR(SayReady(at.pass));
  if (run_.Cancels(at) == ToyCancel::kWithin) return Cancel();
  RETURN_MESSAGE_IF_ERROR(BackwardEnd(engine_, module, micro_batch));
  return run_.devices == nullptr ? failure_ : "";
}

void ToyRank::AddToyGradients(uint32_t module, uint32_t step,
                              uint32_t micro_batch) {
  for (uint32_t p : ToyModules()[module].used) {
    if (p == run_.unused_parameter) continue;
    if (run_.IsAbsent({rank_, step, micro_batch, module}, p)) continue;
    const uint64_t count = ToyParameters()[p].count();
    const ToyPlace at = {rank_, step, micro_batch, module, p};
    mine_.resize(count);
    const auto scale = static_cast<float>(*loss_scale_);
    for (uint64_t i = 0; i < count; ++i) {
      mine_[i] = scale * ToyGradient(at, i, values_[p][i]);
    }
    commsched_engine_cpu_kernels().add(
        nullptr, commsched_stream_caller(), gradients_[p],
        static_cast<commsched_dtype_t>(run_.options.parameter_dtype),
        mine_.data(), COMMSCHED_F32, count);
  }
}

std::string ToyRank::RecordAgain(uint32_t step) {
  if (run_.order == nullptr) return "";
  std::vector<uint32_t> order = run_.Order(step);
  if (order == order_) return "";
  order_ = std::move(order);
  RETURN_MESSAGE_IF_ERROR(commsched_engine_record_order(engine_));
  return "";
}

std::string ToyRank::ForwardBackward(uint32_t step, const Look& look) {
  if (std::string m = RecordAgain(step); !m.empty()) return m;
  commsched_step_desc_t desc = commsched_step_desc_init();
  if (run_.num_micro_batches != nullptr) {
    desc.micro_batches = run_.num_micro_batches(rank_, step);
  }
  const uint32_t micro_batches =
      desc.micro_batches == 0 ? run_.micro_batches() : desc.micro_batches;
  RETURN_MESSAGE_IF_ERROR(commsched_engine_step_begin(engine_, &desc));
  for (const commsched_pass_t& pass : run_.passes) {
    if (pass.micro_batch >= micro_batches) continue;
    if (run_.Skips({rank_, step, pass.micro_batch, pass.module})) continue;
    RETURN_MESSAGE_IF_ERROR(PassOfList(pass, step, look));
  }
  if (!run_.passes.empty()) return "";
  for (uint32_t mb = 0; mb < micro_batches; ++mb) {
    for (uint32_t m : order_) {
      if (run_.Skips({rank_, step, mb, m})) continue;
      const ToyBegin next = {.pass = {rank_, step, mb, m}};
      run_.BeforeBegin(engine_, next);
      if (run_.Cancels(next) == ToyCancel::kBefore) return Cancel();
      std::string message = Forward(COMMSCHED_FORWARD, m, mb);
      if (!message.empty()) return message;
    }
    std::string message = Backwards(step, mb, look);
    if (!message.empty()) return message;
  }
  return "";
}

std::string ToyRank::PassOfList(const commsched_pass_t& pass, uint32_t step,
                                const Look& look) {
  switch (pass.kind) {
    case COMMSCHED_BACKWARD:
      return Backward(pass.module, step, pass.micro_batch, look);
    case COMMSCHED_BACKWARD_INPUT:
      return BackwardInput(pass.module, pass.micro_batch);
    case COMMSCHED_BACKWARD_WEIGHT:
      return BackwardWeight(pass.module, step, pass.micro_batch);
    default:
      return Forward(pass.kind, pass.module, pass.micro_batch);
  }
}

std::string ToyRank::BackwardInput(uint32_t module, uint32_t micro_batch) {
  RETURN_MESSAGE_IF_ERROR(
      PassBegin(engine_, COMMSCHED_BACKWARD_INPUT, module, micro_batch));
  RETURN_MESSAGE_IF_ERROR(FindParameters(module));
  Compute(module, /*adds_gradients=*/false, [this, module] {
    if (Checksum(module) != checksums_[module]) {
      failure_ = "backward has other parameters than forward";
    }
    const std::vector<uint32_t>& used = ToyModules()[module].used;
    for (size_t i = 0; i < used.size(); ++i) {
      std::copy_n(values_[used[i]], kept_[module][i].size(),
                  kept_[module][i].begin());
    }
  });
  RETURN_MESSAGE_IF_ERROR(
      PassEnd(engine_, COMMSCHED_BACKWARD_INPUT, module, micro_batch));
  return failure_;
}

// In stage 3 the values are not there.
std::string ToyRank::BackwardWeight(uint32_t module, uint32_t step,
                                    uint32_t micro_batch) {
  RETURN_MESSAGE_IF_ERROR(
      PassBegin(engine_, COMMSCHED_BACKWARD_WEIGHT, module, micro_batch));
  const std::vector<uint32_t>& used = ToyModules()[module].used;
  for (size_t i = 0; i < used.size(); ++i) {
    const void* values = nullptr;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_parameter_address(
        engine_, used[i], &values, &gradients_[used[i]]));
    values_[used[i]] = kept_[module][i].data();
  }
  AddToyGradients(module, step, micro_batch);
  RETURN_MESSAGE_IF_ERROR(SayReady({rank_, step, micro_batch, module}));
  RETURN_MESSAGE_IF_ERROR(
      PassEnd(engine_, COMMSCHED_BACKWARD_WEIGHT, module, micro_batch));
  return "";
}

std::string ToyRank::Backwards(uint32_t step, uint32_t mb, const Look& look) {
  size_t begin = order_.size();
  for (size_t end = begin; end > 0; end = begin) {
    begin = run_.SegmentBegin(order_, end);
    for (size_t i = begin; i < end; ++i) {
      const uint32_t m = order_[i];
      if (!run_.Recomputes(m) || run_.Skips({rank_, step, mb, m})) continue;
      run_.BeforeBegin(engine_, {.pass = {rank_, step, mb, m}, .again = true});
      if (std::string message = Forward(COMMSCHED_RECOMPUTE, m, mb);
          !message.empty()) {
        return message;
      }
    }
    for (size_t i = end; i-- > begin;) {
      const ToyPass pass = {rank_, step, mb, order_[i]};
      if (run_.SkipsBackward(pass)) continue;
      const ToyBegin next = {.pass = pass, .backward = true};
      run_.BeforeBegin(engine_, next);
      if (run_.Cancels(next) == ToyCancel::kBefore) return Cancel();
      std::string message = Backward(order_[i], step, mb, look);
      if (!message.empty()) return message;
    }
  }
  return "";
}

std::string ToyRank::SayReady(const ToyPass& pass) {
  for (uint32_t p : ToyModules()[pass.module].used) {
    if (run_.options.absent_gradients != 0 && run_.IsAbsent(pass, p)) {
      RETURN_MESSAGE_IF_ERROR(commsched_engine_gradient_absent(engine_, p));
      continue;
    }
    if (run_.ready == nullptr || !run_.ready(pass, p)) continue;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_gradient_ready(engine_, p));
  }
  return "";
}

// What a cancelled step returns, so that nothing of it comes afterwards.
std::string ToyRank::Cancel() {
  RETURN_MESSAGE_IF_ERROR(
      commsched_engine_step_cancel(engine_, run_.cancel_scope));
  return kCancelled;
}

std::string ToyRank::Step(uint32_t step, const Look& look) {
  const std::string message = ForwardBackward(step, look);
  if (!message.empty() && message != kCancelled) return message;
  RETURN_MESSAGE_IF_ERROR(run_.update != nullptr
                              ? run_.update(engine_)
                              : Message(UpdateWith(engine_, kToyLearningRate)));
  RETURN_MESSAGE_IF_ERROR(commsched_engine_step_end(engine_));
  return "";
}

std::string ToyRank::Evaluate(
    const std::function<std::string(uint32_t)>& forward) {
  RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_begin(engine_));
  for (uint32_t m : order_) {
    RETURN_MESSAGE_IF_ERROR(ForwardBegin(engine_, m, 0));
    if (std::string message = forward(m); !message.empty()) return message;
    RETURN_MESSAGE_IF_ERROR(ForwardEnd(engine_, m, 0));
  }
  RETURN_MESSAGE_IF_ERROR(commsched_engine_evaluation_end(engine_));
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
  if (run_.options.zero_stage == 3) {
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
  return message.empty() ? failure_ : message;
}

std::string OnRanks(const ToyRun& run,
                    const std::function<std::string(ToyRank&, int32_t)>& body) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = run.ranks;
  if (run.devices != nullptr) run.devices->Describe(&desc);
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
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

}  // namespace commsched::engine
