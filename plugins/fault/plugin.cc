// Backend "fault": another backend, on which things go wrong (spec.h). For
// tests of what is built on commsched, and of commsched.
#include "commsched/plugin.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "spec.h"

namespace commsched::fault {
namespace {

const commsched_host_t* host = nullptr;

int64_t NowNs() { return host->now_ns(host->user); }

commsched_status_t Refuse(commsched_status_t code, const std::string& why,
                          char* message, uint64_t message_size) {
  if (message_size != 0) snprintf(message, message_size, "%s", why.c_str());
  return code;
}

// What the ranks of a world in this process share.
struct Instance {
  Spec spec;
  const commsched_backend_t* inner = nullptr;
  void* inner_instance = nullptr;
};

struct Rank {
  Instance* instance = nullptr;
  int world_rank = 0;
  void* inner = nullptr;

  // How the host sleeps if the inner backend has no way: that one wakes the
  // host, which interrupts.
  std::mutex mu;
  std::condition_variable changed;
  bool interrupted = false;
};

// A member of a communicator.
class Comm {
 public:
  Comm(Rank* rank, const commsched_comm_desc_t& desc)
      : rank_(*rank),
        inner_(*rank->instance->inner),
        axis_(desc.axis),
        requests_(desc.max_in_flight) {}

  commsched_status_t Create(const commsched_comm_desc_t& desc, char* message,
                            uint64_t message_size) {
    return inner_.comm_create(rank_.inner, &desc, &comm_, message,
                              message_size);
  }
  const commsched_backend_t& inner() const { return inner_; }
  void* inner_comm() const { return comm_; }

  commsched_status_t Launch(const commsched_launch_t* launch, uint32_t request,
                            char* message, uint64_t message_size);
  commsched_status_t Poll(uint32_t request,
                          commsched_launch_result_t* out_result, char* message,
                          uint64_t message_size);
  // The inner one's failure, if it tells of one.
  commsched_status_t Status(char* message, uint64_t message_size) const {
    if (inner_.comm_status == nullptr) return COMMSCHED_OK;
    return inner_.comm_status(comm_, message, message_size);
  }
  uint32_t Missing(uint32_t request, int32_t* out_ranks,
                   uint32_t capacity) const {
    if (inner_.comm_missing == nullptr || request >= requests_.size() ||
        !requests_[request].issued) {
      return 0;
    }
    return inner_.comm_missing(comm_, request, out_ranks, capacity);
  }
  uint32_t Silent(uint32_t request, int32_t* out_ranks,
                  uint32_t capacity) const {
    if (inner_.comm_silent == nullptr || request >= requests_.size() ||
        !requests_[request].issued) {
      return 0;
    }
    return inner_.comm_silent(comm_, request, out_ranks, capacity);
  }
  uint32_t Starts(commsched_launch_start_t* out_starts,
                  uint32_t capacity) const {
    if (inner_.comm_starts == nullptr) return 0;
    return inner_.comm_starts(comm_, out_starts, capacity);
  }

 private:
  struct Request {
    const commsched_launch_t* launch = nullptr;
    const Fault* fault = nullptr;
    uint64_t number = 0;
    bool issued = false;
    bool done_below = false;
    int64_t due_ns = 0;  // When it is handed on, or reported done.
    commsched_launch_result_t result = {};
  };

  commsched_status_t Injected(const Request& request, char* message,
                              uint64_t message_size);
  commsched_status_t IssueDue(char* message, uint64_t message_size);

  const Rank& rank_;
  const commsched_backend_t& inner_;
  const std::string axis_;
  void* comm_ = nullptr;
  std::vector<Request> requests_;
  std::deque<uint32_t> held_;  // Not handed on yet, in order.
  uint64_t num_launched_ = 0;
  uint64_t num_done_ = 0;  // Reported done, in order.
};

commsched_status_t Comm::Injected(const Request& request, char* message,
                                  uint64_t message_size) {
  std::string why = "injected into launch #";
  why += std::to_string(request.number);
  why += " on axis '" + axis_ + "' of rank ";
  why += std::to_string(rank_.world_rank);
  // What is under way must not go on in memory that the host takes back.
  inner_.abort(rank_.inner, &comm_, 1, COMMSCHED_DATA_LOSS, why.c_str());
  return Refuse(COMMSCHED_DATA_LOSS, why, message, message_size);
}

commsched_status_t Comm::Launch(const commsched_launch_t* launch,
                                uint32_t request, char* message,
                                uint64_t message_size) {
  if (request >= requests_.size()) {
    return Refuse(COMMSCHED_INVALID_ARGUMENT,
                  "request " + std::to_string(request) + " is not below " +
                      std::to_string(requests_.size()),
                  message, message_size);
  }
  Request& posted = requests_[request];
  posted = Request();
  posted.launch = launch;
  posted.number = num_launched_++;
  posted.fault =
      Match(rank_.instance->spec, rank_.world_rank, axis_, posted.number);
  const bool is_late =
      posted.fault != nullptr && posted.fault->kind == Fault::Kind::kLate;
  if (posted.fault != nullptr &&
      posted.fault->kind == Fault::Kind::kFailLaunch) {
    return Injected(posted, message, message_size);
  }
  posted.due_ns = is_late ? NowNs() + posted.fault->delay_ns : 0;
  held_.push_back(request);
  return IssueDue(message, message_size);
}

commsched_status_t Comm::IssueDue(char* message, uint64_t message_size) {
  while (!held_.empty()) {
    Request& first = requests_[held_.front()];
    if (first.due_ns != 0 && NowNs() < first.due_ns) return COMMSCHED_OK;
    const uint32_t number = held_.front();
    held_.pop_front();
    first.issued = true;
    const commsched_status_t code =
        inner_.launch(comm_, first.launch, number, commsched_stream_caller(),
                      message, message_size);
    if (code != COMMSCHED_OK) return code;
  }
  return COMMSCHED_OK;
}

commsched_status_t Comm::Poll(uint32_t request,
                              commsched_launch_result_t* out_result,
                              char* message, uint64_t message_size) {
  *out_result = {};
  const commsched_status_t issued = IssueDue(message, message_size);
  if (issued != COMMSCHED_OK) return issued;
  if (request >= requests_.size() || requests_[request].launch == nullptr) {
    return Refuse(COMMSCHED_INVALID_ARGUMENT,
                  "poll of request " + std::to_string(request) +
                      ", which is not in flight",
                  message, message_size);
  }
  Request& polled = requests_[request];
  if (!polled.issued) {
    out_result->wake_at_ns = requests_[held_.front()].due_ns;
    return COMMSCHED_OK;
  }
  if (!polled.done_below) {
    const commsched_status_t code =
        inner_.poll(comm_, request, &polled.result, message, message_size);
    if (code != COMMSCHED_OK || polled.result.done == 0) {
      *out_result = polled.result;
      return code;
    }
    polled.done_below = true;
    const bool is_delayed =
        polled.fault != nullptr && polled.fault->kind == Fault::Kind::kDelay;
    polled.due_ns = is_delayed ? NowNs() + polled.fault->delay_ns : 0;
  }
  if (polled.fault != nullptr) {
    if (polled.fault->kind == Fault::Kind::kFailPoll) {
      return Injected(polled, message, message_size);
    }
    // Only an abort ends it.
    if (polled.fault->kind == Fault::Kind::kHang) {
      return Status(message, message_size);
    }
  }
  // In the order of launches, of which the host polls the oldest first.
  if (polled.number != num_done_) return COMMSCHED_OK;
  if (NowNs() < polled.due_ns) {
    out_result->wake_at_ns = polled.due_ns;
    return COMMSCHED_OK;
  }
  *out_result = polled.result;
  polled.launch = nullptr;
  ++num_done_;
  return COMMSCHED_OK;
}

// ---- The table --------------------------------------------------------------

commsched_status_t Init(const commsched_host_t* given, char* message,
                        uint64_t message_size) {
  if (given->struct_size <
      offsetof(commsched_host_t, backend) + sizeof(given->backend)) {
    return Refuse(COMMSCHED_UNAVAILABLE, "the library is too old for it",
                  message, message_size);
  }
  host = given;
  return COMMSCHED_OK;
}

constexpr uint32_t kCapabilities =
    COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_TREE_SUMS |
    COMMSCHED_BACKEND_STRIDED | COMMSCHED_BACKEND_P2P |
    COMMSCHED_BACKEND_PROCESSES | COMMSCHED_BACKEND_WAITS_BESIDE;

commsched_status_t InstanceCreate(const commsched_instance_desc_t* desc,
                                  void** out_instance, char* message,
                                  uint64_t message_size) try {
  auto instance = std::make_unique<Instance>();
  std::string error;
  if (!ReadSpec(desc->config, &instance->spec, &error)) {
    return Refuse(COMMSCHED_INVALID_ARGUMENT, error, message, message_size);
  }
  const std::string& name = instance->spec.inner;
  instance->inner = host->backend(host->user, name.c_str());
  if (instance->inner == nullptr || name == "fault") {
    return Refuse(COMMSCHED_NOT_FOUND,
                  "inner backend '" + name + "' is not there", message,
                  message_size);
  }
  // What the table says that it can do it can by the inner one only.
  uint32_t needed = kCapabilities;
  if (desc->world_rank < 0) needed &= ~uint32_t{COMMSCHED_BACKEND_PROCESSES};
  // In place of one that does not wait waits this one.
  if (instance->inner->wait == nullptr) {
    needed &= ~uint32_t{COMMSCHED_BACKEND_WAITS_BESIDE};
  }
  const uint32_t lacks = needed & ~instance->inner->capabilities;
  if (lacks != 0 || instance->inner->poll == nullptr) {
    return Refuse(COMMSCHED_FAILED_PRECONDITION,
                  "inner backend '" + name + "' cannot be polled, or lacks " +
                      "COMMSCHED_BACKEND capabilities " + std::to_string(lacks),
                  message, message_size);
  }
  commsched_instance_desc_t inner_desc = *desc;
  inner_desc.config = instance->spec.inner_config.c_str();
  const commsched_status_t code = instance->inner->instance_create(
      &inner_desc, &instance->inner_instance, message, message_size);
  if (code == COMMSCHED_OK) *out_instance = instance.release();
  return code;
} catch (const std::bad_alloc&) {
  return COMMSCHED_RESOURCE_EXHAUSTED;
}

void InstanceDestroy(void* opaque) {
  auto* instance = static_cast<Instance*>(opaque);
  instance->inner->instance_destroy(instance->inner_instance);
  delete instance;
}

commsched_status_t RankOpen(void* opaque,
                            const commsched_backend_rank_desc_t* desc,
                            void** out_rank, char* message,
                            uint64_t message_size) try {
  auto* instance = static_cast<Instance*>(opaque);
  auto rank = std::make_unique<Rank>();
  rank->instance = instance;
  rank->world_rank = desc->world_rank;
  const commsched_status_t code = instance->inner->rank_open(
      instance->inner_instance, desc, &rank->inner, message, message_size);
  if (code == COMMSCHED_OK) *out_rank = rank.release();
  return code;
} catch (const std::bad_alloc&) {
  return COMMSCHED_RESOURCE_EXHAUSTED;
}

void RankClose(void* opaque) {
  auto* rank = static_cast<Rank*>(opaque);
  rank->instance->inner->rank_close(rank->inner);
  delete rank;
}

commsched_status_t CommCreate(void* opaque, const commsched_comm_desc_t* desc,
                              void** out_comm, char* message,
                              uint64_t message_size) try {
  auto comm = std::make_unique<Comm>(static_cast<Rank*>(opaque), *desc);
  const commsched_status_t code = comm->Create(*desc, message, message_size);
  if (code == COMMSCHED_OK) *out_comm = comm.release();
  return code;
} catch (const std::bad_alloc&) {
  return COMMSCHED_RESOURCE_EXHAUSTED;
}

commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                          uint32_t request, commsched_stream_t /*stream*/,
                          char* message, uint64_t message_size) try {
  return static_cast<Comm*>(comm)->Launch(launch, request, message,
                                          message_size);
} catch (const std::bad_alloc&) {
  return COMMSCHED_RESOURCE_EXHAUSTED;
}

commsched_status_t Poll(void* comm, uint32_t request,
                        commsched_launch_result_t* out_result, char* message,
                        uint64_t message_size) try {
  return static_cast<Comm*>(comm)->Poll(request, out_result, message,
                                        message_size);
} catch (const std::bad_alloc&) {
  return COMMSCHED_RESOURCE_EXHAUSTED;
}

void Abort(void* opaque, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* message) {
  auto* rank = static_cast<Rank*>(opaque);
  for (uint32_t i = 0; i < num_comms; ++i) {
    void* const inner = static_cast<Comm*>(comms[i])->inner_comm();
    rank->instance->inner->abort(rank->inner, &inner, 1, status, message);
  }
}

commsched_status_t CommDestroy(void* comm, int64_t deadline_ns, char* message,
                               uint64_t message_size) {
  const std::unique_ptr<Comm> own(static_cast<Comm*>(comm));
  return own->inner().comm_destroy(own->inner_comm(), deadline_ns, message,
                                   message_size);
}

commsched_status_t CommReady(void* comm, uint32_t* out_ready, char* message,
                             uint64_t message_size) {
  const auto* own = static_cast<Comm*>(comm);
  *out_ready = 1;
  if (own->inner().comm_ready == nullptr) return COMMSCHED_OK;
  return own->inner().comm_ready(own->inner_comm(), out_ready, message,
                                 message_size);
}

commsched_status_t CommStatus(void* comm, char* message,
                              uint64_t message_size) {
  return static_cast<Comm*>(comm)->Status(message, message_size);
}

commsched_status_t CommExpect(void* comm, const commsched_launch_t* launches,
                              uint32_t num_launches, char* message,
                              uint64_t message_size) {
  const auto* own = static_cast<Comm*>(comm);
  if (own->inner().comm_expect == nullptr) return COMMSCHED_OK;
  return own->inner().comm_expect(own->inner_comm(), launches, num_launches,
                                  message, message_size);
}

uint32_t CommMissing(void* comm, uint32_t request, int32_t* out_ranks,
                     uint32_t capacity) {
  return static_cast<Comm*>(comm)->Missing(request, out_ranks, capacity);
}

uint32_t CommSilent(void* comm, uint32_t request, int32_t* out_ranks,
                    uint32_t capacity) {
  return static_cast<Comm*>(comm)->Silent(request, out_ranks, capacity);
}

uint32_t CommStarts(void* comm, commsched_launch_start_t* out_starts,
                    uint32_t capacity) {
  return static_cast<Comm*>(comm)->Starts(out_starts, capacity);
}

commsched_status_t MemRegister(void* opaque, void* const* comms,
                               uint32_t num_comms, void* address,
                               uint64_t bytes, void** out_handle, char* message,
                               uint64_t message_size) try {
  auto* rank = static_cast<Rank*>(opaque);
  const commsched_backend_t& inner = *rank->instance->inner;
  if (inner.mem_register == nullptr) return COMMSCHED_OK;
  std::vector<void*> inner_comms;
  for (uint32_t i = 0; i < num_comms; ++i) {
    inner_comms.push_back(static_cast<Comm*>(comms[i])->inner_comm());
  }
  return inner.mem_register(rank->inner, inner_comms.data(), num_comms, address,
                            bytes, out_handle, message, message_size);
} catch (const std::bad_alloc&) {
  return COMMSCHED_RESOURCE_EXHAUSTED;
}

void MemUnregister(void* opaque, void* handle) {
  auto* rank = static_cast<Rank*>(opaque);
  const commsched_backend_t& inner = *rank->instance->inner;
  if (inner.mem_unregister != nullptr)
    inner.mem_unregister(rank->inner, handle);
}

commsched_status_t CommEstimate(void* comm, const commsched_launch_t* launch,
                                commsched_launch_estimate_t* out_estimate,
                                char* message, uint64_t message_size) {
  const auto* own = static_cast<Comm*>(comm);
  if (own->inner().comm_estimate == nullptr) return COMMSCHED_UNIMPLEMENTED;
  return own->inner().comm_estimate(own->inner_comm(), launch, out_estimate,
                                    message, message_size);
}

void Wait(void* opaque, int64_t deadline_ns) {
  auto* rank = static_cast<Rank*>(opaque);
  if (rank->instance->inner->wait != nullptr) {
    rank->instance->inner->wait(rank->inner, deadline_ns);
    return;
  }
  std::unique_lock<std::mutex> lock(rank->mu);
  const auto is_interrupted = [&] { return rank->interrupted; };
  if (deadline_ns == INT64_MAX) {
    rank->changed.wait(lock, is_interrupted);
  } else {
    const std::chrono::nanoseconds rest(deadline_ns - NowNs());
    rank->changed.wait_for(lock, rest, is_interrupted);
  }
  rank->interrupted = false;
}

void Interrupt(void* opaque) {
  auto* rank = static_cast<Rank*>(opaque);
  if (rank->instance->inner->interrupt != nullptr) {
    rank->instance->inner->interrupt(rank->inner);
    return;
  }
  const std::lock_guard<std::mutex> lock(rank->mu);
  rank->interrupted = true;
  rank->changed.notify_all();
}

const commsched_backend_t table = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = kCapabilities,
    .name = "fault",
    .version = COMMSCHED_VERSION_STRING,
    .kinds = 0,  // All: the inner one refuses what it does not take.
    .dtypes = 0,
    .reductions = 0,
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
    .comm_ready = &CommReady,
    .comm_status = &CommStatus,
    .comm_expect = &CommExpect,
    .comm_missing = &CommMissing,
    .mem_register = &MemRegister,
    .mem_unregister = &MemUnregister,
    .wait = &Wait,
    .interrupt = &Interrupt,
    .mem_alloc = nullptr,
    .mem_free = nullptr,
    .mem_stats = nullptr,
    // There whatever the inner backend has: then nobody is silent, and nothing
    // starts later.
    .comm_silent = &CommSilent,
    .comm_starts = &CommStarts,
    .comm_estimate = &CommEstimate,
};

const commsched_plugin_t plugins[] = {{COMMSCHED_PLUGIN_BACKEND, 0, &table}};

}  // namespace
}  // namespace commsched::fault

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 1,
    .plugins = commsched::fault::plugins,
    .init = &commsched::fault::Init,
};
