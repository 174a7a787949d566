// One run of a random job on one thread, looked at from outside at every turn.
#ifndef COMMSCHED_TEST_PROPERTY_VIRTUAL_RUN_H_
#define COMMSCHED_TEST_PROPERTY_VIRTUAL_RUN_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "session/session.h"
#include "test/support/fake_clock.h"
#include "test/support/fault_backend.h"
#include "test/support/random_job.h"
#include "test/support/spy_backend.h"
#include "test/support/virtual_backend.h"
#include "test/support/virtual_device.h"

namespace commsched::test {

// What goes wrong in a run.
struct Trouble {
  enum class Kind {
    kNone,
    kFault,        // `fault`, below the sessions
    kHostAborts,   // `rank` aborts after so many turns
    kHostStops,    // `rank` makes no more calls after so many turns
    kWireBreaks,   // a transfer fails on the wire after so many turns
    kMissedCalls,  // now and then a call that is not legal yet; it is refused
  };
  Kind kind = Kind::kNone;
  Fault fault;
  int rank = 0;
  uint64_t after_turns = 0;
};

// What of it came true.
struct RunOutcome {
  std::string wrong;      // what was not as it must be; empty: nothing
  bool happened = false;  // the trouble
  bool failed = false;    // the sessions have failed, as they must
  uint64_t turns = 0;
  uint64_t calls_out_of_order = 0;
  uint64_t scribbles = 0;  // over memory whose use was over
};

// The ranks' hosts, streams and lanes, and the wire, take turns as the seed
// says; hosts make their calls in any legal order. Memory that nobody may use
// any more is scribbled over at once.
//
// Checked: every launch is the next one of the plan, collectives of a
// communicator come in one order with one key on all members, the caps hold for
// what the backend has; a call is accepted if, and only if, it is legal; nobody
// waits for what cannot come; bound memory is as after the sequential
// reference. With trouble: every rank fails with what happened, buffers that
// are not flagged as poisoned hold what the reference has, everything is
// released.
class VirtualRun : private LaunchWatcher {
 public:
  // `plans` by role; `expected` after 0, 1, ... steps. All outlive the run.
  VirtualRun(const RandomJob& job,
             absl::Span<const std::shared_ptr<const Plan>> plans,
             const std::vector<std::vector<RankMemory>>& expected,
             const Trouble& trouble, uint64_t seed);

  // Once.
  RunOutcome Run();

 private:
  enum class NodeState : uint8_t { kIdle, kBegun, kDone };
  // What one rank has of a buffer that is used up in every step.
  struct Life {
    uint64_t uses_per_step = 0;
    uint64_t uses = 0;
    bool alone = false;  // shares its place in the arena with nobody
  };
  struct Rank {
    int number = 0;
    const Plan* plan = nullptr;
    const std::vector<OpId>* op_in_step = nullptr;
    RankMemory memory;                             // of bound buffers
    std::vector<std::vector<int64_t>> late;        // by buffer * steps + step
    std::vector<std::vector<int64_t*>> addresses;  // by step, then buffer
    std::vector<Life> lives;                       // by buffer

    // The host.
    bool stopped = false;
    bool in_step = false;
    uint64_t steps_begun = 0;
    std::vector<NodeState> nodes;
    size_t num_done = 0;
    uint64_t due = 0;  // launches of this step, by the producers' calls
    std::vector<uint32_t> candidates;

    // What the backend has.
    uint64_t issued = 0;
    std::deque<bool> done;  // by number of launch
    uint64_t launches_in_flight = 0;
    uint64_t bytes_in_flight = 0;

    std::deque<VirtualStream> streams;
    std::unique_ptr<Session> session;
  };
  struct CommOrder {
    std::vector<std::pair<uint64_t, uint64_t>> keys;  // step and key
    std::map<int, size_t> posted;                     // by rank
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }
  void Wrong(const std::string& what);

  // Setting up (virtual_run_create.cc).
  WorldSpec MakeWorld();
  bool Create();
  SessionSpec SpecOf(Rank& rank);
  void CountUses(Rank& rank);
  bool FindAddresses(Rank& rank);

  // Turns.
  void RunToTheEnd();
  bool Turn();
  bool TakeTurn(uint32_t actor);
  void MakeTrouble();
  bool AdvanceClock();
  bool Finished() const;
  int64_t NumFailed() const;
  bool SpreadFailure();
  std::string StateOfAll() const;
  void Release(Rank& rank);

  // Hosts and their uses of memory (virtual_run_host.cc).
  bool HostTurn(Rank& rank);
  void Call(Rank& rank, uint32_t node);
  absl::Status CallAfter(Rank& rank, uint32_t node, Stream* stream);
  bool IsLegal(const Rank& rank, uint32_t node) const;
  void TryIllegal(Rank& rank);
  void MoveDue(Rank& rank);
  void RunWork(Rank& rank, OpId op, uint64_t step);
  void Used(Rank& rank, const Access& access, uint64_t step);
  void Launched(int rank, const std::string& comm,
                const commsched_launch_t& launch) override;
  void Done(int rank, uint64_t number) override;

  // The end (virtual_run_checks.cc).
  void CheckEnd();
  void CheckResult();
  void CheckFailure();
  void CheckStatus(const Rank& rank, const absl::Status& status);
  std::vector<bool> NotWritten(const Rank& rank) const;
  void CheckPoison(const Rank& rank);
  bool MustFail() const;
  bool MayFail() const;

  static constexpr uint64_t kWeights = 4;  // of actors, by class
  enum Actor : uint32_t { kHost, kLane, kStream, kWire };
  static constexpr int64_t kScribble = 0x5c1b5c1b5c1b5c1b;
  static constexpr const char* kAbortReason = "the host has had enough";
  static constexpr const char* kWireReason = "the wire broke";

  const RandomJob& job_;
  const absl::Span<const std::shared_ptr<const Plan>> plans_;
  const std::vector<std::vector<RankMemory>>& expected_;
  const uint64_t num_steps_;
  const Trouble trouble_;
  std::mt19937_64 random_;
  bool planned_order_ = false;
  // How often hosts, lanes, streams and the wire take a turn.
  std::array<uint32_t, kWeights> weights_ = {};

  FakeClock clock_;
  VirtualBackend wire_;
  std::unique_ptr<FaultBackend> faults_;
  SpyBackend spy_;
  std::shared_ptr<World> world_;
  std::vector<std::pair<uint32_t, uint32_t>> actors_;  // class, number
  std::vector<uint32_t> order_;
  std::map<std::string, CommOrder> orders_;
  RunOutcome outcome_;
  std::deque<Rank> ranks_;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_PROPERTY_VIRTUAL_RUN_H_
