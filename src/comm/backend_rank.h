// One rank's side of a backend: whose turn it is to call it, and the thread
// that does if nobody else.
#ifndef COMMSCHED_SRC_COMM_BACKEND_RANK_H_
#define COMMSCHED_SRC_COMM_BACKEND_RANK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "comm/meeting/value_store.h"
#include "comm/polling.h"
#include "comm/rank_turn.h"
#include "commsched/plugin.h"
#include "control/roster.h"
#include "device/device.h"

namespace commsched {

// What gets on by calling the backend.
class Pumped {
 public:
  virtual ~Pumped() = default;
  // Does what can be done at once: whether that was anything. One call at a
  // time; never blocks.
  virtual bool Pump() = 0;
  // When Pump() may get on though the parker gets no token; kNoDeadlineNs:
  // never.
  virtual int64_t NextWakeNs() const = 0;
  // Whether something is under way, or to be begun, that Pump() gets on. As
  // Pump().
  virtual bool HasWork() const = 0;
};

// A rank that a backend has opened (commsched_backend_t::rank_open). The table
// is called by one thread at a time, who has the turn: a progress thread, which
// pumps what is attached, or who asks for it.
//
// The thread sleeps without the turn, or where that is too much for a backend
// that sleeps by itself (commsched_backend_t::wait without WAITS_BESIDE), with
// it.
//
// Where the backend waits beside other calls, a caller that waits takes the
// turn and pumps in the thread's place, so that small collectives need no
// hand-over between threads. It polls, and hands the turn to the thread soon
// if that sleeps in the backend, and otherwise after some milliseconds, in
// which it may sleep.
//
// After some waits that left nothing to do, the thread rests: callers begin
// their launches themselves, and messages do not wake the thread. It looks
// again some milliseconds after the last wait, or when a caller gives up
// driving. If it finds a launch that nobody has waited for, it does not rest
// again for many waits.
//
// Where other threads compute, callers leave all to the thread (Polling). Where
// many ranks share few cores, all of this takes longer (CrowdOf()).
//
// Thread-safe.
class BackendRank {
 public:
  struct Spec {
    const commsched_backend_t* table = nullptr;
    void* instance = nullptr;  // Outlives the rank, as does the store.
    ValueStore* store = nullptr;
    uint64_t epoch = 0;
    int world_rank = 0;
    int world_size = 0;
    int local_rank = 0;
    int local_size = 0;
    // Ranks that share the cores of this host, if they are more.
    int num_sharing = 0;
    Device* device = nullptr;  // Outlives the rank.
    Roster roster = {};        // Where all ranks are; empty: in this process.
    // The job's; none: it was given none.
    std::optional<commsched_link_profile_t> links = std::nullopt;
  };

  static absl::StatusOr<std::unique_ptr<BackendRank>> Open(const Spec& spec);
  // Nothing is attached, and no communicator left.
  ~BackendRank();
  BackendRank(const BackendRank&) = delete;
  BackendRank& operator=(const BackendRank&) = delete;

  const commsched_backend_t& table() const { return *spec_.table; }
  void* handle() const { return handle_; }
  int world_rank() const { return spec_.world_rank; }
  // Gets a token when there is news for what is attached.
  Parker* parker() { return &parker_; }

  // Who pumps it: the progress thread, which lives while it is needed, or who
  // calls Drive() and DriveUntil(), which pump everything.
  enum class By { kThread, kCaller };
  // It is pumped from here to Detach(). kResourceExhausted if there is no
  // progress thread and none to be had: it is not attached.
  absl::Status Attach(Pumped* pumped, By by = By::kThread);
  // It is not pumped any more when this returns. Not from Pump().
  void Detach(Pumped* pumped);

  // There is something to begin. If the thread rests, this caller begins it,
  // otherwise the thread does.
  void Begin();
  // The same, of what takes long to begin: the thread does.
  void BeginThere() {
    EndRest();
    parker_.Unpark();
  }
  // Waits until `event` is complete in `generation`, and pumps meanwhile if the
  // turn becomes free soon. The event is poisoned if what it waits for fails.
  void Await(Event* event, uint64_t generation);

  // Pumps as long as that gets anything on.
  void Drive();
  // Pumps until `event` is complete in `generation`. In between polls, giving
  // the core away each time, and soon sleeps. The event is poisoned if what it
  // waits for fails.
  void DriveUntil(const Event& event, uint64_t generation);

  // Calls `look` with the turn, unless it is not to be had before
  // `deadline_ns`: whether it was. For who looks on from outside: a backend may
  // not return.
  bool LookBy(int64_t deadline_ns, absl::FunctionRef<void()> look);

  // The turn, while it lives. Short, or by Sleep(). Not from Pump(), and not
  // twice by one thread.
  class Turn {
   public:
    explicit Turn(BackendRank* rank) : rank_(rank) { Take(); }
    ~Turn() { rank_->Give(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Pumps what is attached and sleeps, like the progress thread, until there
    // may be news of the backend, or `deadline_ns`. Lets others have the turn.
    void Sleep(int64_t deadline_ns);

   private:
    void Take();

    BackendRank* const rank_;
    bool has_parker_ = false;  // The progress thread does not sleep there.
  };

  // While it lives a thread makes progress, for one that waits for other ranks
  // elsewhere, as in a meeting: what it has sent may not be out yet, and what
  // others send may fill what they share. Nothing for a backend that sleeps on
  // the parker, which needs no progress of the caller, if `rank` is null, and
  // if no thread can be had.
  class Driven {
   public:
    explicit Driven(BackendRank* rank);
    ~Driven();
    Driven(const Driven&) = delete;
    Driven& operator=(const Driven&) = delete;

   private:
    class Nothing final : public Pumped {
     public:
      bool Pump() override { return false; }
      int64_t NextWakeNs() const override { return kNoDeadlineNs; }
      bool HasWork() const override { return false; }
    };

    BackendRank* rank_;  // Null: not driven.
    Nothing nothing_;
  };

 private:
  explicit BackendRank(const Spec& spec);
  absl::Status OpenTable();

  void Take() { (void)turn_.TakeBy(kNoDeadlineNs); }
  void Give();
  bool WaitsBeside() const;

  // With the turn.
  bool PumpAll();
  bool HasWork() const;
  int64_t NextWakeNs() const;
  void Park(int64_t deadline_ns);
  bool thread_sleeps() const {
    return thread_sleeps_.load(std::memory_order_acquire);
  }
  void LetThreadRestUntil(int64_t until_ns);
  void LetThreadRest();  // For a moment.
  void EndRest();        // With or without the turn.

  bool ThreadRests() const;
  int64_t RestNs() const;
  bool MayPoll() const;
  // Gives the core away at `now_ns`. Returns the time after that.
  int64_t Yield(int64_t now_ns, PollTime* polled);
  bool TakeSoon(const Event& event, uint64_t generation);
  bool DriveSoon(const Event& event, uint64_t generation);
  void HandOver();
  void GiveAfterWait();

  absl::Status StartLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(thread_mu_);
  bool IsStopped() const { return stop_.load(std::memory_order_acquire); }
  void ThreadMain();
  bool TakeOver();
  void Sleep();
  void SleepWithoutTurn();

  const Spec spec_;
  const int64_t crowd_;  // CrowdOf() the ranks of the host.
  commsched_oob_t oob_ = {};
  // Of spec_.roster, as the backend sees it.
  std::vector<const char*> hosts_;
  std::vector<const char*> networks_;
  void* handle_ = nullptr;
  // Where one thread at a time sleeps until there is news of the backend: the
  // progress thread, or whoever has the turn.
  Parker parker_;
  Parker standby_;  // Where the progress thread sleeps while callers drive.
  RankTurn turn_{&parker_, &standby_};

  // Owned by who has the turn.
  std::vector<Pumped*> pumped_;
  // Consecutive waits that left nothing to do. Negative after a launch that
  // nobody has waited for.
  int num_prompt_waits_ = 0;

  // The progress thread sleeps on the parker, or is about to. It sets this with
  // the turn, and clears it (release) for whoever sleeps there next (acquire).
  std::atomic<bool> thread_sleeps_{false};
  // Until when the thread rests; 0: it does not. Set with the turn. A stale
  // value costs its reader one wake-up, or some milliseconds.
  std::atomic<int64_t> rest_until_ns_{0};
  Polling polling_{Polling::kLossNs * crowd_};  // Of callers.

  std::atomic<bool> stop_{false};
  Mutex thread_mu_;  // Outside of the turn.
  std::vector<Pumped*> on_thread_ ABSL_GUARDED_BY(thread_mu_);
  std::thread thread_ ABSL_GUARDED_BY(thread_mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_BACKEND_RANK_H_
