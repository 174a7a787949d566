#include "test/support/random_job.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "graph/collective_shape.h"

namespace commsched::test {
namespace {

using RoleSet = std::set<uint32_t>;

// Takes a step apart.
class JobMaker {
 public:
  JobMaker(uint64_t seed, const RandomStepLimits& limits, int max_roles)
      : random_(seed ^ 0x5eed0f0b) {
    job_.step = MakeRandomStep(seed, limits);
    DrawRoles(max_roles);
  }

  RandomJob Make() {
    const std::vector<Op>& ops = job_.step.graph.ops();
    job_.step.left_out.assign(ops.size(),
                              std::vector<bool>(job_.step.num_ranks, true));
    for (uint32_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind != OpKind::kCollective) {
        AddLocal(OpId(i));
      } else if (IsPointToPoint(ops[i].collective.kind)) {
        // A send and its receive are neighbours.
        AddRing(OpId(i), OpId(i + 1));
        ++i;
      } else {
        AddCollective(OpId(i));
      }
    }
    for (uint32_t role = 0; role < num_roles(); ++role) BuildGraph(role);
    return std::move(job_);
  }

 private:
  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  bool Chance(int percent) { return Draw(1, 100) <= percent; }
  uint32_t num_roles() const { return num_roles_; }

  void DrawRoles(int max_roles) {
    const int ranks = job_.step.num_ranks;
    const int most = std::min(max_roles, ranks);
    const int wanted = Draw(std::min(2, most), most);
    for (int n = wanted; n >= 1; --n) {
      if (ranks % n == 0 && TryRoles(static_cast<uint32_t>(n))) break;
    }
    for (uint32_t role = 0; role < num_roles_; ++role) {
      std::vector<bool>& started = started_.emplace_back();
      for (const Buffer& buffer : job_.step.graph.buffers()) {
        started.push_back(buffer.ownership == Ownership::kBound);
      }
    }
    job_.op_in_step.resize(num_roles_);
  }

  // Whether all ranks of each of `n` roles see the same roles in their groups.
  bool TryRoles(uint32_t n) {
    const RandomStep& step = job_.step;
    const uint32_t size = static_cast<uint32_t>(step.num_ranks) / n;
    job_.role_of_rank.clear();
    for (int r = 0; r < step.num_ranks; ++r) {
      job_.role_of_rank.push_back(static_cast<uint32_t>(r) / size);
    }
    job_.role_of_member.assign(n, {});
    for (uint32_t g = 0; g < step.communicators.size(); ++g) {
      for (int r = 0; r < step.num_ranks; ++r) {
        std::vector<uint32_t> roles;
        for (int member : step.RanksOf(GroupId(g), r)) {
          roles.push_back(job_.role_of_rank[member]);
        }
        auto& groups = job_.role_of_member[job_.role_of_rank[r]];
        if (groups.size() == g) groups.push_back(roles);
        if (groups[g] != roles) return false;
      }
    }
    num_roles_ = n;
    return true;
  }

  // Whether the role may have `op`: no owned or late-bound buffer begins its
  // life with anything but a whole write. What the step lets a buffer begin
  // with is one on every rank.
  bool MayHave(uint32_t role, const Op& op) const {
    const CollectiveSpec& spec = op.collective;
    const bool writes_everywhere =
        op.kind != OpKind::kCollective ||
        (spec.kind != CollectiveKind::kReduce && spec.counts.empty() &&
         std::none_of(
             op.accesses.begin(), op.accesses.end(), [&](const Access& access) {
               return job_.step.graph.buffer(access.buffer).ownership ==
                      Ownership::kLateBound;
             }));
    return std::all_of(
        op.accesses.begin(), op.accesses.end(), [&](const Access& access) {
          return started_[role][access.buffer.value()] ||
                 (writes_everywhere && access.mode == AccessMode::kWrite &&
                  access.region.kind == RegionKind::kWhole);
        });
  }
  bool AllMayHave(const RoleSet& roles, const Op& op) const {
    return std::all_of(roles.begin(), roles.end(),
                       [&](uint32_t role) { return MayHave(role, op); });
  }

  void Give(uint32_t role, OpId id) {
    for (const Access& access : job_.step.graph.op(id).accesses) {
      started_[role][access.buffer.value()] = true;
    }
    job_.op_in_step[role].push_back(id);
    for (int r = 0; r < job_.step.num_ranks; ++r) {
      if (job_.role_of_rank[r] == role) {
        job_.step.left_out[id.value()][r] = false;
      }
    }
  }

  // Of the ops that the role has been given.
  void BuildGraph(uint32_t role) {
    Graph& graph = job_.graphs.emplace_back();
    for (const Group& group : job_.step.graph.groups()) {
      (void)graph.AddGroup(group.name, group.size);
    }
    for (Buffer buffer : job_.step.graph.buffers()) {
      // What is late-bound has somebody to bind it.
      const bool used = started_[role][graph.buffers().size()];
      if (!used && buffer.ownership == Ownership::kLateBound) {
        buffer.ownership = Ownership::kBound;
      }
      (void)graph.AddBuffer(buffer);
    }
    std::vector<OpId> here(job_.step.graph.ops().size());
    for (OpId id : job_.op_in_step[role]) {
      Op op = job_.step.graph.op(id);
      std::vector<OpId> after;
      for (OpId earlier : op.after) {
        if (here[earlier.value()].valid()) {
          after.push_back(here[earlier.value()]);
        }
      }
      op.after = std::move(after);
      here[id.value()] = graph.AddOp(std::move(op)).value();
    }
  }

  void AddLocal(OpId id) {
    const Op& op = job_.step.graph.op(id);
    for (uint32_t role = 0; role < num_roles(); ++role) {
      if (num_roles() > 1 && op.kind == OpKind::kCompute && Chance(25)) {
        continue;
      }
      if (MayHave(role, op)) Give(role, id);
    }
  }

  // The sets of roles that share communicators of `group`.
  std::vector<std::vector<uint32_t>> Sharing(GroupId group) const {
    std::set<std::vector<uint32_t>> patterns;
    for (uint32_t role = 0; role < num_roles(); ++role) {
      patterns.insert(job_.role_of_member[role][group.value()]);
    }
    return {patterns.begin(), patterns.end()};
  }

  void AddCollective(OpId id) {
    const Op& op = job_.step.graph.op(id);
    for (const auto& pattern : Sharing(op.collective.group)) {
      const RoleSet roles(pattern.begin(), pattern.end());
      if (num_roles() > 1 && Chance(15)) continue;
      if (!AllMayHave(roles, op)) continue;
      for (uint32_t role : roles) Give(role, id);
    }
  }

  // The roles that receive if `senders` send, or none if some position of
  // theirs would receive nothing.
  static RoleSet Receivers(const std::vector<uint32_t>& pattern, int offset,
                           const RoleSet& senders) {
    const int n = static_cast<int>(pattern.size());
    const auto at = [&](int p) { return pattern[((p % n) + n) % n]; };
    RoleSet receivers;
    for (int p = 0; p < n; ++p) {
      if (senders.count(at(p)) != 0) receivers.insert(at(p + offset));
    }
    for (int p = 0; p < n; ++p) {
      if (receivers.count(at(p)) != 0 && senders.count(at(p - offset)) == 0) {
        return {};
      }
    }
    return receivers;
  }

  void AddRing(OpId first, OpId second) {
    const Op& op = job_.step.graph.op(first);
    const bool send_first = op.collective.kind == CollectiveKind::kSend;
    const OpId send = send_first ? first : second;
    const OpId receive = send_first ? second : first;
    const int offset = job_.step.graph.op(send).collective.peer_offset;
    for (const auto& pattern : Sharing(op.collective.group)) {
      RoleSet senders(pattern.begin(), pattern.end());
      if (num_roles() > 1 && Chance(60)) {
        RoleSet some;
        for (uint32_t role : senders) {
          if (Chance(50)) some.insert(role);
        }
        if (!Receivers(pattern, offset, some).empty()) senders = some;
      }
      const RoleSet receivers = Receivers(pattern, offset, senders);
      if (!AllMayHave(senders, job_.step.graph.op(send)) ||
          !AllMayHave(receivers, job_.step.graph.op(receive))) {
        continue;
      }
      // In declared order, for each role.
      for (OpId id : {first, second}) {
        for (uint32_t role : id == send ? senders : receivers) Give(role, id);
      }
    }
  }

  std::mt19937_64 random_;
  RandomJob job_;
  uint32_t num_roles_ = 1;
  std::vector<std::vector<bool>> started_;  // by role and buffer
};

}  // namespace

std::vector<RoleSpec> RandomJob::Roles(const CostProfile& profile) const {
  std::vector<RoleSpec> roles;
  for (uint32_t role = 0; role < num_roles(); ++role) {
    roles.push_back({&graphs[role], role_of_member[role], profile});
  }
  return roles;
}

std::vector<GroupSpec> RandomJob::GroupsOf(int rank) const {
  std::vector<GroupSpec> groups;
  for (const Group& group : step.graph.groups()) {
    const GroupId id(static_cast<uint32_t>(groups.size()));
    groups.push_back(
        {group.name, step.RanksOf(id, rank), step.PositionOf(id, rank)});
  }
  return groups;
}

RandomJob MakeRandomJob(uint64_t seed, const RandomStepLimits& limits,
                        int max_roles) {
  return JobMaker(seed, limits, max_roles).Make();
}

}  // namespace commsched::test
