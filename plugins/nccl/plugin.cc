// Backend "nccl": collectives of CUDA devices by NVIDIA's NCCL, enqueued on the
// streams that the library hands in. Its configuration is that of config.h;
// NCCL reads its own variables.
#include "commsched/plugin.h"

#include <memory>
#include <string>
#include <vector>

#include "abort.h"
#include "comm.h"
#include "library.h"
#include "rank.h"
#include "support/table.h"
#include "torch_nccl.h"

namespace commsched::nccl {
namespace {

const commsched_host_t* host = nullptr;
Library library;

// A handle is a share: the rank's thread may hold another one.
using Shared = std::shared_ptr<Comm>;
Comm& CommOf(void* handle) { return **static_cast<Shared*>(handle); }

Outcome InstanceCreate(const commsched_instance_desc_t* desc,
                       void** out_instance) {
  auto config = std::make_unique<Config>();
  Outcome outcome = Config::Parse(desc->config, config.get());
  if (outcome.ok()) *out_instance = config.release();
  return outcome;
}

void InstanceDestroy(void* instance) { delete static_cast<Config*>(instance); }

Outcome RankOpen(void* instance, const commsched_backend_rank_desc_t* desc,
                 void** out_rank) {
  if (desc->device_kind != COMMSCHED_DEVICE_CUDA) {
    return {COMMSCHED_INVALID_ARGUMENT, "the rank is not on a CUDA device"};
  }
  // PyTorch may have been imported since NCCL was loaded.
  const Outcome of_torch = CheckNcclOfTorch(library);
  if (!of_torch.ok()) return of_torch;
  const Config& config = *static_cast<const Config*>(instance);
  auto opened = std::make_unique<Rank>(host, &library, config, *desc);
  Outcome started = opened->Start(desc->world_rank);
  if (started.ok()) *out_rank = opened.release();
  return started;
}

void RankClose(void* rank) { Rank::Close(static_cast<Rank*>(rank)); }

Outcome CommCreate(void* rank, const commsched_comm_desc_t* desc,
                   void** out_comm) {
  auto comm = std::make_unique<Shared>();
  const Outcome outcome =
      Comm::Create(static_cast<Rank*>(rank), *desc, comm.get());
  if (outcome.ok()) *out_comm = comm.release();
  return outcome;
}

Outcome CommReady(void* comm, uint32_t* out_ready) {
  return CommOf(comm).IsReady(out_ready);
}

Outcome Launch(void* comm, const commsched_launch_t* launch,
               uint32_t /*request*/, commsched_stream_t stream) {
  return CommOf(comm).Launch(*launch, static_cast<cudaStream_t>(stream.native));
}

Outcome CommExpect(void* comm, const commsched_launch_t* launches,
                   uint32_t num_launches) {
  return CommOf(comm).Expect(launches, num_launches);
}

Outcome CommStatus(void* comm) { return CommOf(comm).Status(); }

void Abort(void* rank, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* why) {
  // Those that graphs may have wait for these, and others do not.
  std::vector<std::shared_ptr<Comm>> marked[2];
  for (uint32_t i = 0; i < num_comms; ++i) {
    const Shared& comm = *static_cast<Shared*>(comms[i]);
    if (!comm->MarkAborted(status, why)) continue;
    marked[comm->may_be_in_graphs() ? 1 : 0].push_back(comm);
  }
  auto* const of = static_cast<Rank*>(rank);
  for (const auto& each : marked) {
    if (!each.empty()) of->RunAside([of, each] { AbortAll(of, each); });
  }
  if (!marked[0].empty() || !marked[1].empty()) of->Wake();
}

Outcome CommDestroy(void* comm, int64_t deadline_ns) {
  const std::unique_ptr<Shared> share(static_cast<Shared*>(comm));
  return (*share)->Destroy(deadline_ns);
}

// Of each communicator what it calls the memory.
struct Registered {
  Shared comm;
  uint64_t number;
};

// NULL where no communicator registers it.
Outcome MemRegister(void* /*rank*/, void* const* comms, uint32_t num_comms,
                    void* address, uint64_t bytes, void** out_handle) {
  auto registered = std::make_unique<std::vector<Registered>>();
  for (uint32_t i = 0; i < num_comms; ++i) {
    const Shared& comm = *static_cast<Shared*>(comms[i]);
    const uint64_t number = comm->Register(address, bytes);
    if (number != 0) registered->push_back({comm, number});
  }
  *out_handle = registered->empty() ? nullptr : registered.release();
  return {};
}

void Deregister(const Registered& one) { one.comm->Deregister(one.number); }

// What one throws keeps none of the others.
void MemUnregister(void* /*rank*/, void* handle) {
  const std::unique_ptr<std::vector<Registered>> registered(
      static_cast<std::vector<Registered>*>(handle));
  if (registered == nullptr) return;
  for (const Registered& each : *registered) kGuarded<&Deregister>(each);
}

Outcome MemAlloc(void* rank, uint64_t bytes, void** out_address) {
  return static_cast<Rank*>(rank)->AllocateArena(bytes, out_address);
}

void MemFree(void* rank, void* address) {
  static_cast<Rank*>(rank)->FreeArena(address);
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
    .reductions = COMMSCHED_BACKEND_BASIC_REDUCTIONS |
                  COMMSCHED_BACKEND_SCALED_REDUCTIONS,
    .memory_kinds = 1u << COMMSCHED_DEVICE_CUDA,
    .instance_create = kGuarded<&InstanceCreate>,
    .instance_destroy = kGuarded<&InstanceDestroy>,
    .rank_open = kGuarded<&RankOpen>,
    .rank_close = kGuarded<&RankClose>,
    .comm_create = kGuarded<&CommCreate>,
    .launch = kGuarded<&Launch>,
    .poll = nullptr,
    .abort = kGuarded<&Abort>,
    .comm_destroy = kGuarded<&CommDestroy>,
    .comm_ready = kGuarded<&CommReady>,
    .comm_status = kGuarded<&CommStatus>,
    .comm_expect = kGuarded<&CommExpect>,
    .comm_missing = nullptr,
    .mem_register = kGuarded<&MemRegister>,
    .mem_unregister = kGuarded<&MemUnregister>,
    .wait = nullptr,
    .interrupt = nullptr,
    .mem_alloc = kGuarded<&MemAlloc>,
    .mem_free = kGuarded<&MemFree>,
    .mem_stats = kGuarded<&MemStats>,
    .comm_silent = nullptr,
    .comm_starts = nullptr,
    .comm_estimate = nullptr,
    .launch_bytes = sizeof(commsched_launch_t),
};

constexpr commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend}};

// What commsched_info() shows of the plugin.
std::string About(const Library& found) {
  std::string text = "NCCL " + found.VersionText() + " in " + found.file;
  if (!found.missing.empty()) text += ", without " + found.missing;
  return text;
}

Outcome Init(const commsched_host_t* the_host) {
  Library found;
  Outcome outcome = found.Load();
  if (!outcome.ok()) return outcome;
  host = the_host;
  library = found;
  return {COMMSCHED_OK, About(library)};
}

}  // namespace
}  // namespace commsched::nccl

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = commsched::PluginList(
    commsched::nccl::kPlugins, commsched::kGuarded<&commsched::nccl::Init>);
