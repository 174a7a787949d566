#include "examples/trainer/masters.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "commsched/checkpoint.h"
#include "examples/trainer/c_status.h"
#include "examples/trainer/sha256.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {
namespace {

absl::Status ReadPiece(Rank& rank, uint32_t parameter,
                       std::vector<float>* values) {
  uint64_t offset = 0;
  uint64_t count = 0;
  TRAINER_RETURN_IF_ERROR(FromEngine(commsched_engine_master_range(
      rank.engine(), parameter, &offset, &count)));
  if (count == 0) return absl::OkStatus();
  return FromEngine(commsched_engine_get_master_range(
      rank.engine(), parameter, values->data() + offset, count));
}

}  // namespace

absl::StatusOr<std::string> MastersSha256(
    const std::vector<std::unique_ptr<Rank>>& ranks) {
  const std::vector<ParameterSpec>& parameters =
      ranks[0]->model().architecture().parameters;
  std::vector<std::vector<float>> values(parameters.size());
  std::vector<NamedWeights> weights;
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    values[p].resize(static_cast<size_t>(parameters[p].count));
    for (const std::unique_ptr<Rank>& rank : ranks) {
      TRAINER_RETURN_IF_ERROR(ReadPiece(*rank, p, &values[p]));
    }
    weights.push_back({parameters[p].name, values[p]});
  }
  return WeightsSha256(std::move(weights));
}

}  // namespace commsched::trainer
