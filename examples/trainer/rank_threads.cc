#include "examples/trainer/rank_threads.h"

#include <unistd.h>

#include <chrono>
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
#include "examples/trainer/units.h"

namespace commsched::trainer {
namespace {

absl::Status NameRank(int64_t rank, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrFormat("rank %d: %s", rank, status.message()));
}

using Lock = std::unique_lock<std::mutex>;

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
  // Whether all have ended.
  bool AwaitEnd(Lock& lock, size_t num_threads);

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

// The others end within the grace; a rank that writes is given longer, so that
// its checkpoint is not cut off.
bool RankThreads::AwaitEnd(Lock& lock, size_t num_threads) {
  const auto all_ended = [&] { return num_ended_ == num_threads; };
  if (changed_.wait_for(lock, work_.grace, all_ended)) return true;
  std::vector<int64_t> writing;
  for (size_t rank = 0; work_.writes && rank < num_threads; ++rank) {
    const auto number = static_cast<int64_t>(rank);
    const bool writes = work_.writes(number);
    if (!ended_[rank] && writes) writing.push_back(work_.first + number);
  }
  if (num_ended_ + writing.size() < num_threads) return false;
  for (const int64_t rank : writing) {
    absl::FPrintF(
        stderr,
        "commsched-train: a rank has failed; rank %d still writes its "
        "checkpoint\n",
        rank);
  }
  return changed_.wait_for(lock, work_.writing_grace, all_ended);
}

// What matters is on the disk when it exits, or never will be: checkpoints come
// into being by a rename, and what was printed is flushed.
void RankThreads::Await(size_t num_threads) {
  Lock lock(mutex_);
  changed_.wait(lock,
                [&] { return num_ended_ == num_threads || !failure_.ok(); });
  if (failure_.ok()) return;
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status failure = failure_;
  lock.unlock();
  work_.on_failure(failure);
  lock.lock();
  if (AwaitEnd(lock, num_threads)) return;
  const double passed = SecondsSince(begin);
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
