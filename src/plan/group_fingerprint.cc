#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/canonical_bytes.h"
#include "plan/cost_model.h"
#include "plan/fingerprint.h"
#include "plan/names.h"

namespace commsched {
namespace {

// The way counts where it decides what goes over the wire. A single member goes
// the same way from its own memory and from staging.
bool WayCounts(const Launch& launch) { return launch.members.size() > 1; }

uint64_t ElementsOf(const Plan& plan, OpId op) {
  const CollectiveSpec& spec = plan.graph->op(op).collective;
  if (spec.kind == CollectiveKind::kBarrier) return 0;
  const Access& side =
      spec.kind == CollectiveKind::kRecv ? spec.output : spec.input;
  return WeightBytes(*plan.graph, spec) /
         DTypeSize(plan.graph->buffer(side.buffer).dtype);
}

void AddLaunch(const Plan& plan, const Launch& launch, CanonicalBytes* out) {
  out->AddEach(launch.kind, launch.key, launch.dtype, launch.reduce_op,
               launch.root);
  if (WayCounts(launch)) out->Add(static_cast<uint64_t>(launch.way));
  out->Add(uint64_t{launch.coded});
  if (launch.coded) out->Add(absl::string_view(plan.options.codec.name));
  out->Add(launch.piece);
  out->Add(uint64_t{launch.members.size()});
  for (OpId op : launch.members) {
    out->Add(absl::string_view(plan.graph->op(op).name));
    out->Add(ElementsOf(plan, op));
    out->Add(plan.graph->op(op).collective.counts);
  }
}

std::string LineOf(const Plan& plan, const Launch& launch) {
  std::string line = absl::StrCat(CollectiveKindName(launch.kind), " ",
                                  DTypeName(launch.dtype));
  if (IsReducing(launch.kind)) {
    absl::StrAppend(&line, " ", ReduceOpName(launch.reduce_op));
  }
  if (IsRooted(launch.kind)) absl::StrAppend(&line, " root ", launch.root);
  if (WayCounts(launch)) absl::StrAppend(&line, " way ", WayName(launch.way));
  if (launch.coded) absl::StrAppend(&line, " coded");
  if (launch.piece.of > 1) {
    absl::StrAppend(&line, " piece ", launch.piece.index, "/", launch.piece.of,
                    " [", launch.piece.offset, ",+", launch.piece.count, "]");
  }
  absl::StrAppend(&line, " key ", launch.key, " of");
  for (OpId op : launch.members) {
    const Op& desc = plan.graph->op(op);
    absl::StrAppend(&line, " '", desc.name, "' count ", ElementsOf(plan, op));
    if (desc.collective.counts.empty()) continue;
    absl::StrAppend(&line, " counts ",
                    absl::StrJoin(desc.collective.counts, ","));
  }
  return line;
}

using Sends = std::shared_ptr<const std::vector<std::string>>;

// What the members of a group send, role by role and in order of issue, which
// fixes what goes from each position to each other.
class SendLister {
 public:
  SendLister(absl::Span<const RoleSpec> roles, absl::Span<Plan* const> plans)
      : roles_(roles), plans_(plans), sends_(plans.size()) {
    for (size_t r = 0; r < plans.size(); ++r) {
      sends_[r].resize(plans[r]->graph->groups().size());
      for (const Launch& launch : plans[r]->launches) {
        if (launch.kind != CollectiveKind::kSend) continue;
        for (OpId op : launch.members) {
          const CollectiveKind kind = plans[r]->graph->op(op).collective.kind;
          if (kind == CollectiveKind::kSend) {
            sends_[r][launch.group.value()].push_back(op);
          }
        }
      }
    }
  }

  Sends On(uint32_t role, GroupId group) {
    const Graph& graph = *plans_[role]->graph;
    const std::vector<uint32_t> members = RolesOfGroup(roles_, role, group);
    Sends& sends = listed_[{graph.group(group).name, members}];
    if (sends != nullptr) return sends;
    auto lines = std::make_shared<std::vector<std::string>>();
    // Roles are told by their first position in the group.
    std::map<uint32_t, bool> seen;
    for (size_t p = 0; p < members.size(); ++p) {
      if (!std::exchange(seen[members[p]], true)) {
        AddRole(members[p], graph.group(group).name, p, lines.get());
      }
    }
    if (!lines->empty()) {
      lines->insert(lines->begin(),
                    absl::StrCat("roles ", absl::StrJoin(members, " ")));
    }
    return sends = std::move(lines);
  }

 private:
  void AddRole(uint32_t role, const std::string& name, size_t position,
               std::vector<std::string>* lines) const {
    const Plan& plan = *plans_[role];
    const absl::StatusOr<GroupId> group = plan.graph->FindGroup(name);
    if (!group.ok()) return;
    for (OpId op : sends_[role][group->value()]) {
      const Op& desc = plan.graph->op(op);
      const DType dtype =
          plan.graph->buffer(desc.collective.input.buffer).dtype;
      lines->push_back(absl::StrCat("send '", desc.name, "' ", DTypeName(dtype),
                                    " count ", ElementsOf(plan, op),
                                    " from position ", position, " to ",
                                    desc.collective.peer_offset > 0 ? "+" : "",
                                    desc.collective.peer_offset));
    }
  }

  const absl::Span<const RoleSpec> roles_;
  const absl::Span<Plan* const> plans_;
  std::vector<std::vector<std::vector<OpId>>> sends_;  // by role and group
  std::map<std::pair<std::string, std::vector<uint32_t>>, Sends> listed_;
};

}  // namespace

void FingerprintGroups(absl::Span<const RoleSpec> roles,
                       absl::Span<Plan* const> plans) {
  SendLister lister(roles, plans);
  for (uint32_t r = 0; r < plans.size(); ++r) {
    Plan& plan = *plans[r];
    const std::vector<Group>& groups = plan.graph->groups();
    std::vector<CanonicalBytes> of_group(groups.size());
    for (const Launch& launch : plan.launches) {
      if (IsPointToPoint(launch.kind)) continue;
      AddLaunch(plan, launch, &of_group[launch.group.value()]);
    }
    for (uint32_t g = 0; g < groups.size(); ++g) {
      CanonicalBytes& bytes = of_group[g];
      bytes.Add(static_cast<uint64_t>(groups[g].size));
      plan.group_sends.push_back(lister.On(r, GroupId(g)));
      for (const std::string& line : *plan.group_sends.back()) {
        bytes.Add(absl::string_view(line));
      }
      plan.group_fingerprints.push_back(bytes.Hash());
    }
  }
}

std::vector<std::string> GroupLines(const Plan& plan, GroupId group) {
  std::vector<std::string> lines = {
      absl::StrCat("group '", plan.graph->group(group).name, "' size ",
                   plan.graph->group(group).size)};
  for (const Launch& launch : plan.launches) {
    if (launch.group != group || IsPointToPoint(launch.kind)) continue;
    lines.push_back(LineOf(plan, launch));
  }
  const std::vector<std::string>& sends = *plan.group_sends[group.value()];
  lines.insert(lines.end(), sends.begin(), sends.end());
  return lines;
}

}  // namespace commsched
