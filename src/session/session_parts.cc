#include "session/session_parts.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "comm/lane_agreement.h"
#include "exec/flatten.h"
#include "exec/polled_mode.h"
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

SessionParts::SessionParts(SessionSpec s)
    : spec(WithDefaults(std::move(s))),
      device(spec.world->device(spec.world_rank)),
      failure(spec.on_failure),
      communicators(spec.world) {}

// Memory that the backend may still touch does not go back: what it was told to
// write there must not land in somebody else's.
SessionParts::~SessionParts() {
  const absl::Status closed = communicators.Close(spec.EndTimeoutNs());
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
  for (const auto& lane : borrowed) {
    if (lane != nullptr) lane->Lose();
  }
  arena.Keep();
  Keep({std::move(program), std::move(drops)});
}

absl::Status SessionParts::Bind() {
  RETURN_IF_ERROR(CheckGroups(spec));
  RETURN_IF_ERROR(CheckBackend(*spec.plan, *spec.world->backend()));
  Binding binding;
  ASSIGN_OR_RETURN(binding.buffer_address, ResolveBindings(spec));
  ASSIGN_OR_RETURN(lanes, ResolveLanes(spec));
  RETURN_IF_ERROR(CheckDevice(spec, lanes));
  RETURN_IF_ERROR(arena.Allocate(spec, spec.plan->arena_bytes));
  for (const Placement& placement : spec.plan->placements) {
    binding.buffer_address[placement.buffer.value()] =
        arena.address() + placement.offset;
  }
  binding.arena = arena.address();
  binding.device = device;
  binding.enqueue = EnqueuesOn(*spec.world->backend());
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
  binding.submitted = spec.submitted;
  ASSIGN_OR_RETURN(program, Flatten(spec.plan, binding));
  if (program->enqueue) RETURN_IF_ERROR(MakeLaneEnds());
  ASSIGN_OR_RETURN(codec, MakeCodec(*spec.plan));
  RETURN_IF_ERROR(AddGates());
  RETURN_IF_ERROR(OpenFlightRecord());
  FindWriters();
  return absl::OkStatus();
}

// ---- Lanes of the device ----

absl::Status SessionParts::BorrowLanes(bool together) {
  if (!program->enqueue) return absl::OkStatus();
  if (together) communicators.MeetAll();
  absl::Status borrowed = TakeLanes(together);
  if (borrowed.ok()) borrowed = MakeReplays();
  if (borrowed.ok()) {
    AddQueues();
    return borrowed;
  }
  // Others may wait for this rank to connect.
  Communicators::Decline(spec, borrowed);
  spec.world->Tell(
      spec.world_rank, spec.instance,
      absl::Status(borrowed.code(), absl::StrCat("rank ", spec.world_rank, ": ",
                                                 borrowed.message())));
  return borrowed;
}

// By those lanes of the plan that have launches.
std::vector<LaneKey> SessionParts::LaneKeys() const {
  const uint32_t num_lanes = spec.plan->num_comm_lanes;
  std::vector<std::set<std::string>> axes(num_lanes);
  for (const LaunchProgram& launch : program->launches) {
    axes[launch.lane].insert(spec.groups[launch.group].axis);
  }
  std::vector<LaneKey> keys;
  for (uint32_t lane = 0; lane < num_lanes; ++lane) {
    if (axes[lane].empty()) continue;
    keys.push_back({.world = spec.world.get(),
                    .axes = absl::StrJoin(axes[lane], "\n"),
                    .plan_lane = lane});
  }
  return keys;
}

absl::Status SessionParts::TakeLanes(bool together) {
  const std::vector<LaneKey> keys = LaneKeys();
  ASSIGN_OR_RETURN(
      auto of_keys,
      together
          ? BorrowSameLanes(spec.world.get(), spec.world_rank,
                            absl::StrCat("session ", spec.instance, " lanes"),
                            keys, spec.JoinTimeoutNs())
          : spec.world->BorrowLanes(spec.world_rank, keys));
  borrowed.resize(spec.plan->num_comm_lanes);
  side_lanes.resize(spec.plan->num_comm_lanes);
  for (size_t i = 0; i < keys.size(); ++i) {
    DeviceLane* const lane = of_keys[i].get();
    ASSIGN_OR_RETURN(Stream* const stream,
                     device->Adopt(lane->stream()->handle().native));
    side_lanes[keys[i].plan_lane] = {stream, lane->turn(), lane->order()};
    borrowed[keys[i].plan_lane] = std::move(of_keys[i]);
  }
  return absl::OkStatus();
}

// One per group and lane.
void SessionParts::AddQueues() {
  std::map<std::pair<uint32_t, uint32_t>, LaneQueue*> made;
  for (size_t i = 0; i < program->launches.size(); ++i) {
    LaunchProgram& launch = program->launches[i];
    if (IsPointToPoint(spec.plan->launches[i].kind)) continue;
    LaneQueue*& queue = made[{launch.lane, launch.group}];
    if (queue == nullptr) {
      const GroupSpec& group = spec.groups[launch.group];
      queues.push_back(spec.world->AddQueue(
          borrowed[launch.lane].get(), spec.world_rank,
          absl::StrCat("'", spec.plan->graph->groups()[launch.group].name,
                       "' of session ", spec.instance),
          group.ranks, this));
      queue = queues.back().get();
    }
    launch.queue = queue;
  }
}

absl::Status SessionParts::MakeLaneEnds() {
  lane_ends.resize(lanes.size());
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!lanes[i]->is_device()) continue;
    ASSIGN_OR_RETURN(lane_ends[i], device->CreateEvent(Program::kRunAhead + 1));
  }
  return absl::OkStatus();
}

absl::Status SessionParts::MakeReplays() {
  ReplaysSpec of_replays;
  of_replays.program = program.get();
  of_replays.device = device;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lane_ends[i] == nullptr) continue;
    of_replays.streams.push_back(lanes[i]);
    of_replays.lane_ends.push_back(lane_ends[i].get());
  }
  std::map<int, Turn*> turns;
  for (const auto& lane : borrowed) {
    if (lane != nullptr) turns[lane->number()] = lane->turn();
  }
  for (const auto& [number, turn] : turns) of_replays.turns.push_back(turn);
  for (const SideLane& side : side_lanes) {
    if (side.stream != nullptr) of_replays.streams.push_back(side.stream);
  }
  ASSIGN_OR_RETURN(replays, Replays::Create(std::move(of_replays)));
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
      drops, Drops::Create(program.get(), spec.submitted, group_rank, device));
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
  // Of launches that are polled, as PolledMode does.
  const bool reads_starts =
      spec.recorder != nullptr && !program->issue_inline && !program->enqueue;
  communicators.LaunchOn(borrowed);
  absl::Status connected = communicators.Create(
      spec, PolledMode::RequestsFor(*spec.plan), reads_starts);
  if (connected.ok()) connected = RegisterMemory();
  if (connected.ok()) connected = ExpectLaunches();
  if (connected.ok()) connected = communicators.AwaitConnected(spec);
  // Others may wait for this rank to connect.
  if (!connected.ok()) {
    communicators.Abort(absl::Status(
        connected.code(),
        absl::StrCat("rank ", spec.world_rank, ": ", connected.message())));
  }
  return connected;
}

absl::Status SessionParts::ExpectLaunches() {
  std::vector<commsched_launch_t*> calls;
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < program->launches.size(); ++i) {
    calls.push_back(&program->launches[i].call);
    numbers.push_back(communicators.NumberOf(spec.plan->launches[i]));
  }
  return communicators.Expect(calls, numbers);
}

// What collectives read and write: the arena, and the caller's buffers.
absl::Status SessionParts::RegisterMemory() {
  if (spec.plan->arena_bytes != 0) {
    RETURN_IF_ERROR(Register(arena.address(), spec.plan->arena_bytes));
  }
  if (drops != nullptr && drops->scratch_bytes() != 0) {
    RETURN_IF_ERROR(Register(drops->scratch(), drops->scratch_bytes()));
  }
  for (const SessionSpec::Binding& binding : spec.bindings) {
    RETURN_IF_ERROR(Register(binding.address, binding.bytes));
  }
  return absl::OkStatus();
}

absl::Status SessionParts::Register(void* address, uint64_t bytes) {
  const uint64_t before = registrations;
  RETURN_IF_ERROR(communicators.Register(address, bytes, &registrations));
  if (registrations != before) registered_bytes += bytes;
  return absl::OkStatus();
}

void SessionParts::Finish() {
  program->first_step = spec.first_step;
  for (size_t i = 0; i < program->launches.size(); ++i) {
    program->launches[i].comm =
        communicators.comms()[communicators.NumberOf(spec.plan->launches[i])];
  }
  ListenToLanes();
  ranges = NvtxRanges::Create(*program);
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
  if (program->enqueue) return;  // The monitor looks by itself.
  for (NodeProgram& node : program->nodes) {
    if (node.event != nullptr && !lanes[node.lane]->is_caller()) {
      node.event->AddListener(communicators.rank()->parker());
    }
  }
}

StepInstruments SessionParts::Instruments() const {
  return {.recorder = spec.recorder,
          .flight = flight.get(),
          .observers = observers.get(),
          .ranges = ranges.get(),
          .listener = spec.listener,
          .launch_timeout_ns = spec.launch_timeout_ns,
          .clock = spec.clock};
}

IssuerSpec SessionParts::ForIssuer() {
  IssuerSpec issuer;
  issuer.program = program.get();
  issuer.codec = codec.get();
  issuer.rank = communicators.rank();
  issuer.backend = spec.world->backend();
  issuer.comms = communicators.comms();
  issuer.late = late.get();
  issuer.drops = drops.get();
  issuer.instruments = Instruments();
  issuer.failure = &failure;
  issuer.abort = [this](const absl::Status& why) { communicators.Abort(why); };
  issuer.manual = spec.manual;
  issuer.by_caller = spec.by_caller;
  issuer.device = device;
  issuer.replays = replays.get();
  issuer.side_lanes = side_lanes;
  for (const GroupSpec& group : spec.groups) {
    issuer.group_ranks.push_back(group.ranks);
  }
  issuer.world_rank = spec.world_rank;
  return issuer;
}

DispatcherSpec SessionParts::ForDispatcher() {
  std::vector<LaneEnd> ends;
  for (size_t i = 0; i < lane_ends.size(); ++i) {
    if (lane_ends[i] == nullptr) continue;
    ends.push_back({lanes[i], lane_ends[i].get()});
  }
  return {.program = program.get(),
          .failure = &failure,
          .instruments = Instruments(),
          .late = late.get(),
          .manual = spec.manual,
          .lanes = lanes,
          .lane_ends = std::move(ends),
          .replays = replays.get()};
}

StepCaptureSpec SessionParts::ForCapture() {
  StepCaptureSpec capture;
  capture.program = program.get();
  capture.backend = spec.world->backend();
  capture.device = device;
  capture.failure = &failure;
  capture.lanes = lanes;
  return capture;
}

}  // namespace commsched
