#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/plugin_policy.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "session/backend_model.h"

namespace commsched {
namespace {

static_assert(static_cast<int>(Schedule::kOverlap) == COMMSCHED_OVERLAP);
static_assert(static_cast<int>(Schedule::kSerial) == COMMSCHED_SERIAL);
static_assert(static_cast<int>(Priority::kAuto) == COMMSCHED_PRIORITY_AUTO);
static_assert(static_cast<int>(Priority::kOff) == COMMSCHED_PRIORITY_OFF);
static_assert(static_cast<int>(Priority::kOn) == COMMSCHED_PRIORITY_ON);
static_assert(kCoalesceAuto == COMMSCHED_COALESCE_AUTO);

// Leaves `*ours`, the default, where the caller's value is 0.
absl::Status SetRate(absl::string_view field, double value, double* ours) {
  if (!std::isfinite(value) || value < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "profile.", field, " is ", value, ", not a finite rate >= 0"));
  }
  if (value > 0) *ours = value;
  return absl::OkStatus();
}

absl::Status SetTime(absl::string_view field, int64_t value, int64_t* ours) {
  if (value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile.", field, " is ", value, " ns, below 0"));
  }
  if (value > 0) *ours = value;
  return absl::OkStatus();
}

absl::Status SetSharing(const commsched_cost_profile_t& profile,
                        CostProfile* ours) {
  if ((profile.num_ranks_sharing == 0) != (profile.num_cores == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "profile.num_ranks_sharing is ", profile.num_ranks_sharing,
        " and num_cores ", profile.num_cores, "; set both or neither"));
  }
  if (profile.num_cores == 0) return absl::OkStatus();
  ours->num_ranks_sharing = profile.num_ranks_sharing;
  ours->num_cores = profile.num_cores;
  return absl::OkStatus();
}

absl::Status SetOpCosts(const commsched_cost_profile_t& profile,
                        CostProfile* ours) {
  RETURN_IF_ERROR(RequireArrayField("profile.op_cost_ns", profile.op_cost_ns,
                                    "profile.num_ops", profile.num_ops));
  if (profile.op_cost_ns == nullptr) return absl::OkStatus();
  for (uint64_t i = 0; i < profile.num_ops; ++i) {
    if (profile.op_cost_ns[i] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("profile.op_cost_ns[", i, "] is ", profile.op_cost_ns[i],
                     " ns, below 0"));
  }
  ours->op_cost_ns.assign(profile.op_cost_ns,
                          profile.op_cost_ns + profile.num_ops);
  return absl::OkStatus();
}

absl::Status SetHosts(const commsched_plan_options_t& options,
                      PlanOptions* ours) {
  RETURN_IF_ERROR(RequireArrayField("options.host_of_rank",
                                    options.host_of_rank, "options.num_ranks",
                                    options.num_ranks));
  if (options.num_ranks > World::kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("options.num_ranks is ", options.num_ranks, "; at most ",
                     World::kMaxRanks));
  }
  ours->hosts = HostLinksOf(
      {options.host_of_rank, static_cast<size_t>(options.num_ranks)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanOptions> ToPlanOptions(
    const commsched_plan_options_t& options) {
  if (options.schedule > COMMSCHED_SERIAL) {
    return absl::InvalidArgumentError(
        absl::StrCat("options.schedule is ", options.schedule, ", outside ",
                     int{COMMSCHED_OVERLAP}, "..", int{COMMSCHED_SERIAL}));
  }
  if (options.priority > COMMSCHED_PRIORITY_ON) {
    return absl::InvalidArgumentError(absl::StrCat(
        "options.priority is ", options.priority, ", outside ",
        int{COMMSCHED_PRIORITY_AUTO}, "..", int{COMMSCHED_PRIORITY_ON}));
  }
  PlanOptions ours;
  if (options.policy != nullptr) {
    ASSIGN_OR_RETURN(const commsched_policy_t* policy,
                     PluginRegistry::Process().Policy(options.policy));
    ours.policy = std::make_shared<PluginPolicy>(policy);
  }
  if (options.codec != nullptr) {
    ASSIGN_OR_RETURN(const commsched_codec_t* codec,
                     PluginRegistry::Process().Codec(options.codec));
    ours.codec = {codec->name, codec->block_elements, codec->block_bytes,
                  codec->dtypes};
  }
  if (options.backend != nullptr) {
    ASSIGN_OR_RETURN(const commsched_backend_t* backend,
                     PluginRegistry::Process().Backend(options.backend));
    ours.backend = ModelOf(*backend);
  }
  RETURN_IF_ERROR(SetHosts(options, &ours));
  ours.schedule = static_cast<Schedule>(options.schedule);
  ASSIGN_OR_RETURN(ours.deterministic,
                   ToFlag("options.deterministic", options.deterministic));
  ours.max_launches_in_flight = options.max_launches_in_flight;
  ours.max_bytes_in_flight = options.max_bytes_in_flight;
  if (options.num_comm_lanes != 0) ours.num_comm_lanes = options.num_comm_lanes;
  ours.coalesce_bytes = options.coalesce_bytes;
  ours.arena_bytes = options.arena_bytes;
  ours.partition_bytes = options.partition_bytes;
  ours.priority = static_cast<Priority>(options.priority);
  return ours;
}

absl::StatusOr<CostProfile> ToCostProfile(
    const commsched_cost_profile_t& profile) {
  CostProfile ours;
  RETURN_IF_ERROR(SetRate("link_bytes_per_s", profile.link_bytes_per_s,
                          &ours.link_bytes_per_s));
  RETURN_IF_ERROR(SetTime("link_latency_ns", profile.link_latency_ns,
                          &ours.link_latency_ns));
  RETURN_IF_ERROR(SetTime("launch_ns", profile.launch_ns, &ours.launch_ns));
  RETURN_IF_ERROR(SetRate("copy_bytes_per_s", profile.copy_bytes_per_s,
                          &ours.copy_bytes_per_s));
  RETURN_IF_ERROR(
      SetRate("flops_per_s", profile.flops_per_s, &ours.flops_per_s));
  RETURN_IF_ERROR(SetRate("memory_bytes_per_s", profile.memory_bytes_per_s,
                          &ours.memory_bytes_per_s));
  RETURN_IF_ERROR(SetSharing(profile, &ours));
  RETURN_IF_ERROR(SetOpCosts(profile, &ours));
  return ours;
}

}  // namespace commsched
