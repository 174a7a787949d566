#include "plan/explain/describe.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "plan/explain/names.h"
#include "plan/explain/table.h"
#include "plan/predict/cost_model.h"
#include "plan/predict/predict.h"

namespace commsched {
namespace {

// A launch of a role, which is what a bucket travels as.
struct Bucket {
  uint32_t key = 0;
  uint64_t sent_bytes = 0;  // over the busier direction of a rank's link
  int64_t link_ns = 0;
};

// What one axis carries.
struct Axis {
  GroupId group;
  std::vector<Bucket> buckets;
  uint64_t num_collectives = 0;
  uint64_t sent_bytes = 0;
  int64_t link_ns = 0;
  int64_t exposed_ns = 0;
  Blame exposed_by;
};

struct RoleMap {
  const Plan* plan = nullptr;
  Prediction prediction;
  std::vector<Axis> axes;  // that carry anything, in the graph's order
};

std::vector<Axis> AxesOf(const Plan& plan, const Prediction& prediction) {
  const Graph& graph = *plan.graph;
  std::vector<Axis> all(graph.groups().size());
  for (uint32_t k = 0; k < plan.launches.size(); ++k) {
    const Launch& launch = plan.launches[k];
    Axis& axis = all[launch.group.value()];
    Bucket bucket;
    bucket.key = k;
    bucket.sent_bytes =
        static_cast<uint64_t>(std::llround(LinkBytes(graph, launch)));
    bucket.link_ns = LinkNs(graph, launch, plan.profile);
    axis.group = launch.group;
    // The pieces of a collective are one collective.
    if (launch.piece.index == 0) axis.num_collectives += launch.members.size();
    axis.sent_bytes += bucket.sent_bytes;
    axis.link_ns += bucket.link_ns;
    axis.exposed_ns += prediction.launches[k].exposed_ns;
    axis.exposed_by += prediction.launches[k].exposed_by;
    axis.buckets.push_back(bucket);
  }
  std::vector<Axis> used;
  for (Axis& axis : all) {
    if (!axis.buckets.empty()) used.push_back(std::move(axis));
  }
  return used;
}

absl::StatusOr<std::vector<RoleMap>> MapOf(
    absl::Span<const Plan* const> plans) {
  if (plans.empty()) {
    return absl::InvalidArgumentError("describe: there is no plan");
  }
  std::vector<PlayedRole> roles;
  for (size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = *plans[i];
    // One role by itself is described as if none kept it waiting.
    const bool alone = plans.size() == 1;
    if (!alone && (plan.role != i || plan.num_roles != plans.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("describe: plan ", i, " of ", plans.size(), " is role ",
                       plan.role, " of ", plan.num_roles,
                       "; give all roles of one job, in order, or one plan"));
    }
    roles.push_back({&plan, &plan.profile});
  }
  ASSIGN_OR_RETURN(std::vector<Prediction> predictions, PredictJob(roles));
  std::vector<RoleMap> map;
  for (size_t i = 0; i < plans.size(); ++i) {
    std::vector<Axis> axes = AxesOf(*plans[i], predictions[i]);
    map.push_back({plans[i], std::move(predictions[i]), std::move(axes)});
  }
  return map;
}

std::string ExposedText(int64_t exposed_ns, const Blame& blame) {
  const std::string parts = BlameText(blame);
  return absl::StrCat("exposed ", Micros(exposed_ns),
                      parts.empty() ? "" : absl::StrCat(" (", parts, ")"));
}

std::string AxisText(const RoleMap& role, const Axis& axis) {
  const Plan& plan = *role.plan;
  const Group& group = plan.graph->group(axis.group);
  std::string text = absl::StrCat(
      "  axis '", group.name, "', ", group.size,
      " ranks: ", axis.num_collectives, " collectives in ", axis.buckets.size(),
      " launches, ", axis.sent_bytes, " bytes sent per step and rank, ",
      Micros(axis.link_ns), " on the link, ",
      ExposedText(axis.exposed_ns, axis.exposed_by), "\n");
  std::vector<Row> rows = {{"  bucket", "kind", "members", "dtype", "way",
                            "bytes", "sent", "on the link", "exposed",
                            "cause"}};
  for (const Bucket& bucket : axis.buckets) {
    const Launch& launch = plan.launches[bucket.key];
    const LaunchPrediction& times = role.prediction.launches[bucket.key];
    rows.push_back(
        {absl::StrCat("  #", bucket.key),
         std::string(CollectiveKindName(launch.kind)),
         MemberNames(plan, launch), std::string(DTypeName(launch.dtype)),
         std::string(WayName(launch.way)), absl::StrCat(launch.payload_bytes),
         absl::StrCat(bucket.sent_bytes), Micros(bucket.link_ns),
         Micros(times.exposed_ns), std::string(CauseName(times.cause))});
  }
  return absl::StrCat(text, Table(rows));
}

std::string RoleText(const RoleMap& role) {
  const Plan& plan = *role.plan;
  const Prediction& prediction = role.prediction;
  std::string text = absl::StrCat(
      "role ", plan.role, " of ", plan.num_roles, ": ", plan.nodes.size(),
      " ops; step ", Micros(prediction.step_ns), ", at least ",
      Micros(prediction.lower_bound_ns), "; compute ",
      Micros(prediction.compute_ns), ", communication ",
      Micros(prediction.comm_ns), ", ",
      ExposedText(prediction.exposed_ns, prediction.exposed_by), "\n");
  for (const Axis& axis : role.axes) {
    absl::StrAppend(&text, AxisText(role, axis));
  }
  return text;
}

Json BucketJson(const RoleMap& role, const Bucket& bucket) {
  const Plan& plan = *role.plan;
  const Launch& launch = plan.launches[bucket.key];
  const LaunchPrediction& times = role.prediction.launches[bucket.key];
  Json json = {{"key", bucket.key},
               {"kind", std::string(CollectiveKindName(launch.kind))},
               {"members", MembersJson(plan, launch)},
               {"dtype", std::string(DTypeName(launch.dtype))},
               {"way", std::string(WayName(launch.way))},
               {"bytes", launch.payload_bytes},
               {"sent_bytes", bucket.sent_bytes},
               {"link_ns", bucket.link_ns},
               {"exposed_ns", times.exposed_ns},
               {"exposed_by", BlameJson(times.exposed_by)}};
  if (launch.piece.of > 1) {
    json["piece"] = {{"index", launch.piece.index}, {"of", launch.piece.of}};
  }
  return json;
}

Json AxisJson(const RoleMap& role, const Axis& axis) {
  const Group& group = role.plan->graph->group(axis.group);
  Json json = {{"axis", group.name},
               {"size", group.size},
               {"num_collectives", axis.num_collectives},
               {"num_launches", axis.buckets.size()},
               {"sent_bytes", axis.sent_bytes},
               {"link_ns", axis.link_ns},
               {"exposed_ns", axis.exposed_ns},
               {"exposed_by", BlameJson(axis.exposed_by)}};
  json["buckets"] = Json::array();
  for (const Bucket& bucket : axis.buckets) {
    json["buckets"].push_back(BucketJson(role, bucket));
  }
  return json;
}

Json RoleJson(const RoleMap& role) {
  const Prediction& prediction = role.prediction;
  Json json = {{"role", role.plan->role},
               {"num_roles", role.plan->num_roles},
               {"num_ops", role.plan->nodes.size()},
               {"step_ns", prediction.step_ns},
               {"lower_bound_ns", prediction.lower_bound_ns},
               {"compute_ns", prediction.compute_ns},
               {"comm_ns", prediction.comm_ns},
               {"exposed_ns", prediction.exposed_ns},
               {"exposed_by", BlameJson(prediction.exposed_by)}};
  json["axes"] = Json::array();
  for (const Axis& axis : role.axes)
    json["axes"].push_back(AxisJson(role, axis));
  return json;
}

}  // namespace

absl::StatusOr<std::string> DescribeText(absl::Span<const Plan* const> plans) {
  ASSIGN_OR_RETURN(const std::vector<RoleMap> map, MapOf(plans));
  return absl::StrJoin(map, "", [](std::string* out, const RoleMap& role) {
    absl::StrAppend(out, RoleText(role));
  });
}

absl::StatusOr<std::string> DescribeJson(absl::Span<const Plan* const> plans) {
  ASSIGN_OR_RETURN(const std::vector<RoleMap> map, MapOf(plans));
  Json json;
  json["format"] = "commsched-map/1";
  json["roles"] = Json::array();
  for (const RoleMap& role : map) json["roles"].push_back(RoleJson(role));
  return Dump(json);
}

}  // namespace commsched
