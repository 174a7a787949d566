#include "trace/tick_line.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace commsched {

TickLine::TickLine(std::vector<TickAnchor> anchors) {
  std::sort(anchors.begin(), anchors.end(),
            [](const TickAnchor& a, const TickAnchor& b) {
              return a.ticks < b.ticks;
            });
  for (const TickAnchor& anchor : anchors) {
    if (anchors_.empty() || (anchor.ticks > anchors_.back().ticks &&
                             anchor.ns >= anchors_.back().ns)) {
      anchors_.push_back(anchor);
    }
  }
}

int64_t TickLine::ToNs(int64_t ticks) const {
  if (anchors_.size() < 2) return ticks;
  // What lies outside goes on as the line begins or ends.
  const auto right =
      std::upper_bound(anchors_.begin() + 1, anchors_.end() - 1, ticks,
                       [](int64_t value, const TickAnchor& anchor) {
                         return value < anchor.ticks;
                       });
  const TickAnchor& to = *right;
  const TickAnchor& from = *(right - 1);
  const double ns_per_tick = static_cast<double>(to.ns - from.ns) /
                             static_cast<double>(to.ticks - from.ticks);
  return from.ns + static_cast<int64_t>(std::floor(
                       static_cast<double>(ticks - from.ticks) * ns_per_tick));
}

}  // namespace commsched
