#ifndef COMMSCHED_SRC_TRACE_RECORDER_H_
#define COMMSCHED_SRC_TRACE_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace commsched {

enum class RecordKind : uint8_t {
  kStepBegin,  // begin_ns only
  kCompute,    // [before returned, after called] of a compute op
  kLaunch,     // [lane's waits met, complete] of a launch
  kWait,       // host time blocked in `before`
  kHold,       // what held a launch back: HoldRecord
  kStart,      // when all members had issued a launch: StartRecord
  kChannel,    // [posted, finished] of what a channel launched
};

// One interval, on the clock of base/clock.h. 40 bytes in the ring.
struct Record {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t step = 0;  // kChannel: the request
  // kLaunch: bytes in flight, itself included, at issue; kChannel: its bytes.
  uint64_t value = 0;
  uint32_t index = 0;  // op id, or launch id; kChannel: Recorder::AddChannel()
  RecordKind kind = RecordKind::kStepBegin;
  // kCompute, kWait: compute lane; kLaunch: comm lane; kChannel: which channel
  // of the recorder's, modulo 256.
  uint8_t lane = 0;
};

// What a launch waited for, as far as its rank knows. A record of its own: a
// launch's has no room.
struct Hold {
  int64_t ready_ns = 0;  // its producers had had their `after`
  // All members had issued it; 0: nobody has said so by its end. Then there may
  // be a Start.
  int64_t started_ns = 0;
  // From `ready_ns` until the launch before it in key order had been issued; 0
  // if it then had to wait for events.
  int64_t order_ns = 0;
  int64_t cap_ns =
      0;  // a full window or no request, and nothing else to wait for
};
// Durations stop at 4.29 s.
Record HoldRecord(const Hold& hold, uint64_t step, uint32_t launch,
                  uint8_t lane);
Hold HoldOf(const Record& record);

// When the last member issued a launch, where that is known some time later.
struct Start {
  int64_t started_ns = 0;
  int64_t error_ns = 0;  // at most so far off
  int last_rank = 0;     // in the world: who that was
};
// An error stops at 4.29 s.
Record StartRecord(const Start& start, uint64_t step, uint32_t launch);
Start StartOf(const Record& record);

// Names for the records of one plan, set once when a session binds.
struct RecordNames {
  struct LaunchName {
    std::string name;        // "reduce_scatter grad.0+grad.1"
    std::string collective;  // as c10d calls it: docs/trace_formats.md
    std::string reduction;   // "sum"; empty if nothing is reduced
    std::string dtype;       // "f32"
    std::string axis;
    std::vector<int> ranks;  // world ranks of the group
    uint64_t input_count = 0, output_count = 0, bytes = 0;
    uint32_t num_members = 1;
  };
  // A launch of `distance` steps before, whose completion an op waits for.
  struct LaunchWait {
    uint32_t launch = 0;
    uint64_t distance = 0;
  };
  int rank = 0;
  int world_size = 1;
  std::vector<std::string> ops;  // by op id
  std::vector<LaunchName> launches;
  // By op id: of the waits that the plan could not leave out. May be shorter.
  std::vector<std::vector<LaunchWait>> launch_waits;
};

// A ring of records of one rank, oldest overwritten. Adding takes no lock and
// allocates nothing; several threads may do so at once. Reading is for when
// nobody adds, and the caller orders the two; but for SnapshotOfLast().
//
// A writer that is suspended inside Add while the others fill the whole ring
// comes back to a slot that has been taken again. The two records then mix:
// one interval is wrong (or dropped, if it ends before it begins), nothing
// else happens. A capacity of several steps makes that a matter of seconds
// without a time slice; guarding against it would cost each Add two stores.
class Recorder {
 public:
  static constexpr uint64_t kMinCapacity = 1024;
  static constexpr uint64_t kMaxCapacity = uint64_t{1} << 26;

  // kInvalidArgument unless kMinCapacity <= capacity <= kMaxCapacity.
  static absl::StatusOr<std::unique_ptr<Recorder>> Create(uint64_t capacity);

  // Holds `capacity` records, rounded up to a power of two, less what writers
  // have taken and not filled.
  explicit Recorder(uint64_t capacity);

  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Any thread. A Writer's is cheaper, and does not slow others down.
  void Add(const Record& record) {
    // Relaxed: who reads has been ordered after all writers, or tells by the
    // records' steps which are of use.
    Slot& slot = ring_[next_.fetch_add(1, std::memory_order_relaxed) & mask_];
    slot.Store(record);
  }
  class Writer;

  // Of a session; those of channels stay.
  void SetNames(RecordNames names);
  const RecordNames& names() const { return names_; }

  // What a channel of `rank` launches, by kind, each with its name, axis and
  // ranks: the i-th has `first` + i for Record::index.
  struct ChannelIds {
    uint32_t first = 0;
    uint8_t lane = 0;
  };
  ChannelIds AddChannel(int rank, int world_size,
                        const std::vector<RecordNames::LaunchName>& kinds);
  // Null: neither a launch nor of a channel, or it has no name.
  const RecordNames::LaunchName* LaunchNameOf(const Record& record) const;
  const std::vector<RecordNames::LaunchName>& channel_names() const {
    return channel_names_;
  }

  // Held records of intervals, sorted by begin_ns; those that begin together,
  // oldest first.
  std::vector<Record> Snapshot() const;
  // Those of kind kHold, or kStart, in the same order.
  std::vector<Record> SnapshotOfHolds() const;
  std::vector<Record> SnapshotOfStarts() const;
  // Of what channels launched, sorted by begin_ns.
  std::vector<Record> SnapshotOfChannels() const;
  // Those of the last `steps` steps that have begun, as Snapshot() has them,
  // and some before. May be called while others add: what is being added may be
  // left out.
  std::vector<Record> SnapshotOfLast(uint64_t steps) const;

 private:
  // Slots that a writer takes at once; a locked add is what a store costs most.
  static constexpr uint64_t kBlock = 8;

  // What of a launch is no interval is asked for by its kind.
  enum class Wanted { kIntervals, kHolds, kStarts, kChannels };
  static Wanted WantedBy(RecordKind kind);
  std::vector<Record> Held(Wanted wanted) const;
  // The records in the slots from `begin` to `end`.
  std::vector<Record> HeldIn(uint64_t begin, uint64_t end, Wanted wanted) const;

  // A record as words, each written at once: a slot that two threads write is
  // no data race.
  class Slot {
   public:
    void Store(const Record& record) {
      const uint64_t tail = uint64_t{record.index} |
                            uint64_t{static_cast<uint8_t>(record.kind)} << 32 |
                            uint64_t{record.lane} << 40 | kFilled;
      Put(0, static_cast<uint64_t>(record.begin_ns));
      Put(1, static_cast<uint64_t>(record.end_ns));
      Put(2, record.step);
      Put(3, record.value);
      // Released for whoever reads while others add: a new slot is whole.
      words_[4].store(tail, std::memory_order_release);
    }
    void Clear() { Put(4, 0); }
    bool is_filled() const {
      return (words_[4].load(std::memory_order_acquire) & kFilled) != 0;
    }
    Record Load() const;

   private:
    static constexpr uint64_t kFilled = uint64_t{1} << 48;

    void Put(int i, uint64_t word) {
      words_[i].store(word, std::memory_order_relaxed);
    }
    uint64_t Get(int i) const {
      return words_[i].load(std::memory_order_relaxed);
    }
    std::atomic<uint64_t> words_[5] = {};
  };

  // Constant after construction.
  const uint64_t mask_;
  const std::unique_ptr<Slot[]> ring_;
  RecordNames names_;
  std::vector<RecordNames::LaunchName> channel_names_;
  uint8_t num_channels_ = 0;

  std::atomic<uint64_t> next_{0};  // slots taken ever
};

// Adds to a recorder for one thread at a time, a block of slots after the
// other. What it has taken and not filled holds no record.
class Recorder::Writer {
 public:
  // `recorder` outlives the writer; null if nothing is ever added.
  explicit Writer(Recorder* recorder) : recorder_(recorder) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Add(const Record& record) {
    if (next_ == end_) TakeBlock();
    recorder_->ring_[next_++ & recorder_->mask_].Store(record);
  }
  // After a pause, in which others may have gone round the ring and be about to
  // overwrite what is left of the block.
  void CatchUp();

 private:
  void TakeBlock();

  Recorder* const recorder_;
  uint64_t next_ = 0, end_ = 0;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_RECORDER_H_
