#include "comm/mesh.h"

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace commsched {
namespace {

std::string DescribeAxes(const std::vector<Mesh::Axis>& axes) {
  return absl::StrJoin(axes, " x ",
                       [](std::string* out, const Mesh::Axis& axis) {
                         absl::StrAppend(out, axis.name, " ", axis.size);
                       });
}

}  // namespace

absl::StatusOr<int> RankInGroup(absl::string_view axis,
                                const std::vector<int>& ranks, int world_rank,
                                int world_size) {
  if (axis.empty()) {
    return absl::InvalidArgumentError("the axis of a group has no name");
  }
  if (ranks.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the group on '", axis, "' has no ranks"));
  }
  int position = -1;
  absl::flat_hash_set<int> seen;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    if (ranks[i] < 0 || ranks[i] >= world_size) {
      return absl::OutOfRangeError(
          absl::StrCat("rank ", ranks[i], " of the group on '", axis,
                       "' is outside the world, 0..", world_size - 1));
    }
    if (!seen.insert(ranks[i]).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", ranks[i], " appears twice in the group on '", axis, "'"));
    }
    if (ranks[i] == world_rank) position = i;
  }
  if (position < 0) {
    return absl::NotFoundError(absl::StrCat("rank ", world_rank,
                                            " is not in the group on '", axis,
                                            "': ", absl::StrJoin(ranks, ", ")));
  }
  return position;
}

absl::StatusOr<Mesh> Mesh::Create(std::vector<Axis> axes, int world_size) {
  if (axes.empty()) return absl::InvalidArgumentError("the mesh has no axes");
  absl::flat_hash_set<absl::string_view> names;
  int64_t product = 1;
  for (const Axis& axis : axes) {
    if (axis.name.empty()) {
      return absl::InvalidArgumentError("an axis of the mesh has no name");
    }
    if (!names.insert(axis.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the mesh has the axis '", axis.name, "' twice"));
    }
    if (axis.size < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "axis '", axis.name, "' has size ", axis.size, ", below 1"));
    }
    product *= axis.size;
    if (product > world_size) break;  // And no overflow.
  }
  if (product != world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mesh ", DescribeAxes(axes), " does not cover the ",
                     world_size, " ranks of the world"));
  }
  return Mesh(std::move(axes));
}

absl::StatusOr<std::vector<int>> Mesh::RanksAlong(absl::string_view axis,
                                                  int rank) const {
  int stride = 1;
  for (size_t i = axes_.size(); i-- > 0;) {
    const int size = axes_[i].size;
    if (axes_[i].name != axis) {
      stride *= size;
      continue;
    }
    const int first = rank - rank / stride % size * stride;
    std::vector<int> ranks(size);
    for (int k = 0; k < size; ++k) ranks[k] = first + k * stride;
    return ranks;
  }
  return absl::NotFoundError(absl::StrCat(
      "no axis is called '", axis, "' in the mesh ", DescribeAxes(axes_)));
}

}  // namespace commsched
