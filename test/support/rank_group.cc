#include "test/support/rank_group.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

struct Progress {
  std::mutex mu;
  std::condition_variable changed;
  std::vector<bool> returned;
  int num_returned = 0;
};

[[noreturn]] void EndProcess(const Progress& progress, int64_t timeout_s) {
  std::fprintf(stderr, "RunRanks: not returned after %lld s: ranks",
               static_cast<long long>(timeout_s));
  for (size_t rank = 0; rank < progress.returned.size(); ++rank) {
    if (!progress.returned[rank]) std::fprintf(stderr, " %zu", rank);
  }
  std::fprintf(stderr, "\n");
  std::abort();
}

}  // namespace

std::vector<absl::Status> RunRanks(
    int size, const std::function<absl::Status(int rank)>& body,
    int64_t timeout_s) {
  std::vector<absl::Status> statuses(size);
  Progress progress;
  progress.returned.resize(size, false);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = body(rank);
      const std::lock_guard<std::mutex> lock(progress.mu);
      progress.returned[rank] = true;
      ++progress.num_returned;
      progress.changed.notify_one();
    });
  }
  {
    std::unique_lock<std::mutex> lock(progress.mu);
    const bool in_time = progress.changed.wait_for(
        lock, std::chrono::seconds(timeout_s),
        [&] { return progress.num_returned == size; });
    if (!in_time) EndProcess(progress, timeout_s);
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::Status RunAllRanks(int size,
                         const std::function<absl::Status(int rank)>& body,
                         int64_t timeout_s) {
  const std::vector<absl::Status> statuses = RunRanks(size, body, timeout_s);
  for (int rank = 0; rank < size; ++rank) {
    if (statuses[rank].ok()) continue;
    return absl::Status(
        statuses[rank].code(),
        absl::StrCat("rank ", rank, ": ", statuses[rank].message()));
  }
  return absl::OkStatus();
}

}  // namespace commsched
