/// Recordings in C++17: commsched/recording.h as commsched/commsched.hpp does
/// it.
///
///   namespace cs = commsched::api;
///   cs::RecordingSpec spec;
///   spec.context = &context;
///   spec.groups = {&group};
///   auto recording = cs::Recording::Create(spec);
///   if (!recording.ok()) return Fail(recording.status());
///   auto grad = recording->AddBuffer({"grad", COMMSCHED_F32, 1024}, memory);
///
/// A whole program: examples/03_recorded_step.
#ifndef COMMSCHED_RECORDING_HPP_
#define COMMSCHED_RECORDING_HPP_

#include <cstdint>
#include <vector>

#include "commsched/channel.hpp"
#include "commsched/commsched.hpp"
#include "commsched/recording.h"

namespace commsched {
namespace api {

/// What a recording is made of: commsched_recording_desc_t. Pointers are read
/// during Create() only.
struct RecordingSpec {
  const Context* context = nullptr;
  std::vector<const Group*> groups;  ///< By group id; axes differ.
  commsched_plan_options_t options = commsched_plan_options_init();
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  std::vector<commsched_stream_t> lanes;  ///< By lane; empty: all the caller.
  const Trace* trace = nullptr;
  uint32_t steps_to_record = 0;
  uint32_t max_recorded_steps = 0;
  int64_t launch_timeout_ns = 0;
  bool strict = false;
  commsched_progress_t progress = COMMSCHED_PROGRESS_THREAD;
  const Completions* completions = nullptr;
  uint64_t key = 0;  ///< What its completions call the recording.
};

/// A program that calls eagerly, in its own order, and gets a plan.
class Recording : public internal::Handle<commsched_recording_t,
                                          commsched_recording_destroy> {
 public:
  Recording() = default;

  static Result<Recording> Create(const RecordingSpec& spec) {
    std::vector<commsched_group_t*> groups;
    for (const Group* group : spec.groups) {
      groups.push_back(group == nullptr ? nullptr : group->get());
    }
    commsched_recording_desc_t desc = commsched_recording_desc_init();
    desc.context = spec.context == nullptr ? nullptr : spec.context->get();
    desc.groups = internal::DataOf(groups);
    desc.num_groups = static_cast<uint32_t>(groups.size());
    desc.options = &spec.options;
    desc.profile = &spec.profile;
    desc.lanes = internal::DataOf(spec.lanes);
    desc.num_lanes = static_cast<uint32_t>(spec.lanes.size());
    desc.trace = spec.trace == nullptr ? nullptr : spec.trace->get();
    desc.steps_to_record = spec.steps_to_record;
    desc.max_recorded_steps = spec.max_recorded_steps;
    desc.launch_timeout_ns = spec.launch_timeout_ns;
    desc.strict = spec.strict ? 1 : 0;
    desc.progress = spec.progress;
    desc.completions =
        spec.completions == nullptr ? nullptr : spec.completions->get();
    desc.key = spec.key;
    commsched_recording_t* recording = nullptr;
    const auto code = commsched_recording_create(&desc, &recording);
    return internal::ResultOf(code, [&] { return Recording(recording); });
  }

  // Declarations, between steps.

  Result<uint32_t> AddSegment(const char* name) {
    uint32_t segment = 0;
    const auto code = commsched_recording_add_segment(get(), name, &segment);
    return internal::ResultOf(code, [&] { return segment; });
  }
  /// `buffer` at `address`; it is BOUND, whatever it says.
  Result<BufferId> AddBuffer(const Buffer& buffer, void* address) {
    commsched_buffer_desc_t desc = internal::DescOf(buffer);
    desc.ownership = COMMSCHED_BOUND;
    BufferId id = 0;
    const auto code =
        commsched_recording_add_buffer(get(), &desc, address, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  /// `buffer` in memory that moves; it is LATE_BOUND, whatever it says.
  Result<BufferId> AddLateBuffer(const Buffer& buffer) {
    commsched_buffer_desc_t desc = internal::DescOf(buffer);
    desc.ownership = COMMSCHED_LATE_BOUND;
    BufferId id = 0;
    const auto code =
        commsched_recording_add_buffer(get(), &desc, nullptr, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<OpId> Add(const Compute& compute, uint32_t segment = 0) {
    const commsched_compute_desc_t desc = internal::DescOf(compute);
    OpId id = 0;
    const auto code =
        commsched_recording_add_compute(get(), &desc, segment, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  /// `flags`: COMMSCHED_RECORDING_ALTERNATIVE, ..._EARLY, ..._COUNTS.
  Result<OpId> Add(const Collective& collective, uint32_t segment = 0,
                   uint32_t flags = 0) {
    const commsched_collective_desc_t desc = internal::DescOf(collective);
    OpId id = 0;
    const auto code =
        commsched_recording_add_collective(get(), &desc, segment, flags, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Status Remove(OpId op) {
    return Status::Of(commsched_recording_remove_op(get(), op));
  }
  Status RemoveBuffer(BufferId buffer) {
    return Status::Of(commsched_recording_remove_buffer(get(), buffer));
  }
  Status MoveBuffer(BufferId buffer, void* address) {
    return Status::Of(commsched_recording_move_buffer(get(), buffer, address));
  }

  // Steps.

  Status StepBegin() {
    return Status::Of(commsched_recording_step_begin(get()));
  }
  Status StepEnd() { return Status::Of(commsched_recording_step_end(get())); }
  Status Before(OpId op, commsched_stream_t stream = CallerStream()) {
    return Status::Of(commsched_recording_before(get(), op, stream));
  }
  Status After(OpId op, commsched_stream_t stream = CallerStream()) {
    return Status::Of(commsched_recording_after(get(), op, stream));
  }
  Status Submit(OpId collective) {
    return Status::Of(commsched_recording_submit(get(), collective));
  }
  Status Submit(OpId collective,
                const std::vector<commsched_late_binding_t>& bindings) {
    return Status::Of(commsched_recording_submit_bound(
        get(), collective, internal::DataOf(bindings),
        static_cast<uint32_t>(bindings.size())));
  }
  Status Release(BufferId buffer, commsched_stream_t stream = CallerStream()) {
    return Status::Of(
        commsched_recording_buffer_release(get(), buffer, stream));
  }
  /// Any thread.
  Status Wait(OpId collective, int64_t timeout_ns = INT64_MAX) {
    return Status::Of(commsched_recording_wait(get(), collective, timeout_ns));
  }
  Status Drain() { return Status::Of(commsched_recording_drain(get())); }
  void Abort(const char* reason) { commsched_recording_abort(get(), reason); }
  /// The first failure, or OK.
  Status status() const {
    return Status::Of(commsched_recording_status(get()));
  }

  Result<commsched_recording_info_t> GetInfo() const {
    commsched_recording_info_t info = commsched_recording_info_init();
    const auto code = commsched_recording_get_info(get(), &info);
    return internal::ResultOf(code, [&] { return info; });
  }
  /// The plan that is frozen.
  Result<Plan> GetPlan() const {
    commsched_plan_t* plan = nullptr;
    const auto code = commsched_recording_plan(get(), &plan);
    return internal::ResultOf(code, [&] { return Plan(plan); });
  }

 private:
  explicit Recording(commsched_recording_t* recording) : Handle(recording) {}
};

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_RECORDING_HPP_
