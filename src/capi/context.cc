#include "capi/context.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {

RankedWorld::RankedWorld(std::shared_ptr<World> world)
    : world_(std::move(world)), next_session_(world_->spec().size) {
  for (int rank = 0; rank < size(); ++rank) {
    comparisons_.push_back(
        std::make_unique<Comparisons>(world_->meeting(), rank));
  }
}

absl::StatusOr<std::shared_ptr<Context>> Context::Create(
    std::shared_ptr<RankedWorld> world, int rank) {
  if (rank < 0 || rank >= world->size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " is outside the world, 0..", world->size() - 1));
  }
  RETURN_IF_ERROR(world->world()->AcquireRank(rank));
  return std::shared_ptr<Context>(new Context(std::move(world), rank));
}

absl::StatusOr<std::shared_ptr<Context>> Context::Split(
    absl::Span<const int> members, const std::string& name,
    int64_t timeout_ns) {
  ASSIGN_OR_RETURN(std::shared_ptr<World> part,
                   world()->Split(rank_, members, name, timeout_ns));
  const auto rank = static_cast<int>(
      std::find(members.begin(), members.end(), rank_) - members.begin());
  // Numbers of what a rank makes are its own, so that members that are threads
  // need not share them.
  return Create(std::make_shared<RankedWorld>(std::move(part)), rank);
}

}  // namespace commsched
