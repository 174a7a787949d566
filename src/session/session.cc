#include "session/session.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/device_counters.h"
#include "device/host_device.h"
#include "exec/dispatcher.h"
#include "exec/drops.h"
#include "exec/failure.h"
#include "exec/flatten.h"
#include "exec/issuer.h"
#include "exec/observers.h"
#include "exec/program.h"
#include "session/agreement.h"
#include "session/binding.h"
#include "session/codec.h"
#include "session/communicators.h"
#include "session/poison.h"
#include "session/trace_names.h"
#include "trace/flight_record.h"

namespace commsched {
namespace {

constexpr int64_t kDefaultTimeoutNs = int64_t{600} * 1000 * 1000 * 1000;

// Memory that goes back to its device.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    if (address_ != nullptr) device_->Free(address_);
  }

  absl::Status Allocate(Device* device, uint64_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(address_, device->Allocate(bytes));
    device_ = device;
    return absl::OkStatus();
  }
  char* address() const { return static_cast<char*>(address_); }

 private:
  Device* device_ = nullptr;
  void* address_ = nullptr;
};

class SessionImpl final : public Session {
 public:
  explicit SessionImpl(SessionSpec spec)
      : spec_(std::move(spec)), communicators_(spec_.world) {}
  ~SessionImpl() override;

  // The steps of Create, in order. Bind is local, Meet is collective.
  absl::Status Bind();
  // `bound`: what Bind returned; the other ranks learn of a failure.
  absl::Status Meet(const absl::Status& bound);
  absl::Status Connect();
  void Start();

  absl::Status StepBegin() override { return dispatcher_->StepBegin(); }
  absl::Status StepEnd() override { return dispatcher_->StepEnd(); }
  absl::Status Before(OpId op, Stream* stream) override {
    const uint32_t node = NodeOf(op);
    if (node == Plan::kNone) return NotComputeOp(op);
    return dispatcher_->Before(node, stream);
  }
  absl::Status After(OpId op, Stream* stream) override {
    const uint32_t node = NodeOf(op);
    if (node == Plan::kNone) return NotComputeOp(op);
    return dispatcher_->After(node, stream);
  }
  absl::Status AfterBound(OpId op, Stream* stream,
                          absl::Span<const LateBinding> late) override {
    const uint32_t node = NodeOf(op);
    if (node == Plan::kNone) return NotComputeOp(op);
    return dispatcher_->After(node, stream, late);
  }
  absl::Status Submit(OpId collective, bool drop) override {
    if (ABSL_PREDICT_FALSE(drop)) {
      drops_->Drop(collective, dispatcher_->steps() + 1);
    }
    // One launch, but of a split collective.
    const uint32_t only = gated_launch_[collective.value()];
    if (ABSL_PREDICT_TRUE(only != Plan::kNone)) {
      dispatcher_->Submit(only);
      return failure_.status();
    }
    for (LaunchId launch : spec_.plan->LaunchesOf(collective)) {
      dispatcher_->Submit(launch.value());
    }
    return failure_.status();
  }
  bool IsDue(OpId collective) const override {
    const LaunchId last = spec_.plan->LaunchesOf(collective).back();
    return issuer_->due() >
           dispatcher_->steps() * program_->launches.size() + last.value();
  }
  absl::Status WaitDue() override;
  absl::Status Run(Compute compute, void* user, uint64_t num_steps) override {
    return dispatcher_->Run(compute, user, num_steps);
  }
  absl::Status Drain() override;
  bool Pump() override { return issuer_->Pump(); }
  int64_t NextWakeNs() const override { return issuer_->NextWakeNs(); }
  void Abort(absl::string_view reason) override {
    issuer_->Fail(absl::AbortedError(reason));
  }
  absl::Status status() const override { return failure_.status(); }
  absl::StatusOr<void*> Address(OpId op, BufferId buffer) override;
  absl::StatusOr<uint64_t> BufferVersion(BufferId buffer) const override;
  absl::Status BufferRelease(BufferId buffer, Stream* stream) override;
  absl::StatusOr<bool> BufferPoisoned(BufferId buffer) const override;
  SessionCounters counters() const override;
  std::vector<int64_t> CollectiveCpuNs() const override;
  absl::StatusOr<CodecError> CodecErrorOf(OpId op) const override;
  const Plan& plan() const override { return *spec_.plan; }

 private:
  uint32_t NodeOf(OpId op) const {
    const std::vector<uint32_t>& nodes = spec_.plan->node_of_op;
    return op.value() < nodes.size() ? nodes[op.value()] : Plan::kNone;
  }
  absl::Status NotComputeOp(OpId op) const;
  absl::Status AddGates();
  absl::Status OpenFlightRecord();
  absl::Status RegisterMemory();
  void ListenToLanes();
  void FindWriters();
  uint64_t CompletedGenerations(NodeRef node) const;
  void RememberReleasedOn(Stream* stream);

  // Constant after Create.
  const SessionSpec spec_;
  HostDevice device_;
  std::vector<Stream*> lanes_;                 // by compute lane
  std::vector<std::vector<NodeRef>> writers_;  // by BufferId
  std::vector<std::vector<LaunchId>> users_;   // by BufferId, in key order
  // By op: the launch of one that is submitted, if it has one only.
  std::vector<uint32_t> gated_launch_;
  uint64_t registrations_ = 0;

  // Streams that may hold waits of BufferRelease() for our events.
  Mutex released_mu_;
  std::vector<Stream*> released_on_ ABSL_GUARDED_BY(released_mu_);

  // In order of construction; the issuer, which stops the lane thread, goes
  // before everything that the lane thread uses.
  Failure failure_;
  Parker parker_;
  Arena arena_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<FlightRecord> flight_;  // null if none is kept
  std::unique_ptr<LateBindings> late_;    // null if nothing is late-bound
  std::unique_ptr<Drops> drops_;          // null if nothing is submitted
  std::unique_ptr<CodecRunner> codec_;    // null if no launch is coded
  std::unique_ptr<Observers> observers_;  // null if there are none
  Communicators communicators_;
  std::unique_ptr<Issuer> issuer_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

SessionImpl::~SessionImpl() {
  if (dispatcher_ == nullptr) return;
  if (!failure_.failed()) {
    absl::Status drained = dispatcher_->in_step()
                               ? absl::AbortedError(absl::StrCat(
                                     "the session was destroyed inside step ",
                                     dispatcher_->steps()))
                               : Drain();
    if (!drained.ok()) issuer_->Fail(std::move(drained));
  }
  // Workers may still hold waits for events of ours, and work on the arena. By
  // now every event is complete or poisoned, so that they get through.
  for (Stream* lane : lanes_) lane->Synchronize();
  MutexLock lock(&released_mu_);
  for (Stream* stream : released_on_) stream->Synchronize();
}

absl::Status SessionImpl::Bind() {
  RETURN_IF_ERROR(CheckGroups(spec_));
  RETURN_IF_ERROR(CheckBackend(spec_));
  Binding binding;
  ASSIGN_OR_RETURN(binding.buffer_address, ResolveBindings(spec_));
  ASSIGN_OR_RETURN(lanes_, ResolveLanes(spec_));
  RETURN_IF_ERROR(arena_.Allocate(&device_, spec_.plan->arena_bytes));
  for (const Placement& placement : spec_.plan->placements) {
    binding.buffer_address[placement.buffer.value()] =
        arena_.address() + placement.offset;
  }
  binding.arena = arena_.address();
  binding.device = &device_;
  RETURN_IF_ERROR(CheckManual(spec_, lanes_));
  for (const Stream* lane : lanes_) {
    binding.caller_lanes.push_back(lane->is_caller());
  }
  for (const GroupSpec& group : spec_.groups) {
    binding.group_rank.push_back(group.rank);
  }
  ASSIGN_OR_RETURN(program_, Flatten(spec_.plan, binding));
  ASSIGN_OR_RETURN(codec_, MakeCodec(*spec_.plan));
  RETURN_IF_ERROR(AddGates());
  RETURN_IF_ERROR(OpenFlightRecord());
  FindWriters();
  return absl::OkStatus();
}

absl::Status SessionImpl::OpenFlightRecord() {
  if (spec_.flight_path.empty()) return absl::OkStatus();
  FlightInfo info;
  info.rank = spec_.world_rank;
  info.fingerprint = spec_.plan->fingerprint;
  for (uint32_t i = 0; i < program_->launches.size(); ++i) {
    info.launches.push_back(program_->LaunchName(i));
  }
  ASSIGN_OR_RETURN(flight_, FlightRecord::Create(spec_.flight_path, info));
  return absl::OkStatus();
}

absl::Status SessionImpl::AddGates() {
  if (spec_.submitted.empty()) return absl::OkStatus();
  gated_launch_.assign(spec_.plan->launch_of_op.size(), Plan::kNone);
  for (OpId op : spec_.submitted) {
    const absl::Span<const LaunchId> launches = spec_.plan->LaunchesOf(op);
    for (LaunchId launch : launches) {
      ++program_->launches[launch.value()].gates;
    }
    if (launches.size() == 1) {
      gated_launch_[op.value()] = launches.front().value();
    }
  }
  std::vector<int> group_rank;
  for (const GroupSpec& group : spec_.groups) group_rank.push_back(group.rank);
  ASSIGN_OR_RETURN(drops_, Drops::Create(program_.get(), spec_.submitted,
                                         group_rank, &device_));
  return absl::OkStatus();
}

absl::Status SessionImpl::Meet(const absl::Status& bound) {
  RETURN_IF_ERROR(AgreeOnPlan(spec_, bound));
  RETURN_IF_ERROR(AgreeOnReadiness(spec_, Connect()));
  Start();
  return absl::OkStatus();
}

void SessionImpl::Start() {
  for (LaunchProgram& launch : program_->launches) {
    launch.comm = communicators_.comms()[launch.group];
  }
  ListenToLanes();
  bool all_caller = true;
  for (const Stream* lane : lanes_) all_caller &= lane->is_caller();
  const commsched_backend_t* backend = spec_.world->backend();
  IssuerSpec issuer;
  issuer.program = program_.get();
  issuer.codec = codec_.get();
  if (!spec_.observers.empty()) {
    observers_ = std::make_unique<Observers>(
        spec_.observers, *program_, spec_.world_rank, spec_.world->spec().size);
  }
  issuer.observers = observers_.get();
  issuer.backend = backend;
  issuer.comms = communicators_.comms();
  if (!program_->late_buffers.empty()) {
    late_ = std::make_unique<LateBindings>(program_.get());
  }
  issuer.late = late_.get();
  issuer.drops = drops_.get();
  issuer.recorder = spec_.recorder;
  issuer.flight = flight_.get();
  issuer.failure = &failure_;
  issuer.parker = &parker_;
  issuer.clock = spec_.clock;
  issuer.manual = spec_.manual;
  for (const GroupSpec& group : spec_.groups) {
    issuer.group_ranks.push_back(group.ranks);
  }
  issuer.world_rank = spec_.world_rank;
  issuer.launch_timeout_ns = spec_.launch_timeout_ns;
  issuer.issue_inline =
      all_caller && (backend->capabilities & COMMSCHED_BACKEND_INLINE) != 0;
  issuer_ = std::make_unique<Issuer>(issuer);
  dispatcher_ =
      std::make_unique<Dispatcher>(DispatcherSpec{.program = program_.get(),
                                                  .issuer = issuer_.get(),
                                                  .failure = &failure_,
                                                  .recorder = spec_.recorder,
                                                  .flight = flight_.get(),
                                                  .late = late_.get(),
                                                  .manual = spec_.manual,
                                                  .clock = spec_.clock,
                                                  .lanes = lanes_});
  if (spec_.recorder != nullptr) spec_.recorder->SetNames(TraceNames(spec_));
  issuer_->Start();
}

absl::Status SessionImpl::Connect() {
  RETURN_IF_ERROR(
      communicators_.Create(spec_, Issuer::TicketsFor(*spec_.plan), &parker_));
  return RegisterMemory();
}

// What collectives read and write: the arena, and the caller's buffers.
absl::Status SessionImpl::RegisterMemory() {
  if (spec_.plan->arena_bytes != 0) {
    RETURN_IF_ERROR(communicators_.Register(
        arena_.address(), spec_.plan->arena_bytes, &registrations_));
  }
  if (drops_ != nullptr && drops_->scratch_bytes() != 0) {
    RETURN_IF_ERROR(communicators_.Register(
        drops_->scratch(), drops_->scratch_bytes(), &registrations_));
  }
  for (const SessionSpec::Binding& binding : spec_.bindings) {
    RETURN_IF_ERROR(communicators_.Register(binding.address, binding.bytes,
                                            &registrations_));
  }
  return absl::OkStatus();
}

// Work on a worker's stream completes later than its `after`: its events wake
// the lane thread. Work of a calling thread is complete before it is due.
void SessionImpl::ListenToLanes() {
  for (NodeProgram& node : program_->nodes) {
    if (node.event != nullptr && !lanes_[node.lane]->is_caller()) {
      node.event->AddListener(&parker_);
    }
  }
}

// Who writes and, of launches, who uses each buffer.
void SessionImpl::FindWriters() {
  const Plan& plan = *spec_.plan;
  const Graph& graph = *plan.graph;
  writers_.resize(graph.buffers().size());
  users_.resize(graph.buffers().size());
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    for (OpId op : plan.launches[i].members) {
      for (const Access& access : graph.op(op).accesses) {
        std::vector<LaunchId>& users = users_[access.buffer.value()];
        if (users.empty() || users.back() != LaunchId(i)) {
          users.push_back(LaunchId(i));
        }
      }
    }
  }
  for (OpId id : plan.dependencies.order) {
    std::vector<NodeRef> nodes;
    for (LaunchId launch : plan.LaunchesOf(id)) {
      nodes.push_back({NodeRef::Kind::kLaunch, launch.value()});
    }
    if (nodes.empty()) {
      nodes.push_back({NodeRef::Kind::kOp, plan.node_of_op[id.value()]});
    }
    for (const Access& access : graph.op(id).accesses) {
      if (!Writes(access.mode)) continue;
      std::vector<NodeRef>& writers = writers_[access.buffer.value()];
      writers.insert(writers.end(), nodes.begin(), nodes.end());
    }
  }
}

// Steps in which `node` is complete. On a worker's stream `after` comes before
// the work is done; there the event says when.
uint64_t SessionImpl::CompletedGenerations(NodeRef node) const {
  if (node.kind == NodeRef::Kind::kLaunch) {
    return issuer_->CompletedGenerations(node.index);
  }
  uint64_t generations = dispatcher_->AfterGenerations(node.index);
  const Event* event = program_->nodes[node.index].event;
  while (event != nullptr && generations > 0 &&
         !event->IsComplete(generations)) {
    --generations;
  }
  return generations;
}

// Everything due is complete once the last launch of each lane is, since a lane
// completes in order.
absl::Status SessionImpl::Drain() {
  if (failure_.failed()) return failure_.status();
  if (dispatcher_->in_step()) {
    return absl::FailedPreconditionError(
        absl::StrCat("drain: step ", dispatcher_->steps(), " has not ended"));
  }
  if (!spec_.manual) {
    for (Stream* lane : lanes_) lane->Synchronize();
  }
  const uint64_t steps = dispatcher_->steps();
  uint64_t lanes_seen = 0;
  for (size_t i = program_->launches.size(); i-- > 0 && steps > 0;) {
    const LaunchProgram& launch = program_->launches[i];
    const uint64_t lane = uint64_t{1} << (launch.lane % 64);
    if ((lanes_seen & lane) != 0) continue;
    lanes_seen |= lane;
    if (spec_.manual && !launch.event->IsComplete(steps)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "drain: launch ", program_->LaunchName(static_cast<uint32_t>(i)),
          " is not complete; a manual session is pumped first"));
    }
    launch.event->Synchronize(steps);
  }
  return failure_.status();
}

// Launches on the caller's memory have events; those on none need no wait.
absl::Status SessionImpl::WaitDue() {
  for (Stream* lane : lanes_) lane->Synchronize();
  const uint64_t steps = dispatcher_->steps();
  const uint64_t first = steps * program_->launches.size();
  for (size_t i = 0; i < program_->launches.size(); ++i) {
    Event* event = program_->launches[i].event;
    if (event == nullptr) continue;
    event->Synchronize(issuer_->due() > first + i ? steps + 1 : steps);
  }
  return failure_.status();
}

absl::Status SessionImpl::NotComputeOp(OpId op) const {
  const std::vector<Op>& ops = spec_.plan->graph->ops();
  if (op.value() >= ops.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op ", op.value(), " is not in the graph of ", ops.size(), " ops"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("op '", ops[op.value()].name, "' is not a compute op"));
}

absl::StatusOr<void*> SessionImpl::Address(OpId op, BufferId buffer) {
  const Graph& graph = *spec_.plan->graph;
  if (op.value() >= graph.ops().size() ||
      buffer.value() >= graph.buffers().size()) {
    return absl::NotFoundError(absl::StrCat("address: op ", op.value(),
                                            " or buffer ", buffer.value(),
                                            " is not in the graph"));
  }
  for (const Access& access : graph.op(op).accesses) {
    if (access.buffer != buffer) continue;
    if (graph.buffer(buffer).ownership == Ownership::kLateBound) {
      return absl::FailedPreconditionError(
          absl::StrCat("address: buffer '", graph.buffer(buffer).name,
                       "' is late-bound: it has the address that is given"));
    }
    return program_->buffer_address[buffer.value()];
  }
  return absl::NotFoundError(absl::StrCat("address: op '", graph.op(op).name,
                                          "' declares no access to buffer '",
                                          graph.buffer(buffer).name, "'"));
}

absl::StatusOr<uint64_t> SessionImpl::BufferVersion(BufferId buffer) const {
  if (buffer.value() >= writers_.size()) {
    return absl::NotFoundError(absl::StrCat(
        "buffer_version: buffer ", buffer.value(), " is not in the graph"));
  }
  const std::vector<NodeRef>& writers = writers_[buffer.value()];
  if (writers.empty()) return 0;
  uint64_t version = CompletedGenerations(writers.front());
  for (const NodeRef& writer : writers) {
    version = std::min(version, CompletedGenerations(writer));
  }
  return version;
}

// A launch that is due in a step is complete once its event is.
absl::Status SessionImpl::BufferRelease(BufferId buffer, Stream* stream) {
  if (failure_.failed()) return failure_.status();
  if (buffer.value() >= users_.size()) {
    return absl::NotFoundError(absl::StrCat(
        "buffer_release: buffer ", buffer.value(), " is not in the graph"));
  }
  const Buffer& released = spec_.plan->graph->buffer(buffer);
  if (released.ownership == Ownership::kOwned) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer_release: buffer '", released.name,
                     "' is owned by the plan and stays so"));
  }
  const uint64_t due = issuer_->due();
  const uint64_t per_step = program_->launches.size();
  for (LaunchId launch : users_[buffer.value()]) {
    const uint64_t generation =
        due / per_step + (launch.value() < due % per_step ? 1 : 0);
    Event* event = program_->launches[launch.value()].event;
    if (generation == 0 || event->IsComplete(generation)) continue;
    if (!stream->is_caller()) RememberReleasedOn(stream);
    stream->Wait(event, generation);
  }
  return failure_.status();
}

void SessionImpl::RememberReleasedOn(Stream* stream) {
  MutexLock lock(&released_mu_);
  if (std::find(released_on_.begin(), released_on_.end(), stream) ==
      released_on_.end()) {
    released_on_.push_back(stream);
  }
}

absl::StatusOr<bool> SessionImpl::BufferPoisoned(BufferId buffer) const {
  const Plan& plan = *spec_.plan;
  if (buffer.value() >= plan.graph->buffers().size()) {
    return absl::NotFoundError(absl::StrCat(
        "buffer_poisoned: buffer ", buffer.value(), " is not in the graph"));
  }
  if (!failure_.failed()) return false;
  ProgressAtFailure progress;
  progress.steps_begun =
      dispatcher_->steps() + (dispatcher_->in_step() ? 1 : 0);
  progress.completed = [this](LaunchId launch) {
    return issuer_->CompletedGenerations(launch.value());
  };
  progress.unguarded = [this](uint32_t node) -> uint64_t {
    if (lanes_[program_->nodes[node].lane]->is_caller()) return 0;
    return dispatcher_->BeforeGenerations(node);
  };
  return PoisonedBuffers(plan, progress)[buffer.value()];
}

SessionCounters SessionImpl::counters() const {
  SessionCounters counters;
  counters.steps = dispatcher_->steps();
  counters.launches = issuer_->launches();
  counters.collectives = issuer_->collectives();
  counters.bytes = issuer_->bytes();
  counters.peak_launches_in_flight = issuer_->window().peak_launches();
  counters.peak_bytes_in_flight = issuer_->window().peak_bytes();
  counters.lock_contentions =
      GlobalBlockingCounters().contended_locks.load(std::memory_order_relaxed);
  counters.events_created =
      GlobalDeviceCounters().events_created.load(std::memory_order_relaxed);
  counters.streams_created =
      GlobalDeviceCounters().streams_created.load(std::memory_order_relaxed);
  counters.registrations = registrations_;
  counters.stall_due_ns = issuer_->StallNs(StallCause::kDue);
  counters.stall_wait_ns = issuer_->StallNs(StallCause::kWait);
  counters.stall_window_ns = issuer_->StallNs(StallCause::kWindow);
  counters.stall_tickets_ns = issuer_->StallNs(StallCause::kTickets);
  return counters;
}

absl::StatusOr<CodecError> SessionImpl::CodecErrorOf(OpId op) const {
  const Plan& plan = *spec_.plan;
  const bool known = op.value() < plan.launch_of_op.size();
  const LaunchId launch = known ? plan.launch_of_op[op.value()] : LaunchId();
  if (launch.valid() && plan.launches[launch.value()].coded) {
    return codec_->ErrorOf(launch.value());
  }
  return absl::NotFoundError(
      absl::StrCat("codec_error: ",
                   known ? absl::StrCat("op '", plan.graph->op(op).name, "'")
                         : absl::StrCat("op ", op.value()),
                   " does not travel through a codec"));
}

// A launch's time is shared out to its members in equal parts.
std::vector<int64_t> SessionImpl::CollectiveCpuNs() const {
  const Plan& plan = *spec_.plan;
  std::vector<int64_t> cpu_ns(plan.graph->ops().size());
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    const absl::Span<const OpId> members = plan.launches[i].members;
    const int64_t total_ns = issuer_->CpuNs(i);
    const int64_t share_ns = total_ns / static_cast<int64_t>(members.size());
    for (OpId member : members) cpu_ns[member.value()] += share_ns;
    cpu_ns[members.front().value()] +=
        total_ns - share_ns * static_cast<int64_t>(members.size());
  }
  return cpu_ns;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Create(SessionSpec spec) {
  if (spec.launch_timeout_ns == 0) spec.launch_timeout_ns = kDefaultTimeoutNs;
  auto session = std::make_unique<SessionImpl>(std::move(spec));
  RETURN_IF_ERROR(session->Meet(session->Bind()));
  return absl::StatusOr<std::unique_ptr<Session>>(std::move(session));
}

absl::StatusOr<std::vector<std::unique_ptr<Session>>> Session::CreateAll(
    std::vector<SessionSpec> specs) {
  std::vector<std::unique_ptr<SessionImpl>> made;
  for (SessionSpec& spec : specs) {
    if (spec.launch_timeout_ns == 0) spec.launch_timeout_ns = kDefaultTimeoutNs;
    made.push_back(std::make_unique<SessionImpl>(std::move(spec)));
    RETURN_IF_ERROR(made.back()->Bind());
  }
  for (const auto& session : made) RETURN_IF_ERROR(session->Connect());
  std::vector<std::unique_ptr<Session>> sessions;
  for (auto& session : made) {
    session->Start();
    sessions.push_back(std::move(session));
  }
  return sessions;
}

}  // namespace commsched
