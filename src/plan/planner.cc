#include "plan/planner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"
#include "plan/coalesce.h"
#include "plan/coding.h"
#include "plan/edge.h"
#include "plan/identity/fingerprint.h"
#include "plan/lanes.h"
#include "plan/merge_by_cost.h"
#include "plan/order.h"
#include "plan/partition.h"
#include "plan/place.h"
#include "plan/predict/cost_model.h"
#include "plan/predict/predict.h"
#include "plan/prioritize.h"
#include "plan/sequence.h"
#include "plan/unwritten.h"
#include "plan/verify/verify.h"
#include "plan/window.h"

namespace commsched {
namespace {

absl::Status CheckOptions(const PlanOptions& options) {
  if (options.num_comm_lanes == 0 || options.num_comm_lanes > kMaxCommLanes) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_comm_lanes is ", options.num_comm_lanes,
                     "; it must be 1 to ", kMaxCommLanes));
  }
  return absl::OkStatus();
}

absl::Status Cannot(const Op& op, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("collective '", op.name, "': the backend cannot ", what));
}

// What no choice of launches can change.
absl::Status CheckCollective(const Graph& graph, const Op& op,
                             const PlanOptions& options) {
  const BackendModel& backend = options.backend;
  const CollectiveSpec& spec = op.collective;
  const auto has = [](uint32_t mask, auto bit) {
    return (mask >> static_cast<uint32_t>(bit) & 1) != 0;
  };
  const bool coded = IsCoded(graph, spec, options);
  const CollectiveKind kind = coded ? CodedKind(spec.kind) : spec.kind;
  if (IsPointToPoint(kind) ? !backend.point_to_point
                           : !has(backend.kinds, kind)) {
    return Cannot(op, absl::StrCat("do ", CollectiveKindName(kind)));
  }
  if (kind == CollectiveKind::kBarrier) return absl::OkStatus();
  const DType dtype =
      coded ? DType::kU8 : graph.buffer(AnySide(spec).buffer).dtype;
  if (!has(backend.dtypes, dtype)) {
    return Cannot(op, absl::StrCat("move ", DTypeName(dtype)));
  }
  if (!IsReducing(kind)) return absl::OkStatus();
  if (!has(backend.reductions, spec.reduce_op)) {
    return Cannot(op, absl::StrCat("reduce by ", ReduceOpName(spec.reduce_op)));
  }
  if (options.deterministic && !backend.deterministic) {
    return Cannot(op,
                  "sum in the order of the tree (COMMSCHED_BACKEND_TREE_SUMS), "
                  "which options.deterministic asks for");
  }
  return absl::OkStatus();
}

absl::Status CheckBackend(const Graph& graph, const PlanOptions& options) {
  if (options.backend == BackendModel()) return absl::OkStatus();
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::kCollective) continue;
    RETURN_IF_ERROR(CheckCollective(graph, op, options));
  }
  return absl::OkStatus();
}

// Fills Plan::pieces.
void ListPieces(Plan* plan) {
  std::vector<std::pair<OpId, LaunchId>> pieces;
  for (uint32_t k = 0; k < plan->launches.size(); ++k) {
    const Launch& launch = plan->launches[k];
    if (launch.piece.of == 1) continue;
    pieces.emplace_back(launch.members.front(), LaunchId(k));
  }
  std::sort(pieces.begin(), pieces.end());
  for (const auto& [op, launch] : pieces) {
    if (plan->pieces.empty() || plan->pieces.back().first != op) {
      plan->pieces.push_back({op, {}});
    }
    plan->pieces.back().second.push_back(launch);
  }
}

// Nodes in host order, launches in key order, and when each becomes due.
void LayOut(const PlannedOrder& order, Plan* plan) {
  const Graph& graph = *plan->graph;
  plan->node_of_op = order.host_position;
  plan->nodes.resize(order.host.size());
  for (size_t i = 0; i < order.host.size(); ++i) {
    ComputeNode& node = plan->nodes[i];
    node.op = order.host[i];
    node.lane = graph.op(node.op).compute.lane;
    plan->num_compute_lanes = std::max(plan->num_compute_lanes, node.lane + 1);
  }
  // A send waits for a peer, so collectives do not queue up behind it.
  const uint32_t num_lanes = plan->options.num_comm_lanes;
  plan->num_comm_lanes = num_lanes + (graph.has_point_to_point() ? 1 : 0);
  plan->launch_of_op.assign(graph.ops().size(), LaunchId());
  plan->due_after.reserve(plan->launches.size());
  uint32_t due = 0;
  for (uint32_t k = 0; k < plan->launches.size(); ++k) {
    Launch& launch = plan->launches[k];
    launch.lane = IsPointToPoint(launch.kind)
                      ? num_lanes
                      : launch.group.value() % num_lanes;
    for (OpId op : launch.members) {
      plan->launch_of_op[op.value()] = LaunchId(k);
      due = std::max(due, order.ready[op.value()]);
    }
    plan->due_after.push_back(due);
  }
  ListPieces(plan);
}

void SetPlaces(const Arena& arena, Plan* plan) {
  plan->arena_bytes = arena.bytes;
  plan->placements.reserve(arena.lifetimes.size());
  for (size_t i = 0; i < arena.lifetimes.size(); ++i) {
    const Lifetime& lifetime = arena.lifetimes[i];
    if (lifetime.buffer.valid()) {
      plan->placements.push_back(
          {lifetime.buffer, arena.offsets[i], lifetime.bytes});
    } else {
      Launch& launch = plan->launches[lifetime.launch.value()];
      launch.staging_offset = arena.offsets[i];
      launch.staging_output += arena.offsets[i];
    }
  }
}

void Append(std::vector<Edge> more, std::vector<Edge>* edges) {
  edges->insert(edges->end(), more.begin(), more.end());
}

// What a role's plan starts from.
absl::StatusOr<std::shared_ptr<Plan>> BeginPlan(const RoleSpec& role,
                                                const PlanOptions& options) {
  RETURN_IF_ERROR(CheckStepBytes(*role.graph));
  RETURN_IF_ERROR(CheckBackend(*role.graph, options));
  RETURN_IF_ERROR(CheckProfile(*role.graph, role.profile));
  auto plan = std::make_shared<Plan>();
  plan->graph = role.shared != nullptr
                    ? role.shared
                    : std::make_shared<const Graph>(*role.graph);
  plan->options = options;
  plan->profile = role.profile;
  ASSIGN_OR_RETURN(plan->dependencies, InferDependencies(*role.graph));
  return plan;
}

// From launches in key order to a plan that is proved on its own.
absl::Status FinishPlan(const PlannedOrder& order, Plan* plan) {
  LayOut(order, plan);
  const Sequence sequence = SequenceOf(*plan);
  ASSIGN_OR_RETURN(Arena arena, PlaceInArena(*plan, sequence));
  SetPlaces(arena, plan);

  std::vector<Edge> edges = std::move(arena.edges);
  Append(WindowEdges(*plan), &edges);
  if (plan->options.schedule == Schedule::kSerial) {
    Append(SerialEdges(*plan), &edges);
  }
  AssignWaits(sequence, edges, plan);
  return VerifyPlan(*plan);
}

absl::Status InRole(size_t role, size_t num_roles, const absl::Status& status) {
  if (status.ok() || num_roles == 1) return status;
  return absl::Status(status.code(),
                      absl::StrCat("role ", role, ": ", status.message()));
}

// Returns, by GroupId, where the ranks of a role are in the group.
std::vector<std::vector<int>> PositionsOf(absl::Span<const RoleSpec> roles,
                                          uint32_t role) {
  std::vector<std::vector<int>> positions;
  for (uint32_t g = 0; g < roles[role].graph->groups().size(); ++g) {
    const std::vector<uint32_t> members = RolesOfGroup(roles, role, GroupId(g));
    positions.emplace_back();
    for (size_t p = 0; p < members.size(); ++p) {
      if (members[p] != role) continue;
      positions.back().push_back(static_cast<int>(p));
    }
  }
  return positions;
}

using Plans = std::vector<std::shared_ptr<Plan>>;

absl::StatusOr<Plans> BeginPlans(absl::Span<const RoleSpec> roles,
                                 const PlanOptions& options) {
  Plans plans;
  for (size_t r = 0; r < roles.size(); ++r) {
    auto plan = BeginPlan(roles[r], options);
    RETURN_IF_ERROR(InRole(r, roles.size(), plan.status()));
    (*plan)->role = static_cast<uint32_t>(r);
    (*plan)->num_roles = static_cast<uint32_t>(roles.size());
    plans.push_back(*std::move(plan));
  }
  return plans;
}

// Puts the launches of all roles, and their host orders, in the order in which
// they shall go.
absl::Status Arrange(const Plans& plans, const PlanOptions& options,
                     JobOrder* job) {
  std::vector<RoleDraft> drafts;
  for (size_t r = 0; r < plans.size(); ++r) {
    drafts.push_back({.graph = plans[r]->graph.get(),
                      .dependencies = &plans[r]->dependencies,
                      .profile = &plans[r]->profile,
                      .order = &job->roles[r],
                      .launches = &plans[r]->launches});
  }
  ASSIGN_OR_RETURN(const PriorityReport report, Prioritize(drafts, options));
  for (const auto& plan : plans) plan->priority = report;
  return absl::OkStatus();
}

using ConstPlans = std::vector<std::shared_ptr<const Plan>>;

// What the passes may choose.
struct Choices {
  bool reorder = true;  // prioritize
  // By cost, launches of no more bytes are merged; 0: none.
  uint64_t merge_bytes = kCoalesceAuto;
};

absl::StatusOr<std::vector<std::vector<Launch>>> MakeLaunches(
    absl::Span<const RoleSpec> roles,
    absl::Span<const Dependencies* const> dependencies,
    const PlanOptions& options, uint64_t merge_bytes, JobOrder* job,
    MergeReport* report) {
  if (options.coalesce_bytes != kCoalesceAuto) {
    return Coalesce(roles, dependencies, *job, options);
  }
  if (merge_bytes == 0) return LeaveApart(roles, dependencies, *job, options);
  PlanOptions limited = options;
  limited.coalesce_bytes = merge_bytes;
  // A larger launch would make the window as large as itself (I3).
  if (options.max_bytes_in_flight != 0) {
    limited.coalesce_bytes = std::min(merge_bytes, options.max_bytes_in_flight);
  }
  return MergeByCost(roles, dependencies, job, limited, report);
}

absl::StatusOr<Plans> BuildOnce(absl::Span<const RoleSpec> roles,
                                const PlanOptions& options, Choices choices) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const Meetings meetings, FindMeetings(roles));
  for (uint32_t r = 0; r < roles.size(); ++r) {
    RETURN_IF_ERROR(
        InRole(r, roles.size(),
               CheckOwnedReads(*roles[r].graph, PositionsOf(roles, r))));
  }
  ASSIGN_OR_RETURN(Plans plans, BeginPlans(roles, options));
  std::vector<const Dependencies*> dependencies;
  for (const auto& plan : plans) dependencies.push_back(&plan->dependencies);

  ASSIGN_OR_RETURN(JobOrder job, OrderJob(roles, dependencies, meetings));
  MergeReport merging;
  ASSIGN_OR_RETURN(std::vector<std::vector<Launch>> launches,
                   MakeLaunches(roles, dependencies, options,
                                choices.merge_bytes, &job, &merging));
  launches = Partition(roles, options, std::move(launches));
  for (size_t r = 0; r < roles.size(); ++r) {
    plans[r]->launches = std::move(launches[r]);
    plans[r]->merging = merging;
  }
  if (choices.reorder) RETURN_IF_ERROR(Arrange(plans, options, &job));
  for (size_t r = 0; r < roles.size(); ++r) {
    RETURN_IF_ERROR(
        InRole(r, roles.size(), FinishPlan(job.roles[r], plans[r].get())));
  }
  std::vector<Plan*> made;
  for (const auto& plan : plans) made.push_back(plan.get());
  RETURN_IF_ERROR(VerifyRoles(roles, made));
  FingerprintGroups(roles, made);
  for (Plan* plan : made) plan->fingerprint = FingerprintOf(*plan);
  return plans;
}

bool IsExhausted(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted;
}

absl::StatusOr<Plans> BuildWithin(absl::Span<const RoleSpec> roles,
                                  const PlanOptions& options,
                                  uint64_t merge_bytes) {
  Choices choices{.reorder = true, .merge_bytes = merge_bytes};
  absl::StatusOr<Plans> plans = BuildOnce(roles, options, choices);
  // The arena may have room for the launches as they get ready only. Nobody has
  // asked for another order.
  const bool retry = IsExhausted(plans.status()) &&
                     options.priority == Priority::kAuto &&
                     options.policy == nullptr;
  if (!retry) return plans;
  choices.reorder = false;
  return BuildOnce(roles, options, choices);
}

absl::StatusOr<int64_t> PredictedStep(const Plans& plans) {
  std::vector<PlayedRole> roles;
  for (const auto& plan : plans) {
    roles.push_back({plan.get(), &plan->profile});
  }
  return PredictStep(roles);
}

Plans WithReport(Plans plans, const MergeReport& report) {
  for (const auto& plan : plans) plan->merging = report;
  return plans;
}

size_t NumOps(absl::Span<const RoleSpec> roles) {
  size_t num_ops = 0;
  for (const RoleSpec& role : roles) num_ops += role.graph->ops().size();
  return num_ops;
}

bool HasMerged(const absl::StatusOr<Plans>& plans) {
  return plans.ok() &&
         plans->front()->merging.choice == MergeReport::Choice::kMerged;
}

// The faster ones, predicted whole.
absl::StatusOr<Plans> FasterOf(Plans merged, Plans apart) {
  MergeReport report;
  ASSIGN_OR_RETURN(report.merged_ns, PredictedStep(merged));
  ASSIGN_OR_RETURN(report.apart_ns, PredictedStep(apart));
  const bool slower = report.merged_ns > report.apart_ns;
  report.choice =
      slower ? MergeReport::Choice::kApart : MergeReport::Choice::kMerged;
  return WithReport(slower ? std::move(apart) : std::move(merged), report);
}

// What travels together lives until all of it has arrived. So launches are
// limited, further and further, until the arena has room.
absl::StatusOr<Plans> MergeWithinArena(absl::Span<const RoleSpec> roles,
                                       const PlanOptions& options) {
  absl::StatusOr<Plans> plans =
      absl::ResourceExhaustedError("no merge fits the arena");
  uint64_t limit = options.arena_bytes;
  if (options.max_bytes_in_flight != 0) {
    limit = std::min(limit, options.max_bytes_in_flight);
  }
  for (int i = 0; i < kMaxArenaTries && limit > 1; ++i) {
    limit /= 2;
    plans = BuildWithin(roles, options, limit);
    if (!IsExhausted(plans.status())) break;
  }
  return plans;
}

// That no limit leaves room for what could be merged.
Plans WithoutRoom(Plans apart) {
  for (const auto& plan : apart) {
    plan->merging = {.choice = MergeReport::Choice::kNoRoom};
    for (Launch& launch : plan->launches) {
      LaunchReason::End& end = launch.reason.end;
      if (end == LaunchReason::End::kNotShorter) {
        end = LaunchReason::End::kNoRoom;
      }
    }
  }
  return apart;
}

absl::StatusOr<Plans> BuildByCost(absl::Span<const RoleSpec> roles,
                                  const PlanOptions& options) {
  absl::StatusOr<Plans> merged = BuildWithin(roles, options, kCoalesceAuto);
  const bool small = NumOps(roles) <= kMaxOpsCompared;
  // A policy's merges stay, whatever they cost.
  const bool compares = small && options.policy == nullptr;
  const bool exhausted = IsExhausted(merged.status());
  if (!exhausted && !(HasMerged(merged) && compares)) return merged;
  absl::StatusOr<Plans> apart = BuildWithin(roles, options, /*merge_bytes=*/0);
  // There may be room for them only if they are merged.
  if (!apart.ok()) return merged.ok() ? std::move(merged) : std::move(apart);
  if (exhausted && small) merged = MergeWithinArena(roles, options);
  if (IsExhausted(merged.status())) return WithoutRoom(*std::move(apart));
  if (!HasMerged(merged) || !compares) return merged;
  return FasterOf(*std::move(merged), *std::move(apart));
}

void AddPlaceGroupReports(const Plans& plans) {
  for (const auto& plan : plans) {
    if (!plan->graph->has_place_groups()) continue;
    plan->place_groups = ReportPlaceGroups(*plan, SequenceOf(*plan));
  }
}

}  // namespace

absl::StatusOr<ConstPlans> BuildPlans(absl::Span<const RoleSpec> roles,
                                      const PlanOptions& options) {
  ASSIGN_OR_RETURN(const Plans plans,
                   options.coalesce_bytes == kCoalesceAuto
                       ? BuildByCost(roles, options)
                       : BuildWithin(roles, options, /*merge_bytes=*/0));
  AddPlaceGroupReports(plans);
  return ConstPlans(plans.begin(), plans.end());
}

absl::StatusOr<std::shared_ptr<const Plan>> BuildPlan(
    std::shared_ptr<const Graph> graph, const PlanOptions& options,
    const CostProfile& profile) {
  const RoleSpec role{.graph = graph.get(),
                      .role_of_member = {},
                      .profile = profile,
                      .shared = graph};
  ASSIGN_OR_RETURN(auto plans, BuildPlans({&role, 1}, options));
  return std::move(plans.front());
}

absl::StatusOr<std::shared_ptr<const Plan>> BuildPlan(
    const Graph& graph, const PlanOptions& options,
    const CostProfile& profile) {
  const RoleSpec role{
      .graph = &graph, .role_of_member = {}, .profile = profile};
  ASSIGN_OR_RETURN(auto plans, BuildPlans({&role, 1}, options));
  return std::move(plans.front());
}

}  // namespace commsched
