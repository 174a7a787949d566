// Streams by value, and what is behind their `native`.
#ifndef COMMSCHED_SRC_CAPI_STREAMS_H_
#define COMMSCHED_SRC_CAPI_STREAMS_H_

#include <memory>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capi/boundary.h"
#include "capi/context.h"
#include "commsched/stream.h"
#include "device/host_device.h"

namespace commsched {

// `native` of a HOST stream.
struct NativeHostStream {
  std::shared_ptr<Context> context;
  std::unique_ptr<HostStream> stream;
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
// The same for a rank that computes on `device`, whose streams are known, too.
inline Stream* KnownStream(const commsched_stream_t& stream, Device* device) {
  if (ABSL_PREDICT_TRUE(stream.kind != COMMSCHED_STREAM_CUDA)) {
    return KnownStream(stream);
  }
  if (stream.reserved != 0 || device->kind() != COMMSCHED_DEVICE_CUDA) {
    return nullptr;
  }
  return device->Adopt(stream.native).value_or(nullptr);
}

absl::StatusOr<Stream*> StreamOf(const commsched_stream_t& stream,
                                 Device* device);

// Runs `call` with the stream of the session or recording `handle`, which
// messages call `name`. before and after come here for every op of every step:
// this is some comparisons, and a message only on failure.
template <typename Handle, typename Call>
commsched_status_t OnStream(const char* name, Handle* handle,
                            const commsched_stream_t& stream, Call&& call) {
  return AtBoundary([&]() -> absl::Status {
    if (ABSL_PREDICT_FALSE(handle == nullptr)) {
      return RequireNonNull({{name, handle}});
    }
    Stream* const known = KnownStream(stream, handle->context->device());
    if (ABSL_PREDICT_FALSE(known == nullptr)) return StreamError(stream);
    return call(known);
  });
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_STREAMS_H_
