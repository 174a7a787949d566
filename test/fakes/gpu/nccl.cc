// Stand-in of NCCL: ranks are threads of one process, and collectives kernels
// that meet in its memory.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "capture.h"
#include "clique.h"
#include "fake_gpu.h"
#include "nccl_version.h"
#include "running_kernels.h"
#include "state.h"

namespace fake_gpu {
namespace {

struct Cliques {
  std::mutex mu;
  std::map<uint64_t, std::shared_ptr<Clique>> by_id;
  uint64_t next_id = 1;
};

Cliques& AllCliques() {
  static auto* const cliques = new Cliques;
  return *cliques;
}

// Those that something must outlive.
struct Users {
  std::mutex mu;
  std::condition_variable changed;
  int num = 0;

  // One more, as long as what is returned lives.
  static std::shared_ptr<void> Add(const std::shared_ptr<Users>& users) {
    const std::lock_guard<std::mutex> lock(users->mu);
    ++users->num;
    return std::shared_ptr<void>(users.get(), [users](void*) {
      const std::lock_guard<std::mutex> gone(users->mu);
      --users->num;
      users->changed.notify_all();
    });
  }
  bool Any() {
    const std::lock_guard<std::mutex> lock(mu);
    return num != 0;
  }
  void AwaitNone() {
    std::unique_lock<std::mutex> lock(mu);
    changed.wait(lock, [this] { return num == 0; });
  }
};

std::atomic<uint64_t> num_comms{0};
std::atomic<int> async_error{ncclSuccess};
std::atomic<uint64_t> num_freed_under_kernels{0};

}  // namespace
}  // namespace fake_gpu

struct ncclComm {
  std::shared_ptr<fake_gpu::Clique> clique;
  int rank = 0;
  int device = 0;
  std::atomic<bool> is_revoked{false};
  uint64_t num_kernels = 0;                      // Enqueued: the host's.
  uint64_t num_collectives = 0;                  // Of those.
  std::vector<uint64_t> num_sent, num_received;  // By peer.
  // Those that were made, from ncclNumOps on.
  struct ScaledSum {
    ncclDataType_t dtype = ncclFloat;
    double scale = 1;
    bool is_there = false;
  };
  std::vector<ScaledSum> scaled_sums;
  const std::shared_ptr<fake_gpu::Users> graphs =
      std::make_shared<fake_gpu::Users>();  // With launches of it.
};

namespace fake_gpu {
namespace {

bool IsTransfer(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kRecv;
}

struct Grouped {
  const char* name = "";
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  Call call;
};

thread_local int group_depth = 0;
thread_local std::vector<Grouped> group;

// In the order in which they are enqueued, or launched by a graph: "the launch
// of a graph containing a captured NCCL operation is considered collective"
// (NCCL user guide, Using NCCL with CUDA Graphs).
std::vector<Transfer> Numbered(ncclComm_t comm,
                               const std::vector<Call>& calls) {
  std::vector<Transfer> transfers;
  for (const Call& call : calls) {
    std::vector<uint64_t>& numbers =
        call.kind == Kind::kSend ? comm->num_sent : comm->num_received;
    transfers.push_back({call, numbers[static_cast<size_t>(call.peer)]++});
  }
  return transfers;
}

// Since 2.22 collectives are connected by who calls them.
constexpr int kLazyVersion = 22200;
// Larger ones are done as those of this size.
constexpr int kLargestSize = 26;  // bit_width() of 32 MiB.

Connection ConnectionOf(const Call& call, int rank) {
  switch (call.kind) {
    case Kind::kSend:
      return {Kind::kSend, rank, call.peer, 0};
    case Kind::kRecv:
      return {Kind::kSend, call.peer, rank, 0};
    default:
      break;
  }
  const auto size =
      static_cast<int>(std::bit_width(call.count * SizeOf(call.dtype)));
  return {call.kind, std::min(size, kLargestSize), call.dtype, call.op};
}

// How many ranks have to call for it.
size_t NeededOf(const Call& call, const ncclComm& comm) {
  if (IsTransfer(call.kind)) return call.peer == comm.rank ? 1 : 2;
  return NcclVersion() < kLazyVersion ? 1
                                      : static_cast<size_t>(comm.clique->size);
}

// "Dynamically connect peers during runtime (e.g., calling ncclAllreduce())
// instead of init stage" (NCCL user guide, NCCL_RUNTIME_CONNECT, since 2.22):
// the first call of a kind, size and type, and the first between two ranks,
// waits for them in the calling thread. NCCL picks another algorithm for
// another size, with connections of its own. False: one of them is gone.
bool Connect(const std::vector<Grouped>& calls) {
  bool is_new = false;
  for (const Grouped& each : calls) {
    Clique& clique = *each.comm->clique;
    const std::lock_guard<std::mutex> lock(clique.mu);
    if (!clique.connections[ConnectionOf(each.call, each.comm->rank)]
             .insert(each.comm->rank)
             .second) {
      continue;
    }
    is_new = is_new || NeededOf(each.call, *each.comm) > 1;
    clique.changed.notify_all();
  }
  // NCCL connects on threads of its own, which begin in the global mode: what
  // they wait for breaks captures, in whatever mode the caller is. Seen on an
  // H200.
  if (is_new) BreakGlobalCaptures();
  for (const Grouped& each : calls) {
    Clique& clique = *each.comm->clique;
    std::unique_lock<std::mutex> lock(clique.mu);
    const std::set<int>& come =
        clique.connections[ConnectionOf(each.call, each.comm->rank)];
    const size_t needed = NeededOf(each.call, *each.comm);
    clique.changed.wait(lock, [&] {
      return come.size() >= needed ||
             std::find(clique.gone.begin(), clique.gone.end(), true) !=
                 clique.gone.end();
    });
    if (come.size() < needed) return false;
  }
  return true;
}

// A launch of a graph ends the process where a communicator in it has been
// revoked, if not aborted. Seen on an H200 (2.28.9).
void EndIfRevoked(const ncclComm& comm) {
  if (!comm.is_revoked) return;
  std::fputs(
      "the stand-in of NCCL: a graph was launched that has launches of a "
      "communicator which has been revoked\n",
      stderr);
  std::raise(SIGSEGV);
}

void EnqueueOf(ncclComm_t comm, cudaStream_t stream, const char* name,
               const std::vector<Range>& ranges,
               const std::function<Work()>& bind) {
  Stream* const on = StreamOf(stream);
  const bool is_captured = IsCapturing(on);
  if (is_captured) HoldInGraph(on, Users::Add(comm->graphs));
  on->EnqueueBound(name, ranges,
                   [device = on->device(), comm, is_captured, bind] {
                     if (is_captured) EndIfRevoked(*comm);
                     return AllRunningKernels().Tracked(device, bind());
                   });
}

void EnqueueTransfers(std::vector<Grouped>* waiting) {
  while (!waiting->empty()) {
    ncclComm_t const comm = waiting->front().comm;
    cudaStream_t const stream = waiting->front().stream;
    std::vector<Call> calls;
    std::vector<Range> ranges;
    std::vector<Grouped> rest;
    for (const Grouped& each : *waiting) {
      if (each.comm != comm) {
        rest.push_back(each);
        continue;
      }
      calls.push_back(each.call);
      ranges.push_back(RangesOf(each.call, comm->rank, comm->clique->size)[0]);
    }
    waiting->swap(rest);
    EnqueueOf(comm, stream, "ncclSend and ncclRecv", ranges, [comm, calls] {
      return WorkOf(std::make_shared<Transfers>(comm->clique, comm->rank,
                                                Numbered(comm, calls)),
                    comm->num_kernels++);
    });
  }
}

ncclResult_t EnqueueGroup() {
  std::vector<Grouped> calls = std::exchange(group, {});
  if (!Connect(calls)) return ncclRemoteError;
  std::vector<Grouped> transfers;
  for (const Grouped& each : calls) {
    if (IsTransfer(each.call.kind)) {
      transfers.push_back(each);
      continue;
    }
    EnqueueOf(each.comm, each.stream, each.name,
              RangesOf(each.call, each.comm->rank, each.comm->clique->size),
              [comm = each.comm, call = each.call] {
                return WorkOf(
                    std::make_shared<Collective>(comm->clique, comm->rank,
                                                 comm->num_collectives++, call),
                    comm->num_kernels++);
              });
  }
  EnqueueTransfers(&transfers);
  return ncclSuccess;
}

// The operation that `op` is, of a communicator; null: none.
ncclComm::ScaledSum* ScaledSumOf(ncclComm_t comm, ncclRedOp_t op) {
  const auto index = static_cast<size_t>(op - ncclNumOps);
  if (op < ncclNumOps || index >= comm->scaled_sums.size()) return nullptr;
  ncclComm::ScaledSum& found = comm->scaled_sums[index];
  return found.is_there ? &found : nullptr;
}

// What it stands for is looked up in the call: afterwards it may be destroyed.
bool ResolveReduction(ncclComm_t comm, Call* call) {
  if (call->op < ncclNumOps) return true;
  const ncclComm::ScaledSum* const found = ScaledSumOf(comm, call->op);
  if (found == nullptr || found->dtype != call->dtype) return false;
  call->op = ncclSum;
  call->is_scaled = true;
  call->scale = found->scale;
  return true;
}

ncclResult_t Add(const char* name, ncclComm_t comm, cudaStream_t stream,
                 Call call) {
  if (const int code = Enter(name); code != 0) {
    return static_cast<ncclResult_t>(code);
  }
  if (is_null.load(std::memory_order_relaxed)) return ncclSuccess;
  if (comm == nullptr ||
      (stream != nullptr && stream->stream.device() != comm->device)) {
    return ncclInvalidArgument;
  }
  if (comm->is_revoked) return ncclInvalidUsage;  // Seen on an H200.
  if (!ResolveReduction(comm, &call)) return ncclInvalidArgument;
  if (CheckWork(stream) != cudaSuccess) return ncclUnhandledCudaError;
  // Where graphs have launches of the communicator, NCCL asks for an event of
  // its own, and goes on whatever the answer is (ncclLaunchPrepare(), 2.28).
  if (!IsCapturing(StreamOf(stream)) && comm->graphs->Any()) CheckUnsafe();
  group.push_back({name, comm, stream, call});
  return group_depth == 0 ? EnqueueGroup() : ncclSuccess;
}

void MarkGone(ncclComm_t comm) {
  {
    const std::lock_guard<std::mutex> lock(comm->clique->mu);
    comm->clique->gone[static_cast<size_t>(comm->rank)] = true;
    comm->clique->changed.notify_all();
  }
  TheDriver().Wake();
}

void Delete(ncclComm_t comm) {
  // "NCCL communicator destruction is blocked waiting for CUDA graphs to be
  // released first" (CUDA Graph best practice for PyTorch, Process Hang).
  comm->graphs->AwaitNone();
  delete comm;
  --num_comms;
}

// "peers can still access [the] memory" of a communicator that one of them has
// aborted (NVIDIA/nccl, issue 863).
bool IsReadByOthers(const ncclComm& comm) {
  const std::lock_guard<std::mutex> lock(comm.clique->mu);
  for (int rank = 0; rank < comm.clique->size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (rank != comm.rank && comm.clique->num_running[r] != 0) return true;
  }
  return false;
}

// All kernels of these end before the memory of one is freed, which waits for
// what else the device is at.
void Abort(const std::vector<ncclComm_t>& comms) {
  for (ncclComm_t comm : comms) MarkGone(comm);
  for (ncclComm_t comm : comms) {
    AllRunningKernels().AwaitEnd(comm->device);
    if (IsReadByOthers(*comm)) ++num_freed_under_kernels;
    Delete(comm);
  }
}

// Kernels have ended when it returns, as on an H200.
void Revoke(const std::vector<ncclComm_t>& comms) {
  for (ncclComm_t comm : comms) {
    comm->is_revoked = true;
    MarkGone(comm);
  }
  for (ncclComm_t comm : comms) AllRunningKernels().AwaitEnd(comm->device);
}

thread_local std::vector<ncclComm_t> grouped_aborts;
thread_local std::vector<ncclComm_t> grouped_revokes;

}  // namespace

ncclResult_t ExchangeAll(const void* send, void* receive, size_t count,
                         ncclDataType_t dtype, ncclComm_t comm,
                         cudaStream_t stream) {
  if (ncclResult_t code = ncclGroupStart(); code != ncclSuccess) return code;
  const size_t bytes = count * SizeOf(dtype);
  for (int peer = 0; peer < comm->clique->size; ++peer) {
    const size_t at = static_cast<size_t>(peer) * bytes;
    (void)ncclSend(static_cast<const char*>(send) + at, count, dtype, peer,
                   comm, stream);
    (void)ncclRecv(static_cast<char*>(receive) + at, count, dtype, peer, comm,
                   stream);
  }
  return ncclGroupEnd();
}

}  // namespace fake_gpu

using fake_gpu::Add;
using fake_gpu::AllCliques;
using fake_gpu::Call;
using fake_gpu::Clique;
using fake_gpu::Kind;

uint64_t fake_gpu_num_comms(void) { return fake_gpu::num_comms; }
uint64_t fake_nccl_num_freed_under_kernels(void) {
  return fake_gpu::num_freed_under_kernels;
}
void fake_gpu_async_error(int result) { fake_gpu::async_error = result; }

bool fake_gpu::IsOnDevice(ncclComm_t comm) {
  return comm == nullptr || comm->device == CurrentDevice();
}

ncclResult_t ncclGetVersion(int* version) {
  FAKE_NCCL_ENTER();
  *version = fake_gpu::NcclVersion();
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  FAKE_NCCL_ENTER();
  const std::lock_guard<std::mutex> lock(AllCliques().mu);
  *id = {};
  const uint64_t number = AllCliques().next_id++;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

// "The call is blocking until all ranks have called it" (NCCL user guide,
// Creating a communicator).
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  FAKE_NCCL_ENTER();
  fake_gpu::RememberConfig(*config);
  // Seen on an H200.
  if (fake_gpu::CheckUnsafe() != cudaSuccess) return ncclUnhandledCudaError;
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  auto made = std::make_unique<ncclComm>();
  {
    const std::lock_guard<std::mutex> lock(AllCliques().mu);
    std::shared_ptr<Clique>& clique = AllCliques().by_id[number];
    if (clique == nullptr) clique = std::make_shared<Clique>(size);
    made->clique = clique;
  }
  made->rank = rank;
  made->device = fake_gpu::CurrentDevice();
  made->num_sent.resize(static_cast<size_t>(size));
  made->num_received.resize(static_cast<size_t>(size));
  Clique& clique = *made->clique;
  std::unique_lock<std::mutex> lock(clique.mu);
  ++clique.num_joined;
  clique.changed.notify_all();
  clique.changed.wait(lock, [&] { return clique.num_joined == size; });
  *comm = made.release();
  ++fake_gpu::num_comms;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  FAKE_NCCL_ENTER();
  fake_gpu::Delete(comm);
  return ncclSuccess;
}

// "Frees resources associated with communicator object and aborts any
// operations that might still be running on the device" (nccl.h).
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  FAKE_NCCL_ENTER();
  fake_gpu::grouped_aborts.push_back(comm);
  if (fake_gpu::group_depth == 0) {
    fake_gpu::Abort(std::exchange(fake_gpu::grouped_aborts, {}));
  }
  return ncclSuccess;
}

// "ncclCommRevoke stops all in-flight operations and marks communicator state
// as ncclInProgress. The state will change to ncclSuccess when the communicator
// is quiescent; then, management operations (destroy, split, shrink) can
// proceed safely." (nccl.h). Of a communicator that blocks it is quiescent when
// the call returns.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  FAKE_SINCE(22807);
  if (flags != NCCL_REVOKE_DEFAULT) return ncclInvalidArgument;
  fake_gpu::grouped_revokes.push_back(comm);
  if (fake_gpu::group_depth == 0) {
    fake_gpu::Revoke(std::exchange(fake_gpu::grouped_revokes, {}));
  }
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* error) {
  FAKE_NCCL_ENTER();
  *error = static_cast<ncclResult_t>(fake_gpu::async_error.load());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "fake NCCL error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "as it was told to";
}

ncclResult_t ncclGroupStart() {
  FAKE_NCCL_ENTER();
  ++fake_gpu::group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  FAKE_NCCL_ENTER();
  if (fake_gpu::group_depth == 0) return ncclInvalidUsage;
  if (--fake_gpu::group_depth != 0) return ncclSuccess;
  const ncclResult_t enqueued = fake_gpu::EnqueueGroup();
  fake_gpu::Revoke(std::exchange(fake_gpu::grouped_revokes, {}));
  fake_gpu::Abort(std::exchange(fake_gpu::grouped_aborts, {}));
  return enqueued;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                      ncclDataType_t dtype,
                                      ncclScalarResidence_t residence,
                                      ncclComm_t comm) {
  FAKE_NCCL_ENTER();
  const bool is_float = dtype == ncclFloat16 || dtype == ncclBfloat16 ||
                        dtype == ncclFloat32 || dtype == ncclFloat64;
  if (!is_float || residence != ncclScalarHostImmediate) {
    return ncclInvalidArgument;
  }
  size_t index = 0;
  while (index < comm->scaled_sums.size() &&
         comm->scaled_sums[index].is_there) {
    ++index;
  }
  if (index == comm->scaled_sums.size()) comm->scaled_sums.emplace_back();
  comm->scaled_sums[index] = {dtype, fake_gpu::ScalarValue(scalar, dtype),
                              true};
  *op = static_cast<ncclRedOp_t>(static_cast<size_t>(ncclNumOps) + index);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  FAKE_NCCL_ENTER();
  ncclComm::ScaledSum* const found = fake_gpu::ScaledSumOf(comm, op);
  if (found == nullptr) return ncclInvalidArgument;
  found->is_there = false;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                           ncclDataType_t dtype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return Add(__func__, comm, stream,
             {Kind::kAllReduce, send, receive, count, dtype, op});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                               ncclDataType_t dtype, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return Add(__func__, comm, stream,
             {Kind::kReduceScatter, send, receive, count, dtype, op});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                           ncclDataType_t dtype, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(__func__, comm, stream,
             {Kind::kAllGather, send, receive, count, dtype});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                           ncclDataType_t dtype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Add(__func__, comm, stream,
             {Kind::kBroadcast, send, receive, count, dtype, ncclSum, root});
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                        ncclDataType_t dtype, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return Add(__func__, comm, stream,
             {Kind::kReduce, send, receive, count, dtype, op, root});
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t dtype,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add(__func__, comm, stream,
             {Kind::kSend, send, nullptr, count, dtype, ncclSum, 0, peer});
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t dtype,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add(__func__, comm, stream,
             {Kind::kRecv, nullptr, receive, count, dtype, ncclSum, 0, peer});
}
