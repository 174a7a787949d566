#ifndef COMMSCHED_EXAMPLES_TRAINER_RANK_THREADS_H_
#define COMMSCHED_EXAMPLES_TRAINER_RANK_THREADS_H_

#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace commsched::trainer {

// What the threads of the ranks do.
struct RankWork {
  // The rank that is called 0 below: of ranks that are processes, the one that
  // this process is. Messages have its own number.
  int64_t first = 0;

  // On the rank's own thread. What it throws is its failure.
  std::function<absl::Status(int64_t rank)> run;

  // On the thread of the first rank that failed: tells the others, so that none
  // waits for it.
  std::function<void(int64_t rank, const absl::Status& status)> abort;

  // On the calling thread, with the first failure as soon as there is one.
  std::function<void(const absl::Status& failure)> on_failure;

  // Whether the rank waits for its checkpoint to be written, which takes as
  // long as the disk does. On the calling thread; null: none ever does.
  std::function<bool(int64_t rank)> writes = nullptr;

  // How long ranks may take to end once one has failed, and those that write.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
  std::chrono::milliseconds writing_grace = std::chrono::seconds(60);
};

// Runs `num_ranks` ranks, each on a thread of its own, and returns the first
// failure, which names the rank. No rank begins before all have a thread: the
// others would wait for one that does not come.
//
// Without a failure it waits for all ranks to end. If a rank has not ended a
// while after a failure, the process exits with code 1, naming that rank: its
// thread uses what returning from here would destroy.
absl::Status RunRanks(int64_t num_ranks, const RankWork& work);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_RANK_THREADS_H_
