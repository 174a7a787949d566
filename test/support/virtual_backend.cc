#include "test/support/virtual_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"
#include "comm/table_support.h"

namespace commsched::test {
namespace {

constexpr uint64_t kPairBlockBytes = 64 * 1024;

uint64_t PairBytes(const commsched_launch_t& launch, uint64_t count) {
  return count * DTypeSize(static_cast<DType>(launch.dtype));
}

}  // namespace

// One communicator. Everything in it is guarded by the backend's lock.
class VirtualComm {
 public:
  using Moving = VirtualBackend::Moving;

  struct Ticket {
    bool used = false;
    uint64_t number = 0;      // among all launches of the member
    uint64_t collective = 0;  // among its collectives
    bool is_collective = true;
    uint32_t num_moving = 0;  // transfers that are not complete
    int64_t started_ns = 0;
    commsched_launch_t launch{};
  };
  // The handle of a member.
  struct Member {
    VirtualComm* comm = nullptr;
    int rank = 0;
    bool joined = false;
    bool left = false;
    uint32_t max_members = 0;
    void (*wake)(void* user) = nullptr;
    void* wake_user = nullptr;
    std::vector<Ticket> tickets;
    uint64_t num_posted = 0;
    uint64_t num_collectives = 0;
    uint64_t num_done = 0;
  };
  // A send or receive that has not met its other half.
  struct Waiting {
    int from, to;
    int poster;
    uint32_t ticket;
    commsched_launch_t launch;
    commsched_member_t member;
  };

  VirtualComm(VirtualBackend* backend, const commsched_comm_desc_t& desc)
      : backend_(backend),
        id_(desc.id),
        axis_(desc.axis),
        ranks_(desc.ranks, desc.ranks + desc.size),
        max_in_flight_(desc.max_in_flight),
        members_(ranks_.size()) {}

  absl::StatusOr<Member*> Join(const commsched_comm_desc_t& desc);
  absl::Status Launch(Member* member, const commsched_launch_t* launch,
                      uint32_t ticket);
  absl::Status Poll(Member* member, uint32_t ticket,
                    commsched_launch_result_t* out_result);
  void Abort(absl::Status failure);
  void Leave(Member* member);
  uint32_t Missing(const Member& member, uint32_t ticket, int32_t* out_ranks,
                   uint32_t capacity) const;
  void TransferComplete(const Moving& moving);

  const absl::Status& failure() const { return failure_; }
  const std::string& id() const { return id_; }
  const std::string& axis() const { return axis_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int world_rank(int rank) const { return ranks_[rank]; }
  bool all_left() const { return num_left_ == size(); }
  VirtualBackend* backend() const { return backend_; }

 private:
  void Wake(int rank) {
    Member& member = members_[rank];
    if (member.joined && !member.left && member.wake != nullptr) {
      member.wake(member.wake_user);
    }
  }
  void WakeAll() {
    for (int rank = 0; rank < size(); ++rank) Wake(rank);
  }
  absl::Status Check(const Member& member, const commsched_launch_t* launch,
                     uint32_t ticket) const;
  absl::Status PostCollective(Member* member, uint32_t ticket);
  absl::Status PostPeers(Member* member, uint32_t ticket);
  absl::Status Meet(const Waiting& send, const Waiting& receive);
  absl::Status CheckAgreement(const Moving& moving) const;
  void MakeReady(Moving* moving);
  void AbortIfSomebodyLeft(const Member& member, const Ticket& ticket);
  template <typename Visit>
  void ForEachMissing(const Member& member, const Ticket& ticket,
                      Visit visit) const;

  VirtualBackend* const backend_;
  const std::string id_;
  const std::string axis_;
  const std::vector<int32_t> ranks_;
  const uint32_t max_in_flight_;
  std::vector<Member> members_;
  int num_left_ = 0;
  std::deque<Moving*> arriving_;  // collectives, oldest first
  uint64_t first_arriving_ = 0;   // its number
  std::deque<Waiting> waiting_;   // in order of posting
  absl::Status failure_;
};

absl::StatusOr<VirtualComm::Member*> VirtualComm::Join(
    const commsched_comm_desc_t& desc) {
  const std::vector<int32_t> ranks(desc.ranks, desc.ranks + desc.size);
  if (ranks != ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", id_, "': rank ", desc.world_rank,
                     " says ranks ", absl::StrJoin(ranks, ",")));
  }
  if (desc.max_in_flight != max_in_flight_) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator '", id_, "': rank ", desc.world_rank,
                     " says ", desc.max_in_flight, " launches in flight"));
  }
  Member& member = members_[desc.rank];
  if (member.joined) {
    return absl::AlreadyExistsError(absl::StrCat(
        "communicator '", id_, "': rank ", desc.world_rank, " has joined"));
  }
  member.comm = this;
  member.rank = desc.rank;
  member.joined = true;
  member.max_members = desc.max_members;
  member.wake = desc.wake;
  member.wake_user = desc.wake_user;
  member.tickets.resize(desc.max_in_flight);
  return &member;
}

absl::Status VirtualComm::Check(const Member& member,
                                const commsched_launch_t* launch,
                                uint32_t ticket) const {
  absl::Status checked;
  if (launch == nullptr) {
    checked = absl::InvalidArgumentError("NULL");
  } else if (ticket >= member.tickets.size() || member.tickets[ticket].used) {
    checked = absl::InvalidArgumentError(absl::StrCat(
        "ticket ", ticket, " is in use or not below ", member.tickets.size()));
  } else {
    checked = CheckLaunch(*launch, member.max_members, member.rank, size());
  }
  if (checked.ok()) return checked;
  return absl::Status(checked.code(),
                      absl::StrCat("launch #", member.num_posted, " on axis '",
                                   axis_, "' of rank ", world_rank(member.rank),
                                   ": ", checked.message()));
}

absl::Status VirtualComm::Launch(Member* member,
                                 const commsched_launch_t* launch,
                                 uint32_t ticket) {
  RETURN_IF_ERROR(failure_);
  absl::Status status = Check(*member, launch, ticket);
  if (status.ok()) {
    Ticket& posted = member->tickets[ticket];
    posted = Ticket();
    posted.used = true;
    posted.number = member->num_posted++;
    posted.collective = member->num_collectives;
    posted.is_collective = launch->kind != COMMSCHED_SEND;
    posted.launch = Normalized(*launch);
    status = posted.is_collective ? PostCollective(member, ticket)
                                  : PostPeers(member, ticket);
  }
  if (!status.ok()) Abort(status);
  return status;
}

absl::Status VirtualComm::PostCollective(Member* member, uint32_t ticket) {
  Ticket& posted = member->tickets[ticket];
  posted.num_moving = 1;
  ++member->num_collectives;
  const uint64_t index = posted.collective - first_arriving_;
  while (arriving_.size() <= index) {
    Moving* const moving = backend_->NewMovingLocked();
    moving->comm = this;
    moving->is_pair = false;
    moving->number = first_arriving_ + arriving_.size();
    moving->num_arrived = 0;
    moving->launches.resize(size());
    moving->tickets.resize(size());
    arriving_.push_back(moving);
  }
  Moving* const moving = arriving_[index];
  moving->launches[member->rank] = posted.launch;
  moving->tickets[member->rank] = ticket;
  if (++moving->num_arrived < size()) return absl::OkStatus();
  // All have posted this one, so all before it: it is the oldest.
  arriving_.pop_front();
  ++first_arriving_;
  if (absl::Status agreed = CheckAgreement(*moving); !agreed.ok()) {
    backend_->FreeLocked(moving);
    return agreed;
  }
  moving->num_blocks = NumBlocks(
      {.size = size(), .first_rank = 0, .launches = moving->launches.data()});
  MakeReady(moving);
  return absl::OkStatus();
}

absl::Status VirtualComm::CheckAgreement(const Moving& moving) const {
  const std::vector<commsched_launch_t>& launches = moving.launches;
  const uint64_t expected = SignatureOf(launches[0], size());
  for (int rank = 1; rank < size(); ++rank) {
    if (SignatureOf(launches[rank], size()) == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "launch #", moving.number, " on axis '", axis_, "' differs: ",
        DescribeDifference(launches[0], world_rank(0), launches[rank],
                           world_rank(rank), size())));
  }
  return absl::OkStatus();
}

absl::Status VirtualComm::PostPeers(Member* member, uint32_t ticket) {
  Ticket& posted = member->tickets[ticket];
  posted.num_moving = posted.launch.num_members;
  for (uint32_t m = 0; m < posted.launch.num_members; ++m) {
    const commsched_member_t& message = posted.launch.members[m];
    const bool is_send = message.direction == COMMSCHED_SEND;
    Waiting posting{is_send ? member->rank : message.peer,
                    is_send ? message.peer : member->rank,
                    member->rank,
                    ticket,
                    posted.launch,
                    message};
    const auto other = std::find_if(
        waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
          return waiting.from == posting.from && waiting.to == posting.to &&
                 waiting.poster != posting.poster;
        });
    if (other == waiting_.end()) {
      waiting_.push_back(posting);
      continue;
    }
    const Waiting met = *other;
    waiting_.erase(other);
    RETURN_IF_ERROR(is_send ? Meet(posting, met) : Meet(met, posting));
  }
  return absl::OkStatus();
}

absl::Status VirtualComm::Meet(const Waiting& send, const Waiting& receive) {
  const auto what = [](const Waiting& side) {
    return absl::StrCat(side.member.count, " x ",
                        DTypeName(static_cast<DType>(side.launch.dtype)));
  };
  if (send.launch.dtype != receive.launch.dtype ||
      send.member.count != receive.member.count) {
    const auto launch_of = [&](const Waiting& side) {
      return members_[side.poster].tickets[side.ticket].number;
    };
    return absl::InvalidArgumentError(
        absl::StrCat("send and recv on axis '", axis_, "' differ: rank ",
                     world_rank(send.from), " sends ", what(send), " to rank ",
                     world_rank(send.to), " in its launch #", launch_of(send),
                     ", rank ", world_rank(send.to), " receives ",
                     what(receive), " in its launch #", launch_of(receive)));
  }
  Moving* const moving = backend_->NewMovingLocked();
  moving->comm = this;
  moving->is_pair = true;
  moving->from = send.from;
  moving->to = send.to;
  moving->send = send.member;
  moving->receive = receive.member;
  moving->launches.assign({send.launch, receive.launch});
  moving->tickets.assign({send.ticket, receive.ticket});
  const uint64_t bytes = PairBytes(send.launch, send.member.count);
  moving->num_blocks = (bytes + kPairBlockBytes - 1) / kPairBlockBytes;
  MakeReady(moving);
  return absl::OkStatus();
}

void VirtualComm::MakeReady(Moving* moving) {
  moving->next_block = 0;
  moving->started_ns = backend_->NowNs();
  backend_->ready_.push_back(moving);
  WakeAll();
}

void VirtualComm::TransferComplete(const Moving& moving) {
  for (size_t i = 0; i < moving.tickets.size(); ++i) {
    int rank = static_cast<int>(i);
    if (moving.is_pair) rank = i == 0 ? moving.from : moving.to;
    Ticket& ticket = members_[rank].tickets[moving.tickets[i]];
    --ticket.num_moving;
    ticket.started_ns = std::max(ticket.started_ns, moving.started_ns);
    Wake(rank);
  }
}

absl::Status VirtualComm::Poll(Member* member, uint32_t ticket,
                               commsched_launch_result_t* out_result) {
  if (out_result == nullptr || ticket >= member->tickets.size() ||
      !member->tickets[ticket].used) {
    return absl::InvalidArgumentError(
        absl::StrCat("poll of ticket ", ticket, ", which is not in flight"));
  }
  *out_result = commsched_launch_result_t();
  Ticket& polled = member->tickets[ticket];
  if (polled.num_moving == 0 && polled.number == member->num_done) {
    out_result->done = 1;
    out_result->started_ns = polled.started_ns;
    polled.used = false;
    ++member->num_done;
    return absl::OkStatus();
  }
  if (polled.num_moving != 0) AbortIfSomebodyLeft(*member, polled);
  return failure_;
}

template <typename Visit>
void VirtualComm::ForEachMissing(const Member& member, const Ticket& ticket,
                                 Visit visit) const {
  if (!ticket.used || ticket.num_moving == 0) return;
  for (int rank = 0; rank < size(); ++rank) {
    const bool missing =
        ticket.is_collective
            ? members_[rank].num_collectives <= ticket.collective
            : std::any_of(waiting_.begin(), waiting_.end(),
                          [&](const Waiting& waiting) {
                            return waiting.poster == member.rank &&
                                   waiting.member.peer == rank &&
                                   &member.tickets[waiting.ticket] == &ticket;
                          });
    if (missing) visit(rank);
  }
}

uint32_t VirtualComm::Missing(const Member& member, uint32_t ticket,
                              int32_t* out_ranks, uint32_t capacity) const {
  if (ticket >= member.tickets.size()) return 0;
  uint32_t num_missing = 0;
  ForEachMissing(member, member.tickets[ticket], [&](int rank) {
    if (num_missing < capacity) out_ranks[num_missing] = rank;
    ++num_missing;
  });
  return num_missing;
}

void VirtualComm::AbortIfSomebodyLeft(const Member& member,
                                      const Ticket& ticket) {
  if (num_left_ == 0 || !failure_.ok()) return;
  int gone = -1;
  ForEachMissing(member, ticket, [&](int rank) {
    if (members_[rank].left && gone < 0) gone = rank;
  });
  if (gone < 0) return;
  Abort(absl::AbortedError(absl::StrCat("rank ", world_rank(gone),
                                        " left axis '", axis_,
                                        "' before launch #", ticket.number)));
}

void VirtualComm::Abort(absl::Status failure) {
  if (!failure_.ok()) return;
  failure_ = std::move(failure);
  backend_->RemoveReadyOfLocked(this);
  for (Moving* moving : arriving_) backend_->FreeLocked(moving);
  arriving_.clear();
  waiting_.clear();
  WakeAll();
}

void VirtualComm::Leave(Member* member) {
  if (member->num_posted != member->num_done) {
    Abort(absl::CancelledError(absl::StrCat(
        "rank ", world_rank(member->rank), " left axis '", axis_, "' with ",
        member->num_posted - member->num_done, " launches in flight")));
  }
  member->left = true;
  ++num_left_;
  WakeAll();
}

// The functions of the table.
struct VirtualTable {
  static VirtualComm::Member* Of(void* comm) {
    return static_cast<VirtualComm::Member*>(comm);
  }

  static commsched_status_t InstanceCreate(
      const commsched_instance_desc_t* desc, void** out_instance, char* message,
      uint64_t message_size) {
    uint64_t address = 0;
    if (!absl::SimpleAtoi(desc->config, &address) || address == 0) {
      return ToTable(absl::InvalidArgumentError("not made by Spec()"), message,
                     message_size);
    }
    auto* const backend = reinterpret_cast<VirtualBackend*>(address);
    MutexLock lock(&backend->mu_);
    backend->world_size_ = desc->world_size;
    *out_instance = backend;
    return COMMSCHED_OK;
  }
  static void InstanceDestroy(void* /*instance*/) {}

  static commsched_status_t CommCreate(void* instance,
                                       const commsched_comm_desc_t* desc,
                                       void** out_comm, char* message,
                                       uint64_t message_size) {
    auto* const backend = static_cast<VirtualBackend*>(instance);
    MutexLock lock(&backend->mu_);
    const absl::Status valid = CheckCommDesc(desc, backend->world_size_);
    if (!valid.ok()) return ToTable(valid, message, message_size);
    std::unique_ptr<VirtualComm>& comm = backend->comms_[desc->id];
    if (comm == nullptr) comm = std::make_unique<VirtualComm>(backend, *desc);
    const absl::StatusOr<VirtualComm::Member*> member = comm->Join(*desc);
    if (!member.ok()) return ToTable(member.status(), message, message_size);
    ++backend->num_members_;
    *out_comm = *member;
    return COMMSCHED_OK;
  }

  static commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                                   uint32_t ticket,
                                   commsched_stream_t /*stream*/, char* message,
                                   uint64_t message_size) {
    VirtualComm::Member* const member = Of(comm);
    MutexLock lock(&member->comm->backend()->mu_);
    return ToTable(member->comm->Launch(member, launch, ticket), message,
                   message_size);
  }

  static commsched_status_t Poll(void* comm, uint32_t ticket,
                                 commsched_launch_result_t* out_result,
                                 char* message, uint64_t message_size) {
    VirtualComm::Member* const member = Of(comm);
    VirtualBackend* const backend = member->comm->backend();
    MutexLock lock(&backend->mu_);
    if (backend->step_when_polled_) backend->StepSomeLocked(backend->random_());
    const absl::Status polled = member->comm->Poll(member, ticket, out_result);
    if (polled.ok() && out_result->done == 0 && backend->step_when_polled_ &&
        !backend->ready_.empty()) {
      out_result->wake_at_ns = 1;  // There is more to step.
    }
    return ToTable(polled, message, message_size);
  }

  static void CommAbort(void* comm, commsched_status_t status,
                        const char* message) {
    VirtualComm::Member* const member = Of(comm);
    MutexLock lock(&member->comm->backend()->mu_);
    member->comm->Abort(FailureFromTable(status, message));
  }

  static void CommDestroy(void* comm) {
    VirtualComm::Member* const member = Of(comm);
    VirtualBackend* const backend = member->comm->backend();
    MutexLock lock(&backend->mu_);
    member->comm->Leave(member);
    --backend->num_members_;
    if (!member->comm->all_left()) return;
    const std::string id = member->comm->id();
    backend->comms_.erase(id);
  }

  static commsched_status_t CommStatus(void* comm, char* message,
                                       uint64_t message_size) {
    VirtualComm::Member* const member = Of(comm);
    MutexLock lock(&member->comm->backend()->mu_);
    return ToTable(member->comm->failure(), message, message_size);
  }

  static uint32_t CommMissing(void* comm, uint32_t ticket, int32_t* out_ranks,
                              uint32_t capacity) {
    VirtualComm::Member* const member = Of(comm);
    MutexLock lock(&member->comm->backend()->mu_);
    return member->comm->Missing(*member, ticket, out_ranks, capacity);
  }
};

VirtualBackend::VirtualBackend(const Clock* clock)
    : clock_(clock),
      table_({.struct_size = sizeof(commsched_backend_t),
              .abi = COMMSCHED_BACKEND_ABI,
              .capabilities = COMMSCHED_BACKEND_VECTORED |
                              COMMSCHED_BACKEND_DETERMINISTIC |
                              COMMSCHED_BACKEND_STRIDED | COMMSCHED_BACKEND_P2P,
              .name = "virtual",
              .version = "0",
              .instance_create = &VirtualTable::InstanceCreate,
              .instance_destroy = &VirtualTable::InstanceDestroy,
              .comm_create = &VirtualTable::CommCreate,
              .launch = &VirtualTable::Launch,
              .poll = &VirtualTable::Poll,
              .comm_abort = &VirtualTable::CommAbort,
              .comm_destroy = &VirtualTable::CommDestroy,
              .comm_status = &VirtualTable::CommStatus,
              .comm_register = nullptr,
              .comm_missing = &VirtualTable::CommMissing}) {}

VirtualBackend::~VirtualBackend() = default;

WorldSpec VirtualBackend::Spec(int size) const {
  WorldSpec spec;
  spec.size = size;
  spec.backend = table_.name;
  spec.backend_config = absl::StrCat(reinterpret_cast<uintptr_t>(this));
  spec.table = &table_;
  return spec;
}

size_t VirtualBackend::num_ready() const {
  MutexLock lock(&mu_);
  return ready_.size();
}

std::string VirtualBackend::Describe(size_t index) const {
  MutexLock lock(&mu_);
  return DescribeLocked(*ready_[index]);
}

std::string VirtualBackend::DescribeLocked(const Moving& moving) const {
  const VirtualComm& comm = *moving.comm;
  if (moving.is_pair) {
    return absl::StrCat("send from rank ", comm.world_rank(moving.from),
                        " to rank ", comm.world_rank(moving.to), " on axis '",
                        comm.axis(), "'");
  }
  return absl::StrCat(CollectiveName(moving.launches[0].kind), " #",
                      moving.number, " on axis '", comm.axis(), "'");
}

VirtualBackend::Moving* VirtualBackend::NewMovingLocked() {
  if (free_.empty()) return &moving_.emplace_back();
  Moving* const moving = free_.back();
  free_.pop_back();
  return moving;
}

void VirtualBackend::FreeLocked(Moving* moving) { free_.push_back(moving); }

bool VirtualBackend::Step(size_t index) {
  MutexLock lock(&mu_);
  return StepLocked(index);
}

void VirtualBackend::Complete(size_t index) {
  MutexLock lock(&mu_);
  while (!StepLocked(index)) {
  }
}

bool VirtualBackend::StepLocked(size_t index) {
  Moving* const moving = ready_[index];
  if (moving->next_block < moving->num_blocks) {
    const uint64_t block = moving->next_block++;
    if (moving->is_pair) {
      const uint64_t begin = block * kPairBlockBytes;
      const uint64_t bytes = PairBytes(moving->launches[0], moving->send.count);
      std::memcpy(static_cast<std::byte*>(moving->receive.output) + begin,
                  static_cast<const std::byte*>(moving->send.input) + begin,
                  std::min(kPairBlockBytes, bytes - begin));
    } else {
      const Transfer transfer{.size = moving->comm->size(),
                              .first_rank = 0,
                              .launches = moving->launches.data()};
      TransferScratch scratch(transfer.size);
      BlockRunner(transfer, &scratch).Run(block, block + 1);
    }
  }
  if (moving->next_block < moving->num_blocks) return false;
  ready_.erase(ready_.begin() + static_cast<int64_t>(index));
  ++num_completed_;
  moving->comm->TransferComplete(*moving);
  FreeLocked(moving);
  return true;
}

bool VirtualBackend::StepSome(uint64_t draw) {
  MutexLock lock(&mu_);
  return StepSomeLocked(draw);
}

bool VirtualBackend::StepSomeLocked(uint64_t draw) {
  if (ready_.empty()) return false;
  StepLocked(draw % ready_.size());
  return true;
}

void VirtualBackend::RemoveReadyOfLocked(const VirtualComm* comm) {
  for (Moving* moving : ready_) {
    if (moving->comm == comm) FreeLocked(moving);
  }
  std::erase_if(ready_, [&](Moving* moving) { return moving->comm == comm; });
}

void VirtualBackend::Fail(size_t index, absl::Status failure) {
  MutexLock lock(&mu_);
  ready_[index]->comm->Abort(std::move(failure));
}

void VirtualBackend::StepWhenPolled(uint64_t seed) {
  MutexLock lock(&mu_);
  step_when_polled_ = true;
  random_.seed(static_cast<uint32_t>(seed));
}

int VirtualBackend::num_members() const {
  MutexLock lock(&mu_);
  return num_members_;
}

uint64_t VirtualBackend::num_completed() const {
  MutexLock lock(&mu_);
  return num_completed_;
}

}  // namespace commsched::test
