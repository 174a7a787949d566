#include "test/support/virtual_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "comm/launch_check.h"
#include "comm/plugin/table_support.h"
#include "test/support/virtual_comm.h"

namespace commsched::test {

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

  struct Rank {
    VirtualBackend* backend = nullptr;
    int world_rank = 0;
    VirtualComm::Waker waker;
  };

  static commsched_status_t RankOpen(void* instance,
                                     const commsched_backend_rank_desc_t* desc,
                                     void** out_rank, char* /*message*/,
                                     uint64_t /*message_size*/) {
    *out_rank = new Rank{static_cast<VirtualBackend*>(instance),
                         desc->world_rank,
                         {desc->wake, desc->wake_user}};
    return COMMSCHED_OK;
  }
  static void RankClose(void* rank) { delete static_cast<Rank*>(rank); }

  static commsched_status_t CommCreate(void* opaque,
                                       const commsched_comm_desc_t* desc,
                                       void** out_comm, char* message,
                                       uint64_t message_size) {
    const auto* const rank = static_cast<Rank*>(opaque);
    VirtualBackend* const backend = rank->backend;
    MutexLock lock(&backend->mu_);
    const absl::Status valid =
        CheckCommDesc(desc, backend->world_size_, rank->world_rank);
    if (!valid.ok()) return ToTable(valid, message, message_size);
    std::unique_ptr<VirtualComm>& comm = backend->comms_[desc->id];
    if (comm == nullptr) comm = std::make_unique<VirtualComm>(backend, *desc);
    const absl::StatusOr<VirtualComm::Member*> member =
        comm->Join(*desc, rank->waker);
    if (!member.ok()) return ToTable(member.status(), message, message_size);
    ++backend->num_members_;
    *out_comm = *member;
    return COMMSCHED_OK;
  }

  static commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                                   uint32_t request,
                                   commsched_stream_t /*stream*/, char* message,
                                   uint64_t message_size) {
    VirtualComm::Member* const member = Of(comm);
    MutexLock lock(&member->comm->backend()->mu_);
    return ToTable(member->comm->Launch(member, launch, request), message,
                   message_size);
  }

  static commsched_status_t Poll(void* comm, uint32_t request,
                                 commsched_launch_result_t* out_result,
                                 char* message, uint64_t message_size) {
    VirtualComm::Member* const member = Of(comm);
    VirtualBackend* const backend = member->comm->backend();
    MutexLock lock(&backend->mu_);
    if (backend->step_when_polled_) backend->StepSomeLocked(backend->random_());
    const absl::Status polled = member->comm->Poll(member, request, out_result);
    if (polled.ok() && out_result->done == 0 && backend->step_when_polled_ &&
        !backend->ready_.empty()) {
      out_result->wake_at_ns = 1;  // There is more to step.
    }
    return ToTable(polled, message, message_size);
  }

  static void Abort(void* /*rank*/, void* const* comms, uint32_t num_comms,
                    commsched_status_t status, const char* message) {
    for (uint32_t i = 0; i < num_comms; ++i) {
      VirtualComm::Member* const member = Of(comms[i]);
      MutexLock lock(&member->comm->backend()->mu_);
      member->comm->Abort(FailureFromTable(status, message));
    }
  }

  static commsched_status_t CommDestroy(void* comm, int64_t /*deadline_ns*/,
                                        char* /*message*/,
                                        uint64_t /*message_size*/) {
    VirtualComm::Member* const member = Of(comm);
    VirtualBackend* const backend = member->comm->backend();
    MutexLock lock(&backend->mu_);
    member->comm->Leave(member);
    --backend->num_members_;
    if (!member->comm->all_left()) return COMMSCHED_OK;
    const std::string id = member->comm->id();
    backend->comms_.erase(id);
    return COMMSCHED_OK;
  }

  static commsched_status_t CommStatus(void* comm, char* message,
                                       uint64_t message_size) {
    VirtualComm::Member* const member = Of(comm);
    MutexLock lock(&member->comm->backend()->mu_);
    return ToTable(member->comm->failure(), message, message_size);
  }

  static uint32_t CommMissing(void* comm, uint32_t request, int32_t* out_ranks,
                              uint32_t capacity) {
    VirtualComm::Member* const member = Of(comm);
    MutexLock lock(&member->comm->backend()->mu_);
    return member->comm->Missing(*member, request, out_ranks, capacity);
  }
};

VirtualBackend::VirtualBackend(const Clock* clock)
    : clock_(clock),
      table_({.struct_size = sizeof(commsched_backend_t),
              .abi = COMMSCHED_BACKEND_ABI,
              .capabilities = COMMSCHED_BACKEND_VECTORED |
                              COMMSCHED_BACKEND_TREE_SUMS |
                              COMMSCHED_BACKEND_STRIDED | COMMSCHED_BACKEND_P2P,
              .name = "virtual",
              .version = "0",
              .kinds = 0,
              .dtypes = 0,
              .reductions = 0,
              .memory_kinds = 0,
              .instance_create = &VirtualTable::InstanceCreate,
              .instance_destroy = &VirtualTable::InstanceDestroy,
              .rank_open = &VirtualTable::RankOpen,
              .rank_close = &VirtualTable::RankClose,
              .comm_create = &VirtualTable::CommCreate,
              .launch = &VirtualTable::Launch,
              .poll = &VirtualTable::Poll,
              .abort = &VirtualTable::Abort,
              .comm_destroy = &VirtualTable::CommDestroy,
              .comm_ready = nullptr,
              .comm_status = &VirtualTable::CommStatus,
              .comm_expect = nullptr,
              .comm_missing = &VirtualTable::CommMissing,
              .mem_register = nullptr,
              .mem_unregister = nullptr,
              .wait = nullptr,
              .interrupt = nullptr,
              .mem_alloc = nullptr,
              .mem_free = nullptr,
              .mem_stats = nullptr,
              .comm_silent = nullptr,
              .comm_starts = nullptr,
              .comm_estimate = nullptr,
              .launch_bytes = sizeof(commsched_launch_t)}) {}

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
