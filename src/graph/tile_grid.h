#ifndef COMMSCHED_SRC_GRAPH_TILE_GRID_H_
#define COMMSCHED_SRC_GRAPH_TILE_GRID_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "graph/region.h"

namespace commsched {

// A buffer laid out in rows of its tiles' stride and cut, by rows and by
// columns, so that each of the regions that are accessed is a set of whole
// cells: two of them share an element exactly if they share a cell.
//
// Thread-compatible.
class TileGrid {
 public:
  // Beyond this, tiles are taken for all that lies between their first and
  // their last element. 63 x 63 tiles still fit.
  static constexpr size_t kMaxCells = 4096;

  // The grid of these regions of a buffer of `total` elements, or nullopt: no
  // tile is among them, tiles have different strides, or there are more than
  // kMaxCells cells. O(n log n).
  static absl::optional<TileGrid> Make(absl::Span<const Extent> regions,
                                       uint64_t total);

  size_t num_cells() const { return rows_.size() * columns_.size(); }

  // Calls visit(cell), 0 <= cell < num_cells(), for each cell of a region that
  // the grid was made for.
  template <typename Visit>
  void ForEachCell(const Extent& region, Visit&& visit) const {
    for (const Block& block : BlocksOf(region)) {
      const size_t first_column = IndexOf(columns_, block.first_column);
      const size_t end_column = IndexOf(columns_, block.end_column);
      const size_t end_row = IndexOf(rows_, block.end_row);
      for (size_t row = IndexOf(rows_, block.first_row); row < end_row; ++row) {
        for (size_t column = first_column; column < end_column; ++column) {
          visit(row * columns_.size() + column);
        }
      }
    }
  }

 private:
  // Rows [first_row, end_row) of columns [first_column, end_column).
  struct Block {
    uint64_t first_row, end_row;
    uint64_t first_column, end_column;
  };
  // The blocks that make up a region: at most three.
  class Blocks {
   public:
    void Add(const Block& block) { blocks_[size_++] = block; }
    const Block* begin() const { return blocks_; }
    const Block* end() const { return blocks_ + size_; }

   private:
    Block blocks_[3] = {};
    size_t size_ = 0;
  };

  TileGrid(uint64_t stride, uint64_t total) : stride_(stride), total_(total) {}

  Blocks BlocksOf(const Extent& region) const;
  // Index of the first cut that is not before `at`.
  static size_t IndexOf(const std::vector<uint64_t>& cuts, uint64_t at);

  uint64_t stride_;
  uint64_t total_;
  // Where cells begin; sorted. The last reach to the end.
  std::vector<uint64_t> rows_;
  std::vector<uint64_t> columns_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_TILE_GRID_H_
