#include "exec/issuer.h"

#include <algorithm>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "device/host_device.h"

namespace commsched {
namespace {

// Counters have one writer at a time: a load and a store, not a locked add.
void Bump(std::atomic<int64_t>& counter, int64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by,
                std::memory_order_relaxed);
}

InflightWindow::Limits LimitsOf(const PlanOptions& options) {
  return {.max_launches = options.max_launches_in_flight,
          .max_bytes = options.max_bytes_in_flight};
}

}  // namespace

uint32_t Issuer::RequestsFor(const Plan& plan) {
  const uint32_t cap = plan.options.max_launches_in_flight;
  return cap == 0 ? kMaxInFlight : std::min(cap, kMaxInFlight);
}

Issuer::Issuer(const IssuerSpec& spec)
    : spec_(spec),
      running_(spec.clock == &SystemClock::Get() ? &RunningClock::Get()
                                                 : nullptr),
      program_(*spec.program),
      launches_per_step_(static_cast<uint32_t>(program_.launches.size())),
      requests_(RequestsFor(*program_.plan)),
      writer_(spec.recorder),
      comm_issued_(spec.comms.size()),
      watchdog_({.program = spec.program,
                 .backend = spec.backend,
                 .group_ranks = spec.group_ranks,
                 .world_rank = spec.world_rank,
                 .timeout_ns = spec.launch_timeout_ns}),
      window_(LimitsOf(program_.plan->options)),
      holds_(launches_per_step_,
             spec.recorder != nullptr && !program_.issue_inline),
      completed_(program_.launches.size()),
      cpu_ns_(program_.launches.size()) {
  in_flight_.reserve(requests_);
}

Issuer::~Issuer() {
  if (attached_) spec_.rank->Detach(this);
  TellFailed();
}

void Issuer::Start() {
  if (program_.issue_inline || spec_.manual || launches_per_step_ == 0) return;
  attached_ = true;
  spec_.rank->Attach(this, spec_.by_caller ? BackendRank::By::kCaller
                                           : BackendRank::By::kThread);
}

int64_t Issuer::MakeDue(uint64_t number, int64_t now_ns) {
  Note(FlightEvent::kDue, number);
  if (program_.issue_inline) {
    const int64_t end = IssueInline(number, now_ns);
    due_.store(number, std::memory_order_release);
    return end;
  }
  due_.store(number, std::memory_order_release);
  if (ABSL_PREDICT_FALSE(spec_.by_caller)) {
    spec_.rank->Drive();
  } else {
    spec_.rank->parker()->Unpark();
  }
  return 0;
}

bool Issuer::Pump() {
  if (holds_.stalled()) {
    holds_.EndStall(spec_.clock->NowNs());
    if (spec_.recorder != nullptr) writer_.CatchUp();
  }
  if (spec_.failure->failed()) {
    TellFailed();
    return false;
  }
  bool progressed = PollInFlight();
  while (!spec_.failure->failed() && TryIssue()) progressed = true;
  if (progressed) return true;
  CheckDeadlines();
  CheckCommunicators();
  if (!spec_.failure->failed()) {
    holds_.BeginStall(stall_cause_, spec_.clock->NowNs());
  }
  return false;
}

// TryIssue, poll and retire in one, and nothing to wait for: what the launches
// need is complete before they are due, and each is when launch() returns.
int64_t Issuer::IssueInline(uint64_t number, int64_t now_ns) {
  uint64_t step = issued_ / launches_per_step_;
  uint32_t index = static_cast<uint32_t>(issued_ % launches_per_step_);
  if (index == 0 && spec_.recorder != nullptr) writer_.CatchUp();
  while (issued_ < number && !spec_.failure->failed()) {
    const LaunchProgram& launch = program_.launches[index];
    if (launch.late.count != 0 && !BindLate(index, step)) break;
    if (now_ns == 0 && times_launches()) now_ns = spec_.clock->NowNs();
    const int64_t begin_ns = now_ns;
    Note(FlightEvent::kIssue, issued_);
    window_.Pass(launch.payload_bytes);
    const bool drops = HasDrops(index, step);
    const commsched_status_t code = spec_.backend->launch(
        launch.comm, Prepare(index, step, drops), 0, commsched_stream_caller(),
        message_.Begin(), PluginMessage::size());
    if (ABSL_PREDICT_FALSE(code != COMMSCHED_OK)) {
      Fail(BackendError("launch", code, issued_));
      break;
    }
    if (spec_.observers != nullptr) {
      spec_.observers->Issued(index, step, begin_ns);
    }
    Finish(launch, index, drops);
    if (spec_.recorder != nullptr) {
      now_ns = spec_.clock->NowNs();
      Record record = RecordOf(index, step, begin_ns, now_ns);
      record.value = launch.payload_bytes;
      writer_.Add(record);
    }
    if (spec_.observers != nullptr) {
      TellRetired(index, step, begin_ns);
      now_ns = 0;  // their time is no launch's
    }
    MarkComplete(index, step);
    ++issued_;
    if (++index == launches_per_step_) {
      index = 0;
      ++step;
    }
  }
  return now_ns;
}

bool Issuer::TryIssue() {
  if (issued_ >= due()) {
    stall_cause_ = StallCause::kDue;
    return false;
  }
  const uint32_t index = static_cast<uint32_t>(issued_ % launches_per_step_);
  const LaunchProgram& launch = program_.launches[index];
  const uint64_t step = issued_ / launches_per_step_;
  const bool drops = HasDrops(index, step);
  if (drops && spec_.drops->busy()) {
    stall_cause_ = StallCause::kWait;
    return false;
  }
  if (!MayIssue(launch, step)) return false;
  if (launch.late.count != 0 && !BindLate(index, step)) return false;
  InFlight entry{.number = issued_,
                 .launch = index,
                 .drops = drops,
                 .begin_ns = times_launches() ? spec_.clock->NowNs() : 0,
                 .window_bytes = window_.bytes()};
  entry.request =
      static_cast<uint32_t>(comm_issued_[launch.group]++ % requests_);
  if (spec_.recorder != nullptr) {
    entry.hold = holds_.Issued(index, step, entry.begin_ns);
  }
  if (LaneIsEmpty(launch.lane)) watchdog_.Restart(launch.lane);
  const commsched_launch_t* call = Prepare(index, step, drops);
  Note(FlightEvent::kIssue, issued_);
  const commsched_status_t code = spec_.backend->launch(
      launch.comm, call, entry.request, commsched_stream_caller(),
      message_.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) {
    Fail(BackendError("launch", code, issued_));
    return false;
  }
  in_flight_.push_back(entry);
  ++issued_;
  if (spec_.observers != nullptr) {
    spec_.observers->Issued(index, step, entry.begin_ns);
  }
  return true;
}

bool Issuer::BindLate(uint32_t launch, uint64_t step) {
  absl::Status bound = spec_.late->Apply(launch, step + 1);
  if (bound.ok()) return true;
  Fail(std::move(bound));
  return false;
}

// The plan's waits keep the window's caps as well (I3); those of its waits
// count as the window's.
bool Issuer::MayIssue(const LaunchProgram& launch, uint64_t step) {
  if (in_flight_.size() >= requests_) {
    stall_cause_ = StallCause::kRequests;
    return false;
  }
  if (const ProgramWait* wait = FirstWait(launch, step)) {
    stall_cause_ = wait->cause == WaitCause::kWindow ? StallCause::kWindow
                                                     : StallCause::kWait;
    return false;
  }
  stall_cause_ = StallCause::kWindow;
  return window_.TryAdmit(launch.payload_bytes);
}

const ProgramWait* Issuer::FirstWait(const LaunchProgram& launch,
                                     uint64_t step) const {
  const ProgramWait* wait = program_.waits.data() + launch.waits.begin;
  for (uint32_t i = 0; i < launch.waits.count; ++i, ++wait) {
    if (!wait->event->IsComplete(step + 1 - wait->distance)) return wait;
  }
  return nullptr;
}

bool Issuer::PollInFlight() {
  bool any_done = false;
  for (InFlight& entry : in_flight_) {
    if (entry.done) continue;
    absl::Status status = Poll(&entry);
    if (!status.ok()) {
      Fail(std::move(status));
      return false;
    }
    any_done |= entry.done;
  }
  if (any_done) RetireInOrder();
  return any_done;
}

absl::Status Issuer::Poll(InFlight* entry) {
  const LaunchProgram& launch = program_.launches[entry->launch];
  if ((spec_.backend->capabilities & COMMSCHED_BACKEND_INLINE) != 0) {
    entry->done = true;
    return absl::OkStatus();
  }
  commsched_launch_result_t result = {};
  const commsched_status_t code =
      spec_.backend->poll(launch.comm, entry->request, &result,
                          message_.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) return BackendError("poll", code, entry->number);
  if (ABSL_PREDICT_FALSE(result.done > 1)) {
    return LaunchError(entry->number,
                       CheckLaunchResult(*spec_.backend, result));
  }
  entry->wake_at_ns = result.wake_at_ns;
  if (result.done == 0) return absl::OkStatus();
  if (spec_.flight != nullptr) {
    spec_.flight->Add(FlightEvent::kStart, entry->number, result.started_ns);
    Note(FlightEvent::kComplete, entry->number);
  }
  entry->done = true;
  entry->hold.started_ns = result.started_ns;
  Bump(cpu_ns_[entry->launch], result.cpu_ns);
  return absl::OkStatus();
}

// Retires what is done, except behind an older launch of the same lane.
void Issuer::RetireInOrder() {
  uint64_t held_lanes = 0;
  size_t kept = 0;
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    const uint64_t lane =
        uint64_t{1} << (program_.launches[in_flight_[i].launch].lane % 64);
    if (in_flight_[i].done && (held_lanes & lane) == 0) {
      Retire(in_flight_[i]);
      continue;
    }
    held_lanes |= lane;
    in_flight_[kept++] = in_flight_[i];
  }
  in_flight_.resize(kept);
}

void Issuer::Finish(const LaunchProgram& launch, uint32_t index, bool drops) {
  if (ABSL_PREDICT_FALSE(drops)) {
    spec_.drops->End();
  } else if (launch.staging_out.count != 0) {
    RunStagingOf(launch.staging_out, index);
  } else if (launch.coded_out.count != 0) {
    RunCodedOf(launch.coded_out, index, /*encode=*/false);
  }
}

Record Issuer::RecordOf(uint32_t launch, uint64_t step, int64_t begin,
                        int64_t end) const {
  Record record;
  record.begin_ns = begin;
  record.end_ns = end;
  record.step = program_.first_step + step;
  record.index = launch;
  record.kind = RecordKind::kLaunch;
  record.lane = static_cast<uint8_t>(program_.launches[launch].lane);
  return record;
}

void Issuer::Retire(const InFlight& entry) {
  const LaunchProgram& launch = program_.launches[entry.launch];
  Finish(launch, entry.launch, entry.drops);
  absl::Status released = window_.Release(launch.payload_bytes);
  if (!released.ok()) {
    Fail(std::move(released));
    return;
  }
  const uint64_t step = entry.number / launches_per_step_;
  watchdog_.Restart(launch.lane);
  if (spec_.recorder != nullptr) {
    Record record =
        RecordOf(entry.launch, step, entry.begin_ns, spec_.clock->NowNs());
    record.value = entry.window_bytes;
    writer_.Add(record);
    writer_.Add(HoldRecord(entry.hold, record.step, entry.launch, record.lane));
  }
  if (spec_.observers != nullptr) {
    TellRetired(entry.launch, step, entry.begin_ns);
  }
  MarkComplete(entry.launch, step);
  if (launch.event != nullptr) CallerStream()->Record(launch.event, step + 1);
}

void Issuer::TellRetired(uint32_t launch, uint64_t step, int64_t begin_ns) {
  CodecError error;
  const bool coded = program_.plan->launches[launch].coded;
  if (coded) error = spec_.codec->ErrorOf(launch);
  spec_.observers->Retired(launch, step, begin_ns, spec_.clock->NowNs(),
                           coded ? &error : nullptr);
}

void Issuer::TellFailed() {
  if (spec_.observers == nullptr || !spec_.failure->failed()) return;
  if (std::exchange(told_failed_, true)) return;
  spec_.observers->Failed(spec_.failure->status(), spec_.clock->NowNs());
}

Issuer::Totals Issuer::totals() const {
  Totals totals;
  for (size_t i = 0; i < completed_.size(); ++i) {
    const uint64_t times = completed_[i].load(std::memory_order_relaxed);
    totals.launches += times;
    totals.collectives += times * program_.launches[i].num_collectives;
    totals.bytes += times * program_.launches[i].payload_bytes;
  }
  return totals;
}

const commsched_launch_t* Issuer::Prepare(uint32_t launch, uint64_t step,
                                          bool drops) {
  LaunchProgram& program = spec_.program->launches[launch];
  program.call.step = program_.first_step + step;
  if (ABSL_PREDICT_FALSE(drops)) return spec_.drops->Begin(launch, step + 1);
  if (program.staging_in.count != 0) RunStagingOf(program.staging_in, launch);
  if (program.coded_in.count != 0) {
    RunCodedOf(program.coded_in, launch, /*encode=*/true);
  }
  return &program.call;
}

void Issuer::RunStagingOf(Span32 span, uint32_t launch) {
  const int64_t begin_ns = ThreadCpuNs();
  RunStaging({program_.staging.data() + span.begin, span.count});
  Bump(cpu_ns_[launch], ThreadCpuNs() - begin_ns);
}

void Issuer::RunCodedOf(Span32 span, uint32_t launch, bool encode) {
  const int64_t begin_ns = ThreadCpuNs();
  const absl::Span<const CodedStep> steps(program_.coded.data() + span.begin,
                                          span.count);
  if (encode) {
    spec_.codec->Encode(steps, launch);
  } else {
    spec_.codec->Decode(steps);
  }
  Bump(cpu_ns_[launch], ThreadCpuNs() - begin_ns);
}

bool Issuer::LaneIsEmpty(uint32_t lane) const {
  return std::none_of(in_flight_.begin(), in_flight_.end(),
                      [&](const InFlight& entry) {
                        return program_.launches[entry.launch].lane == lane;
                      });
}

int64_t Issuer::NextWakeNs() const {
  if (spec_.failure->failed()) return kNoDeadlineNs;
  int64_t wake_ns = kNoDeadlineNs;
  int64_t deadline_ns = kNoDeadlineNs;
  for (const InFlight& entry : in_flight_) {
    const uint32_t lane = program_.launches[entry.launch].lane;
    deadline_ns = std::min(deadline_ns, watchdog_.DeadlineNs(lane));
    if (!entry.done && entry.wake_at_ns != 0) {
      wake_ns = std::min(wake_ns, entry.wake_at_ns);
    }
  }
  if (running_ != nullptr) deadline_ns = running_->SleepUntilNs(deadline_ns);
  return std::min(wake_ns, deadline_ns);
}

// In issue order, so that of a lane the oldest launch is named.
void Issuer::CheckDeadlines() {
  if (in_flight_.empty()) return;
  const int64_t now_ns =
      running_ == nullptr ? spec_.clock->NowNs() : running_->NowNs();
  watchdog_.Look(now_ns);
  for (const InFlight& entry : in_flight_) {
    const uint32_t lane = program_.launches[entry.launch].lane;
    if (now_ns < watchdog_.DeadlineNs(lane)) continue;
    Fail(watchdog_.Expired(entry.launch, entry.number / launches_per_step_,
                           entry.request, now_ns));
    return;
  }
}

// With nothing in flight nothing is polled; another rank's failure shows here.
void Issuer::CheckCommunicators() {
  if (!in_flight_.empty() || spec_.backend->comm_status == nullptr) return;
  for (void* comm : spec_.comms) {
    const commsched_status_t code = spec_.backend->comm_status(
        comm, message_.Begin(), PluginMessage::size());
    if (code == COMMSCHED_OK) continue;
    Fail(BackendFailure(*spec_.backend, "comm_status", code, message_));
    return;
  }
}

void Issuer::Fail(absl::Status status) {
  if (!spec_.failure->Set(status)) return;
  if (spec_.flight != nullptr) {
    spec_.flight->Fail(status.message(), spec_.clock->NowNs());
  }
  // What the other ranks read names this one.
  spec_.abort(absl::Status(
      status.code(),
      absl::StrCat("rank ", spec_.world_rank, ": ", status.message())));
  // Those of compute ops are not: whoever waits for one does so behind its
  // `after`, so it completes, and workers keep the order of what they write.
  for (const LaunchProgram& launch : program_.launches) {
    if (launch.event != nullptr) launch.event->Poison();
  }
  spec_.rank->parker()->Unpark();
}

absl::Status Issuer::LaunchError(uint64_t number,
                                 const absl::Status& error) const {
  const uint32_t index = static_cast<uint32_t>(number % launches_per_step_);
  return absl::Status(
      error.code(),
      absl::StrCat("launch ", program_.LaunchName(index), " of step ",
                   program_.first_step + number / launches_per_step_, ": ",
                   error.message()));
}

absl::Status Issuer::BackendError(const char* call, commsched_status_t code,
                                  uint64_t number) const {
  return LaunchError(number,
                     BackendFailure(*spec_.backend, call, code, message_));
}

}  // namespace commsched
