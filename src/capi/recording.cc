#include "commsched/recording.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "capi/late_bindings.h"
#include "capi/rank_desc.h"
#include "capi/streams.h"
#include "capi/structs.h"
#include "capi/timeout.h"
#include "recording/recording.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

struct commsched_recording {
  std::shared_ptr<commsched::Context> context;
  std::shared_ptr<commsched::Recorder> recorder;
  std::unique_ptr<commsched::Recording> recording;  // Last: it goes first.
};

namespace commsched {
namespace {

constexpr uint32_t kDefaultSteps = 2;
constexpr uint32_t kDefaultLimit = 16;
constexpr uint32_t kKnownFlags = COMMSCHED_RECORDING_ALTERNATIVE |
                                 COMMSCHED_RECORDING_EARLY |
                                 COMMSCHED_RECORDING_COUNTS;

absl::Status AddPlanning(const commsched_recording_desc_t& desc,
                         RecordingSpec* spec) {
  commsched_plan_options_t options = commsched_plan_options_init();
  if (desc.options != nullptr) {
    ASSIGN_OR_RETURN(options,
                     ReadStruct(desc.options, "commsched_plan_options_t"));
  }
  ASSIGN_OR_RETURN(spec->options, ToPlanOptions(options));
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  if (desc.profile != nullptr) {
    ASSIGN_OR_RETURN(profile,
                     ReadStruct(desc.profile, "commsched_cost_profile_t"));
  }
  ASSIGN_OR_RETURN(spec->profile, ToCostProfile(profile));
  return absl::OkStatus();
}

// Reads everything of `desc` but its context, which `spec` has.
absl::Status ReadDesc(const commsched_recording_desc_t& desc,
                      commsched_recording* handle, RecordingSpec* spec) {
  RETURN_IF_ERROR(CheckRankDesc(RankDescOf(desc)));
  if (desc.trace != nullptr) handle->recorder = desc.trace->recorder;
  ASSIGN_OR_RETURN(spec->groups, GroupsOf(RankDescOf(desc)));
  RETURN_IF_ERROR(AddPlanning(desc, spec));
  ASSIGN_OR_RETURN(spec->lanes, LanesOf(RankDescOf(desc)));
  spec->recorder = handle->recorder.get();
  if (desc.completions != nullptr) {
    spec->completions = desc.completions->completions;
  }
  spec->key = desc.key;
  spec->steps_to_record =
      desc.steps_to_record == 0 ? kDefaultSteps : desc.steps_to_record;
  spec->max_recorded_steps =
      desc.max_recorded_steps == 0 ? kDefaultLimit : desc.max_recorded_steps;
  ASSIGN_OR_RETURN(spec->launch_timeout_ns,
                   TimeoutNs("launch_timeout_ns", desc.launch_timeout_ns));
  if (desc.progress > COMMSCHED_PROGRESS_CALLER) {
    return absl::InvalidArgumentError(
        absl::StrCat("desc.progress is ", desc.progress,
                     ", not COMMSCHED_PROGRESS_THREAD or _CALLER"));
  }
  spec->by_caller = desc.progress == COMMSCHED_PROGRESS_CALLER;
  if (desc.strict > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("recording: strict is ", desc.strict, ", not 0 or 1"));
  }
  spec->strict = desc.strict != 0;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<commsched_recording>> CreateRecording(
    const commsched_recording_desc_t* caller_desc) {
  ASSIGN_OR_RETURN(const commsched_recording_desc_t desc,
                   ReadStruct(caller_desc, "commsched_recording_desc_t"));
  RETURN_IF_ERROR(RequireNonNull({{"desc.context", desc.context}}));
  auto handle = std::make_unique<commsched_recording>();
  handle->context = desc.context->context;
  RecordingSpec spec;
  spec.world = handle->context->world();
  spec.world_rank = handle->context->rank();
  // The handle outlives the recording.
  spec.take_instance = [context = handle->context.get()] {
    return context->TakeSessionNumber();
  };
  if (absl::Status read = ReadDesc(desc, handle.get(), &spec); !read.ok()) {
    Recording::Decline(spec, read);
    return read;
  }
  ASSIGN_OR_RETURN(handle->recording, Recording::Create(std::move(spec)));
  return handle;
}

absl::StatusOr<OpId> AddCollective(commsched_recording* recording,
                                   const commsched_collective_desc_t* desc,
                                   uint32_t segment, uint32_t flags) {
  if ((flags & ~kKnownFlags) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flags is ", flags, "; only the bits of ", kKnownFlags, " are known"));
  }
  ASSIGN_OR_RETURN(const commsched_collective_desc_t ours,
                   ReadStruct(desc, "commsched_collective_desc_t"));
  ASSIGN_OR_RETURN(Op op, ToCollectiveOp(ours));
  RecordedCollective how;
  how.alternative = (flags & COMMSCHED_RECORDING_ALTERNATIVE) != 0;
  how.early = (flags & COMMSCHED_RECORDING_EARLY) != 0;
  how.tells_counts = (flags & COMMSCHED_RECORDING_COUNTS) != 0;
  return recording->recording->AddCollective(std::move(op), segment, how);
}

commsched_recording_info_t ToPublic(const RecordingInfo& info) {
  commsched_recording_info_t result = commsched_recording_info_init();
  result.phase = static_cast<commsched_recording_phase_t>(info.phase);
  result.segment = info.segment;
  result.steps = info.steps;
  result.steps_recorded = info.steps_recorded;
  result.plans = info.plans;
  result.rerecordings = info.rerecordings;
  result.steps_deviating = info.steps_deviating;
  result.collectives_left_out = info.collectives_left_out;
  result.deviating_step = info.deviating_step;
  result.deviating_rank = info.deviating_rank;
  return result;
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_recording_create(
    const commsched_recording_desc_t* desc,
    commsched_recording_t** out_recording) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"desc", desc}, {"out_recording", out_recording}}));
    ASSIGN_OR_RETURN(auto recording, commsched::CreateRecording(desc));
    *out_recording = recording.release();
    return absl::OkStatus();
  });
}

void commsched_recording_destroy(commsched_recording_t* recording) {
  AtVoidBoundary([&] { delete recording; });
}

commsched_status_t commsched_recording_add_segment(
    commsched_recording_t* recording, const char* name, uint32_t* out_segment) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording},
                                    {"name", name},
                                    {"out_segment", out_segment}}));
    ASSIGN_OR_RETURN(*out_segment, recording->recording->AddSegment(name));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_recording_add_buffer(
    commsched_recording_t* recording, const commsched_buffer_desc_t* desc,
    void* address, commsched_buffer_id_t* out_buffer) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording},
                                    {"desc", desc},
                                    {"out_buffer", out_buffer}}));
    ASSIGN_OR_RETURN(const commsched_buffer_desc_t ours,
                     commsched::ReadStruct(desc, "commsched_buffer_desc_t"));
    ASSIGN_OR_RETURN(commsched::Buffer buffer, commsched::ToBuffer(ours));
    ASSIGN_OR_RETURN(
        const commsched::BufferId id,
        recording->recording->AddBuffer(std::move(buffer), address));
    *out_buffer = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_recording_add_compute(
    commsched_recording_t* recording, const commsched_compute_desc_t* desc,
    uint32_t segment, commsched_op_id_t* out_op) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"recording", recording}, {"desc", desc}, {"out_op", out_op}}));
    ASSIGN_OR_RETURN(const commsched_compute_desc_t ours,
                     commsched::ReadStruct(desc, "commsched_compute_desc_t"));
    ASSIGN_OR_RETURN(commsched::Op op, commsched::ToComputeOp(ours));
    ASSIGN_OR_RETURN(const commsched::OpId id,
                     recording->recording->AddCompute(std::move(op), segment));
    *out_op = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_recording_add_collective(
    commsched_recording_t* recording, const commsched_collective_desc_t* desc,
    uint32_t segment, uint32_t flags, commsched_op_id_t* out_op) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"recording", recording}, {"desc", desc}, {"out_op", out_op}}));
    ASSIGN_OR_RETURN(const commsched::OpId id,
                     commsched::AddCollective(recording, desc, segment, flags));
    *out_op = id.value();
    return absl::OkStatus();
  });
}

commsched_status_t commsched_recording_remove_op(
    commsched_recording_t* recording, commsched_op_id_t op) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->RemoveOp(op);
  });
}

commsched_status_t commsched_recording_remove_buffer(
    commsched_recording_t* recording, commsched_buffer_id_t buffer) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->RemoveBuffer(commsched::BufferId(buffer));
  });
}

commsched_status_t commsched_recording_move_buffer(
    commsched_recording_t* recording, commsched_buffer_id_t buffer,
    void* address) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->MoveBuffer(commsched::BufferId(buffer),
                                            address);
  });
}

commsched_status_t commsched_recording_step_begin(
    commsched_recording_t* recording) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->StepBegin();
  });
}

commsched_status_t commsched_recording_step_end(
    commsched_recording_t* recording) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->StepEnd();
  });
}

commsched_status_t commsched_recording_before(commsched_recording_t* recording,
                                              commsched_op_id_t op,
                                              commsched_stream_t stream) {
  return commsched::OnStream("recording", recording, stream,
                             [&](commsched::Stream* known) {
                               return recording->recording->Before(op, known);
                             });
}

commsched_status_t commsched_recording_after(commsched_recording_t* recording,
                                             commsched_op_id_t op,
                                             commsched_stream_t stream) {
  return commsched::OnStream("recording", recording, stream,
                             [&](commsched::Stream* known) {
                               return recording->recording->After(op, known);
                             });
}

commsched_status_t commsched_recording_submit(commsched_recording_t* recording,
                                              commsched_op_id_t collective) {
  return AtBoundary([&]() -> absl::Status {
    if (ABSL_PREDICT_FALSE(recording == nullptr)) {
      return RequireNonNull({{"recording", recording}});
    }
    return recording->recording->Submit(collective);
  });
}

commsched_status_t commsched_recording_submit_bound(
    commsched_recording_t* recording, commsched_op_id_t collective,
    const commsched_late_binding_t* bindings, uint32_t num_bindings) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    ASSIGN_OR_RETURN(const commsched::GivenBindings late,
                     commsched::ReadLateBindings(bindings, num_bindings));
    return recording->recording->Submit(collective, late);
  });
}

commsched_status_t commsched_recording_buffer_release(
    commsched_recording_t* recording, commsched_buffer_id_t buffer,
    commsched_stream_t stream) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    ASSIGN_OR_RETURN(commsched::Stream* const known,
                     commsched::StreamOf(stream, recording->context->device()));
    return recording->recording->BufferRelease(commsched::BufferId(buffer),
                                               known);
  });
}

commsched_status_t commsched_recording_wait(commsched_recording_t* recording,
                                            commsched_op_id_t collective,
                                            int64_t timeout_ns) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->Wait(collective, timeout_ns);
  });
}

commsched_status_t commsched_recording_drain(commsched_recording_t* recording) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->Drain();
  });
}

void commsched_recording_abort(commsched_recording_t* recording,
                               const char* reason) {
  if (recording == nullptr) return;
  AtVoidBoundary(
      [&] { recording->recording->Abort(reason == nullptr ? "" : reason); });
}

commsched_status_t commsched_recording_status(
    const commsched_recording_t* recording) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"recording", recording}}));
    return recording->recording->status();
  });
}

commsched_status_t commsched_recording_get_info(
    const commsched_recording_t* recording,
    commsched_recording_info_t* out_info) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"recording", recording}, {"out_info", out_info}}));
    return commsched::WriteStruct(
        commsched::ToPublic(recording->recording->info()), out_info,
        "commsched_recording_info_t");
  });
}

commsched_status_t commsched_recording_plan(
    const commsched_recording_t* recording, commsched_plan_t** out_plan) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"recording", recording}, {"out_plan", out_plan}}));
    auto plan = recording->recording->plan();
    if (plan == nullptr) {
      return absl::FailedPreconditionError(
          "recording: no plan has been frozen yet");
    }
    *out_plan = new commsched_plan{std::move(plan)};
    return absl::OkStatus();
  });
}
