#include "plan/fit.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "plan/align.h"

namespace commsched {
namespace {

// Holes of an arena that may grow at its end.
class Holes {
 public:
  uint64_t Take(uint64_t bytes) {
    auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [size, offset] = *fit;
      Remove(offset, size);
      if (size > bytes) Insert(offset + bytes, size - bytes);
      return offset;
    }
    uint64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto [last, size] = *by_offset_.rbegin();
      if (last + size == end_) {
        offset = last;
        Remove(last, size);
      }
    }
    end_ = offset + bytes;
    return offset;
  }

  void Give(uint64_t offset, uint64_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [before, size] = *std::prev(next);
      if (before + size == offset) {
        Remove(before, size);
        offset = before;
        bytes += size;
      }
    }
    next = by_offset_.lower_bound(offset + bytes);
    if (next != by_offset_.end() && next->first == offset + bytes) {
      const uint64_t size = next->second;
      Remove(offset + bytes, size);
      bytes += size;
    }
    Insert(offset, bytes);
  }

  uint64_t end() const { return end_; }

 private:
  void Insert(uint64_t offset, uint64_t size) {
    by_offset_[offset] = size;
    by_size_.insert({size, offset});
  }
  void Remove(uint64_t offset, uint64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  absl::btree_map<uint64_t, uint64_t> by_offset_;
  absl::btree_set<std::pair<uint64_t, uint64_t>> by_size_;  // size, offset
  uint64_t end_ = 0;
};

bool AliveTogether(const Slot& a, const Slot& b) {
  if (a.for_ever || b.for_ever) return true;
  auto x = a.stays.begin();
  auto y = b.stays.begin();
  while (x != a.stays.end() && y != b.stays.end()) {
    if (x->begin <= y->end && y->begin <= x->end) return true;
    x->end < y->end ? ++x : ++y;
  }
  return false;
}

std::vector<uint32_t> Indices(const std::vector<Slot>& slots) {
  std::vector<uint32_t> order(slots.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The smallest hole between `taken`, sorted (offset, bytes), that holds
// `bytes`.
uint64_t SmallestHole(const std::vector<std::pair<uint64_t, uint64_t>>& taken,
                      uint64_t bytes) {
  uint64_t best = 0;
  uint64_t best_size = 0;
  bool found = false;
  uint64_t end = 0;
  for (const auto& [offset, size] : taken) {
    if (offset >= end + bytes && (!found || offset - end < best_size)) {
      best = end;
      best_size = offset - end;
      found = true;
    }
    end = std::max(end, offset + size);
  }
  return found ? best : end;
}

}  // namespace

Fit FitSideBySide(const std::vector<Slot>& slots) {
  Fit fit;
  fit.offsets.reserve(slots.size());
  for (const Slot& slot : slots) {
    fit.offsets.push_back(fit.bytes);
    fit.bytes += AlignUp(slot.bytes);
  }
  return fit;
}

Fit FitInOrderOfTime(const std::vector<Slot>& slots) {
  Fit fit;
  fit.offsets.assign(slots.size(), 0);
  std::vector<uint32_t> begins;
  for (uint32_t i : Indices(slots)) {
    if (!slots[i].for_ever) {
      begins.push_back(i);
      continue;
    }
    fit.offsets[i] = fit.bytes;
    fit.bytes += AlignUp(slots[i].bytes);
  }
  const uint64_t base = fit.bytes;
  std::vector<uint32_t> ends = begins;
  std::stable_sort(begins.begin(), begins.end(), [&](uint32_t a, uint32_t b) {
    return slots[a].stays.front().begin < slots[b].stays.front().begin;
  });
  std::stable_sort(ends.begin(), ends.end(), [&](uint32_t a, uint32_t b) {
    return slots[a].stays.back().end < slots[b].stays.back().end;
  });
  Holes holes;
  auto ended = ends.begin();
  for (uint32_t i : begins) {
    const uint32_t begin = slots[i].stays.front().begin;
    for (; slots[*ended].stays.back().end < begin; ++ended) {
      holes.Give(fit.offsets[*ended] - base, AlignUp(slots[*ended].bytes));
    }
    fit.offsets[i] = base + holes.Take(AlignUp(slots[i].bytes));
  }
  fit.bytes = base + holes.end();
  return fit;
}

Fit FitBySize(const std::vector<Slot>& slots) {
  Fit fit;
  fit.offsets.assign(slots.size(), 0);
  std::vector<uint32_t> order = Indices(slots);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (slots[a].for_ever != slots[b].for_ever) {
      return slots[a].for_ever;
    }
    return slots[a].bytes > slots[b].bytes;
  });
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (size_t i = 0; i < order.size(); ++i) {
    const Slot& slot = slots[order[i]];
    taken.clear();
    for (size_t j = 0; j < i; ++j) {
      const Slot& other = slots[order[j]];
      if (!AliveTogether(slot, other)) continue;
      taken.push_back({fit.offsets[order[j]], AlignUp(other.bytes)});
    }
    std::sort(taken.begin(), taken.end());
    const uint64_t offset = SmallestHole(taken, AlignUp(slot.bytes));
    fit.offsets[order[i]] = offset;
    fit.bytes = std::max(fit.bytes, offset + AlignUp(slot.bytes));
  }
  return fit;
}

}  // namespace commsched
