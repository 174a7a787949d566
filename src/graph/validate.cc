#include "graph/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "graph/region.h"

namespace commsched {
namespace {

constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();

// Bytes of the UTF-8 sequence that begins `text`, or 0 if it is not one
// (overlong forms, surrogates and code points above U+10FFFF are not).
size_t Utf8SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  const bool overlong =
      (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second > 0x9F;
  const bool too_large = lead == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

absl::Status ValidateRange(const Op& op, const Buffer& buffer,
                           const Region& region) {
  if (region.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("op '", op.name, "': a range of buffer '", buffer.name,
                     "' has 0 elements"));
  }
  const auto end = CheckedAdd(region.offset, region.count);
  if (!end || *end > buffer.count) {
    return absl::OutOfRangeError(
        absl::StrCat("op '", op.name, "': range of ", region.count,
                     " elements from ", region.offset, " ends outside buffer '",
                     buffer.name, "' of ", buffer.count, " elements"));
  }
  return absl::OkStatus();
}

absl::Status ValidateShard(const Graph& graph, const Op& op,
                           const Buffer& buffer, const Region& region,
                           bool uneven) {
  if (region.group.value() >= graph.groups().size()) {
    return absl::NotFoundError(
        absl::StrCat("op '", op.name, "': shard of buffer '", buffer.name,
                     "' by group ", region.group.value(),
                     ", but the graph has ", graph.groups().size(), " groups"));
  }
  const Group& group = graph.group(region.group);
  if (!uneven && buffer.count % static_cast<uint64_t>(group.size) != 0) {
    return absl::OutOfRangeError(
        absl::StrCat("op '", op.name, "': buffer '", buffer.name, "' of ",
                     buffer.count, " elements has no equal shards among the ",
                     group.size, " ranks of group '", group.name, "'"));
  }
  return absl::OkStatus();
}

absl::Status ValidateTile(const Op& op, const Buffer& buffer,
                          const Region& region) {
  const auto invalid = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op '", op.name, "': a tile of buffer '", buffer.name, "' ", problem));
  };
  if (region.count == 0) return invalid("has rows of 0 elements");
  if (region.rows == 0) return invalid("has 0 rows");
  if (region.stride < region.count) {
    return invalid(absl::StrCat("has a stride of ", region.stride,
                                " elements, less than its rows of ",
                                region.count));
  }
  const auto before_last = CheckedMul(region.rows - 1, region.stride);
  const auto span =
      before_last ? CheckedAdd(*before_last, region.count) : before_last;
  const auto end = span ? CheckedAdd(*span, region.offset) : span;
  if (!end || *end > buffer.count) {
    return absl::OutOfRangeError(
        absl::StrCat("op '", op.name, "': tile of ", region.rows, " rows of ",
                     region.count, " elements at stride ", region.stride,
                     " from ", region.offset, " ends outside buffer '",
                     buffer.name, "' of ", buffer.count, " elements"));
  }
  return absl::OkStatus();
}

absl::Status ValidateLateBound(const Graph& graph, const Op& op,
                               const Access& access) {
  const Buffer& buffer = graph.buffer(access.buffer);
  const auto invalid = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(
        absl::StrCat("op '", op.name, "' ", problem, " late-bound buffer '",
                     buffer.name, "'"));
  };
  if (access.region.kind != RegionKind::kWhole) {
    return invalid("accesses a part, not the whole, of");
  }
  if (graph.late_at_submit()) return absl::OkStatus();
  const OpId writer = graph.LateBoundWriter(access.buffer);
  const bool compute = op.kind == OpKind::kCompute;
  if (writer.valid()) {
    if (!compute || !Writes(access.mode)) return absl::OkStatus();
    return invalid(absl::StrCat("writes, as does '", graph.op(writer).name,
                                "', which alone may: its `after` brings the "
                                "address of"));
  }
  if (compute && access.mode == AccessMode::kWrite) return absl::OkStatus();
  return invalid("accesses, before a compute op has written,");
}

// Two writes of one op would race with each other. Sorted by buffer and offset,
// overlapping ones are neighbours; whole and shard go first in their buffer and
// overlap anything there. Tiles may reach over their neighbours: in a buffer
// with tiles all pairs are compared that lie in each other's span.
absl::Status ValidateWritesAreApart(const Graph& graph, const Op& op) {
  struct Write {
    const Access* access;
    uint64_t begin, end;
    bool fixed;
  };
  std::vector<Write> writes;
  for (const Access& access : op.accesses) {
    if (!Writes(access.mode)) continue;
    const bool fixed = access.region.kind == RegionKind::kRange ||
                       access.region.kind == RegionKind::kTile;
    const Extent extent = fixed ? ResolveRegion(graph, access, 0, {})
                                : Extent{0, graph.buffer(access.buffer).count};
    writes.push_back({&access, extent.offset, extent.end(), fixed});
  }
  const auto key = [](const Write& write) {
    return std::make_tuple(write.access->buffer, write.fixed, write.begin);
  };
  std::sort(writes.begin(), writes.end(),
            [&](const Write& a, const Write& b) { return key(a) < key(b); });
  for (size_t i = 0; i < writes.size(); ++i) {
    for (size_t j = i + 1; j < writes.size(); ++j) {
      const Access& a = *writes[i].access;
      const Access& b = *writes[j].access;
      if (b.buffer != a.buffer || writes[j].begin >= writes[i].end) break;
      if (!MayOverlap(graph, a, b)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "op '", op.name, "' has two overlapping writes to buffer '",
          graph.buffer(a.buffer).name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateName(absl::string_view what, absl::string_view name) {
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has an empty name"));
  }
  if (name.size() > Graph::kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " name '", name.substr(0, 32), "...' of ", name.size(),
        " bytes is longer than ", Graph::kMaxNameBytes));
  }
  if (absl::StrContains(name, '\0')) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " name of ", name.size(), " bytes contains a NUL"));
  }
  if (!IsUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " name of ", name.size(), " bytes is not UTF-8"));
  }
  return absl::OkStatus();
}

absl::Status ValidateBuffer(const Buffer& buffer) {
  RETURN_IF_ERROR(DTypeFromInt(static_cast<int64_t>(buffer.dtype)).status());
  if (!IsComputed(buffer.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "buffer '", buffer.name, "': dtype ", DTypeName(buffer.dtype),
        " is for channels; graphs take ", ComputedDTypeNames()));
  }
  if (buffer.ownership > Ownership::kLateBound) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer '", buffer.name, "': ownership ",
                     static_cast<int>(buffer.ownership), " is not in 0..2"));
  }
  if (buffer.place_group != 0 && buffer.ownership != Ownership::kOwned) {
    return absl::InvalidArgumentError(absl::StrCat(
        "buffer '", buffer.name, "' is in place group ", buffer.place_group,
        ", but only an OWNED buffer has a place in the arena"));
  }
  if (buffer.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer '", buffer.name, "' has 0 elements"));
  }
  const uint64_t size = DTypeSize(buffer.dtype);
  if (buffer.count > kMaxBytes / size) {
    return absl::OutOfRangeError(
        absl::StrCat("buffer '", buffer.name, "': ", buffer.count,
                     " elements of ", size, " bytes exceed 2^63-1 bytes"));
  }
  return absl::OkStatus();
}

absl::Status ValidateAccess(const Graph& graph, const Op& op,
                            const Access& access, bool uneven) {
  const int mode = static_cast<int>(access.mode);
  if (mode < 1 || mode > 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op '", op.name, "': access mode ", mode, " is not in 1..3"));
  }
  if (access.buffer.value() >= graph.buffers().size()) {
    return absl::NotFoundError(absl::StrCat(
        "op '", op.name, "' accesses buffer ", access.buffer.value(),
        ", but the graph has ", graph.buffers().size(), " buffers"));
  }
  const Buffer& buffer = graph.buffer(access.buffer);
  if (buffer.ownership == Ownership::kLateBound) {
    RETURN_IF_ERROR(ValidateLateBound(graph, op, access));
  }
  switch (access.region.kind) {
    case RegionKind::kWhole:
      return absl::OkStatus();
    case RegionKind::kRange:
      return ValidateRange(op, buffer, access.region);
    case RegionKind::kShard:
      return ValidateShard(graph, op, buffer, access.region, uneven);
    case RegionKind::kTile:
      return ValidateTile(op, buffer, access.region);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("op '", op.name, "': region kind ",
                   static_cast<int>(access.region.kind), " is not in 0..3"));
}

absl::Status ValidateCompute(const Graph& graph, const Op& op) {
  const ComputeSpec& spec = op.compute;
  if (spec.lane >= Graph::kMaxLanes) {
    return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "': lane ",
                                                   spec.lane, " is not in 0..",
                                                   Graph::kMaxLanes - 1));
  }
  const std::pair<const char*, double> costs[] = {
      {"cost_ns", static_cast<double>(spec.cost_ns)},
      {"flops", spec.flops},
      {"bytes", spec.bytes}};
  for (const auto& [what, value] : costs) {
    if (std::isfinite(value) && value >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("op '", op.name, "': ", what, " is ", value,
                     "; it must be finite and at least 0"));
  }
  if (spec.cost_ns > Graph::kMaxCostNs) {
    return absl::InvalidArgumentError(
        absl::StrCat("op '", op.name, "': cost_ns is ", spec.cost_ns,
                     ", above the limit of ", Graph::kMaxCostNs));
  }
  for (const Access& access : op.accesses) {
    RETURN_IF_ERROR(ValidateAccess(graph, op, access, /*uneven=*/false));
  }
  return ValidateWritesAreApart(graph, op);
}

}  // namespace commsched
