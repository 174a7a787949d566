#include "channel/channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "channel/channel_meeting.h"
#include "channel/channel_queue.h"
#include "channel/device_queue.h"
#include "channel/warm_launches.h"
#include "comm/lane_agreement.h"
#include "session/binding.h"

namespace commsched {
namespace {

constexpr int64_t kPatienceNs = int64_t{50} * 1000 * 1000;
// On a device: communicators, by number.
constexpr uint32_t kCollectives = 0;
constexpr uint32_t kBatches = 1;
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
void Keep(std::unique_ptr<LaunchQueue> queue) {
  static Mutex mu;
  static auto* const kept = new std::vector<std::unique_ptr<LaunchQueue>>;
  MutexLock lock(&mu);
  kept->push_back(std::move(queue));
}

}  // namespace

Channel::Channel(ChannelSpec spec)
    : spec_(std::move(spec)),
      on_device_(EnqueuesOn(*spec_.world->backend())),
      communicators_(spec_.world) {}

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
  RETURN_IF_ERROR(CheckLimit("max_in_flight", spec_.max_in_flight,
                             ChannelSpec::kMaxInFlight));
  return CheckLimit("max_transfers", spec_.max_transfers,
                    ChannelSpec::kMaxTransfers);
}

// On a device batches of sends and receives have a communicator of their own:
// it does all launches of one in their order.
SessionSpec Channel::ForCommunicators() const {
  SessionSpec session;
  session.who = "channel";
  session.world = spec_.world;
  session.world_rank = spec_.world_rank;
  session.instance = ChannelScope(spec_);
  session.groups = {spec_.group};
  session.members = spec_.group.ranks;
  if (on_device_) session.groups.push_back(spec_.group);
  session.launch_timeout_ns = spec_.launch_timeout_ns;
  session.max_members = MaxMembers(spec_);
  return session;
}

absl::Status Channel::Connect() {
  if (on_device_) RETURN_IF_ERROR(BorrowLane());
  const SessionSpec session = ForCommunicators();
  RETURN_IF_ERROR(
      communicators_.Create(session, spec_.max_in_flight + spec_.max_transfers,
                            /*reads_starts=*/false));
  return on_device_ ? WarmUp(session) : absl::OkStatus();
}

absl::Status Channel::BorrowLane() {
  const LaneKey key = {
      .world = spec_.world.get(), .axes = spec_.group.axis, .plan_lane = 0};
  ASSIGN_OR_RETURN(
      lanes_, BorrowSameLanesAmong(spec_.world.get(), spec_.world_rank,
                                   spec_.group.ranks,
                                   absl::StrCat(ChannelId(spec_), ", lanes"),
                                   {key}, spec_.launch_timeout_ns));
  communicators_.LaunchOn(lanes_);
  return absl::OkStatus();
}

absl::Status Channel::WarmUp(const SessionSpec& session) {
  WarmLaunches warm(*spec_.world->backend(), spec_.group);
  absl::Status connected =
      communicators_.Expect(warm.launches(), warm.numbers());
  if (connected.ok()) connected = communicators_.AwaitConnected(session);
  // Others may wait for this rank to connect.
  if (!connected.ok()) {
    communicators_.Abort(absl::Status(
        connected.code(),
        absl::StrCat("rank ", spec_.world_rank, ": ", connected.message())));
  }
  return connected;
}

absl::Status Channel::Start() {
  if (!spec_.flight_path.empty()) {
    FlightInfo info;
    info.rank = spec_.world_rank;
    info.launches = {absl::StrCat("of the channel on axis ", spec_.group.axis)};
    ASSIGN_OR_RETURN(flight_, FlightRecord::Create(spec_.flight_path, info));
  }
  if (spec_.recorder != nullptr) trace_ = std::make_unique<ChannelTrace>(spec_);
  if (on_device_) {
    ASSIGN_OR_RETURN(queue_, MakeDeviceQueue());
  } else {
    queue_ = MakeQueue();
  }
  RETURN_IF_ERROR(communicators_.rank()->Attach(queue_.get()));
  is_attached_ = true;
  return absl::OkStatus();
}

std::unique_ptr<LaunchQueue> Channel::MakeQueue() {
  ChannelQueueSpec queue;
  queue.channel = &spec_;
  queue.backend = spec_.world->backend();
  queue.rank = communicators_.rank();
  queue.comm = communicators_.comms().front();
  queue.max_members = MaxMembers(spec_);
  queue.flight = flight_.get();
  queue.trace = trace_.get();
  queue.abort = [this](const absl::Status& why) { communicators_.Abort(why); };
  return std::make_unique<ChannelQueue>(queue);
}

absl::StatusOr<std::unique_ptr<LaunchQueue>> Channel::MakeDeviceQueue() {
  Device* const device = spec_.world->device(spec_.world_rank);
  DeviceLane* const lane = lanes_.front().get();
  DeviceQueueSpec queue;
  queue.channel = &spec_;
  queue.backend = spec_.world->backend();
  queue.rank = communicators_.rank();
  queue.device = device;
  queue.collectives.comm = communicators_.comms()[kCollectives];
  // What goes wrong there is the failure of this world's device.
  ASSIGN_OR_RETURN(queue.collectives.stream,
                   device->Adopt(lane->stream()->handle().native));
  queue.collectives.turn = lane->turn();
  queue.collectives.order = lane->order();
  queue.batches = communicators_.comms()[kBatches];
  order_ = spec_.world->AddQueue(
      lane, spec_.world_rank,
      absl::StrCat("channel ", spec_.number, " on axis ", spec_.group.axis),
      spec_.group.ranks, this);
  queue.collectives.queue = order_.get();
  pairs_ = std::make_shared<DevicePairs>(&spec_, queue.rank, device,
                                         lane->num_lanes(), MaxMembers(spec_));
  queue.pairs = pairs_;
  queue.max_members = MaxMembers(spec_);
  queue.flight = flight_.get();
  queue.trace = trace_.get();
  queue.abort = [this](const absl::Status& why) {
    communicators_.Abort(why);
    pairs_->Abort(why);
  };
  auto made = std::make_unique<DeviceQueue>(queue);
  RETURN_IF_ERROR(made->Prepare());
  return made;
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
  queue_->AwaitRest();
  absl::Status closed = communicators_.Close(spec_.launch_timeout_ns);
  if (pairs_ != nullptr) closed.Update(pairs_->Close(spec_.launch_timeout_ns));
  if (closed.ok()) return;
  Log(LogLevel::kWarning, "rank ", spec_.world_rank, ": ", ChannelId(spec_),
      ": launches may still be under way: ", closed.message(),
      "; the memory of requests that had not finished must not be freed");
  for (const auto& lane : lanes_) lane->Lose();
  Keep(std::move(queue_));
}

// In the order of their numbers, since any may be the last to finish.
void Channel::AwaitAll() {
  while (!queue_->failed()) {
    const LaunchQueue::Done done = queue_->FindOldest();
    if (done.event == nullptr) return;
    queue_->AwaitBy(done, kNoDeadlineNs);
  }
}

absl::StatusOr<bool> Channel::Test(uint64_t request) {
  if (queue_->failed()) return queue_->status();
  ASSIGN_OR_RETURN(const LaunchQueue::Done done, queue_->Find(request));
  if (done.event != nullptr && !done.event->IsComplete(done.generation)) {
    return false;
  }
  RETURN_IF_ERROR(queue_->StatusOfComplete());
  return true;
}

absl::Status Channel::Wait(uint64_t request, int64_t timeout_ns) {
  if (queue_->failed()) return queue_->status();
  ASSIGN_OR_RETURN(const LaunchQueue::Done done, queue_->Find(request));
  if (done.event == nullptr) return queue_->status();
  queue_->AwaitBy(done, DeadlineAfter(SystemClock::Get().NowNs(), timeout_ns));
  if (queue_->failed()) return queue_->status();
  if (done.event->IsComplete(done.generation)) {
    return queue_->StatusOfComplete();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("request ", request, " of ", ChannelId(spec_),
                   " has not finished after ", timeout_ns / 1'000'000, " ms"));
}

absl::Status Channel::Before(uint64_t request, Stream* stream) {
  if (stream->is_caller()) return Wait(request, kNoDeadlineNs);
  if (queue_->failed()) return queue_->status();
  ASSIGN_OR_RETURN(const LaunchQueue::Done done, queue_->Find(request));
  if (done.event == nullptr) return absl::OkStatus();
  RememberWaiting(stream);
  return queue_->HaveWait(done, stream);
}

void Channel::RememberWaiting(Stream* stream) {
  if (on_device_ || stream->is_caller()) return;
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
