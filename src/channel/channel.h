#ifndef COMMSCHED_SRC_CHANNEL_CHANNEL_H_
#define COMMSCHED_SRC_CHANNEL_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/wait_registry.h"
#include "channel/channel_spec.h"
#include "channel/channel_trace.h"
#include "channel/device_pairs.h"
#include "channel/launch_queue.h"
#include "comm/device_lanes.h"
#include "device/device.h"
#include "session/communicators.h"
#include "trace/flight_record.h"

namespace commsched {

// Behind include/commsched/channel.h, which states the contract of each call.
//
// A queue over one group, with a communicator of its own. Thread-safe, but for
// its end.
class Channel final : private Waiter {
 public:
  // Collective over the group.
  static absl::StatusOr<std::unique_ptr<Channel>> Create(ChannelSpec spec);
  // In place of Create(), by a rank that cannot even describe it, because of
  // `why`: the other members learn that. Never blocks.
  static void Decline(const ChannelSpec& spec, const absl::Status& why);
  // Waits for what is under way, as long as deadlines let it.
  ~Channel() override;

  absl::StatusOr<uint64_t> Submit(const ChannelOp& op, Stream* stream) {
    RememberWaiting(stream);
    return queue_->Submit(op, stream);
  }
  absl::StatusOr<uint64_t> SubmitBatch(absl::Span<const ChannelOp> ops,
                                       Stream* stream) {
    RememberWaiting(stream);
    return queue_->SubmitBatch(ops, stream);
  }
  absl::StatusOr<bool> Test(uint64_t request);
  // kDeadlineExceeded, which changes nothing, after `timeout_ns`.
  absl::Status Wait(uint64_t request, int64_t timeout_ns);
  // Work enqueued on `stream` from now on comes after the request.
  absl::Status Before(uint64_t request, Stream* stream);
  void Abort(absl::string_view reason) {
    queue_->Fail(absl::AbortedError(reason));
  }
  absl::Status status() const { return queue_->status(); }
  LaunchQueue::Totals totals() const { return queue_->totals(); }

 private:
  explicit Channel(ChannelSpec spec);
  absl::Status CheckSpec() const;
  absl::Status Connect();
  SessionSpec ForCommunicators() const;
  absl::Status BorrowLane();
  absl::Status WarmUp(const SessionSpec& session);
  absl::Status Start();
  std::unique_ptr<LaunchQueue> MakeQueue();
  absl::StatusOr<std::unique_ptr<LaunchQueue>> MakeDeviceQueue();
  void AwaitAll();
  void RememberWaiting(Stream* stream);
  void DescribeTo(std::string* text) const override;

  const ChannelSpec spec_;
  const bool on_device_;
  // On a device: that of collectives, alone.
  std::vector<std::shared_ptr<DeviceLane>> lanes_;
  Communicators communicators_;
  std::shared_ptr<DevicePairs> pairs_;    // null: not on a device
  std::unique_ptr<LaneQueue> order_;      // of collectives; likewise
  std::unique_ptr<FlightRecord> flight_;  // null if none is kept
  std::unique_ptr<ChannelTrace> trace_;   // null: launches are not traced
  std::unique_ptr<LaunchQueue> queue_;
  bool is_attached_ = false;

  // HOST streams that may hold work for events of ours; they outlive the
  // channel.
  Mutex waiting_mu_;
  std::vector<Stream*> waiting_ ABSL_GUARDED_BY(waiting_mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_CHANNEL_H_
