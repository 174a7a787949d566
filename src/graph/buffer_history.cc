#include "graph/buffer_history.h"

#include <iterator>
#include <utility>

namespace commsched {

void BufferHistory::Cell::Write(Time now, std::vector<Conflict>& conflicts) {
  for (const Time reader : readers) {
    if (reader != now) conflicts.push_back({reader, Hazard::kWriteAfterRead});
  }
  // If the op itself has read, its read is after the writer already. It may
  // have written: to a tile whose span reaches over this one.
  if (readers.empty() && writer != kNever && writer != now) {
    conflicts.push_back({writer, Hazard::kWriteAfterWrite});
  }
  writer = now;
  readers.clear();
}

void BufferHistory::CutIntoPieces() {
  if (pieces_ != nullptr) return;
  pieces_ = std::make_unique<Pieces>();
  pieces_->emplace(0, std::move(whole_));
}

BufferHistory::Pieces::iterator BufferHistory::Cut(uint64_t offset) {
  if (offset == count_) return pieces_->end();
  auto next = pieces_->upper_bound(offset);
  const auto piece = std::prev(next);
  if (piece->first == offset) return piece;
  Cell copy = piece->second;  // inserting moves the pieces
  return pieces_->emplace_hint(next, offset, std::move(copy));
}

void BufferHistory::UseGrid(TileGrid grid) {
  gridded_ = std::make_unique<Gridded>(Gridded{std::move(grid), {}});
  gridded_->cells.resize(gridded_->grid.num_cells());
}

void BufferHistory::Read(Extent extent, Time now,
                         std::vector<Conflict>& conflicts) {
  if (gridded_ == nullptr) {
    ReadRange({extent.offset, extent.end() - extent.offset}, now, conflicts);
    return;
  }
  gridded_->grid.ForEachCell(
      extent, [&](size_t cell) { gridded_->cells[cell].Read(now, conflicts); });
}

void BufferHistory::Write(Extent extent, Time now,
                          std::vector<Conflict>& conflicts) {
  if (gridded_ == nullptr) {
    WriteRange({extent.offset, extent.end() - extent.offset}, now, conflicts);
    return;
  }
  gridded_->grid.ForEachCell(extent, [&](size_t cell) {
    gridded_->cells[cell].Write(now, conflicts);
  });
}

void BufferHistory::ReadRange(Extent extent, Time now,
                              std::vector<Conflict>& conflicts) {
  if (IsWhole(extent) && pieces_ == nullptr) {
    whole_.Read(now, conflicts);
    return;
  }
  CutIntoPieces();
  Cut(extent.offset + extent.count);
  for (auto piece = Cut(extent.offset);
       piece != pieces_->end() && piece->first < extent.offset + extent.count;
       ++piece) {
    piece->second.Read(now, conflicts);
  }
}

void BufferHistory::WriteRange(Extent extent, Time now,
                               std::vector<Conflict>& conflicts) {
  if (IsWhole(extent) && pieces_ == nullptr) {
    whole_.Write(now, conflicts);
    return;
  }
  CutIntoPieces();
  const uint64_t end = extent.offset + extent.count;
  Cut(end);
  const auto first = Cut(extent.offset);
  auto last = first;
  for (; last != pieces_->end() && last->first < end; ++last) {
    last->second.Write(now, conflicts);
  }
  if (IsWhole(extent)) {
    whole_ = std::move(first->second);
    pieces_.reset();
  } else {
    pieces_->erase(std::next(first), last);
  }
}

}  // namespace commsched
