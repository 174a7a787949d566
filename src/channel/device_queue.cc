#include "channel/device_queue.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"

namespace commsched {
namespace {

// More in a batch take an allocation.
constexpr size_t kInlineOps = 16;
// Launches of a line that the monitor looks at in one round.
constexpr size_t kLooked = 32;
// How long the monitor sleeps between two looks: if somebody is told when
// requests finish or waits for room, and if only deadlines wait for it.
constexpr int64_t kTellingLookNs = int64_t{100} * 1000;
constexpr int64_t kLookNs = int64_t{500} * 1000;
// How long it goes on looking when there is nothing.
constexpr int64_t kLingerNs = int64_t{50} * 1000 * 1000;
// How often ranks say in which order they launch, beside each so many launches.
constexpr int64_t kSayNs = int64_t{1} * 1000 * 1000 * 1000;
// How long a host that waits looks without a break, and the breaks then.
constexpr int64_t kSpinNs = int64_t{50} * 1000;
constexpr std::chrono::microseconds kNap{50};

// How long who submits waits for a thread that finishes launches.
constexpr int64_t kOthersNs = int64_t{1} * 1000 * 1000;

// Looks again and again until `done` says so, or `deadline_ns`.
template <typename DoneOrNot>
void AwaitUntil(int64_t deadline_ns, const DoneOrNot& done) {
  int64_t nap_from_ns = 0;
  while (!done()) {
    const int64_t now_ns = SystemClock::Get().NowNs();
    if (now_ns >= deadline_ns) return;
    if (nap_from_ns == 0) nap_from_ns = now_ns + kSpinNs;
    if (now_ns < nap_from_ns) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

bool IsReceive(const DeviceLaunch& launch) {
  return launch.launch.kind == COMMSCHED_RECV;
}

}  // namespace

DeviceQueue::DeviceQueue(const DeviceQueueSpec& spec)
    : spec_(spec),
      channel_(*spec.channel),
      group_({.backend = spec.backend,
              .axis = channel_.group.axis,
              .rank = channel_.group.rank,
              .size = static_cast<int>(channel_.group.ranks.size()),
              .max_members = spec.max_members}),
      pairs_(channel_.group.ranks.size()),
      watchdog_({.backend = spec.backend,
                 .num_lanes = 2 + static_cast<uint32_t>(group_.size),
                 .world_rank = channel_.world_rank,
                 .timeout_ns = channel_.launch_timeout_ns}) {
  collectives_.road = spec.collectives;
  collectives_.lane = 0;
  collectives_.ranks = channel_.group.ranks;
  collectives_.capacity = channel_.max_in_flight;
  collectives_.max_bytes = channel_.max_bytes_in_flight;
  collectives_.is_connected = true;
  batches_.road.comm = spec.batches;
  batches_.lane = 1;
  batches_.ranks = channel_.group.ranks;
  batches_.capacity = channel_.max_transfers;
  batches_.is_connected = true;
  lines_.reserve(2 + channel_.group.ranks.size());
}

DeviceQueue::~DeviceQueue() {
  if (guarded_ != 0) MonitorGuard::Process().Unwatch(guarded_);
}

absl::Status DeviceQueue::Prepare() {
  ASSIGN_OR_RETURN(batch_stream_, spec_.device->CreateSideStream());
  batches_.road.stream = batch_stream_.get();
  for (uint32_t i = 0; i < channel_.max_in_flight; ++i) {
    ASSIGN_OR_RETURN(DeviceLaunch* const made, Make());
    GiveBack(made);
  }
  guarded_ = MonitorGuard::Process().Watch(
      &round_, channel_.launch_timeout_ns,
      [this](const absl::Status& why) { Fail(why); });
  return absl::OkStatus();
}

// ---- Submitting ----

absl::StatusOr<DeviceLaunch*> DeviceQueue::Make() {
  auto made = std::make_unique<DeviceLaunch>();
  ASSIGN_OR_RETURN(made->input, spec_.device->CreateEvent(1));
  ASSIGN_OR_RETURN(made->done, spec_.device->CreateEvent(1));
  made->launch.members.reserve(2);
  made->launch.counts.reserve(2 * channel_.group.ranks.size());
  MutexLock lock(&mu_);
  launches_.push_back(std::move(made));
  return launches_.back().get();
}

// Who submits does not wait until the monitor looks: what has ended is given
// back now, by this thread or by the one that is at it.
absl::StatusOr<DeviceLaunch*> DeviceQueue::Take(DeviceLine* line) {
  DeviceLaunch* taken = TakeFree();
  if (taken != nullptr) return taken;
  (void)RetireEnded(line, SystemClock::Get().NowNs() + kOthersNs);
  taken = TakeFree();
  if (taken != nullptr) return taken;
  return Make();
}

DeviceLaunch* DeviceQueue::TakeFree() {
  MutexLock lock(&mu_);
  return free_.first() == nullptr ? nullptr : free_.Pop();
}

void DeviceQueue::GiveBack(DeviceLaunch* launch) {
  MutexLock lock(&mu_);
  free_.Append(launch);
}

absl::Status DeviceQueue::CheckStream(Stream* stream) const {
  if (stream->is_caller()) return absl::OkStatus();
  if (!stream->is_device()) {
    return absl::InvalidArgumentError(
        absl::StrCat("channel: the stream is a HOST stream, but backend '",
                     spec_.backend->name, "' works on ", spec_.device->name()));
  }
  ASSIGN_OR_RETURN(const bool is_capturing, stream->IsCapturing());
  if (!is_capturing) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "channel: the stream is being captured into a graph, which a channel has "
      "no part in");
}

absl::Status DeviceQueue::CheckMemory(const ChannelLaunch& launch) const {
  const auto check = [&](const char* side, const void* address,
                         uint64_t bytes) -> absl::Status {
    if (bytes == 0) return absl::OkStatus();
    const absl::Status here = spec_.device->CheckHere(address);
    if (here.ok()) return here;
    return absl::Status(
        here.code(), absl::StrCat(ChannelKindName(launch.kind), ": its ", side,
                                  " ", here.message()));
  };
  for (const commsched_member_t& member : launch.members) {
    ASSIGN_OR_RETURN(const Extents extents,
                     ExtentsOf(launch.call, member, group_.rank, group_.size));
    RETURN_IF_ERROR(check("input", member.input, extents.input_bytes));
    RETURN_IF_ERROR(check("output", member.output, extents.output_bytes));
  }
  RETURN_IF_ERROR(check("input", launch.own_input, launch.own_bytes));
  return check("output", launch.own_output, launch.own_bytes);
}

absl::StatusOr<uint64_t> DeviceQueue::Submit(const ChannelOp& op,
                                             Stream* stream) {
  if (failed()) return status();
  RETURN_IF_ERROR(CheckStream(stream));
  ASSIGN_OR_RETURN(DeviceLaunch* const launch, Take(&collectives_));
  absl::Cleanup give_back = [&] { GiveBack(launch); };
  DeviceLine* line = &collectives_;
  if (IsTransfer(op)) {
    const ChannelOp* const ops[] = {&op};
    RETURN_IF_ERROR(BuildTransfers(group_, ops, &launch->launch));
    RETURN_IF_ERROR(CheckMemory(launch->launch));
    ASSIGN_OR_RETURN(line, PairWith(op.peer));
    launch->launch.members.front().peer = spec_.pairs->PeerRankIn(op.peer);
  } else {
    RETURN_IF_ERROR(BuildLaunch(group_, op, &launch->launch));
    RETURN_IF_ERROR(CheckMemory(launch->launch));
  }
  line->submits.Take();
  const Turn::Given given(&line->submits);
  ASSIGN_OR_RETURN(const uint64_t request,
                   Enqueue(line, launch, op.user, stream));
  std::move(give_back).Cancel();
  return request;
}

// All in one launch, on a communicator of all ranks.
absl::StatusOr<uint64_t> DeviceQueue::SubmitBatch(
    absl::Span<const ChannelOp> ops, Stream* stream) {
  if (failed()) return status();
  RETURN_IF_ERROR(CheckStream(stream));
  if (ops.empty()) {
    return absl::InvalidArgumentError("a batch of no sends and receives");
  }
  ASSIGN_OR_RETURN(DeviceLaunch* const launch, Take(&batches_));
  absl::Cleanup give_back = [&] { GiveBack(launch); };
  absl::InlinedVector<const ChannelOp*, kInlineOps> all;
  for (const ChannelOp& op : ops) all.push_back(&op);
  RETURN_IF_ERROR(BuildTransfers(group_, all, &launch->launch));
  RETURN_IF_ERROR(CheckMemory(launch->launch));
  batches_.submits.Take();
  const Turn::Given given(&batches_.submits);
  ASSIGN_OR_RETURN(const uint64_t request,
                   Enqueue(&batches_, launch, ops.front().user, stream));
  std::move(give_back).Cancel();
  return request;
}

absl::StatusOr<DeviceLine*> DeviceQueue::PairWith(int peer) {
  const auto index = static_cast<size_t>(peer);
  {
    MutexLock lock(&mu_);
    if (pairs_[index] != nullptr) return pairs_[index].get();
  }
  MutexLock making(&pairs_mu_);
  {
    MutexLock lock(&mu_);
    if (pairs_[index] != nullptr) return pairs_[index].get();
  }
  auto line = std::make_unique<DeviceLine>();
  ASSIGN_OR_RETURN(line->road, spec_.pairs->Make(peer));
  line->lane = 2 + static_cast<uint32_t>(peer);
  line->ranks = {channel_.world_rank, channel_.group.ranks[index]};
  line->capacity = channel_.max_transfers;
  MutexLock lock(&mu_);
  pairs_[index] = std::move(line);
  return pairs_[index].get();
}

absl::StatusOr<uint64_t> DeviceQueue::Enqueue(DeviceLine* line,
                                              DeviceLaunch* launch,
                                              uint64_t user, Stream* stream) {
  if (channel_.completions != nullptr) {
    RETURN_IF_ERROR(channel_.completions->Reserve());
  }
  {
    MutexLock lock(&mu_);
    if (is_over_) {
      if (channel_.completions != nullptr) channel_.completions->GiveBack();
      return status();
    }
    launch->number = requests_.Add(launch);
    launch->user = user;
    ++launch->generation;
    if (line == &collectives_) launch->launch.number = ++num_collectives_;
  }
  const uint64_t number = launch->number;
  Note(FlightEvent::kDue, *launch);
  launch->has_input = !stream->is_caller();
  if (launch->has_input) {
    stream->Record(launch->input.get(), launch->generation);
  }
  const bool has_room =
      Admit(line, launch, /*is_first=*/false) ||
      (RetireEnded(line) && Admit(line, launch, /*is_first=*/false));
  if (!has_room) {
    MutexLock lock(&mu_);
    line->queued.Append(launch);
    ++num_queued_;
  }
  // Before the call, which may wait for other ranks.
  WakeMonitor();
  if (has_room) Post(line, launch);
  return number;
}

bool DeviceQueue::Admit(DeviceLine* line, DeviceLaunch* launch, bool is_first) {
  if (!line->is_connected.load(std::memory_order_acquire)) return false;
  const uint64_t bytes = launch->launch.bytes;
  MutexLock lock(&mu_);
  if (is_over_ || line->num_posted == line->capacity) return false;
  if (!is_first && line->queued.first() != nullptr) return false;
  if (line->max_bytes != 0 && line->num_posted != 0 &&
      line->bytes_posted + bytes > line->max_bytes) {
    return false;
  }
  if (is_first) {
    (void)line->queued.Pop();
    --num_queued_;
  }
  // Before the backend has it, so that a call which does not return has a
  // deadline, too.
  line->posted.Append(launch);
  ++line->num_posted;
  line->bytes_posted += bytes;
  return true;
}

void DeviceQueue::Post(DeviceLine* line, DeviceLaunch* launch) {
  Note(FlightEvent::kIssue, *launch);
  if (spec_.trace != nullptr) {
    launch->launch.posted_ns = SystemClock::Get().NowNs();
  }
  const absl::Status posted = PostInTurn(line->road, launch);
  if (!posted.ok()) Fail(ErrorOf(launch->launch, posted));
}

absl::Status DeviceQueue::PostInTurn(const DeviceRoad& road,
                                     DeviceLaunch* launch) {
  Turn* const turn = road.turn;
  if (turn != nullptr && !turn->TryTake()) {
    if (turn->IsKeptHere()) {
      return absl::FailedPreconditionError(
          "this thread launches the graph of a session, which has the lane; "
          "its replay_end() comes first");
    }
    (void)turn->TakeBy(kNoDeadlineNs);
  }
  const absl::Cleanup give = [turn] {
    if (turn != nullptr) (void)turn->Give();
  };
  if (road.queue != nullptr) road.queue->Note();
  if (launch->has_input) {
    road.stream->Wait(launch->input.get(), launch->generation);
  }
  const ChannelLaunch& of = launch->launch;
  if (of.own_bytes != 0 && of.own_input != of.own_output) {
    RowCopy copy;
    copy.to = of.own_output;
    copy.from = of.own_input;
    copy.row_bytes = of.own_bytes;
    road.stream->Copy(copy);
  }
  if (spec_.device->failed()) return spec_.device->status();
  // Who sends and receives nothing has nothing to launch.
  const bool is_local =
      of.call.kind == COMMSCHED_SEND && of.call.num_members == 0;
  if (!is_local) {
    launch->launch.call.step = of.number;
    PluginMessage message;
    const commsched_status_t code = spec_.backend->launch(
        road.comm, &of.call, /*request=*/0, road.stream->handle(),
        message.Begin(), PluginMessage::size());
    if (code != COMMSCHED_OK) {
      return BackendFailure(*spec_.backend, "launch", code, message);
    }
  }
  road.stream->Record(launch->done.get(), launch->generation);
  if (spec_.device->failed()) return spec_.device->status();
  // From here on it may have finished, and be another request.
  launch->enqueued.store(launch->generation, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status DeviceQueue::ErrorOf(const ChannelLaunch& launch,
                                  const absl::Status& failure) const {
  return absl::Status(failure.code(),
                      absl::StrCat("launch ", LaunchText(group_, launch), ": ",
                                   failure.message()));
}

void DeviceQueue::Note(FlightEvent event, const DeviceLaunch& launch) {
  if (spec_.flight == nullptr) return;
  const uint64_t number =
      event == FlightEvent::kDue ? launch.number : launch.number - 1;
  spec_.flight->Add(event, number, SystemClock::Get().NowNs());
}

void DeviceQueue::WakeMonitor() {
  if (!idle_.load(std::memory_order_acquire)) return;
  spec_.rank->parker()->Unpark();
}

// ---- Waiting ----

absl::StatusOr<LaunchQueue::Done> DeviceQueue::Find(uint64_t request) {
  // Acquire: what the request wrote is seen.
  const uint64_t oldest = oldest_.load(std::memory_order_acquire);
  if (request != 0 && request < oldest) return Done{};
  MutexLock lock(&mu_);
  if (request == 0 || request >= requests_.next()) {
    return absl::OutOfRangeError(
        requests_.next() == 1
            ? absl::StrCat("request ", request,
                           ": nothing has been submitted to the channel")
            : absl::StrCat("request ", request,
                           " is not one of the channel's, 1..",
                           requests_.next() - 1));
  }
  DeviceLaunch* const found = requests_.Find(request);
  if (found == nullptr) return Done{};
  return Done{found->done.get(), found->generation, &found->enqueued};
}

LaunchQueue::Done DeviceQueue::FindOldest() const {
  MutexLock lock(&mu_);
  if (requests_.oldest() == requests_.next()) return {};
  DeviceLaunch* const oldest = requests_.Find(requests_.oldest());
  return {oldest->done.get(), oldest->generation, &oldest->enqueued};
}

void DeviceQueue::AwaitBy(const Done& done, int64_t deadline_ns) {
  AwaitUntil(deadline_ns, [&] {
    return failed() || done.event->IsComplete(done.generation);
  });
}

// A stream cannot wait for what has not been recorded.
absl::Status DeviceQueue::HaveWait(const Done& done, Stream* stream) {
  RETURN_IF_ERROR(CheckStream(stream));
  AwaitUntil(kNoDeadlineNs, [&] {
    return failed() ||
           done.enqueued->load(std::memory_order_acquire) >= done.generation;
  });
  if (failed()) return status();
  stream->Wait(done.event, done.generation);
  if (spec_.device->failed()) Fail(spec_.device->status());
  return status();
}

// Kernels that are aborted end, too. Their communicators say so before.
absl::Status DeviceQueue::StatusOfComplete() {
  CheckCommunicators();
  return status();
}

// What was aborted ends without having been recorded.
void DeviceQueue::AwaitRest() {
  FindLines();
  if (failed()) {
    for (DeviceLine* line : lines_) line->road.stream->Synchronize();
    return;
  }
  MutexLock lock(&mu_);
  for (const auto& launch : launches_) launch->done->AwaitRecorded();
}

// ---- The end of a request ----

void DeviceQueue::FinishLocked(DeviceLaunch* launch, absl::StatusCode code) {
  if (channel_.completions != nullptr) {
    channel_.completions->Add({.key = channel_.key,
                               .request = launch->number,
                               .user = launch->user,
                               .code = code});
  }
  requests_.Finish(launch->number);
  oldest_.store(requests_.oldest(), std::memory_order_release);
}

void DeviceQueue::Fail(const absl::Status& status) {
  if (!failure_.Set(status)) return;
  Log(LogLevel::kInfo, "rank ", channel_.world_rank, ": the channel on axis ",
      channel_.group.axis, " fails: ", status.message());
  if (spec_.flight != nullptr) {
    spec_.flight->Fail(status.message(), SystemClock::Get().NowNs());
  }
  // What the other ranks read names this one.
  spec_.abort(absl::Status(
      status.code(),
      absl::StrCat("rank ", channel_.world_rank, ": ", status.message())));
  {
    MutexLock lock(&mu_);
    is_over_ = true;
    for (uint64_t number = requests_.oldest(); number < requests_.next();
         ++number) {
      DeviceLaunch* const launch = requests_.Find(number);
      if (launch != nullptr) FinishLocked(launch, status.code());
    }
    for (const auto& launch : launches_) launch->done->Poison();
  }
  spec_.rank->parker()->Unpark();
}

LaunchQueue::Totals DeviceQueue::totals() const {
  return {.launches = num_launches_.load(std::memory_order_relaxed),
          .bytes = num_bytes_.load(std::memory_order_relaxed),
          .shapes = 0};
}

uint64_t DeviceQueue::num_queued() const {
  MutexLock lock(&mu_);
  return num_queued_;
}

// ---- The monitor ----

// On the progress thread nobody else would catch it.
bool DeviceQueue::Pump() {
  if (failed()) return false;
  round_.Enter(clock_.NowNs());
  const absl::Cleanup leave = [this] { round_.Leave(); };
  try {
    return Look();
  } catch (const std::bad_alloc&) {
    Fail(absl::ResourceExhaustedError("out of host memory"));
  }
  return false;
}

bool DeviceQueue::Look() {
  if (spec_.device->failed()) {
    Fail(spec_.device->status());
    return false;
  }
  FindLines();
  ConnectPairs();
  bool any = RetireAll();
  if (failed()) return false;
  any |= PostQueued();
  const bool is_under_way = CheckDeadlines();
  if (failed()) return false;
  DecideWhenToLook(any || is_under_way);
  return any;
}

void DeviceQueue::FindLines() {
  lines_.clear();
  lines_.push_back(&collectives_);
  lines_.push_back(&batches_);
  MutexLock lock(&mu_);
  for (const auto& pair : pairs_) {
    if (pair != nullptr) lines_.push_back(pair.get());
  }
}

void DeviceQueue::ConnectPairs() {
  for (DeviceLine* line : lines_) {
    if (line->is_connected.load(std::memory_order_relaxed)) continue;
    const absl::StatusOr<bool> connected = spec_.pairs->IsConnected(line->road);
    if (!connected.ok()) return Fail(connected.status());
    if (*connected) line->is_connected.store(true, std::memory_order_release);
  }
}

bool DeviceQueue::RetireAll() {
  bool any = false;
  for (DeviceLine* line : lines_) any |= RetireEnded(line);
  CheckCommunicators();
  return any;
}

// A launch ends by an abort, too. Its communicator says so before: so it is
// asked in between.
bool DeviceQueue::RetireEnded(DeviceLine* line, int64_t deadline_ns) {
  if (!line->ends.TryTake() &&
      (deadline_ns == 0 || !line->ends.TakeBy(deadline_ns))) {
    return false;  // Somebody is at it.
  }
  const Turn::Given given(&line->ends);
  absl::InlinedVector<DeviceLaunch*, kLooked> looked;
  {
    MutexLock lock(&mu_);
    DeviceLaunch* launch = line->posted.first();
    const size_t most = std::min<size_t>(line->num_posted, kLooked);
    for (; looked.size() < most; launch = launch->next) {
      looked.push_back(launch);
    }
  }
  size_t count = 0;
  while (count < looked.size() && HasEnded(*looked[count])) ++count;
  if (count == 0) return false;
  CheckCommunicator(line->road.comm);
  if (failed()) return false;
  Retire(line, count);
  return true;
}

void DeviceQueue::Retire(DeviceLine* line, size_t count) {
  uint64_t bytes = 0;
  MutexLock lock(&mu_);
  if (is_over_) return;
  for (size_t i = 0; i < count; ++i) {
    DeviceLaunch* const launch = line->posted.Pop();
    Note(FlightEvent::kRetire, *launch);
    if (spec_.trace != nullptr) {
      spec_.trace->Add(launch->launch, launch->number);
    }
    bytes += launch->launch.bytes;
    FinishLocked(launch, absl::StatusCode::kOk);
    free_.Append(launch);
  }
  line->num_posted -= static_cast<uint32_t>(count);
  line->bytes_posted -= bytes;
  num_launches_.fetch_add(count, std::memory_order_relaxed);
  num_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

bool DeviceQueue::PostQueued() {
  bool any = false;
  for (DeviceLine* line : lines_) {
    // Who submits may be in a call that takes long.
    if (!line->submits.TryTake()) continue;
    const Turn::Given given(&line->submits);
    while (!failed()) {
      DeviceLaunch* first = nullptr;
      {
        MutexLock lock(&mu_);
        first = line->queued.first();
      }
      if (first == nullptr || !Admit(line, first, /*is_first=*/true)) break;
      Post(line, first);
      any = true;
    }
  }
  return any;
}

// The oldest launch, whether it is on the stream or not.
DeviceQueue::Head DeviceQueue::HeadOf(DeviceLine* line) const {
  MutexLock lock(&mu_);
  if (line->num_posted != 0) return {line, line->posted.first(), true};
  return {line, line->queued.first(), false};
}

WatchedLaunch DeviceQueue::Watched(const Head& head) const {
  return {.lane = head.line->lane,
          .request = 0,
          .comm = head.line->road.comm,
          .kind = head.launch->launch.call.kind,
          .ranks = &head.line->ranks};
}

// Whether anything is under way. A launch stays what it is while its line's
// ends are taken.
bool DeviceQueue::CheckDeadlines() {
  const int64_t now_ns = clock_.NowNs();
  int64_t deadline_ns = MonitorRound::kNone;
  bool any = false;
  for (DeviceLine* line : lines_) {
    any |=
        line->ends.TryTake() ? CheckDeadline(line, now_ns, &deadline_ns) : true;
  }
  round_.SetDeadline(deadline_ns);
  return any;
}

// A launch has its time from when the work is done that it comes behind: before
// that it is not in flight, and what it waits for is the caller's.
bool DeviceQueue::CheckDeadline(DeviceLine* line, int64_t now_ns,
                                int64_t* first_ns) {
  const Turn::Given given(&line->ends);
  const Head head = HeadOf(line);
  if (head.launch == nullptr) return false;
  const DeviceLaunch& launch = *head.launch;
  const bool waits =
      launch.has_input && !launch.input->IsComplete(launch.generation);
  if (launch.number != line->watched || waits) {
    line->watched = launch.number;
    watchdog_.Restart(line->lane);
  }
  watchdog_.Look(now_ns);
  const int64_t deadline_ns = watchdog_.DeadlineNs(line->lane);
  *first_ns = std::min(*first_ns, deadline_ns);
  if (now_ns >= deadline_ns) Fail(Expired(head, now_ns));
  return true;
}

absl::Status DeviceQueue::Expired(const Head& head, int64_t now_ns) const {
  const ChannelLaunch& launch = head.launch->launch;
  const absl::Status expired =
      watchdog_.Expired(Watched(head), LaunchText(group_, launch), now_ns);
  std::string why;
  const DeviceLine& line = *head.line;
  if (line.road.order != nullptr) why = line.road.order->Difference();
  if (!line.is_connected.load(std::memory_order_relaxed)) {
    why = absl::StrCat("rank ", line.ranks[1],
                       " has submitted nothing to this rank or from it");
  } else if (line.lane >= 2 && !IsReceive(*head.launch)) {
    MutexLock lock(&mu_);
    for (const DeviceLaunchList* list : {&line.posted, &line.queued}) {
      const DeviceLaunch* each = list->first();
      uint32_t left = list == &line.posted ? line.num_posted : UINT32_MAX;
      for (; each != nullptr && left > 0; each = each->next, --left) {
        if (!IsReceive(*each)) continue;
        why = absl::StrCat(
            "a receive from rank ", launch.peer,
            " of the group was submitted behind it: what a pair of ranks "
            "sends and receives goes in the order of its submits, so that one "
            "side receives first, or both submit a batch");
        break;
      }
      if (!why.empty()) break;
    }
  }
  if (why.empty()) return expired;
  return absl::Status(expired.code(),
                      absl::StrCat(expired.message(), "; ", why));
}

// What is under way as a deadline comes near has been said some times before.
void DeviceQueue::DecideWhenToLook(bool busy) {
  const int64_t now_ns = SystemClock::Get().NowNs();
  for (const DeviceLine* line : lines_) {
    if (line->road.order == nullptr) continue;
    line->road.order->Look(now_ns,
                           std::min(kSayNs, channel_.launch_timeout_ns / 8));
  }
  if (busy) busy_ns_ = now_ns;
  const bool is_idle = now_ns - busy_ns_ > kLingerNs;
  // Who submits at this moment may not see it: so there is one look more before
  // the monitor rests.
  rests_ = is_idle && idle_.load(std::memory_order_relaxed);
  idle_.store(is_idle, std::memory_order_seq_cst);
  const bool tells = channel_.completions != nullptr || num_queued() != 0;
  next_look_ns_ = now_ns + (tells ? kTellingLookNs : kLookNs);
}

void DeviceQueue::CheckCommunicators() {
  absl::InlinedVector<void*, 8> comms = {collectives_.road.comm,
                                         batches_.road.comm};
  {
    MutexLock lock(&mu_);
    for (const auto& pair : pairs_) {
      if (pair != nullptr) comms.push_back(pair->road.comm);
    }
  }
  for (void* comm : comms) CheckCommunicator(comm);
}

void DeviceQueue::CheckCommunicator(void* comm) {
  if (spec_.backend->comm_status == nullptr || failed()) return;
  PluginMessage message;
  const commsched_status_t code =
      spec_.backend->comm_status(comm, message.Begin(), PluginMessage::size());
  if (code == COMMSCHED_OK) return;
  Fail(BackendFailure(*spec_.backend, "comm_status", code, message));
}

std::vector<std::string> DeviceQueue::Describe() const {
  const int64_t now_ns = clock_.NowNs();
  std::vector<std::string> lines;
  for (DeviceLine* line : lines_) {
    if (!line->ends.TryTake()) continue;  // It gets on.
    const Turn::Given given(&line->ends);
    const Head head = HeadOf(line);
    if (head.launch == nullptr) continue;
    const LaunchWait wait = watchdog_.WaitOf(Watched(head), now_ns);
    lines.push_back(absl::StrCat(
        "launch ", LaunchText(group_, head.launch->launch),
        head.is_posted ? " has been in flight for "
                       : " has waited to be enqueued for ",
        absl::StrFormat("%.1f", static_cast<double>(wait.waited_ns) * 1e-9),
        " s", MissingText(wait.missing), SilentText(wait.silent)));
  }
  return lines;
}

}  // namespace commsched
