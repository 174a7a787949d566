// The launches of a channel on streams of a device.
#ifndef COMMSCHED_SRC_CHANNEL_DEVICE_QUEUE_H_
#define COMMSCHED_SRC_CHANNEL_DEVICE_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/running_clock.h"
#include "channel/channel_launch.h"
#include "channel/channel_spec.h"
#include "channel/channel_trace.h"
#include "channel/device_line.h"
#include "channel/device_pairs.h"
#include "channel/launch_queue.h"
#include "channel/numbered_ring.h"
#include "comm/plugin/table_support.h"
#include "exec/failure.h"
#include "exec/lane_watchdog.h"
#include "exec/monitor_guard.h"
#include "trace/flight_record.h"

namespace commsched {

// What a queue is made of; all outlive it.
struct DeviceQueueSpec {
  const ChannelSpec* channel = nullptr;
  const commsched_backend_t* backend = nullptr;
  BackendRank* rank = nullptr;
  Device* device = nullptr;
  DeviceRoad collectives;
  void* batches = nullptr;              // a communicator
  std::shared_ptr<DevicePairs> pairs;   // kept with the queue
  uint32_t max_members = 1;             // of a launch
  FlightRecord* flight = nullptr;       // null if none is kept
  const ChannelTrace* trace = nullptr;  // null: launches are not traced
  // Aborts the communicators here and on all members.
  std::function<void(const absl::Status&)> abort;
};

// Of a STREAM_ORDERED backend. Who submits enqueues: the stream of the launch's
// line waits for the caller's, the backend launches, an event is recorded, all
// within one turn of the lane. Lines are collectives, on a lane of the device,
// batches of sends and receives, and each pair of ranks, for what is not in a
// batch. These have streams of their own: on a lane they would hold up others,
// since how many a rank launches is its own affair. No line holds up another.
//
// What finds no room on its stream, or whose pair is not connected, waits in
// its line, and the monitor enqueues it: who pumps. It looks at events, too,
// finishes requests, and watches deadlines and communicators. A call of CUDA or
// NCCL is made with no lock of this held, but for the line's turn of submits.
class DeviceQueue final : public LaunchQueue {
 public:
  explicit DeviceQueue(const DeviceQueueSpec& spec);
  ~DeviceQueue() override;
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // Makes the stream of batches, and what as many requests need as may be under
  // way. Before all else.
  absl::Status Prepare();

  absl::StatusOr<uint64_t> Submit(const ChannelOp& op, Stream* stream) override;
  absl::StatusOr<uint64_t> SubmitBatch(absl::Span<const ChannelOp> ops,
                                       Stream* stream) override;
  absl::StatusOr<Done> Find(uint64_t request) override;
  Done FindOldest() const override;
  void AwaitBy(const Done& done, int64_t deadline_ns) override;
  absl::Status HaveWait(const Done& done, Stream* stream) override;
  void Fail(const absl::Status& status) override;
  bool failed() const override { return failure_.failed(); }
  absl::Status status() const override { return failure_.status(); }
  absl::Status StatusOfComplete() override;
  Totals totals() const override;
  void Ask() const override {}
  std::vector<std::string> Describe() const override;
  uint64_t num_queued() const override;
  void AwaitRest() override;

  bool Pump() override;
  int64_t NextWakeNs() const override {
    return failed() || rests_ ? kNoDeadlineNs : next_look_ns_;
  }
  bool HasWork() const override { return !failed(); }

 private:
  absl::Status CheckStream(Stream* stream) const;
  absl::Status CheckMemory(const ChannelLaunch& launch) const;
  // For a launch of `line`.
  absl::StatusOr<DeviceLaunch*> Take(DeviceLine* line);
  DeviceLaunch* TakeFree();  // Null: there is none.
  absl::StatusOr<DeviceLaunch*> Make();
  void GiveBack(DeviceLaunch* launch);
  // With the line's turn of submits, as all that follows.
  absl::StatusOr<uint64_t> Enqueue(DeviceLine* line, DeviceLaunch* launch,
                                   uint64_t user, Stream* stream);
  // Takes room on the stream for `launch`, unless there is none; `is_first`: it
  // was the first of those that are queued, and is not any more.
  bool Admit(DeviceLine* line, DeviceLaunch* launch, bool is_first);
  void Post(DeviceLine* line, DeviceLaunch* launch);
  absl::Status PostInTurn(const DeviceRoad& road, DeviceLaunch* launch);
  void WakeMonitor();
  // Finishes what has ended of `line`: whether that was anything. Any thread;
  // if another one is at it, waits for that until `deadline_ns` of SystemClock.
  bool RetireEnded(DeviceLine* line, int64_t deadline_ns = 0);
  void Retire(DeviceLine* line, size_t count);
  absl::StatusOr<DeviceLine*> PairWith(int peer);

  // The monitor's.
  struct Head {
    DeviceLine* line = nullptr;
    DeviceLaunch* launch = nullptr;
    bool is_posted = false;
  };
  bool Look();
  void FindLines();
  void ConnectPairs();
  bool RetireAll();
  bool HasEnded(const DeviceLaunch& launch) const {
    return launch.enqueued.load(std::memory_order_acquire) ==
               launch.generation &&
           launch.done->IsComplete(launch.generation);
  }
  bool PostQueued();
  Head HeadOf(DeviceLine* line) const;
  bool CheckDeadlines();
  bool CheckDeadline(DeviceLine* line, int64_t now_ns, int64_t* first_ns);
  absl::Status Expired(const Head& head, int64_t now_ns) const;
  void DecideWhenToLook(bool busy);
  void CheckCommunicators();
  void CheckCommunicator(void* comm);
  WatchedLaunch Watched(const Head& head) const;

  void FinishLocked(DeviceLaunch* launch, absl::StatusCode code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ErrorOf(const ChannelLaunch& launch,
                       const absl::Status& failure) const;
  void Note(FlightEvent event, const DeviceLaunch& launch);

  const DeviceQueueSpec spec_;
  const ChannelSpec& channel_;
  const ChannelGroup group_;
  const RunningClock& clock_ = RunningClock::Get();

  Failure failure_;

  mutable Mutex mu_;
  NumberedRing<DeviceLaunch> requests_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<DeviceLaunch>> launches_ ABSL_GUARDED_BY(mu_);
  DeviceLaunchList free_ ABSL_GUARDED_BY(mu_);
  uint64_t num_collectives_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t num_queued_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;  // All have been told.
  // By rank of the group; null: nothing was sent to it, or received from it.
  std::vector<std::unique_ptr<DeviceLine>> pairs_ ABSL_GUARDED_BY(mu_);
  Mutex pairs_mu_;  // Held while a pair is made. Outside of mu_.
  // Requests below it have finished. Released with mu_.
  std::atomic<uint64_t> oldest_{1};

  std::unique_ptr<Stream> batch_stream_;
  DeviceLine collectives_;
  DeviceLine batches_;

  // The monitor's.
  std::vector<DeviceLine*> lines_;  // those that there are
  LaneWatchdog watchdog_;
  MonitorRound round_;  // Read by the guard.
  uint64_t guarded_ = 0;
  int64_t busy_ns_ = 0;  // When something was last under way.
  int64_t next_look_ns_ = 0;
  bool rests_ = false;  // It sleeps until somebody submits.

  // Who submits has to wake the monitor, who writes it.
  std::atomic<bool> idle_{false};

  std::atomic<uint64_t> num_launches_{0};
  std::atomic<uint64_t> num_bytes_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_DEVICE_QUEUE_H_
