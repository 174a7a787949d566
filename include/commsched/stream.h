/// Streams: where work is enqueued.
#ifndef COMMSCHED_STREAM_H_
#define COMMSCHED_STREAM_H_

#include <stddef.h>
#include <stdint.h>

#include "commsched/export.h"
#include "commsched/status.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t commsched_stream_kind_t;
enum {
  /// The calling thread: work is done when the call that does it returns.
  COMMSCHED_STREAM_CALLER = 0,
  /// A worker thread of the library that runs enqueued functions in order.
  COMMSCHED_STREAM_HOST = 1,
  /// A CUDA stream of the caller's, for ranks that compute on a CUDA device
  /// (commsched_world_desc_t::device_kind). `native` is the cudaStream_t, of
  /// that device; it must not be destroyed before what was told of it.
  /// cudaStreamPerThread, which is another stream on each thread, is refused.
  COMMSCHED_STREAM_CUDA = 2
};

/// A stream, passed by value. `native` is NULL for CALLER, and for CUDA's
/// default stream. Never grows.
typedef struct commsched_stream {
  commsched_stream_kind_t kind;
  uint32_t reserved;  ///< 0.
  void* native;
} commsched_stream_t;

/// Returns the stream that is the calling thread itself.
///
/// Threads:   any.
/// Since:     0.1
static inline commsched_stream_t commsched_stream_caller(void) {
  commsched_stream_t stream;
  stream.kind = COMMSCHED_STREAM_CALLER;
  stream.reserved = 0;
  stream.native = NULL;
  return stream;
}

/// Work for a host stream. Must not block on later work of the same stream.
typedef void (*commsched_host_fn)(void* user);

/// Starts a worker thread, called `name` in debuggers, that runs what is
/// enqueued on it, in order.
///
/// Ownership: release with commsched_host_stream_destroy(), which first runs
///            what is enqueued.
/// Threads:   any.
/// Errors:    INVALID_ARGUMENT  NULL, or `capacity` not in 1..65536
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_host_stream_create(commsched_context_t* context, const char* name,
                             uint32_t capacity, commsched_stream_t* out_stream);

/// Enqueues `fn(user)`. Does not allocate.
///
/// Threads:   any; calls from several threads are run in some order.
/// Blocks:    while `capacity` items are queued.
/// Errors:    INVALID_ARGUMENT  not a HOST stream, NULL `fn`
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_host_stream_enqueue(
    commsched_stream_t stream, commsched_host_fn fn, void* user);

/// Blocks until everything enqueued so far has run. A CALLER stream is always
/// synchronized.
///
/// Threads:   any but the stream's own worker.
/// Blocks:    yes.
/// Errors:    INVALID_ARGUMENT  an unknown kind, a HOST stream without `native`
///            UNIMPLEMENTED     a CUDA stream, which is CUDA's to synchronize
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_stream_synchronize(commsched_stream_t stream);

/// Runs what is enqueued, then ends the worker. Does nothing for CALLER.
///
/// Threads:   any but the stream's own worker; no other call may be using the
///            stream.
/// Blocks:    until the worker has ended.
/// Since:     0.1
COMMSCHED_API void commsched_host_stream_destroy(commsched_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_STREAM_H_
