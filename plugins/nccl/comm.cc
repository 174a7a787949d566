#include "comm.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace commsched::nccl {
namespace {

// How long one look for the unique id may block; and one on a thread that does
// nothing else.
constexpr int64_t kLookNs = int64_t{5} * 1000 * 1000;
constexpr int64_t kApartNs = int64_t{50} * 1000 * 1000;

// Each byte of a yes, and its value as a float.
constexpr int kYesByte = 0x3f;
constexpr float kYes = 0x1.7e7e7ep-1f;

Outcome FirstOf(Outcome first, Outcome second) {
  return first.ok() ? std::move(second) : std::move(first);
}

Outcome CheckDesc(const commsched_comm_desc_t& desc, int world_size) {
  const auto refuse = [&](const std::string& why) -> Outcome {
    return {COMMSCHED_INVALID_ARGUMENT,
            "communicator of axis '" + std::string(desc.axis) + "': " + why};
  };
  if (desc.size < 1 || desc.size > world_size || desc.rank < 0 ||
      desc.rank >= desc.size) {
    return refuse("rank " + std::to_string(desc.rank) + " of " +
                  std::to_string(desc.size) + ", the world has " +
                  std::to_string(world_size));
  }
  std::vector<bool> seen(static_cast<size_t>(world_size));
  for (int32_t i = 0; i < desc.size; ++i) {
    const int32_t rank = desc.ranks[i];
    if (rank < 0 || rank >= world_size) {
      return refuse("rank " + std::to_string(rank) +
                    " is not in the world of " + std::to_string(world_size));
    }
    if (seen[static_cast<size_t>(rank)]) {
      return refuse("rank " + std::to_string(rank) + " is a member twice");
    }
    seen[static_cast<size_t>(rank)] = true;
  }
  if (desc.max_in_flight < 1) return refuse("0 launches in flight");
  return {};
}

// Older hosts do not say.
uint32_t NumLanes(const commsched_comm_desc_t& desc) {
  const bool says =
      desc.struct_size >=
      offsetof(commsched_comm_desc_t, num_lanes) + sizeof(desc.num_lanes);
  return says ? desc.num_lanes : 1;
}

// Likewise.
bool IsInAnyOrder(const commsched_comm_desc_t& desc) {
  return desc.struct_size >= offsetof(commsched_comm_desc_t, in_any_order) +
                                 sizeof(desc.in_any_order) &&
         desc.in_any_order != 0;
}

}  // namespace

Comm::Comm(Rank* rank, const commsched_comm_desc_t& desc)
    : rank_(*rank),
      library_(rank->library()),
      key_(rank->KeyOf(desc.id)),
      name_("axis " + std::string(desc.axis)),
      size_(desc.size),
      group_rank_(desc.rank),
      in_any_order_(IsInAnyOrder(desc)) {
  // A communicator that does not block would put kernels behind our events.
  config_.blocking = 1;
  ranks_.assign(desc.ranks, desc.ranks + desc.size);
  for (int member = 0; member < size_; ++member) {
    if (member == group_rank_ || !rank->IsOnHost(desc.ranks[member])) continue;
    on_host_.push_back(member);
  }
}

Outcome Comm::Create(Rank* rank, const commsched_comm_desc_t& desc,
                     std::shared_ptr<Comm>* out_comm) {
  const Outcome checked = CheckDesc(desc, rank->world_size());
  if (!checked.ok()) return checked;
  std::shared_ptr<Comm> comm(new Comm(rank, desc));
  const Outcome fits = rank->config().ForLanes(
      NumLanes(desc), rank->multiprocessors(), &comm->config_);
  if (!fits.ok()) return {fits.code, comm->name_ + ": " + fits.reason};
  ncclUniqueId id = {};
  if (desc.rank == 0) {
    Outcome outcome =
        comm->Check("ncclGetUniqueId", rank->library().GetUniqueId(&id));
    if (outcome.ok()) outcome = rank->Put(comm->key_, &id, sizeof(id));
    if (!outcome.ok()) return outcome;
  }
  if (comm->in_any_order_) {
    const Outcome outcome = rank->Put(comm->KeyOfMember(desc.rank), "", 0);
    if (!outcome.ok()) return outcome;
    comm->state_ = State::kJoining;
    rank->RunAside([comm, id] { comm->JoinApart(id); });
  } else {
    rank->WillJoin(comm);
  }
  *out_comm = std::move(comm);
  return {};
}

std::string Comm::KeyOfMember(int member) const {
  return key_ + " member " + std::to_string(member);
}

// In pieces, in between which somebody may have aborted it.
Outcome Comm::AwaitValue(const std::string& key, void* value, uint64_t bytes) {
  while (!aborted_ && !leaves_) {
    const Outcome got = rank_.Get(key, value, bytes, rank_.NowNs() + kApartNs);
    if (got.code != COMMSCHED_DEADLINE_EXCEEDED) return got;
  }
  return {COMMSCHED_ABORTED, "aborted"};
}

// NCCL would wait for who does not come, and for nothing else.
Outcome Comm::AwaitMembers(ncclUniqueId* id) {
  Outcome outcome;
  for (int member = 0; member < size_ && outcome.ok(); ++member) {
    if (member == group_rank_) continue;
    outcome = AwaitValue(KeyOfMember(member), nullptr, 0);
  }
  if (outcome.ok() && group_rank_ != 0) {
    outcome = AwaitValue(key_, id, sizeof(*id));
  }
  return outcome;
}

void Comm::JoinApart(const ncclUniqueId& id) {
  ncclUniqueId found = id;
  const Outcome met = AwaitMembers(&found);
  Meet([&](cudaStream_t stream) {
    if (!met.ok()) return met;
    const Outcome connected = Connect(found, stream);
    return connected.ok() ? ExchangeAmongAll(stream) : connected;
  });
}

Outcome Comm::IsReady(uint32_t* out_ready) {
  *out_ready = 0;
  Outcome failure = Failure();
  if (!failure.ok()) return failure;
  bool joins = false;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (state_ == State::kReady) *out_ready = 1;
    joins = state_ != State::kNoId;
  }
  return joins || in_any_order_ ? Outcome() : rank_.JoinInOrder();
}

Outcome Comm::TryJoin(bool* out_joins) {
  ncclUniqueId id = {};
  const Outcome got = rank_.Get(key_, &id, sizeof(id), rank_.NowNs() + kLookNs);
  *out_joins = got.ok();
  if (got.code == COMMSCHED_DEADLINE_EXCEEDED) return {};
  if (!got.ok()) return got;
  const std::lock_guard<std::mutex> lock(mu_);
  state_ = State::kJoining;
  rank_.Post([self = shared_from_this(), id] { self->Join(id); });
  return {};
}

// On the rank's thread. Waits for the other members, without the lock.
void Comm::Join(const ncclUniqueId& id) {
  Meet([&](cudaStream_t stream) { return Connect(id, stream); });
}

void Comm::Meet(const std::function<Outcome(cudaStream_t)>& calls) {
  cudaStream_t stream = nullptr;
  Outcome outcome = {COMMSCHED_ABORTED, "aborted"};
  if (!aborted_ && !leaves_) {
    outcome = rank_.OnDevice([&] {
      const Outcome made = MakeStream(&stream);
      return made.ok() ? calls(stream) : made;
    });
  }
  if (!EnterWarmUp()) {
    EndJoin();
  } else if (outcome.ok()) {
    outcome = AwaitKernels(stream);
  }
  if (stream != nullptr) {
    outcome = FirstOf(std::move(outcome),
                      library_.CheckCuda("cudaStreamDestroy",
                                         library_.cuda.StreamDestroy(stream)));
  }
  FinishJoin(std::move(outcome));
}

// From here on an abort ends what is waited for.
Outcome Comm::AwaitKernels(cudaStream_t stream) {
  const auto synchronize = [&] {
    return library_.CheckCuda("cudaStreamSynchronize",
                              library_.cuda.StreamSynchronize(stream));
  };
  Outcome outcome = synchronize();
  if (!outcome.ok() || (is_expected_ && !registers_)) return outcome;
  // Whoever aborts it takes that memory back. The stream is at rest, so that
  // the copy, which returns once it has been made, waits for nobody.
  const std::lock_guard<std::mutex> lock(mu_);
  if (state_ != State::kWarming) return outcome;
  outcome = library_.CheckCuda(
      "cudaMemcpyAsync",
      library_.cuda.MemcpyAsync(&num_agreed_, barrier_.address, sizeof(float),
                                cudaMemcpyDeviceToHost, stream));
  return outcome.ok() ? synchronize() : outcome;
}

Outcome Comm::MakeStream(cudaStream_t* out_stream) {
  return library_.CheckCuda("cudaStreamCreateWithPriority",
                            library_.cuda.StreamCreateWithPriority(
                                out_stream, cudaStreamNonBlocking, 0));
}

Outcome Comm::Connect(const ncclUniqueId& id, cudaStream_t stream) {
  ncclComm_t comm = nullptr;
  Outcome outcome = library_.Check(
      "ncclCommInitRankConfig",
      library_.CommInitRankConfig(&comm, size_, id, group_rank_, &config_));
  if (!outcome.ok()) return outcome;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    comm_ = comm;
  }
  if (aborted_) return {COMMSCHED_ABORTED, "aborted"};
  outcome = rank_.TakeScratch(static_cast<uint64_t>(size_) * sizeof(float),
                              &barrier_);
  if (!outcome.ok()) return outcome;
  return Agree(rank_.config().registers() && library_.CommRegister != nullptr &&
                   library_.CommDeregister != nullptr,
               stream);
}

// The sum of one element that barriers are connects them, too.
Outcome Comm::Agree(bool mine, cudaStream_t stream) {
  Outcome outcome = library_.CheckCuda(
      "cudaMemsetAsync",
      library_.cuda.MemsetAsync(barrier_.address, mine ? kYesByte : 0,
                                sizeof(float), stream));
  if (!outcome.ok()) return outcome;
  outcome = Check("ncclAllReduce",
                  library_.AllReduce(barrier_.address, barrier_.address, 1,
                                     ncclFloat, ncclSum, comm_, stream));
  if (!outcome.ok()) return outcome;
  commsched_member_t member = {};
  member.count = 1;
  commsched_launch_t sum = {};
  sum.struct_size = sizeof(sum);
  sum.kind = COMMSCHED_ALL_REDUCE;
  sum.num_members = 1;
  sum.members = &member;
  const std::lock_guard<std::mutex> lock(mu_);
  warmed_up_.Learn(WarmUp::Of(
      &sum, 1, size_, [](const auto&) { return false; }, warmed_up_));
  return outcome;
}

bool Comm::has_agreed() const {
  return num_agreed_ > kYes * (static_cast<float>(size_) - 0.5f);
}

Outcome Comm::ConnectFor(WarmUp warm_up) {
  const std::lock_guard<std::mutex> lock(mu_);
  // Members agree anew whether they register memory, where they did.
  const bool has_news = !warm_up.empty() || !is_expected_ || registers_;
  if (!has_news || size_ == 1) return {};
  is_expected_ = true;
  if (has_failed()) return Failure();
  if (state_ != State::kReady) {
    return {COMMSCHED_FAILED_PRECONDITION, name_ + " is not connected"};
  }
  state_ = State::kJoining;
  warmed_up_.Learn(warm_up);
  rank_.Post([self = shared_from_this(), warm_up = std::move(warm_up)] {
    self->Meet([&](cudaStream_t stream) {
      return self->ConnectLaunches(warm_up, stream);
    });
  });
  return {};
}

// NCCL connects members in the first call that needs the connection, and waits
// for the peer there.
Outcome Comm::ConnectLaunches(const WarmUp& warm_up, cudaStream_t stream) {
  Outcome outcome;
  if (warm_up.bytes() != 0) {
    outcome = rank_.TakeScratch(warm_up.bytes(), &warm_up_);
  }
  if (outcome.ok()) outcome = LaunchClasses(warm_up, stream);
  if (outcome.ok()) outcome = Exchange(warm_up, stream);
  if (!outcome.ok() || !registers_) return outcome;
  return Agree(RegisterAll(), stream);
}

Outcome Comm::LaunchClasses(const WarmUp& warm_up, cudaStream_t stream) {
  for (const auto& each : warm_up.Launches(warm_up_.address)) {
    const Outcome outcome = InGroup([&]() -> Outcome {
      if (!each.in_order) return LaunchMembers(each.launch, stream);
      for (const commsched_member_t& member : each.members) {
        const Outcome gathered = GatherParts(each.launch, member, stream);
        if (!gathered.ok()) return gathered;
      }
      return {};
    });
    if (!outcome.ok()) return outcome;
  }
  return {};
}

// Sends and receives have connections of their own.
Outcome Comm::Exchange(const WarmUp& warm_up, cudaStream_t stream) {
  float* const elements = static_cast<float*>(barrier_.address);
  return InGroup([&] {
    Outcome outcome;
    for (int peer = 0; peer < size_ && outcome.ok(); ++peer) {
      if (peer == group_rank_) continue;
      if (warm_up.receivers().contains(peer)) {
        outcome =
            Check("ncclSend", library_.Send(elements + group_rank_, 1,
                                            ncclFloat, peer, comm_, stream));
      }
      if (outcome.ok() && warm_up.senders().contains(peer)) {
        outcome = Check("ncclRecv", library_.Recv(elements + peer, 1, ncclFloat,
                                                  peer, comm_, stream));
      }
    }
    return outcome;
  });
}

Outcome Comm::ExchangeAmongAll(cudaStream_t stream) {
  std::vector<commsched_member_t> members;
  for (int peer = 0; peer < size_; ++peer) {
    for (const uint32_t direction : {COMMSCHED_SEND, COMMSCHED_RECV}) {
      commsched_member_t member = {};
      member.peer = peer;
      member.direction = direction;
      members.push_back(member);
    }
  }
  commsched_launch_t messages = {};
  messages.struct_size = sizeof(messages);
  messages.kind = COMMSCHED_SEND;
  messages.num_members = static_cast<uint32_t>(members.size());
  messages.members = members.data();
  const WarmUp among_all = WarmUp::Of(
      &messages, 1, size_, [](const auto&) { return false; }, WarmUp());
  {
    const std::lock_guard<std::mutex> lock(mu_);
    warmed_up_.Learn(among_all);
  }
  return Exchange(among_all, stream);
}

// From here on whoever aborts it takes it.
bool Comm::EnterWarmUp() {
  const std::lock_guard<std::mutex> lock(mu_);
  if (aborted_ || leaves_) return false;
  state_ = State::kWarming;
  return true;
}

// Whoever has aborted it has left that to the rank's thread.
void Comm::EndJoin() {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    comm = std::exchange(comm_, nullptr);
    state_ = State::kLeaving;
  }
  if (comm != nullptr) {
    const Outcome aborted =
        library_.Check("ncclCommAbort", library_.CommAbort(comm));
    if (!aborted.ok()) rank_.Log(name_ + ": " + aborted.reason);
  }
  SayEnded();
  Left();
}

void Comm::FinishJoin(Outcome outcome) {
  std::unique_lock<std::mutex> lock(mu_);
  if (warm_up_.address != nullptr) {
    rank_.ReturnScratch(std::exchange(warm_up_, {}));
  }
  if (state_ == State::kWarming) {
    state_ = outcome.ok() ? State::kReady : State::kFailed;
    // Before it is ready for a launch, of whichever member.
    if (outcome.ok()) registers_ = has_agreed();
    if (!registers_) DeregisterAll();
  }
  Fail(std::move(outcome));
  changed_.notify_all();
  lock.unlock();
  rank_.Wake();
  lock.lock();
  // Whoever is told of the failure aborts the communicators that come next. To
  // join one now could be to wait for members that have been told already.
  changed_.wait(lock, [this] { return state_ != State::kFailed || leaves_; });
}

void Comm::Fail(Outcome why) {
  if (why.ok()) return;
  const std::lock_guard<std::mutex> lock(failure_mu_);
  if (!failure_.ok()) return;
  failure_ = std::move(why);
  failed_.store(true, std::memory_order_release);
}

Outcome Comm::Failure() {
  if (!has_failed()) return {};
  const std::lock_guard<std::mutex> lock(failure_mu_);
  return failure_;
}

// Who enqueues a launch is not held up by who looks on; who aborts it is.
Outcome Comm::Status() {
  Outcome outcome = Failure();
  if (!outcome.ok()) return outcome;
  const std::unique_lock<std::mutex> look(look_mu_, std::try_to_lock);
  if (!look.owns_lock()) return {};
  ncclComm_t comm = nullptr;
  {
    const std::unique_lock<std::mutex> lock(mu_, std::try_to_lock);
    if (!lock.owns_lock() || state_ != State::kReady) return {};
    comm = comm_;
  }
  ncclResult_t result = ncclSuccess;
  outcome =
      Check("ncclCommGetAsyncError", library_.CommGetAsyncError(comm, &result));
  if (outcome.ok() && result != ncclInProgress) {
    outcome = Check("asynchronous error", result);
  }
  if (outcome.ok()) return outcome;
  outcome.reason = name_ + ": " + outcome.reason;
  Fail(std::move(outcome));
  return Failure();
}

// Without mu_, in which a launch may wait for what the abort is to end.
bool Comm::MarkAborted(commsched_status_t status, const std::string& why) {
  Fail({status, why});
  return !aborted_.exchange(true);
}

bool Comm::Take(ncclComm_t* out_comm) {
  const std::lock_guard<std::mutex> look(look_mu_);
  const std::lock_guard<std::mutex> lock(mu_);
  return TakeLocked(out_comm);
}

bool Comm::TryTake(bool* out_is_mine, ncclComm_t* out_comm) {
  const std::unique_lock<std::mutex> look(look_mu_, std::try_to_lock);
  if (!look.owns_lock()) return false;
  const std::unique_lock<std::mutex> lock(mu_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  *out_is_mine = TakeLocked(out_comm);
  return true;
}

bool Comm::TakeLocked(ncclComm_t* out_comm) {
  // One that is being joined is ended by who joins it.
  if (state_ == State::kJoining || state_ == State::kLeaving ||
      state_ == State::kGone) {
    return false;
  }
  state_ = State::kLeaving;
  changed_.notify_all();
  *out_comm = std::exchange(comm_, nullptr);
  return true;
}

std::string Comm::EndedKey(int member) const {
  return key_ + " has ended on member " + std::to_string(member);
}

void Comm::SayEnded() {
  if (on_host_.empty()) return;
  const Outcome said = rank_.Put(EndedKey(group_rank_), "1", 1);
  if (!said.ok()) rank_.Log(name_ + ": " + said.reason);
}

Outcome Comm::AwaitEnded(int64_t deadline_ns) {
  for (const int member : on_host_) {
    char value = 0;
    Outcome outcome = rank_.Get(EndedKey(member), &value, 1, deadline_ns);
    if (outcome.ok()) continue;
    outcome.reason =
        name_ + ": member " + std::to_string(member) +
        " has not said that its kernels have ended: " + outcome.reason;
    return outcome;
  }
  return {};
}

void Comm::Left() {
  const std::lock_guard<std::mutex> lock(mu_);
  if (barrier_.address != nullptr) {
    rank_.ReturnScratch(std::exchange(barrier_, {}));
  }
  for (const Rank::Scratch& each : std::exchange(inputs_, {})) {
    rank_.ReturnScratch(each);
  }
  state_ = State::kGone;
  changed_.notify_all();
}

// On the rank's thread.
void Comm::Leave() {
  ncclComm_t comm = nullptr;
  if (!Take(&comm)) return;
  Outcome outcome;
  if (comm != nullptr) {
    outcome = library_.Check("ncclCommDestroy", library_.CommDestroy(comm));
  }
  if (!outcome.ok()) rank_.Log(name_ + ": " + outcome.reason);
  Left();
}

Outcome Comm::Destroy(int64_t deadline_ns) {
  std::unique_lock<std::mutex> lock(mu_);
  leaves_ = true;
  changed_.notify_all();
  if (!aborted_) {
    rank_.Post([self = shared_from_this()] { self->Leave(); });
  }
  // The host's clock may be at its end: INT64_MAX.
  constexpr int64_t kMostNs = int64_t{3600} * 1000 * 1000 * 1000;
  const int64_t rest_ns = std::min(deadline_ns - rank_.NowNs(), kMostNs);
  if (changed_.wait_for(lock, std::chrono::nanoseconds(rest_ns),
                        [this] { return state_ == State::kGone; })) {
    return {};
  }
  rank_.GiveUp();
  return {COMMSCHED_DEADLINE_EXCEEDED,
          name_ + ": NCCL has not left its communicator"};
}

uint64_t Comm::Register(void* address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (state_ != State::kReady || !registers_) return 0;
  if (size_ == 1) return 0;
  registered_.push_back({++num_registered_, address, bytes, nullptr});
  return num_registered_;
}

// On the rank's thread. Whether NCCL takes all.
bool Comm::RegisterAll() {
  const std::lock_guard<std::mutex> lock(mu_);
  for (Registration& each : registered_) {
    if (each.handle != nullptr) continue;
    const Outcome outcome = Check(
        "ncclCommRegister",
        library_.CommRegister(comm_, each.address, each.bytes, &each.handle));
    if (outcome.ok()) continue;
    each.handle = nullptr;
    rank_.Log(name_ + ": memory of " + std::to_string(each.bytes) +
              " bytes is not registered, and so no memory of any member is: " +
              outcome.reason);
    return false;
  }
  return true;
}

// With mu_.
void Comm::DeregisterAll() {
  if (comm_ == nullptr) return;
  for (Registration& each : registered_) {
    void* const handle = std::exchange(each.handle, nullptr);
    if (handle == nullptr) continue;
    const Outcome outcome = rank_.OnDevice([&] {
      return Check("ncclCommDeregister",
                   library_.CommDeregister(comm_, handle));
    });
    if (!outcome.ok()) rank_.Log(name_ + ": " + outcome.reason);
  }
}

void Comm::Deregister(uint64_t number) {
  const OutsideOfCaptures outside(library_);
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found =
      std::find_if(registered_.begin(), registered_.end(),
                   [=](const auto& each) { return each.number == number; });
  if (found == registered_.end()) return;
  const Registration taken = *found;
  registered_.erase(found);
  // Else NCCL forgets it with the communicator, which ends next.
  if (state_ != State::kReady || taken.handle == nullptr) return;
  const Outcome outcome = rank_.OnDevice([&] {
    return Check("ncclCommDeregister",
                 library_.CommDeregister(comm_, taken.handle));
  });
  if (!outcome.ok()) rank_.Log(name_ + ": " + outcome.reason);
}

}  // namespace commsched::nccl
