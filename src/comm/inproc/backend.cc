#include "comm/inproc/backend.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"
#include "comm/plugin/table_support.h"

namespace commsched {
namespace {

struct InprocRank {
  InprocBackend* backend = nullptr;
  int world_rank = 0;
  InprocMembers::Waker waker;
};

// A member's handle on its communicator: what only its rank uses.
class InprocMember {
 public:
  InprocMember(const InprocRank& rank, const commsched_comm_desc_t& desc)
      : backend_(rank.backend),
        waker_(rank.waker),
        id_(desc.id),
        rank_(desc.rank),
        max_members_(desc.max_members),
        requests_(desc.max_in_flight),
        scratch_(desc.size) {}

  // Separate from construction, so that nobody joins without a handle.
  absl::Status Join(const commsched_comm_desc_t* desc) {
    ASSIGN_OR_RETURN(comm_, backend_->Join(desc, waker_));
    members_ = comm_->members();
    return absl::OkStatus();
  }

  ~InprocMember() {
    if (comm_ == nullptr) return;
    const uint64_t num_in_flight =
        num_posted_ - num_done_ + num_tagged_ - num_tagged_done_;
    if (num_in_flight != 0) {
      members_->Abort(absl::CancelledError(absl::StrCat(
          "rank ", members_->world_rank(rank_), " left axis '",
          members_->axis(), "' with ", num_in_flight, " launches in flight")));
    }
    members_->Leave(rank_);
    backend_->Forget(id_);
  }

  absl::Status Launch(const commsched_launch_t* launch, uint32_t request) {
    if (members_->failed()) return members_->failure();
    absl::Status status = Post(launch, request);
    if (status.ok()) return status;
    // The others cannot go on without us, and must not wait for ever.
    members_->Abort(status);
    // Some of it may have been posted. Who works on that stops after the block
    // it is at; then the memory is the caller's again.
    while (!members_->nobody_works()) std::this_thread::yield();
    return status;
  }

  absl::Status status() {
    return members_->failed() ? members_->failure() : absl::OkStatus();
  }

  absl::Status Poll(uint32_t request, commsched_launch_result_t* out_result) {
    if (out_result == nullptr || !InFlight(request)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "poll of request ", request, ", which is not in flight"));
    }
    Request& polled = requests_[request];
    *out_result = commsched_launch_result_t();
    RETURN_IF_ERROR(polled.is_collective
                        ? comm_->Advance(rank_, polled.collective, &scratch_,
                                         out_result, &polled.cpu_ns)
                        : comm_->peers()->Advance(rank_, request, out_result,
                                                  &polled.cpu_ns));
    // In order: InprocComm counts on it.
    if (!polled.is_tagged && polled.number != num_done_) out_result->done = 0;
    if (out_result->done == 0) return absl::OkStatus();
    out_result->cpu_ns = polled.cpu_ns;
    polled.used = false;
    ++(polled.is_tagged ? num_tagged_done_ : num_done_);
    return absl::OkStatus();
  }

  absl::Status Expect(absl::Span<const commsched_launch_t> launches) {
    const bool any_sends = std::any_of(
        launches.begin(), launches.end(),
        [](const auto& launch) { return launch.kind == COMMSCHED_SEND; });
    if (!any_sends) return absl::OkStatus();
    return comm_->peers()->Reserve(rank_, max_members_);
  }

  void Abort(absl::Status failure) { members_->Abort(std::move(failure)); }

  uint32_t Missing(uint32_t request, int32_t* out_ranks, uint32_t capacity) {
    if (!InFlight(request)) return 0;
    const Request& asked = requests_[request];
    return asked.is_collective
               ? comm_->Missing(asked.collective, out_ranks, capacity)
               : comm_->peers()->Missing(rank_, request, out_ranks, capacity);
  }

 private:
  struct Request {
    bool used = false;
    bool is_collective = true;
    bool is_tagged = false;
    // Among all launches of this member, or among those that are tagged.
    uint64_t number = 0;
    uint64_t collective = 0;  // among its collectives
    int64_t cpu_ns = 0;
  };

  absl::Status Post(const commsched_launch_t* launch, uint32_t request) {
    if (launch == nullptr) return Refused(absl::InvalidArgumentError("NULL"));
    if (request >= requests_.size() || requests_[request].used) {
      return Refused(absl::InvalidArgumentError(absl::StrCat(
          "request ", request, " is in use or not below ", requests_.size())));
    }
    const absl::Status checked =
        CheckLaunch(*launch, max_members_, rank_, comm_->size());
    if (!checked.ok()) return Refused(checked);
    Request& posted = requests_[request];
    const bool is_tagged = IsTagged(*launch);
    posted = {.used = true,
              .is_collective = launch->kind != COMMSCHED_SEND,
              .is_tagged = is_tagged,
              .number = is_tagged ? num_tagged_++ : num_posted_++,
              .collective = num_collectives_,
              .cpu_ns = 0};
    if (!posted.is_collective) {
      return comm_->peers()->Post(rank_, request, max_members_, posted.number,
                                  *launch, &posted.cpu_ns);
    }
    return comm_->Post(rank_, num_collectives_++, Normalized(*launch),
                       &scratch_, &posted.cpu_ns);
  }

  bool InFlight(uint32_t request) const {
    return request < requests_.size() && requests_[request].used;
  }

  absl::Status Refused(const absl::Status& reason) const {
    return absl::Status(
        reason.code(),
        absl::StrCat("launch #", num_posted_, " on axis '", members_->axis(),
                     "' of rank ", members_->world_rank(rank_), ": ",
                     reason.message()));
  }

  InprocBackend* const backend_;
  const InprocMembers::Waker waker_;
  const std::string id_;
  const int rank_;
  const uint32_t max_members_;
  std::shared_ptr<InprocComm> comm_;
  InprocMembers* members_ = nullptr;  // of comm_

  // Owned by who calls for the rank.
  std::vector<Request> requests_;
  uint64_t num_posted_ = 0;  // In order: all but those that are tagged.
  uint64_t num_collectives_ = 0;
  uint64_t num_done_ = 0;
  uint64_t num_tagged_ = 0;
  uint64_t num_tagged_done_ = 0;
  TransferScratch scratch_;
};

absl::StatusOr<InprocMember*> CreateMember(const InprocRank& rank,
                                           const commsched_comm_desc_t* desc) {
  RETURN_IF_ERROR(
      CheckCommDesc(desc, rank.backend->world_size(), rank.world_rank));
  auto member = std::make_unique<InprocMember>(rank, *desc);
  RETURN_IF_ERROR(member->Join(desc));
  return member.release();
}

absl::StatusOr<InprocBackend*> CreateInstance(
    const commsched_instance_desc_t* desc) {
  RETURN_IF_ERROR(CheckInstanceDesc(desc));
  ASSIGN_OR_RETURN(const LinkSpec link, ParseLinkConfig(desc->config));
  return new InprocBackend(desc->world_size, link, &SystemClock::Get());
}

commsched_status_t InstanceCreate(const commsched_instance_desc_t* desc,
                                  void** out_instance, char* message,
                                  uint64_t message_size) {
  absl::StatusOr<InprocBackend*> instance = nullptr;
  try {
    instance = CreateInstance(desc);
  } catch (const std::bad_alloc&) {
    instance = absl::ResourceExhaustedError("out of host memory");
  }
  if (!instance.ok()) return ToTable(instance.status(), message, message_size);
  *out_instance = *instance;
  return COMMSCHED_OK;
}

void InstanceDestroy(void* instance) {
  delete static_cast<InprocBackend*>(instance);
}

commsched_status_t RankOpen(void* instance,
                            const commsched_backend_rank_desc_t* desc,
                            void** out_rank, char* message,
                            uint64_t message_size) {
  auto* rank = new (std::nothrow)
      InprocRank{.backend = static_cast<InprocBackend*>(instance),
                 .world_rank = desc->world_rank,
                 .waker = {.wake = desc->wake, .user = desc->wake_user}};
  if (rank == nullptr) {
    return ToTable(absl::ResourceExhaustedError("out of host memory"), message,
                   message_size);
  }
  *out_rank = rank;
  return COMMSCHED_OK;
}

void RankClose(void* rank) { delete static_cast<InprocRank*>(rank); }

commsched_status_t CommCreate(void* rank, const commsched_comm_desc_t* desc,
                              void** out_comm, char* message,
                              uint64_t message_size) {
  absl::StatusOr<InprocMember*> member = nullptr;
  try {
    member = CreateMember(*static_cast<InprocRank*>(rank), desc);
  } catch (const std::bad_alloc&) {
    member = absl::ResourceExhaustedError("out of host memory");
  }
  if (!member.ok()) return ToTable(member.status(), message, message_size);
  *out_comm = *member;
  return COMMSCHED_OK;
}

commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                          uint32_t request, commsched_stream_t /*stream*/,
                          char* message, uint64_t message_size) {
  return ToTable(static_cast<InprocMember*>(comm)->Launch(launch, request),
                 message, message_size);
}

commsched_status_t Poll(void* comm, uint32_t request,
                        commsched_launch_result_t* out_result, char* message,
                        uint64_t message_size) {
  return ToTable(static_cast<InprocMember*>(comm)->Poll(request, out_result),
                 message, message_size);
}

// Members share the failure: the others may be copying from this one's memory.
void Abort(void* /*rank*/, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* message) {
  for (uint32_t i = 0; i < num_comms; ++i) {
    static_cast<InprocMember*>(comms[i])->Abort(
        FailureFromTable(status, message));
  }
}

commsched_status_t CommStatus(void* comm, char* message,
                              uint64_t message_size) {
  return ToTable(static_cast<InprocMember*>(comm)->status(), message,
                 message_size);
}

uint32_t CommMissing(void* comm, uint32_t request, int32_t* out_ranks,
                     uint32_t capacity) {
  return static_cast<InprocMember*>(comm)->Missing(request, out_ranks,
                                                   capacity);
}

commsched_status_t CommExpect(void* comm, const commsched_launch_t* launches,
                              uint32_t num_launches, char* message,
                              uint64_t message_size) {
  return ToTable(static_cast<InprocMember*>(comm)->Expect(
                     absl::MakeConstSpan(launches, num_launches)),
                 message, message_size);
}

commsched_status_t CommDestroy(void* comm, int64_t /*deadline_ns*/,
                               char* /*message*/, uint64_t /*message_size*/) {
  delete static_cast<InprocMember*>(comm);
  return COMMSCHED_OK;
}

constexpr commsched_backend_t kTable = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_TREE_SUMS |
                    COMMSCHED_BACKEND_STRIDED | COMMSCHED_BACKEND_P2P |
                    COMMSCHED_BACKEND_TAGS | COMMSCHED_BACKEND_OWN_COUNTS,
    .name = "inproc",
    .version = COMMSCHED_VERSION_STRING,
    .kinds = 0,  // All of them, as of dtypes.
    .dtypes = 0,
    .reductions = COMMSCHED_BACKEND_BASIC_REDUCTIONS |
                  COMMSCHED_BACKEND_BITWISE_REDUCTIONS |
                  COMMSCHED_BACKEND_SCALED_REDUCTIONS,
    .memory_kinds = 0,
    .instance_create = &InstanceCreate,
    .instance_destroy = &InstanceDestroy,
    .rank_open = &RankOpen,
    .rank_close = &RankClose,
    .comm_create = &CommCreate,
    .launch = &Launch,
    .poll = &Poll,
    .abort = &Abort,
    .comm_destroy = &CommDestroy,
    .comm_ready = nullptr,  // Who comes late is waited for by its launches.
    .comm_status = &CommStatus,
    .comm_expect = &CommExpect,
    .comm_missing = &CommMissing,
    .mem_register = nullptr,
    .mem_unregister = nullptr,
    .wait = nullptr,
    .interrupt = nullptr,
    .mem_alloc = nullptr,
    .mem_free = nullptr,
    .mem_stats = nullptr,
    .comm_silent = nullptr,  // They are seen.
    .comm_starts = nullptr,
    .comm_estimate = nullptr,
    .launch_bytes = sizeof(commsched_launch_t),
};

}  // namespace

absl::StatusOr<std::shared_ptr<InprocComm>> InprocBackend::Join(
    const commsched_comm_desc_t* desc, const InprocMembers::Waker& waker) {
  MutexLock lock(&mu_);
  std::shared_ptr<InprocComm>& comm = comms_[desc->id];
  if (comm == nullptr) {
    comm = std::make_shared<InprocComm>(*desc, clock_, &link_);
  }
  RETURN_IF_ERROR(comm->members()->Join(*desc, waker));
  return comm;
}

void InprocBackend::Forget(const std::string& id) {
  MutexLock lock(&mu_);
  const auto known = comms_.find(id);
  if (known != comms_.end() && known->second->members()->all_left())
    comms_.erase(known);
}

const commsched_backend_t* InprocTable() { return &kTable; }

}  // namespace commsched
