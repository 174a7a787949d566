// Ranks as threads of a test.
#ifndef COMMSCHED_TEST_SUPPORT_RANK_GROUP_H_
#define COMMSCHED_TEST_SUPPORT_RANK_GROUP_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace commsched {

// Calls `body(rank)` on one thread per rank and returns their statuses, by
// rank. A test that hangs must fail and not hang: if some rank has not returned
// after `timeout_s`, this says which and ends the process.
std::vector<absl::Status> RunRanks(
    int size, const std::function<absl::Status(int rank)>& body,
    int64_t timeout_s = 120);

// The first status of RunRanks() that is not OK, its rank in front.
absl::Status RunAllRanks(int size,
                         const std::function<absl::Status(int rank)>& body,
                         int64_t timeout_s = 120);

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_RANK_GROUP_H_
