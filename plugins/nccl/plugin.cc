// Backend "nccl": collectives of CUDA devices by NVIDIA's NCCL, enqueued on the
// streams that the library hands in. Its configuration is that of config.h;
// NCCL reads its own variables.
#include "commsched/plugin.h"

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "abort.h"
#include "comm.h"
#include "library.h"
#include "rank.h"

namespace commsched::nccl {
namespace {

const commsched_host_t* host = nullptr;
Library library;

commsched_status_t Report(const Outcome& outcome, char* message,
                          uint64_t message_size) {
  if (!outcome.ok() && message_size != 0) {
    snprintf(message, message_size, "%s", outcome.reason.c_str());
  }
  return outcome.code;
}

// Calls `body`; what it throws, as the standard library does without memory, is
// a failure.
template <typename Body>
commsched_status_t Guard(char* message, uint64_t message_size, Body body) {
  try {
    return Report(body(), message, message_size);
  } catch (const std::bad_alloc&) {
    return Report({COMMSCHED_RESOURCE_EXHAUSTED, "no memory"}, message,
                  message_size);
  } catch (...) {
    return Report({COMMSCHED_INTERNAL, "an exception"}, message, message_size);
  }
}

// A handle is a share: the rank's thread may hold another one.
using Shared = std::shared_ptr<Comm>;
Comm& CommOf(void* handle) { return **static_cast<Shared*>(handle); }

commsched_status_t InstanceCreate(const commsched_instance_desc_t* desc,
                                  void** out_instance, char* message,
                                  uint64_t message_size) {
  return Guard(message, message_size, [&]() -> Outcome {
    auto config = std::make_unique<Config>();
    Outcome outcome = Config::Parse(desc->config, config.get());
    if (outcome.ok()) *out_instance = config.release();
    return outcome;
  });
}

void InstanceDestroy(void* instance) { delete static_cast<Config*>(instance); }

commsched_status_t RankOpen(void* instance,
                            const commsched_backend_rank_desc_t* desc,
                            void** out_rank, char* message,
                            uint64_t message_size) {
  return Guard(message, message_size, [&]() -> Outcome {
    if (desc->device_kind != COMMSCHED_DEVICE_CUDA) {
      return {COMMSCHED_INVALID_ARGUMENT, "the rank is not on a CUDA device"};
    }
    const Config& config = *static_cast<const Config*>(instance);
    auto opened = std::make_unique<Rank>(host, &library, config, *desc);
    Outcome started = opened->Start(desc->world_rank);
    if (started.ok()) *out_rank = opened.release();
    return started;
  });
}

void RankClose(void* rank) { Rank::Close(static_cast<Rank*>(rank)); }

commsched_status_t CommCreate(void* rank, const commsched_comm_desc_t* desc,
                              void** out_comm, char* message,
                              uint64_t message_size) {
  return Guard(message, message_size, [&]() -> Outcome {
    auto comm = std::make_unique<Shared>();
    const Outcome outcome =
        Comm::Create(static_cast<Rank*>(rank), *desc, comm.get());
    if (outcome.ok()) *out_comm = comm.release();
    return outcome;
  });
}

commsched_status_t CommReady(void* comm, uint32_t* out_ready, char* message,
                             uint64_t message_size) {
  return Guard(message, message_size,
               [&] { return CommOf(comm).IsReady(out_ready); });
}

commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                          uint32_t /*request*/, commsched_stream_t stream,
                          char* message, uint64_t message_size) {
  return Guard(message, message_size, [&] {
    return CommOf(comm).Launch(*launch,
                               static_cast<cudaStream_t>(stream.native));
  });
}

commsched_status_t CommExpect(void* comm, const commsched_launch_t* launches,
                              uint32_t num_launches, char* message,
                              uint64_t message_size) {
  return Guard(message, message_size,
               [&] { return CommOf(comm).Expect(launches, num_launches); });
}

commsched_status_t CommStatus(void* comm, char* message,
                              uint64_t message_size) {
  return Guard(message, message_size, [&] { return CommOf(comm).Status(); });
}

void Abort(void* rank, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* why) {
  Guard(nullptr, 0, [&]() -> Outcome {
    std::vector<std::shared_ptr<Comm>> marked;
    for (uint32_t i = 0; i < num_comms; ++i) {
      const Shared& comm = *static_cast<Shared*>(comms[i]);
      if (comm->MarkAborted(status, why)) marked.push_back(comm);
    }
    if (marked.empty()) return {};
    auto* const of = static_cast<Rank*>(rank);
    of->RunAside([of, marked] { AbortAll(of, marked); });
    of->Wake();
    return {};
  });
}

commsched_status_t CommDestroy(void* comm, int64_t deadline_ns, char* message,
                               uint64_t message_size) {
  const std::unique_ptr<Shared> share(static_cast<Shared*>(comm));
  return Guard(message, message_size,
               [&] { return (*share)->Destroy(deadline_ns); });
}

// Of each communicator what it calls the memory.
struct Registered {
  Comm* comm;
  void* handle;
};

commsched_status_t MemRegister(void* /*rank*/, void* const* comms,
                               uint32_t num_comms, void* address,
                               uint64_t bytes, void** out_handle, char* message,
                               uint64_t message_size) {
  return Guard(message, message_size, [&]() -> Outcome {
    auto registered = std::make_unique<std::vector<Registered>>();
    for (uint32_t i = 0; i < num_comms; ++i) {
      Comm& comm = CommOf(comms[i]);
      registered->push_back({&comm, comm.Register(address, bytes)});
    }
    *out_handle = registered.release();
    return {};
  });
}

void MemUnregister(void* /*rank*/, void* handle) {
  const std::unique_ptr<std::vector<Registered>> registered(
      static_cast<std::vector<Registered>*>(handle));
  for (const Registered& each : *registered) {
    Guard(nullptr, 0, [&]() -> Outcome {
      each.comm->Deregister(each.handle);
      return {};
    });
  }
}

commsched_status_t MemAlloc(void* rank, uint64_t bytes, void** out_address,
                            char* message, uint64_t message_size) {
  return Guard(message, message_size, [&] {
    return static_cast<Rank*>(rank)->AllocateArena(bytes, out_address);
  });
}

void MemFree(void* rank, void* address) {
  Guard(nullptr, 0, [&]() -> Outcome {
    static_cast<Rank*>(rank)->FreeArena(address);
    return {};
  });
}

void MemStats(void* rank, commsched_backend_memory_t* out_memory) {
  static_cast<Rank*>(rank)->FillStats(out_memory);
}

constexpr commsched_backend_t kBackend = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_TREE_SUMS |
                    COMMSCHED_BACKEND_STREAM_ORDERED | COMMSCHED_BACKEND_P2P |
                    COMMSCHED_BACKEND_PROCESSES,
    .name = "nccl",
    .version = COMMSCHED_VERSION_STRING,
    .kinds = 0,
    .dtypes = 0,
    .reductions = 0,
    .memory_kinds = 1u << COMMSCHED_DEVICE_CUDA,
    .instance_create = &InstanceCreate,
    .instance_destroy = &InstanceDestroy,
    .rank_open = &RankOpen,
    .rank_close = &RankClose,
    .comm_create = &CommCreate,
    .launch = &Launch,
    .poll = nullptr,
    .abort = &Abort,
    .comm_destroy = &CommDestroy,
    .comm_ready = &CommReady,
    .comm_status = &CommStatus,
    .comm_expect = &CommExpect,
    .comm_missing = nullptr,
    .mem_register = &MemRegister,
    .mem_unregister = &MemUnregister,
    .wait = nullptr,
    .interrupt = nullptr,
    .mem_alloc = &MemAlloc,
    .mem_free = &MemFree,
    .mem_stats = &MemStats,
    .comm_silent = nullptr,
    .comm_starts = nullptr,
    .comm_estimate = nullptr,
};

constexpr commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend}};

// What commsched_info() shows of the plugin.
std::string About(const Library& found) {
  std::string text = "NCCL " + found.VersionText() + " in " + found.file;
  if (!found.missing.empty()) text += ", without " + found.missing;
  return text;
}

commsched_status_t Init(const commsched_host_t* the_host, char* message,
                        uint64_t message_size) {
  return Guard(message, message_size, [&] {
    Library found;
    Outcome outcome = found.Load();
    if (!outcome.ok()) return outcome;
    host = the_host;
    library = found;
    if (message_size != 0) {
      snprintf(message, message_size, "%s", About(library).c_str());
    }
    return outcome;
  });
}

}  // namespace
}  // namespace commsched::nccl

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 1,
    .plugins = commsched::nccl::kPlugins,
    .init = &commsched::nccl::Init,
};
