#include "channel/channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "channel/channel_meeting.h"
#include "device/event_by.h"
#include "device/host_event.h"
#include "session/binding.h"

namespace commsched {
namespace {

constexpr int64_t kPatienceNs = int64_t{50} * 1000 * 1000;
// Of a request's sends and receives with one tag.
constexpr size_t kLeastMembers = 64;

uint32_t MaxMembers(const ChannelSpec& spec) {
  return static_cast<uint32_t>(
      std::max(kLeastMembers, 2 * spec.group.ranks.size()));
}

absl::Status CheckLimit(absl::string_view name, uint32_t value, uint32_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("channel: ", name, " is ", value, ", outside 1..", most));
}

// Of a channel whose launches may not have ended: until the process does.
void Keep(std::unique_ptr<ChannelQueue> queue) {
  static Mutex mu;
  static auto* const kept = new std::vector<std::unique_ptr<ChannelQueue>>;
  MutexLock lock(&mu);
  kept->push_back(std::move(queue));
}

}  // namespace

Channel::Channel(ChannelSpec spec)
    : spec_(std::move(spec)), communicators_(spec_.world) {}

absl::StatusOr<std::unique_ptr<Channel>> Channel::Create(ChannelSpec spec) {
  const WaitingCall waiting(spec.world_rank, "creates a channel with others");
  std::unique_ptr<Channel> channel(new Channel(std::move(spec)));
  RETURN_IF_ERROR(MeetMembers(channel->spec_, channel->CheckSpec()));
  absl::Status ready = channel->Connect();
  if (ready.ok()) ready = channel->Start();
  RETURN_IF_ERROR(MeetReady(channel->spec_, ready));
  channel->List();
  return channel;
}

void Channel::Decline(const ChannelSpec& spec, const absl::Status& why) {
  DeclineToMeet(spec, why);
}

absl::Status Channel::CheckSpec() const {
  const commsched_backend_t& backend = *spec_.world->backend();
  if (EnqueuesOn(backend)) {
    return absl::UnimplementedError(
        absl::StrCat("channel: backend '", backend.name,
                     "' enqueues launches on streams of a device; channels "
                     "are for backends of the host"));
  }
  RETURN_IF_ERROR(CheckLimit("max_in_flight", spec_.max_in_flight,
                             ChannelSpec::kMaxInFlight));
  return CheckLimit("max_transfers", spec_.max_transfers,
                    ChannelSpec::kMaxTransfers);
}

absl::Status Channel::Connect() {
  SessionSpec session;
  session.who = "channel";
  session.world = spec_.world;
  session.world_rank = spec_.world_rank;
  session.instance = ChannelScope(spec_);
  session.groups = {spec_.group};
  session.members = spec_.group.ranks;
  session.launch_timeout_ns = spec_.launch_timeout_ns;
  session.max_members = MaxMembers(spec_);
  return communicators_.Create(session,
                               spec_.max_in_flight + spec_.max_transfers,
                               /*reads_starts=*/false);
}

absl::Status Channel::Start() {
  if (!spec_.flight_path.empty()) {
    FlightInfo info;
    info.rank = spec_.world_rank;
    info.launches = {absl::StrCat("of the channel on axis ", spec_.group.axis)};
    ASSIGN_OR_RETURN(flight_, FlightRecord::Create(spec_.flight_path, info));
  }
  ChannelQueueSpec queue;
  queue.channel = &spec_;
  queue.backend = spec_.world->backend();
  queue.rank = communicators_.rank();
  queue.comm = communicators_.comms().front();
  queue.max_members = MaxMembers(spec_);
  queue.flight = flight_.get();
  queue.abort = [this](const absl::Status& why) { communicators_.Abort(why); };
  queue_ = std::make_unique<ChannelQueue>(queue);
  RETURN_IF_ERROR(communicators_.rank()->Attach(queue_.get()));
  is_attached_ = true;
  return absl::OkStatus();
}

Channel::~Channel() {
  if (queue_ == nullptr) return;
  Unlist();
  AwaitAll();
  {
    // By now every event is complete or poisoned, so that workers get through.
    MutexLock lock(&waiting_mu_);
    for (Stream* stream : waiting_) stream->Synchronize();
  }
  if (is_attached_) communicators_.rank()->Detach(queue_.get());
  const absl::Status closed = communicators_.Close(spec_.launch_timeout_ns);
  if (closed.ok()) return;
  Log(LogLevel::kWarning, "rank ", spec_.world_rank, ": ", ChannelId(spec_),
      ": launches may still be under way: ", closed.message(),
      "; the memory of requests that had not finished must not be freed");
  Keep(std::move(queue_));
}

// In the order of their numbers, since any may be the last to finish.
void Channel::AwaitAll() {
  while (!queue_->failed()) {
    const ChannelQueue::Done done = queue_->FindOldest();
    if (done.event == nullptr) return;
    communicators_.rank()->Await(done.event, done.generation);
  }
}

absl::StatusOr<bool> Channel::Test(uint64_t request) {
  if (queue_->failed()) return queue_->status();
  ASSIGN_OR_RETURN(const ChannelQueue::Done done, queue_->Find(request));
  return done.event == nullptr || done.event->IsComplete(done.generation);
}

absl::Status Channel::Wait(uint64_t request, int64_t timeout_ns) {
  if (queue_->failed()) return queue_->status();
  ASSIGN_OR_RETURN(const ChannelQueue::Done done, queue_->Find(request));
  if (done.event == nullptr) return queue_->status();
  BackendRank* const rank = communicators_.rank();
  const int64_t deadline_ns =
      DeadlineAfter(SystemClock::Get().NowNs(), timeout_ns);
  if (deadline_ns == kNoDeadlineNs) {
    rank->Await(done.event, done.generation);
  } else {
    EventBy by(done.event, deadline_ns);
    rank->Await(&by, done.generation);
  }
  if (queue_->failed()) return queue_->status();
  if (done.event->IsComplete(done.generation)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("request ", request, " of ", ChannelId(spec_),
                   " has not finished after ", timeout_ns / 1'000'000, " ms"));
}

absl::Status Channel::Before(uint64_t request, Stream* stream) {
  if (stream->is_caller()) return Wait(request, kNoDeadlineNs);
  if (queue_->failed()) return queue_->status();
  ASSIGN_OR_RETURN(const ChannelQueue::Done done, queue_->Find(request));
  if (done.event == nullptr) return absl::OkStatus();
  RememberWaiting(stream);
  stream->Wait(done.event, done.generation);
  return absl::OkStatus();
}

void Channel::RememberWaiting(Stream* stream) {
  MutexLock lock(&waiting_mu_);
  if (std::find(waiting_.begin(), waiting_.end(), stream) == waiting_.end()) {
    waiting_.push_back(stream);
  }
}

void Channel::DescribeTo(std::string* text) const {
  const std::string head =
      absl::StrCat("rank ", spec_.world_rank, ": ", ChannelId(spec_), ": ");
  if (queue_->failed()) {
    absl::StrAppend(text, head,
                    "has failed: ", std::string(queue_->status().message()),
                    "\n");
    return;
  }
  std::vector<std::string> lines;
  communicators_.rank()->LookBy(SystemClock::Get().NowNs() + kPatienceNs, [&] {
    queue_->Ask();
    lines = queue_->Describe();
  });
  for (const std::string& line : lines) {
    absl::StrAppend(text, head, line, "\n");
  }
  const uint64_t num_queued = queue_->num_queued();
  if (num_queued != 0) {
    absl::StrAppend(text, head, num_queued, " more launches wait for room\n");
  } else if (lines.empty()) {
    absl::StrAppend(text, head, "all requests have finished\n");
  }
}

}  // namespace commsched
