#ifndef COMMSCHED_TEST_FAKES_GPU_CLIQUE_H_
#define COMMSCHED_TEST_FAKES_GPU_CLIQUE_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "call.h"
#include "work.h"

namespace fake_gpu {

// One collective of a clique, by its number.
struct Meeting {
  std::vector<Call> calls;  // By rank.
  int num_come = 0;
  int num_reading = 0;
  int num_done = 0;
};

// A message that was sent, by its sender, receiver and number.
struct Message {
  bool posted = false;
  bool taken = false;
  Call send;
};

// What a first call makes, and waits for: of a collective, by its kind, size,
// type and reduction; or of a pair of ranks, from one to another.
using Connection = std::tuple<Kind, int, int, int>;

// The ranks of a communicator.
struct Clique {
  explicit Clique(int n)
      : size(n),
        gone(static_cast<size_t>(n)),
        num_ended(static_cast<size_t>(n)),
        num_running(static_cast<size_t>(n)) {}

  const int size;
  std::mutex mu;
  std::condition_variable changed;
  int num_joined = 0;
  // Aborted, by rank: its kernels end, and what comes behind them may change
  // the memory that others' were to read.
  std::vector<bool> gone;
  // By connection: the ranks that have called for it.
  std::map<Connection, std::set<int>> connections;
  // Kernels of the communicator, by rank.
  std::vector<uint64_t> num_ended;
  std::vector<uint64_t> num_running;  // Begun, and not ended.
  std::map<uint64_t, Meeting> meetings;
  std::map<std::tuple<int, int, uint64_t>, Message> messages;
};

// "All ranks call the same collectives in the same order; otherwise undefined
// behavior will occur, including hangs" (NCCL user guide, Collective
// Operations): a mismatch hangs.
class Collective {
 public:
  Collective(std::shared_ptr<Clique> clique, int rank, uint64_t number,
             const Call& call)
      : clique_(std::move(clique)), rank_(rank), number_(number), call_(call) {}

  Clique* clique() { return clique_.get(); }
  size_t rank() const { return static_cast<size_t>(rank_); }
  // With the clique's lock, which it gives away while it computes.
  Progress TryRun(std::unique_lock<std::mutex>* lock);

 private:
  enum class State { kComes, kMeets, kHasRead };
  bool IsBeingRead() const;

  const std::shared_ptr<Clique> clique_;
  const int rank_;
  const uint64_t number_;
  const Call call_;
  State state_ = State::kComes;
  std::vector<char> result_;
};

struct Transfer {
  Call call;
  uint64_t number = 0;
};

// "If multiple ncclSend and ncclRecv operations need to progress concurrently
// to complete, they must be fused within a ncclGroupStart/ ncclGroupEnd
// section" (nccl.h).
class Transfers {
 public:
  Transfers(std::shared_ptr<Clique> clique, int rank,
            std::vector<Transfer> transfers)
      : clique_(std::move(clique)),
        rank_(rank),
        transfers_(std::move(transfers)) {}

  Clique* clique() { return clique_.get(); }
  size_t rank() const { return static_cast<size_t>(rank_); }
  Progress TryRun(std::unique_lock<std::mutex>* lock);

 private:
  Message& MessageOf(const Transfer& transfer);

  const std::shared_ptr<Clique> clique_;
  const int rank_;
  std::vector<Transfer> transfers_;  // That are not done.
  bool posted_ = false;
};

// A kernel that runs `part`, a Collective or Transfers. What cannot go on spins
// until its communicator is aborted.
//
// "NCCL collective operations on a given communicator are always serialized;
// NCCL adds CUDA events to enforce that" (NVIDIA/nccl, issue 574): it begins
// when the `number` kernels that the rank has launched before have ended,
// whatever their streams. No caller may rely on that, so the clocks that find
// races (clocks.h) know nothing of it.
template <typename Part>
Work WorkOf(std::shared_ptr<Part> part, uint64_t number) {
  const auto has_begun = std::make_shared<bool>(false);
  const auto try_run = [part, number,
                        has_begun](std::unique_lock<std::mutex>* lock) {
    Clique& clique = *part->clique();
    uint64_t& num_ended = clique.num_ended[part->rank()];
    if (num_ended != number && !clique.gone[part->rank()]) {
      return Progress::kNone;
    }
    uint64_t& num_running = clique.num_running[part->rank()];
    if (!std::exchange(*has_begun, true)) ++num_running;
    const Progress progress = part->TryRun(lock);
    if (progress == Progress::kDone) {
      ++num_ended;
      --num_running;
    }
    if (progress != Progress::kNone) clique.changed.notify_all();
    return progress;
  };
  return {[part, try_run] {
            std::unique_lock<std::mutex> lock(part->clique()->mu);
            Progress progress = Progress::kNone;
            while ((progress = try_run(&lock)) != Progress::kDone) {
              if (progress == Progress::kNone) {
                part->clique()->changed.wait(lock);
              }
            }
          },
          [part, try_run] {
            std::unique_lock<std::mutex> lock(part->clique()->mu);
            return try_run(&lock);
          }};
}

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_CLIQUE_H_
