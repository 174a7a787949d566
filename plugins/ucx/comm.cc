#include "ucx/comm.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "ucx/algorithms/collectives.h"
#include "ucx/algorithms/pair_pack.h"
#include "ucx/process/close_on_exec.h"
#include "ucx/tags.h"

namespace commsched::ucx {
namespace {

// What is read of each peer and reduced at once: that much of all ranks stays
// in the core's cache.
constexpr uint64_t kBlockBytes = 128 << 10;
// Messages that may come before their receives are given room for beforehand,
// up to so many.
constexpr size_t kMostEarly = 4 << 10;
// Likewise receives with a tag that wait for their sends.
constexpr size_t kMostReady = 256;
// How long one look at whether the others are there may take.
constexpr int64_t kReadyNs = int64_t{10} * 1000 * 1000;

// Up to so much per rank a launch is timed by the host's clock: the thread's is
// a system call, which takes as long as a poll of a small launch. A poll takes
// no longer than its bytes at 1 GB/s; what is above that another thread had.
constexpr uint64_t kMostTimedBytes = 1 << 20;
constexpr int64_t kPollNs = int64_t{10} * 1000;

int64_t ThreadCpuNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

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

std::vector<int> HostsOf(const Network& network,
                         const commsched_comm_desc_t& desc) {
  std::vector<int> hosts;
  for (int32_t i = 0; i < desc.size; ++i) {
    hosts.push_back(network.endpoints()->HostOf(desc.ranks[i]));
  }
  return hosts;
}

Outcome NetworkStopped(int world_rank) {
  return {COMMSCHED_UNAVAILABLE,
          "rank " + std::to_string(world_rank) +
              ": another communicator failed with messages under way that do "
              "not end; join the world again"};
}

}  // namespace

Comm::Comm(Network* network, const commsched_comm_desc_t& desc)
    : network_(network),
      axis_(desc.axis),
      ranks_(desc.ranks, desc.ranks + desc.size),
      rank_(desc.rank),
      layout_(HostsOf(*network, desc)),
      offered_bytes_(network->OfferedBytesOf(layout_)),
      max_members_(desc.max_members),
      id_(desc.id),
      asks_starts_(desc.asks_starts != 0),
      made_ns_(network->host()->now_ns(network->host()->user)),
      choices_(layout_, network->choice()),
      pieces_(static_cast<size_t>(desc.size)),
      operations_(desc.max_in_flight),
      grown_(desc.max_in_flight),
      pacer_(ChunkBytesOn(layout_, network->choice().chunk_bytes)),
      early_(static_cast<size_t>(desc.size), network->window_bytes()),
      peers_(static_cast<size_t>(desc.size)),
      may_ask_all_(desc.max_in_flight),
      unsent_(std::make_shared<std::vector<uint32_t>>(peers_.size())) {
  order_.reserve(desc.max_in_flight);
  spare_.reserve(desc.max_in_flight);
}

Comm::~Comm() {
  const commsched_host_t* host = network_->host();
  for (Operation& operation : operations_) {
    host->free(host->user, operation.scratch.address);
  }
  for (const Scratch& spare : spare_) host->free(host->user, spare.address);
}

Outcome Comm::Create(Network* network, const commsched_comm_desc_t& desc,
                     std::shared_ptr<Comm>* out) {
  Outcome outcome = CheckDesc(desc, network->world_size());
  if (!outcome.ok()) return outcome;
  std::shared_ptr<Comm> comm(new Comm(network, desc));
  const std::lock_guard<std::mutex> lock(network->mu());
  if (network->stopped()) return NetworkStopped(network->world_rank());
  if (!network->TakeId(comm->id_, &comm->tags_)) {
    return {COMMSCHED_ALREADY_EXISTS,
            "rank " + std::to_string(network->world_rank()) +
                " has already joined '" + comm->id_ + "'"};
  }
  comm->join_ = std::make_unique<GroupJoin>(
      network, comm->layout_,
      GroupJoin::Spec{.ranks = &comm->ranks_,
                      .rank = comm->rank_,
                      .tags = comm->tags_,
                      .asks_starts = comm->asks_starts_});
  comm->ReceiveAnswers();
  network->Add(comm.get());
  network->notices()->Joined(comm->tags_);
  network->WillJoin(comm);
  *out = std::move(comm);
  return {};
}

// Members may be asked in another order for what they have made: so whichever
// communicator this rank is asked for, the others hear of all.
Outcome Comm::Ready(bool* ready, std::string* waits_for) {
  *ready = false;
  const commsched_host_t* host = network_->host();
  const int64_t deadline_ns = host->now_ns(host->user) + kReadyNs;
  for (const std::weak_ptr<Comm>& each : network_->TakeJoining()) {
    const std::shared_ptr<Comm> comm = each.lock();
    if (comm == nullptr || comm->left_) continue;
    std::string missing;
    const Outcome outcome = comm->Join(deadline_ns, &missing);
    if (comm->join_ != nullptr) network_->WillJoin(comm);
    if (comm.get() == this) *waits_for = missing;
    if (comm.get() == this && !outcome.ok()) return outcome;
  }
  const std::lock_guard<std::mutex> lock(network_->mu());
  if (join_ != nullptr || !failure_.ok()) return failure_;
  BeginExchange();
  *ready = true;
  return {};
}

Outcome Comm::Join(int64_t deadline_ns, std::string* waits_for) {
  for (const int peer : join_->neighbors()) {
    const Outcome outcome = network_->endpoints()->AwaitCard(
        ranks_[static_cast<size_t>(peer)], deadline_ns);
    if (outcome.code == COMMSCHED_DEADLINE_EXCEEDED) {
      *waits_for = Name(peer) + " has not told its address";
      return {};
    }
    if (!outcome.ok()) return outcome;
  }
  const std::lock_guard<std::mutex> lock(network_->mu());
  if (network_->stopped()) return NetworkStopped(network_->world_rank());
  for (const int peer : join_->neighbors()) Introduce(peer);
  network_->Progress();
  Outcome outcome = failure_.ok() ? join_->Advance() : failure_;
  if (!outcome.ok()) return outcome;
  for (const int peer : join_->neighbors()) {
    const int32_t world_rank = ranks_[static_cast<size_t>(peer)];
    if (network_->endpoints()->IsConnected(world_rank)) continue;
    *waits_for = Name(peer) + " has not handed over its shared memory";
    return {};
  }
  *waits_for = join_->WaitsFor();
  if (!join_->IsDone()) return {};
  any_asks_starts_ = join_->any_asks_starts();
  join_.reset();
  // Who was ready before may have wanted to meet this member.
  for (int peer = 0; peer < size(); ++peer) {
    if (peers_[static_cast<size_t>(peer)].has_joined) Introduce(peer);
    if (peers_[static_cast<size_t>(peer)].is_answer_due) AnswerAsked(peer);
  }
  return {};
}

bool Comm::MayConnect(const std::vector<bool>& peers,
                      const std::vector<bool>& bulk_peers) const {
  for (size_t peer = 0; peer < peers.size(); ++peer) {
    if (peers[peer] && !peers_[peer].is_introduced) return true;
    if (bulk_peers[peer] && network_->HasBulk(ranks_[peer])) return true;
  }
  return false;
}

// Any request may carry any launch. Those that carry one now, whose messages
// have to stay where they are, grow once they are done.
Outcome Comm::Expect(const commsched_launch_t* launches,
                     uint32_t num_launches) {
  Operation largest;
  uint64_t scratch_bytes = 0;
  std::vector<bool> peers(peers_.size());
  std::vector<bool> bulk_peers(peers_.size());
  for (uint32_t i = 0; i < num_launches; ++i) {
    Outcome outcome = CheckKind(launches[i]);
    if (outcome.ok()) outcome = CheckChoice(launches[i]);
    if (!outcome.ok()) return outcome;
    scratch_bytes =
        std::max(scratch_bytes, Measure(Task(launches[i]), &largest));
    std::vector<bool> own_peers(peers_.size());
    const uint64_t bytes = MarkPeersOf(*choices_.Of(launches[i]).algorithm,
                                       Task(launches[i]), &own_peers);
    const bool is_bulk = IsBulk(bytes);
    for (size_t peer = 0; peer < own_peers.size(); ++peer) {
      if (!own_peers[peer]) continue;
      peers[peer] = true;
      if (is_bulk) bulk_peers[peer] = true;
    }
  }
  for (size_t request = 0; request < operations_.size(); ++request) {
    if (!operations_[request].active) {
      operations_[request].Reserve(largest);
      continue;
    }
    std::unique_ptr<Operation>& grown = grown_[request];
    if (grown == nullptr) {
      grown = std::make_unique<Operation>();
      grown->Reserve(operations_[request]);
    }
    grown->Reserve(largest);
  }
  Outcome outcome = ReserveScratch(scratch_bytes, num_launches);
  if (!outcome.ok()) return outcome;
  const std::lock_guard<std::mutex> lock(network_->mu());
  // Peers have connected since the communicator was made, and may now. Where
  // all have, the rest of this takes less than to look at all descriptors.
  std::optional<CloseOnExec> close_on_exec;
  if (!has_expected_ || MayConnect(peers, bulk_peers)) close_on_exec.emplace();
  has_expected_ = true;
  const size_t num_early = std::min<size_t>(
      kMostEarly, operations_.size() * largest.messages.capacity());
  if (num_early > num_early_) {
    network_->ReserveEarly(num_early - num_early_);
    num_early_ = num_early;
  }
  const bool any_tagged = std::any_of(
      launches, launches + num_launches, [](const commsched_launch_t& launch) {
        return (launch.flags & COMMSCHED_LAUNCH_TAGGED) != 0;
      });
  if (any_tagged) {
    const size_t num_ready =
        std::min(kMostReady, operations_.size() * max_members_);
    ready_pool_.Reserve(num_ready);
    network_->notices()->Reserve(num_ready);
  }
  for (int peer = 0; peer < size(); ++peer) {
    const auto index = static_cast<size_t>(peer);
    if (peers[index]) Introduce(peer);
    if (bulk_peers[index] && peers_[index].is_introduced) {
      network_->PrepareBulk(ranks_[index]);
    }
  }
  network_->Progress();
  return failure_;
}

// As many as may be in flight of what has been expected, as large as the
// largest needs; what is lent and smaller ends with its launch. Memory that is
// never used never gets pages.
Outcome Comm::ReserveScratch(uint64_t bytes, uint32_t num_launches) {
  if (bytes == 0) return {};
  expected_bytes_ = std::max(expected_bytes_, bytes);
  num_expected_ =
      std::min<size_t>(operations_.size(), num_expected_ + num_launches);
  size_t num_large = 0;
  for (const Operation& operation : operations_) {
    const bool is_large = operation.scratch.bytes >= expected_bytes_;
    num_large += operation.active && is_large ? 1 : 0;
  }
  for (Scratch& spare : spare_) {
    Outcome outcome = Allocate(expected_bytes_, &spare);
    if (!outcome.ok()) return outcome;
    ++num_large;
  }
  for (; num_large < num_expected_; ++num_large) {
    Scratch scratch;
    Outcome outcome = Allocate(expected_bytes_, &scratch);
    if (!outcome.ok()) return outcome;
    spare_.push_back(scratch);
  }
  return {};
}

uint64_t Comm::Tag(int source, uint64_t type) const {
  return TagOf(tags_, source, type);
}

uint64_t Comm::DataTag(const Operation& operation,
                       const Message& message) const {
  const int source = message.is_receive ? message.peer : rank_;
  if (operation.is_tagged) {
    return Tag(source,
               kTaggedType + (message.is_receive ? message.owner
                                                 : message.ready_request));
  }
  return Tag(source, operation.kind == COMMSCHED_SEND
                         ? kPeersType + message.number % kNumPeersTypes
                         : operation.number % kNumLaunches * kNumPhases +
                               message.phase);
}

std::string Comm::Name(int peer) const {
  return "rank " + std::to_string(ranks_[static_cast<size_t>(peer)]);
}

// ---- Launches ----

// What was used last is in the cache; the largest one soon is enough for all.
Outcome Comm::Lend(uint64_t bytes, Scratch* scratch) {
  if (bytes == 0) return {};
  if (!spare_.empty()) {
    *scratch = spare_.back();
    spare_.pop_back();
  }
  return Allocate(bytes, scratch);
}

// At least so many.
Outcome Comm::Allocate(uint64_t bytes, Scratch* scratch) {
  if (scratch->bytes >= bytes) return {};
  const commsched_host_t* host = network_->host();
  host->free(host->user, scratch->address);
  *scratch = {};
  scratch->address = static_cast<char*>(host->alloc(host->user, bytes));
  if (scratch->address == nullptr) {
    return {COMMSCHED_RESOURCE_EXHAUSTED,
            "no memory for " + std::to_string(bytes) + " bytes of scratch"};
  }
  scratch->bytes = bytes;
  return {};
}

void Comm::TakeBack(Scratch* scratch) {
  if (scratch->bytes >= expected_bytes_ && scratch->address != nullptr) {
    spare_.push_back(*scratch);
  } else {
    network_->host()->free(network_->host()->user, scratch->address);
  }
  *scratch = {};
}

namespace {

// What is wrong with the launch's flags; "": nothing.
std::string WrongFlags(const commsched_launch_t& launch) {
  const std::string flags = "flags " + std::to_string(launch.flags);
  switch (launch.flags) {
    case 0:
      return "";
    case COMMSCHED_LAUNCH_TAGGED:
      if (launch.kind == COMMSCHED_SEND) return "";
      return flags + ": tagged, which only sends and receives are";
    case COMMSCHED_LAUNCH_OWN_COUNTS:
      if (launch.kind == COMMSCHED_ALL_TO_ALL) return "";
      return flags + ": with own counts, which only an all-to-all has";
    default:
      return flags + " are unknown";
  }
}

// What is wrong with own counts, of `rank` of `size`; "": nothing.
std::string WrongCounts(const commsched_launch_t& launch, int rank, int size) {
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    const std::string member = "member " + std::to_string(m) + ": ";
    const uint64_t* const counts = launch.members[m].counts;
    if (counts == nullptr) {
      return member + "its counts are NULL; a launch with own counts has " +
             std::to_string(2 * size);
    }
    const uint64_t sent = counts[rank];
    const uint64_t expected = counts[size + rank];
    if (sent != expected) {
      return member + "its counts have rank " + std::to_string(rank) +
             " of the group send " + std::to_string(sent) +
             " elements to itself, and get " + std::to_string(expected);
    }
  }
  return "";
}

}  // namespace

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
  } else {
    why = WrongFlags(launch);
  }
  if (why.empty() && HasOwnCounts(launch)) {
    why = WrongCounts(launch, rank_, size());
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

Outcome Comm::CheckChoice(const commsched_launch_t& launch) {
  return OnAxis(choices_.Check(launch));
}

Outcome Comm::OnAxis(Outcome outcome) const {
  if (!outcome.ok()) outcome.reason = "axis '" + axis_ + "', " + outcome.reason;
  return outcome;
}

Outcome Comm::Estimate(const commsched_launch_t& launch,
                       commsched_launch_estimate_t* out_estimate) const {
  Outcome outcome = CheckKind(launch);
  if (!outcome.ok()) return outcome;
  const ucx::Estimate estimate = choices_.EstimateOf(launch);
  outcome = OnAxis(choices_.Refusal(launch, estimate.choice));
  if (!outcome.ok()) return outcome;
  out_estimate->algorithm = estimate.choice.algorithm->name;
  out_estimate->predicted_ns = estimate.choice.predicted_ns;
  out_estimate->link_bytes = estimate.crossing.link_bytes;
  out_estimate->messages = static_cast<uint64_t>(estimate.messages);
  out_estimate->pieces = estimate.crossing.pieces;
  out_estimate->num_hosts = static_cast<uint32_t>(layout_.num_hosts());
  return {};
}

Outcome Comm::Launch(const commsched_launch_t& launch, uint32_t request) {
  const commsched_host_t* host = network_->host();
  const int64_t begin_ns = exchange_ == nullptr ? 0 : host->now_ns(host->user);
  {
    const std::lock_guard<std::mutex> lock(network_->mu());
    if (!failure_.ok()) return failure_;
  }
  Outcome outcome = CheckLaunch(launch, request);
  if (outcome.ok()) outcome = CheckKind(launch);
  Choice choice;
  if (outcome.ok()) {
    choice = choices_.Of(launch);
    outcome = OnAxis(choices_.Refusal(launch, choice));
  }
  if (outcome.ok()) {
    Operation* const operation = &operations_[request];
    const Algorithm& algorithm = *choice.algorithm;
    outcome = Lend(ScratchBytes(algorithm, Task(launch), operation),
                   &operation->scratch);
    if (outcome.ok()) Build(algorithm, Task(launch), operation);
  }
  const std::lock_guard<std::mutex> lock(network_->mu());
  if (!outcome.ok()) {
    FailLocked(outcome.code, outcome.reason);
    return outcome;
  }
  Operation& operation = operations_[request];
  operation.active = true;
  may_ask_all_[request] = false;
  operation.root = launch.root;
  operation.is_tagged = (launch.flags & COMMSCHED_LAUNCH_TAGGED) != 0;
  operation.tag = operation.is_tagged ? launch.tag : 0;
  order_.push_back(request);
  operation.serial = num_launches_++;
  if (launch.kind != COMMSCHED_SEND) operation.number = num_collectives_++;
  operation.bytes = 0;
  for (Message& message : operation.messages) {
    message.owner = request;
    message.receiver = this;
    operation.bytes += message.bytes;
  }
  MeetPeers(operation);
  if (launch.kind == COMMSCHED_SEND) CountPeers(&operation);
  if (size() == 1 ||
      (launch.kind == COMMSCHED_SEND && operation.num_unheard == 0)) {
    operation.started_ns = host->now_ns(host->user);
  }
  operation.is_bulk =
      IsBulk(operation.bytes) && HasBulkToAll(operation.messages);
  operation.is_paced = IsPaced(operation);
  if (network_->gathers()) operation.far_bytes = FarBytes(operation);
  PostFirst(&operation);
  PostPaced();
  for (int peer = 0; num_to_tell_ != 0 && peer < size(); ++peer) {
    TellOncePosted(peer);
  }
  if (launch.kind != COMMSCHED_SEND) LogLaunch(launch);
  if (exchange_ != nullptr && launch.kind != COMMSCHED_SEND) {
    exchange_->Issued(launch.step, launch.key, begin_ns);
  }
  for (int peer = 0; peer < size(); ++peer) FailIfLeft(peer);
  if (!failure_.ok()) Stop();
  return failure_;
}

// Of a launch that has not been expected.
void Comm::MeetPeers(const Operation& operation) {
  const bool have_met = std::all_of(
      operation.messages.begin(), operation.messages.end(),
      [&](const Message& message) {
        return peers_[static_cast<size_t>(message.peer)].is_introduced;
      });
  if (have_met) return;
  const CloseOnExec close_on_exec;
  for (const Message& message : operation.messages) Introduce(message.peer);
}

// Sends and receives between two ranks are matched by their numbers, unless
// they have tags.
void Comm::CountPeers(Operation* operation) {
  for (Message& message : operation->messages) {
    Peer& peer = peers_[static_cast<size_t>(message.peer)];
    if (!operation->is_tagged) {
      message.number = ++(message.is_receive ? peer.receives : peer.sends);
    }
    if (!message.is_receive || peer.received_in == operation->serial) continue;
    peer.received_in = operation->serial;
    ++operation->num_unheard;
  }
}

Outcome Comm::Poll(uint32_t request, commsched_launch_result_t* out_result) {
  *out_result = {};
  // Only this thread, that of launch and poll, changes what is active, and the
  // list of it.
  if (request >= operations_.size() || !operations_[request].active) {
    return {COMMSCHED_INVALID_ARGUMENT, "poll of request " +
                                            std::to_string(request) +
                                            ", which is not in flight"};
  }
  Operation& operation = operations_[request];
  const int64_t begin_ns = ClockNs(operation);
  std::unique_lock<std::mutex> lock(network_->mu());
  network_->Progress();
  if (network_->stopped()) {
    const Outcome stopped = NetworkStopped(network_->world_rank());
    FailLocked(stopped.code, stopped.reason);
  }
  if (HasDueStep()) {
    lock.unlock();
    for (const uint32_t in_flight : order_) Advance(&operations_[in_flight]);
    lock.lock();
  }
  if (!failure_.ok()) {
    Stop();
    return failure_;
  }
  if (suspicion_.empty()) PostHeld();
  PostPaced();
  if (pacer_.IsWaiting()) out_result->wake_at_ns = pacer_.StallsAtNs();
  operation.cpu_ns += SpentNs(operation, begin_ns);
  // A message that failed is under way no more, but nothing is complete.
  if (!suspicion_.empty()) {
    const commsched_host_t* host = network_->host();
    if (host->now_ns(host->user) >= suspicion_deadline_ns_) {
      FailLocked(COMMSCHED_UNAVAILABLE, suspicion_);
      Stop();
      return failure_;
    }
    out_result->wake_at_ns = suspicion_deadline_ns_;
    return {};
  }
  if (!operation.IsDone()) return {};
  out_result->done = 1;
  out_result->started_ns = operation.started_ns;
  out_result->cpu_ns = operation.cpu_ns;
  operation.active = false;
  TakeBack(&operation.scratch);
  if (grown_[request] != nullptr) {
    operation = std::move(*grown_[request]);
    grown_[request].reset();
  }
  order_.erase(std::find(order_.begin(), order_.end(), request));
  return {};
}

int64_t Comm::ClockNs(const Operation& operation) const {
  if (operation.bytes > kMostTimedBytes) return ThreadCpuNs();
  return network_->host()->now_ns(network_->host()->user);
}

int64_t Comm::SpentNs(const Operation& operation, int64_t begin_ns) const {
  const int64_t spent_ns = ClockNs(operation) - begin_ns;
  if (operation.bytes > kMostTimedBytes) return spent_ns;
  return std::min(spent_ns, kPollNs + static_cast<int64_t>(operation.bytes));
}

bool Comm::HasDueStep() const {
  return std::any_of(order_.begin(), order_.end(), [&](uint32_t request) {
    return operations_[request].HasDueStep();
  });
}

void Comm::Advance(Operation* operation) {
  for (uint32_t kind = 0; kind < kNumStepKinds; ++kind) {
    while (TakeStep(operation, kind)) {
    }
  }
}

// The next one of its kind, if it is due.
bool Comm::TakeStep(Operation* operation, uint32_t kind) {
  Step* step = nullptr;
  {
    const std::lock_guard<std::mutex> lock(network_->mu());
    // After a message that failed, what is to be summed up may not be there.
    if (!failure_.ok() || !suspicion_.empty()) return false;
    if (operation->is_held) return false;
    const uint32_t next = operation->next_step[kind];
    if (next == operation->end_step[kind]) return false;
    step = &operation->steps[next];
    if (step->waiting != 0) return false;
  }
  Outcome summed;
  if (step->num_inputs != 0) summed = Sum(*operation, *step);
  const bool counts_agree = CountsAgree(*step);
  if (summed.ok() && counts_agree) TakeCopies(*operation, *step);
  const std::lock_guard<std::mutex> lock(network_->mu());
  if (!failure_.ok()) return false;
  if (!summed.ok()) {
    Suspect(summed.reason);
    return false;
  }
  if (!counts_agree) {
    IsOther(*operation, step->check);
    return false;
  }
  for (uint32_t i = 0; i < step->num_inputs; ++i) {
    const uint32_t index = operation->inputs[step->first_input + i].message;
    if (index == Operation::kNoMessage) continue;
    Message& message = operation->messages[index];
    if (message.offer.magic != 0) Answer(&message);
  }
  ++operation->next_step[kind];
  Post(operation, step->first_post, step->num_posts);
  // Until now nothing could be issued behind it.
  if (operation->IsDone()) SetFreed(*operation);
  return true;
}

// What has only been offered is read here, block by block.
Outcome Comm::Sum(const Operation& operation, const Step& step) {
  const commsched_host_t* host = network_->host();
  const Input* const inputs = operation.inputs.data() + step.first_input;
  const uint64_t element = ElementBytes(operation.dtype);
  const uint64_t partial = PartialBytes(operation.dtype, operation.reduce_op);
  const auto offer_of = [&](const Input& input) -> const Offer* {
    if (input.message == Operation::kNoMessage) return nullptr;
    const Offer& offer = operation.messages[input.message].offer;
    return offer.magic == 0 ? nullptr : &offer;
  };
  const bool any_offered = std::any_of(
      inputs, inputs + step.num_inputs,
      [&](const Input& input) { return offer_of(input) != nullptr; });
  const uint64_t block =
      any_offered ? std::max<uint64_t>(1, kBlockBytes / partial) : step.count;
  commsched_tree_sum_t sum = {};
  sum.struct_size = sizeof(sum);
  sum.dtype = operation.dtype;
  sum.op = operation.reduce_op;
  sum.scale = operation.scale;
  sum.size = static_cast<uint32_t>(size());
  sum.num_pieces = step.num_inputs;
  sum.pieces = pieces_.data();
  sum.output_is_partial = step.output_is_partial ? 1 : 0;
  const uint64_t output_bytes = step.output_is_partial ? partial : element;
  for (uint64_t done = 0; done < step.count; done += block) {
    sum.count = std::min(block, step.count - done);
    for (uint32_t i = 0; i < step.num_inputs; ++i) {
      const Input& input = inputs[i];
      const uint64_t bytes = input.is_partial ? partial : element;
      const Offer* const offer = offer_of(input);
      pieces_[i] = {static_cast<uint32_t>(input.node.begin),
                    static_cast<uint32_t>(input.node.end),
                    input.is_partial ? 1U : 0U, 0,
                    static_cast<const char*>(input.data) +
                        (offer == nullptr ? done * bytes : 0)};
      if (offer == nullptr) continue;
      // Each block into the same memory, which is in the cache.
      const int peer = operation.messages[input.message].peer;
      const bool is_last = done + sum.count == step.count;
      const auto read_by = is_last ? &Endpoints::Read : &Endpoints::ReadPart;
      Outcome read = (network_->endpoints()->*read_by)(
          ranks_[static_cast<size_t>(peer)], offer->address + done * bytes,
          const_cast<void*>(input.data), sum.count * bytes);
      if (!read.ok()) return {read.code, Name(peer) + ": " + read.reason};
    }
    sum.output = static_cast<char*>(step.output) + done * output_bytes;
    host->reduce_tree(host->user, &sum);
  }
  return {};
}

}  // namespace commsched::ucx
