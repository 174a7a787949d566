#include "exec/issue_state.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "exec/staging.h"

namespace commsched {
namespace {

InflightWindow::Limits LimitsOf(const PlanOptions& options) {
  return {.max_launches = options.max_launches_in_flight,
          .max_bytes = options.max_bytes_in_flight};
}

std::vector<Event*> LastOfLanes(const Program& program) {
  std::map<uint32_t, Event*> by_lane;
  for (const LaunchProgram& launch : program.launches) {
    by_lane[launch.lane] = launch.event;
  }
  std::vector<Event*> events;
  for (const auto& [lane, event] : by_lane) events.push_back(event);
  return events;
}

}  // namespace

IssueState::IssueState(const IssuerSpec& s)
    : spec(s),
      program(*s.program),
      launches_per_step(static_cast<uint32_t>(program.launches.size())),
      running(s.instruments.clock == &SystemClock::Get() ? &RunningClock::Get()
                                                         : nullptr),
      instruments(program, s.codec, s.instruments),
      window(LimitsOf(program.plan->options)),
      completed(program.launches.size()),
      cpu_ns(program.launches.size()) {
  if (program.enqueue) last_of_lanes = LastOfLanes(program);
}

// ---- Failure ----

void IssueState::Fail(absl::Status status) {
  if (!spec.failure->Set(status)) return;
  instruments.Failed(status);
  Log(LogLevel::kInfo, "rank ", spec.world_rank,
      ": the session fails: ", status.message());
  // What the other ranks read names this one.
  spec.abort(absl::Status(status.code(), absl::StrCat("rank ", spec.world_rank,
                                                      ": ", status.message())));
  // Those of compute ops are not: whoever waits for one does so behind its
  // `after`, so it completes, and workers keep the order of what they write.
  for (const LaunchProgram& launch : program.launches) {
    if (launch.event != nullptr) launch.event->Poison();
  }
  if (spec.replays != nullptr) spec.replays->Poison();
  retired.AdvanceTo(WaitableCounter::kEnd);
  spec.rank->parker()->Unpark();
}

absl::Status IssueState::LaunchError(uint32_t launch, uint64_t step,
                                     const absl::Status& error) const {
  return absl::Status(
      error.code(),
      absl::StrCat("launch ", program.LaunchName(launch), " of step ",
                   program.first_step + step, ": ", error.message()));
}

absl::Status IssueState::BackendError(const char* call, commsched_status_t code,
                                      uint32_t launch, uint64_t step,
                                      const PluginMessage& message) const {
  return LaunchError(launch, step,
                     BackendFailure(*spec.backend, call, code, message));
}

void IssueState::CheckCommunicators() {
  if (spec.backend->comm_status == nullptr) return;
  PluginMessage message;  // Perhaps beside a launch.
  for (void* comm : spec.comms) {
    const commsched_status_t code =
        spec.backend->comm_status(comm, message.Begin(), PluginMessage::size());
    if (code == COMMSCHED_OK) continue;
    Fail(BackendFailure(*spec.backend, "comm_status", code, message));
    return;
  }
}

Watchdog::Spec IssueState::ForWatchdog() const {
  return {.program = spec.program,
          .backend = spec.backend,
          .group_ranks = spec.group_ranks,
          .world_rank = spec.world_rank,
          .timeout_ns = spec.instruments.launch_timeout_ns};
}

// ---- A launch ----

bool IssueState::BindLate(uint32_t launch, uint64_t step) {
  absl::Status bound = spec.late->Apply(launch, step + 1);
  if (bound.ok()) return true;
  Fail(std::move(bound));
  return false;
}

const ProgramWait* IssueState::FirstWait(const LaunchProgram& launch,
                                         uint64_t step) const {
  const ProgramWait* wait = program.waits.data() + launch.waits.begin;
  for (uint32_t i = 0; i < launch.waits.count; ++i, ++wait) {
    if (!wait->event->IsComplete(step + 1 - wait->distance)) return wait;
  }
  return nullptr;
}

void IssueState::Stage(Span32 span, uint32_t launch) {
  const int64_t begin_ns = ThreadCpuNs();
  RunStaging({program.staging.data() + span.begin, span.count});
  ChargeCpu(launch, ThreadCpuNs() - begin_ns);
}

void IssueState::Code(Span32 span, uint32_t launch, bool encode) {
  const int64_t begin_ns = ThreadCpuNs();
  const absl::Span<const CodedStep> steps(program.coded.data() + span.begin,
                                          span.count);
  if (encode) {
    spec.codec->Encode(steps, launch);
  } else {
    spec.codec->Decode(steps);
  }
  ChargeCpu(launch, ThreadCpuNs() - begin_ns);
}

}  // namespace commsched
