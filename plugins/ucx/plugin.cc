// Backend "ucx": collectives of processes, by shared memory of its own between
// ranks of a host, and over UCP between hosts, on TCP or RDMA as UCX finds it.
//
// The configuration is a list "key=value;key=value" of
//   tls          as UCX_TLS, such as tls=tcp,self
//   net_devices  as UCX_NET_DEVICES
//   spin_us      how long a thread polls before it sleeps; 0 by default, or
//                COMMSCHED_UCX_SPIN_US
//   chunk_bytes  what is reduced at once, while the next chunk travels
//   window_bytes while so much is still to be sent, of all communicators, only
//                the oldest launch of each may begin to send; and while a
//                member has been sent so much of launches that it has not
//                posted, no further one that sends to it
//   ranks_per_host  as if so many ranks, in their order, were on a host each
//   local        how ranks of one host reach each other: read (by shared
//                memory, and large messages are read from each other's), shm
//                (by shared memory alone) or net (by UCX, as hosts do);
//                COMMSCHED_UCX_LOCAL, or read by default
//   algorithm    how launches are made: auto, by predicted cost, as by default;
//                exchange, levels or tree (algorithms/), and launches that it
//                does not do are refused; or, such as tree,auto, are done by
//                cost
//
// Where to find what, from below:
//   process/     what the process has of its own: descriptors and its exit
//   host/        messages between ranks of a host, in memory that they share
//   network/     endpoints of UCX, notices, and when large messages go
//   algorithms/  a launch, made into steps on messages: by which algorithm, of
//                which parts, in which order; without UCX
//   times/       when ranks issue what, on one clock
//   group_join   ranks become a communicator
//   comm*.cc     a communicator: its launches, messages, failures and end
#include "commsched/plugin.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "support/table.h"
#include "ucx/comm.h"
#include "ucx/network/network.h"
#include "ucx/network/signals.h"
#include "ucx/process/close_on_exec.h"
#include "ucx/process/exit_gate.h"

namespace commsched::ucx {
namespace {

const commsched_host_t* host = nullptr;

Outcome ReadNumber(const std::string& what, const std::string& text,
                   uint64_t least, uint64_t most, uint64_t* out) {
  char* end = nullptr;
  const unsigned long long value = strtoull(text.c_str(), &end, 10);
  const bool digits = !text.empty() && text[0] >= '0' && text[0] <= '9';
  if (!digits || *end != '\0' || value < least || value > most) {
    return {COMMSCHED_INVALID_ARGUMENT,
            what + " is '" + text + "', not an integer in " +
                std::to_string(least) + ".." + std::to_string(most)};
  }
  *out = value;
  return {};
}

Outcome ReadSpin(const std::string& what, const std::string& text,
                 NetworkOptions* options) {
  uint64_t us = 0;
  Outcome outcome = ReadNumber(what, text, 0, 1'000'000, &us);
  if (outcome.ok()) options->spin_ns = static_cast<int64_t>(us) * 1000;
  return outcome;
}

Outcome ReadLocal(const std::string& what, const std::string& text,
                  NetworkOptions* options) {
  using Local = NetworkOptions::Local;
  if (text == "read") {
    options->local = Local::kRead;
  } else if (text == "shm") {
    options->local = Local::kShm;
  } else if (text == "net") {
    options->local = Local::kNet;
  } else {
    return {COMMSCHED_INVALID_ARGUMENT,
            what + " is '" + text + "', not read, shm or net"};
  }
  return {};
}

Outcome ReadEnvironment(NetworkOptions* options) {
  const char* const spin = getenv("COMMSCHED_UCX_SPIN_US");
  if (spin != nullptr && *spin != '\0') {
    Outcome outcome = ReadSpin("COMMSCHED_UCX_SPIN_US", spin, options);
    if (!outcome.ok()) return outcome;
  }
  const char* const local = getenv("COMMSCHED_UCX_LOCAL");
  if (local == nullptr || *local == '\0') return {};
  return ReadLocal("COMMSCHED_UCX_LOCAL", local, options);
}

Outcome ReadOptions(const std::string& config, NetworkOptions* options) {
  const Outcome environment = ReadEnvironment(options);
  if (!environment.ok()) return environment;
  std::set<std::string> keys;
  for (size_t begin = 0; begin < config.size();) {
    const size_t end = std::min(config.find(';', begin), config.size());
    const std::string item = config.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    if (!keys.insert(key).second) {
      return {COMMSCHED_INVALID_ARGUMENT,
              "configuration: " + key + " is given twice; give it once"};
    }
    const std::string value =
        equals == std::string::npos ? "" : item.substr(equals + 1);
    if (key == "tls") {
      options->tls = value;
    } else if (key == "net_devices") {
      options->net_devices = value;
    } else if (key == "spin_us") {
      Outcome outcome = ReadSpin("configuration: spin_us", value, options);
      if (!outcome.ok()) return outcome;
    } else if (key == "chunk_bytes") {
      Outcome outcome = ReadNumber("configuration: chunk_bytes", value, 1024,
                                   1 << 30, &options->choice.chunk_bytes);
      if (!outcome.ok()) return outcome;
    } else if (key == "window_bytes") {
      Outcome outcome = ReadNumber("configuration: window_bytes", value, 1,
                                   uint64_t{1} << 40, &options->window_bytes);
      if (!outcome.ok()) return outcome;
    } else if (key == "ranks_per_host") {
      Outcome outcome = ReadNumber("configuration: ranks_per_host", value, 1,
                                   1 << 20, &options->ranks_per_host);
      if (!outcome.ok()) return outcome;
    } else if (key == "local") {
      Outcome outcome = ReadLocal("configuration: local", value, options);
      if (!outcome.ok()) return outcome;
    } else if (key == "read_bytes") {
      // An offer comes to where the message would.
      static_assert(sizeof(Offer) <= 1024);
      Outcome outcome = ReadNumber("configuration: read_bytes", value, 1024,
                                   uint64_t{1} << 40, &options->read_bytes);
      if (!outcome.ok()) return outcome;
    } else if (key == "algorithm") {
      Outcome outcome = ReadAlgorithm(value, &options->choice);
      if (!outcome.ok()) return outcome;
    } else {
      return {COMMSCHED_INVALID_ARGUMENT,
              "configuration: '" + item +
                  "' is not tls=, net_devices=, spin_us=, chunk_bytes=, "
                  "window_bytes=, ranks_per_host=, local=, read_bytes= or "
                  "algorithm="};
    }
  }
  return {};
}

Outcome Init(const commsched_host_t* given) {
  if (given->struct_size <
      offsetof(commsched_host_t, reduce_tree) + sizeof(given->reduce_tree)) {
    return {COMMSCHED_UNAVAILABLE, "the library is too old for it"};
  }
  host = given;
  GiveSignalsBack();
  return {};
}

struct Instance {
  NetworkOptions options;
};

Outcome InstanceCreate(const commsched_instance_desc_t* desc,
                       void** out_instance) {
  if (desc->world_rank < 0) {
    return {COMMSCHED_FAILED_PRECONDITION,
            "connects processes; for ranks that are threads of one there is "
            "'inproc'"};
  }
  auto instance = std::make_unique<Instance>();
  Outcome outcome = ReadOptions(desc->config, &instance->options);
  if (outcome.ok()) *out_instance = instance.release();
  return outcome;
}

void InstanceDestroy(void* instance) {
  delete static_cast<Instance*>(instance);
}

Outcome RankOpen(void* instance, const commsched_backend_rank_desc_t* desc,
                 void** out_rank) {
  const InUcx in_ucx;
  std::unique_ptr<Network> network;
  Outcome outcome = Network::Create(
      *desc, host, static_cast<Instance*>(instance)->options, &network);
  if (outcome.ok()) *out_rank = network.release();
  return outcome;
}

void RankClose(void* rank) {
  const InUcx in_ucx;
  delete static_cast<Network*>(rank);
}

struct Handle {
  std::shared_ptr<Comm> comm;
  // From here until it is ready, connections are made.
  std::unique_ptr<CloseOnExec> connecting = std::make_unique<CloseOnExec>();
};

Comm& Of(void* comm) { return *static_cast<Handle*>(comm)->comm; }

Outcome CommCreate(void* rank, const commsched_comm_desc_t* desc,
                   void** out_comm) {
  const InUcx in_ucx;
  auto handle = std::make_unique<Handle>();
  Outcome outcome =
      Comm::Create(static_cast<Network*>(rank), *desc, &handle->comm);
  if (outcome.ok()) *out_comm = handle.release();
  return outcome;
}

Outcome CommReady(void* comm, uint32_t* out_ready) {
  bool ready = false;
  std::string waits_for;
  const InUcx in_ucx;
  Outcome outcome = Of(comm).Ready(&ready, &waits_for);
  if (ready) static_cast<Handle*>(comm)->connecting.reset();
  *out_ready = ready ? 1 : 0;
  if (outcome.ok() && !ready) return {COMMSCHED_OK, waits_for};
  return outcome;
}

Outcome CommExpect(void* comm, const commsched_launch_t* launches,
                   uint32_t num_launches) {
  return Of(comm).Expect(launches, num_launches);
}

Outcome Launch(void* comm, const commsched_launch_t* launch, uint32_t request,
               commsched_stream_t /*stream*/) {
  return Of(comm).Launch(*launch, request);
}

Outcome Poll(void* comm, uint32_t request,
             commsched_launch_result_t* out_result) {
  return Of(comm).Poll(request, out_result);
}

// All at once: they stop together (Comm::Stop).
void Abort(void* rank, void* const* comms, uint32_t num_comms,
           commsched_status_t status, const char* message) {
  const std::lock_guard<std::mutex> lock(static_cast<Network*>(rank)->mu());
  for (uint32_t i = 0; i < num_comms; ++i) {
    Of(comms[i]).Abort(status, message);
  }
}

// After it has failed UCX may be stopped (Network::Stop): nothing is touched.
Outcome CommDestroy(void* comm, int64_t /*deadline_ns*/) {
  const std::unique_ptr<Handle> handle(static_cast<Handle*>(comm));
  const InUcx in_ucx;
  handle->comm->Leave();
  return {};
}

Outcome CommStatus(void* comm) { return Of(comm).Status(); }

uint32_t CommMissing(void* comm, uint32_t request, int32_t* out_ranks,
                     uint32_t capacity) {
  return Of(comm).Missing(request, out_ranks, capacity);
}

uint32_t CommSilent(void* comm, uint32_t request, int32_t* out_ranks,
                    uint32_t capacity) {
  return Of(comm).Silent(request, out_ranks, capacity);
}

uint32_t CommStarts(void* comm, commsched_launch_start_t* out_starts,
                    uint32_t capacity) {
  return Of(comm).TakeStarts(out_starts, capacity);
}

// The library that calls it knows at least today's fields.
Outcome CommEstimate(void* comm, const commsched_launch_t* launch,
                     commsched_launch_estimate_t* out_estimate) {
  return Of(comm).Estimate(*launch, out_estimate);
}

void Wait(void* rank, int64_t deadline_ns) {
  static_cast<Network*>(rank)->Wait(deadline_ns);
}

void Interrupt(void* rank) { static_cast<Network*>(rank)->Interrupt(); }

const commsched_backend_t kBackend = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_TREE_SUMS |
                    COMMSCHED_BACKEND_STRIDED | COMMSCHED_BACKEND_P2P |
                    COMMSCHED_BACKEND_PROCESSES | COMMSCHED_BACKEND_HOST_SUMS |
                    COMMSCHED_BACKEND_WAITS_BESIDE | COMMSCHED_BACKEND_TAGS |
                    COMMSCHED_BACKEND_OWN_COUNTS,
    .name = "ucx",
    .version = COMMSCHED_VERSION_STRING,
    .kinds = 0,  // All of them, as of dtypes.
    .dtypes = 0,
    .reductions = COMMSCHED_BACKEND_BASIC_REDUCTIONS |
                  COMMSCHED_BACKEND_BITWISE_REDUCTIONS |
                  COMMSCHED_BACKEND_SCALED_REDUCTIONS,
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
    .mem_register = nullptr,  // UCX keeps its own cache of registrations.
    .mem_unregister = nullptr,
    .wait = kGuarded<&Wait>,
    .interrupt = kGuarded<&Interrupt>,
    .mem_alloc = nullptr,
    .mem_free = nullptr,
    .mem_stats = nullptr,
    .comm_silent = kGuarded<&CommSilent>,
    .comm_starts = kGuarded<&CommStarts>,
    .comm_estimate = kGuarded<&CommEstimate>,
    .launch_bytes = sizeof(commsched_launch_t),
};

const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend}};

}  // namespace
}  // namespace commsched::ucx

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = commsched::PluginList(
    commsched::ucx::kPlugins, commsched::kGuarded<&commsched::ucx::Init>);
