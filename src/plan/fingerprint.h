#ifndef COMMSCHED_SRC_PLAN_FINGERPRINT_H_
#define COMMSCHED_SRC_PLAN_FINGERPRINT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace commsched {

using Fingerprint = std::array<uint8_t, 16>;  // XXH3-128, big endian

// Over the canonical plan without predictions: options, groups, buffers, nodes,
// launches with members and symbolic regions, waits, placements.
Fingerprint FingerprintOf(const Plan& plan);

// One line per launch and per compute node in planned order, what the
// fingerprint covers, for naming the first difference between two ranks:
// "launch 3 reduce_scatter 'grad.1' f32 sum count 4096 on dp way group ...".
std::vector<std::string> CanonicalLines(const Plan& plan);

// "first difference at ...: rank 0 has <line>, rank 2 has <line>".
std::string DescribeDifference(const std::vector<std::string>& a, int rank_a,
                               const std::vector<std::string>& b, int rank_b);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_FINGERPRINT_H_
