#include "comm/plugin_host.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "comm/plugin_registry.h"
#include "comm/reduce.h"

namespace commsched {
namespace {

constexpr uint64_t kAlignment = 64;

struct Host {
  std::string origin;
  commsched_host_t table = {};
  Host* older = nullptr;
};

// The head of a list of all, which holds those that no plugin has kept: else
// they would be leaks to whoever looks for such.
std::atomic<Host*> newest_host = nullptr;

void WriteLog(void* user, int32_t level, const char* message) {
  const int clamped = std::clamp(level, static_cast<int32_t>(LogLevel::kDebug),
                                 static_cast<int32_t>(LogLevel::kError));
  Log(static_cast<LogLevel>(clamped), static_cast<Host*>(user)->origin, ": ",
      message == nullptr ? "" : message);
}

int64_t NowNs(void* /*user*/) { return SystemClock::Get().NowNs(); }

void* Allocate(void* /*user*/, uint64_t bytes) {
  if (bytes > UINT64_MAX - kAlignment) return nullptr;
  const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return std::aligned_alloc(kAlignment, std::max(whole, kAlignment));
}

void Free(void* /*user*/, void* address) { std::free(address); }

commsched_status_t ReduceForPlugin(void* /*user*/, commsched_dtype_t dtype,
                                   commsched_reduce_op_t op,
                                   uint32_t num_inputs,
                                   const void* const* inputs, uint64_t count,
                                   void* output) {
  if (!DTypeFromInt(dtype).ok() || !ReduceOpFromInt(op).ok() ||
      num_inputs < 1 || num_inputs > INT32_MAX) {
    return COMMSCHED_INVALID_ARGUMENT;
  }
  Reduction reduction;
  reduction.op = static_cast<ReduceOp>(op);
  reduction.num_inputs = static_cast<int>(num_inputs);
  reduction.inputs = inputs;
  reduction.result = output;
  reduction.count = count;
  Reduce(static_cast<DType>(dtype), reduction);
  return COMMSCHED_OK;
}

const commsched_backend_t* FindBackend(void* /*user*/, const char* name) {
  const auto found =
      PluginRegistry::Process().Backend(name == nullptr ? "" : name);
  return found.ok() ? *found : nullptr;
}

}  // namespace

const commsched_host_t* NewPluginHost(const std::string& origin) {
  auto* host = new Host;
  host->older = newest_host.exchange(host, std::memory_order_relaxed);
  host->origin = origin;
  host->table = {.struct_size = sizeof(commsched_host_t),
                 .user = host,
                 .log = &WriteLog,
                 .now_ns = &NowNs,
                 .alloc = &Allocate,
                 .free = &Free,
                 .reduce = &ReduceForPlugin,
                 .backend = &FindBackend};
  return &host->table;
}

}  // namespace commsched
