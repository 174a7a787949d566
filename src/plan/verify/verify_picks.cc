#include "plan/verify/verify_picks.h"

#include <set>

namespace commsched {

// In rows of the common stride, whether an access has (row, column) changes
// only where one of its ends lies or, for columns left of it, one row later.
std::vector<uint64_t> PicksOf(const std::vector<BufferAccess>& accesses,
                              uint64_t count) {
  std::set<uint64_t> strides;
  for (const BufferAccess& access : accesses) strides.insert(access.stride);
  strides.erase(0);
  if (strides.size() != 1) return {};
  const uint64_t stride = *strides.begin();
  std::set<uint64_t> rows = {0};
  std::set<uint64_t> columns = {0};
  auto cut = [&](uint64_t at) {
    rows.insert({at / stride, at / stride + 1});
    columns.insert(at % stride);
  };
  for (const BufferAccess& access : accesses) {
    cut(access.begin);
    if (access.stride == 0) {
      cut(access.end);
    } else {
      cut(access.begin + access.row_count);
      cut(access.end - access.row_count + stride);
    }
  }
  if (rows.size() * columns.size() > kMaxPicks) return {};
  std::vector<uint64_t> picks;
  for (uint64_t row : rows) {
    for (uint64_t column : columns) {
      // Rows reach one beyond the last; count is below 2^63.
      const uint64_t element = row * stride + column;
      if (row <= count / stride && element < count) picks.push_back(element);
    }
  }
  return picks;
}

}  // namespace commsched
