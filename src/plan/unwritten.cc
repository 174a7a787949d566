#include "plan/unwritten.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "graph/region.h"
#include "graph/tile_grid.h"

namespace commsched {
namespace {

// Elements [begin, end).
struct Elements {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// An access to a buffer that no op writes as a whole.
struct Use {
  OpId op;
  const Access* access = nullptr;
  // The part of an in-place all-gather's output that is its input.
  const Access* except = nullptr;
};

bool IsInPlace(const Graph& graph, const Op& op) {
  const CollectiveSpec& spec = op.collective;
  return op.kind == OpKind::kCollective && op.accesses.size() == 2 &&
         spec.input.buffer == spec.output.buffer &&
         MayOverlap(graph, spec.input, spec.output);
}

// Whether the collective, which is in place, gives its region nothing but what
// it has read there. Of a broadcast only the root reads.
bool OnlyPassesOn(const Op& op,
                  const std::vector<std::vector<int>>& positions) {
  const CollectiveSpec& spec = op.collective;
  if (spec.kind == CollectiveKind::kAllGather) return false;
  if (spec.kind != CollectiveKind::kBroadcast) return true;
  const std::vector<int>& here = positions[spec.group.value()];
  return std::find(here.begin(), here.end(), spec.root) != here.end();
}

bool IsWhole(const Graph& graph, const Access& access) {
  const Region& region = access.region;
  switch (region.kind) {
    case RegionKind::kWhole:
      return true;
    case RegionKind::kRange:
      return region.count == graph.buffer(access.buffer).count;
    case RegionKind::kShard:
      return graph.group(region.group).size == 1;
    case RegionKind::kTile:
      return false;
  }
  return false;
}

// What is written of a buffer without tiles, or with tiles that no grid fits:
// these are taken for all between their first and last element.
class WrittenRanges {
 public:
  explicit WrittenRanges(const std::vector<Extent>& written) {
    for (const Extent& extent : written) {
      if (extent.count == 0) continue;
      ranges_.push_back({extent.offset, extent.end()});
    }
    std::sort(
        ranges_.begin(), ranges_.end(),
        [](const Elements& a, const Elements& b) { return a.begin < b.begin; });
    size_t kept = 0;
    for (const Elements& range : ranges_) {
      if (kept > 0 && range.begin <= ranges_[kept - 1].end) {
        ranges_[kept - 1].end = std::max(ranges_[kept - 1].end, range.end);
      } else {
        ranges_[kept++] = range;
      }
    }
    ranges_.resize(kept);
  }

  // The first run of elements of `read` that is not written.
  absl::optional<Elements> FirstMissing(const Extent& read) const {
    uint64_t begin = read.offset;
    auto next = std::upper_bound(
        ranges_.begin(), ranges_.end(), begin,
        [](uint64_t at, const Elements& range) { return at < range.begin; });
    if (next != ranges_.begin()) begin = std::max(begin, (next - 1)->end);
    if (begin >= read.end()) return absl::nullopt;
    const uint64_t end =
        next == ranges_.end() ? read.end() : std::min(read.end(), next->begin);
    return Elements{begin, end};
  }

 private:
  std::vector<Elements> ranges_;  // apart, sorted
};

// One buffer, of which no op writes the whole.
class BufferCheck {
 public:
  BufferCheck(const Graph& graph,
              const std::vector<std::vector<int>>& positions)
      : graph_(graph), positions_(positions) {}

  void Add(OpId op, const Access& access) {
    if (Reads(access.mode)) reads_.push_back({op, &access});
    if (Writes(access.mode)) AddWrite(op, access);
    const Region& region = access.region;
    if (region.kind != RegionKind::kShard) return;
    if (!graph_.op(op).collective.counts.empty()) has_uneven_ = true;
    if (std::find(groups_.begin(), groups_.end(), region.group) ==
        groups_.end()) {
      groups_.push_back(region.group);
    }
  }

  absl::Status Run() const {
    if (reads_.empty()) return absl::OkStatus();
    if (groups_.empty()) return At(GroupId(), 0);
    // Nobody can tell how shards of several groups lie.
    if (groups_.size() > 1) return absl::OkStatus();
    // Only a collective can name an uneven part; what others say of it is even.
    if (has_uneven_) return absl::OkStatus();
    for (int position : positions_[groups_[0].value()]) {
      RETURN_IF_ERROR(At(groups_[0], position));
    }
    return absl::OkStatus();
  }

 private:
  void AddWrite(OpId id, const Access& access) {
    const Op& op = graph_.op(id);
    if (!IsInPlace(graph_, op)) {
      writes_.push_back({id, &access});
    } else if (OnlyPassesOn(op, positions_)) {
      if (!passes_on_.valid()) passes_on_ = id;
    } else {
      const bool gathers = op.collective.kind == CollectiveKind::kAllGather;
      writes_.push_back(
          {id, &access, gathers ? &op.collective.input : nullptr});
    }
  }

  // `group`: that of all shards; invalid: there are none.
  absl::Status At(GroupId group, int position) const {
    const std::vector<Extent> written = WrittenAt(position);
    const std::vector<Extent> read = ExtentsOf(reads_, position);
    const uint64_t total = graph_.buffer(reads_[0].access->buffer).count;
    std::vector<Extent> all = written;
    all.insert(all.end(), read.begin(), read.end());
    if (const auto grid = TileGrid::Make(all, total)) {
      return CheckOnGrid(*grid, written, read, group, position);
    }
    const WrittenRanges ranges(written);
    for (size_t i = 0; i < reads_.size(); ++i) {
      if (read[i].rows > 1) continue;  // Nobody can tell.
      const auto missing = ranges.FirstMissing(read[i]);
      if (missing) return Refuse(reads_[i], *missing, group, position);
    }
    return absl::OkStatus();
  }

  // What all-gathers in place find there themselves is left out.
  std::vector<Extent> WrittenAt(int position) const {
    std::vector<Extent> written = ExtentsOf(writes_, position);
    for (size_t i = 0; i < writes_.size(); ++i) {
      if (writes_[i].except == nullptr || written[i].rows > 1) continue;
      const Extent own =
          ResolveRegion(graph_, *writes_[i].except, position, {});
      const Extent all = written[i];
      written[i].count = own.offset - all.offset;
      written.push_back({own.end(), all.end() - own.end()});
    }
    return written;
  }

  std::vector<Extent> ExtentsOf(const std::vector<Use>& uses,
                                int position) const {
    std::vector<Extent> extents;
    for (const Use& use : uses) {
      extents.push_back(Joined(ResolveRegion(
          graph_, *use.access, position, graph_.op(use.op).collective.counts)));
    }
    return extents;
  }

  absl::Status CheckOnGrid(const TileGrid& grid,
                           const std::vector<Extent>& written,
                           const std::vector<Extent>& read, GroupId group,
                           int position) const {
    std::vector<bool> has(grid.num_cells());
    for (const Extent& extent : written) {
      grid.ForEachCell(extent, [&](size_t cell) { has[cell] = true; });
    }
    for (size_t i = 0; i < reads_.size(); ++i) {
      bool all = true;
      grid.ForEachCell(read[i], [&](size_t cell) { all = all && has[cell]; });
      if (all) continue;
      return Refuse(reads_[i], {read[i].offset, read[i].end()}, group,
                    position);
    }
    return absl::OkStatus();
  }

  absl::Status Refuse(const Use& use, const Elements& missing, GroupId group,
                      int position) const {
    const Buffer& buffer = graph_.buffer(use.access->buffer);
    const std::string where =
        group.valid() ? absl::StrCat(" at position ", position, " of group '",
                                     graph_.group(group).name, "'")
                      : "";
    const std::string except =
        passes_on_.valid()
            ? absl::StrCat(" except '", graph_.op(passes_on_).name,
                           "', which passes on in place what it reads")
            : "";
    return absl::InvalidArgumentError(absl::StrCat(
        "op '", graph_.op(use.op).name, "' reads elements ", missing.begin,
        " to ", missing.end - 1, " of OWNED buffer '", buffer.name, "', which ",
        "has ", buffer.count, ",", where, " but no op of the step writes them",
        except, ": declare what writes them, or make the buffer BOUND"));
  }

  const Graph& graph_;
  const std::vector<std::vector<int>>& positions_;
  std::vector<Use> reads_;
  std::vector<Use> writes_;
  std::vector<GroupId> groups_;  // of shards
  OpId passes_on_;               // the first that does so in place, if any
  bool has_uneven_ = false;      // one of them is a collective's, with counts
};

}  // namespace

absl::Status CheckOwnedReads(const Graph& graph,
                             const std::vector<std::vector<int>>& positions) {
  // By BufferId, whether nothing is missing: not OWNED, or written as a whole.
  std::vector<bool> fine;
  for (const Buffer& buffer : graph.buffers()) {
    fine.push_back(buffer.ownership != Ownership::kOwned);
  }
  for (const Op& op : graph.ops()) {
    for (const Access& access : op.accesses) {
      if (Writes(access.mode) && IsWhole(graph, access) &&
          !IsInPlace(graph, op)) {
        fine[access.buffer.value()] = true;
      }
    }
  }
  absl::btree_map<BufferId, BufferCheck> checks;
  for (uint32_t i = 0; i < graph.ops().size(); ++i) {
    for (const Access& access : graph.ops()[i].accesses) {
      if (fine[access.buffer.value()]) continue;
      checks.try_emplace(access.buffer, graph, positions)
          .first->second.Add(OpId(i), access);
    }
  }
  for (const auto& [buffer, check] : checks) RETURN_IF_ERROR(check.Run());
  return absl::OkStatus();
}

}  // namespace commsched
