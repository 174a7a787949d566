#include "commsched/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/late_bindings.h"
#include "capi/rank_desc.h"
#include "capi/streams.h"
#include "capi/structs.h"
#include "capi/timeout.h"
#include "comm/plugin/registry.h"
#include "commsched/session_info.h"
#include "session/agreement.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

absl::Status CheckDesc(const commsched_session_desc_t& desc) {
  RETURN_IF_ERROR(RequireNonNull({{"desc.plan", desc.plan}}));
  RETURN_IF_ERROR(CheckRankDesc(RankDescOf(desc)));
  RETURN_IF_ERROR(RequireArrayField("desc.bindings", desc.bindings,
                                    "desc.num_bindings", desc.num_bindings));
  if (desc.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.reserved is ", desc.reserved, ", not 0"));
  }
  if (desc.reserved2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.reserved2 is ", desc.reserved2, ", not 0"));
  }
  if (desc.progress > COMMSCHED_PROGRESS_CALLER) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.progress is ", desc.progress,
                     ", not COMMSCHED_PROGRESS_THREAD or _CALLER"));
  }
  return absl::OkStatus();
}

absl::Status AddBindings(const commsched_session_desc_t& desc,
                         SessionSpec* spec) {
  for (uint32_t i = 0; i < desc.num_bindings; ++i) {
    const commsched_binding_t& binding = desc.bindings[i];
    if (binding.reserved != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "desc.bindings[", i, "].reserved is ", binding.reserved, ", not 0"));
    }
    spec->bindings.push_back(
        {BufferId(binding.buffer), binding.address, binding.bytes});
  }
  return absl::OkStatus();
}

absl::Status AddObservers(const commsched_session_desc_t& desc,
                          SessionSpec* spec) {
  if (desc.observers == nullptr) return absl::OkStatus();
  const std::vector<std::string> names =
      absl::StrSplit(desc.observers, ',', absl::SkipEmpty());
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const commsched_observer_t* observer,
                     PluginRegistry::Process().Observer(name));
    spec->observers.push_back(observer);
  }
  return absl::OkStatus();
}

// Failures keep the code that the caller's function returned.
absl::Status ReadAllocator(const commsched_allocator_t* given,
                           Allocator* allocator) {
  if (given == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const commsched_allocator_t table,
                   ReadStruct(given, "commsched_allocator_t"));
  if ((table.allocate == nullptr) != (table.release == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.allocator has no ",
                     table.allocate == nullptr ? "allocate, but release"
                                               : "release, but allocate",
                     "; set both or none"));
  }
  void* const user = table.user;
  if (table.allocate != nullptr) {
    allocator->allocate = [=](uint64_t bytes) -> absl::StatusOr<void*> {
      void* address = nullptr;
      const commsched_status_t code = table.allocate(user, bytes, &address);
      if (code == COMMSCHED_OK) return address;
      return StatusFromCode(
          code,
          absl::StrCat("the allocator returned ", commsched_status_name(code),
                       " for ", bytes, " bytes of the arena"));
    };
    allocator->release = [=](void* address, uint64_t bytes) {
      table.release(user, address, bytes);
    };
  }
  if (table.trim != nullptr) allocator->trim = [=] { table.trim(user); };
  return absl::OkStatus();
}

// Reads everything of `desc` but its context, which `spec` has.
absl::Status ReadDesc(const commsched_session_desc_t& desc,
                      commsched_session* handle, SessionSpec* spec) {
  RETURN_IF_ERROR(CheckDesc(desc));
  spec->plan = desc.plan->plan;
  ASSIGN_OR_RETURN(spec->groups, GroupsOf(RankDescOf(desc)));
  RETURN_IF_ERROR(AddBindings(desc, spec));
  ASSIGN_OR_RETURN(spec->lanes, LanesOf(RankDescOf(desc)));
  for (uint32_t i = 0; i < desc.num_lanes; ++i) {
    handle->lanes.push_back({spec->lanes[i], desc.lanes[i]});
  }
  if (desc.trace != nullptr) handle->recorder = desc.trace->recorder;
  spec->recorder = handle->recorder.get();
  RETURN_IF_ERROR(AddObservers(desc, spec));
  ASSIGN_OR_RETURN(spec->launch_timeout_ns,
                   TimeoutNs("launch_timeout_ns", desc.launch_timeout_ns));
  if (desc.flight_path != nullptr) spec->flight_path = desc.flight_path;
  RETURN_IF_ERROR(ReadAllocator(desc.allocator, &spec->allocator));
  spec->by_caller = desc.progress == COMMSCHED_PROGRESS_CALLER;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<commsched_session>> CreateSession(
    const commsched_session_desc_t* caller_desc) {
  ASSIGN_OR_RETURN(const commsched_session_desc_t desc,
                   ReadStruct(caller_desc, "commsched_session_desc_t"));
  RETURN_IF_ERROR(RequireNonNull({{"desc.context", desc.context}}));
  auto handle = std::make_unique<commsched_session>();
  handle->context = desc.context->context;
  SessionSpec spec;
  spec.world = handle->context->world();
  spec.world_rank = handle->context->rank();
  // A number once taken is one that the other ranks wait for, so a rank that is
  // refused takes one too, and tells them.
  spec.instance = handle->context->TakeSessionNumber();
  if (absl::Status read = ReadDesc(desc, handle.get(), &spec); !read.ok()) {
    DeclineToAgree(spec, read);
    return read;
  }
  ASSIGN_OR_RETURN(handle->session, Session::Create(std::move(spec)));
  return handle;
}

// What Session::Run() calls back, and what it then calls.
struct ComputeCallback {
  const commsched_session* session;
  commsched_compute_fn fn;
  void* user;
};

commsched_stream_t GivenStream(const commsched_session& session,
                               Stream* stream) {
  for (const commsched_session::Lane& lane : session.lanes) {
    if (lane.stream == stream) return lane.given;
  }
  return commsched_stream_caller();  // Lanes that were not given.
}

absl::Status CallCompute(void* user, OpId op, Stream* stream) {
  const ComputeCallback& callback = *static_cast<const ComputeCallback*>(user);
  const commsched_session& session = *callback.session;
  const uint64_t failures = NumFailuresReported();
  const commsched_status_t code =
      callback.fn(callback.user, op.value(), GivenStream(session, stream));
  if (ABSL_PREDICT_TRUE(code == COMMSCHED_OK)) return absl::OkStatus();
  std::string message = absl::StrCat(
      "the compute callback returned ", commsched_status_name(code),
      " for op '", session.session->plan().graph->op(op).name, "'");
  // What we last refused it, if anything, is likely to be why.
  if (NumFailuresReported() != failures) {
    absl::StrAppend(&message, ": ", commsched_last_error());
  }
  return StatusFromCode(code, message);
}

commsched_session_counters_t ToPublic(const SessionCounters& counters) {
  commsched_session_counters_t result = commsched_session_counters_init();
  result.steps = counters.steps;
  result.launches = counters.launches;
  result.collectives = counters.collectives;
  result.bytes = counters.bytes;
  result.peak_launches_in_flight = counters.peak_launches_in_flight;
  result.peak_bytes_in_flight = counters.peak_bytes_in_flight;
  result.lock_contentions = counters.lock_contentions;
  result.events_created = counters.events_created;
  result.streams_created = counters.streams_created;
  result.registrations = counters.registrations;
  result.stall_due_ns = counters.stall_due_ns;
  result.stall_wait_ns = counters.stall_wait_ns;
  result.stall_window_ns = counters.stall_window_ns;
  result.stall_requests_ns = counters.stall_requests_ns;
  result.arena_bytes = counters.arena_bytes;
  result.registered_bytes = counters.registered_bytes;
  result.allocation_retries = counters.allocation_retries;
  result.backend_peak_bytes = counters.backend_peak_bytes;
  result.launch_allocations = counters.launch_allocations;
  return result;
}

absl::Status AfterBound(commsched_session* session, commsched_op_id_t op,
                        commsched_stream_t stream,
                        const commsched_late_binding_t* bindings,
                        uint32_t num_bindings) {
  RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
  ASSIGN_OR_RETURN(const GivenBindings late,
                   ReadLateBindings(bindings, num_bindings));
  ASSIGN_OR_RETURN(Stream * known,
                   StreamOf(stream, session->context->device()));
  return session->session->AfterBound(OpId(op), known, late);
}

absl::Status CopyCpuNs(const Session& session, int64_t* out_ns,
                       uint64_t num_ops) {
  const uint64_t expected = session.plan().graph->ops().size();
  if (num_ops != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_ops is ", num_ops, ", but the graph has ", expected, " ops"));
  }
  const std::vector<int64_t> ns = session.CollectiveCpuNs();
  std::copy(ns.begin(), ns.end(), out_ns);
  return absl::OkStatus();
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_session_create(
    const commsched_session_desc_t* desc, commsched_session_t** out_session) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"desc", desc}, {"out_session", out_session}}));
    ASSIGN_OR_RETURN(auto session, commsched::CreateSession(desc));
    *out_session = session.release();
    return absl::OkStatus();
  });
}

void commsched_session_destroy(commsched_session_t* session) {
  AtVoidBoundary([&] { delete session; });
}

commsched_status_t commsched_session_step_begin(commsched_session_t* session) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    return session->session->StepBegin();
  });
}

commsched_status_t commsched_session_step_end(commsched_session_t* session) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    return session->session->StepEnd();
  });
}

commsched_status_t commsched_session_before(commsched_session_t* session,
                                            commsched_op_id_t op,
                                            commsched_stream_t stream) {
  return commsched::OnStream(
      "session", session, stream, [&](commsched::Stream* known) {
        return session->session->Before(commsched::OpId(op), known);
      });
}

commsched_status_t commsched_session_after(commsched_session_t* session,
                                           commsched_op_id_t op,
                                           commsched_stream_t stream) {
  return commsched::OnStream(
      "session", session, stream, [&](commsched::Stream* known) {
        return session->session->After(commsched::OpId(op), known);
      });
}

commsched_status_t commsched_session_after_bound(
    commsched_session_t* session, commsched_op_id_t op,
    commsched_stream_t stream, const commsched_late_binding_t* bindings,
    uint32_t num_bindings) {
  return AtBoundary([&]() -> absl::Status {
    return commsched::AfterBound(session, op, stream, bindings, num_bindings);
  });
}

commsched_status_t commsched_session_buffer_release(
    commsched_session_t* session, commsched_buffer_id_t buffer,
    commsched_stream_t stream) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    ASSIGN_OR_RETURN(commsched::Stream * known,
                     commsched::StreamOf(stream, session->context->device()));
    return session->session->BufferRelease(commsched::BufferId(buffer), known);
  });
}

commsched_status_t commsched_session_buffer_poisoned(
    const commsched_session_t* session, commsched_buffer_id_t buffer,
    uint32_t* out_poisoned) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"session", session}, {"out_poisoned", out_poisoned}}));
    ASSIGN_OR_RETURN(const bool poisoned, session->session->BufferPoisoned(
                                              commsched::BufferId(buffer)));
    *out_poisoned = poisoned ? 1 : 0;
    return absl::OkStatus();
  });
}

commsched_status_t commsched_session_run(commsched_session_t* session,
                                         commsched_compute_fn fn, void* user,
                                         uint64_t num_steps) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    if (fn == nullptr) {
      return absl::InvalidArgumentError("argument 'fn' is NULL");
    }
    commsched::ComputeCallback callback{session, fn, user};
    return session->session->Run(&commsched::CallCompute, &callback, num_steps);
  });
}

commsched_status_t commsched_session_drain(commsched_session_t* session) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    return session->session->Drain();
  });
}

void commsched_session_abort(commsched_session_t* session, const char* reason) {
  if (session == nullptr) return;
  AtVoidBoundary(
      [&] { session->session->Abort(reason == nullptr ? "" : reason); });
}

commsched_status_t commsched_session_status(
    const commsched_session_t* session) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}}));
    return session->session->status();
  });
}

commsched_status_t commsched_session_address(commsched_session_t* session,
                                             commsched_op_id_t op,
                                             commsched_buffer_id_t buffer,
                                             void** out_address) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"session", session}, {"out_address", out_address}}));
    ASSIGN_OR_RETURN(*out_address,
                     session->session->Address(commsched::OpId(op),
                                               commsched::BufferId(buffer)));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_session_buffer_version(
    const commsched_session_t* session, commsched_buffer_id_t buffer,
    uint64_t* out_version) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"session", session}, {"out_version", out_version}}));
    ASSIGN_OR_RETURN(*out_version, session->session->BufferVersion(
                                       commsched::BufferId(buffer)));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_session_get_counters(
    const commsched_session_t* session,
    commsched_session_counters_t* out_counters) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"session", session}, {"out_counters", out_counters}}));
    return commsched::WriteStruct(
        commsched::ToPublic(session->session->counters()), out_counters,
        "commsched_session_counters_t");
  });
}

commsched_status_t commsched_session_collective_cpu_ns(
    const commsched_session_t* session, int64_t* out_ns, uint64_t num_ops) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"session", session}, {"out_ns", out_ns}}));
    return commsched::CopyCpuNs(*session->session, out_ns, num_ops);
  });
}

commsched_status_t commsched_session_codec_error(
    const commsched_session_t* session, commsched_op_id_t op,
    commsched_codec_error_t* out_error) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"session", session}, {"out_error", out_error}}));
    ASSIGN_OR_RETURN(const commsched::CodecError error,
                     session->session->CodecErrorOf(commsched::OpId(op)));
    commsched_codec_error_t result = commsched_codec_error_init();
    result.launches = error.launches;
    result.max_abs = error.max_abs;
    result.rms_relative = error.rms_relative;
    result.worst_max_abs = error.worst_max_abs;
    result.worst_rms_relative = error.worst_rms_relative;
    return commsched::WriteStruct(result, out_error, "commsched_codec_error_t");
  });
}
