#include "comm/failure_board.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/running_clock.h"

namespace commsched {

JobPart::JobPart(std::string id, std::string name, std::vector<int> members)
    : id_(std::move(id)), name_(std::move(name)), members_(std::move(members)) {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    rank_of_.emplace(members_[rank], static_cast<int>(rank));
  }
}

int JobPart::Find(int job_rank) const {
  if (is_all()) return job_rank;
  const auto found = rank_of_.find(job_rank);
  return found == rank_of_.end() ? -1 : found->second;
}

std::string JobPart::KeyOf(absl::string_view key) const {
  return is_all() ? std::string(key) : absl::StrCat(id_, "/", key);
}

absl::Status JobPart::Named(const absl::Status& status,
                            absl::string_view where) const {
  if (status.ok() || name_.empty()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("world '", name_, "': ", where,
                   absl::StrReplaceAll(status.message(),
                                       {{absl::StrCat(id_, "/"), ""}})));
}

bool FailureBoard::IsIn(const Loss& loss, const JobPart& part) {
  return loss.rank == kEveryRank || part.Find(loss.rank) >= 0;
}

bool FailureBoard::Concerns(const Loss& loss, const Concern& concern) {
  if (!IsIn(loss, *concern.part)) return false;
  if (loss.rank == kEveryRank || concern.members.empty()) return true;
  return absl::c_linear_search(concern.members, loss.rank);
}

// Messages of a part of the job number ranks as it does, those of the job do
// not.
absl::Status FailureBoard::AsSeenBy(const JobPart& part, const Loss& loss) {
  if (loss.rank == kEveryRank) return part.Named(loss.why, "in the job, ");
  return part.Named(loss.why, absl::StrCat("rank ", part.Find(loss.rank),
                                           " is gone: in the job, "));
}

void FailureBoard::Tell(const Told& told) {
  for (const auto& [watcher, why] : told) {
    if (const auto alive = watcher.lock()) alive->OnFailure(why);
  }
}

const FailureBoard::Loss* FailureBoard::FindLossLocked(const Concern& concern) {
  for (const Loss& loss : lost_) {
    if (Concerns(loss, concern)) return &loss;
  }
  return nullptr;
}

void FailureBoard::Watch(const std::shared_ptr<FailureWatcher>& watcher,
                         Concern concern) {
  absl::Status failure;
  {
    MutexLock lock(&mu_);
    std::erase_if(watchers_, [](const Watching& other) {
      return other.watcher.expired();
    });
    const auto failed = failures_.find(concern.scope);
    if (failed != failures_.end() && failed->second.first != concern.rank) {
      failure = failed->second.second;
      NoteFailureLocked(*concern.part);
    }
    if (const Loss* const loss = FindLossLocked(concern)) {
      failure = AsSeenBy(*concern.part, *loss);
    }
    watchers_.push_back({watcher, std::move(concern)});
  }
  if (!failure.ok()) watcher->OnFailure(failure);
}

// What follows the first is its consequence.
void FailureBoard::OnLost(int rank, const absl::Status& why) {
  Told told;
  {
    MutexLock lock(&mu_);
    const Loss loss = {rank, why, RunningClock::Get().NowNs()};
    for (const auto& [watcher, concern] : watchers_) {
      if (!Concerns(loss, concern) || FindLossLocked(concern) != nullptr) {
        continue;
      }
      told.emplace_back(watcher, AsSeenBy(*concern.part, loss));
    }
    lost_.push_back(loss);
  }
  Tell(told);
}

void FailureBoard::OnFailed(int rank, uint64_t scope, const absl::Status& why) {
  Told told;
  {
    MutexLock lock(&mu_);
    if (!failures_.emplace(scope, std::make_pair(rank, why)).second) return;
    // Whoever watches a part of the job says so when it comes to watch.
    if ((scope & kPartsBit) == 0) NoteFailureLocked(JobPart());
    for (const auto& [watcher, concern] : watchers_) {
      if (concern.scope != scope || concern.rank == rank) continue;
      NoteFailureLocked(*concern.part);
      told.emplace_back(watcher, why);
    }
  }
  Tell(told);
}

void FailureBoard::NoteFailureLocked(const JobPart& part) {
  failed_ns_.emplace(part.id(), RunningClock::Get().NowNs());
}

void FailureBoard::NoteFailure(const JobPart& part) {
  MutexLock lock(&mu_);
  NoteFailureLocked(part);
}

void FailureBoard::Recovered(const JobPart& part, uint64_t scope) {
  MutexLock lock(&mu_);
  if (!failures_.contains(scope)) failed_ns_.erase(part.id());
}

int64_t FailureBoard::FailedSinceNs(const JobPart& part) {
  MutexLock lock(&mu_);
  const auto failed = failed_ns_.find(part.id());
  const int64_t failed_ns = failed == failed_ns_.end() ? 0 : failed->second;
  const auto loss = absl::c_find_if(
      lost_, [&part](const Loss& each) { return IsIn(each, part); });
  if (loss == lost_.end()) return failed_ns;
  return failed_ns == 0 ? loss->at_ns : std::min(failed_ns, loss->at_ns);
}

}  // namespace commsched
