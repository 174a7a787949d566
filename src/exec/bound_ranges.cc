#include "exec/bound_ranges.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

uintptr_t At(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

}  // namespace

BoundRanges::BoundRanges(const Graph& graph,
                         const std::vector<void*>& addresses)
    : graph_(graph) {
  std::vector<uint32_t> range_of(addresses.size(), ~uint32_t{0});
  const std::vector<Op>& ops = graph.ops();
  for (uint32_t i = 0; i < ops.size(); ++i) {
    for (const Access& access : ops[i].accesses) {
      const uint32_t buffer = access.buffer.value();
      if (addresses[buffer] == nullptr) continue;
      if (range_of[buffer] == ~uint32_t{0}) {
        range_of[buffer] = static_cast<uint32_t>(ranges_.size());
        const uintptr_t begin = At(addresses[buffer]);
        ranges_.push_back({.begin = begin,
                           .end = begin + graph.buffers()[buffer].bytes(),
                           .buffer = access.buffer,
                           .writer = {},
                           .furthest = 0});
      }
      Range& range = ranges_[range_of[buffer]];
      if (Writes(access.mode) && !range.writer.valid()) range.writer = OpId(i);
    }
  }
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.buffer < b.buffer;
  });
  uint32_t furthest = 0;
  for (uint32_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].end > ranges_[furthest].end) furthest = i;
    ranges_[i].furthest = furthest;
  }
}

absl::Status BoundRanges::CheckApart(absl::string_view who) const {
  // What reaches furthest among the ranges that are written.
  const Range* written = nullptr;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const Range& range = ranges_[i];
    const Range* other = i == 0 || !range.writer.valid()
                             ? written
                             : &ranges_[ranges_[i - 1].furthest];
    if (other != nullptr && other->end > range.begin) {
      const Buffer& a = graph_.buffer(other->buffer);
      const Buffer& b = graph_.buffer(range.buffer);
      const Range& writes = range.writer.valid() ? range : *other;
      return absl::InvalidArgumentError(absl::StrCat(
          who, ": buffers '", a.name, "' and '", b.name,
          "' overlap in memory: ",
          SharedBytes(a.name, reinterpret_cast<const void*>(other->begin),
                      a.bytes(), b.name,
                      reinterpret_cast<const void*>(range.begin), b.bytes()),
          ", and op '", graph_.op(writes.writer).name, "' writes '",
          graph_.buffer(writes.buffer).name,
          "'; nothing would order it with accesses to the other: bind "
          "memory of its own to each, or declare one buffer"));
    }
    if (range.writer.valid() &&
        (written == nullptr || range.end > written->end)) {
      written = &range;
    }
  }
  return absl::OkStatus();
}

BufferId BoundRanges::Meets(const void* address, uint64_t bytes) const {
  const auto after = std::lower_bound(
      ranges_.begin(), ranges_.end(), At(address) + bytes,
      [](const Range& range, uintptr_t end) { return range.begin < end; });
  if (bytes == 0 || after == ranges_.begin()) return {};
  const Range& furthest = ranges_[(after - 1)->furthest];
  return furthest.end > At(address) ? furthest.buffer : BufferId();
}

std::string SharedBytes(absl::string_view a, const void* a_address,
                        uint64_t a_bytes, absl::string_view b,
                        const void* b_address, uint64_t b_bytes) {
  const uintptr_t begin = std::max(At(a_address), At(b_address));
  const uintptr_t end =
      std::min(At(a_address) + a_bytes, At(b_address) + b_bytes);
  return absl::StrCat("bytes ", begin - At(a_address), " to ",
                      end - 1 - At(a_address), " of '", a, "' are bytes ",
                      begin - At(b_address), " to ", end - 1 - At(b_address),
                      " of '", b, "'");
}

}  // namespace commsched
