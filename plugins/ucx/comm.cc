#include "comm.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace commsched::ucx {
namespace {

// A tag: 40 bits of the communicator, 12 of the sender's rank in the group, 12
// of what it is: the launch's number modulo kNumLaunches, or one of these.
constexpr int kRankBits = 12;
constexpr int kTypeBits = 12;
constexpr uint64_t kNumLaunches = 0xf80;
constexpr uint64_t kPeersType = 0xf80;
constexpr uint64_t kNoticeType = 0xf81;
constexpr uint64_t kWholeTag = ~uint64_t{0};
constexpr uint64_t kAnySource =
    ~(((uint64_t{1} << kRankBits) - 1) << kTypeBits);

// How long the host has to say why a message failed.
constexpr int64_t kSuspicionNs = int64_t{1} * 1000 * 1000 * 1000;
// How long leaving waits for what is under way.
constexpr int64_t kLeaveNs = int64_t{1} * 1000 * 1000 * 1000;

int64_t ThreadCpuNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string Text(const std::vector<int32_t>& ranks) {
  std::string text;
  for (const int32_t rank : ranks) {
    if (!text.empty()) text += ',';
    text += std::to_string(rank);
  }
  return text;
}

void SetText(const std::string& text, Notice* notice) {
  snprintf(notice->text, sizeof(notice->text), "%s", text.c_str());
}

// A notice on its way, which deletes itself.
struct SentNotice final : Receiver {
  void OnDone(Message* /*message*/, ucs_status_t /*status*/,
              uint64_t /*bytes*/) override {
    delete this;
  }

  Notice notice;
  Message message;
};

Outcome CheckDesc(const commsched_comm_desc_t& desc, int world_size) {
  const std::string what =
      std::string("communicator of axis '") + desc.axis + "': ";
  if (desc.size < 1 || desc.size > world_size || desc.rank < 0 ||
      desc.rank >= desc.size) {
    return {COMMSCHED_INVALID_ARGUMENT,
            what + "rank " + std::to_string(desc.rank) + " of " +
                std::to_string(desc.size) + ", the world has " +
                std::to_string(world_size)};
  }
  std::vector<bool> seen(static_cast<size_t>(world_size));
  for (int32_t i = 0; i < desc.size; ++i) {
    const int32_t rank = desc.ranks[i];
    if (rank < 0 || rank >= world_size) {
      return {COMMSCHED_INVALID_ARGUMENT,
              what + "rank " + std::to_string(rank) +
                  " is not in the world of " + std::to_string(world_size)};
    }
    if (seen[static_cast<size_t>(rank)]) {
      return {COMMSCHED_INVALID_ARGUMENT,
              what + "rank " + std::to_string(rank) + " is a member twice"};
    }
    seen[static_cast<size_t>(rank)] = true;
  }
  if (desc.max_in_flight < 1 || desc.max_in_flight >= kNumLaunches) {
    return {COMMSCHED_INVALID_ARGUMENT, what +
                                            std::to_string(desc.max_in_flight) +
                                            " launches in flight, not 1.." +
                                            std::to_string(kNumLaunches - 1)};
  }
  return {};
}

}  // namespace

Comm::Comm(Network* network, const commsched_comm_desc_t& desc)
    : network_(network),
      axis_(desc.axis),
      ranks_(desc.ranks, desc.ranks + desc.size),
      rank_(desc.rank),
      max_members_(desc.max_members),
      wake_(desc.wake),
      wake_user_(desc.wake_user),
      id_(desc.id),
      operations_(desc.max_in_flight),
      peers_(static_cast<size_t>(desc.size)) {
  order_.reserve(desc.max_in_flight);
}

Comm::~Comm() {
  const commsched_host_t* host = network_->host();
  for (Operation& operation : operations_) {
    host->free(host->user, operation.scratch);
  }
}

Outcome Comm::Create(Network* network, const commsched_comm_desc_t& desc,
                     std::shared_ptr<Comm>* out) {
  Outcome outcome = CheckDesc(desc, network->world_size());
  for (int32_t i = 0; i < desc.size && outcome.ok(); ++i) {
    if (i != desc.rank) outcome = network->Connect(desc.ranks[i]);
  }
  if (!outcome.ok()) return outcome;
  std::shared_ptr<Comm> comm(new Comm(network, desc));
  const std::lock_guard<std::mutex> lock(network->mu());
  if (!network->TakeId(comm->id_, &comm->tags_)) {
    return {COMMSCHED_ALREADY_EXISTS,
            "rank " + std::to_string(network->world_rank()) +
                " has already joined '" + comm->id_ + "'"};
  }
  comm->ReceiveNotices();
  Notice joined;
  joined.kind = Notice::kJoined;
  joined.in_flight = desc.max_in_flight;
  SetText(Text(comm->ranks_), &joined);
  for (int peer = 0; peer < comm->size(); ++peer) comm->Tell(joined, peer);
  *out = std::move(comm);
  return {};
}

uint64_t Comm::Tag(int source, uint64_t type) const {
  return tags_ << (kRankBits + kTypeBits) |
         static_cast<uint64_t>(source) << kTypeBits | type;
}

std::string Comm::Name(int peer) const {
  return "rank " + std::to_string(ranks_[static_cast<size_t>(peer)]);
}

// ---- Launches ----

Outcome Comm::CheckLaunch(const commsched_launch_t& launch,
                          uint32_t request) const {
  std::string why;
  if (request >= operations_.size() || operations_[request].active) {
    why = "request " + std::to_string(request) + " is in use or not below " +
          std::to_string(operations_.size());
  } else if (launch.num_members > max_members_) {
    why = std::to_string(launch.num_members) + " members, announced were " +
          std::to_string(max_members_);
  } else if ((launch.kind == COMMSCHED_BROADCAST ||
              launch.kind == COMMSCHED_REDUCE) &&
             (launch.root < 0 || launch.root >= size())) {
    why = "root " + std::to_string(launch.root) + " is not in 0.." +
          std::to_string(size() - 1);
  }
  for (uint32_t m = 0;
       launch.kind == COMMSCHED_SEND && why.empty() && m < launch.num_members;
       ++m) {
    const commsched_member_t& member = launch.members[m];
    if (member.direction != COMMSCHED_SEND &&
        member.direction != COMMSCHED_RECV) {
      why = "member " + std::to_string(m) + ": its direction is " +
            std::to_string(member.direction) + ", neither send nor recv";
    } else if (member.peer < 0 || member.peer >= size() ||
               member.peer == rank_) {
      why = "member " + std::to_string(m) + ": its peer " +
            std::to_string(member.peer) + " is not another member of 0.." +
            std::to_string(size() - 1);
    }
  }
  if (why.empty()) return {};
  return {COMMSCHED_INVALID_ARGUMENT,
          "axis '" + axis_ + "', launch of " + Name(rank_) + ": " + why};
}

Outcome Comm::Launch(const commsched_launch_t& launch, uint32_t request) {
  {
    const std::lock_guard<std::mutex> lock(network_->mu());
    if (!failure_.ok()) return failure_;
  }
  Outcome outcome = CheckLaunch(launch, request);
  if (outcome.ok()) {
    outcome = Build(launch, rank_, size(), network_->chunk_bytes(),
                    network_->host(), &operations_[request]);
  }
  const std::lock_guard<std::mutex> lock(network_->mu());
  if (!outcome.ok()) {
    FailAndTell(outcome.code, outcome.reason);
    return outcome;
  }
  Operation& operation = operations_[request];
  operation.active = true;
  order_.push_back(request);
  if (launch.kind != COMMSCHED_SEND) operation.number = num_collectives_++;
  for (Message& message : operation.messages) {
    message.owner = request;
    message.receiver = this;
    if (launch.kind != COMMSCHED_SEND) continue;
    Peer& peer = peers_[static_cast<size_t>(message.peer)];
    ++(message.is_receive ? peer.receives : peer.sends);
  }
  if (operation.num_unheard == 0) {
    operation.started_ns = network_->host()->now_ns(network_->host()->user);
  }
  Post(&operation, 0, operation.num_posted);
  for (int peer = 0; peer < size(); ++peer) FailIfLeft(peer);
  if (!failure_.ok()) Stop();
  return failure_;
}

void Comm::Post(Operation* operation, uint32_t first, uint32_t count) {
  const uint64_t type = operation->kind == COMMSCHED_SEND
                            ? kPeersType
                            : operation->number % kNumLaunches;
  operation->outstanding += count;
  for (uint32_t i = first; i < first + count; ++i) {
    Message* const message = &operation->messages[i];
    if (message->is_receive) {
      network_->Receive(Tag(message->peer, type), kWholeTag, message);
    } else {
      network_->Send(ranks_[static_cast<size_t>(message->peer)],
                     Tag(rank_, type), message);
    }
  }
}

Outcome Comm::Poll(uint32_t request, commsched_launch_result_t* out_result) {
  *out_result = {};
  const int64_t begin_ns = ThreadCpuNs();
  {
    const std::lock_guard<std::mutex> lock(network_->mu());
    if (request >= operations_.size() || !operations_[request].active) {
      return {COMMSCHED_INVALID_ARGUMENT, "poll of request " +
                                              std::to_string(request) +
                                              ", which is not in flight"};
    }
    network_->Progress();
  }
  // Only this thread, that of launch and poll, changes the list.
  for (const uint32_t in_flight : order_) Advance(&operations_[in_flight]);
  const std::lock_guard<std::mutex> lock(network_->mu());
  if (!failure_.ok()) {
    Stop();
    return failure_;
  }
  Operation& operation = operations_[request];
  operation.cpu_ns += ThreadCpuNs() - begin_ns;
  // A message that failed is under way no more, but nothing is complete.
  if (!suspicion_.empty()) {
    const commsched_host_t* host = network_->host();
    if (host->now_ns(host->user) >= suspicion_deadline_ns_) {
      FailAndTell(COMMSCHED_UNAVAILABLE, suspicion_);
      Stop();
      return failure_;
    }
    out_result->wake_at_ns = suspicion_deadline_ns_;
    return {};
  }
  if (!operation.IsDone()) return {};
  operation.active = false;
  order_.erase(std::find(order_.begin(), order_.end(), request));
  out_result->done = 1;
  out_result->started_ns = operation.started_ns;
  out_result->cpu_ns = operation.cpu_ns;
  return {};
}

void Comm::Advance(Operation* operation) {
  while (true) {
    Step* step = nullptr;
    {
      const std::lock_guard<std::mutex> lock(network_->mu());
      // After a message that failed, what is to be reduced may not be there.
      if (!failure_.ok() || !suspicion_.empty()) return;
      if (operation->next_step == operation->steps.size()) return;
      step = &operation->steps[operation->next_step];
      if (step->waiting != 0) return;
    }
    if (step->count != 0) Reduce(*operation, *step);
    const std::lock_guard<std::mutex> lock(network_->mu());
    if (!failure_.ok()) return;
    ++operation->next_step;
    Post(operation, step->first_send, step->num_sends);
  }
}

void Comm::Reduce(const Operation& operation, const Step& step) {
  const commsched_host_t* host = network_->host();
  host->reduce(host->user, operation.dtype, operation.reduce_op,
               static_cast<uint32_t>(size()),
               operation.inputs.data() + step.first_input, step.count,
               step.output);
}

void Comm::OnDone(Message* message, ucs_status_t status, uint64_t bytes) {
  if (message == &notice_message_) {
    if (status != UCS_OK || left_) return;
    if (bytes == sizeof(heard_)) Hear(heard_);
    if (!left_) ReceiveNotices();
    return;
  }
  Operation& operation = operations_[message->owner];
  --operation.outstanding;
  if (message->step != Operation::kNoStep) {
    --operation.steps[message->step].waiting;
  }
  if (left_ || status == UCS_ERR_CANCELED) return;
  const bool other_size =
      status == UCS_OK && message->is_receive && bytes != message->bytes;
  if (status != UCS_OK || other_size) {
    return MessageFailed(operation, *message, status, bytes);
  }
  const auto peer = static_cast<size_t>(message->peer);
  if (message->is_receive && !operation.heard[peer]) {
    operation.heard[peer] = true;
    if (--operation.num_unheard == 0) {
      operation.started_ns = network_->host()->now_ns(network_->host()->user);
    }
  }
  const bool step_is_due = operation.next_step < operation.steps.size() &&
                           operation.steps[operation.next_step].waiting == 0;
  if (step_is_due || operation.IsDone()) wake_(wake_user_);
}

void Comm::MessageFailed(const Operation& operation, const Message& message,
                         ucs_status_t status, uint64_t bytes) {
  const std::string what =
      "axis '" + axis_ + "', " +
      (operation.kind == COMMSCHED_SEND
           ? std::string("sends and receives")
           : "launch #" + std::to_string(operation.number)) +
      ": ";
  if (status != UCS_OK && status != UCS_ERR_MESSAGE_TRUNCATED) {
    return Suspect(what + "a message " +
                   (message.is_receive ? "from " : "to ") + Name(message.peer) +
                   " failed: " + ucs_status_string(status));
  }
  const std::string sent = status == UCS_OK
                               ? std::to_string(bytes)
                               : "more than " + std::to_string(message.bytes);
  FailAndTell(COMMSCHED_INVALID_ARGUMENT, what + Name(message.peer) + " sent " +
                                              sent + " bytes, " + Name(rank_) +
                                              " has room for " +
                                              std::to_string(message.bytes));
}

// ---- Notices ----

void Comm::ReceiveNotices() {
  notice_message_.receiver = this;
  notice_message_.is_receive = true;
  notice_message_.data = &heard_;
  notice_message_.bytes = sizeof(heard_);
  network_->Receive(Tag(0, kNoticeType), kAnySource, &notice_message_);
}

void Comm::Tell(const Notice& notice, int peer) {
  if (peer == rank_) return;
  auto* sent = new SentNotice;
  sent->notice = notice;
  sent->notice.rank = rank_;
  sent->message.receiver = sent;
  sent->message.peer = peer;
  sent->message.data = &sent->notice;
  sent->message.bytes = sizeof(sent->notice);
  network_->Send(ranks_[static_cast<size_t>(peer)], Tag(rank_, kNoticeType),
                 &sent->message);
}

void Comm::Hear(const Notice& notice) {
  if (notice.rank < 0 || notice.rank >= size()) return;
  Peer& peer = peers_[static_cast<size_t>(notice.rank)];
  const std::string text(notice.text,
                         strnlen(notice.text, sizeof(notice.text)));
  switch (notice.kind) {
    case Notice::kAborted:
      return FailLocked(static_cast<commsched_status_t>(notice.status), text);
    case Notice::kLeft:
      peer.has_left = true;
      peer.launches_at_end = notice.launches;
      peer.sends_at_end = notice.sent;
      peer.receives_at_end = notice.received;
      return FailIfLeft(notice.rank);
    case Notice::kStopped:
      peer.has_stopped = true;
      return;
    case Notice::kJoined: {
      Notice own;
      SetText(Text(ranks_), &own);
      std::string why;
      if (notice.in_flight != operations_.size()) {
        why = std::to_string(notice.in_flight) + " launches in flight, " +
              Name(rank_) + " " + std::to_string(operations_.size());
      } else if (text != own.text) {
        why = "ranks " + text + ", " + Name(rank_) + " " + own.text;
      }
      if (why.empty()) return;
      return FailAndTell(COMMSCHED_INVALID_ARGUMENT,
                         "communicator of axis '" + axis_ +
                             "': " + Name(notice.rank) + " gave " + why);
    }
    default:
      return;
  }
}

void Comm::FailIfLeft(int peer) {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  if (!other.has_left) return;
  const std::string who = Name(peer) + " left axis '" + axis_ + "' before ";
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (operation.kind == COMMSCHED_SEND || operation.IsDone()) continue;
    if (operation.number < other.launches_at_end) continue;
    return FailLocked(COMMSCHED_ABORTED,
                      who + "launch #" + std::to_string(operation.number));
  }
  if (other.receives > other.sends_at_end) {
    return FailLocked(COMMSCHED_ABORTED,
                      who + "send #" + std::to_string(other.sends_at_end) +
                          " to " + Name(rank_));
  }
  if (other.sends > other.receives_at_end) {
    return FailLocked(COMMSCHED_ABORTED,
                      who + "receive #" +
                          std::to_string(other.receives_at_end) + " from " +
                          Name(rank_));
  }
}

// ---- Failure and end ----

// The first sticks.
void Comm::FailLocked(commsched_status_t status, const std::string& reason) {
  if (!failure_.ok() || left_) return;
  failure_ = {status == COMMSCHED_OK ? COMMSCHED_INTERNAL : status, reason};
  wake_(wake_user_);
}

void Comm::FailAndTell(commsched_status_t status, const std::string& reason) {
  if (!failure_.ok() || left_) return;
  FailLocked(status, reason);
  Notice notice;
  notice.kind = Notice::kAborted;
  notice.status = static_cast<int32_t>(failure_.code);
  SetText(reason, &notice);
  for (int peer = 0; peer < size(); ++peer) Tell(notice, peer);
}

// A message fails when a peer is gone, which the host is about to learn from
// those who know why. If it does not, the message's failure is what there is.
void Comm::Suspect(const std::string& reason) {
  if (!suspicion_.empty()) return;
  suspicion_ = reason;
  suspicion_deadline_ns_ =
      network_->host()->now_ns(network_->host()->user) + kSuspicionNs;
  wake_(wake_user_);
}

void Comm::Abort(commsched_status_t status, const char* message) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  FailAndTell(status, message == nullptr ? "" : message);
}

Outcome Comm::Status() {
  const std::lock_guard<std::mutex> lock(network_->mu());
  network_->Progress();
  return failure_;
}

uint32_t Comm::Missing(uint32_t request, int32_t* out_ranks,
                       uint32_t capacity) {
  const std::lock_guard<std::mutex> lock(network_->mu());
  network_->Progress();
  if (request >= operations_.size() || !operations_[request].active) return 0;
  const Operation& operation = operations_[request];
  uint32_t count = 0;
  for (int peer = 0; peer < size(); ++peer) {
    bool is_missing = !operation.heard[static_cast<size_t>(peer)];
    for (const Message& message : operation.messages) {
      // One that nobody has taken over: its receiver has not come.
      is_missing |= message.peer == peer && !message.is_receive &&
                    message.request != nullptr &&
                    operation.kind == COMMSCHED_SEND;
    }
    if (!is_missing) continue;
    if (count < capacity) out_ranks[count] = peer;
    ++count;
  }
  return count;
}

// Whether memory of launches may still be written to.
bool Comm::Receives() const {
  for (const Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (const Message& message : operation.messages) {
      if (message.is_receive && message.request != nullptr) return true;
    }
  }
  return false;
}

bool Comm::Sends() const {
  return std::any_of(
      operations_.begin(), operations_.end(),
      [](const Operation& operation) { return operation.outstanding != 0; });
}

// Whether some peer may still be given memory that this rank has sent.
bool Comm::IsRead() const {
  for (const Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (const Message& message : operation.messages) {
      const Peer& peer = peers_[static_cast<size_t>(message.peer)];
      if (!message.is_receive && message.request != nullptr &&
          !peer.has_stopped) {
        return true;
      }
    }
  }
  return false;
}

// After this the memory of launches is not touched any more. Cancels what
// nothing has come for, waits for what is being received, and for the others to
// have done the same. Of a peer that is gone in the middle of it, not for long:
// memory is touched by this rank's progress alone.
void Comm::Stop() {
  if (stopped_) return;
  stopped_ = true;
  const commsched_host_t* host = network_->host();
  const int64_t deadline_ns = host->now_ns(host->user) + kLeaveNs;
  for (Operation& operation : operations_) {
    if (operation.outstanding == 0) continue;
    for (Message& message : operation.messages) {
      if (message.is_receive) network_->Cancel(&message);
    }
  }
  do {
    network_->Progress();
  } while (Receives() && host->now_ns(host->user) < deadline_ns);
  Notice notice;
  notice.kind = Notice::kStopped;
  for (int peer = 0; peer < size(); ++peer) Tell(notice, peer);
  while (IsRead() && host->now_ns(host->user) < deadline_ns) {
    network_->Progress();
  }
}

void Comm::Leave() {
  const std::lock_guard<std::mutex> lock(network_->mu());
  Notice notice;
  notice.kind = Notice::kLeft;
  notice.launches = num_collectives_;
  for (const uint32_t request : order_) {
    const Operation& operation = operations_[request];
    if (operation.kind == COMMSCHED_SEND || operation.IsDone()) continue;
    notice.launches = std::min(notice.launches, operation.number);
  }
  // Who leaves because of a failure says which: it may be here before the word
  // of who failed first.
  if (!failure_.ok()) {
    notice.kind = Notice::kAborted;
    notice.status = static_cast<int32_t>(failure_.code);
    SetText(failure_.reason, &notice);
  }
  for (int peer = 0; peer < size(); ++peer) {
    notice.sent = peers_[static_cast<size_t>(peer)].sends;
    notice.received = peers_[static_cast<size_t>(peer)].receives;
    Tell(notice, peer);
  }
  if (Sends() || !failure_.ok()) Stop();
  left_ = true;
  network_->Cancel(&notice_message_);
  network_
      ->Flush();  // The others must hear of it, whoever makes progress next.
  network_->GiveId(id_, tags_);
  if (Sends() || notice_message_.request != nullptr) {
    network_->Bury(shared_from_this());
  }
}

}  // namespace commsched::ucx
