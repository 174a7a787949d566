/// Traces and sessions in C++17: commsched/commsched.hpp.
#ifndef COMMSCHED_SESSION_HPP_
#define COMMSCHED_SESSION_HPP_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commsched/commsched.h"
#include "commsched/graph.hpp"
#include "commsched/plan.hpp"
#include "commsched/result.hpp"
#include "commsched/world.hpp"

namespace commsched {
namespace api {

/// A ring of records of one rank.
class Trace
    : public internal::Handle<commsched_trace_t, commsched_trace_destroy> {
 public:
  Trace() = default;

  static Result<Trace> Create(const Context& context, uint64_t capacity) {
    commsched_trace_t* trace = nullptr;
    const auto code = commsched_trace_create(context.get(), capacity, &trace);
    return internal::ResultOf(code, [&] { return Trace(trace); });
  }

  uint64_t num_steps() const { return commsched_trace_num_steps(get()); }
  Result<commsched_step_metrics_t> StepMetrics(uint64_t index) const {
    commsched_step_metrics_t metrics = commsched_step_metrics_init();
    const auto code = commsched_trace_step_metrics(get(), index, &metrics);
    return internal::ResultOf(code, [&] { return metrics; });
  }
  Result<commsched_blame_t> StepBlame(uint64_t index) const {
    commsched_blame_t blame = commsched_blame_init();
    const auto code = commsched_trace_step_blame(get(), index, &blame);
    return internal::ResultOf(code, [&] { return blame; });
  }
  Result<std::string> Explain(
      commsched_format_t format = COMMSCHED_TEXT) const {
    char* text = nullptr;
    const auto code = commsched_trace_explain(get(), format, &text);
    return internal::StringOf(code, text);
  }
  Status WriteKineto(const char* path) const {
    return Status::Of(commsched_trace_write_kineto(get(), path));
  }
  Status WritePerfetto(const char* path) const {
    return Status::Of(commsched_trace_write_perfetto(get(), path));
  }
  Status WriteMetrics(const char* path) const {
    return Status::Of(commsched_trace_write_metrics(get(), path));
  }

 private:
  explicit Trace(commsched_trace_t* trace) : Handle(trace) {}
};

/// What a session is made of: commsched_session_desc_t. Pointers are read
/// during Create() only.
struct SessionSpec {
  const Context* context = nullptr;
  const Plan* plan = nullptr;
  std::vector<const Group*> groups;           ///< By group id of the graph.
  std::vector<commsched_binding_t> bindings;  ///< One per BOUND buffer.
  std::vector<commsched_stream_t> lanes;  ///< By lane; empty: all the caller.
  const Trace* trace = nullptr;
  int64_t launch_timeout_ns = 0;
  std::string flight_path;  ///< Of the flight record; empty: none.
  std::string observers;    ///< Names, separated by commas.
  /// Copied by Create(); `user` must outlive the session. NULL: ours.
  const commsched_allocator_t* allocator = nullptr;

  void Bind(BufferId buffer, void* address, uint64_t bytes) {
    bindings.push_back({buffer, 0, address, bytes});
  }
};

/// Runs a plan, step after step, on one rank.
class Session
    : public internal::Handle<commsched_session_t, commsched_session_destroy> {
 public:
  Session() = default;

  /// Collective: blocks until every rank of the world has called.
  static Result<Session> Create(const SessionSpec& spec) {
    std::vector<commsched_group_t*> groups;
    for (const Group* group : spec.groups) {
      groups.push_back(group == nullptr ? nullptr : group->get());
    }
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = spec.context == nullptr ? nullptr : spec.context->get();
    desc.plan = spec.plan == nullptr ? nullptr : spec.plan->get();
    desc.groups = internal::DataOf(groups);
    desc.num_groups = static_cast<uint32_t>(groups.size());
    desc.bindings = internal::DataOf(spec.bindings);
    desc.num_bindings = static_cast<uint32_t>(spec.bindings.size());
    desc.lanes = internal::DataOf(spec.lanes);
    desc.num_lanes = static_cast<uint32_t>(spec.lanes.size());
    desc.trace = spec.trace == nullptr ? nullptr : spec.trace->get();
    desc.launch_timeout_ns = spec.launch_timeout_ns;
    if (!spec.flight_path.empty()) desc.flight_path = spec.flight_path.c_str();
    if (!spec.observers.empty()) desc.observers = spec.observers.c_str();
    desc.allocator = spec.allocator;
    commsched_session_t* session = nullptr;
    const auto code = commsched_session_create(&desc, &session);
    return internal::ResultOf(code, [&] { return Session(session); });
  }

  Status StepBegin() { return Status::Of(commsched_session_step_begin(get())); }
  Status StepEnd() { return Status::Of(commsched_session_step_end(get())); }
  Status Before(OpId op, commsched_stream_t stream = CallerStream()) {
    return Status::Of(commsched_session_before(get(), op, stream));
  }
  Status After(OpId op, commsched_stream_t stream = CallerStream()) {
    return Status::Of(commsched_session_after(get(), op, stream));
  }

  /// A step that `origin` captures into a CUDA graph.
  Status CaptureBegin(commsched_stream_t origin) {
    return Status::Of(commsched_session_capture_begin(get(), origin));
  }
  Status CaptureEnd() {
    return Status::Of(commsched_session_capture_end(get()));
  }
  /// A step that is a launch of such a graph, which the caller launches on
  /// `stream` in between.
  Status ReplayBegin(commsched_stream_t stream) {
    return Status::Of(commsched_session_replay_begin(get(), stream));
  }
  Status ReplayEnd() { return Status::Of(commsched_session_replay_end(get())); }

  /// After() for an op that writes LATE_BOUND buffers.
  Status AfterBound(OpId op,
                    const std::vector<commsched_late_binding_t>& bindings,
                    commsched_stream_t stream = CallerStream()) {
    return Status::Of(commsched_session_after_bound(
        get(), op, stream, internal::DataOf(bindings),
        static_cast<uint32_t>(bindings.size())));
  }
  /// Makes `stream` wait until nothing that is due uses `buffer` any more.
  Status BufferRelease(BufferId buffer,
                       commsched_stream_t stream = CallerStream()) {
    return Status::Of(commsched_session_buffer_release(get(), buffer, stream));
  }
  Result<bool> BufferPoisoned(BufferId buffer) const {
    uint32_t poisoned = 0;
    const auto code =
        commsched_session_buffer_poisoned(get(), buffer, &poisoned);
    return internal::ResultOf(code, [&] { return poisoned != 0; });
  }

  /// Runs `num_steps` steps, calling `compute(OpId, commsched_stream_t)`, which
  /// returns a commsched_status_t and must not throw, for each compute op.
  template <typename ComputeFn>
  Status Run(uint64_t num_steps, ComputeFn&& compute) {
    using Fn = std::remove_reference_t<ComputeFn>;
    const commsched_compute_fn call =
        [](void* user, commsched_op_id_t op,
           commsched_stream_t stream) noexcept -> commsched_status_t {
      return (*static_cast<Fn*>(user))(op, stream);
    };
    void* user = const_cast<void*>(static_cast<const void*>(&compute));
    return Status::Of(commsched_session_run(get(), call, user, num_steps));
  }

  Status Drain() { return Status::Of(commsched_session_drain(get())); }
  void Abort(const char* reason) { commsched_session_abort(get(), reason); }
  /// The first failure, or OK.
  Status status() const { return Status::Of(commsched_session_status(get())); }

  Result<void*> Address(OpId op, BufferId buffer) {
    void* address = nullptr;
    const auto code = commsched_session_address(get(), op, buffer, &address);
    return internal::ResultOf(code, [&] { return address; });
  }
  Result<uint64_t> BufferVersion(BufferId buffer) const {
    uint64_t version = 0;
    const auto code = commsched_session_buffer_version(get(), buffer, &version);
    return internal::ResultOf(code, [&] { return version; });
  }
  Result<commsched_session_counters_t> GetCounters() const {
    commsched_session_counters_t counters = commsched_session_counters_init();
    const auto code = commsched_session_get_counters(get(), &counters);
    return internal::ResultOf(code, [&] { return counters; });
  }
  Result<std::string> MetricsText() const {
    char* text = nullptr;
    const auto code = commsched_session_metrics_text(get(), &text);
    return internal::StringOf(code, text);
  }
  /// How the backend does a launch of the plan, in key order.
  Result<commsched_launch_estimate_t> LaunchEstimate(uint64_t launch) const {
    commsched_launch_estimate_t estimate = commsched_launch_estimate_init();
    const auto code =
        commsched_session_launch_estimate(get(), launch, &estimate);
    return internal::ResultOf(code, [&] { return estimate; });
  }
  Result<std::string> Explain(
      commsched_format_t format = COMMSCHED_TEXT) const {
    char* text = nullptr;
    const auto code = commsched_session_explain(get(), format, &text);
    return internal::StringOf(code, text);
  }
  /// By op id; `num_ops` is that of the graph.
  Result<std::vector<int64_t>> CollectiveCpuNs(uint64_t num_ops) const {
    std::vector<int64_t> ns(num_ops);
    const auto code =
        commsched_session_collective_cpu_ns(get(), ns.data(), num_ops);
    return internal::ResultOf(code, [&] { return std::move(ns); });
  }

 private:
  explicit Session(commsched_session_t* session) : Handle(session) {}
};

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_SESSION_HPP_
