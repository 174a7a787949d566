#ifndef COMMSCHED_SRC_CAPI_CONTEXT_H_
#define COMMSCHED_SRC_CAPI_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/meeting/comparison.h"
#include "comm/world.h"

namespace commsched {

// A world, and how many sessions and comparisons each of its ranks has made.
// The numbers belong to the world rather than to a context, since ranks meet by
// them and a rank may have one context after another.
//
// Thread-safe.
class RankedWorld {
 public:
  explicit RankedWorld(std::shared_ptr<World> world);

  const std::shared_ptr<World>& world() const { return world_; }
  int size() const { return world_->spec().size; }
  // 0, 1, 2 ... for `rank`.
  uint64_t TakeSessionNumber(int rank) { return next_session_[rank]++; }
  // The same for the gatherings of `rank` that are called `name`.
  uint64_t TakeGatherNumber(int rank, const std::string& name) {
    MutexLock lock(&mu_);
    return next_gather_[{rank, name}]++;
  }
  // The same for the channels of `rank` in the group `name`.
  uint64_t TakeChannelNumber(int rank, const std::string& name) {
    MutexLock lock(&mu_);
    return next_channel_[{rank, name}]++;
  }
  Comparisons& comparisons(int rank) { return *comparisons_[rank]; }

 private:
  const std::shared_ptr<World> world_;
  Mutex mu_;
  absl::flat_hash_map<std::pair<int, std::string>, uint64_t> next_gather_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::pair<int, std::string>, uint64_t> next_channel_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::atomic<uint64_t>> next_session_;
  std::vector<std::unique_ptr<Comparisons>> comparisons_;  // By rank.
};

// One rank, held while the context lives.
//
// Thread-safe.
class Context {
 public:
  // kInvalidArgument if `rank` is outside the world, kAlreadyExists if another
  // context holds it.
  static absl::StatusOr<std::shared_ptr<Context>> Create(
      std::shared_ptr<RankedWorld> world, int rank);

  // The rank that this one is in a world of `members`, as World::Split().
  absl::StatusOr<std::shared_ptr<Context>> Split(absl::Span<const int> members,
                                                 const std::string& name,
                                                 int64_t timeout_ns);

  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { world()->ReleaseRank(rank_); }

  const std::shared_ptr<World>& world() const { return world_->world(); }
  int rank() const { return rank_; }
  Device* device() const { return world()->device(rank_); }
  int world_size() const { return world_->size(); }
  uint64_t TakeSessionNumber() { return world_->TakeSessionNumber(rank_); }
  uint64_t TakeGatherNumber(const std::string& name) {
    return world_->TakeGatherNumber(rank_, name);
  }
  uint64_t TakeChannelNumber(const std::string& name) {
    return world_->TakeChannelNumber(rank_, name);
  }
  Comparisons& comparisons() { return world_->comparisons(rank_); }

 private:
  Context(std::shared_ptr<RankedWorld> world, int rank)
      : world_(std::move(world)), rank_(rank) {}

  const std::shared_ptr<RankedWorld> world_;
  const int rank_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_CONTEXT_H_
