#ifndef COMMSCHED_SRC_DEVICE_DEVICE_H_
#define COMMSCHED_SRC_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/parker.h"
#include "commsched/stream.h"
#include "commsched/types.h"

namespace commsched {

// A point in a stream, reused step after step: generation g is complete once
// the work enqueued before Record(event, g) is done. Generations are recorded
// in increasing order; complete(g) implies complete(g-1). Generation 0 is
// complete from the start.
//
// Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  // Whether generation `generation` is complete. Acquire.
  virtual bool IsComplete(uint64_t generation) const = 0;
  // Blocks the calling thread until it is. Returns at once after Poison().
  virtual void Synchronize(uint64_t generation) = 0;
  // From now on `listener` is unparked whenever a generation completes, unless
  // nobody tells: events of a device have to be looked at. At most
  // kMaxListeners; before the event is used. The parker must outlive the event.
  static constexpr int kMaxListeners = 4;
  virtual void AddListener(Parker* listener) = 0;
  // Completes every generation, past and future: after the first failure
  // nobody waits for ever (I7). Waiters must look at the failure themselves.
  virtual void Poison() = 0;

  // ---- For streams ----

  // `generation` is complete: of a stream whose work is done by the host.
  virtual void Complete(uint64_t generation) = 0;
  // What a stream of the device records as `generation`, followed by
  // Recorded(). Null if it cannot: an event of the host.
  virtual void* ToRecord(uint64_t /*generation*/) { return nullptr; }
  virtual void Recorded(uint64_t generation) { Complete(generation); }
  // Blocks until what a stream of the device has recorded last is done, by the
  // device's own word to this thread, whatever Complete() and Poison() say.
  virtual void AwaitRecorded() {}
  // What a stream of the device has to wait for. Null if it cannot or need not.
  virtual void* ToWaitFor(uint64_t /*generation*/) { return nullptr; }
  // Whether a stream of the session need not wait where ToWaitFor() is null:
  // `generation` is complete, or the stream is behind it already.
  virtual bool IsOrdered(uint64_t generation) const {
    return IsComplete(generation);
  }

  // ---- For work that streams capture into a graph (exec/step_capture.h) ----

  // Makes what a capture needs. `watched`: each launch of the graph records it,
  // so that somebody can look at it. Does nothing the second time.
  virtual absl::Status PrepareCapture(bool /*watched*/) {
    return absl::UnimplementedError("events of the host cannot be captured");
  }
  // What a capturing stream records, for other capturing streams to wait for.
  virtual void* InCapture() { return nullptr; }
  // What a capturing stream records for each launch of the graph. Null if the
  // event is not watched.
  virtual void* InGraph() { return nullptr; }
  // The graph has been launched as generation `generation`.
  virtual void Replayed(uint64_t /*generation*/) {}
};

// Rows of bytes. Strides are from row to row; a dense copy is one row.
struct RowCopy {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t to_stride = 0;
  uint64_t from_stride = 0;
};

// An in-order queue of work. Wait, Record, Copy, Zero and Store enqueue; they
// block the calling thread only if the stream is the calling thread. What goes
// wrong on a device is its failure (Device::status).
class Stream {
 public:
  virtual ~Stream() = default;
  // Work enqueued from now on starts after `event` is complete at `generation`.
  // Of a device: it has been recorded there, or is complete.
  virtual void Wait(Event* event, uint64_t generation) = 0;
  // `event` reaches `generation` when the work enqueued so far is done.
  virtual void Record(Event* event, uint64_t generation) = 0;
  virtual void Synchronize() = 0;
  // True if the stream is whoever calls: waiting on it blocks the host, and
  // what was enqueued is done.
  virtual bool is_caller() const = 0;
  // True if work on it is enqueued by the caller and done by a device.
  virtual bool is_device() const { return false; }
  // True if it is a device's legacy default stream, which cannot be captured.
  virtual bool is_legacy() const { return false; }
  // Streams of a device only. Zero() clears `bytes`, Store() writes a word.
  virtual void Copy(const RowCopy& /*copy*/) {}
  virtual void Zero(void* /*to*/, uint64_t /*bytes*/) {}
  virtual void Store(int32_t* /*to*/, int32_t /*value*/) {}

  // The number of the capture that takes the stream's work into a graph, or 0
  // if its work is done. kFailedPrecondition if that capture is broken.
  virtual absl::StatusOr<uint64_t> CaptureId() { return 0; }
  // Whether CaptureId() is not 0, at less cost.
  virtual absl::StatusOr<bool> IsCapturing() { return false; }
  // Of a stream that is capturing, or begins to by such a wait: work enqueued
  // from now on depends on what `event` was last recorded behind.
  virtual void WaitInCapture(Event* /*event*/) {}
  virtual void RecordInCapture(Event* /*event*/) {}
  virtual commsched_stream_t handle() const {
    return commsched_stream_caller();
  }
};

// Where a rank's memory is, and what makes its events and streams.
//
// Thread-safe. It outlives what it makes.
class Device {
 public:
  virtual ~Device() = default;
  virtual commsched_device_kind_t kind() const = 0;
  virtual int ordinal() const = 0;
  // For messages: "the host", "CUDA device 0".
  virtual std::string name() const = 0;

  // What runs thread blocks side by side; 0: it does not say.
  virtual int num_multiprocessors() const { return 0; }

  // `depth` generations may be recorded and not yet retired: one that is
  // `depth` steps old must be complete before the next is recorded.
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent(
      uint32_t depth) = 0;
  // A stream of our own beside those of the caller, of the highest priority.
  // kUnimplemented where a thread is needed for that.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateSideStream() = 0;
  // The stream that `native` names, of this device's kind; the same for the
  // same. It lives as long as the device.
  virtual absl::StatusOr<Stream*> Adopt(void* native) = 0;

  virtual absl::StatusOr<void*> Allocate(uint64_t bytes) = 0;  // 64-aligned
  virtual void Free(void* address) = 0;
  // Memory of the host that streams of the device write without making their
  // caller wait.
  virtual absl::StatusOr<void*> AllocateOnHost(uint64_t bytes) {
    return Allocate(bytes);
  }
  virtual void FreeOnHost(void* address) { Free(address); }
  // Waits for it.
  virtual absl::Status Fill(void* to, int value, uint64_t bytes) = 0;

  // Whether launches may use memory at `address`: kInvalidArgument, beginning
  // with "is not", to follow a name.
  virtual absl::Status CheckHere(const void* /*address*/) {
    return absl::OkStatus();
  }
  // Before a thread that only looks on calls anything else here.
  virtual void EnterMonitor() {}

  // The first thing that went wrong in a call that returns nothing.
  virtual bool failed() const { return false; }
  virtual absl::Status status() const { return absl::OkStatus(); }
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_DEVICE_DEVICE_H_
