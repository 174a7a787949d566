#include "comm/comm_keeper.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "comm/plugin/table_support.h"

namespace commsched {
namespace {

// With a text of its own: the thread sanitizer does not see that the last of
// those who share one frees it.
absl::Status Copy(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

}  // namespace

// ---- A generation ----

KeptComm* CommGeneration::Borrow(const CommWish& wish) {
  MutexLock lock(&mu_);
  KeptComm* found = nullptr;
  for (const std::unique_ptr<KeptComm>& each : comms_) {
    if (each->is_lent || each->wish.group != wish.group ||
        each->wish.lane != wish.lane ||
        each->wish.max_members < wish.max_members) {
      continue;
    }
    if (found == nullptr || each->index < found->index) found = each.get();
  }
  if (found == nullptr) {
    const uint32_t index = FreeIndex(wish.group);
    found = AddPlace(wish);
    found->index = index;
    return found;
  }
  found->is_lent = true;
  found->wish.owner = wish.owner;
  return found;
}

KeptComm* CommGeneration::BorrowOwn(const CommWish& wish) {
  MutexLock lock(&mu_);
  KeptComm* const place = AddPlace(wish);
  place->is_kept = false;
  return place;
}

uint32_t CommGeneration::FreeIndex(const std::string& group) {
  const auto is_used = [&](uint32_t index) {
    return std::any_of(comms_.begin(), comms_.end(), [&](const auto& each) {
      return each->is_kept && each->index == index && each->wish.group == group;
    });
  };
  uint32_t index = 0;
  while (is_used(index)) ++index;
  return index;
}

KeptComm* CommGeneration::AddPlace(const CommWish& wish) {
  comms_.push_back(std::make_unique<KeptComm>());
  comms_.back()->wish = wish;
  return comms_.back().get();
}

void CommGeneration::Add(KeptComm* kept, void* comm) {
  MutexLock lock(&mu_);
  kept->comm = comm;
  if (!failure_.ok()) AbortLocked({&comm, 1});
}

std::vector<void*> CommGeneration::Return(absl::Span<KeptComm* const> borrowed,
                                          bool keep) {
  MutexLock lock(&mu_);
  std::vector<void*> ended;
  for (KeptComm* const kept : borrowed) {
    if (kept == nullptr) continue;
    kept->is_lent = false;
    if (kept->comm != nullptr && kept->is_kept && keep) continue;
    if (kept->comm != nullptr) ended.push_back(kept->comm);
    std::erase_if(comms_,
                  [kept](const auto& each) { return each.get() == kept; });
  }
  if (failure_.ok()) return ended;
  const std::vector<void*> idle = TakeIdleLocked();
  ended.insert(ended.end(), idle.begin(), idle.end());
  return ended;
}

std::vector<void*> CommGeneration::TakeIdle() {
  MutexLock lock(&mu_);
  return TakeIdleLocked();
}

std::vector<void*> CommGeneration::TakeIdleLocked() {
  std::vector<void*> idle;
  for (const std::unique_ptr<KeptComm>& each : comms_) {
    if (!each->is_lent) idle.push_back(each->comm);
  }
  std::erase_if(comms_, [](const auto& each) { return !each->is_lent; });
  return idle;
}

void CommGeneration::Fail(const void* owner, const std::string& who,
                          const absl::Status& why) {
  absl::Status failure = why;
  {
    MutexLock lock(&mu_);
    const bool has_others =
        std::any_of(comms_.begin(), comms_.end(), [owner](const auto& each) {
          return each->is_lent && each->wish.owner != owner;
        });
    if (has_others) {
      failure = absl::Status(
          why.code(), absl::StrCat(why.message(), "; with ", who,
                                   " all communicators of its world on the "
                                   "devices of its ranks have ended"));
    }
    if (!FailLocked(failure)) return;
  }
  tell_(failure);
}

void CommGeneration::OnFailure(const absl::Status& why) {
  MutexLock lock(&mu_);
  FailLocked(why);
}

// False: it has failed before.
bool CommGeneration::FailLocked(const absl::Status& why) {
  if (!failure_.ok() || is_closed_) return false;
  failure_ = Copy(why);
  std::vector<void*> all;
  for (const std::unique_ptr<KeptComm>& each : comms_) {
    if (each->comm != nullptr) all.push_back(each->comm);
  }
  AbortLocked(all);
  return true;
}

// In one call, so that the backend may end them together: a kernel of one may
// keep another from its end.
void CommGeneration::AbortLocked(absl::Span<void* const> comms) {
  if (comms.empty()) return;
  const std::string message(failure_.message());
  rank_->table().abort(
      rank_->handle(), comms.data(), static_cast<uint32_t>(comms.size()),
      static_cast<commsched_status_t>(failure_.code()), message.c_str());
}

absl::Status CommGeneration::failure() {
  MutexLock lock(&mu_);
  return Copy(failure_);
}

void CommGeneration::Close() {
  MutexLock lock(&mu_);
  is_closed_ = true;
}

// ---- All of a rank ----

std::shared_ptr<CommGeneration> CommKeeper::Current() {
  MutexLock lock(&mu_);
  return CurrentLocked(0);
}

std::shared_ptr<CommGeneration> CommKeeper::AtLeast(uint64_t number) {
  MutexLock lock(&mu_);
  if (!all_.empty() && all_.back()->number() < number) {
    all_.back()->OnFailure(absl::AbortedError(
        "another rank has seen a failure of this world, of which this one has "
        "not heard yet"));
  }
  return CurrentLocked(number);
}

std::shared_ptr<CommGeneration> CommKeeper::CurrentLocked(uint64_t least) {
  if (!all_.empty() && all_.back()->failure().ok()) return all_.back();
  const uint64_t next = all_.empty() ? 0 : all_.back()->number() + 1;
  const uint64_t number = std::max(next, least);
  all_.push_back(std::make_shared<CommGeneration>(
      spec_.rank, number,
      [this, number](const absl::Status& why) { spec_.tell(number, why); }));
  spec_.watch(all_.back(), number);
  return all_.back();
}

void CommKeeper::Close(int64_t deadline_ns) {
  std::vector<std::shared_ptr<CommGeneration>> all;
  {
    MutexLock lock(&mu_);
    all = std::move(all_);
  }
  for (const std::shared_ptr<CommGeneration>& each : all) {
    each->Close();
    const absl::Status ended =
        DestroyComms(spec_.rank, each->TakeIdle(), deadline_ns);
    if (ended.ok()) continue;
    Log(LogLevel::kWarning, "rank ", spec_.rank->world_rank(),
        ": communicators of the world have not ended: ", ended.message());
  }
}

absl::Status DestroyComms(BackendRank* rank, absl::Span<void* const> comms,
                          int64_t deadline_ns) {
  if (comms.empty()) return absl::OkStatus();
  absl::Status first;
  const BackendRank::Turn turn(rank);
  for (void* const comm : comms) {
    PluginMessage message;
    const commsched_status_t code = rank->table().comm_destroy(
        comm, deadline_ns, message.Begin(), PluginMessage::size());
    if (code == COMMSCHED_OK || !first.ok()) continue;
    first = BackendFailure(rank->table(), "comm_destroy", code, message);
  }
  return first;
}

}  // namespace commsched
