#include "examples/trainer/masters.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
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

// What other processes have of `values`: of which each shows its piece.
absl::Status GatherPieces(Rank& rank, uint32_t parameter, const Job& job,
                          std::vector<float>* values) {
  uint64_t offset = 0;
  uint64_t count = 0;
  TRAINER_RETURN_IF_ERROR(FromEngine(commsched_engine_master_range(
      rank.engine(), parameter, &offset, &count)));
  const auto ranks = static_cast<uint64_t>(job.size());
  const uint64_t chunk = COMMSCHED_MAX_GATHER_BYTES / 2 / sizeof(float) / ranks;
  for (uint64_t begin = 0; begin < values->size(); begin += chunk) {
    // This rank's part of the chunk, behind where it begins.
    const uint64_t end = std::min<uint64_t>(begin + chunk, values->size());
    const uint64_t from = std::clamp(offset, begin, end);
    const uint64_t to = std::clamp(offset + count, from, end);
    std::string mine(reinterpret_cast<const char*>(&from), sizeof(from));
    mine.append(reinterpret_cast<const char*>(values->data() + from),
                (to - from) * sizeof(float));
    const absl::StatusOr<std::vector<std::string>> all =
        Gather(rank.context(), "master weights", mine, job.timeout());
    if (!all.ok()) return all.status();
    for (const std::string& piece : *all) {
      uint64_t at = 0;
      if (piece.size() < sizeof(at)) return absl::DataLossError("no piece");
      std::memcpy(&at, piece.data(), sizeof(at));
      const size_t bytes = piece.size() - sizeof(at);
      if (bytes == 0) continue;
      if (at > values->size() ||
          bytes > (values->size() - at) * sizeof(float)) {
        return absl::DataLossError("a piece of another model");
      }
      std::memcpy(values->data() + at, piece.data() + sizeof(at), bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> MastersSha256(
    const std::vector<std::unique_ptr<Rank>>& ranks, const Job& job) {
  const std::vector<ParameterSpec>& parameters =
      ranks[0]->model().architecture().parameters;
  std::vector<std::vector<float>> values(parameters.size());
  std::vector<NamedWeights> weights;
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    values[p].resize(static_cast<size_t>(parameters[p].count));
    for (const std::unique_ptr<Rank>& rank : ranks) {
      TRAINER_RETURN_IF_ERROR(ReadPiece(*rank, p, &values[p]));
    }
    if (job.has_processes()) {
      TRAINER_RETURN_IF_ERROR(GatherPieces(*ranks[0], p, job, &values[p]));
    }
    weights.push_back({parameters[p].name, values[p]});
  }
  return WeightsSha256(std::move(weights));
}

}  // namespace commsched::trainer
