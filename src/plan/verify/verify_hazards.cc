#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "plan/verify/op_order.h"
#include "plan/verify/verify_parts.h"
#include "plan/verify/verify_picks.h"

namespace commsched {
namespace {

// An op in step 0 or 1.
struct Touch {
  uint32_t op = 0;
  uint32_t step = 0;
};

// Elements [key, end) of a buffer: who wrote them last, who has read them
// since.
struct Segment {
  uint64_t end = 0;
  Touch writer;
  bool written = false;
  absl::InlinedVector<Touch, 4> readers;
};

// The same, as it is kept until it is the turn of its buffer: small, as a graph
// has several per op.
struct KeptAccess {
  uint32_t op : 31;
  uint32_t writes : 1;
  uint32_t part;  // in parts_; kNone: the whole buffer
};
static_assert(Graph::kMaxOps <= uint64_t{1} << 31);

// Plays the declared order of one buffer's accesses through two steps. If each
// access is ordered after the ones it meets, then all conflicting pairs are
// ordered, over any number of steps, as order is transitive.
class HazardVerifier {
 public:
  HazardVerifier(const Plan& plan, const Witness& witness, HappensBefore* order)
      : plan_(plan), graph_(*plan.graph), order_(plan, witness, order) {}

  absl::Status Run() {
    Collect();
    for (uint32_t b = 0; b < graph_.buffers().size(); ++b) {
      RETURN_IF_ERROR(
          CheckBuffer(BufferId(b), {accesses_.data() + first_access_[b],
                                    first_access_[b + 1] - first_access_[b]}));
    }
    return VerifyExplicit(plan_, after_, &order_);
  }

 private:
  struct Found {
    BufferId buffer;
    KeptAccess access;
  };

  // Sorts accesses by buffer, then in declared order, the reads of an op first.
  // One pass over the ops, as a large graph has far more than any cache holds.
  void Collect() {
    std::vector<Found> found;
    found.reserve(4 * graph_.ops().size());
    // Entry b + 1 counts up to where entry b ends.
    first_access_.assign(graph_.buffers().size() + 2, 0);
    for (uint32_t op = 0; op < graph_.ops().size(); ++op) {
      for (OpId from : graph_.ops()[op].after) {
        after_.push_back({.from = from, .to = OpId(op), .distance = 0});
      }
      const std::vector<Access>& accesses = graph_.ops()[op].accesses;
      for (const Access& access : accesses) {
        if (Reads(access.mode)) Add(op, access, /*writes=*/false, &found);
      }
      for (const Access& access : accesses) {
        if (Writes(access.mode)) Add(op, access, /*writes=*/true, &found);
      }
    }
    std::partial_sum(first_access_.begin(), first_access_.end(),
                     first_access_.begin());
    accesses_.resize(found.size());
    for (const Found& each : found) {
      accesses_[first_access_[each.buffer.value() + 1]++] = each.access;
    }
    first_access_.pop_back();
  }

  // A shard may overlap anything, so it counts as the whole.
  void Add(uint32_t op, const Access& access, bool writes,
           std::vector<Found>* found) {
    uint32_t part = Plan::kNone;
    if (access.region.kind == RegionKind::kRange ||
        access.region.kind == RegionKind::kTile) {
      parts_.push_back(PartOf(access.region));
      if (parts_.back().begin == parts_.back().end) return;
      part = static_cast<uint32_t>(parts_.size()) - 1;
    }
    ++first_access_[access.buffer.value() + 2];
    found->push_back(
        {access.buffer, {.op = op, .writes = writes, .part = part}});
  }

  // The region is a range or a tile.
  static Part PartOf(const Region& region) {
    Part part{.begin = region.offset, .end = region.offset + region.count};
    if (region.kind == RegionKind::kTile) {
      part.end += (region.rows - 1) * region.stride;
      if (region.rows > 1 && region.stride > region.count) {
        part.row_count = region.count;
        part.stride = region.stride;
      }
    }
    return part;
  }

  Part PartOf(BufferId buffer, const KeptAccess& access) const {
    if (access.part != Plan::kNone) return parts_[access.part];
    return {.begin = 0, .end = graph_.buffer(buffer).count};
  }

  // Whether all accesses meet in every element.
  bool AreAlike(BufferId buffer, absl::Span<const KeptAccess> accesses) const {
    const bool all_whole = std::all_of(
        accesses.begin(), accesses.end(),
        [](const auto& access) { return access.part == Plan::kNone; });
    if (all_whole) return true;
    const Part first = PartOf(buffer, accesses[0]);
    return std::all_of(accesses.begin(), accesses.end(), [&](auto& access) {
      const Part part = PartOf(buffer, access);
      return part.begin == first.begin && part.end == first.end &&
             part.stride == 0;
    });
  }

  absl::Status CheckBuffer(BufferId buffer, absl::Span<const KeptAccess> kept) {
    const bool written =
        std::any_of(kept.begin(), kept.end(),
                    [](const KeptAccess& access) { return access.writes; });
    if (!written) return absl::OkStatus();
    // Most buffers end here.
    if (AreAlike(buffer, kept)) return CheckElement(buffer, kept);
    std::vector<BufferAccess>& accesses = at_hand_;
    accesses.clear();
    for (const KeptAccess& each : kept) {
      accesses.push_back(
          {PartOf(buffer, each), each.op, static_cast<bool>(each.writes)});
    }
    const std::vector<uint64_t> picks =
        graph_.has_tiles() ? PicksOf(accesses, graph_.buffer(buffer).count)
                           : std::vector<uint64_t>();
    for (uint64_t element : picks) {
      at_element_.clear();
      for (size_t i = 0; i < kept.size(); ++i) {
        if (accesses[i].Has(element)) at_element_.push_back(kept[i]);
      }
      RETURN_IF_ERROR(CheckElement(buffer, at_element_));
    }
    if (!picks.empty()) return absl::OkStatus();
    segments_.clear();
    segments_[0].end = graph_.buffer(buffer).count;
    for (uint32_t step = 0; step < 2; ++step) {
      for (const BufferAccess& access : accesses) {
        RETURN_IF_ERROR(access.writes ? Write(buffer, access, step)
                                      : Read(buffer, access, step));
      }
    }
    return absl::OkStatus();
  }

  // Of accesses that all have some element.
  absl::Status CheckElement(BufferId buffer,
                            absl::Span<const KeptAccess> accesses) {
    Segment& segment = element_;
    segment.written = false;
    segment.readers.clear();
    for (uint32_t step = 0; step < 2; ++step) {
      for (const KeptAccess& access : accesses) {
        const Touch touch{access.op, step};
        if (access.writes == 0) {
          RETURN_IF_ERROR(Read(buffer, touch, &segment));
          continue;
        }
        RETURN_IF_ERROR(Write(buffer, touch, &segment));
        // What follows meets accesses of the second step only.
        if (step == 1) return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  // Makes `at` the beginning of a segment.
  void SplitAt(uint64_t at) {
    auto it = std::prev(segments_.upper_bound(at));
    if (it->first == at || it->second.end <= at) return;
    Segment tail = it->second;
    it->second.end = at;
    segments_.insert({at, std::move(tail)});
  }

  absl::Status Read(BufferId buffer, const BufferAccess& access,
                    uint32_t step) {
    SplitAt(access.begin);
    SplitAt(access.end);
    for (auto it = segments_.find(access.begin);
         it != segments_.end() && it->first < access.end; ++it) {
      RETURN_IF_ERROR(Read(buffer, {access.op, step}, &it->second));
    }
    return absl::OkStatus();
  }

  absl::Status Read(BufferId buffer, Touch touch, Segment* segment) {
    if (segment->written) {
      RETURN_IF_ERROR(
          Check(segment->writer, touch, buffer, "read-after-write"));
    }
    segment->readers.push_back(touch);
    return absl::OkStatus();
  }

  absl::Status Write(BufferId buffer, const BufferAccess& access,
                     uint32_t step) {
    SplitAt(access.begin);
    SplitAt(access.end);
    const auto first = segments_.find(access.begin);
    auto it = first;
    for (; it != segments_.end() && it->first < access.end; ++it) {
      RETURN_IF_ERROR(Write(buffer, {access.op, step}, &it->second));
    }
    first->second.end = access.end;
    segments_.erase(std::next(first), it);
    return absl::OkStatus();
  }

  absl::Status Write(BufferId buffer, Touch touch, Segment* segment) {
    for (const Touch& reader : segment->readers) {
      RETURN_IF_ERROR(Check(reader, touch, buffer, "write-after-read"));
    }
    // Readers, if any, come after the writer.
    if (segment->written && segment->readers.empty()) {
      RETURN_IF_ERROR(
          Check(segment->writer, touch, buffer, "write-after-write"));
    }
    segment->writer = touch;
    segment->written = true;
    segment->readers.clear();
    return absl::OkStatus();
  }

  absl::Status Check(Touch from, Touch to, BufferId buffer,
                     absl::string_view hazard) {
    const int distance = static_cast<int>(to.step - from.step);
    if (distance == 0 && (from.op == to.op || to.step == 1)) {
      return absl::OkStatus();  // one op; or shown in step 0
    }
    if (order_.Ordered(OpId(from.op), OpId(to.op), distance)) {
      return absl::OkStatus();
    }
    return Race(OpId(from.op), OpId(to.op), distance, buffer, hazard);
  }

  absl::Status Race(OpId from, OpId to, int distance, BufferId buffer,
                    absl::string_view hazard) const {
    return absl::InternalError(
        absl::StrCat("plan: race on buffer '", graph_.buffer(buffer).name,
                     "': ", hazard, order_.Missing(from, to, distance)));
  }

  const Plan& plan_;
  const Graph& graph_;
  OpOrder order_;
  std::vector<KeptAccess> accesses_;    // by buffer
  std::vector<uint32_t> first_access_;  // by BufferId, and the end
  std::vector<Part> parts_;             // of those that are not the whole
  std::vector<ExplicitEdge> after_;     // those in Op::after
  // Both are of the buffer at hand.
  std::vector<BufferAccess> at_hand_;
  std::vector<KeptAccess> at_element_;
  Segment element_;
  absl::btree_map<uint64_t, Segment> segments_;
};

}  // namespace

absl::Status VerifyHazards(const Plan& plan, const Witness& witness,
                           HappensBefore* order) {
  return HazardVerifier(plan, witness, order).Run();
}

}  // namespace commsched
