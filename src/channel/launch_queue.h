// What takes the requests of a channel, by where its backend works.
#ifndef COMMSCHED_SRC_CHANNEL_LAUNCH_QUEUE_H_
#define COMMSCHED_SRC_CHANNEL_LAUNCH_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "channel/channel_spec.h"
#include "comm/backend_rank.h"
#include "device/device.h"

namespace commsched {

// Launches on memory of the host (ChannelQueue) or of a device (DeviceQueue),
// from their submit to their end.
//
// Submits: any thread; they wait for no peer. Pump and its like: whoever has
// the rank's turn (BackendRank). All else: any thread.
class LaunchQueue : public Pumped {
 public:
  // The number of the request. `stream`: what the request reads is written once
  // the work on it so far is done.
  virtual absl::StatusOr<uint64_t> Submit(const ChannelOp& op,
                                          Stream* stream) = 0;
  // Sends and receives, which finish together.
  virtual absl::StatusOr<uint64_t> SubmitBatch(absl::Span<const ChannelOp> ops,
                                               Stream* stream) = 0;

  // An event that is complete in a generation once the request has finished;
  // null: it has. kOutOfRange: there is no such request.
  struct Done {
    Event* event = nullptr;
    uint64_t generation = 0;
    // Of a device: the generation that has been recorded last.
    const std::atomic<uint64_t>* enqueued = nullptr;
  };
  virtual absl::StatusOr<Done> Find(uint64_t request) = 0;
  // The same of the oldest that has not finished.
  virtual Done FindOldest() const = 0;
  // Waits until it is complete, or the queue has failed, or `deadline_ns` of
  // SystemClock.
  virtual void AwaitBy(const Done& done, int64_t deadline_ns) = 0;
  // Work enqueued on `stream`, which is not the caller, from now on comes after
  // it. kInvalidArgument: there is no such stream where the queue works.
  virtual absl::Status HaveWait(const Done& done, Stream* stream) = 0;

  // First failure: finishes all requests with it, wakes every waiter, and
  // aborts the communicators on all members (I7). Later calls do nothing.
  virtual void Fail(const absl::Status& status) = 0;
  virtual bool failed() const = 0;
  virtual absl::Status status() const = 0;
  // The same, once something is complete: whether it is so by an abort.
  virtual absl::Status StatusOfComplete() { return status(); }

  // Of what has finished.
  struct Totals {
    uint64_t launches = 0, bytes = 0, shapes = 0;
  };
  virtual Totals totals() const = 0;

  // With the rank's turn: asks the backend anew who has not issued what is
  // posted, and describes it, a line each.
  virtual void Ask() const = 0;
  virtual std::vector<std::string> Describe() const = 0;
  // What has been submitted and is not with the backend. Any thread.
  virtual uint64_t num_queued() const = 0;

  // Blocks until nothing that has been handed to the backend uses memory any
  // more, or after a failure has been asked not to. Nothing is submitted any
  // more, and all requests have finished.
  virtual void AwaitRest() {}
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_LAUNCH_QUEUE_H_
