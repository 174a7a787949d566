#include "examples/trainer/rank_threads.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace commsched::trainer {
namespace {

absl::Status NameRank(int64_t rank, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrFormat("rank %d: %s", rank, status.message()));
}

using Lock = std::unique_lock<std::mutex>;

// Of the time that a rank may stay behind: how often it is looked at.
constexpr int kSlices = 10;

double Seconds(std::chrono::duration<double> duration) {
  return duration.count();
}

bool Contains(const std::vector<size_t>& ranks, size_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void SayWriting(const std::vector<size_t>& ranks, int64_t first,
                const char* since) {
  for (const size_t rank : ranks) {
    absl::FPrintF(stderr,
                  "commsched-train: %s; rank %d still writes its checkpoint\n",
                  since, first + static_cast<int64_t>(rank));
  }
}

class RankThreads {
 public:
  RankThreads(int64_t num_ranks, const RankWork& work)
      : num_ranks_(num_ranks),
        work_(work),
        ended_(static_cast<size_t>(num_ranks)) {}

  absl::Status Go();

 private:
  void Run(int64_t rank);
  void Await(size_t num_threads);
  void AwaitEndOrFailure(Lock& lock, size_t num_threads);
  void FailLate(Lock& lock, const std::vector<size_t>& late);
  // Whether all have ended.
  bool AwaitEnd(Lock& lock, size_t num_threads);
  std::vector<size_t> Writing(size_t num_threads) const;

  const int64_t num_ranks_;
  const RankWork& work_;

  std::mutex mutex_;
  std::condition_variable changed_;  // What mutex_ guards:
  absl::Status failure_;
  std::vector<bool> ended_;  // By rank.
  size_t num_ended_ = 0;
};

absl::Status RankThreads::Go() {
  std::promise<bool> may_begin;
  const std::shared_future<bool> begins = may_begin.get_future().share();
  std::vector<std::thread> threads;
  absl::Status status;
  try {
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      threads.emplace_back([this, rank, begins] {
        if (begins.get()) Run(rank);
        const std::lock_guard<std::mutex> lock(mutex_);
        ended_[static_cast<size_t>(rank)] = true;
        ++num_ended_;
        changed_.notify_all();
      });
    }
  } catch (const std::exception& e) {
    status = NameRank(work_.first + static_cast<int64_t>(threads.size()),
                      absl::ResourceExhaustedError(absl::StrFormat(
                          "no thread for it; %d of %d ranks have one: %s",
                          threads.size(), num_ranks_, e.what())));
  }
  may_begin.set_value(status.ok());
  Await(threads.size());
  for (std::thread& thread : threads) thread.join();
  return status.ok() ? failure_ : status;
}

// The first failure counts; the others follow from the abort.
void RankThreads::Run(int64_t rank) {
  absl::Status status;
  try {
    status = work_.run(rank);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  } catch (const std::system_error& e) {
    status = absl::ResourceExhaustedError(
        absl::StrFormat("a thread of it cannot be started: %s", e.what()));
  } catch (const std::exception& e) {
    status = absl::InternalError(e.what());
  }
  if (status.ok()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = NameRank(work_.first + rank, status);
    changed_.notify_all();
  }
  work_.abort(rank, status);
}

// Returns once all have ended or one has failed.
void RankThreads::AwaitEndOrFailure(Lock& lock, size_t num_threads) {
  const auto done = [&] { return num_ended_ == num_threads || !failure_.ok(); };
  changed_.wait(lock, [&] { return num_ended_ > 0 || done(); });
  std::vector<int> slices_behind(num_threads);
  for (int slice = 1; !done(); ++slice) {
    if (changed_.wait_for(lock, work_.straggling / kSlices, done)) return;
    const std::vector<size_t> writing = Writing(num_threads);
    std::vector<size_t> late;
    for (size_t rank = 0; rank < num_threads; ++rank) {
      const bool counts = !ended_[rank] && !Contains(writing, rank);
      if (counts && ++slices_behind[rank] >= kSlices) late.push_back(rank);
    }
    if (!late.empty()) return FailLate(lock, late);
    if (slice % kSlices == 0)
      SayWriting(writing, work_.first, "another rank has ended");
  }
}

void RankThreads::FailLate(Lock& lock, const std::vector<size_t>& late) {
  const absl::Status failure = absl::DeadlineExceededError(
      absl::StrFormat("%s %s: not ended %g s after another rank had ended",
                      late.size() == 1 ? "rank" : "ranks",
                      absl::StrJoin(late, ", "), Seconds(work_.straggling)));
  failure_ = failure;
  lock.unlock();
  work_.abort(static_cast<int64_t>(late.front()), failure);
  lock.lock();
}

std::vector<size_t> RankThreads::Writing(size_t num_threads) const {
  std::vector<size_t> ranks;
  for (size_t rank = 0; work_.writes && rank < num_threads; ++rank) {
    const bool writes = work_.writes(static_cast<int64_t>(rank));
    if (!ended_[rank] && writes) ranks.push_back(rank);
  }
  return ranks;
}

// The others end within the grace; a rank that writes is given longer, so that
// its checkpoint is not cut off.
bool RankThreads::AwaitEnd(Lock& lock, size_t num_threads) {
  const auto all_ended = [&] { return num_ended_ == num_threads; };
  if (changed_.wait_for(lock, work_.grace, all_ended)) return true;
  const std::vector<size_t> writing = Writing(num_threads);
  if (num_ended_ + writing.size() < num_threads) return false;
  SayWriting(writing, work_.first, "a rank has failed");
  return changed_.wait_for(lock, work_.writing_grace, all_ended);
}

// What matters is on the disk when it exits, or never will be: checkpoints come
// into being by a rename, and what was printed is flushed.
void RankThreads::Await(size_t num_threads) {
  Lock lock(mutex_);
  AwaitEndOrFailure(lock, num_threads);
  if (failure_.ok()) return;
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status failure = failure_;
  lock.unlock();
  work_.on_failure(failure);
  lock.lock();
  if (AwaitEnd(lock, num_threads)) return;
  const double passed = Seconds(std::chrono::steady_clock::now() - begin);
  for (size_t rank = 0; rank < num_threads; ++rank) {
    if (ended_[rank]) continue;
    absl::FPrintF(stderr,
                  "commsched-train: rank %d has not ended %.3g s after the "
                  "failure; exiting\n",
                  work_.first + static_cast<int64_t>(rank), passed);
  }
  _exit(EXIT_FAILURE);
}

}  // namespace

absl::Status RunRanks(int64_t num_ranks, const RankWork& work) {
  return RankThreads(num_ranks, work).Go();
}

}  // namespace commsched::trainer
