// A world of some ranks of a world.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "comm/hosts.h"
#include "comm/meeting/control_store.h"
#include "comm/meeting/memory_meeting.h"
#include "comm/meeting/memory_store.h"
#include "comm/meeting/part_meeting.h"
#include "comm/world.h"
#include "control/claims.h"

namespace commsched {
namespace {

// Of members, in a message.
constexpr size_t kMaxNamed = 16;

std::string Listed(absl::Span<const int> members) {
  const size_t named = std::min(members.size(), kMaxNamed);
  const std::string text = absl::StrJoin(members.subspan(0, named), ", ");
  if (named == members.size()) return text;
  return absl::StrCat(text, " and ", members.size() - named, " more");
}

absl::Status RefuseSplit(absl::StatusCode code, absl::string_view name,
                         absl::string_view what) {
  return absl::Status(code, absl::StrCat("split '", name, "': ", what));
}

std::vector<int> JobRanksOf(const JobPart& part, absl::Span<const int> ranks) {
  std::vector<int> job_ranks;
  for (const int rank : ranks) job_ranks.push_back(part.JobRank(rank));
  return job_ranks;
}

Roster RosterOf(const Roster& all, absl::Span<const int> ranks) {
  Roster part;
  part.links = all.links;
  for (const int rank : ranks) {
    part.hosts.push_back(all.hosts[static_cast<size_t>(rank)]);
    part.networks.push_back(all.networks[static_cast<size_t>(rank)]);
  }
  return part;
}

}  // namespace

absl::StatusOr<std::shared_ptr<World>> World::Split(
    int rank, absl::Span<const int> members, absl::string_view name,
    int64_t timeout_ns) {
  RETURN_IF_ERROR(CheckSplit(rank, members, name));
  ASSIGN_OR_RETURN(const std::string id, BeginSplit(rank, members, name));
  const absl::Cleanup end = [&] { EndSplit(rank); };
  auto part = SplitAs(id, rank, members, name, timeout_ns);
  if (part.ok()) return part;
  const absl::Status& failure = part.status();
  return absl::Status(
      failure.code(),
      absl::StrReplaceAll(failure.message(), {{absl::StrCat(", ", id), ""}}));
}

absl::Status World::CheckSplit(int rank, absl::Span<const int> members,
                               absl::string_view name) const {
  RETURN_IF_ERROR(CheckOwn(rank));
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("split: the name has ", name.size(),
                     " bytes; it must have 1..", kMaxNameBytes));
  }
  if (std::any_of(name.begin(), name.end(),
                  [](char each) { return each < ' ' || each > '~'; })) {
    return absl::InvalidArgumentError(
        "split: the name has characters that are not printable ASCII");
  }
  if (members.empty()) {
    return RefuseSplit(absl::StatusCode::kInvalidArgument, name,
                       "it has no members");
  }
  std::vector<bool> seen(static_cast<size_t>(spec_.size));
  for (const int member : members) {
    if (member < 0 || member >= spec_.size) {
      return RefuseSplit(
          absl::StatusCode::kOutOfRange, name,
          absl::StrCat("rank ", member, " is outside the world, 0..",
                       spec_.size - 1));
    }
    if (seen[static_cast<size_t>(member)]) {
      return RefuseSplit(absl::StatusCode::kInvalidArgument, name,
                         absl::StrCat("rank ", member, " is named twice"));
    }
    seen[static_cast<size_t>(member)] = true;
  }
  if (seen[static_cast<size_t>(rank)]) return absl::OkStatus();
  return RefuseSplit(
      absl::StatusCode::kNotFound, name,
      absl::StrCat("rank ", rank, ", which calls, is not among its members: ",
                   Listed(members)));
}

// Returns what the part is known by: equal on all members, which have called as
// often with these arguments, and different for every other part.
absl::StatusOr<std::string> World::BeginSplit(int rank,
                                              absl::Span<const int> members,
                                              absl::string_view name) {
  const std::string what =
      absl::StrCat(part_->id(), "\n", name, "\n", absl::StrJoin(members, ","));
  MutexLock lock(&mu_);
  if (splits_[static_cast<size_t>(rank)]) {
    return absl::FailedPreconditionError(
        absl::StrCat("split '", name, "': another thread of rank ", rank,
                     " splits the same world; one after the other"));
  }
  splits_[static_cast<size_t>(rank)] = true;
  const uint64_t number = num_splits_[{rank, what}]++;
  const Claim hash = Claim::Of("", absl::StrCat(what, "\n", number));
  return absl::StrFormat("part %016x%016x", hash.value_high, hash.value_low);
}

void World::EndSplit(int rank) {
  MutexLock lock(&mu_);
  splits_[static_cast<size_t>(rank)] = false;
}

absl::StatusOr<std::shared_ptr<World>> World::SplitAs(
    const std::string& id, int rank, absl::Span<const int> members,
    absl::string_view name, int64_t timeout_ns) {
  const std::string key = absl::StrCat("split into ", name, ", ", id);
  // Before the others wait for this rank.
  RETURN_IF_ERROR(WaitForRoster().status());
  RETURN_IF_ERROR(meeting_->Split(members, key, rank, /*family=*/"",
                                  absl::StrCat("splits the world into '", name,
                                               "' of ranks ", Listed(members)),
                                  timeout_ns));
  if (own_rank_ == kAllRanks) return TakeOfThreads(id, members, name);
  auto part = MakeOfProcesses(id, rank, members, name);
  const std::string made = absl::StrCat(key, ", made");
  if (!part.ok()) {
    meeting_->DeclineAmong(members, made, rank, part.status());
    return part.status();
  }
  RETURN_IF_ERROR(
      meeting_->AllGatherAmong(members, made, rank, "", timeout_ns).status());
  (*part)->is_agreed_ = true;
  return part;
}

// ---- Threads ----

// The first member that comes makes it for all.
absl::StatusOr<std::shared_ptr<World>> World::TakeOfThreads(
    const std::string& id, absl::Span<const int> members,
    absl::string_view name) {
  MutexLock lock(&mu_);
  auto at = making_.find(id);
  if (at == making_.end()) {
    at = making_.emplace(id, Making{MakeOfThreads(id, members, name)}).first;
  }
  Making& making = at->second;
  absl::StatusOr<std::shared_ptr<World>> part = making.part;
  // One of its own: the thread sanitizer does not see that the last of those
  // who share a text frees it.
  if (!part.ok()) {
    part = absl::Status(part.status().code(), part.status().message());
  }
  if (++making.num_taken == members.size()) making_.erase(at);
  return part;
}

absl::StatusOr<std::shared_ptr<World>> World::MakeOfThreads(
    const std::string& id, absl::Span<const int> members,
    absl::string_view name) {
  std::shared_ptr<World> part(new World(spec_, table_));
  part->spec_.size = static_cast<int>(members.size());
  part->spec_.devices.clear();
  for (const int member : members) {
    part->seats_.push_back(seats_[static_cast<size_t>(member)]);
    part->origins_.push_back(OriginOf(member));
    if (spec_.devices.empty()) continue;
    part->spec_.devices.push_back(spec_.devices[static_cast<size_t>(member)]);
  }
  part->local_size_ = part->spec_.size;
  part->num_sharing_ = num_sharing_;
  part->orders_ = orders_;
  part->part_ =
      std::make_shared<JobPart>(id, std::string(name), std::vector<int>());
  part->meeting_ = std::make_unique<MemoryMeeting>(part->spec_.size);
  part->store_ = std::make_unique<MemoryStore>();
  RETURN_IF_ERROR(part->CreateInstance());
  return part;
}

// ---- Processes ----

absl::StatusOr<std::shared_ptr<World>> World::MakeOfProcesses(
    const std::string& id, int rank, absl::Span<const int> members,
    absl::string_view name) {
  ASSIGN_OR_RETURN(const Roster roster, WaitForRoster());
  World* const all = all_ == nullptr ? this : all_;
  std::shared_ptr<World> part(new World(spec_, table_), [](World* ended) {
    // Whoever has the last handle waits for the end of the job only.
    const std::shared_ptr<World> keeps = std::move(ended->keeps_all_);
    keeps->EndPart(ended);
  });
  part->all_ = all;
  part->keeps_all_ = all->shared_from_this();
  part->board_ = all->board_;
  part->orders_ = all->orders_;
  part->part_ = std::make_shared<JobPart>(id, std::string(name),
                                          JobRanksOf(*part_, members));
  const auto own = static_cast<size_t>(
      std::find(members.begin(), members.end(), rank) - members.begin());
  part->own_rank_ = static_cast<int>(own);
  part->spec_.size = static_cast<int>(members.size());
  part->epoch_ = epoch_;
  part->join_timeout_ns_ = join_timeout_ns_;
  part->roster_ = RosterOf(roster, members);
  ASSIGN_OR_RETURN(const std::vector<int32_t> hosts, HostsOf(part.get()));
  const auto at_own = hosts.begin() + static_cast<ptrdiff_t>(own);
  part->local_size_ =
      static_cast<int>(std::count(hosts.begin(), hosts.end(), *at_own));
  part->local_rank_ =
      static_cast<int>(std::count(hosts.begin(), at_own, *at_own));
  part->num_sharing_ = num_sharing_;
  part->meeting_ =
      std::make_unique<PartMeeting>(all->meeting_.get(), part->part_);
  part->store_ =
      std::make_unique<ControlStore>(&all->job_->client(), part->part_);
  RETURN_IF_ERROR(part->CreateInstance());
  return part;
}

// Members may end their parts in any order, so that who waited in turn might
// wait in a circle. Communicators of streams end before the caller goes on, who
// might launch meanwhile: what frees memory waits for the device, and keeps
// launches out of the driver until then; on two ranks at once, those that
// kernels of the other one wait for.
void World::EndPart(World* part) {
  part->CloseKeepers();
  const auto is_over = std::make_shared<std::atomic<bool>>(false);
  auto thread = StartThread(
      absl::StrCat("the end of world '", part->name(), "'"), [part, is_over] {
        delete part;
        is_over->store(true, std::memory_order_release);  // acquired below
      });
  if (!thread.ok()) {
    Log(LogLevel::kWarning, thread.status().message());
    delete part;
    return;
  }
  MutexLock lock(&mu_);
  for (Ending& ending : endings_) {
    if (ending.is_over->load(std::memory_order_acquire)) ending.thread.join();
  }
  std::erase_if(endings_,
                [](const Ending& ending) { return !ending.thread.joinable(); });
  endings_.push_back({*std::move(thread), is_over});
}

void World::AwaitParts() {
  std::vector<Ending> endings;
  {
    MutexLock lock(&mu_);
    endings = std::move(endings_);
  }
  for (Ending& ending : endings) ending.thread.join();
}

void World::LeavePart() {
  // Fails where a member is gone, or has not come in time.
  meeting_->AllGather("end", own_rank_, "", EndTimeoutNs()).IgnoreError();
}

// Equal on all members, and no other world's.
uint64_t World::ScopeOf(uint64_t scope) const {
  if (all_ == nullptr) return scope;
  return FailureBoard::kPartsBit |
         Claim::Of("", absl::StrCat(part_->id(), "\n", scope)).value_low;
}

}  // namespace commsched
