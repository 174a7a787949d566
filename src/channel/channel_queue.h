// The launches of a channel, from their submit to their end.
#ifndef COMMSCHED_SRC_CHANNEL_CHANNEL_QUEUE_H_
#define COMMSCHED_SRC_CHANNEL_CHANNEL_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/completions.h"
#include "base/mutex.h"
#include "base/running_clock.h"
#include "channel/channel_launch.h"
#include "channel/channel_spec.h"
#include "channel/channel_trace.h"
#include "channel/launch_queue.h"
#include "channel/request_table.h"
#include "channel/shape_table.h"
#include "comm/backend_rank.h"
#include "comm/plugin/table_support.h"
#include "device/device.h"
#include "exec/failure.h"
#include "exec/inflight_window.h"
#include "exec/lane_watchdog.h"
#include "trace/flight_record.h"

namespace commsched {

// What a queue is made of; all outlive it.
struct ChannelQueueSpec {
  const ChannelSpec* channel = nullptr;
  const commsched_backend_t* backend = nullptr;
  BackendRank* rank = nullptr;
  void* comm = nullptr;
  uint32_t max_members = 1;             // of a launch
  FlightRecord* flight = nullptr;       // null if none is kept
  const ChannelTrace* trace = nullptr;  // null: launches are not traced
  // Aborts the communicator here and on all members.
  std::function<void(const absl::Status&)> abort;
};

// Of a backend that is polled, or done when a launch returns. Launches go out
// in the order of their submits, in two lines: collectives, in one order on all
// members, and sends and receives, which are matched by pair and tag. Each has
// its room; what finds none waits for it, behind nothing of the other line.
class ChannelQueue final : public LaunchQueue {
 public:
  explicit ChannelQueue(const ChannelQueueSpec& spec);
  ~ChannelQueue() override;
  ChannelQueue(const ChannelQueue&) = delete;
  ChannelQueue& operator=(const ChannelQueue&) = delete;

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
  Totals totals() const override;

  bool Pump() override;
  int64_t NextWakeNs() const override;
  bool HasWork() const override {
    return !failed() && (num_posted_ != 0 || has_queued());
  }

  void Ask() const override;
  std::vector<std::string> Describe() const override;
  uint64_t num_queued() const override {
    return num_queued_.load(std::memory_order_acquire);
  }

 private:
  // Launches that wait for each other only.
  struct Line {
    // With mu_: those that are not posted, oldest first.
    ChannelLaunch* first = nullptr;
    ChannelLaunch* last = nullptr;
    // With the turn:
    std::vector<ChannelLaunch*> posted;  // oldest first
    std::vector<uint32_t> free;          // numbers for the backend
  };

  absl::Status CheckOpen() const;
  ChannelLaunch* TakeLaunchLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FreeLocked(ChannelLaunch* launch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<uint64_t> Enqueue(absl::Span<ChannelLaunch* const> launches,
                                   uint64_t user, Stream* stream);
  void AppendLocked(absl::Span<ChannelLaunch* const> launches,
                    ChannelRequest* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Release(absl::Span<ChannelLaunch* const> launches);

  bool has_queued() const { return num_queued() != 0; }
  ChannelLaunch* FirstOf(const Line& line);
  void PopFront(Line* line);
  bool MayPost(const Line& line, const ChannelLaunch& launch);
  bool TryPost(Line* line);
  absl::Status ExpectIfNew(ChannelLaunch* launch);
  absl::Status Post(ChannelLaunch* launch);
  bool PollAll(Line* line);
  absl::Status Poll(ChannelLaunch* launch);
  void Retire(Line* line, ChannelLaunch* launch);
  void FinishLocked(ChannelRequest* request, absl::StatusCode code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckDeadlines();
  void CheckCommunicator();

  uint32_t LaneOf(const ChannelLaunch& launch) const;
  WatchedLaunch Watched(const ChannelLaunch& launch) const;
  absl::Status ErrorOf(const ChannelLaunch& launch, const char* call,
                       commsched_status_t code);
  void Note(FlightEvent event, const ChannelLaunch& launch);

  const ChannelQueueSpec spec_;
  const ChannelSpec& channel_;
  const ChannelGroup group_;
  const bool is_inline_;
  const bool expects_again_;
  const RunningClock& clock_ = RunningClock::Get();

  Failure failure_;

  mutable Mutex mu_;
  RequestTable requests_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<ChannelLaunch>> launches_ ABSL_GUARDED_BY(mu_);
  ChannelLaunch* free_launches_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t num_collectives_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;  // All have been told.
  // Requests below it have finished: RequestTable::oldest(), for who only
  // looks. Released with mu_.
  std::atomic<uint64_t> oldest_{1};
  // Released by who submits, acquired by who pumps.
  std::atomic<uint64_t> num_queued_{0};

  // Owned by who pumps, but for what Line says.
  Line collectives_;
  Line transfers_;
  size_t num_posted_ = 0;
  InflightWindow window_;  // of collectives
  LaneWatchdog watchdog_;
  ShapeTable shapes_;
  SizeGuess sizes_;  // of what has been posted: read by who submits
  uint32_t num_slots_ = 0;
  PluginMessage message_;
  std::atomic<uint64_t> num_launches_{0};
  std::atomic<uint64_t> num_bytes_{0};
  std::atomic<uint64_t> num_shapes_{0};
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_CHANNEL_QUEUE_H_
