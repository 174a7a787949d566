#include "comm/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/running_clock.h"
#include "base/status_macros.h"
#include "comm/link_profile.h"
#include "comm/meeting/control_meeting.h"
#include "comm/meeting/control_store.h"
#include "comm/meeting/memory_meeting.h"
#include "comm/meeting/memory_store.h"
#include "comm/plugin/registry.h"
#include "comm/plugin/table_support.h"
#include "device/host_device.h"

namespace commsched {
namespace {

// How long the end of a world waits for ranks that neither come nor go.
constexpr int64_t kEndNs = int64_t{60} * 1000 * 1000 * 1000;
// The same after a failure, with all that sessions wait for as they end.
constexpr int64_t kFailedEndNs = int64_t{1} * 1000 * 1000 * 1000;
// How much later than the server a rank gives up those that do not join.
constexpr int64_t kRosterGraceNs = int64_t{10} * 1000 * 1000 * 1000;
// Scopes with this bit, and without that of channels, are those of generations
// of communicators.
constexpr uint64_t kKeptBit = uint64_t{1} << 61;

absl::Status CheckSize(int size) {
  if (size >= 1 && size <= World::kMaxRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a world has 1..", World::kMaxRanks, " ranks, not ", size));
}

absl::StatusOr<const commsched_backend_t*> TableOf(const WorldSpec& spec) {
  if (spec.table != nullptr) return spec.table;
  return PluginRegistry::Process().Backend(spec.backend);
}

}  // namespace

World::World(WorldSpec spec, const commsched_backend_t* table)
    : spec_(std::move(spec)), table_(table) {}

World::~World() {
  AwaitParts();
  if (created_ && all_ != nullptr && is_agreed_) LeavePart();
  if (created_ && job_ != nullptr) {
    // Who still waits for this rank learns that it does not come, and gets
    // what this rank has sent.
    const BackendRank::Driven driven(Opened());
    job_->Leave(EndTimeoutNs());
  }
  if (job_ != nullptr) {
    orders_->SayBy(nullptr);
  }
  // Nobody has launches under way any more, unless something has failed.
  CloseKeepers();
  {
    MutexLock lock(&ranks_mu_);
    driven_.reset();
    ranks_.clear();
  }
  if (created_) table_->instance_destroy(instance_);
}

absl::StatusOr<std::shared_ptr<World>> World::Create(const WorldSpec& spec) {
  RETURN_IF_ERROR(CheckSize(spec.size));
  ASSIGN_OR_RETURN(const commsched_backend_t* table, TableOf(spec));
  std::shared_ptr<World> world(new World(spec, table));
  world->local_size_ = spec.size;
  world->num_sharing_ = spec.size;
  world->meeting_ = std::make_unique<MemoryMeeting>(spec.size);
  world->store_ = std::make_unique<MemoryStore>();
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
  world->epoch_ = environment.epoch;
  world->local_rank_ = environment.local_rank;
  world->local_size_ = environment.local_size;
  world->num_sharing_ = environment.local_size;
  world->join_timeout_ns_ = job.timeout_ns;
  World* const raw = world.get();
  // Who has lost the server meets nobody any more, in no part of the job; as
  // has who is given up by the others.
  const bool rank_0_serves =
      environment.rank_0_serves || environment.server_host.empty();
  job.on_lost = [raw, rank_0_serves](int rank, const std::string& why) {
    const bool loses_all = rank == ControlClientSpec::kServer ||
                           rank == raw->own_rank_ ||
                           (rank == 0 && rank_0_serves);
    raw->board_->OnLost(loses_all ? FailureBoard::kEveryRank : rank,
                        rank == ControlClientSpec::kServer
                            ? absl::UnavailableError(why)
                            : absl::AbortedError(why));
  };
  job.on_failed = [raw](int rank, uint64_t scope, const absl::Status& why) {
    raw->board_->OnFailed(rank, scope, why);
  };
  job.on_orders_differ =
      [orders = world->orders_](const OrderDifference& difference) {
        orders->OnDiffer(difference);
      };
  if (spec.links.has_value()) job.links = EncodeLinks(*spec.links);
  ASSIGN_OR_RETURN(world->job_, Job::Join(std::move(job)));
  world->orders_->SayBy(
      [client = &world->job_->client()](const OrderSlice& slice) {
        client->SayOrder(slice);
      });
  world->meeting_ =
      std::make_unique<ControlMeeting>(&world->job_->client(), environment.rank,
                                       [raw] { return raw->Opened(); });
  world->store_ =
      std::make_unique<ControlStore>(&world->job_->client(), world->part_);
  RETURN_IF_ERROR(world->CreateInstance());
  return world;
}

Device* World::device(int rank) const { return SharedDevice(rank).get(); }

// Of a rank that lives in this process. They stay with the world.
DeviceLanes* World::LanesOf(int rank) {
  const size_t index = IndexOf(rank);
  MutexLock lock(&mu_);
  if (lanes_[index] == nullptr) {
    lanes_[index] = DeviceLanes::Of(*device(rank), seats_[index]);
  }
  return lanes_[index].get();
}

const std::shared_ptr<Device>& World::SharedDevice(int rank) const {
  return spec_.devices.empty() ? SharedHostDevice()
                               : spec_.devices[IndexOf(rank)];
}

LaneBudget World::BudgetOf(int rank) const {
  return LaneBudget::Of(device(rank)->num_multiprocessors(),
                        spec_.backend_config);
}

absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> World::BorrowLanes(
    int rank, absl::Span<const LaneKey> keys, LanesInUse* in_use) {
  RETURN_IF_ERROR(CheckOwn(rank));
  return LanesOf(rank)->Borrow(SharedDevice(rank), BudgetOf(rank), keys,
                               in_use);
}

absl::StatusOr<std::vector<std::shared_ptr<DeviceLane>>> World::BorrowLanesAt(
    int rank, absl::Span<const LaneKey> keys,
    absl::Span<const uint32_t> numbers) {
  RETURN_IF_ERROR(CheckOwn(rank));
  return LanesOf(rank)->BorrowAt(SharedDevice(rank), BudgetOf(rank), keys,
                                 numbers);
}

std::unique_ptr<LaneQueue> World::AddQueue(DeviceLane* lane, int rank,
                                           const std::string& what,
                                           absl::Span<const int> members,
                                           const void* owner) {
  LaneQueueSpec spec;
  for (const int member : members) spec.members.push_back(OriginOf(member));
  spec.rank = OriginOf(rank);
  spec.id = orders_->Numbered(spec.rank,
                              absl::StrCat(part_->id(), "\n", what, "\n",
                                           absl::StrJoin(spec.members, ",")));
  spec.name =
      name().empty() ? what : absl::StrCat(what, " of world '", name(), "'");
  spec.owner = owner;
  spec.board = orders_;
  return lane->order()->Add(std::move(spec));
}

int World::OriginOf(int rank) const {
  return origins_.empty() ? part_->JobRank(rank)
                          : origins_[static_cast<size_t>(rank)];
}

void World::TakeSeats() {
  absl::flat_hash_map<int, int> num_on;  // By device.
  const int ranks = own_rank_ == kAllRanks ? spec_.size : 1;
  for (int rank = 0; rank < ranks; ++rank) {
    seats_.push_back(num_on[device(rank)->ordinal()]++);
  }
}

absl::Status World::CheckDevices() const {
  const size_t ranks =
      own_rank_ == kAllRanks ? static_cast<size_t>(spec_.size) : 1;
  if (!spec_.devices.empty() && spec_.devices.size() != ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("world: ", spec_.devices.size(), " devices for ", ranks,
                     " ranks of this process"));
  }
  const uint32_t kinds = table_->memory_kinds == 0 ? 1u << COMMSCHED_DEVICE_HOST
                                                   : table_->memory_kinds;
  for (size_t i = 0; i < ranks; ++i) {
    const Device& of_rank = *device(static_cast<int>(i));
    if ((kinds >> of_rank.kind() & 1) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("backend '", table_->name,
                                                   "' does not move memory of ",
                                                   of_rank.name()));
  }
  return absl::OkStatus();
}

absl::Status World::CreateInstance() {
  RETURN_IF_ERROR(CheckDevices());
  if (seats_.empty()) TakeSeats();
  {
    MutexLock lock(&ranks_mu_);
    ranks_.resize(static_cast<size_t>(spec_.size));
    keepers_.resize(static_cast<size_t>(spec_.size));
  }
  {
    MutexLock lock(&mu_);
    lanes_.resize(seats_.size());
    taken_.resize(static_cast<size_t>(spec_.size));
    splits_.resize(static_cast<size_t>(spec_.size));
  }
  commsched_instance_desc_t desc = {};
  desc.struct_size = sizeof(desc);
  desc.world_size = spec_.size;
  desc.world_rank = own_rank_;
  desc.config = spec_.backend_config.c_str();
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

absl::Status World::CheckOwn(int rank) const {
  if (rank < 0 || rank >= spec_.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in 0..", spec_.size - 1));
  }
  if (own_rank_ == kAllRanks || rank == own_rank_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", rank, " is another process; this one is rank ", own_rank_));
}

BackendRank* World::Opened() {
  MutexLock lock(&ranks_mu_);
  return ranks_[static_cast<size_t>(own_rank_)].get();
}

absl::StatusOr<Roster> World::WaitForRoster() {
  if (roster_.has_value()) return *roster_;
  if (job_ == nullptr) return Roster();
  MutexLock lock(&roster_mu_);
  // Ends by the others' limit, not by this one.
  return job_->client().WaitForRoster(
      DeadlineAfter(job_->timeout_ns(), kRosterGraceNs));
}

absl::StatusOr<std::optional<commsched_link_profile_t>> World::Links() {
  ASSIGN_OR_RETURN(const Roster roster, WaitForRoster());
  return DecodeLinks(roster.links);
}

absl::StatusOr<BackendRank*> World::Rank(int rank) {
  RETURN_IF_ERROR(CheckOwn(rank));
  MutexLock lock(&ranks_mu_);
  std::unique_ptr<BackendRank>& opened = ranks_[static_cast<size_t>(rank)];
  if (opened != nullptr) return opened.get();
  ASSIGN_OR_RETURN(Roster roster, WaitForRoster());
  ASSIGN_OR_RETURN(auto links, DecodeLinks(roster.links));
  ASSIGN_OR_RETURN(
      opened, BackendRank::Open(
                  {.table = table_,
                   .instance = instance_,
                   .store = store_.get(),
                   .epoch = epoch_,
                   .world_rank = rank,
                   .world_size = spec_.size,
                   .local_rank = own_rank_ == kAllRanks ? rank : local_rank_,
                   .local_size = local_size_,
                   .num_sharing = num_sharing_,
                   .device = device(rank),
                   .roster = std::move(roster),
                   .links = std::move(links)}));
  if (all_ != nullptr) {
    driven_ = std::make_unique<BackendRank::Driven>(opened.get());
  }
  return opened.get();
}

// ---- Communicators ----

absl::StatusOr<CommKeeper*> World::Keeper(int rank) {
  ASSIGN_OR_RETURN(BackendRank* const opened, Rank(rank));
  MutexLock lock(&ranks_mu_);
  std::unique_ptr<CommKeeper>& keeper = keepers_[static_cast<size_t>(rank)];
  if (keeper == nullptr) {
    CommKeeper::Spec spec;
    spec.rank = opened;
    spec.watch = [this, rank](const std::shared_ptr<FailureWatcher>& watcher,
                              uint64_t number) {
      Watch(watcher, rank, kKeptBit | number);
    };
    spec.tell = [this, rank](uint64_t number, const absl::Status& why) {
      TellKept(rank, number, why);
    };
    keeper = std::make_unique<CommKeeper>(std::move(spec));
  }
  return keeper.get();
}

// What was told before, of a session, has the name of the world.
void World::TellKept(int rank, uint64_t number, const absl::Status& why) {
  absl::string_view message = why.message();
  if (!name().empty()) {
    absl::ConsumePrefix(&message, absl::StrCat("world '", name(), "': "));
  }
  Tell(rank, kKeptBit | number, absl::Status(why.code(), message));
}

void World::CloseKeepers() {
  std::vector<std::unique_ptr<CommKeeper>> keepers;
  {
    MutexLock lock(&ranks_mu_);
    keepers = std::move(keepers_);
  }
  for (const std::unique_ptr<CommKeeper>& keeper : keepers) {
    if (keeper == nullptr) continue;
    // Sessions have waited for those that have failed.
    const int64_t timeout_ns = std::max(EndTimeoutNs(), kFailedEndNs);
    keeper->Close(DeadlineAfter(SystemClock::Get().NowNs(), timeout_ns));
  }
}

absl::Status World::AcquireRank(int rank) {
  RETURN_IF_ERROR(CheckOwn(rank));
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

// ---- Failures ----

void World::Watch(const std::shared_ptr<FailureWatcher>& watcher, int rank,
                  uint64_t scope, absl::Span<const int> members) {
  FailureBoard::Concern concern = {.part = part_,
                                   .rank = part_->JobRank(rank),
                                   .scope = ScopeOf(scope),
                                   .members = {}};
  for (int member : members) concern.members.push_back(part_->JobRank(member));
  board_->Watch(watcher, std::move(concern));
}

void World::Tell(int rank, uint64_t scope, const absl::Status& why) {
  Job* const job = all_ == nullptr ? job_.get() : all_->job_.get();
  const absl::Status told = part_->Named(why);
  if (job == nullptr) return board_->OnFailed(rank, scope, told);
  board_->NoteFailure(*part_);
  job->client().Fail(ScopeOf(scope), told);
}

void World::Recovered(uint64_t scope) {
  board_->Recovered(*part_, ScopeOf(scope));
}

// What is left of the time that a failure gives.
int64_t World::EndTimeoutNs() {
  const int64_t failed_ns = board_->FailedSinceNs(*part_);
  if (failed_ns == 0) return kEndNs;
  const int64_t since_ns = RunningClock::Get().NowNs() - failed_ns;
  return std::max<int64_t>(0, kFailedEndNs - since_ns);
}

}  // namespace commsched
