// Random jobs of several roles whose result is known.
#ifndef COMMSCHED_TEST_SUPPORT_RANDOM_JOB_H_
#define COMMSCHED_TEST_SUPPORT_RANDOM_JOB_H_

#include <cstdint>
#include <vector>

#include "plan/roles.h"
#include "session/session.h"
#include "test/support/random_step.h"

namespace commsched::test {

// A random step whose ranks do not all run the same: each role, a block of
// neighbouring ranks, leaves out some compute ops, some collectives of groups
// that it shares with nobody, and one end of some sends; what is met by all
// roles of a group may be left out by all. So the declared order of the step is
// one in which the job can run, and its sequential run is the reference.
struct RandomJob {
  // Of all roles; says which ranks have which ops.
  RandomStep step;
  std::vector<uint32_t> role_of_rank;
  // By role: its graph, with the groups and buffers of the step, and by OpId
  // there the op in the step.
  std::vector<Graph> graphs;
  std::vector<std::vector<OpId>> op_in_step;
  std::vector<std::vector<std::vector<uint32_t>>> role_of_member;

  int num_ranks() const { return step.num_ranks; }
  uint32_t num_roles() const { return static_cast<uint32_t>(graphs.size()); }
  // For the planner; while the job lives.
  std::vector<RoleSpec> Roles(const CostProfile& profile) const;
  // What the session of `rank` is told of its groups.
  std::vector<GroupSpec> GroupsOf(int rank) const;
};

// The same for the same seed. One role if `max_roles` is 1.
RandomJob MakeRandomJob(uint64_t seed, const RandomStepLimits& limits,
                        int max_roles);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_RANDOM_JOB_H_
