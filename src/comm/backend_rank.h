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
#include "comm/value_store.h"
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
};

// A rank that a backend has opened (commsched_backend_t::rank_open). The table
// is called by one thread at a time, who has the turn: a progress thread, which
// pumps what is attached, or who asks for it.
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
    explicit Turn(BackendRank* rank) : rank_(rank) { rank_->Take(); }
    ~Turn() { rank_->Give(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Pumps what is attached and sleeps, like the progress thread, until there
    // may be news of the backend, or `deadline_ns`. Lets others have the turn.
    void Sleep(int64_t deadline_ns);

   private:
    BackendRank* const rank_;
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
    };

    BackendRank* rank_;  // Null: not driven.
    Nothing nothing_;
  };

 private:
  explicit BackendRank(const Spec& spec);
  absl::Status OpenTable();
  void Take() { (void)TakeBy(kNoDeadlineNs); }
  bool TakeBy(int64_t deadline_ns);
  void Give();
  void TakeIdle();
  bool PumpAll();
  void Park(int64_t deadline_ns);
  absl::Status StartLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(thread_mu_);
  void ThreadMain();

  const Spec spec_;
  commsched_oob_t oob_ = {};
  // Of spec_.roster, as the backend sees it.
  std::vector<const char*> hosts_;
  std::vector<const char*> networks_;
  void* handle_ = nullptr;
  Parker parker_;  // Of who has the turn.

  // Owned by who has the turn.
  std::vector<Pumped*> pumped_;

  // Who wants the turn: the progress thread does not keep it from them.
  std::atomic<int> num_waiting_{0};
  Mutex mu_;
  CondVar given_;
  bool taken_ ABSL_GUARDED_BY(mu_) = false;

  std::atomic<bool> stop_{false};
  Mutex thread_mu_;  // Outside of the turn.
  std::vector<Pumped*> on_thread_ ABSL_GUARDED_BY(thread_mu_);
  std::thread thread_ ABSL_GUARDED_BY(thread_mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_BACKEND_RANK_H_
