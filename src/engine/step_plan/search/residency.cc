#include "engine/step_plan/search/residency.h"

#include <algorithm>
#include <tuple>

namespace commsched::engine {
namespace {

// Two consecutive uses of a bucket, by the ops `from` and `to`.
struct Gap {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t bucket = 0;
};

class StayPlanner {
 public:
  StayPlanner(const LiveNeeds& needs, uint64_t budget_bytes,
              uint64_t prefetch_bytes)
      : needs_(needs),
        budget_(budget_bytes),
        prefetch_(prefetch_bytes),
        live_(needs.used.size()),
        ahead_(needs.used.size()) {
    for (size_t op = 0; op < live_.size(); ++op) live_[op] = needs.BytesAt(op);
  }

  std::vector<Stay> Run() {
    FindStays();
    JoinStays();
    Prefetch();
    return std::move(stays_);
  }

 private:
  bool Fits(uint64_t bytes) const { return budget_ == 0 || bytes <= budget_; }

  // Each use is a stay of its own at first.
  void FindStays() {
    for (uint32_t op = 0; op < needs_.used.size(); ++op) {
      for (uint32_t bucket : needs_.used[op]) {
        stays_.push_back({.bucket = bucket, .first = op, .last = op});
      }
    }
  }

  std::vector<Gap> GapsByLength() const {
    std::vector<uint32_t> previous(needs_.bucket_bytes.size(), kNone);
    std::vector<Gap> gaps;
    for (const Stay& stay : stays_) {
      uint32_t& from = previous[stay.bucket];
      if (from != kNone) gaps.push_back({from, stay.first, stay.bucket});
      from = stay.first;
    }
    std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) {
      return std::make_tuple(a.to - a.from, a.from, a.bucket) <
             std::make_tuple(b.to - b.from, b.from, b.bucket);
    });
    return gaps;
  }

  // Whether the bucket can stay at `op`, within `gap`. Room for the gathers of
  // the next op is left unless there was none.
  bool HasRoom(const Gap& gap, uint32_t op,
               const std::vector<uint64_t>& next) const {
    const uint64_t bytes = needs_.bucket_bytes[gap.bucket];
    if (!Fits(live_[op] + bytes)) return false;
    if (!Fits(live_[op] + next[op])) return true;
    const uint64_t without = op + 1 == gap.to ? bytes : 0;
    return Fits(live_[op] + bytes + next[op] - without);
  }

  void JoinStays() {
    std::vector<uint64_t> next;  // By op: what is gathered for the one after.
    for (uint32_t op = 0; op < live_.size(); ++op) {
      next.push_back(needs_.NextBytes(op));
    }
    std::vector<Gap> kept;
    for (const Gap& gap : GapsByLength()) {
      bool room = true;
      for (uint32_t op = gap.from + 1; room && op < gap.to; ++op) {
        room = HasRoom(gap, op, next);
      }
      if (!room) continue;
      const uint64_t bytes = needs_.bucket_bytes[gap.bucket];
      for (uint32_t op = gap.from + 1; op < gap.to; ++op) live_[op] += bytes;
      if (gap.from + 1 < gap.to) next[gap.to - 1] -= bytes;
      kept.push_back(gap);
    }
    std::sort(kept.begin(), kept.end(), [](const Gap& a, const Gap& b) {
      return std::tie(a.to, a.bucket) < std::tie(b.to, b.bucket);
    });
    Join(kept);
  }

  // `kept` is in the order of the stays that the gaps lead to.
  void Join(const std::vector<Gap>& kept) {
    std::vector<Stay> joined;
    std::vector<uint32_t> latest(needs_.bucket_bytes.size(), kNone);
    auto gap = kept.begin();
    for (const Stay& stay : stays_) {
      uint32_t& at = latest[stay.bucket];
      if (gap != kept.end() && gap->to == stay.first &&
          gap->bucket == stay.bucket) {
        joined[at].last = stay.last;
        ++gap;
        continue;
      }
      const uint32_t index = at == kNone ? 0 : joined[at].index + 1;
      at = static_cast<uint32_t>(joined.size());
      joined.push_back(stay);
      joined.back().index = index;
    }
    stays_ = std::move(joined);
  }

  // Whether a bucket can be there at `op`, which does not use it yet.
  bool CanWait(uint64_t bytes, uint32_t op) const {
    return Fits(live_[op] + bytes) &&
           (prefetch_ == 0 || ahead_[op] + bytes <= prefetch_);
  }

  void Prefetch() {
    std::vector<uint32_t> free_from(needs_.bucket_bytes.size(), 0);
    uint32_t earliest = 0;  // No gather goes out before one needed earlier.
    for (Stay& stay : stays_) {
      const uint64_t bytes = needs_.bucket_bytes[stay.bucket];
      const uint32_t least = std::max(earliest, free_from[stay.bucket]);
      stay.launch = stay.first;
      while (stay.launch > least && CanWait(bytes, stay.launch - 1)) {
        live_[--stay.launch] += bytes;
        ahead_[stay.launch] += bytes;
      }
      earliest = stay.launch;
      free_from[stay.bucket] = stay.last + 1;
    }
  }

  static constexpr uint32_t kNone = ~uint32_t{0};

  const LiveNeeds& needs_;
  const uint64_t budget_;
  const uint64_t prefetch_;
  std::vector<uint64_t> live_;   // Bytes by op.
  std::vector<uint64_t> ahead_;  // Those gathered for later ops.
  std::vector<Stay> stays_;      // By first use, then by bucket.
};

}  // namespace

uint64_t LiveNeeds::BytesAt(size_t op) const {
  uint64_t bytes = other_bytes[op];
  for (uint32_t bucket : used[op]) bytes += bucket_bytes[bucket];
  return bytes;
}

uint64_t LiveNeeds::NextBytes(uint32_t op) const {
  uint64_t bytes = 0;
  if (op + 1 == used.size()) return bytes;
  for (uint32_t bucket : used[op + 1]) {
    if (std::binary_search(used[op].begin(), used[op].end(), bucket)) continue;
    bytes += bucket_bytes[bucket];
  }
  return bytes;
}

std::vector<Stay> PlanStays(const LiveNeeds& needs, uint64_t budget_bytes,
                            uint64_t prefetch_bytes) {
  return StayPlanner(needs, budget_bytes, prefetch_bytes).Run();
}

}  // namespace commsched::engine
