#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/edge.h"
#include "plan/explain/names.h"
#include "plan/verify/verify.h"
#include "plan/verify/verify_matches.h"
#include "plan/verify/verify_parts.h"

namespace commsched {
namespace {

absl::Status CheckKeys(uint32_t role, absl::Span<const Plan* const> plans) {
  const std::vector<Launch>& launches = plans[role]->launches;
  for (uint32_t k = 1; k < launches.size(); ++k) {
    if (launches[k - 1].key < launches[k].key) continue;
    return RolesError(NameOf({role, k}, plans), " has key ", launches[k].key,
                      ", which is not above that of ",
                      NameOf({role, k - 1}, plans), ", ", launches[k - 1].key);
  }
  return absl::OkStatus();
}

// Host calls, issues and completions of all roles, and what each comes after.
class RoleEvents {
 public:
  RoleEvents(absl::Span<const Plan* const> plans, const RoleMatches& matches)
      : plans_(plans), matches_(matches) {
    NumberEvents();
    CollectEdges();
  }

  // Depth first, from each event to those it comes after.
  absl::Status FindCycle() {
    std::vector<uint32_t> first(num_events_ + 1, 0);
    for (const auto& [after, before] : edges_) ++first[after + 1];
    for (uint32_t e = 0; e < num_events_; ++e) first[e + 1] += first[e];
    std::vector<uint32_t> befores(edges_.size());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (const auto& [after, before] : edges_) befores[next[after]++] = before;

    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(num_events_, kNew);
    std::vector<uint32_t> at(first.begin(), first.end() - 1);
    std::vector<uint32_t> path;
    for (uint32_t root = 0; root < num_events_; ++root) {
      if (state[root] != kNew) continue;
      path.push_back(root);
      state[root] = kOpen;
      while (!path.empty()) {
        const uint32_t event = path.back();
        if (at[event] == first[event + 1]) {
          state[event] = kDone;
          path.pop_back();
          continue;
        }
        const uint32_t before = befores[at[event]++];
        if (state[before] == kOpen) return NameCycle(path, before);
        if (state[before] == kDone) continue;
        state[before] = kOpen;
        path.push_back(before);
      }
    }
    return absl::OkStatus();
  }

 private:
  // Numbers the host calls, issues and completions of each role, then meetings.
  void NumberEvents() {
    for (const Plan* plan : plans_) {
      base_.push_back(num_events_);
      num_events_ +=
          static_cast<uint32_t>(plan->nodes.size() + 2 * plan->launches.size());
    }
    base_.push_back(num_events_);
    num_events_ += static_cast<uint32_t>(matches_.collectives.size());
  }
  uint32_t Call(uint32_t role, uint32_t node) const {
    return base_[role] + node;
  }
  uint32_t Issue(RoleLaunch at) const {
    return base_[at.role] +
           static_cast<uint32_t>(plans_[at.role]->nodes.size()) + at.launch;
  }
  uint32_t Completion(RoleLaunch at) const {
    return Issue(at) + static_cast<uint32_t>(plans_[at.role]->launches.size());
  }

  void Require(uint32_t before, uint32_t after) {
    edges_.push_back({after, before});
  }

  void RequireWaits(uint32_t role, absl::Span<const Wait> waits,
                    uint32_t after) {
    for (const Wait& wait : waits) {
      if (wait.distance != 0) continue;
      const uint32_t index = wait.producer.index;
      Require(wait.producer.kind == NodeRef::Kind::kOp
                  ? Call(role, plans_[role]->node_of_op[index])
                  : Completion({role, index}),
              after);
    }
  }

  void CollectEdges() {
    for (uint32_t r = 0; r < plans_.size(); ++r) {
      const Plan& plan = *plans_[r];
      for (uint32_t i = 0; i < plan.nodes.size(); ++i) {
        if (i > 0) Require(Call(r, i - 1), Call(r, i));
        RequireWaits(r, plan.nodes[i].waits, Call(r, i));
      }
      std::vector<uint32_t> last(plan.num_comm_lanes, Plan::kNone);
      for (uint32_t k = 0; k < plan.launches.size(); ++k) {
        const Launch& launch = plan.launches[k];
        const uint32_t issue = Issue({r, k});
        if (k > 0) Require(Issue({r, k - 1}), issue);
        for (OpId op : launch.producers) {
          Require(Call(r, plan.node_of_op[op.value()]), issue);
        }
        RequireWaits(r, launch.waits, issue);
        const uint32_t completion = Completion({r, k});
        Require(issue, completion);
        for (RoleLaunch met : matches_.peers[r][k])
          Require(Issue(met), completion);
        uint32_t& before = last[launch.lane];
        if (before != Plan::kNone) {
          Require(Completion({r, before}), completion);
          if (plan.options.backend.serial_lanes) {
            Require(Completion({r, before}), issue);
          }
        }
        before = k;
      }
    }
    for (uint32_t m = 0; m < matches_.collectives.size(); ++m) {
      for (RoleLaunch at : matches_.collectives[m]) {
        Require(Issue(at), base_.back() + m);
        Require(base_.back() + m, Completion(at));
      }
    }
  }

  std::string EventName(uint32_t event) const {
    if (event >= base_.back()) {
      return absl::StrCat(
          "meeting of ",
          NameOf(matches_.collectives[event - base_.back()].front(), plans_));
    }
    const uint32_t role = static_cast<uint32_t>(
        std::upper_bound(base_.begin(), base_.end(), event) - base_.begin() -
        1);
    const Plan& plan = *plans_[role];
    const uint32_t index = event - base_[role];
    const uint32_t num_nodes = static_cast<uint32_t>(plan.nodes.size());
    const uint32_t num_launches = static_cast<uint32_t>(plan.launches.size());
    if (index < num_nodes) {
      return absl::StrCat("call of '",
                          plan.graph->op(plan.nodes[index].op).name,
                          "' of role ", role);
    }
    const uint32_t launch = (index - num_nodes) % num_launches;
    return absl::StrCat(
        index < num_nodes + num_launches ? "issue of " : "completion of ",
        NameOf({role, launch}, plans_));
  }

  absl::Status NameCycle(const std::vector<uint32_t>& path,
                         uint32_t begin) const {
    const auto from = std::find(path.begin(), path.end(), begin);
    std::string text = EventName(begin);
    for (auto it = from + 1; it != path.end(); ++it) {
      absl::StrAppend(&text, " waits for ", EventName(*it), ", which");
    }
    return RolesError("deadlock: ", text, " waits for ", EventName(begin));
  }

  const absl::Span<const Plan* const> plans_;
  const RoleMatches& matches_;
  std::vector<uint32_t> base_;
  uint32_t num_events_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // after, before
};

}  // namespace

absl::Status VerifyRoles(absl::Span<const RoleSpec> roles,
                         absl::Span<const Plan* const> plans) {
  // Who meets nobody has nothing to add to VerifyPlan().
  if (plans.size() == 1 && !plans[0]->graph->has_point_to_point()) {
    return absl::OkStatus();
  }
  for (uint32_t r = 0; r < plans.size(); ++r) {
    RETURN_IF_ERROR(CheckKeys(r, plans));
  }
  ASSIGN_OR_RETURN(const RoleMatches matches, MatchRoles(roles, plans));
  return RoleEvents(plans, matches).FindCycle();
}

}  // namespace commsched
