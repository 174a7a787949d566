#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/collective_shape.h"
#include "plan/identity/canonical_bytes.h"
#include "plan/identity/canonical_plan.h"
#include "plan/identity/canonical_text.h"
#include "plan/identity/fingerprint.h"

namespace commsched {
namespace {

std::string Quoted(absl::string_view name) {
  return absl::StrCat("'", absl::Utf8SafeCEscape(name), "'");
}

using Sends = std::shared_ptr<const SharedLines>;

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
    auto shared = std::make_shared<SharedLines>();
    std::vector<std::string>& lines = shared->lines;
    // Roles are told by their first position in the group.
    std::map<uint32_t, bool> seen;
    for (size_t p = 0; p < members.size(); ++p) {
      if (!std::exchange(seen[members[p]], true)) {
        AddRole(members[p], graph.group(group).name, p, &lines);
      }
    }
    if (!lines.empty()) {
      lines.insert(lines.begin(),
                   absl::StrCat("roles ", absl::StrJoin(members, " "), " on ",
                                Quoted(graph.group(group).name)));
    }
    CanonicalBytes bytes;
    for (const std::string& line : lines) bytes.Text("", line);
    shared->hash = bytes.Hash();
    return sends = std::move(shared);
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
      lines->push_back(
          absl::StrCat("send ", Quoted(desc.name), " ", DTypeName(dtype),
                       " count ", ElementsOf(*plan.graph, desc.collective),
                       " on ", Quoted(name), " from position ", position,
                       " to ", desc.collective.peer_offset > 0 ? "+" : "",
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
    std::vector<CanonicalBytes> of_group(plan.graph->groups().size());
    for (uint32_t g = 0; g < of_group.size(); ++g) {
      VisitGroup(*plan.graph, GroupId(g), &of_group[g]);
    }
    for (const Launch& launch : plan.launches) {
      if (IsPointToPoint(launch.kind)) continue;
      VisitGroupLaunch(plan, launch, &of_group[launch.group.value()]);
    }
    for (uint32_t g = 0; g < of_group.size(); ++g) {
      plan.group_sends.push_back(lister.On(r, GroupId(g)));
      of_group[g].Shared(*plan.group_sends.back());
      plan.group_fingerprints.push_back(of_group[g].Hash());
    }
  }
}

std::vector<std::string> GroupLines(const Plan& plan, GroupId group) {
  CanonicalText out;
  VisitGroup(*plan.graph, group, &out);
  for (const Launch& launch : plan.launches) {
    if (launch.group != group || IsPointToPoint(launch.kind)) continue;
    VisitGroupLaunch(plan, launch, &out);
  }
  out.Shared(*plan.group_sends[group.value()]);
  return out.TakeLines();
}

}  // namespace commsched
