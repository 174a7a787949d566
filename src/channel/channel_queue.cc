#include "channel/channel_queue.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "device/event_by.h"

namespace commsched {
namespace {

// Launches of more bytes, and of a new shape, are not begun by who submits
// them.
constexpr uint64_t kMostBytesHere = uint64_t{1} << 20;

// Sends and receives of a batch, and tags in it: more take an allocation.
constexpr size_t kInlineOps = 16;

// Those of 0.1 may be told once, and of all launches.
bool ExpectsAgain(const commsched_backend_t& backend) {
  return backend.comm_expect != nullptr &&
         backend.launch_bytes > offsetof(commsched_launch_t, tag);
}

std::vector<uint32_t> Numbers(uint32_t first, uint32_t count) {
  std::vector<uint32_t> numbers;
  for (uint32_t i = count; i > 0; --i) numbers.push_back(first + i - 1);
  return numbers;
}

}  // namespace

ChannelQueue::ChannelQueue(const ChannelQueueSpec& spec)
    : spec_(spec),
      channel_(*spec.channel),
      group_({.backend = spec.backend,
              .axis = channel_.group.axis,
              .rank = channel_.group.rank,
              .size = static_cast<int>(channel_.group.ranks.size()),
              .max_members = spec.max_members}),
      is_inline_((spec.backend->capabilities & COMMSCHED_BACKEND_INLINE) != 0),
      expects_again_(ExpectsAgain(*spec.backend)),
      requests_(spec.rank->parker()),
      window_({.max_launches = channel_.max_in_flight,
               .max_bytes = channel_.max_bytes_in_flight}),
      watchdog_({.backend = spec.backend,
                 .num_lanes = 1 + channel_.max_transfers,
                 .world_rank = channel_.world_rank,
                 .timeout_ns = channel_.launch_timeout_ns}),
      shapes_(group_.size) {
  collectives_.free = Numbers(0, channel_.max_in_flight);
  collectives_.posted.reserve(channel_.max_in_flight);
  transfers_.free = Numbers(channel_.max_in_flight, channel_.max_transfers);
  transfers_.posted.reserve(channel_.max_transfers);
}

ChannelQueue::~ChannelQueue() = default;

// ---- Submitting ----

ChannelLaunch* ChannelQueue::TakeLaunchLocked() {
  if (free_launches_ == nullptr) {
    launches_.push_back(std::make_unique<ChannelLaunch>());
    return launches_.back().get();
  }
  return std::exchange(free_launches_, free_launches_->next);
}

void ChannelQueue::FreeLocked(ChannelLaunch* launch) {
  launch->next = free_launches_;
  free_launches_ = launch;
}

void ChannelQueue::Release(absl::Span<ChannelLaunch* const> launches) {
  MutexLock lock(&mu_);
  for (ChannelLaunch* launch : launches) FreeLocked(launch);
}

absl::StatusOr<uint64_t> ChannelQueue::Submit(const ChannelOp& op,
                                              Stream* stream) {
  if (failed()) return status();
  if (IsTransfer(op)) return SubmitBatch({&op, 1}, stream);
  ChannelLaunch* launch = nullptr;
  {
    MutexLock lock(&mu_);
    launch = TakeLaunchLocked();
  }
  absl::Cleanup release = [&] { Release({&launch, 1}); };
  RETURN_IF_ERROR(BuildLaunch(group_, op, launch));
  ASSIGN_OR_RETURN(const uint64_t request,
                   Enqueue({&launch, 1}, op.user, stream));
  std::move(release).Cancel();
  return request;
}

// A launch per tag.
absl::StatusOr<uint64_t> ChannelQueue::SubmitBatch(
    absl::Span<const ChannelOp> ops, Stream* stream) {
  if (failed()) return status();
  if (ops.empty()) {
    return absl::InvalidArgumentError("a batch of no sends and receives");
  }
  absl::InlinedVector<ChannelLaunch*, kInlineOps> launches;
  absl::Cleanup release = [&] { Release(launches); };
  absl::InlinedVector<const ChannelOp*, kInlineOps> left;
  for (const ChannelOp& op : ops) left.push_back(&op);
  while (!left.empty()) {
    absl::InlinedVector<const ChannelOp*, kInlineOps> same;
    const uint64_t tag = left.front()->tag;
    for (const ChannelOp* op : left) {
      if (op->tag == tag) same.push_back(op);
    }
    left.erase(
        std::remove_if(left.begin(), left.end(),
                       [tag](const ChannelOp* op) { return op->tag == tag; }),
        left.end());
    {
      MutexLock lock(&mu_);
      launches.push_back(TakeLaunchLocked());
    }
    RETURN_IF_ERROR(BuildTransfers(group_, same, launches.back()));
  }
  ASSIGN_OR_RETURN(const uint64_t request,
                   Enqueue(launches, ops.front().user, stream));
  std::move(release).Cancel();
  return request;
}

absl::StatusOr<uint64_t> ChannelQueue::Enqueue(
    absl::Span<ChannelLaunch* const> launches, uint64_t user, Stream* stream) {
  if (channel_.completions != nullptr) {
    RETURN_IF_ERROR(channel_.completions->Reserve());
  }
  bool is_new = false;
  for (const ChannelLaunch* launch : launches) {
    is_new |= expects_again_ && launch->bytes > kMostBytesHere &&
              sizes_.IsNew(launch->call, launch->bytes);
  }
  ChannelRequest* request = nullptr;
  uint64_t number = 0;
  {
    MutexLock lock(&mu_);
    if (is_over_) {
      if (channel_.completions != nullptr) channel_.completions->GiveBack();
      return status();
    }
    request = requests_.Begin();
    request->user = user;
    request->num_open = static_cast<uint32_t>(launches.size());
    number = request->number;
    if (stream->is_caller()) AppendLocked(launches, request);
  }
  if (!stream->is_caller()) {
    // A full stream waits for its worker, who may wait for a request: without
    // the lock. Nobody else has this request as long as it is in no line.
    request->has_input = true;
    stream->Record(&request->input, request->generation);
    MutexLock lock(&mu_);
    if (is_over_) {  // The request has been told.
      for (ChannelLaunch* launch : launches) FreeLocked(launch);
      return number;
    }
    AppendLocked(launches, request);
  }
  if (spec_.flight != nullptr) {
    spec_.flight->Add(FlightEvent::kDue, number, SystemClock::Get().NowNs());
  }
  // To have a new shape expected is more than a submit is to cost. Of a smaller
  // one it is less than to be put aside by the thread that is woken, where that
  // has no core of its own.
  if (is_new) {
    spec_.rank->BeginThere();
  } else {
    spec_.rank->Begin();
  }
  return number;
}

void ChannelQueue::AppendLocked(absl::Span<ChannelLaunch* const> launches,
                                ChannelRequest* request) {
  for (ChannelLaunch* launch : launches) {
    launch->request = request;
    launch->next = nullptr;
    if (!launch->is_transfer) launch->number = ++num_collectives_;
    Line& line = launch->is_transfer ? transfers_ : collectives_;
    (line.first == nullptr ? line.first : line.last->next) = launch;
    line.last = launch;
  }
  num_queued_.fetch_add(launches.size(), std::memory_order_release);
}

absl::StatusOr<ChannelQueue::Done> ChannelQueue::Find(uint64_t request) {
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
  ChannelRequest* const found = requests_.Find(request);
  if (found == nullptr) return Done{};
  return Done{.event = &found->done, .generation = found->generation};
}

ChannelQueue::Done ChannelQueue::FindOldest() const {
  MutexLock lock(&mu_);
  if (requests_.oldest() == requests_.next()) return {};
  ChannelRequest* const oldest = requests_.Find(requests_.oldest());
  return {.event = &oldest->done, .generation = oldest->generation};
}

void ChannelQueue::AwaitBy(const Done& done, int64_t deadline_ns) {
  if (deadline_ns == kNoDeadlineNs) {
    spec_.rank->Await(done.event, done.generation);
    return;
  }
  EventBy by(done.event, deadline_ns);
  spec_.rank->Await(&by, done.generation);
}

absl::Status ChannelQueue::HaveWait(const Done& done, Stream* stream) {
  stream->Wait(done.event, done.generation);
  return absl::OkStatus();
}

// ---- The end of a request ----

void ChannelQueue::FinishLocked(ChannelRequest* request,
                                absl::StatusCode code) {
  if (channel_.completions != nullptr) {
    channel_.completions->Add({.key = channel_.key,
                               .request = request->number,
                               .user = request->user,
                               .code = code});
  }
  const uint64_t generation = request->generation;
  requests_.Finish(request);
  oldest_.store(requests_.oldest(), std::memory_order_release);
  if (code == absl::StatusCode::kOk) request->done.Complete(generation);
}

void ChannelQueue::Fail(const absl::Status& status) {
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
      ChannelRequest* const request = requests_.Find(number);
      if (request != nullptr) FinishLocked(request, status.code());
    }
    for (const auto& request : requests_.all()) request->done.Poison();
  }
  spec_.rank->parker()->Unpark();
}

ChannelQueue::Totals ChannelQueue::totals() const {
  return {.launches = num_launches_.load(std::memory_order_relaxed),
          .bytes = num_bytes_.load(std::memory_order_relaxed),
          .shapes = num_shapes_.load(std::memory_order_relaxed)};
}

// ---- Posting ----

// On the progress thread nobody else would catch it.
bool ChannelQueue::Pump() {
  if (failed()) return false;
  try {
    bool progressed = PollAll(&collectives_);
    progressed |= PollAll(&transfers_);
    while (has_queued() && !failed() &&
           (TryPost(&collectives_) || TryPost(&transfers_))) {
      progressed = true;
    }
    if (progressed) return true;
    CheckDeadlines();
    if (num_posted_ == 0) CheckCommunicator();
  } catch (const std::bad_alloc&) {
    Fail(absl::ResourceExhaustedError("out of host memory"));
  }
  return false;
}

ChannelLaunch* ChannelQueue::FirstOf(const Line& line) {
  MutexLock lock(&mu_);
  return line.first;
}

void ChannelQueue::PopFront(Line* line) {
  MutexLock lock(&mu_);
  line->first = line->first->next;
  num_queued_.fetch_sub(1, std::memory_order_relaxed);
}

bool ChannelQueue::MayPost(const Line& line, const ChannelLaunch& launch) {
  if (line.free.empty()) return false;
  const ChannelRequest& request = *launch.request;
  if (request.has_input && !request.input.IsComplete(request.generation)) {
    return false;
  }
  return launch.is_transfer || window_.TryAdmit(launch.bytes);
}

bool ChannelQueue::TryPost(Line* line) {
  ChannelLaunch* const launch = FirstOf(*line);
  if (launch == nullptr || !MayPost(*line, *launch)) return false;
  PopFront(line);
  if (launch->own_bytes != 0 && launch->own_input != launch->own_output) {
    std::memmove(launch->own_output, launch->own_input, launch->own_bytes);
  }
  launch->posted_as = line->free.back();
  if (spec_.trace != nullptr) launch->posted_ns = SystemClock::Get().NowNs();
  if (launch->is_transfer || line->posted.empty()) {
    watchdog_.Restart(LaneOf(*launch));
  }
  // A rank that is alone has nothing to send to others.
  const bool is_local =
      launch->call.kind == COMMSCHED_SEND && launch->call.num_members == 0;
  if (!is_local) {
    const absl::Status posted = Post(launch);
    if (!posted.ok()) {
      Fail(posted);
      return false;
    }
  }
  launch->is_done = is_local || is_inline_;
  line->free.pop_back();
  line->posted.push_back(launch);
  ++num_posted_;
  return true;
}

absl::Status ChannelQueue::ExpectIfNew(ChannelLaunch* launch) {
  commsched_launch_t& call = launch->call;
  call.slot = shapes_.SlotOf(call);
  if (call.slot != UINT32_MAX || !expects_again_) return absl::OkStatus();
  const commsched_launch_t* const grown = shapes_.Grow(call);
  if (grown == nullptr) return absl::OkStatus();
  commsched_launch_t expected = *grown;
  expected.slot = num_slots_;
  const commsched_status_t code = spec_.backend->comm_expect(
      spec_.comm, &expected, 1, message_.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) return ErrorOf(*launch, "comm_expect", code);
  call.slot = num_slots_++;
  shapes_.Keep(call.slot);
  num_shapes_.store(num_slots_, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status ChannelQueue::Post(ChannelLaunch* launch) {
  RETURN_IF_ERROR(ExpectIfNew(launch));
  sizes_.Note(launch->call, launch->bytes);
  launch->call.step = launch->number;
  Note(FlightEvent::kIssue, *launch);
  const commsched_status_t code = spec_.backend->launch(
      spec_.comm, &launch->call, launch->posted_as, commsched_stream_caller(),
      message_.Begin(), PluginMessage::size());
  if (code == COMMSCHED_OK) return absl::OkStatus();
  return ErrorOf(*launch, "launch", code);
}

absl::Status ChannelQueue::ErrorOf(const ChannelLaunch& launch,
                                   const char* call, commsched_status_t code) {
  const absl::Status failure =
      BackendFailure(*spec_.backend, call, code, message_);
  return absl::Status(failure.code(),
                      absl::StrCat("launch ", LaunchText(group_, launch), ": ",
                                   failure.message()));
}

void ChannelQueue::Note(FlightEvent event, const ChannelLaunch& launch) {
  if (spec_.flight == nullptr) return;
  spec_.flight->Add(event, launch.request->number - 1,
                    SystemClock::Get().NowNs());
}

// ---- Completion ----

// Collectives finish in their order, whatever the backend says first, so that
// who has waited for one has waited for those before it.
bool ChannelQueue::PollAll(Line* line) {
  const bool in_order = line == &collectives_;
  bool is_held = false;
  bool progressed = false;
  size_t kept = 0;
  const size_t count = line->posted.size();
  for (size_t i = 0; i < count; ++i) {
    ChannelLaunch* const launch = line->posted[i];
    if (!launch->is_done && !failed()) {
      const absl::Status polled = Poll(launch);
      if (!polled.ok()) Fail(polled);
      progressed |= launch->is_done;
    }
    if (!launch->is_done || is_held) {
      is_held = in_order;
      line->posted[kept++] = launch;
      continue;
    }
    line->free.push_back(launch->posted_as);
    --num_posted_;
    Retire(line, launch);
  }
  line->posted.resize(kept);
  return progressed || kept != count;
}

absl::Status ChannelQueue::Poll(ChannelLaunch* launch) {
  commsched_launch_result_t result = {};
  const commsched_status_t code =
      spec_.backend->poll(spec_.comm, launch->posted_as, &result,
                          message_.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) return ErrorOf(*launch, "poll", code);
  RETURN_IF_ERROR(CheckLaunchResult(*spec_.backend, result));
  launch->wake_at_ns = result.wake_at_ns;
  launch->is_done = result.done != 0;
  return absl::OkStatus();
}

void ChannelQueue::Retire(Line* line, ChannelLaunch* launch) {
  Note(FlightEvent::kRetire, *launch);
  if (spec_.trace != nullptr && !failed()) {
    spec_.trace->Add(*launch, launch->request->number);
  }
  num_launches_.store(num_launches_.load(std::memory_order_relaxed) + 1,
                      std::memory_order_relaxed);
  num_bytes_.store(num_bytes_.load(std::memory_order_relaxed) + launch->bytes,
                   std::memory_order_relaxed);
  if (line == &collectives_) {
    watchdog_.Restart(0);
    const absl::Status released = window_.Release(launch->bytes);
    if (!released.ok()) return Fail(released);
  }
  MutexLock lock(&mu_);
  if (is_over_) return;  // Its request has been told.
  ChannelRequest* const request = launch->request;
  FreeLocked(launch);
  if (--request->num_open == 0) FinishLocked(request, absl::StatusCode::kOk);
}

// ---- Deadlines ----

uint32_t ChannelQueue::LaneOf(const ChannelLaunch& launch) const {
  return launch.is_transfer ? 1 + launch.posted_as - channel_.max_in_flight : 0;
}

WatchedLaunch ChannelQueue::Watched(const ChannelLaunch& launch) const {
  return {.lane = LaneOf(launch),
          .request = launch.posted_as,
          .comm = spec_.comm,
          .kind = launch.call.kind,
          .ranks = &channel_.group.ranks};
}

void ChannelQueue::CheckDeadlines() {
  if (num_posted_ == 0) return;
  const int64_t now_ns = clock_.NowNs();
  watchdog_.Look(now_ns);
  const auto fails = [&](const ChannelLaunch& launch) {
    if (now_ns < watchdog_.AskNs(LaneOf(launch))) return false;
    const WatchedLaunch watched = Watched(launch);
    if (!watchdog_.HasExpired(watched, now_ns)) return false;
    Fail(watchdog_.Expired(watched, LaunchText(group_, launch), now_ns));
    return true;
  };
  // In order: the oldest has kept the others.
  if (!collectives_.posted.empty() && fails(*collectives_.posted.front())) {
    return;
  }
  for (const ChannelLaunch* launch : transfers_.posted) {
    if (fails(*launch)) return;
  }
}

void ChannelQueue::CheckCommunicator() {
  if (spec_.backend->comm_status == nullptr) return;
  const commsched_status_t code = spec_.backend->comm_status(
      spec_.comm, message_.Begin(), PluginMessage::size());
  if (code == COMMSCHED_OK) return;
  Fail(BackendFailure(*spec_.backend, "comm_status", code, message_));
}

int64_t ChannelQueue::NextWakeNs() const {
  if (failed()) return kNoDeadlineNs;
  int64_t wake_ns = kNoDeadlineNs;
  int64_t deadline_ns = kNoDeadlineNs;
  for (const Line* line : {&collectives_, &transfers_}) {
    for (const ChannelLaunch* launch : line->posted) {
      deadline_ns =
          std::min(deadline_ns, watchdog_.NextLookNs(LaneOf(*launch)));
      if (!launch->is_done && launch->wake_at_ns != 0) {
        wake_ns = std::min(wake_ns, launch->wake_at_ns);
      }
    }
  }
  return std::min(wake_ns, clock_.SleepUntilNs(deadline_ns));
}

void ChannelQueue::Ask() const {
  for (const Line* line : {&collectives_, &transfers_}) {
    for (const ChannelLaunch* launch : line->posted) {
      watchdog_.Ask(Watched(*launch));
    }
  }
}

std::vector<std::string> ChannelQueue::Describe() const {
  const int64_t now_ns = clock_.NowNs();
  std::vector<std::string> lines;
  for (const Line* line : {&collectives_, &transfers_}) {
    for (const ChannelLaunch* launch : line->posted) {
      const LaunchWait wait = watchdog_.WaitOf(Watched(*launch), now_ns);
      lines.push_back(absl::StrCat(
          "launch ", LaunchText(group_, *launch), " has been in flight for ",
          absl::StrFormat("%.1f", static_cast<double>(wait.waited_ns) * 1e-9),
          " s", MissingText(wait.missing), SilentText(wait.silent)));
    }
  }
  return lines;
}

}  // namespace commsched
