#include "recording/serial_runner.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/running_clock.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "comm/lane_agreement.h"
#include "exec/bound_ranges.h"
#include "exec/flatten.h"
#include "exec/staging.h"
#include "plan/planner.h"
#include "recording/late_submits.h"
#include "session/backend_model.h"
#include "session/binding.h"

namespace commsched {
namespace {

constexpr uint32_t kRequest = 0;  // one launch at a time
// How often one looks whether a device is through with a launch.
constexpr int64_t kDeviceLookNs = int64_t{50} * 1000;

absl::Status WithContext(const absl::Status& status, absl::string_view what) {
  return absl::Status(status.code(),
                      absl::StrCat(what, ": ", status.message()));
}

absl::Span<const StagingStep> StagingOf(const Program& program, Span32 span) {
  return absl::MakeConstSpan(program.staging.data() + span.begin, span.count);
}

std::string NameOf(const Program& program, uint32_t index) {
  return absl::StrCat("launch ", program.LaunchName(index));
}

// The graph of collective `id` alone; `buffers` says which of its buffers is
// which of `ops`.
absl::StatusOr<Graph> GraphOf(const Graph& ops, OpId id,
                              std::vector<BufferId>* buffers) {
  Graph graph;
  graph.BindLateAtSubmit();
  for (const Group& group : ops.groups()) {
    RETURN_IF_ERROR(graph.AddGroup(group.name, group.size).status());
  }
  Op op = ops.op(id);
  // What is recorded runs as it is; peers may not know yet what a codec does.
  op.collective.lossy = false;
  if (op.collective.kind != CollectiveKind::kBarrier) {
    for (Access* side : {&op.collective.input, &op.collective.output}) {
      const auto known =
          std::find(buffers->begin(), buffers->end(), side->buffer);
      BufferId local(static_cast<uint32_t>(known - buffers->begin()));
      if (known == buffers->end()) {
        buffers->push_back(side->buffer);
        ASSIGN_OR_RETURN(local, graph.AddBuffer(ops.buffer(side->buffer)));
      }
      side->buffer = local;
    }
  }
  RETURN_IF_ERROR(graph.AddOp(std::move(op)).status());
  return graph;
}

}  // namespace

SerialRunner::Prepared::~Prepared() {
  if (staging != nullptr) device->Free(staging);
}

SerialRunner::SerialRunner(SerialRunnerSpec spec)
    : spec_(std::move(spec)),
      backend_(spec_.world->backend()),
      device_(spec_.world->device(spec_.world_rank)),
      num_met_(spec_.groups.size()),
      communicators_(spec_.world) {}

// What the backend may still touch stays until the process ends, as a session's
// does (session/session_parts.cc).
SerialRunner::~SerialRunner() {
  const absl::Status closed = communicators_.Close(spec_.launch_timeout_ns);
  if (closed.ok()) return;
  Log(LogLevel::kWarning,
      "recording: collectives may still be under way: ", closed.message(),
      "; the buffers of the recording must not be freed");
  if (lane_ != nullptr) lane_->Lose();
  static Mutex mu;
  static auto* const kept = new std::vector<decltype(prepared_)>;
  MutexLock lock(&mu);
  kept->push_back(std::move(prepared_));
}

absl::Status SerialRunner::Connect() {
  SessionSpec session;
  session.world = spec_.world;
  session.world_rank = spec_.world_rank;
  session.instance = spec_.instance;
  session.groups = spec_.groups;
  session.launch_timeout_ns = spec_.launch_timeout_ns;
  if (EnqueuesOn(*backend_)) RETURN_IF_ERROR(BorrowLane());
  communicators_.LaunchOn(lanes_);
  return communicators_.Create(session, /*requests=*/1, /*reads_starts=*/false);
}

std::vector<LateBinding> SerialRunner::Localize(
    OpId op, absl::Span<const LateBinding> late) const {
  const std::vector<BufferId>& buffers = prepared_.at(op)->buffers;
  std::vector<LateBinding> local(late.begin(), late.end());
  for (LateBinding& binding : local) {
    const auto known =
        std::find(buffers.begin(), buffers.end(), binding.buffer);
    binding.buffer = BufferId(static_cast<uint32_t>(known - buffers.begin()));
  }
  return local;
}

absl::Status SerialRunner::CheckBound(OpId op,
                                      absl::Span<const LateBinding> late) {
  const Op& submitted = spec_.ops->op(op);
  const BoundRanges memory(*spec_.ops, *spec_.addresses);
  for (const LateBinding& binding : late) {
    if (std::none_of(submitted.accesses.begin(), submitted.accesses.end(),
                     [&](const Access& access) {
                       return access.buffer == binding.buffer;
                     })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "submit: op '", submitted.name, "' binds buffer ",
          binding.buffer.value(), ", which it does not use late-bound"));
    }
    // What is prepared knows the buffers of this collective only.
    const Buffer& buffer = spec_.ops->buffer(binding.buffer);
    const uint64_t bytes = binding.count * DTypeSize(buffer.dtype);
    if (stream_ != nullptr && bytes != 0) {
      const absl::Status here = device_->CheckHere(binding.address);
      if (!here.ok()) {
        return absl::Status(here.code(),
                            absl::StrCat("submit: late-bound buffer '",
                                         buffer.name, "' ", here.message()));
      }
    }
    const BufferId met = memory.Meets(binding.address, bytes);
    if (!met.valid()) continue;
    const Buffer& other = spec_.ops->buffer(met);
    return absl::InvalidArgumentError(absl::StrCat(
        "submit: late-bound buffer '", buffer.name, "' overlaps buffer '",
        other.name, "' in memory: ",
        SharedBytes(buffer.name, binding.address, bytes, other.name,
                    (*spec_.addresses)[met.value()], other.bytes())));
  }
  ASSIGN_OR_RETURN(const Prepared* prepared, Prepare(op));
  if (prepared->late == nullptr) return absl::OkStatus();
  return prepared->late->CheckSubmitted(OpId(0), prepared->times + 1,
                                        Localize(op, late));
}

absl::Status SerialRunner::Run(OpId op, uint64_t step,
                               absl::Span<const LateBinding> late) {
  auto run = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(Prepared * prepared, Prepare(op));
    RETURN_IF_ERROR(CheckPeers(op, step, late));
    const uint64_t generation = ++prepared->times;
    if (prepared->late != nullptr) {
      prepared->late->StoreSubmitted(OpId(0), generation, Localize(op, late));
    }
    const Program& program = *prepared->program;
    for (uint32_t i = 0; i < program.launches.size(); ++i) {
      if (program.launches[i].late.count != 0) {
        RETURN_IF_ERROR(prepared->late->Apply(i, generation));
      }
      RETURN_IF_ERROR(stream_ == nullptr ? RunOnHost(program, i)
                                         : RunOnDevice(program, i));
    }
    return absl::OkStatus();
  };
  absl::Status status = run();
  if (!status.ok()) Abort(status, /*others_know=*/false);
  return status;
}

absl::StatusOr<SerialRunner::Prepared*> SerialRunner::Prepare(OpId op) {
  std::unique_ptr<Prepared>& entry = prepared_[op];
  if (entry != nullptr) return entry.get();
  std::vector<BufferId> buffers;
  ASSIGN_OR_RETURN(const Graph graph, GraphOf(*spec_.ops, op, &buffers));
  PlanOptions options;
  options.deterministic = spec_.deterministic;
  options.backend = ModelOf(*backend_);
  ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan,
                   BuildPlan(graph, options, CostProfile{}));
  auto prepared = std::make_unique<Prepared>();
  prepared->device = device_;
  if (plan->arena_bytes != 0) {
    ASSIGN_OR_RETURN(prepared->staging, device_->Allocate(plan->arena_bytes));
  }
  Binding binding;
  for (BufferId buffer : buffers) {
    binding.buffer_address.push_back((*spec_.addresses)[buffer.value()]);
  }
  binding.arena = prepared->staging;
  for (const GroupSpec& group : spec_.groups) {
    binding.group_rank.push_back(group.rank);
  }
  binding.device = device_;
  binding.caller_lanes.assign(plan->num_compute_lanes, true);
  binding.submitted = {OpId(0)};
  ASSIGN_OR_RETURN(prepared->program, Flatten(std::move(plan), binding));
  if (!prepared->program->late_buffers.empty()) {
    prepared->late = std::make_unique<LateBindings>(prepared->program.get());
  }
  prepared->buffers = std::move(buffers);
  entry = std::move(prepared);
  return entry.get();
}

std::string SerialRunner::KeyLocked(size_t group) const {
  const GroupSpec& members = spec_.groups[group];
  return absl::StrCat("recording ", spec_.instance, " group ", group, " ",
                      members.axis, " ", absl::StrJoin(members.ranks, ","),
                      " #", num_met_[group]);
}

void SerialRunner::DeclineLocked(size_t group) {
  const GroupSpec& members = spec_.groups[group];
  if (members.ranks.size() == 1) return;
  spec_.world->meeting()->DeclineAmong(members.ranks, KeyLocked(group),
                                       spec_.world_rank, gave_up_);
}

absl::Status SerialRunner::CheckPeers(OpId op, uint64_t step,
                                      absl::Span<const LateBinding> late) {
  const size_t group = spec_.ops->op(op).collective.group.value();
  const GroupSpec& members = spec_.groups[group];
  if (members.ranks.size() == 1) return absl::OkStatus();
  std::string key;
  {
    MutexLock lock(&mu_);
    if (!gave_up_.ok()) return gave_up_;
    key = KeyLocked(group);
  }
  const std::string& name = spec_.ops->op(op).name;
  const std::string mine = absl::StrCat(step, " ", op.value(), " '", name, "'",
                                        AmountText(*spec_.ops, op, late));
  absl::StatusOr<bool> equal = spec_.world->meeting()->MatchAmong(
      members.ranks, key, spec_.world_rank, {Claim::Of("submits", mine)},
      spec_.launch_timeout_ns);
  {
    MutexLock lock(&mu_);
    // A rank that gave up when all had come already got through, like the
    // others: they miss it in the next one.
    if (equal.ok()) ++num_met_[group];
    if (equal.ok() && !gave_up_.ok()) DeclineLocked(group);
    if (!gave_up_.ok()) return gave_up_;
  }
  if (!equal.ok()) {
    return WithContext(equal.status(), absl::StrCat("recording '", name, "'"));
  }
  if (*equal) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> shown,
                   spec_.world->meeting()->AllGatherAmong(
                       members.ranks, absl::StrCat(key, " differs"),
                       spec_.world_rank, mine, spec_.launch_timeout_ns));
  for (size_t i = 0; i < members.ranks.size(); ++i) {
    if (shown[i] == shown[static_cast<size_t>(members.rank)]) continue;
    const auto words_of = [](const std::string& text) {
      return std::vector<std::string>(
          absl::StrSplit(text, absl::MaxSplits(' ', 2)));
    };
    const std::vector<std::string> theirs = words_of(shown[i]);
    return absl::FailedPreconditionError(absl::StrCat(
        "recording: on axis ", members.axis, " rank ", spec_.world_rank,
        " submits ", words_of(mine).back(), " of step ", step, ", rank ",
        members.ranks[i], " ", theirs.back(), " of step ", theirs.front()));
  }
  return absl::OkStatus();
}

absl::Status SerialRunner::RunOnHost(const Program& program, uint32_t index) {
  const LaunchProgram& launch = program.launches[index];
  RunStaging(StagingOf(program, launch.staging_in));
  {
    BackendRank::Turn turn(communicators_.rank());
    RETURN_IF_ERROR(LaunchOn(program, index, commsched_stream_caller()));
    if ((backend_->capabilities & COMMSCHED_BACKEND_INLINE) == 0) {
      RETURN_IF_ERROR(Await(&turn, communicators_.comms()[launch.group],
                            NameOf(program, index)));
    }
  }
  RunStaging(StagingOf(program, launch.staging_out));
  return absl::OkStatus();
}

absl::Status SerialRunner::LaunchOn(const Program& program, uint32_t index,
                                    commsched_stream_t stream) {
  const LaunchProgram& launch = program.launches[index];
  const commsched_status_t code = backend_->launch(
      communicators_.comms()[launch.group], &launch.call, kRequest, stream,
      message_.Begin(), PluginMessage::size());
  if (code == COMMSCHED_OK) return absl::OkStatus();
  return WithContext(BackendFailure(*backend_, "launch", code, message_),
                     NameOf(program, index));
}

absl::Status SerialRunner::Await(BackendRank::Turn* turn, void* comm,
                                 absl::string_view what) {
  const RunningClock& clock = RunningClock::Get();
  const int64_t deadline_ns =
      DeadlineAfter(clock.NowNs(), spec_.launch_timeout_ns);
  const WaitingCall waiting(spec_.world_rank, "waits for ", what);
  while (true) {
    commsched_launch_result_t result = {};
    const commsched_status_t code = backend_->poll(
        comm, kRequest, &result, message_.Begin(), PluginMessage::size());
    absl::Status polled =
        code == COMMSCHED_OK
            ? CheckLaunchResult(*backend_, result)
            : BackendFailure(*backend_, "poll", code, message_);
    if (!polled.ok()) return WithContext(polled, what);
    if (result.done != 0) return absl::OkStatus();
    if (clock.NowNs() >= deadline_ns) return TooLate(what);
    const int64_t look_ns = clock.SleepUntilNs(deadline_ns);
    turn->Sleep(result.wake_at_ns == 0 ? look_ns
                                       : std::min(look_ns, result.wake_at_ns));
  }
}

absl::Status SerialRunner::TooLate(absl::string_view what) const {
  return absl::DeadlineExceededError(
      absl::StrCat(what, " is not complete on rank ", spec_.world_rank,
                   " after ", spec_.launch_timeout_ns / 1'000'000, " ms"));
}

// ---- On a device ----

// That which a session of these groups asks for, which runs when nothing does
// here.
absl::Status SerialRunner::BorrowLane() {
  std::set<std::string> axes;
  for (const GroupSpec& group : spec_.groups) axes.insert(group.axis);
  const LaneKey key = {.world = spec_.world.get(),
                       .axes = absl::StrJoin(axes, "\n"),
                       .plan_lane = 0};
  ASSIGN_OR_RETURN(
      auto borrowed,
      BorrowSameLanes(spec_.world.get(), spec_.world_rank,
                      absl::StrCat("recording ", spec_.instance, " lanes"),
                      {&key, 1}, spec_.launch_timeout_ns));
  lane_ = std::move(borrowed.front());
  lanes_.assign(spec_.groups.size(), lane_);
  ASSIGN_OR_RETURN(stream_, device_->Adopt(lane_->stream()->handle().native));
  ASSIGN_OR_RETURN(done_, device_->CreateEvent(/*depth=*/1));
  return absl::OkStatus();
}

absl::Status SerialRunner::RunOnDevice(const Program& program, uint32_t index) {
  const LaunchProgram& launch = program.launches[index];
  {
    lane_->turn()->Take();
    const Turn::Given turn(lane_->turn());
    for (const StagingStep& step : StagingOf(program, launch.staging_in)) {
      stream_->Copy(step);
    }
    RETURN_IF_ERROR(LaunchOn(program, index, stream_->handle()));
    for (const StagingStep& step : StagingOf(program, launch.staging_out)) {
      stream_->Copy(step);
    }
    stream_->Record(done_.get(), ++num_enqueued_);
  }
  return AwaitDevice(communicators_.comms()[launch.group],
                     NameOf(program, index));
}

// A launch ends by an abort, too. Its communicator says so before.
absl::Status SerialRunner::AwaitDevice(void* comm, absl::string_view what) {
  const RunningClock& clock = RunningClock::Get();
  const int64_t deadline_ns =
      DeadlineAfter(clock.NowNs(), spec_.launch_timeout_ns);
  const WaitingCall waiting(spec_.world_rank, "waits for ", what);
  BackendRank::Turn turn(communicators_.rank());
  while (true) {
    const bool is_done = done_->IsComplete(num_enqueued_);
    const commsched_status_t code =
        backend_->comm_status == nullptr
            ? COMMSCHED_OK
            : backend_->comm_status(comm, message_.Begin(),
                                    PluginMessage::size());
    if (code != COMMSCHED_OK) {
      return WithContext(
          BackendFailure(*backend_, "comm_status", code, message_), what);
    }
    if (device_->failed()) return WithContext(device_->status(), what);
    if (is_done) return absl::OkStatus();
    if (clock.NowNs() >= deadline_ns) return TooLate(what);
    turn.Sleep(SystemClock::Get().NowNs() + kDeviceLookNs);
  }
}

void SerialRunner::Abort(const absl::Status& status, bool others_know) {
  {
    MutexLock lock(&mu_);
    if (!gave_up_.ok()) return;
    gave_up_ = status;
    for (size_t group = 0; !others_know && group < spec_.groups.size();
         ++group) {
      DeclineLocked(group);
    }
  }
  communicators_.Abort(absl::Status(
      status.code(),
      absl::StrCat("rank ", spec_.world_rank, ": ", status.message())));
}

}  // namespace commsched
