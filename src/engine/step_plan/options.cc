#include "engine/step_plan/options.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace commsched::engine {
namespace {

// Ranks agree on the values of all sets in each step.
constexpr uint32_t kMostOptionSets = 1u << 16;

constexpr uint64_t kDefaultBucketBytes = uint64_t{25} << 20;

// AdamW, where the caller gives no table.
constexpr char kDefaultOptimizer[] = "adamw";
constexpr uint32_t kDefaultStateValues = 2;

commsched_step_plan_options_t WithDefaultsOfStep(
    commsched_step_plan_options_t options, int32_t num_ranks) {
  if (options.gradient_divisor == 0) options.gradient_divisor = num_ranks;
  if (options.micro_batches == 0) options.micro_batches = 1;
  if (options.norm_members == 0) options.norm_members = 1;
  if (options.bucket_merge == COMMSCHED_BUCKET_MERGE_AUTO) {
    options.bucket_merge =
        options.bucket_bytes == 0 && options.profile != nullptr
            ? COMMSCHED_BUCKET_MERGE_ON
            : COMMSCHED_BUCKET_MERGE_OFF;
  }
  if (options.bucket_bytes == 0) options.bucket_bytes = kDefaultBucketBytes;
  options.optimizer = nullptr;
  options.plan = nullptr;
  options.profile = nullptr;
  return options;
}

std::string NameOrNone(const char* name) { return name == nullptr ? "" : name; }

commsched_plan_options_t OptionsOfCore(const commsched_plan_options_t* given) {
  return given == nullptr ? commsched_plan_options_init() : *given;
}

std::vector<int32_t> HostsOf(const commsched_plan_options_t& options) {
  if (options.host_of_rank == nullptr) return {};
  return std::vector<int32_t>(options.host_of_rank,
                              options.host_of_rank + options.num_ranks);
}

class OptionCheck {
 public:
  explicit OptionCheck(const commsched_step_plan_options_t& given)
      : given_(given) {}

  Status Run() const {
    ENGINE_RETURN_IF_ERROR(AtMost("zero_stage", given_.zero_stage, 3));
    ENGINE_RETURN_IF_ERROR(Flags());
    ENGINE_RETURN_IF_ERROR(AtMost("norm_members", given_.norm_members,
                                  std::numeric_limits<int32_t>::max()));
    ENGINE_RETURN_IF_ERROR(
        AtMost("option_sets", given_.option_sets, kMostOptionSets));
    ENGINE_RETURN_IF_ERROR(Stage3("max_live_bytes", given_.max_live_bytes));
    ENGINE_RETURN_IF_ERROR(Stage3("persist_below", given_.persist_below));
    ENGINE_RETURN_IF_ERROR(Stage3("prefetch_bytes", given_.prefetch_bytes));
    ENGINE_RETURN_IF_ERROR(Stage3("fixed_addresses", given_.fixed_addresses));
    if (given_.bucket_merge > COMMSCHED_BUCKET_MERGE_ON) {
      return Refuse("bucket_merge", given_.bucket_merge,
                    "; it must be 0 (auto), 1 (off) or 2 (on)");
    }
    ENGINE_RETURN_IF_ERROR(DType("parameter_dtype", given_.parameter_dtype));
    ENGINE_RETURN_IF_ERROR(DType("reduce_dtype", given_.reduce_dtype));
    if (given_.offload_staging_bytes != 0 && given_.offloads == 0) {
      return Refuse("offload_staging_bytes", given_.offload_staging_bytes,
                    " without offloads");
    }
    if (given_.offloads_gradients != 0 && given_.zero_stage < 2) {
      return Refuse("offloads_gradients", given_.offloads_gradients,
                    (" with zero_stage " + std::to_string(given_.zero_stage) +
                     "; it is of stages 2 and 3")
                        .c_str());
    }
    if (given_.gradient_staging_bytes != 0 && given_.offloads_gradients == 0) {
      return Refuse("gradient_staging_bytes", given_.gradient_staging_bytes,
                    " without offloads_gradients");
    }
    ENGINE_RETURN_IF_ERROR(Divisor());
    if (given_.profile != nullptr && given_.profile->op_cost_ns != nullptr) {
      return InvalidArgument(
          "engine: profile.op_cost_ns is not NULL; the engine makes the graph");
    }
    return Status();
  }

 private:
  Status Refuse(const char* field, uint64_t value, const char* why) const {
    return InvalidArgument(std::string("engine: ") + field + " is " +
                           std::to_string(value) + why);
  }
  Status AtMost(const char* field, uint64_t value, uint64_t most) const {
    if (value <= most) return Status();
    const std::string range = most == 0 ? "0" : "0 to " + std::to_string(most);
    return Refuse(field, value, ("; it must be " + range).c_str());
  }
  Status Flags() const {
    const struct {
      const char* name;
      uint32_t value;
    } flags[] = {{"clips", given_.clips},
                 {"scales_loss", given_.scales_loss},
                 {"check_finite", given_.check_finite},
                 {"norm", given_.norm},
                 {"gradient_ready", given_.gradient_ready},
                 {"offloads", given_.offloads},
                 {"absent_gradients", given_.absent_gradients},
                 {"cancel_all", given_.cancel_all},
                 {"fixed_addresses", given_.fixed_addresses},
                 {"uneven_evaluations", given_.uneven_evaluations},
                 {"offloads_gradients", given_.offloads_gradients}};
    for (const auto& [name, value] : flags) {
      ENGINE_RETURN_IF_ERROR(AtMost(name, value, 1));
    }
    return AtMost("reserved", given_.reserved, 0);
  }
  Status Stage3(const char* field, uint64_t value) const {
    if (value == 0 || given_.zero_stage == 3) return Status();
    return Refuse(field, value,
                  (" with zero_stage " + std::to_string(given_.zero_stage) +
                   "; it is of stage 3")
                      .c_str());
  }
  Status DType(const char* field, uint32_t value) const {
    if (value == COMMSCHED_F32 || value == COMMSCHED_F16 ||
        value == COMMSCHED_BF16) {
      return Status();
    }
    return Refuse(field, value, "; it must be F32 (0), F16 (2) or BF16 (3)");
  }
  Status Divisor() const {
    const double divisor = given_.gradient_divisor;
    const uint32_t groups = given_.num_divisor_groups;
    if (!std::isfinite(divisor) || divisor < 0) {
      return InvalidArgument("engine: gradient_divisor is " +
                             std::to_string(divisor) +
                             "; it must be finite, and 0 or more");
    }
    if (groups > 0 && given_.divisor_groups == nullptr) {
      return Refuse("num_divisor_groups", groups, "; divisor_groups is NULL");
    }
    if (groups == 0 || divisor == 0) return Status();
    return Refuse("num_divisor_groups", groups,
                  (", and gradient_divisor is " + std::to_string(divisor) +
                   "; one of them states the divisor")
                      .c_str());
  }

  const commsched_step_plan_options_t& given_;
};

}  // namespace

Status StepOptions::Check(const commsched_step_plan_options_t& given) {
  return OptionCheck(given).Run();
}

Status StepOptions::FindDivisor(const Model& model, int32_t num_ranks,
                                commsched_step_plan_options_t* options) {
  const std::vector<AddedGroup>& added = model.exchanges().groups;
  const uint32_t* const groups = options->divisor_groups;
  double divisor = options->gradient_divisor;
  for (uint32_t i = 0; i < options->num_divisor_groups; ++i) {
    const std::string name = "engine: divisor_groups[" + std::to_string(i) +
                             "] is " + std::to_string(groups[i]);
    if (groups[i] > added.size()) {
      return InvalidArgument(name + "; the model has groups 0 to " +
                             std::to_string(added.size()));
    }
    if (std::find(groups, groups + i, groups[i]) != groups + i) {
      return InvalidArgument(name + " for the second time");
    }
    const int32_t ranks =
        groups[i] == 0 ? num_ranks : added[groups[i] - 1].num_ranks;
    divisor = (i == 0 ? 1 : divisor) * ranks;
  }
  options->gradient_divisor = divisor;
  options->divisor_groups = nullptr;
  options->num_divisor_groups = 0;
  return Status();
}

StepOptions::StepOptions(const commsched_step_plan_options_t& given,
                         int32_t num_ranks)
    : given_(WithDefaultsOfStep(given, num_ranks)),
      whole_tensors_(given.optimizer != nullptr &&
                     given.optimizer->whole_tensors != 0 &&
                     given.zero_stage > 0),
      policy_(NameOrNone(OptionsOfCore(given.plan).policy)),
      codec_(NameOrNone(OptionsOfCore(given.plan).codec)),
      backend_(NameOrNone(OptionsOfCore(given.plan).backend)),
      optimizer_(given.optimizer == nullptr ? kDefaultOptimizer
                                            : given.optimizer->name),
      optimizer_state_(optimizer_ + "_state"),
      host_of_rank_(HostsOf(OptionsOfCore(given.plan))),
      plan_([&] {
        commsched_plan_options_t plan = OptionsOfCore(given.plan);
        // An empty name is one.
        if (plan.policy != nullptr) plan.policy = policy_.c_str();
        if (plan.codec != nullptr) plan.codec = codec_.c_str();
        if (plan.backend != nullptr) plan.backend = backend_.c_str();
        if (plan.host_of_rank != nullptr) {
          plan.host_of_rank = host_of_rank_.data();
        }
        return plan;
      }()),
      profile_(given.profile == nullptr ? commsched_cost_profile_init()
                                        : *given.profile),
      spec_([&] {
        const auto dtype = [](uint32_t value) {
          return static_cast<commsched_dtype_t>(value);
        };
        StepSpec spec;
        spec.zero_stage = given_.zero_stage;
        spec.micro_batches = given_.micro_batches;
        spec.world = num_ranks;
        spec.clip = given_.clips != 0;
        spec.scales_loss = given_.scales_loss != 0;
        spec.check_finite = given_.check_finite != 0;
        spec.reads_norm = given_.norm != 0;
        spec.norm_members = static_cast<int32_t>(given_.norm_members);
        spec.gradient_divisor = given_.gradient_divisor;
        spec.option_sets = given_.option_sets;
        spec.gradient_ready = given_.gradient_ready != 0;
        spec.absent_gradients = given_.absent_gradients != 0;
        spec.cancel_all = given_.cancel_all != 0;
        spec.fixed_addresses = given_.fixed_addresses != 0;
        spec.uneven_evaluations = given_.uneven_evaluations != 0;
        spec.deterministic = plan_.deterministic != 0;
        spec.optimizer = optimizer_.c_str();
        spec.optimizer_state = optimizer_state_.c_str();
        spec.moments = given.optimizer == nullptr
                           ? kDefaultStateValues
                           : given.optimizer->state_values;
        spec.precision = {.parameters = dtype(given_.parameter_dtype),
                          .reduced = dtype(given_.reduce_dtype)};
        spec.offloads =
            given_.offloads != 0 &&
            (spec.moments > 0 || spec.precision.parameters != COMMSCHED_F32);
        spec.offloads_gradients = given_.offloads_gradients != 0;
        return spec;
      }()) {}

StepPlan::Options StepOptions::OfPlan() const {
  return {.layout = {.bucket_bytes = given_.bucket_bytes,
                     .num_shards = static_cast<uint64_t>(spec_.world),
                     .edge_bytes = given_.edge_bucket_bytes,
                     .persist_bytes = given_.persist_below,
                     .whole_tensors = whole_tensors_},
          .accumulate_bytes = given_.accumulate_bytes,
          .offload_staging_bytes = given_.offload_staging_bytes,
          .gradient_staging_bytes = given_.gradient_staging_bytes,
          .max_live_bytes = given_.max_live_bytes,
          .prefetch_bytes = given_.prefetch_bytes,
          .plan = plan_,
          .profile = profile_};
}

}  // namespace commsched::engine
