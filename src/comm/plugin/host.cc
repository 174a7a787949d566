#include "comm/plugin/host.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "comm/plugin/registry.h"
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

bool CanReduce(commsched_dtype_t dtype, commsched_reduce_op_t op) {
  return DTypeFromInt(dtype).ok() && ReduceOpFromInt(op).ok() &&
         IsReducible(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
}

commsched_status_t ReduceForPlugin(void* /*user*/, commsched_dtype_t dtype,
                                   commsched_reduce_op_t op,
                                   uint32_t num_inputs,
                                   const void* const* inputs, uint64_t count,
                                   void* output) {
  if (!CanReduce(dtype, op) || op == COMMSCHED_PREMUL_SUM || num_inputs < 1 ||
      num_inputs > INT32_MAX) {
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

// Whether the pieces are nodes that follow each other and are one together; a
// result that is not partial has all positions.
bool AreNodes(const commsched_tree_sum_t& sum) {
  if (sum.num_pieces < 1 || sum.num_pieces > INT32_MAX) return false;
  uint32_t end = sum.pieces[0].lo;
  for (uint32_t i = 0; i < sum.num_pieces; ++i) {
    const commsched_piece_t& piece = sum.pieces[i];
    if (piece.lo != end || !IsTreeNode(piece.lo, piece.hi, sum.size) ||
        (piece.is_partial == 0 && piece.hi - piece.lo != 1)) {
      return false;
    }
    end = piece.hi;
  }
  const uint32_t begin = sum.pieces[0].lo;
  if (sum.output_is_partial == 0) return begin == 0 && end == sum.size;
  return IsTreeNode(begin, end, sum.size);
}

commsched_status_t ReduceTreeForPlugin(void* /*user*/,
                                       const commsched_tree_sum_t* sum) {
  // Until 0.2 it ended before `scale`.
  if (sum == nullptr ||
      sum->struct_size < offsetof(commsched_tree_sum_t, scale) ||
      !CanReduce(sum->dtype, sum->op) || !AreNodes(*sum)) {
    return COMMSCHED_INVALID_ARGUMENT;
  }
  const bool is_scaled = sum->op == COMMSCHED_PREMUL_SUM;
  if (is_scaled && sum->struct_size < sizeof(*sum)) {
    return COMMSCHED_INVALID_ARGUMENT;
  }
  Reduction reduction;
  reduction.op = static_cast<ReduceOp>(sum->op);
  reduction.num_inputs = static_cast<int>(sum->num_pieces);
  reduction.pieces = sum->pieces;
  reduction.size = sum->size;
  reduction.result = sum->output;
  reduction.result_is_partial = sum->output_is_partial != 0;
  reduction.count = sum->count;
  if (is_scaled) reduction.scale = sum->scale;
  Reduce(static_cast<DType>(sum->dtype), reduction);
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
                 .backend = &FindBackend,
                 .reduce_tree = &ReduceTreeForPlugin};
  return &host->table;
}

}  // namespace commsched
