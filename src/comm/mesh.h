#ifndef COMMSCHED_SRC_COMM_MESH_H_
#define COMMSCHED_SRC_COMM_MESH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

// Position of `world_rank` in `ranks`, the group on `axis` in a world of
// `world_size`. kInvalidArgument if the axis has no name, the group no ranks or
// one of them twice; kOutOfRange if one is not in the world; kNotFound if
// `world_rank` is not among them.
absl::StatusOr<int> RankInGroup(absl::string_view axis,
                                const std::vector<int>& ranks, int world_rank,
                                int world_size);

// The world as a row-major array with named axes; the last axis varies
// fastest.
//
// Immutable, so thread-safe.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 0;
  };

  // kInvalidArgument if there are no axes, a name is empty or there twice, a
  // size is below 1, or the sizes do not multiply to `world_size`.
  static absl::StatusOr<Mesh> Create(std::vector<Axis> axes, int world_size);

  // The ranks that differ from `rank` along `axis` only, in axis order. `rank`
  // is in the world. kNotFound if no axis has that name.
  absl::StatusOr<std::vector<int>> RanksAlong(absl::string_view axis,
                                              int rank) const;

 private:
  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  std::vector<Axis> axes_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MESH_H_
