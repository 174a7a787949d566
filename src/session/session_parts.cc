#include "session/session_parts.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "exec/flatten.h"
#include "session/backend_model.h"
#include "session/binding.h"
#include "session/codec.h"

namespace commsched {
namespace {

constexpr int64_t kDefaultTimeoutNs = int64_t{600} * 1000 * 1000 * 1000;

SessionSpec WithDefaults(SessionSpec spec) {
  if (spec.launch_timeout_ns == 0) spec.launch_timeout_ns = kDefaultTimeoutNs;
  return spec;
}

// Of a session whose launches may not have ended: until the process does.
struct Remains {
  void* arena = nullptr;
  std::unique_ptr<Program> program;  // Counts and members of launches.
  std::unique_ptr<Drops> drops;
};

void Keep(Remains remains) {
  static Mutex mu;
  static auto* const kept = new std::vector<Remains>;
  MutexLock lock(&mu);
  kept->push_back(std::move(remains));
}

}  // namespace

SessionParts::Arena::~Arena() {
  if (address_ != nullptr) device_->Free(address_);
}

absl::Status SessionParts::Arena::Allocate(Device* device, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(address_, device->Allocate(bytes));
  device_ = device;
  return absl::OkStatus();
}

SessionParts::SessionParts(SessionSpec s)
    : spec(WithDefaults(std::move(s))),
      failure(spec.on_failure),
      communicators(spec.world) {}

// Memory that the backend may still touch does not go back: what it was told to
// write there must not land in somebody else's.
SessionParts::~SessionParts() {
  const absl::Status closed = communicators.Close(spec.launch_timeout_ns);
  if (closed.ok()) return;
  std::string bound;
  for (const SessionSpec::Binding& binding : spec.bindings) {
    absl::StrAppend(&bound, bound.empty() ? "" : ", ", "'",
                    spec.plan->graph->buffer(binding.buffer).name, "'");
  }
  Log(LogLevel::kWarning,
      "session: launches may still be under way: ", closed.message(),
      "; its arena of ", spec.plan->arena_bytes,
      " bytes is not freed, and these buffers must not be: ",
      bound.empty() ? "none" : bound);
  Keep({arena.Release(), std::move(program), std::move(drops)});
}

absl::Status SessionParts::Bind() {
  RETURN_IF_ERROR(CheckGroups(spec));
  RETURN_IF_ERROR(CheckBackend(*spec.plan, *spec.world->backend()));
  Binding binding;
  ASSIGN_OR_RETURN(binding.buffer_address, ResolveBindings(spec));
  ASSIGN_OR_RETURN(lanes, ResolveLanes(spec));
  RETURN_IF_ERROR(arena.Allocate(&device, spec.plan->arena_bytes));
  for (const Placement& placement : spec.plan->placements) {
    binding.buffer_address[placement.buffer.value()] =
        arena.address() + placement.offset;
  }
  binding.arena = arena.address();
  binding.device = &device;
  RETURN_IF_ERROR(CheckProgress(spec, lanes));
  binding.issue_inline =
      (spec.world->backend()->capabilities & COMMSCHED_BACKEND_INLINE) != 0;
  for (const Stream* lane : lanes) {
    binding.caller_lanes.push_back(lane->is_caller());
    binding.issue_inline &= lane->is_caller();
  }
  for (const GroupSpec& group : spec.groups) {
    binding.group_rank.push_back(group.rank);
  }
  ASSIGN_OR_RETURN(program, Flatten(spec.plan, binding));
  ASSIGN_OR_RETURN(codec, MakeCodec(*spec.plan));
  RETURN_IF_ERROR(AddGates());
  RETURN_IF_ERROR(OpenFlightRecord());
  FindWriters();
  return absl::OkStatus();
}

absl::Status SessionParts::OpenFlightRecord() {
  if (spec.flight_path.empty()) return absl::OkStatus();
  FlightInfo info;
  info.rank = spec.world_rank;
  info.fingerprint = spec.plan->fingerprint;
  for (uint32_t i = 0; i < program->launches.size(); ++i) {
    info.launches.push_back(program->LaunchName(i));
  }
  ASSIGN_OR_RETURN(flight, FlightRecord::Create(spec.flight_path, info));
  return absl::OkStatus();
}

absl::Status SessionParts::AddGates() {
  if (spec.submitted.empty()) return absl::OkStatus();
  gated_launch.assign(spec.plan->launch_of_op.size(), Plan::kNone);
  for (OpId op : spec.submitted) {
    const absl::Span<const LaunchId> launches = spec.plan->LaunchesOf(op);
    for (LaunchId launch : launches) {
      ++program->launches[launch.value()].gates;
    }
    if (launches.size() == 1) {
      gated_launch[op.value()] = launches.front().value();
    }
  }
  std::vector<int> group_rank;
  for (const GroupSpec& group : spec.groups) group_rank.push_back(group.rank);
  ASSIGN_OR_RETURN(
      drops, Drops::Create(program.get(), spec.submitted, group_rank, &device));
  return absl::OkStatus();
}

// Who writes and, of launches, who uses each buffer.
void SessionParts::FindWriters() {
  const Plan& plan = *spec.plan;
  const Graph& graph = *plan.graph;
  writers.resize(graph.buffers().size());
  users.resize(graph.buffers().size());
  for (uint32_t i = 0; i < plan.launches.size(); ++i) {
    for (OpId op : plan.launches[i].members) {
      for (const Access& access : graph.op(op).accesses) {
        std::vector<LaunchId>& of_buffer = users[access.buffer.value()];
        if (of_buffer.empty() || of_buffer.back() != LaunchId(i)) {
          of_buffer.push_back(LaunchId(i));
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
      std::vector<NodeRef>& of_buffer = writers[access.buffer.value()];
      of_buffer.insert(of_buffer.end(), nodes.begin(), nodes.end());
    }
  }
}

absl::Status SessionParts::Connect() {
  RETURN_IF_ERROR(communicators.Create(spec, Issuer::RequestsFor(*spec.plan)));
  RETURN_IF_ERROR(ExpectLaunches());
  return RegisterMemory();
}

absl::Status SessionParts::ExpectLaunches() {
  std::vector<commsched_launch_t*> calls;
  std::vector<uint32_t> groups;
  for (LaunchProgram& launch : program->launches) {
    calls.push_back(&launch.call);
    groups.push_back(launch.group);
  }
  return communicators.Expect(calls, groups);
}

// What collectives read and write: the arena, and the caller's buffers.
absl::Status SessionParts::RegisterMemory() {
  if (spec.plan->arena_bytes != 0) {
    RETURN_IF_ERROR(communicators.Register(
        arena.address(), spec.plan->arena_bytes, &registrations));
  }
  if (drops != nullptr && drops->scratch_bytes() != 0) {
    RETURN_IF_ERROR(communicators.Register(
        drops->scratch(), drops->scratch_bytes(), &registrations));
  }
  for (const SessionSpec::Binding& binding : spec.bindings) {
    RETURN_IF_ERROR(
        communicators.Register(binding.address, binding.bytes, &registrations));
  }
  return absl::OkStatus();
}

void SessionParts::Finish() {
  program->first_step = spec.first_step;
  for (LaunchProgram& launch : program->launches) {
    launch.comm = communicators.comms()[launch.group];
  }
  ListenToLanes();
  if (!spec.observers.empty()) {
    observers = std::make_unique<Observers>(
        spec.observers, *program, spec.world_rank, spec.world->spec().size);
  }
  if (!program->late_buffers.empty()) {
    late = std::make_unique<LateBindings>(program.get());
  }
}

// Work on a worker's stream completes later than its `after`: its events wake
// the progress thread. Work of a calling thread is complete before it is due.
void SessionParts::ListenToLanes() {
  for (NodeProgram& node : program->nodes) {
    if (node.event != nullptr && !lanes[node.lane]->is_caller()) {
      node.event->AddListener(communicators.rank()->parker());
    }
  }
}

IssuerSpec SessionParts::ForIssuer() {
  IssuerSpec issuer;
  issuer.program = program.get();
  issuer.codec = codec.get();
  issuer.observers = observers.get();
  issuer.rank = communicators.rank();
  issuer.backend = spec.world->backend();
  issuer.comms = communicators.comms();
  issuer.late = late.get();
  issuer.drops = drops.get();
  issuer.recorder = spec.recorder;
  issuer.flight = flight.get();
  issuer.failure = &failure;
  issuer.abort = [this](const absl::Status& why) { communicators.Abort(why); };
  issuer.clock = spec.clock;
  issuer.manual = spec.manual;
  issuer.by_caller = spec.by_caller;
  for (const GroupSpec& group : spec.groups) {
    issuer.group_ranks.push_back(group.ranks);
  }
  issuer.world_rank = spec.world_rank;
  issuer.launch_timeout_ns = spec.launch_timeout_ns;
  return issuer;
}

DispatcherSpec SessionParts::ForDispatcher() {
  return {.program = program.get(),
          .failure = &failure,
          .recorder = spec.recorder,
          .flight = flight.get(),
          .late = late.get(),
          .manual = spec.manual,
          .clock = spec.clock,
          .lanes = lanes};
}

}  // namespace commsched
