#include "comm/world.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "comm/memory_meeting.h"
#include "comm/registry.h"

namespace commsched {
namespace {

constexpr int kMaxRanks = 4096;

absl::Status CheckSpec(const WorldSpec& spec) {
  if (spec.size < 1 || spec.size > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a world has 1..", kMaxRanks, " ranks, not ", spec.size));
  }
  if (!std::isfinite(spec.link.bytes_per_s) || spec.link.bytes_per_s < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the link has ", spec.link.bytes_per_s,
                     " bytes/s; it must be finite and not negative"));
  }
  if (spec.link.latency_ns < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the link has a latency of ", spec.link.latency_ns, " ns"));
  }
  if (spec.link.latency_ns > 0 && spec.link.bytes_per_s == 0) {
    return absl::InvalidArgumentError(absl::StrCat("the link has a latency of ",
                                                   spec.link.latency_ns,
                                                   " ns but no bandwidth"));
  }
  return absl::OkStatus();
}

class InprocWorld final : public World {
 public:
  InprocWorld(WorldSpec spec, BackendEntry entry,
              std::shared_ptr<void> instance)
      : spec_(std::move(spec)),
        entry_(entry),
        instance_(std::move(instance)),
        meeting_(spec_.size),
        taken_(spec_.size, false) {}

  const WorldSpec& spec() const override { return spec_; }
  Meeting* meeting() override { return &meeting_; }
  const commsched_backend_t* backend() const override { return entry_.table; }
  void* backend_instance() override { return instance_.get(); }

  absl::Status AcquireRank(int rank) override {
    if (rank < 0 || rank >= spec_.size) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " is not in 0..", spec_.size - 1));
    }
    MutexLock lock(&mu_);
    if (taken_[rank]) {
      return absl::AlreadyExistsError(absl::StrCat(
          "rank ", rank, " of this world already has a live context"));
    }
    taken_[rank] = true;
    return absl::OkStatus();
  }

  void ReleaseRank(int rank) override {
    MutexLock lock(&mu_);
    taken_[rank] = false;
  }

 private:
  // Constant after construction.
  const WorldSpec spec_;
  const BackendEntry entry_;
  const std::shared_ptr<void> instance_;

  MemoryMeeting meeting_;

  Mutex mu_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<World>> World::Create(const WorldSpec& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  ASSIGN_OR_RETURN(BackendEntry entry, FindBackend(spec.backend));
  ASSIGN_OR_RETURN(std::shared_ptr<void> instance, entry.make_instance(spec));
  return std::shared_ptr<World>(
      std::make_shared<InprocWorld>(spec, entry, std::move(instance)));
}

}  // namespace commsched
