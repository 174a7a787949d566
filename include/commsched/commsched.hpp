/// C++17 on top of the C ABI: handles that release themselves, errors as
/// values.
///
/// Everything here is inline and calls commsched/commsched.h, whose contracts
/// (threads, blocking, errors) hold unchanged; only what differs is said. No
/// exceptions are thrown but by the standard containers. Handles are move-only;
/// one that was moved from, or default-constructed, is empty, and calls on it
/// return INVALID_ARGUMENT. Parents may be destroyed before their children.
///
///   namespace cs = commsched::api;
///   cs::Graph graph;
///   auto buffer = graph.AddBuffer({"grad", COMMSCHED_F32, 1 << 20});
///   if (!buffer.ok()) return Fail(buffer.status());
///   cs::Compute backward;
///   backward.name = "backward";
///   backward.accesses = {cs::Writes(*buffer)};
///   auto op = graph.Add(backward);
///
/// A whole program: examples/02_overlap_cpp. Recordings:
/// commsched/recording.hpp; plugins, flight records and what the library says
/// of itself: commsched/tools.hpp.
#ifndef COMMSCHED_COMMSCHED_HPP_
#define COMMSCHED_COMMSCHED_HPP_

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commsched/commsched.h"

namespace commsched {
namespace api {

using OpId = commsched_op_id_t;
using BufferId = commsched_buffer_id_t;
using GroupId = commsched_group_id_t;

// ---- Errors -----------------------------------------------------------------

/// A code and, if it is not OK, the message that belongs to it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(commsched_status_t code, std::string message)
      : code_(code), message_(std::move(message)) {}

  /// From what a function of the C ABI has just returned on this thread.
  static Status Of(commsched_status_t code) {
    if (code == COMMSCHED_OK) return Status();
    return Status(code, commsched_last_error());
  }

  bool ok() const { return code_ == COMMSCHED_OK; }
  commsched_status_t code() const { return code_; }
  const std::string& message() const { return message_; }

  /// "OK", or "INVALID_ARGUMENT: buffer 'grad' has 0 elements".
  std::string ToString() const {
    const std::string name = commsched_status_name(code_);
    return ok() ? name : name + ": " + message_;
  }

 private:
  commsched_status_t code_ = COMMSCHED_OK;
  std::string message_;
};

/// A value, or why there is none. Reading the value of a failed one is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit
    assert(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& operator*() & {
    assert(ok());
    return *value_;
  }
  const T& operator*() const& {
    assert(ok());
    return *value_;
  }
  T&& operator*() && {
    assert(ok());
    return *std::move(value_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace internal {

template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* handle) const noexcept {
    kDestroy(handle);
  }
};

/// Owns the C handle `T`.
template <typename T, auto kDestroy>
class Handle {
 public:
  /// For calls that this header does not wrap; stays owned.
  T* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 protected:
  Handle() = default;
  explicit Handle(T* handle) : handle_(handle) {}

 private:
  std::unique_ptr<T, Destroyer<kDestroy>> handle_;
};

/// A result whose value is `make()` if `code` is OK.
template <typename Make>
auto ResultOf(commsched_status_t code, Make make)
    -> Result<std::decay_t<decltype(make())>> {
  if (code != COMMSCHED_OK) return Status::Of(code);
  return make();
}

/// Takes over a string of the library's.
inline Result<std::string> StringOf(commsched_status_t code, char* text) {
  return ResultOf(code, [&] {
    const std::unique_ptr<char, Destroyer<commsched_string_free>> owner(text);
    return std::string(text);
  });
}

/// The data of a vector, NULL if it is empty.
template <typename T>
const T* DataOf(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace internal

// ---- World, context, streams, groups ----------------------------------------

/// The ranks that meet in this process.
class World
    : public internal::Handle<commsched_world_t, commsched_world_destroy> {
 public:
  World() = default;

  static Result<World> CreateInproc(const commsched_world_desc_t& desc) {
    commsched_world_t* world = nullptr;
    const auto code = commsched_world_create_inproc(&desc, &world);
    return internal::ResultOf(code, [&] { return World(world); });
  }
  static Result<World> CreateInproc(int32_t size) {
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = size;
    return CreateInproc(desc);
  }

  int32_t size() const { return commsched_world_size(get()); }

 private:
  explicit World(commsched_world_t* world) : Handle(world) {}
};

/// One rank.
class Context
    : public internal::Handle<commsched_context_t, commsched_context_destroy> {
 public:
  Context() = default;

  static Result<Context> Create(const World& world, int32_t rank) {
    commsched_context_t* context = nullptr;
    const auto code = commsched_context_create(world.get(), rank, &context);
    return internal::ResultOf(code, [&] { return Context(context); });
  }

  int32_t rank() const { return commsched_context_rank(get()); }
  int32_t world_size() const { return commsched_context_world_size(get()); }

 private:
  explicit Context(commsched_context_t* context) : Handle(context) {}
};

/// The calling thread as a stream.
inline commsched_stream_t CallerStream() { return commsched_stream_caller(); }

inline Status Synchronize(commsched_stream_t stream) {
  return Status::Of(commsched_stream_synchronize(stream));
}

/// A worker thread that runs what is enqueued, in order. Destroying it first
/// runs what is enqueued.
class HostStream {
 public:
  HostStream() = default;
  HostStream(HostStream&& other) noexcept
      : stream_(std::exchange(other.stream_, commsched_stream_caller())) {}
  HostStream& operator=(HostStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~HostStream() { commsched_host_stream_destroy(stream_); }

  static Result<HostStream> Create(const Context& context, const char* name,
                                   uint32_t capacity) {
    commsched_stream_t stream = commsched_stream_caller();
    const auto code =
        commsched_host_stream_create(context.get(), name, capacity, &stream);
    return internal::ResultOf(code, [&] { return HostStream(stream); });
  }

  Status Enqueue(commsched_host_fn fn, void* user) {
    return Status::Of(commsched_host_stream_enqueue(stream_, fn, user));
  }
  commsched_stream_t get() const { return stream_; }

 private:
  explicit HostStream(commsched_stream_t stream) : stream_(stream) {}

  commsched_stream_t stream_ = commsched_stream_caller();
};

/// A point in a stream.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept
      : event_(std::exchange(other.event_, commsched_event_t{})) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() { commsched_event_destroy(event_); }

  static Result<Event> Create(const Context& context) {
    commsched_event_t event = {};
    const auto code = commsched_event_create(context.get(), &event);
    return internal::ResultOf(code, [&] { return Event(event); });
  }

  Status Record(commsched_stream_t stream) {
    return Status::Of(commsched_event_record(event_, stream));
  }
  /// Work enqueued on `stream` from now on starts after the latest record.
  Status WaitOn(commsched_stream_t stream) const {
    return Status::Of(commsched_stream_wait_event(stream, event_));
  }
  Result<bool> IsComplete() const {
    uint32_t complete = 0;
    const auto code = commsched_event_query(event_, &complete);
    return internal::ResultOf(code, [&] { return complete != 0; });
  }
  Status Synchronize() const {
    return Status::Of(commsched_event_synchronize(event_));
  }
  commsched_event_t get() const { return event_; }

 private:
  explicit Event(commsched_event_t event) : event_(event) {}

  commsched_event_t event_ = {};
};

/// The ranks of one communicator.
class Group
    : public internal::Handle<commsched_group_t, commsched_group_destroy> {
 public:
  Group() = default;

  static Result<Group> Create(const Context& context, const char* axis,
                              const std::vector<int32_t>& ranks) {
    commsched_group_t* group = nullptr;
    const auto code =
        commsched_group_create(context.get(), axis, internal::DataOf(ranks),
                               static_cast<uint32_t>(ranks.size()), &group);
    return internal::ResultOf(code, [&] { return Group(group); });
  }
  /// All ranks of the world, in order.
  static Result<Group> CreateWorld(const Context& context, const char* axis) {
    std::vector<int32_t> ranks;
    for (int32_t i = 0; i < context.world_size(); ++i) ranks.push_back(i);
    return Create(context, axis, ranks);
  }

  int32_t size() const { return commsched_group_size(get()); }
  int32_t rank() const { return commsched_group_rank(get()); }

 private:
  friend class Mesh;
  explicit Group(commsched_group_t* group) : Handle(group) {}
};

/// The world as an array with named axes; the last axis varies fastest.
class Mesh : public internal::Handle<commsched_mesh_t, commsched_mesh_destroy> {
 public:
  Mesh() = default;

  static Result<Mesh> Create(const Context& context,
                             const std::vector<commsched_axis_t>& axes) {
    commsched_mesh_t* mesh = nullptr;
    const auto code =
        commsched_mesh_create(context.get(), internal::DataOf(axes),
                              static_cast<uint32_t>(axes.size()), &mesh);
    return internal::ResultOf(code, [&] { return Mesh(mesh); });
  }

  /// The ranks that differ from this one along `axis` only.
  Result<Group> GroupOf(const char* axis) const {
    commsched_group_t* group = nullptr;
    const auto code = commsched_mesh_group(get(), axis, &group);
    return internal::ResultOf(code, [&] { return Group(group); });
  }

 private:
  explicit Mesh(commsched_mesh_t* mesh) : Handle(mesh) {}
};

// ---- Graph ------------------------------------------------------------------

/// Accesses of a compute op, or a side of a collective.
inline commsched_access_t AccessTo(BufferId buffer,
                                   commsched_access_mode_t mode) {
  commsched_access_t access = {};
  access.buffer = buffer;
  access.mode = mode;
  return access;
}
inline commsched_access_t Reads(BufferId buffer) {
  return AccessTo(buffer, COMMSCHED_READ);
}
inline commsched_access_t Writes(BufferId buffer) {
  return AccessTo(buffer, COMMSCHED_WRITE);
}
inline commsched_access_t ReadsAndWrites(BufferId buffer) {
  return AccessTo(buffer, COMMSCHED_READ_WRITE);
}
/// The same access, to `count` elements from `offset` only.
inline commsched_access_t Range(commsched_access_t access, uint64_t offset,
                                uint64_t count) {
  access.region = COMMSCHED_RANGE;
  access.offset = offset;
  access.count = count;
  return access;
}
/// The same access, to this rank's part among `group` only.
inline commsched_access_t Shard(commsched_access_t access, GroupId group) {
  access.region = COMMSCHED_SHARD;
  access.group = group;
  return access;
}

/// The same access, to `rows` rows of `count` elements, the first at `offset`,
/// each `stride` after the one before.
inline commsched_access_t Tile(commsched_access_t access, uint64_t offset,
                               uint64_t count, uint64_t rows, uint64_t stride) {
  access.region = COMMSCHED_TILE;
  access.offset = offset;
  access.count = count;
  access.rows = rows;
  access.stride = stride;
  return access;
}

/// commsched_buffer_desc_t with a default for everything but the name.
struct Buffer {
  std::string name;
  commsched_dtype_t dtype = COMMSCHED_F32;
  uint64_t count = 0;  ///< Elements.
  commsched_ownership_t ownership = COMMSCHED_OWNED;
};

/// commsched_compute_desc_t.
struct Compute {
  std::string name;
  std::vector<commsched_access_t> accesses;
  std::vector<OpId> after;
  uint32_t lane = 0;
  uint32_t micro_batch = 0;
  bool last_backward = false;
  bool filler = false;
  int32_t priority = 0;
  int64_t cost_ns = 0;
  double flops = 0;
  double bytes = 0;
};

/// commsched_collective_desc_t.
struct Collective {
  std::string name;
  commsched_collective_t kind = COMMSCHED_ALL_REDUCE;
  commsched_reduce_op_t reduce_op = COMMSCHED_SUM;
  GroupId group = 0;
  int32_t root = 0;
  commsched_access_t input = {};
  commsched_access_t output = {};
  std::vector<uint64_t> counts;
  std::vector<OpId> after;
  int32_t priority = 0;
  int32_t peer_offset = 0;
  bool lossy = false;
};

namespace internal {

/// What the C ABI is told; points into the argument.
inline commsched_buffer_desc_t DescOf(const Buffer& buffer) {
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  desc.name = buffer.name.c_str();
  desc.dtype = buffer.dtype;
  desc.ownership = buffer.ownership;
  desc.count = buffer.count;
  return desc;
}

inline commsched_compute_desc_t DescOf(const Compute& compute) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = compute.name.c_str();
  desc.accesses = DataOf(compute.accesses);
  desc.num_accesses = static_cast<uint32_t>(compute.accesses.size());
  desc.after = DataOf(compute.after);
  desc.num_after = static_cast<uint32_t>(compute.after.size());
  desc.lane = compute.lane;
  desc.micro_batch = compute.micro_batch;
  desc.last_backward = compute.last_backward ? 1 : 0;
  desc.filler = compute.filler ? 1 : 0;
  desc.priority = compute.priority;
  desc.cost_ns = compute.cost_ns;
  desc.flops = compute.flops;
  desc.bytes = compute.bytes;
  return desc;
}

inline commsched_collective_desc_t DescOf(const Collective& collective) {
  commsched_collective_desc_t desc = commsched_collective_desc_init();
  desc.name = collective.name.c_str();
  desc.kind = collective.kind;
  desc.reduce_op = collective.reduce_op;
  desc.group = collective.group;
  desc.root = collective.root;
  desc.input = collective.input;
  desc.output = collective.output;
  desc.counts = DataOf(collective.counts);
  desc.num_counts = static_cast<uint32_t>(collective.counts.size());
  desc.after = DataOf(collective.after);
  desc.num_after = static_cast<uint32_t>(collective.after.size());
  desc.priority = collective.priority;
  desc.peer_offset = collective.peer_offset;
  desc.lossy = collective.lossy ? 1 : 0;
  return desc;
}

}  // namespace internal

/// What must happen in one step. A default-constructed graph is a new, empty
/// one; if there was no memory for it, every call says so.
class Graph
    : public internal::Handle<commsched_graph_t, commsched_graph_destroy> {
 public:
  Graph() : Handle(NewGraph()) {}

  static Result<Graph> FromJson(const std::string& json) {
    commsched_graph_t* graph = nullptr;
    const auto code =
        commsched_graph_from_json(json.data(), json.size(), &graph);
    return internal::ResultOf(code, [&] { return Graph(graph); });
  }
  Result<std::string> ToJson() const {
    char* json = nullptr;
    const auto code = commsched_graph_to_json(get(), &json);
    return internal::StringOf(code, json);
  }

  Status Reserve(uint64_t num_ops) {
    return Status::Of(commsched_graph_reserve(get(), num_ops));
  }
  Result<GroupId> AddGroup(const char* name, int32_t size) {
    GroupId id = 0;
    const auto code = commsched_graph_add_group(get(), name, size, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<BufferId> AddBuffer(const Buffer& buffer) {
    const commsched_buffer_desc_t desc = internal::DescOf(buffer);
    BufferId id = 0;
    const auto code = commsched_graph_add_buffer(get(), &desc, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<OpId> Add(const Compute& compute) {
    const commsched_compute_desc_t desc = internal::DescOf(compute);
    OpId id = 0;
    const auto code = commsched_graph_add_compute(get(), &desc, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<OpId> Add(const Collective& collective) {
    const commsched_collective_desc_t desc = internal::DescOf(collective);
    OpId id = 0;
    const auto code = commsched_graph_add_collective(get(), &desc, &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Result<OpId> AddMarker(const char* name, const std::vector<OpId>& after) {
    OpId id = 0;
    const auto code =
        commsched_graph_add_marker(get(), name, internal::DataOf(after),
                                   static_cast<uint32_t>(after.size()), &id);
    return internal::ResultOf(code, [&] { return id; });
  }
  Status AddEdge(OpId from, OpId to, uint32_t distance) {
    return Status::Of(commsched_graph_add_edge(get(), from, to, distance));
  }

  uint64_t num_ops() const { return commsched_graph_num_ops(get()); }
  Result<OpId> FindOp(const char* name) const {
    OpId id = 0;
    const auto code = commsched_graph_find_op(get(), name, &id);
    return internal::ResultOf(code, [&] { return id; });
  }

 private:
  explicit Graph(commsched_graph_t* graph) : Handle(graph) {}

  static commsched_graph_t* NewGraph() {
    commsched_graph_t* graph = nullptr;
    commsched_graph_create(&graph);
    return graph;
  }
};

// ---- Plan -------------------------------------------------------------------

/// What will be launched, in which order, after which events. Immutable.
class Plan : public internal::Handle<commsched_plan_t, commsched_plan_destroy> {
 public:
  Plan() = default;

  static Result<Plan> Build(
      const Graph& graph,
      const commsched_plan_options_t& options = commsched_plan_options_init(),
      const commsched_cost_profile_t& profile = commsched_cost_profile_init()) {
    commsched_plan_t* plan = nullptr;
    const auto code =
        commsched_plan_build(graph.get(), &options, &profile, &plan);
    return internal::ResultOf(code, [&] { return Plan(plan); });
  }

  /// A plan per role, in that order.
  static Result<std::vector<Plan>> BuildRoles(
      const std::vector<commsched_role_desc_t>& roles,
      const commsched_plan_options_t& options = commsched_plan_options_init()) {
    std::vector<commsched_plan_t*> handles(roles.size() + 1);
    const auto code = commsched_plan_build_roles(
        roles.empty() ? nullptr : roles.data(),
        static_cast<uint32_t>(roles.size()), &options, handles.data());
    return internal::ResultOf(code, [&] {
      std::vector<Plan> plans;
      for (size_t i = 0; i < roles.size(); ++i) {
        plans.push_back(Plan(handles[i]));
      }
      return plans;
    });
  }

  Result<commsched_plan_info_t> GetInfo() const {
    commsched_plan_info_t info = commsched_plan_info_init();
    const auto code = commsched_plan_get_info(get(), &info);
    return internal::ResultOf(code, [&] { return info; });
  }
  /// Under the profile that the plan was built with.
  Result<commsched_prediction_t> Predict() const { return Predict(nullptr); }
  Result<commsched_prediction_t> Predict(
      const commsched_cost_profile_t& profile) const {
    return Predict(&profile);
  }
  Result<std::string> Explain(
      commsched_format_t format = COMMSCHED_TEXT) const {
    char* text = nullptr;
    const auto code = commsched_plan_explain(get(), format, &text);
    return internal::StringOf(code, text);
  }
  /// By itself; of several roles: commsched_plan_describe().
  Result<std::string> Describe(
      commsched_format_t format = COMMSCHED_TEXT) const {
    const commsched_plan_t* plan = get();
    char* text = nullptr;
    const auto code = commsched_plan_describe(&plan, 1, format, &text);
    return internal::StringOf(code, text);
  }

 private:
  friend class Recording;
  explicit Plan(commsched_plan_t* plan) : Handle(plan) {}

  Result<commsched_prediction_t> Predict(
      const commsched_cost_profile_t* profile) const {
    commsched_prediction_t prediction = commsched_prediction_init();
    const auto code = commsched_plan_predict(get(), profile, &prediction);
    return internal::ResultOf(code, [&] { return prediction; });
  }
};

// ---- Trace and session ------------------------------------------------------

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

#endif  // COMMSCHED_COMMSCHED_HPP_
