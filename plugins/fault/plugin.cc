// Backend "fault": another backend, on which things go wrong (spec.h). For
// tests of what is built on commsched, and of commsched.
#include "commsched/plugin.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "spec.h"
#include "support/table.h"

namespace commsched::fault {
namespace {

const commsched_host_t* host = nullptr;

int64_t NowNs() { return host->now_ns(host->user); }

// Calls `function` of the inner backend, which gets room for a message, too.
template <typename Function, typename... Arguments>
Outcome CallInner(Function function, Arguments... arguments) {
  char message[512] = {};
  const commsched_status_t code =
      function(arguments..., message, sizeof(message) - 1);
  return {code, message};
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
        requests_(desc.max_in_flight) {
    held_.reserve(desc.max_in_flight);
  }

  Outcome Create(const commsched_comm_desc_t& desc) {
    return CallInner(inner_.comm_create, rank_.inner, &desc, &comm_);
  }
  const commsched_backend_t& inner() const { return inner_; }
  void* inner_comm() const { return comm_; }

  Outcome Launch(const commsched_launch_t* launch, uint32_t request);
  Outcome Poll(uint32_t request, commsched_launch_result_t* out_result);
  // The inner one's failure, if it tells of one.
  Outcome Status() const {
    if (inner_.comm_status == nullptr) return {};
    return CallInner(inner_.comm_status, comm_);
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
    uint64_t in_order = 0;  // Among those that are not tagged.
    bool issued = false;
    bool done_below = false;
    int64_t due_ns = 0;  // When it is handed on, or reported done.
    commsched_launch_result_t result = {};
  };

  Outcome Injected(const Request& request);
  Outcome CheckFlags(const commsched_launch_t& launch) const;
  bool IsBehindHeld(size_t index) const;
  Outcome IssueDue();

  const Rank& rank_;
  const commsched_backend_t& inner_;
  const std::string axis_;
  void* comm_ = nullptr;
  std::vector<Request> requests_;
  std::vector<uint32_t> held_;  // Not handed on yet, in order.
  uint64_t num_launched_ = 0;
  uint64_t num_in_order_ = 0;  // Of them, those that are not tagged,
  uint64_t num_done_ = 0;      // and of these, reported done.
};

bool IsTagged(const commsched_launch_t& launch) {
  return (launch.flags & COMMSCHED_LAUNCH_TAGGED) != 0;
}

Outcome Comm::Injected(const Request& request) {
  std::string why = "injected into launch #";
  why += std::to_string(request.number);
  why += " on axis '" + axis_ + "' of rank ";
  why += std::to_string(rank_.world_rank);
  // What is under way must not go on in memory that the host takes back.
  inner_.abort(rank_.inner, &comm_, 1, COMMSCHED_DATA_LOSS, why.c_str());
  return {COMMSCHED_DATA_LOSS, why};
}

// An inner backend that does not know a flag would not look at it.
Outcome Comm::CheckFlags(const commsched_launch_t& launch) const {
  const auto lacks = [&](uint32_t flag, uint32_t capability) {
    return (launch.flags & flag) != 0 &&
           (inner_.capabilities & capability) == 0;
  };
  const char* what = nullptr;
  if (lacks(COMMSCHED_LAUNCH_TAGGED, COMMSCHED_BACKEND_TAGS)) {
    what = "COMMSCHED_BACKEND_TAGS";
  } else if (lacks(COMMSCHED_LAUNCH_OWN_COUNTS, COMMSCHED_BACKEND_OWN_COUNTS)) {
    what = "COMMSCHED_BACKEND_OWN_COUNTS";
  }
  if (what == nullptr) return {};
  return {COMMSCHED_INVALID_ARGUMENT,
          std::string("inner backend '") + inner_.name + "' lacks " + what};
}

Outcome Comm::Launch(const commsched_launch_t* launch, uint32_t request) {
  if (request >= requests_.size()) {
    return {COMMSCHED_INVALID_ARGUMENT, "request " + std::to_string(request) +
                                            " is not below " +
                                            std::to_string(requests_.size())};
  }
  Outcome checked = CheckFlags(*launch);
  if (!checked.ok()) return checked;
  Request& posted = requests_[request];
  posted = Request();
  posted.launch = launch;
  posted.number = num_launched_++;
  if (!IsTagged(*launch)) posted.in_order = num_in_order_++;
  posted.fault =
      Match(rank_.instance->spec, rank_.world_rank, axis_, posted.number);
  const bool is_late =
      posted.fault != nullptr && posted.fault->kind == Fault::Kind::kLate;
  if (posted.fault != nullptr &&
      posted.fault->kind == Fault::Kind::kFailLaunch) {
    return Injected(posted);
  }
  posted.due_ns = is_late ? NowNs() + posted.fault->delay_ns : 0;
  held_.push_back(request);
  return IssueDue();
}

// Whether one that is held, and has its place in the same order, comes first.
bool Comm::IsBehindHeld(size_t index) const {
  const commsched_launch_t& own = *requests_[held_[index]].launch;
  for (size_t i = 0; i < index; ++i) {
    const commsched_launch_t& other = *requests_[held_[i]].launch;
    if (IsTagged(own) != IsTagged(other)) continue;
    if (!IsTagged(own) || own.tag == other.tag) return true;
  }
  return false;
}

Outcome Comm::IssueDue() {
  for (size_t i = 0; i < held_.size();) {
    const uint32_t number = held_[i];
    Request& held = requests_[number];
    const bool is_due = held.due_ns == 0 || NowNs() >= held.due_ns;
    if (!is_due || IsBehindHeld(i)) {
      ++i;
      continue;
    }
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    held.issued = true;
    Outcome outcome = CallInner(inner_.launch, comm_, held.launch, number,
                                commsched_stream_caller());
    if (!outcome.ok()) return outcome;
  }
  return {};
}

Outcome Comm::Poll(uint32_t request, commsched_launch_result_t* out_result) {
  *out_result = {};
  Outcome issued = IssueDue();
  if (!issued.ok()) return issued;
  if (request >= requests_.size() || requests_[request].launch == nullptr) {
    return {COMMSCHED_INVALID_ARGUMENT, "poll of request " +
                                            std::to_string(request) +
                                            ", which is not in flight"};
  }
  Request& polled = requests_[request];
  if (!polled.issued) {
    for (const uint32_t held : held_) {
      const int64_t due_ns = requests_[held].due_ns;
      if (due_ns == 0) continue;
      const int64_t wake_ns = out_result->wake_at_ns;
      out_result->wake_at_ns =
          wake_ns == 0 ? due_ns : std::min(wake_ns, due_ns);
    }
    return {};
  }
  if (!polled.done_below) {
    Outcome outcome = CallInner(inner_.poll, comm_, request, &polled.result);
    if (!outcome.ok() || polled.result.done == 0) {
      *out_result = polled.result;
      return outcome;
    }
    polled.done_below = true;
    const bool is_delayed =
        polled.fault != nullptr && polled.fault->kind == Fault::Kind::kDelay;
    polled.due_ns = is_delayed ? NowNs() + polled.fault->delay_ns : 0;
  }
  if (polled.fault != nullptr) {
    if (polled.fault->kind == Fault::Kind::kFailPoll) {
      return Injected(polled);
    }
    // Only an abort ends it.
    if (polled.fault->kind == Fault::Kind::kHang) return Status();
  }
  // In the order of launches, of which the host polls the oldest first.
  const bool is_tagged = IsTagged(*polled.launch);
  if (!is_tagged && polled.in_order != num_done_) return {};
  if (NowNs() < polled.due_ns) {
    out_result->wake_at_ns = polled.due_ns;
    return {};
  }
  *out_result = polled.result;
  polled.launch = nullptr;
  if (!is_tagged) ++num_done_;
  return {};
}

// ---- The table --------------------------------------------------------------

Outcome Init(const commsched_host_t* given) {
  if (given->struct_size <
      offsetof(commsched_host_t, backend) + sizeof(given->backend)) {
    return {COMMSCHED_UNAVAILABLE, "the library is too old for it"};
  }
  host = given;
  return {};
}

constexpr uint32_t kCapabilities =
    COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_TREE_SUMS |
    COMMSCHED_BACKEND_STRIDED | COMMSCHED_BACKEND_P2P |
    COMMSCHED_BACKEND_PROCESSES | COMMSCHED_BACKEND_WAITS_BESIDE |
    COMMSCHED_BACKEND_TAGS | COMMSCHED_BACKEND_OWN_COUNTS;

Outcome InstanceCreate(const commsched_instance_desc_t* desc,
                       void** out_instance) {
  auto instance = std::make_unique<Instance>();
  std::string error;
  if (!ReadSpec(desc->config, &instance->spec, &error)) {
    return {COMMSCHED_INVALID_ARGUMENT, error};
  }
  const std::string& name = instance->spec.inner;
  instance->inner = host->backend(host->user, name.c_str());
  if (instance->inner == nullptr || name == "fault") {
    return {COMMSCHED_NOT_FOUND, "inner backend '" + name + "' is not there"};
  }
  // What the table says that it can do it can by the inner one only.
  // Launches with flags are refused one by one.
  uint32_t needed = kCapabilities & ~uint32_t{COMMSCHED_BACKEND_TAGS |
                                              COMMSCHED_BACKEND_OWN_COUNTS};
  if (desc->world_rank < 0) needed &= ~uint32_t{COMMSCHED_BACKEND_PROCESSES};
  // In place of one that does not wait waits this one.
  if (instance->inner->wait == nullptr) {
    needed &= ~uint32_t{COMMSCHED_BACKEND_WAITS_BESIDE};
  }
  const uint32_t lacks = needed & ~instance->inner->capabilities;
  if (lacks != 0 || instance->inner->poll == nullptr) {
    return {COMMSCHED_FAILED_PRECONDITION,
            "inner backend '" + name + "' cannot be polled, or lacks " +
                "COMMSCHED_BACKEND capabilities " + std::to_string(lacks)};
  }
  commsched_instance_desc_t inner_desc = *desc;
  inner_desc.config = instance->spec.inner_config.c_str();
  Outcome outcome = CallInner(instance->inner->instance_create, &inner_desc,
                              &instance->inner_instance);
  if (outcome.ok()) *out_instance = instance.release();
  return outcome;
}

void InstanceDestroy(void* opaque) {
  auto* instance = static_cast<Instance*>(opaque);
  instance->inner->instance_destroy(instance->inner_instance);
  delete instance;
}

Outcome RankOpen(void* opaque, const commsched_backend_rank_desc_t* desc,
                 void** out_rank) {
  auto* instance = static_cast<Instance*>(opaque);
  auto rank = std::make_unique<Rank>();
  rank->instance = instance;
  rank->world_rank = desc->world_rank;
  Outcome outcome = CallInner(instance->inner->rank_open,
                              instance->inner_instance, desc, &rank->inner);
  if (outcome.ok()) *out_rank = rank.release();
  return outcome;
}

void RankClose(void* opaque) {
  auto* rank = static_cast<Rank*>(opaque);
  rank->instance->inner->rank_close(rank->inner);
  delete rank;
}

Outcome CommCreate(void* opaque, const commsched_comm_desc_t* desc,
                   void** out_comm) {
  auto comm = std::make_unique<Comm>(static_cast<Rank*>(opaque), *desc);
  Outcome outcome = comm->Create(*desc);
  if (outcome.ok()) *out_comm = comm.release();
  return outcome;
}

Outcome Launch(void* comm, const commsched_launch_t* launch, uint32_t request,
               commsched_stream_t /*stream*/) {
  return static_cast<Comm*>(comm)->Launch(launch, request);
}

Outcome Poll(void* comm, uint32_t request,
             commsched_launch_result_t* out_result) {
  return static_cast<Comm*>(comm)->Poll(request, out_result);
}

void Abort(void* opaque, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* message) {
  auto* rank = static_cast<Rank*>(opaque);
  for (uint32_t i = 0; i < num_comms; ++i) {
    void* const inner = static_cast<Comm*>(comms[i])->inner_comm();
    rank->instance->inner->abort(rank->inner, &inner, 1, status, message);
  }
}

Outcome CommDestroy(void* comm, int64_t deadline_ns) {
  const std::unique_ptr<Comm> own(static_cast<Comm*>(comm));
  return CallInner(own->inner().comm_destroy, own->inner_comm(), deadline_ns);
}

Outcome CommReady(void* comm, uint32_t* out_ready) {
  const auto* own = static_cast<Comm*>(comm);
  *out_ready = 1;
  if (own->inner().comm_ready == nullptr) return {};
  return CallInner(own->inner().comm_ready, own->inner_comm(), out_ready);
}

Outcome CommStatus(void* comm) { return static_cast<Comm*>(comm)->Status(); }

Outcome CommExpect(void* comm, const commsched_launch_t* launches,
                   uint32_t num_launches) {
  const auto* own = static_cast<Comm*>(comm);
  const commsched_backend_t& inner = own->inner();
  if (inner.comm_expect == nullptr) return {};
  if (inner.launch_bytes == sizeof(commsched_launch_t)) {
    return CallInner(inner.comm_expect, own->inner_comm(), launches,
                     num_launches);
  }
  // Of another age: as far apart as it looks for them.
  std::vector<char> apart(inner.launch_bytes * num_launches);
  for (uint32_t i = 0; i < num_launches; ++i) {
    commsched_launch_t launch = launches[i];
    launch.struct_size = std::min<uint64_t>(sizeof(launch), inner.launch_bytes);
    std::memcpy(apart.data() + i * inner.launch_bytes, &launch,
                launch.struct_size);
  }
  return CallInner(inner.comm_expect, own->inner_comm(),
                   reinterpret_cast<const commsched_launch_t*>(apart.data()),
                   num_launches);
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

Outcome MemRegister(void* opaque, void* const* comms, uint32_t num_comms,
                    void* address, uint64_t bytes, void** out_handle) {
  auto* rank = static_cast<Rank*>(opaque);
  const commsched_backend_t& inner = *rank->instance->inner;
  if (inner.mem_register == nullptr) return {};
  std::vector<void*> inner_comms;
  for (uint32_t i = 0; i < num_comms; ++i) {
    inner_comms.push_back(static_cast<Comm*>(comms[i])->inner_comm());
  }
  return CallInner(inner.mem_register, rank->inner, inner_comms.data(),
                   num_comms, address, bytes, out_handle);
}

void MemUnregister(void* opaque, void* handle) {
  auto* rank = static_cast<Rank*>(opaque);
  const commsched_backend_t& inner = *rank->instance->inner;
  if (inner.mem_unregister != nullptr)
    inner.mem_unregister(rank->inner, handle);
}

Outcome CommEstimate(void* comm, const commsched_launch_t* launch,
                     commsched_launch_estimate_t* out_estimate) {
  const auto* own = static_cast<Comm*>(comm);
  if (own->inner().comm_estimate == nullptr) {
    return {COMMSCHED_UNIMPLEMENTED, ""};
  }
  return CallInner(own->inner().comm_estimate, own->inner_comm(), launch,
                   out_estimate);
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

const commsched_backend_t kBackend = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = kCapabilities,
    .name = "fault",
    .version = COMMSCHED_VERSION_STRING,
    .kinds = 0,  // All: the inner one refuses what it does not take.
    .dtypes = 0,
    .reductions = 0,
    .memory_kinds = 0,
    .instance_create = kGuarded<&InstanceCreate>,
    .instance_destroy = kGuarded<&InstanceDestroy>,
    .rank_open = kGuarded<&RankOpen>,
    .rank_close = kGuarded<&RankClose>,
    .comm_create = kGuarded<&CommCreate>,
    .launch = kGuarded<&Launch>,
    .poll = kGuarded<&Poll>,
    .abort = kGuarded<&Abort>,
    .comm_destroy = kGuarded<&CommDestroy>,
    .comm_ready = kGuarded<&CommReady>,
    .comm_status = kGuarded<&CommStatus>,
    .comm_expect = kGuarded<&CommExpect>,
    .comm_missing = kGuarded<&CommMissing>,
    .mem_register = kGuarded<&MemRegister>,
    .mem_unregister = kGuarded<&MemUnregister>,
    .wait = kGuarded<&Wait>,
    .interrupt = kGuarded<&Interrupt>,
    .mem_alloc = nullptr,
    .mem_free = nullptr,
    .mem_stats = nullptr,
    // There whatever the inner backend has: then nobody is silent, and nothing
    // starts later.
    .comm_silent = kGuarded<&CommSilent>,
    .comm_starts = kGuarded<&CommStarts>,
    .comm_estimate = kGuarded<&CommEstimate>,
    .launch_bytes = sizeof(commsched_launch_t),
};

const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend}};

}  // namespace
}  // namespace commsched::fault

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = commsched::PluginList(
    commsched::fault::kPlugins, commsched::kGuarded<&commsched::fault::Init>);
