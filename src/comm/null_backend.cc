#include "comm/null_backend.h"

#include <atomic>
#include <memory>
#include <new>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/plugin/table_support.h"

namespace commsched {
namespace {

struct NullInstance {
  int world_size = 0;
};

struct NullRank {
  int world_size = 0;
  int world_rank = 0;
};

class NullComm {
 public:
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // The first failure sticks.
  void Fail(absl::Status failure) {
    MutexLock lock(&mu_);
    if (!failure_.ok()) return;
    failure_ = std::move(failure);
    failed_.store(true, std::memory_order_release);
  }

  absl::Status failure() {
    MutexLock lock(&mu_);
    return failure_;
  }

 private:
  std::atomic<bool> failed_{false};
  Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

commsched_status_t InstanceCreate(const commsched_instance_desc_t* desc,
                                  void** out_instance, char* message,
                                  uint64_t message_size) {
  absl::Status valid = CheckInstanceDesc(desc);
  if (valid.ok()) valid = CheckNoConfig(*desc);
  if (!valid.ok()) return ToTable(valid, message, message_size);
  auto* instance = new (std::nothrow) NullInstance;
  if (instance == nullptr) {
    return ToTable(absl::ResourceExhaustedError("out of host memory"), message,
                   message_size);
  }
  instance->world_size = desc->world_size;
  *out_instance = instance;
  return COMMSCHED_OK;
}

void InstanceDestroy(void* instance) {
  delete static_cast<NullInstance*>(instance);
}

commsched_status_t RankOpen(void* instance,
                            const commsched_backend_rank_desc_t* desc,
                            void** out_rank, char* message,
                            uint64_t message_size) {
  auto* rank = new (std::nothrow) NullRank;
  if (rank == nullptr) {
    return ToTable(absl::ResourceExhaustedError("out of host memory"), message,
                   message_size);
  }
  rank->world_size = static_cast<NullInstance*>(instance)->world_size;
  rank->world_rank = desc->world_rank;
  *out_rank = rank;
  return COMMSCHED_OK;
}

void RankClose(void* rank) { delete static_cast<NullRank*>(rank); }

commsched_status_t CommCreate(void* opaque, const commsched_comm_desc_t* desc,
                              void** out_comm, char* message,
                              uint64_t message_size) {
  const auto* rank = static_cast<NullRank*>(opaque);
  const absl::Status valid =
      CheckCommDesc(desc, rank->world_size, rank->world_rank);
  if (!valid.ok()) return ToTable(valid, message, message_size);
  auto* comm = new (std::nothrow) NullComm;
  if (comm == nullptr) {
    return ToTable(absl::ResourceExhaustedError("out of host memory"), message,
                   message_size);
  }
  *out_comm = comm;
  return COMMSCHED_OK;
}

commsched_status_t Launch(void* comm, const commsched_launch_t* /*launch*/,
                          uint32_t /*request*/, commsched_stream_t /*stream*/,
                          char* message, uint64_t message_size) {
  auto* null_comm = static_cast<NullComm*>(comm);
  if (!null_comm->failed()) return COMMSCHED_OK;
  return ToTable(null_comm->failure(), message, message_size);
}

void Abort(void* /*rank*/, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* message) {
  for (uint32_t i = 0; i < num_comms; ++i) {
    static_cast<NullComm*>(comms[i])->Fail(FailureFromTable(status, message));
  }
}

commsched_status_t CommDestroy(void* comm, int64_t /*deadline_ns*/,
                               char* /*message*/, uint64_t /*message_size*/) {
  delete static_cast<NullComm*>(comm);
  return COMMSCHED_OK;
}

constexpr commsched_backend_t kTable = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_INLINE |
                    COMMSCHED_BACKEND_TREE_SUMS | COMMSCHED_BACKEND_STRIDED |
                    COMMSCHED_BACKEND_P2P | COMMSCHED_BACKEND_PROCESSES,
    .name = "null",
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
    .poll = nullptr,
    .abort = &Abort,
    .comm_destroy = &CommDestroy,
    .comm_ready = nullptr,
    .comm_status = nullptr,
    .comm_expect = nullptr,
    .comm_missing = nullptr,
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
    .launch_bytes = sizeof(commsched_launch_t),
};

}  // namespace

const commsched_backend_t* NullTable() { return &kTable; }

}  // namespace commsched
