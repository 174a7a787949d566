#include "test/engine/random_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "test/engine/create_engine.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/random_exchange.h"
#include "test/engine/test_pools.h"
#include "test/engine/update_call.h"
#include "test/support/alloc_counter.h"
#include "test/support/rank_group.h"

namespace commsched::engine {
namespace {

bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

#define RANDOM_RETURN_IF_ERROR(call)      \
  do {                                    \
    const std::string message = (call);   \
    if (!message.empty()) return message; \
  } while (false)

// One rank of a case. A function that returns text returns what is wrong.
class RandomRank {
 public:
  RandomRank(const RandomCase& random_case, const PlainTraining& plain,
             commsched_world_t* world, int32_t rank)
      : case_(random_case.Of(rank)),
        plain_(plain),
        rank_(rank),
        exchange_(case_, rank) {
    EXPECT_EQ(commsched_context_create(world, rank, &context_), COMMSCHED_OK);
    std::vector<int32_t> all(static_cast<size_t>(case_.ranks));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(
        commsched_group_create(context_, "dp_shard", all.data(),
                               static_cast<uint32_t>(all.size()), &group_),
        COMMSCHED_OK);
    if (case_.traced) {
      EXPECT_EQ(commsched_trace_create(context_, 1024, &trace_), COMMSCHED_OK);
    }
    uint64_t most = 0;
    for (const RandomParameter& p : case_.model.parameters) {
      most = std::max(most, p.count());
    }
    wide_.resize(most);
    mine_.resize(most);
  }
  ~RandomRank() {
    commsched_engine_destroy(engine_);
    commsched_trace_destroy(trace_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  RandomRank(const RandomRank&) = delete;
  RandomRank& operator=(const RandomRank&) = delete;

  std::string Build() {
    RANDOM_RETURN_IF_ERROR(Register(model_.get()));
    return Create();
  }

  Outcome Run() {
    Outcome outcome;
    outcome.refusal = Build();
    if (!outcome.refusal.empty()) return outcome;
    outcome.failure = Train();
    // A recorded order is planned in the step that records it.
    if (Contains(outcome.failure, "is too small")) {
      outcome.refusal.swap(outcome.failure);
    } else if (outcome.failure.empty()) {
      outcome.failure =
          Message(commsched_engine_get_info(engine_, &outcome.info));
    }
    return outcome;
  }

  // Only the steps, of which none allocates.
  std::string Steps(uint32_t first, uint32_t last) {
    if (first == 0) RANDOM_RETURN_IF_ERROR(SetInitialValues());
    for (uint32_t step = first; step < last; ++step) {
      RANDOM_RETURN_IF_ERROR(Step(step));
    }
    return "";
  }

  Surprises Count() const {
    commsched_session_counters_t counters = commsched_session_counters_init();
    EXPECT_EQ(commsched_session_get_counters(commsched_engine_session(engine_),
                                             &counters),
              COMMSCHED_OK);
    return {.allocations = HeapAllocations(),
            .lock_contentions = counters.lock_contentions,
            .events = counters.events_created,
            .streams = counters.streams_created,
            .registrations = counters.registrations};
  }

 private:
  std::string Create() {
    commsched_engine_desc_t desc = case_.engine;
    desc.context = context_;
    desc.group = group_;
    desc.trace = trace_;
    desc.record_order = case_.RecordedAt(0) == nullptr ? 0 : 1;
    const commsched_pool_t pool = pool_.table();
    if (case_.offloads) desc.optimizer_pool = &pool;
    const commsched_pool_t gradient_pool = gradient_pool_.table();
    if (case_.offloads_gradients) desc.gradient_pool = &gradient_pool;
    RANDOM_RETURN_IF_ERROR(exchange_.Join(context_, &desc));
    return Message(CreateEngine(desc, model_.get(), Options(), &engine_));
  }

  commsched_step_plan_options_t Options() const {
    commsched_step_plan_options_t options = case_.options;
    options.plan = &case_.plan;
    options.optimizer = &case_.optimizer;
    options.profile = &case_.profile;
    options.offloads_gradients = case_.offloads_gradients ? 1 : 0;
    return options;
  }

  // Before `step`, goes on with another plan, of another model.
  std::string ReplanAt(uint32_t step) {
    const RandomReplan* replan = case_.ReplannedAt(step);
    if (replan == nullptr) return "";
    case_.passes = replan->passes;
    case_.options.prefetch_bytes = replan->prefetch_bytes;
    case_.options.fixed_addresses = replan->fixed_addresses;
    fixed_.clear();
    kept_.clear();
    const ModelHandle model = NewModel();
    RANDOM_RETURN_IF_ERROR(Register(model.get()));
    commsched_engine_desc_t desc = case_.engine;
    const commsched_pool_t pool = pool_.table();
    if (case_.offloads) desc.optimizer_pool = &pool;
    StepPlanHandle plan;
    RANDOM_RETURN_IF_ERROR(Message(
        TryPlan(model.get(), case_.ranks, OptionsFor(desc, Options()), &plan)));
    return Message(commsched_engine_replan(engine_, plan.get()));
  }

  std::string Register(commsched_model_t* to) {
    const RandomModel& model = case_.model;
    uint32_t id = 0;
    for (size_t m = 0; m < model.used.size(); ++m) {
      const std::string name = "m" + std::to_string(m);
      RANDOM_RETURN_IF_ERROR(
          Message(commsched_model_add_module(to, name.c_str(), 1e5, 2e5, &id)));
    }
    for (const RandomParameter& p : model.parameters) {
      commsched_parameter_desc_t desc = commsched_parameter_desc_init();
      desc.module = p.module;
      desc.name = p.name.c_str();
      desc.dims = p.dims.empty() ? nullptr : p.dims.data();
      desc.num_dims = static_cast<uint32_t>(p.dims.size());
      desc.has_dtype = p.has_dtype ? 1 : 0;
      desc.dtype = p.dtype;
      desc.frozen = p.frozen ? 1 : 0;
      desc.atomic = p.atomic ? 1 : 0;
      desc.option_set = p.option_set;
      RANDOM_RETURN_IF_ERROR(
          Message(commsched_model_add_parameter(to, &desc, &id)));
    }
    for (uint32_t m = 0; m < model.used.size(); ++m) {
      for (uint32_t p : model.used[m]) {
        if (model.parameters[p].module == m) continue;
        RANDOM_RETURN_IF_ERROR(
            Message(commsched_model_use_parameter(to, m, p)));
      }
    }
    RANDOM_RETURN_IF_ERROR(Message(commsched_model_set_passes(
        to, case_.passes.data(), case_.passes.size())));
    for (const auto& [first, last] : case_.recomputed) {
      RANDOM_RETURN_IF_ERROR(
          Message(commsched_model_recompute(to, first, last)));
    }
    return exchange_.Register(to);
  }

  std::string SetInitialValues() {
    for (uint32_t p = 0; p < case_.model.parameters.size(); ++p) {
      uint64_t offset = 0;
      uint64_t count = 0;
      RANDOM_RETURN_IF_ERROR(Message(
          commsched_engine_parameter_range(engine_, p, &offset, &count)));
      if (case_.model.parameters[p].atomic && count != 0 &&
          count != case_.model.parameters[p].count()) {
        return "a shard has a part of an atomic parameter";
      }
      for (uint64_t i = 0; i < count; ++i) {
        mine_[i] = InitialValue(p, offset + i);
      }
      RANDOM_RETURN_IF_ERROR(Message(commsched_engine_set_parameter_range(
          engine_, p, offset, mine_.data(), count)));
    }
    return "";
  }

  // Before `step`. The engine records the first order as it is created.
  std::string RecordAt(uint32_t step) {
    const RecordedOrder* recorded = case_.RecordedAt(step);
    if (recorded != nullptr && step > 0) {
      fixed_.clear();
      RANDOM_RETURN_IF_ERROR(Message(commsched_engine_record_order(engine_)));
    }
    if (recorded == nullptr && !order_.empty()) return "";
    order_ = case_.Order(step);
    backwards_ = case_.Backwards(order_);
    return "";
  }

  std::string Train() {
    RANDOM_RETURN_IF_ERROR(SetInitialValues());
    const auto steps = static_cast<uint32_t>(case_.after_step.size());
    for (uint32_t step = 0; step < steps; ++step) {
      RANDOM_RETURN_IF_ERROR(Step(step));
      switch (case_.after_step[step]) {
        case Between::kNothing:
          break;
        case Between::kDrain:
          RANDOM_RETURN_IF_ERROR(Message(commsched_engine_drain(engine_)));
          break;
        case Between::kEvaluate:
          RANDOM_RETURN_IF_ERROR(Evaluate(step + 1));
          break;
      }
    }
    RANDOM_RETURN_IF_ERROR(Evaluate(steps));
    RANDOM_RETURN_IF_ERROR(CheckLossScale());
    return CheckNorm();
  }

  std::string Step(uint32_t step) {
    RANDOM_RETURN_IF_ERROR(ReplanAt(step));
    RANDOM_RETURN_IF_ERROR(RecordAt(step));
    const RecordedOrder* recorded = case_.RecordedAt(step);
    if (recorded != nullptr && recorded->by_evaluation) {
      RANDOM_RETURN_IF_ERROR(Evaluate(step));
    }
    commsched_step_desc_t desc = commsched_step_desc_init();
    desc.micro_batches = case_.MicroBatchesOf(rank_, step);
    RANDOM_RETURN_IF_ERROR(
        Message(commsched_engine_step_begin(engine_, &desc)));
    RANDOM_RETURN_IF_ERROR(Passes(step, desc.micro_batches));
    const std::vector<commsched_option_values_t> sets = case_.Sets();
    commsched_engine_update_args_t args = UpdateArgs(kLearningRate);
    args.num_sets = static_cast<uint32_t>(sets.size());
    args.sets = sets.data();
    RANDOM_RETURN_IF_ERROR(Message(commsched_engine_update(engine_, &args)));
    return Message(commsched_engine_step_end(engine_));
  }

  std::string Passes(uint32_t step, uint32_t micro_batches) {
    const RandomCancel* const cancel = case_.CancelAt(rank_, step);
    const auto cancels = [&](uint32_t mb, uint32_t module, bool backward) {
      return cancel != nullptr && mb == 0 && cancel->position == module &&
             cancel->in_backward == backward;
    };
    const auto end = [&] {
      return Message(commsched_engine_step_cancel(
          engine_,
          cancel->all ? COMMSCHED_CANCEL_ALL : COMMSCHED_CANCEL_LOCAL));
    };
    for (const commsched_pass_t& pass : case_.passes) {
      const uint32_t mb = pass.micro_batch;
      const uint32_t m = pass.module;
      const bool backward = IsBackward(pass.kind);
      if ((backward || pass.kind == COMMSCHED_FORWARD) &&
          cancels(mb, m, backward)) {
        return end();
      }
      if (mb >= micro_batches || Skips(case_, rank_, step, mb, m)) continue;
      RANDOM_RETURN_IF_ERROR(backward ? Backward(step, m, mb, pass.kind)
                                      : Forward(step, m, mb, pass.kind));
    }
    if (!case_.passes.empty()) return "";
    for (uint32_t mb = 0; mb < micro_batches; ++mb) {
      for (uint32_t i = 0; i < order_.size(); ++i) {
        if (cancels(mb, order_[i], false)) return end();
        if (Skips(case_, rank_, step, mb, order_[i])) continue;
        RANDOM_RETURN_IF_ERROR(TryWrongOrder({i}, step, mb));
        RANDOM_RETURN_IF_ERROR(Forward(step, order_[i], mb));
      }
      for (const RandomPass& pass : backwards_) {
        if (pass.backward && cancels(mb, order_[pass.position], true)) {
          return end();
        }
        if (Skips(case_, rank_, step, mb, order_[pass.position])) continue;
        RANDOM_RETURN_IF_ERROR(TryWrongOrder(pass, step, mb));
        RANDOM_RETURN_IF_ERROR(pass.backward
                                   ? Backward(step, pass.position, mb)
                                   : Forward(step, order_[pass.position], mb,
                                             COMMSCHED_RECOMPUTE));
      }
    }
    return "";
  }

  // Begins what is not `next`, which is refused and changes nothing. Where
  // modules may be left out, only the micro-batch before is surely over, and
  // only once a forward of this one has run. While an order is recorded nothing
  // is refused.
  std::string TryWrongOrder(const RandomPass& next, uint32_t step,
                            uint32_t mb) {
    if (!case_.tries_wrong_orders ||
        commsched_engine_session(engine_) == nullptr) {
      return "";
    }
    const uint64_t hash = case_.Hash({static_cast<uint64_t>(rank_), step, mb,
                                      next.position, next.backward ? 1u : 0u});
    const bool backward = hash % 2 == 0;
    const auto module =
        static_cast<uint32_t>(hash / 2 % case_.model.used.size());
    uint32_t of = mb;
    if (case_.engine.allow_skipped_modules != 0) {
      if (mb == 0 || !next.backward) return "";
      --of;
    } else if (backward == next.backward && module == order_[next.position]) {
      ++of;
    }
    const auto begin = backward ? BackwardBegin : ForwardBegin;
    const commsched_status_t code = begin(engine_, module, of);
    if (code == COMMSCHED_FAILED_PRECONDITION &&
        Contains(commsched_last_error(), "was called; expected ")) {
      return "";
    }
    return "a begin that the plan does not have there was not refused: " +
           Message(code);
  }

  std::string Forward(uint32_t step, uint32_t module, uint32_t mb,
                      commsched_pass_kind_t kind = COMMSCHED_FORWARD) {
    RANDOM_RETURN_IF_ERROR(Message(PassBegin(engine_, kind, module, mb)));
    RANDOM_RETURN_IF_ERROR(
        CheckValues("forward", step, case_.model.used[module]));
    RANDOM_RETURN_IF_ERROR(exchange_.Run(
        engine_, {module, /*backward=*/false, step, mb, evaluating_},
        [&](uint32_t, const RandomStep& op) {
          return CheckValues("op of a forward", step, op.parameters);
        }));
    return Message(PassEnd(engine_, kind, module, mb));
  }

  // The first half keeps what the second adds, which reads no parameters.
  std::string Backward(uint32_t step, uint32_t position, uint32_t mb,
                       commsched_pass_kind_t kind = COMMSCHED_BACKWARD) {
    const uint32_t module = order_[position];
    RANDOM_RETURN_IF_ERROR(Message(PassBegin(engine_, kind, module, mb)));
    GradientPlace place = {rank_, step, mb, position, module, 0, 0};
    const std::vector<uint32_t>& used = case_.model.used[module];
    if (kind != COMMSCHED_BACKWARD_WEIGHT) {
      RANDOM_RETURN_IF_ERROR(CheckValues("backward", step, used));
    }
    if (kind == COMMSCHED_BACKWARD_INPUT) {
      RANDOM_RETURN_IF_ERROR(KeepGradients(place, used));
      return Message(PassEnd(engine_, kind, module, mb));
    }
    for (uint32_t p : used) {
      place.parameter = p;
      if (!case_.AddsBeforeOps(module, p)) continue;
      RANDOM_RETURN_IF_ERROR(AddGradient(place));
    }
    RANDOM_RETURN_IF_ERROR(
        exchange_.Run(engine_, {module, /*backward=*/true, step, mb, false},
                      [&](uint32_t op, const RandomStep& of) {
                        place.part = op;
                        return RunBackwardOp(of, place);
                      }));
    for (uint32_t p : used) {
      const uint64_t hash =
          case_.Hash({static_cast<uint64_t>(rank_), step, mb, module, p, 78});
      if (case_.model.parameters[p].frozen) continue;
      place.parameter = p;
      if (SaysAbsent(case_, place)) {
        RANDOM_RETURN_IF_ERROR(
            Message(commsched_engine_gradient_absent(engine_, p)));
        continue;
      }
      if (case_.options.gradient_ready == 0 || hash % 3 == 0) continue;
      RANDOM_RETURN_IF_ERROR(
          Message(commsched_engine_gradient_ready(engine_, p)));
    }
    return Message(PassEnd(engine_, kind, module, mb));
  }

  static bool IsBackward(commsched_pass_kind_t kind) {
    return kind == COMMSCHED_BACKWARD || kind == COMMSCHED_BACKWARD_INPUT ||
           kind == COMMSCHED_BACKWARD_WEIGHT;
  }

  // Values of a module's parameters, in the order of `used`.
  std::string KeepGradients(const GradientPlace& place,
                            const std::vector<uint32_t>& used) {
    auto& kept = kept_[{place.micro_batch, place.module}];
    kept.resize(used.size());
    for (size_t u = 0; u < used.size(); ++u) {
      const float* values = nullptr;
      void* gradient = nullptr;
      RANDOM_RETURN_IF_ERROR(Find(used[u], &values, &gradient));
      kept[u].assign(values, values + case_.model.parameters[used[u]].count());
    }
    return "";
  }

  // Where a gradient is added to, and the values that it is a function of.
  std::string FindGradient(const GradientPlace& place, const float** out_values,
                           void** out_gradient) {
    const auto kept = kept_.find({place.micro_batch, place.module});
    if (kept == kept_.end()) {
      return Find(place.parameter, out_values, out_gradient);
    }
    const std::vector<uint32_t>& used = case_.model.used[place.module];
    const auto found = std::find(used.begin(), used.end(), place.parameter);
    *out_values =
        kept->second[static_cast<size_t>(found - used.begin())].data();
    return Message(commsched_engine_gradient_begin(engine_, place.parameter,
                                                   out_gradient));
  }

  std::string RunBackwardOp(const RandomStep& op, GradientPlace place) {
    RANDOM_RETURN_IF_ERROR(
        CheckValues("op of a backward", place.step, op.parameters));
    for (uint32_t p : op.gradients) {
      place.parameter = p;
      RANDOM_RETURN_IF_ERROR(AddGradient(place));
    }
    return "";
  }

  std::string AddGradient(const GradientPlace& place) {
    const double* scale = nullptr;
    RANDOM_RETURN_IF_ERROR(
        Message(commsched_engine_loss_scale_address(engine_, &scale)));
    const auto loss_scale = static_cast<float>(*scale);
    const float* values = nullptr;
    void* gradient = nullptr;
    const GradientSource source(case_, place);
    if (!source.any()) return "";
    RANDOM_RETURN_IF_ERROR(FindGradient(place, &values, &gradient));
    const uint64_t count = case_.model.parameters[place.parameter].count();
    for (uint64_t i = 0; i < count; ++i) {
      mine_[i] = loss_scale * source.At(i, values[i]);
    }
    kernels_.add(nullptr, commsched_stream_caller(), gradient,
                 case_.DTypeOf(place.parameter), mine_.data(), COMMSCHED_F32,
                 count);
    return "";
  }

  // Where a parameter is: its values as fp32, its gradient as it is.
  std::string Find(uint32_t p, const float** out_values, void** out_gradient) {
    const void* values = nullptr;
    RANDOM_RETURN_IF_ERROR(Message(
        commsched_engine_parameter_address(engine_, p, &values, out_gradient)));
    if (values == nullptr) return "a parameter in use has no address";
    if (case_.model.parameters[p].frozen && *out_gradient != nullptr) {
      return "a frozen parameter has a gradient";
    }
    if (case_.options.fixed_addresses != 0 &&
        commsched_engine_session(engine_) != nullptr) {
      const void*& fixed = fixed_.try_emplace(p, values).first->second;
      if (fixed != values) return "a parameter has moved";
    }
    const commsched_dtype_t dtype = case_.DTypeOf(p);
    *out_values = static_cast<const float*>(values);
    if (dtype == COMMSCHED_F32) return "";
    kernels_.convert(nullptr, commsched_stream_caller(), wide_.data(),
                     COMMSCHED_F32, values, dtype,
                     case_.model.parameters[p].count());
    *out_values = wide_.data();
    return "";
  }

  // Validation; in the other stages values can be read between steps, too.
  std::string Evaluate(uint32_t steps_done) {
    RANDOM_RETURN_IF_ERROR(Message(commsched_engine_evaluation_begin(engine_)));
    evaluating_ = true;
    const uint64_t forwards =
        case_.options.uneven_evaluations == 0
            ? 1
            : case_.Hash({static_cast<uint64_t>(rank_), steps_done, 80}) % 3;
    for (uint64_t i = 0; i < forwards; ++i) {
      for (uint32_t m : order_) {
        RANDOM_RETURN_IF_ERROR(Forward(steps_done, m, 0));
      }
    }
    evaluating_ = false;
    RANDOM_RETURN_IF_ERROR(Message(commsched_engine_evaluation_end(engine_)));
    if (case_.options.zero_stage == 3) return "";
    for (uint32_t p = 0; p < case_.model.parameters.size(); ++p) {
      std::vector<float> values(case_.model.parameters[p].count());
      RANDOM_RETURN_IF_ERROR(Message(commsched_engine_get_parameter(
          engine_, p, values.data(), values.size())));
      RANDOM_RETURN_IF_ERROR(
          Compare("between steps", steps_done, p, values.data()));
    }
    return "";
  }

  // Of parameters, where a step reads them.
  std::string CheckValues(const char* where, uint32_t steps_done,
                          const std::vector<uint32_t>& parameters) {
    for (uint32_t p : parameters) {
      const float* values = nullptr;
      void* gradient = nullptr;
      RANDOM_RETURN_IF_ERROR(Find(p, &values, &gradient));
      RANDOM_RETURN_IF_ERROR(Compare(where, steps_done, p, values));
    }
    return "";
  }

  std::string Compare(const char* where, uint32_t steps_done, uint32_t p,
                      const float* values) const {
    std::string wrong = plain_.CompareValues(steps_done, p, values);
    return wrong.empty() ? wrong : where + (", " + wrong);
  }

  std::string CheckNorm() const {
    if (!case_.has_norm()) return "";
    double norm = 0;
    RANDOM_RETURN_IF_ERROR(Message(commsched_engine_norm(engine_, &norm)));
    return plain_.CompareNorm(norm);
  }

  std::string CheckLossScale() const {
    commsched_engine_loss_scale_info_t info =
        commsched_engine_loss_scale_info_init();
    RANDOM_RETURN_IF_ERROR(
        Message(commsched_engine_get_loss_scale(engine_, &info)));
    return plain_.CompareLossScale(info);
  }

  RandomCase case_;
  const PlainTraining& plain_;
  const int32_t rank_;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_trace_t* trace_ = nullptr;
  TestPool pool_;
  TestPool gradient_pool_;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
  const commsched_engine_kernels_t kernels_ = commsched_engine_cpu_kernels();
  RandomExchange exchange_;
  bool evaluating_ = false;
  std::vector<uint32_t> order_;  // Of forwards.
  std::vector<RandomPass> backwards_;
  // By micro-batch and module: values that the first half of a backward had.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::vector<float>>>
      kept_;
  std::map<uint32_t, const void*> fixed_;  // Where parameters are; of a plan.
  std::vector<float> wide_;                // Values as fp32.
  std::vector<float> mine_;                // What a backward adds.
};

#undef RANDOM_RETURN_IF_ERROR

commsched_world_t* CreateWorld(const RandomCase& random_case) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = random_case.ranks;
  const std::string link =
      "link_bytes_per_s=" + std::to_string(random_case.link_bytes_per_s) +
      ",link_latency_ns=" + std::to_string(random_case.link_latency_ns);
  if (random_case.link_bytes_per_s > 0) desc.backend_config = link.c_str();
  commsched_world_t* world = nullptr;
  EXPECT_EQ(commsched_world_create_inproc(&desc, &world), COMMSCHED_OK);
  return world;
}

void RunRandomRanks(const RandomCase& random_case, const PlainTraining& plain,
                    const std::function<void(RandomRank&, int)>& body) {
  commsched_world_t* world = CreateWorld(random_case);
  RunRanks(random_case.ranks, [&](int rank) {
    RandomRank random_rank(random_case, plain, world, rank);
    body(random_rank, rank);
    return absl::OkStatus();
  });
  commsched_world_destroy(world);
}

}  // namespace

std::vector<Outcome> RunCase(const RandomCase& random_case,
                             const PlainTraining& plain) {
  std::vector<Outcome> outcomes(static_cast<size_t>(random_case.ranks));
  RunRandomRanks(random_case, plain, [&](RandomRank& random_rank, int rank) {
    outcomes[static_cast<size_t>(rank)] = random_rank.Run();
  });
  return outcomes;
}

Surprises SurprisesOnceWarm(const RandomCase& random_case,
                            const PlainTraining& plain, uint32_t warm_up) {
  const auto steps = static_cast<uint32_t>(random_case.after_step.size());
  Surprises begin, end;
  std::barrier all(random_case.ranks);
  RunRandomRanks(random_case, plain, [&](RandomRank& random_rank, int rank) {
    std::string message = random_rank.Build();
    if (message.empty()) message = random_rank.Steps(0, warm_up);
    all.arrive_and_wait();
    if (rank == 0 && message.empty()) begin = random_rank.Count();
    all.arrive_and_wait();
    if (message.empty()) message = random_rank.Steps(warm_up, steps);
    all.arrive_and_wait();
    if (rank == 0 && message.empty()) end = random_rank.Count();
    all.arrive_and_wait();
    EXPECT_EQ(message, "");
  });
  return {.allocations = end.allocations - begin.allocations,
          .lock_contentions = end.lock_contentions - begin.lock_contentions,
          .events = end.events - begin.events,
          .streams = end.streams - begin.streams,
          .registrations = end.registrations - begin.registrations};
}

}  // namespace commsched::engine
