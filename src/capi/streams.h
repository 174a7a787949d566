// Streams and events by value, and what is behind their `native`.
#ifndef COMMSCHED_SRC_CAPI_STREAMS_H_
#define COMMSCHED_SRC_CAPI_STREAMS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "capi/context.h"
#include "commsched/stream.h"
#include "device/host_device.h"

namespace commsched {

// `native` of a HOST stream.
struct NativeHostStream {
  std::shared_ptr<Context> context;
  std::unique_ptr<HostStream> stream;
};

// `native` of an event. Generations count its records.
struct NativeHostEvent {
  std::shared_ptr<Context> context;
  std::unique_ptr<Event> event;

  Mutex mu;
  uint64_t generation ABSL_GUARDED_BY(mu) = 0;
  Stream* recorded_on ABSL_GUARDED_BY(mu) = nullptr;  // Compared only.
};

// The stream that `stream` names, or null if it names none; StreamError() then
// says why. Two functions because sessions call this for every op.
inline Stream* KnownStream(const commsched_stream_t& stream) {
  if (stream.reserved != 0) return nullptr;
  if (stream.kind == COMMSCHED_STREAM_CALLER) return CallerStream();
  if (stream.kind != COMMSCHED_STREAM_HOST || stream.native == nullptr) {
    return nullptr;
  }
  return static_cast<NativeHostStream*>(stream.native)->stream.get();
}
absl::Status StreamError(const commsched_stream_t& stream);

absl::StatusOr<Stream*> StreamOf(const commsched_stream_t& stream);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_STREAMS_H_
