// The part of graph/validate.h about collectives: how the element counts of
// input and output follow from the kind, and what may be in place.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"
#include "graph/region.h"
#include "graph/validate.h"

namespace commsched {
namespace {

// One collective under validation, with what every check needs at hand.
struct Subject {
  const Graph& graph;
  const Op& op;
  const CollectiveSpec& spec;
  uint64_t size;  // of the group

  absl::Status Invalid(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat(
        CollectiveKindName(spec.kind), " '", op.name, "': ", problem));
  }
  // Elements of a region; an equal shard has as many on every rank.
  uint64_t Count(const Access& access) const {
    return ResolveRegion(graph, access, 0, {}).elements();
  }
};

// The side of an uneven split whose length differs per rank, or null.
const Access* PerRankSide(const CollectiveSpec& spec) {
  if (spec.kind == CollectiveKind::kReduceScatter) return &spec.output;
  if (spec.kind == CollectiveKind::kAllGather) return &spec.input;
  return nullptr;
}

absl::Status ValidateSide(const Subject& s, const Access& access,
                          absl::string_view side) {
  const bool uneven = !s.spec.counts.empty();
  RETURN_IF_ERROR(ValidateAccess(s.graph, s.op, access, uneven));
  if (uneven && access.region.kind == RegionKind::kTile) {
    for (const uint64_t count : s.spec.counts) {
      if (count % access.region.rows == 0) continue;
      return s.Invalid(absl::StrCat(
          "count ", count, " is not a multiple of the ", access.region.rows,
          " rows of the ", side, ", a tile that counts split by columns"));
    }
  }
  if (!uneven || access.region.kind != RegionKind::kShard) {
    return absl::OkStatus();
  }
  if (&access != PerRankSide(s.spec) || access.region.group != s.spec.group) {
    return s.Invalid(absl::StrCat(
        "with counts, the ", side,
        " cannot be a shard: only the side that differs per rank can, "
        "among the collective's own group"));
  }
  return absl::OkStatus();
}

absl::Status ValidateSameCount(const Subject& s) {
  const uint64_t input = s.Count(s.spec.input);
  const uint64_t output = s.Count(s.spec.output);
  if (input == output) return absl::OkStatus();
  return s.Invalid(absl::StrCat("input has ", input, " elements, output ",
                                output, "; they must be equal"));
}

// A tile is split by columns.
absl::Status ValidateColumns(const Subject& s, const Access& split) {
  const Region& region = split.region;
  if (region.kind != RegionKind::kTile || region.count % s.size == 0) {
    return absl::OkStatus();
  }
  return s.Invalid(absl::StrCat("the rows of ", region.count,
                                " elements of the tile that is split are not ",
                                s.size, " equal parts"));
}

absl::Status ValidateEqualSplit(const Subject& s, const Access& total,
                                const Access& part) {
  const uint64_t total_count = s.Count(total);
  const uint64_t part_count = s.Count(part);
  const auto all_parts = CheckedMul(part_count, s.size);
  if (all_parts && *all_parts == total_count) return ValidateColumns(s, total);
  return s.Invalid(absl::StrCat(
      "the whole has ", total_count, " elements, not ", s.size, " parts of ",
      part_count, " (group '", s.graph.group(s.spec.group).name, "')"));
}

absl::StatusOr<uint64_t> SumOf(const Subject& s, size_t begin, size_t end,
                               size_t stride) {
  uint64_t sum = 0;
  for (size_t i = begin; i < end; i += stride) {
    const auto next = CheckedAdd(sum, s.spec.counts[i]);
    if (!next) return s.Invalid("the counts' sum is more than 2^64-1");
    sum = *next;
  }
  return sum;
}

absl::Status ValidateUnevenSplit(const Subject& s, const Access& total,
                                 const Access& part) {
  const auto& counts = s.spec.counts;
  ASSIGN_OR_RETURN(const uint64_t sum, SumOf(s, 0, counts.size(), 1));
  if (sum != s.Count(total)) {
    return s.Invalid(absl::StrCat("the counts' sum is ", sum,
                                  ", but the whole has ", s.Count(total),
                                  " elements"));
  }
  const Buffer& buffer = s.graph.buffer(part.buffer);
  if (part.region.kind == RegionKind::kShard) {
    if (sum == buffer.count) return absl::OkStatus();
    return s.Invalid(absl::StrCat("the counts' sum is ", sum,
                                  ", but the sharded buffer '", buffer.name,
                                  "' has ", buffer.count, " elements"));
  }
  const uint64_t largest = *std::max_element(counts.begin(), counts.end());
  if (largest <= s.Count(part)) return absl::OkStatus();
  return s.Invalid(absl::StrCat("the largest count is ", largest,
                                ", but the part in buffer '", buffer.name,
                                "' has ", s.Count(part), " elements"));
}

absl::Status ValidateSplit(const Subject& s, const Access& total,
                           const Access& part) {
  if (s.spec.counts.empty()) return ValidateEqualSplit(s, total, part);
  return ValidateUnevenSplit(s, total, part);
}

absl::Status ValidateAllToAll(const Subject& s) {
  const uint64_t input = s.Count(s.spec.input);
  const uint64_t output = s.Count(s.spec.output);
  if (s.spec.counts.empty()) {
    RETURN_IF_ERROR(ValidateSameCount(s));
    if (input % s.size != 0) {
      return s.Invalid(
          absl::StrCat(input, " elements are not ", s.size, " equal parts"));
    }
    RETURN_IF_ERROR(ValidateColumns(s, s.spec.input));
    return ValidateColumns(s, s.spec.output);
  }
  const size_t n = s.size;
  for (size_t rank = 0; rank < n; ++rank) {
    ASSIGN_OR_RETURN(const uint64_t sent,
                     SumOf(s, rank * n, (rank + 1) * n, 1));
    ASSIGN_OR_RETURN(const uint64_t received, SumOf(s, rank, n * n, n));
    if (sent > input) {
      return s.Invalid(absl::StrCat("rank ", rank, " sends ", sent,
                                    " elements, but the input has ", input));
    }
    if (received > output) {
      return s.Invalid(absl::StrCat("rank ", rank, " receives ", received,
                                    " elements, but the output has ", output));
    }
  }
  return absl::OkStatus();
}

// How many counts the kind takes, 0 if none.
uint64_t NumCountsOf(CollectiveKind kind, uint64_t size) {
  switch (kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
      return size;
    case CollectiveKind::kAllToAll:
      return size * size;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return 0;
}

absl::Status ValidateNumCounts(const Subject& s) {
  const size_t given = s.spec.counts.size();
  if (given == 0) return absl::OkStatus();
  const uint64_t wanted = NumCountsOf(s.spec.kind, s.size);
  if (given == wanted) return absl::OkStatus();
  if (wanted == 0) return s.Invalid("this kind takes no counts");
  return s.Invalid(absl::StrCat("has ", given, " counts; a group of ", s.size,
                                " ranks needs ", wanted));
}

absl::Status ValidateCounts(const Subject& s) {
  switch (s.spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return ValidateSameCount(s);
    case CollectiveKind::kReduceScatter:
      return ValidateSplit(s, s.spec.input, s.spec.output);
    case CollectiveKind::kAllGather:
      return ValidateSplit(s, s.spec.output, s.spec.input);
    case CollectiveKind::kAllToAll:
      return ValidateAllToAll(s);
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return absl::OkStatus();
}

bool SameRegion(const Subject& s, const Access& a, const Access& b) {
  if (a.region == b.region) return true;
  if (a.region.kind == RegionKind::kShard ||
      b.region.kind == RegionKind::kShard) {
    return false;
  }
  const Extent x = ResolveRegion(s.graph, a, 0, {});
  const Extent y = ResolveRegion(s.graph, b, 0, {});
  return x.rows == 1 && y.rows == 1 && x.offset == y.offset &&
         x.count == y.count;
}

// Whether input and output, which overlap, do so in the one way that the kind
// allows. That a shard's other side is the whole buffer follows from the
// counts.
bool IsInPlace(const Subject& s) {
  const auto is_own_shard = [&](const Access& access) {
    return access.region.kind == RegionKind::kShard &&
           access.region.group == s.spec.group;
  };
  switch (s.spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return SameRegion(s, s.spec.input, s.spec.output);
    case CollectiveKind::kAllGather:
      return is_own_shard(s.spec.input);
    case CollectiveKind::kReduceScatter:
      return is_own_shard(s.spec.output);
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return false;
}

absl::Status ValidateKind(const Op& op) {
  const CollectiveKind kind = op.collective.kind;
  if (kind > CollectiveKind::kRecv) {
    return absl::InvalidArgumentError(
        absl::StrCat("op '", op.name, "': collective kind ",
                     static_cast<int>(kind), " is not in 0..8"));
  }
  const ReduceOp reduce_op = op.collective.reduce_op;
  RETURN_IF_ERROR(ReduceOpFromInt(static_cast<int64_t>(reduce_op)).status());
  if (static_cast<int>(reduce_op) < kNumGraphReduceOps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(CollectiveKindName(kind), " '", op.name, "': reduction ",
                   ReduceOpName(reduce_op), " is for channels; graphs take ",
                   GraphReduceOpNames()));
}

absl::Status ValidateGroupAndRoot(const Graph& graph, const Op& op) {
  const CollectiveSpec& spec = op.collective;
  if (spec.group.value() >= graph.groups().size()) {
    return absl::NotFoundError(
        absl::StrCat("op '", op.name, "' uses group ", spec.group.value(),
                     ", but the graph has ", graph.groups().size(), " groups"));
  }
  const Group& group = graph.group(spec.group);
  if (spec.root < 0 || spec.root >= group.size) {
    return absl::OutOfRangeError(absl::StrCat(
        CollectiveKindName(spec.kind), " '", op.name, "': root ", spec.root,
        " is not in group '", group.name, "' of ", group.size, " ranks"));
  }
  if (IsPointToPoint(spec.kind) && spec.peer_offset % group.size == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        CollectiveKindName(spec.kind), " '", op.name, "': peer_offset ",
        spec.peer_offset, " names the member itself in group '", group.name,
        "' of ", group.size, " ranks"));
  }
  return absl::OkStatus();
}

absl::Status ValidateLossy(const Subject& s) {
  if (!s.spec.lossy) return absl::OkStatus();
  if (!MayBeLossy(s.spec.kind)) {
    const bool reduces = IsReducing(s.spec.kind);
    return s.Invalid(
        absl::StrCat("this kind cannot be lossy",
                     reduces ? "; ask for reduce_scatter and all_gather" : ""));
  }
  const Buffer& buffer = s.graph.buffer(AnySide(s.spec).buffer);
  switch (buffer.dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return absl::OkStatus();
    case DType::kF64:
    case DType::kI8:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    // Graphs do not take these types.
    case DType::kI16:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kC64:
    case DType::kC128:
    case DType::kBool:
      break;
  }
  return s.Invalid(absl::StrCat("buffer '", buffer.name, "' is ",
                                DTypeName(buffer.dtype),
                                "; only f32, f16 and bf16 can be lossy"));
}

// What both sides together must fulfil.
absl::Status ValidatePair(const Subject& s) {
  const Buffer& input = s.graph.buffer(s.spec.input.buffer);
  const Buffer& output = s.graph.buffer(s.spec.output.buffer);
  if (input.dtype != output.dtype) {
    return s.Invalid(absl::StrCat(
        "input '", input.name, "' is ", DTypeName(input.dtype), ", output '",
        output.name, "' is ", DTypeName(output.dtype)));
  }
  RETURN_IF_ERROR(ValidateCounts(s));
  const auto is_late_bound = [](const Buffer& buffer) {
    return buffer.ownership == Ownership::kLateBound;
  };
  const auto is_tile = [](const Access& side) {
    return side.region.kind == RegionKind::kTile;
  };
  if ((is_late_bound(input) && is_tile(s.spec.output)) ||
      (is_late_bound(output) && is_tile(s.spec.input))) {
    return s.Invalid(
        absl::StrCat("one side is late-bound, the other a tile; input '",
                     input.name, "', output '", output.name, "'"));
  }
  if (MayOverlap(s.graph, s.spec.input, s.spec.output) && !IsInPlace(s)) {
    return s.Invalid(absl::StrCat("input and output overlap in buffer '",
                                  input.name, "' but are not in place"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateCollective(const Graph& graph, const Op& op) {
  RETURN_IF_ERROR(ValidateKind(op));
  RETURN_IF_ERROR(ValidateGroupAndRoot(graph, op));
  const CollectiveSpec& spec = op.collective;
  const Subject s{graph, op, spec,
                  static_cast<uint64_t>(graph.group(spec.group).size)};
  RETURN_IF_ERROR(ValidateNumCounts(s));
  if (HasInput(spec.kind)) {
    RETURN_IF_ERROR(ValidateSide(s, spec.input, "input"));
  }
  if (HasOutput(spec.kind)) {
    RETURN_IF_ERROR(ValidateSide(s, spec.output, "output"));
  }
  if (HasInput(spec.kind) && HasOutput(spec.kind)) {
    RETURN_IF_ERROR(ValidatePair(s));
  }
  return ValidateLossy(s);
}

}  // namespace commsched
