#include "plan/partition.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/collective_shape.h"
#include "plan/predict/cost_model.h"

namespace commsched {
namespace {

using Whole = LaunchReason::Whole;

static_assert(kMaxPieces <= kKeyStride, "pieces have keys of their own");

uint64_t DivideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Why `launch` has no pieces, whatever its size.
Whole ObstacleOf(const Graph& graph, const BackendModel& backend,
                 const Launch& launch) {
  if (launch.kind == CollectiveKind::kBarrier || IsPointToPoint(launch.kind)) {
    return Whole::kKind;
  }
  if (launch.members.size() != 1) return Whole::kMembers;
  if (graph.group(launch.group).size == 1) return Whole::kGroupOfOne;
  const CollectiveSpec& spec = graph.op(launch.members.front()).collective;
  if (!spec.counts.empty()) return Whole::kUneven;
  for (const Access* side : {&spec.input, &spec.output}) {
    if (graph.buffer(side->buffer).ownership == Ownership::kLateBound) {
      return Whole::kLateBound;
    }
    if (side->region.kind == RegionKind::kTile) return Whole::kStaged;
  }
  if (launch.way != Way::kSingle) return Whole::kStaged;
  return HasParts(launch.kind) && !backend.strided ? Whole::kNoStrides
                                                   : Whole::kNone;
}

// Elements per part of all pieces but the last.
uint64_t PieceCount(uint64_t part_count, uint64_t payload, uint64_t limit) {
  const uint64_t pieces = std::min(kMaxPieces, DivideUp(payload, limit));
  const uint64_t count = DivideUp(part_count, pieces);
  return count < kPieceAlignment
             ? count
             : DivideUp(count, kPieceAlignment) * kPieceAlignment;
}

void Split(const Launch& launch, uint64_t part_count, uint64_t piece_count,
           std::vector<Launch>* out) {
  const uint64_t bytes_per_element = launch.payload_bytes / part_count;
  const uint32_t of = static_cast<uint32_t>(DivideUp(part_count, piece_count));
  for (uint32_t i = 0; i < of; ++i) {
    Launch piece = launch;
    piece.key += i;
    piece.piece.index = i;
    piece.piece.of = of;
    piece.piece.offset = i * piece_count;
    piece.piece.count = std::min(piece_count, part_count - piece.piece.offset);
    piece.payload_bytes = piece.piece.count * bytes_per_element;
    out->push_back(std::move(piece));
  }
}

std::vector<Launch> PartitionRole(const Graph& graph, uint64_t limit,
                                  const std::map<uint64_t, Whole>& obstacles,
                                  std::vector<Launch> launches) {
  std::vector<Launch> out;
  out.reserve(launches.size());
  for (Launch& launch : launches) {
    if (launch.payload_bytes <= limit) {
      out.push_back(std::move(launch));
      continue;
    }
    const auto obstacle = obstacles.find(launch.key);
    if (obstacle == obstacles.end()) {
      const uint64_t part_count =
          PartCount(graph, graph.op(launch.members.front()).collective);
      const uint64_t piece_count =
          PieceCount(part_count, launch.payload_bytes, limit);
      if (piece_count < part_count) {
        Split(launch, part_count, piece_count, &out);
        continue;
      }
      launch.reason.whole = Whole::kTooSmall;
    } else {
      launch.reason.whole = obstacle->second;
    }
    out.push_back(std::move(launch));
  }
  return out;
}

}  // namespace

std::vector<std::vector<Launch>> Partition(
    absl::Span<const RoleSpec> roles, const PlanOptions& options,
    std::vector<std::vector<Launch>> launches) {
  const uint64_t limit = options.partition_bytes;
  if (limit == 0) return launches;
  // A launch of several roles has one key in all of them, and no other has it.
  std::map<uint64_t, Whole> obstacles;
  for (size_t r = 0; r < roles.size(); ++r) {
    for (const Launch& launch : launches[r]) {
      if (launch.payload_bytes <= limit) continue;
      const Whole obstacle =
          ObstacleOf(*roles[r].graph, options.backend, launch);
      if (obstacle != Whole::kNone) obstacles.insert({launch.key, obstacle});
    }
  }
  for (size_t r = 0; r < roles.size(); ++r) {
    launches[r] = PartitionRole(*roles[r].graph, limit, obstacles,
                                std::move(launches[r]));
  }
  return launches;
}

}  // namespace commsched
