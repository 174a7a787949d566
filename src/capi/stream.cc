#include "commsched/stream.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/streams.h"

namespace commsched {

absl::Status StreamError(const commsched_stream_t& stream) {
  if (stream.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream.reserved is ", stream.reserved, ", not 0"));
  }
  switch (stream.kind) {
    case COMMSCHED_STREAM_HOST:
      return absl::InvalidArgumentError(
          "stream.native of a HOST stream is NULL");
    case COMMSCHED_STREAM_CUDA:
      return absl::InvalidArgumentError(
          "stream.kind is CUDA, but the rank does not compute on a CUDA "
          "device");
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "stream.kind is ", stream.kind, ", not one of CALLER (",
          COMMSCHED_STREAM_CALLER, ") and HOST (", COMMSCHED_STREAM_HOST, ")"));
  }
}

absl::StatusOr<Stream*> StreamOf(const commsched_stream_t& stream,
                                 Device* device) {
  if (Stream* known = KnownStream(stream, device)) return known;
  const bool of_device = stream.kind == COMMSCHED_STREAM_CUDA &&
                         device->kind() == COMMSCHED_DEVICE_CUDA;
  if (of_device && stream.reserved == 0) return device->Adopt(stream.native);
  return StreamError(stream);
}

namespace {

absl::StatusOr<HostStream*> HostStreamOf(const commsched_stream_t& stream) {
  if (KnownStream(stream) == nullptr) return StreamError(stream);
  if (stream.kind != COMMSCHED_STREAM_HOST) {
    return absl::InvalidArgumentError(
        "work is enqueued on HOST streams; this is the CALLER stream");
  }
  return static_cast<NativeHostStream*>(stream.native)->stream.get();
}

}  // namespace
}  // namespace commsched

using commsched::AtBoundary;
using commsched::RequireNonNull;

commsched_status_t commsched_host_stream_create(
    commsched_context_t* context, const char* name, uint32_t capacity,
    commsched_stream_t* out_stream) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"context", context}, {"name", name}, {"out_stream", out_stream}}));
    ASSIGN_OR_RETURN(auto stream,
                     commsched::HostStream::Create(name, capacity));
    auto* native =
        new commsched::NativeHostStream{context->context, std::move(stream)};
    *out_stream = {COMMSCHED_STREAM_HOST, 0, native};
    return absl::OkStatus();
  });
}

commsched_status_t commsched_host_stream_enqueue(commsched_stream_t stream,
                                                 commsched_host_fn fn,
                                                 void* user) {
  return AtBoundary([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* host, commsched::HostStreamOf(stream));
    if (fn == nullptr) {
      return absl::InvalidArgumentError("argument 'fn' is NULL");
    }
    host->Enqueue(fn, user);
    return absl::OkStatus();
  });
}

commsched_status_t commsched_stream_synchronize(commsched_stream_t stream) {
  return AtBoundary([&]() -> absl::Status {
    if (stream.kind == COMMSCHED_STREAM_CUDA) {
      return absl::UnimplementedError(
          "a CUDA stream is synchronized by cudaStreamSynchronize()");
    }
    commsched::Stream* known = commsched::KnownStream(stream);
    if (known == nullptr) return commsched::StreamError(stream);
    known->Synchronize();
    return absl::OkStatus();
  });
}

void commsched_host_stream_destroy(commsched_stream_t stream) {
  if (stream.kind != COMMSCHED_STREAM_HOST) return;
  commsched::AtVoidBoundary(
      [&] { delete static_cast<commsched::NativeHostStream*>(stream.native); });
}
