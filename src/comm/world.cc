#include "comm/world.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "comm/memory_meeting.h"
#include "comm/plugin_registry.h"
#include "comm/table_support.h"

namespace commsched {
namespace {

constexpr int kMaxRanks = 4096;

absl::Status CheckSpec(const WorldSpec& spec) {
  if (spec.size < 1 || spec.size > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a world has 1..", kMaxRanks, " ranks, not ", spec.size));
  }
  return absl::OkStatus();
}

// What the ranks of a world share inside the backend.
class Instance {
 public:
  explicit Instance(const commsched_backend_t* table) : table_(table) {}
  ~Instance() {
    if (created_) table_->instance_destroy(instance_);
  }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  absl::Status Create(const WorldSpec& spec) {
    commsched_instance_desc_t desc = {};
    desc.struct_size = sizeof(desc);
    desc.world_size = spec.size;
    desc.config = spec.backend_config.c_str();
    PluginMessage message;
    const commsched_status_t code = table_->instance_create(
        &desc, &instance_, message.Begin(), PluginMessage::size());
    created_ = code == COMMSCHED_OK;
    if (created_) return absl::OkStatus();
    const absl::Status failure =
        PluginFailure("it", "instance_create", code, message);
    return absl::Status(failure.code(), absl::StrCat("backend '", table_->name,
                                                     "': ", failure.message()));
  }

  const commsched_backend_t* table() const { return table_; }
  void* get() const { return instance_; }

 private:
  const commsched_backend_t* const table_;
  void* instance_ = nullptr;
  bool created_ = false;
};

class InprocWorld final : public World {
 public:
  InprocWorld(WorldSpec spec, std::unique_ptr<Instance> instance)
      : spec_(std::move(spec)),
        instance_(std::move(instance)),
        meeting_(spec_.size),
        taken_(spec_.size, false) {}

  const WorldSpec& spec() const override { return spec_; }
  Meeting* meeting() override { return &meeting_; }
  const commsched_backend_t* backend() const override {
    return instance_->table();
  }
  void* backend_instance() override { return instance_->get(); }

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
  const std::unique_ptr<Instance> instance_;

  MemoryMeeting meeting_;

  Mutex mu_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<World>> World::Create(const WorldSpec& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const commsched_backend_t* table = spec.table;
  if (table == nullptr) {
    ASSIGN_OR_RETURN(table, PluginRegistry::Process().Backend(spec.backend));
  }
  auto instance = std::make_unique<Instance>(table);
  RETURN_IF_ERROR(instance->Create(spec));
  return std::shared_ptr<World>(
      std::make_shared<InprocWorld>(spec, std::move(instance)));
}

}  // namespace commsched
