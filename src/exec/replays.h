// Steps that are launches of a captured graph.
#ifndef COMMSCHED_SRC_EXEC_REPLAYS_H_
#define COMMSCHED_SRC_EXEC_REPLAYS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/held_turns.h"
#include "comm/turn.h"
#include "device/device.h"
#include "exec/program.h"

namespace commsched {

struct ReplaysSpec {
  Program* program = nullptr;     // outlives the replays
  std::vector<Stream*> streams;   // lanes of the device and side streams
  std::vector<Event*> lane_ends;  // what says that a lane is through
  std::vector<Turn*> turns;       // of side streams, by their lanes' numbers
  Device* device = nullptr;
};

// Keeps steps that are launches of a graph (exec/step_capture.h) in order with
// each other and with steps that are enqueued, and tells when they are
// complete.
//
// Behind each launch of a graph its stream records an event of our own, the
// step's end: the events inside of the graph tell of its latest launch only,
// since a graph records the same native event each time, and the host may be
// some steps ahead. What is complete behind an end is told to all events of the
// program.
//
// Settle, Poison, IsReplay: any thread. The others: the thread that drives the
// steps.
class Replays {
 public:
  static absl::StatusOr<std::unique_ptr<Replays>> Create(ReplaysSpec spec);
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  // Takes the turns of all lanes, so that the launch of a graph has a place
  // among what others launch there. False: the calling thread has some already,
  // by another session. They are given by GiveTurns(), or as this ends.
  [[nodiscard]] bool TakeTurns() { return turns_.Take(); }
  void GiveTurns() { turns_.Give(); }
  // The step after `generation` is a launch of a graph on `stream`: that stream
  // waits for the step before.
  void OrderReplay(Stream* stream, uint64_t generation);
  // It is one that is enqueued: what it is enqueued on waits for the step
  // before.
  void OrderPlain(uint64_t generation);
  // The graph has been launched as `generation` on the stream of
  // OrderReplay().
  void End(uint64_t generation);

  // Blocks until step `generation` is complete, if it was the launch of a
  // graph.
  void Await(uint64_t generation);
  // Looks at how far the launches of graphs have got.
  void Settle();
  // After the first failure: ends every wait of the host for the end of a step
  // (I7), also of the steps that are enqueued. What the steps did stays open.
  void Poison();
  // Of the latest steps.
  bool IsReplay(uint64_t generation) const {
    return generations_[generation % generations_.size()].load(
               std::memory_order_acquire) == generation;
  }

 private:
  explicit Replays(ReplaysSpec spec)
      : spec_(std::move(spec)), turns_(spec_.turns) {}
  void CompleteAll(uint64_t generation);

  // Constant after construction.
  const ReplaysSpec spec_;
  std::unique_ptr<Event> end_;
  HeldTurns turns_;  // The driving thread's.

  Stream* stream_ = nullptr;  // of the latest launch; the driving thread's
  // Which of the latest generations were launches of graphs. Generation 0 is
  // none, and is not asked about. Released in End(), acquired in IsReplay().
  std::array<std::atomic<uint64_t>, Program::kRunAhead + 1> generations_ = {};
  // Released in End(), acquired in Settle().
  std::atomic<uint64_t> latest_{0};
  std::atomic<uint64_t> settled_{0};
  // Ahead of the events, so that whoever finds one poisoned sees it.
  std::atomic<bool> is_poisoned_{false};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_REPLAYS_H_
