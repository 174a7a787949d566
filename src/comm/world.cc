#include "comm/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "comm/control_meeting.h"
#include "comm/memory_meeting.h"
#include "comm/plugin_registry.h"
#include "comm/table_support.h"

namespace commsched {
namespace {

constexpr int kMaxRanks = 4096;
// How long the end of a world waits for ranks that neither come nor go.
constexpr int64_t kEndNs = int64_t{60} * 1000 * 1000 * 1000;
// How long a rank waits for the server to take a value.
constexpr int64_t kPutNs = int64_t{60} * 1000 * 1000 * 1000;

absl::Status CheckSize(int size) {
  if (size >= 1 && size <= kMaxRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a world has 1..", kMaxRanks, " ranks, not ", size));
}

absl::StatusOr<const commsched_backend_t*> TableOf(const WorldSpec& spec) {
  if (spec.table != nullptr) return spec.table;
  return PluginRegistry::Process().Backend(spec.backend);
}

// ---- What a backend exchanges with its peers (commsched_oob_t) ----

std::string OobKey(const char* key) { return absl::StrCat("backend ", key); }

commsched_status_t Put(void* user, const char* key, const void* value,
                       uint64_t bytes, char* message, uint64_t message_size) {
  const absl::string_view view(static_cast<const char*>(value), bytes);
  return ToTable(
      static_cast<Job*>(user)->client().Put(OobKey(key), view, kPutNs), message,
      message_size);
}

commsched_status_t Get(void* user, const char* key, void* value,
                       uint64_t* bytes, int64_t deadline_ns, char* message,
                       uint64_t message_size) {
  const int64_t timeout_ns =
      std::max<int64_t>(0, deadline_ns - SystemClock::Get().NowNs());
  auto got = static_cast<Job*>(user)->client().Get(OobKey(key), timeout_ns);
  absl::Status status = got.status();
  if (got.ok() && got->size() > *bytes) {
    status = absl::OutOfRangeError(
        absl::StrCat("value of key '", key, "' has ", got->size(),
                     " bytes, room for ", *bytes, " was given"));
  }
  if (got.ok()) *bytes = got->size();
  if (status.ok() && !got->empty()) {
    std::memcpy(value, got->data(), got->size());
  }
  return ToTable(status, message, message_size);
}

}  // namespace

World::World(WorldSpec spec, const commsched_backend_t* table)
    : spec_(std::move(spec)), table_(table) {}

World::~World() {
  if (created_ && job_ != nullptr) {
    // Who still waits for this rank learns that it does not come.
    job_->client().Leave(kEndNs);
  }
  if (created_) table_->instance_destroy(instance_);
}

absl::StatusOr<std::shared_ptr<World>> World::Create(const WorldSpec& spec) {
  RETURN_IF_ERROR(CheckSize(spec.size));
  ASSIGN_OR_RETURN(const commsched_backend_t* table, TableOf(spec));
  std::shared_ptr<World> world(new World(spec, table));
  world->local_size_ = spec.size;
  world->taken_.resize(static_cast<size_t>(spec.size));
  world->meeting_ = std::make_unique<MemoryMeeting>(spec.size);
  RETURN_IF_ERROR(world->CreateInstance());
  return world;
}

absl::StatusOr<std::shared_ptr<World>> World::Join(const WorldSpec& spec,
                                                   JobSpec job) {
  const LaunchEnvironment environment = job.environment;
  RETURN_IF_ERROR(CheckSize(environment.size));
  ASSIGN_OR_RETURN(const commsched_backend_t* table, TableOf(spec));
  if ((table->capabilities & COMMSCHED_BACKEND_PROCESSES) == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "backend '", table->name, "' connects threads of one process, not the ",
        environment.size, " processes of this job"));
  }
  std::shared_ptr<World> world(new World(spec, table));
  world->spec_.size = environment.size;
  world->own_rank_ = environment.rank;
  world->local_size_ = environment.local_size;
  world->taken_.resize(static_cast<size_t>(environment.size));
  World* const raw = world.get();
  job.on_lost = [raw](int /*rank*/, const std::string& why) {
    raw->OnLost(why);
  };
  ASSIGN_OR_RETURN(world->job_, Job::Join(std::move(job)));
  world->meeting_ = std::make_unique<ControlMeeting>(&world->job_->client(),
                                                     environment.rank);
  RETURN_IF_ERROR(world->CreateInstance());
  return world;
}

absl::Status World::CreateInstance() {
  commsched_instance_desc_t desc = {};
  desc.struct_size = sizeof(desc);
  desc.world_size = spec_.size;
  desc.config = spec_.backend_config.c_str();
  desc.world_rank = own_rank_;
  if (job_ != nullptr) {
    oob_ = {.struct_size = sizeof(oob_),
            .user = job_.get(),
            .put = &Put,
            .get = &Get};
    desc.oob = &oob_;
  }
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

absl::Status World::AcquireRank(int rank) {
  if (rank < 0 || rank >= spec_.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in 0..", spec_.size - 1));
  }
  if (own_rank_ != kAllRanks && rank != own_rank_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " is another process; this one is rank ", own_rank_));
  }
  MutexLock lock(&mu_);
  if (taken_[rank]) {
    return absl::AlreadyExistsError(absl::StrCat(
        "rank ", rank, " of this world already has a live context"));
  }
  taken_[rank] = true;
  return absl::OkStatus();
}

void World::ReleaseRank(int rank) {
  MutexLock lock(&mu_);
  taken_[rank] = false;
}

void World::Watch(const std::shared_ptr<LossWatcher>& watcher) {
  absl::Status lost;
  {
    MutexLock lock(&mu_);
    std::erase_if(watchers_, [](const auto& other) { return other.expired(); });
    watchers_.push_back(watcher);
    lost = lost_;
  }
  if (!lost.ok()) watcher->OnLost(lost);
}

// The first counts: what follows it is its consequence.
void World::OnLost(const std::string& why) {
  const absl::Status status = absl::AbortedError(why);
  std::vector<std::weak_ptr<LossWatcher>> watchers;
  {
    MutexLock lock(&mu_);
    if (!lost_.ok()) return;
    lost_ = status;
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) {
    const auto alive = watcher.lock();
    if (alive != nullptr) alive->OnLost(status);
  }
}

}  // namespace commsched
