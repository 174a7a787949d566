#ifndef COMMSCHED_EXAMPLES_TRAINER_MASTERS_H_
#define COMMSCHED_EXAMPLES_TRAINER_MASTERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/trainer/job.h"
#include "examples/trainer/rank.h"

namespace commsched::trainer {

// WeightsSha256() of the fp32 master weights, of which each rank has a piece.
// After a drain of all ranks of the run, of which `ranks` are in this process:
// all, or one. Then it is collective. The same as of an exported checkpoint.
absl::StatusOr<std::string> MastersSha256(
    const std::vector<std::unique_ptr<Rank>>& ranks, const Job& job);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_MASTERS_H_
