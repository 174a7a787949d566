#ifndef COMMSCHED_SRC_GRAPH_BUFFER_HISTORY_H_
#define COMMSCHED_SRC_GRAPH_BUFFER_HISTORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/inlined_vector.h"
#include "graph/dependencies.h"
#include "graph/region.h"
#include "graph/tile_grid.h"

namespace commsched {

// Who wrote each element of one buffer last, and who has read it since.
//
// A time is one op in one iteration. Accesses are recorded in increasing time,
// an op's reads before its writes. Each appends to `conflicts` the earlier
// times it must come after, leaving out what another conflict about the same
// element implies: a write after readers says nothing of the writer whom those
// readers came after. A time may be appended more than once.
//
// Most buffers are only ever accessed as a whole and cost one cell; the first
// range cuts the buffer into pieces, and a whole write makes it one again. One
// with tiles of one stride is cut once, by the grid of all its regions, and
// each access visits the cells of its region. Without a grid a tile counts as
// the range from its first element to its last.
//
// Thread-compatible.
class BufferHistory {
 public:
  using Time = uint32_t;

  struct Conflict {
    Time time;
    Hazard hazard;
  };

  explicit BufferHistory(uint64_t count) : count_(count) {}

  // Call it before the first access. All accesses are to regions of `grid`.
  void UseGrid(TileGrid grid);

  void Read(Extent extent, Time now, std::vector<Conflict>& conflicts);
  void Write(Extent extent, Time now, std::vector<Conflict>& conflicts);
  // The same of the whole buffer.
  void ReadAll(Time now, std::vector<Conflict>& conflicts) {
    if (!IsCut()) return whole_.Read(now, conflicts);
    Read({0, count_}, now, conflicts);
  }
  void WriteAll(Time now, std::vector<Conflict>& conflicts) {
    if (!IsCut()) return whole_.Write(now, conflicts);
    Write({0, count_}, now, conflicts);
  }
  // Whether no access from now on conflicts with one before `time`. It may not,
  // and yet be false, if the buffer is cut.
  bool KnowsOnlySince(Time time) const {
    return !IsCut() && whole_.writer != kNever && whole_.writer >= time;
  }

 private:
  static constexpr Time kNever = ~Time{0};

  // What is known of a run of elements that were always accessed together.
  struct Cell {
    void Read(Time now, std::vector<Conflict>& conflicts) {
      if (writer != kNever) {
        conflicts.push_back({writer, Hazard::kReadAfterWrite});
      }
      if (readers.empty() || readers.back() != now) readers.push_back(now);
    }
    void Write(Time now, std::vector<Conflict>& conflicts);

    Time writer = kNever;
    absl::InlinedVector<Time, 4> readers;  // since `writer`, increasing
  };
  // Keyed by the first element's offset; a piece ends where the next begins.
  using Pieces = absl::btree_map<uint64_t, Cell>;

  struct Gridded {
    TileGrid grid;
    std::vector<Cell> cells;
  };

  bool IsCut() const { return pieces_ != nullptr || gridded_ != nullptr; }
  bool IsWhole(Extent extent) const { return extent.count == count_; }
  void WriteRange(Extent extent, Time now, std::vector<Conflict>& conflicts);
  void ReadRange(Extent extent, Time now, std::vector<Conflict>& conflicts);
  // Makes `offset` the beginning of a piece.
  Pieces::iterator Cut(uint64_t offset);
  void CutIntoPieces();

  uint64_t count_;
  Cell whole_;                        // while `pieces_` is null
  std::unique_ptr<Pieces> pieces_;    // covers the buffer without gaps
  std::unique_ptr<Gridded> gridded_;  // if there, nothing else is used
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_BUFFER_HISTORY_H_
