#include "graph/tile_grid.h"

#include <algorithm>

namespace commsched {
namespace {

// Sorted, once each, and without the end of all, which begins nothing.
void MakeCuts(std::vector<uint64_t>& cuts, uint64_t end) {
  cuts.push_back(0);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  if (cuts.back() == end) cuts.pop_back();
}

}  // namespace

absl::optional<TileGrid> TileGrid::Make(absl::Span<const Extent> regions,
                                        uint64_t total) {
  uint64_t stride = 0;
  for (const Extent& region : regions) {
    if (region.rows == 1) continue;
    if (stride != 0 && region.stride != stride) return absl::nullopt;
    stride = region.stride;
  }
  if (stride == 0) return absl::nullopt;
  TileGrid grid(stride, total);
  for (const Extent& region : regions) {
    for (const Block& block : grid.BlocksOf(region)) {
      grid.rows_.insert(grid.rows_.end(), {block.first_row, block.end_row});
      grid.columns_.insert(grid.columns_.end(),
                           {block.first_column, block.end_column});
    }
  }
  MakeCuts(grid.rows_, total / stride + (total % stride != 0 ? 1 : 0));
  MakeCuts(grid.columns_, stride);
  if (grid.rows_.size() > kMaxCells || grid.columns_.size() > kMaxCells ||
      grid.num_cells() > kMaxCells) {
    return absl::nullopt;
  }
  return grid;
}

size_t TileGrid::IndexOf(const std::vector<uint64_t>& cuts, uint64_t at) {
  return std::lower_bound(cuts.begin(), cuts.end(), at) - cuts.begin();
}

TileGrid::Blocks TileGrid::BlocksOf(const Extent& region) const {
  Blocks blocks;
  const uint64_t row = region.offset / stride_;
  const uint64_t column = region.offset % stride_;
  if (region.rows > 1) {
    const uint64_t end = column + region.count;
    blocks.Add({row, row + region.rows, column, std::min(end, stride_)});
    // Rows that the grid's own rows cut in two.
    if (end > stride_) {
      blocks.Add({row + 1, row + 1 + region.rows, 0, end - stride_});
    }
    return blocks;
  }
  // The last row of the grid may be longer than the buffer: who has all of the
  // buffer has all of the row.
  const uint64_t end = region.end();
  const uint64_t end_row = end / stride_ + (end % stride_ != 0 ? 1 : 0);
  if (column == 0 && end == total_) {
    blocks.Add({row, end_row, 0, stride_});
    return blocks;
  }
  if (row == end / stride_) {
    blocks.Add({row, row + 1, column, end % stride_});
    return blocks;
  }
  uint64_t first_full = row;
  if (column != 0) {
    blocks.Add({row, row + 1, column, stride_});
    ++first_full;
  }
  if (first_full < end / stride_) {
    blocks.Add({first_full, end / stride_, 0, stride_});
  }
  if (end % stride_ != 0) {
    blocks.Add({end / stride_, end_row, 0, end % stride_});
  }
  return blocks;
}

}  // namespace commsched
