// Steps that are captured into a CUDA graph, and launches of it.
#include "commsched/session_capture.h"

#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/streams.h"
#include "commsched/session.h"

using commsched::AtBoundary;
using commsched::RequireNonNull;

commsched_status_t commsched_session_capture_begin(commsched_session_t* session,
                                                   commsched_stream_t origin) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    ASSIGN_OR_RETURN(commsched::Stream * known,
                     commsched::StreamOf(origin, session->context->device()));
    return session->session->CaptureBegin(known);
  });
}

commsched_status_t commsched_session_capture_end(commsched_session_t* session) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    return session->session->CaptureEnd();
  });
}

commsched_status_t commsched_session_replay_begin(commsched_session_t* session,
                                                  commsched_stream_t stream) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    ASSIGN_OR_RETURN(commsched::Stream * known,
                     commsched::StreamOf(stream, session->context->device()));
    return session->session->ReplayBegin(known);
  });
}

commsched_status_t commsched_session_replay_end(commsched_session_t* session) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    return session->session->ReplayEnd();
  });
}
