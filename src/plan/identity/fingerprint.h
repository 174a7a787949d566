#ifndef COMMSCHED_SRC_PLAN_IDENTITY_FINGERPRINT_H_
#define COMMSCHED_SRC_PLAN_IDENTITY_FINGERPRINT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/plan.h"
#include "plan/roles.h"

namespace commsched {

using Fingerprint = std::array<uint8_t, 16>;  // XXH3-128, big endian

// Hashes the canonical plan without predictions: options, groups, buffers,
// nodes, launches with members and symbolic regions, waits, placements.
Fingerprint FingerprintOf(const Plan& plan);

// Fills group_fingerprints and group_sends of the plans of a job, by role. A
// group's fingerprint covers what its members must agree on, whatever their
// roles: its size; its collectives, launch by launch in key order, from the
// role's own plan; and what goes from each position to each other, send by
// send, which only the plans of all roles together tell. In which pipeline
// ticks sends and receives travel is each member's own affair.
void FingerprintGroups(absl::Span<const RoleSpec> roles,
                       absl::Span<Plan* const> plans);

// What a group's fingerprint covers, one line per launch and send, for naming
// the first difference between two ranks.
std::vector<std::string> GroupLines(const Plan& plan, GroupId group);

// One line per launch and per compute node in planned order, what the
// fingerprint covers, for naming the first difference between two ranks:
// "launch 3 reduce_scatter 'grad.1' f32 sum count 4096 on dp way group ...".
std::vector<std::string> CanonicalLines(const Plan& plan);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_IDENTITY_FINGERPRINT_H_
