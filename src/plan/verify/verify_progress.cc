#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/edge.h"
#include "plan/verify/verify_parts.h"

namespace commsched {
namespace {

class ProgressVerifier {
 public:
  explicit ProgressVerifier(const Plan& plan)
      : plan_(plan), num_ops_(plan.graph->ops().size()) {}

  absl::StatusOr<Witness> Run() {
    RETURN_IF_ERROR(CheckCoverage());
    RETURN_IF_ERROR(CheckDue());
    MakeWitness();
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      RETURN_IF_ERROR(CheckNode(i));
    }
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      RETURN_IF_ERROR(CheckLaunch(k));
    }
    return std::move(witness_);
  }

 private:
  template <typename... Parts>
  static absl::Status Fail(const Parts&... parts) {
    return absl::InternalError(absl::StrCat("plan: ", parts...));
  }

  std::string Name(OpId op) const {
    return absl::StrCat("'", plan_.graph->op(op).name, "'");
  }
  std::string Name(NodeRef node) const { return DescribeNode(plan_, node); }

  bool IsNode(OpId op) const {
    return op.value() < num_ops_ &&
           plan_.node_of_op[op.value()] < plan_.nodes.size();
  }

  absl::Status CheckCoverage() const {
    if (plan_.node_of_op.size() != num_ops_ ||
        plan_.launch_of_op.size() != num_ops_ ||
        plan_.due_after.size() != plan_.launches.size()) {
      return Fail("tables do not have one entry per op and launch");
    }
    std::vector<uint8_t> times(num_ops_, 0);
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      const OpId op = plan_.nodes[i].op;
      if (op.value() >= num_ops_ || plan_.node_of_op[op.value()] != i ||
          plan_.nodes[i].lane >= plan_.num_compute_lanes ||
          plan_.graph->kind(op) != OpKind::kCompute) {
        return Fail("node ", i, " is not the node of its op");
      }
      ++times[op.value()];
    }
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      const Launch& launch = plan_.launches[k];
      if (launch.members.empty() || launch.lane >= plan_.num_comm_lanes) {
        return Fail("launch ", k, " has no member or no lane");
      }
      for (OpId op : launch.members) {
        if (op.value() >= num_ops_ ||
            (launch.piece.of == 1 &&
             plan_.launch_of_op[op.value()] != LaunchId(k)) ||
            plan_.graph->kind(op) != OpKind::kCollective) {
          return Fail("launch ", k, " holds an op that is not its collective");
        }
        if (launch.piece.index == 0) ++times[op.value()];
      }
    }
    for (uint32_t i = 0; i < num_ops_; ++i) {
      if (times[i] == 1) continue;
      return Fail("op ", Name(OpId(i)), " is planned ", int{times[i]},
                  " times");
    }
    return absl::OkStatus();
  }

  // A launch is due once its producers were called and the launches before it
  // are due.
  absl::Status CheckDue() const {
    uint32_t due = 0;
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      for (OpId op : plan_.launches[k].producers) {
        if (!IsNode(op)) return Fail("launch ", k, " has an unknown producer");
        due = std::max(due, plan_.node_of_op[op.value()] + 1);
      }
      if (plan_.due_after[k] == due) continue;
      return Fail(Name(RefOf(LaunchId(k))), " is due after ", due,
                  " calls, not ", plan_.due_after[k]);
    }
    return absl::OkStatus();
  }

  void MakeWitness() {
    witness_.of_op.assign(num_ops_, Plan::kNone);
    witness_.of_launch.assign(plan_.launches.size(), Plan::kNone);
    uint32_t node = 0;
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      while (node < plan_.due_after[k]) AddNode(node++);
      const uint32_t position = static_cast<uint32_t>(witness_.nodes.size());
      witness_.of_launch[k] = position;
      for (OpId op : plan_.launches[k].members) {
        witness_.of_op[op.value()] = position;
      }
      witness_.nodes.push_back(RefOf(LaunchId(k)));
    }
    while (node < plan_.nodes.size()) AddNode(node++);
  }

  void AddNode(uint32_t node) {
    const OpId op = plan_.nodes[node].op;
    witness_.of_op[op.value()] = static_cast<uint32_t>(witness_.nodes.size());
    witness_.nodes.push_back(RefOf(op));
  }

  absl::Status CheckWait(const Wait& wait, NodeRef consumer) const {
    const bool known = wait.producer.kind == NodeRef::Kind::kLaunch
                           ? wait.producer.index < plan_.launches.size()
                           : IsNode(OpId(wait.producer.index));
    if (!known || wait.distance < 0 || wait.distance > 1) {
      return Fail(Name(consumer), " waits for an unknown producer, ",
                  wait.distance, " steps back");
    }
    if (wait.distance == 1) return absl::OkStatus();
    if (witness_.PositionOf(wait.producer) < witness_.PositionOf(consumer)) {
      return absl::OkStatus();
    }
    return Fail("deadlock: ", Name(consumer), " waits for ",
                Name(wait.producer), ", which comes due only after it");
  }

  absl::Status CheckNode(uint32_t index) const {
    const ComputeNode& node = plan_.nodes[index];
    uint32_t due = 0;  // launches that `before` has seen to be due
    for (LaunchId launch : node.needs) {
      if (launch.value() >= plan_.launches.size()) {
        return Fail(Name(node.op), " needs an unknown launch");
      }
      due = std::max(due, launch.value() + 1);
      if (plan_.due_after[launch.value()] <= index) continue;
      return Fail(
          "deadlock: ", Name(node.op), " needs ", Name(RefOf(launch)),
          ", which is due only after '",
          plan_.graph->op(plan_.nodes[plan_.due_after[launch.value()] - 1].op)
              .name,
          "'");
    }
    for (OpId op : node.after) {
      if (IsNode(op) && plan_.node_of_op[op.value()] < index) continue;
      return Fail("deadlock: ", Name(node.op),
                  " must follow an op that is called later");
    }
    for (const Wait& wait : node.waits) {
      RETURN_IF_ERROR(CheckWait(wait, RefOf(node.op)));
      if (wait.distance == 1) continue;
      const bool checked =
          wait.producer.kind == NodeRef::Kind::kLaunch
              ? wait.producer.index < due
              : std::find(node.after.begin(), node.after.end(),
                          OpId(wait.producer.index)) != node.after.end();
      if (!checked) {
        return Fail("deadlock: ", Name(node.op), " waits for ",
                    Name(wait.producer), ", which `before` does not check");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckLaunch(uint32_t index) const {
    const Launch& launch = plan_.launches[index];
    for (const Wait& wait : launch.waits) {
      RETURN_IF_ERROR(CheckWait(wait, RefOf(LaunchId(index))));
      if (wait.distance == 1) continue;
      if (wait.producer.kind == NodeRef::Kind::kLaunch) continue;
      // Otherwise it would be due, and hold up all later launches, before the
      // host has even called the op.
      if (!std::binary_search(launch.producers.begin(), launch.producers.end(),
                              OpId(wait.producer.index))) {
        return Fail("deadlock: ", Name(RefOf(LaunchId(index))), " waits for ",
                    Name(wait.producer), ", which is not among its producers");
      }
    }
    return absl::OkStatus();
  }

  const Plan& plan_;
  const size_t num_ops_;
  Witness witness_;
};

}  // namespace

std::string DescribeNode(const Plan& plan, NodeRef node) {
  if (node.kind == NodeRef::Kind::kOp) {
    return absl::StrCat("'", plan.graph->op(OpId(node.index)).name, "'");
  }
  const Launch& launch = plan.launches[node.index];
  std::string name =
      absl::StrCat("launch ", node.index, " ('",
                   plan.graph->op(launch.members.front()).name, "'");
  if (launch.members.size() > 1) {
    absl::StrAppend(&name, " and ", launch.members.size() - 1, " more");
  }
  return name + ")";
}

absl::StatusOr<Witness> VerifyProgress(const Plan& plan) {
  return ProgressVerifier(plan).Run();
}

}  // namespace commsched
