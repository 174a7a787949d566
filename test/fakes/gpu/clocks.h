#ifndef COMMSCHED_TEST_FAKES_GPU_CLOCKS_H_
#define COMMSCHED_TEST_FAKES_GPU_CLOCKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fake_gpu {

// Bytes that a piece of work reads, or writes.
struct Range {
  const void* address = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

inline Range Reads(const void* address, size_t bytes) {
  return {address, bytes, false};
}
inline Range Writes(const void* address, size_t bytes) {
  return {address, bytes, true};
}

// What is known to be complete: by number of a stream, how many of its pieces
// of work. A default one knows nothing, and so does one of an earlier run.
struct Clock {
  uint64_t run = 0;
  std::vector<uint32_t> known;
};

// Of one stream: what is ordered before whatever is enqueued there next.
struct StreamClock {
  Clock clock;
  uint32_t number = 0;  // Of the stream, in this run.
};

// Finds accesses to the same bytes that nothing orders, one of them a write,
// whether or not they meet in time. What orders them: the order of a stream, a
// wait for a recorded event, and what a host thread knows when it enqueues the
// later one: it has synchronized with the earlier one, or a query has told it.
// Kernels of NCCL order nothing between ranks, which have memory of their own.
//
// A host thread knows what it has learned itself. A new one begins with what
// any thread knew, and so does everyone while Share() is on.
//
// Thread-safe. Does nothing while it is off.
class Clocks {
 public:
  // Forgets all and begins; while no work is left.
  void Start();
  void Stop() { on_ = false; }
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Work that is enqueued now. `name` is copied.
  void Access(StreamClock* stream, const char* name,
              std::initializer_list<Range> ranges) {
    if (on()) Access(stream, name, ranges.begin(), ranges.size());
  }
  void Access(StreamClock* stream, const char* name, const Range* ranges,
              size_t num_ranges);

  // An event is recorded; a stream waits for what one holds.
  void Record(StreamClock* stream, Clock* out_event);
  void Wait(StreamClock* stream, const Clock& event);

  // The calling thread knows that what `clock` holds is complete.
  void Learn(const Clock& clock);
  void Share(bool on);

  // Memory that goes back: what used it has to be known complete by some
  // thread.
  void Free(const void* address, size_t bytes);

  uint64_t num_races();
  // Of the first; "" if there is none. Until the next Start().
  const char* first_race();

 private:
  // Of the `number`-th piece of work of a stream.
  struct Use {
    uint32_t stream = 0;
    uint32_t number = 0;  // 0: nobody.
    const char* name = "";
  };
  // Bytes of one history.
  struct Cell {
    uintptr_t end = 0;
    Use write;               // The last one.
    std::vector<Use> reads;  // Since then, one per stream.
  };
  using Cells = std::map<uintptr_t, Cell>;  // By where they begin.

  Clock& HostLocked();
  void RefreshLocked(StreamClock* stream);
  void JoinLocked(Clock* into, const Clock& from);
  bool KnowsLocked(const Clock& clock, const Use& use) const;
  Cells::iterator SplitLocked(uintptr_t at);
  void ReadLocked(const StreamClock& stream, const Use& use, uintptr_t begin,
                  uintptr_t end);
  void WriteLocked(const StreamClock& stream, const Use& use, uintptr_t begin,
                   uintptr_t end);
  void CheckLocked(const Clock& clock, const Use& earlier, const char* did,
                   const Use& later, const char* does, uintptr_t begin,
                   uintptr_t end);

  std::atomic<bool> on_{false};
  std::mutex mu_;
  // Guarded by mu_.
  uint64_t run_ = 0;
  uint32_t num_streams_ = 0;
  bool share_ = false;
  Clock all_hosts_;
  Cells cells_;
  std::set<std::string> names_;
  uint64_t num_races_ = 0;
  std::string first_race_;
};

Clocks& AllClocks();

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_CLOCKS_H_
