#include "capture.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fake_gpu.h"
#include "state.h"

namespace fake_gpu {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  bool is_valid = true;
  bool has_blocking_stream = false;
  std::unique_ptr<CUgraph_st> graph;
  std::map<Stream*, size_t> streams;               // Their numbers.
  std::map<Stream*, std::set<size_t>> last_nodes;  // Of each stream.

  void Join(cudaStream_t stream) {
    Stream* const joins = StreamOf(stream);
    if (!streams.emplace(joins, streams.size()).second) return;
    graph->priorities.push_back(joins->priority());
    has_blocking_stream |= joins->kind() == StreamKind::kBlocking;
  }
  void AddNode(Stream* stream, GraphNode node) {
    node.stream = streams.at(stream);
    node.after = last_nodes[stream];
    last_nodes[stream] = {graph->nodes.size()};
    graph->nodes.push_back(std::move(node));
  }
  // Whether all nodes are behind those that the origin stream is behind.
  bool IsJoined() const {
    std::set<size_t> reached;
    const auto of_origin = last_nodes.find(origin);
    if (of_origin != last_nodes.end()) reached = of_origin->second;
    for (size_t i = graph->nodes.size(); i-- > 0;) {
      if (reached.count(i) == 0) return false;
      reached.insert(graph->nodes[i].after.begin(),
                     graph->nodes[i].after.end());
    }
    return true;
  }
};

// Those that have begun and not ended, by their numbers.
struct Captures {
  std::mutex mu;
  std::map<uint64_t, Capture> all;
  uint64_t next_id = 1;

  std::map<uint64_t, Capture>::iterator Of(Stream* stream) {
    auto each = all.begin();
    while (each != all.end() && each->second.streams.count(stream) == 0) ++each;
    return each;
  }
};

// How many there are. Most calls are made where there is none, and need not
// meet at a lock.
std::atomic<size_t> num_captures{0};

bool IsAnyCapturing() {
  return num_captures.load(std::memory_order_acquire) != 0;
}

Captures& AllCaptures() {
  static auto* const captures = new Captures;
  return *captures;
}

// Thread-local: "If the local thread has an ongoing capture sequence not
// initiated with cudaStreamCaptureModeRelaxed, it is prohibited from
// potentially unsafe API calls"; global: also "if any other thread has a
// concurrent capture sequence initiated with cudaStreamCaptureModeGlobal"
// (cudaThreadExchangeStreamCaptureMode).
bool Prohibits(const Capture& capture) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) {
    return capture.mode != cudaStreamCaptureModeRelaxed;
  }
  return thread_mode == cudaStreamCaptureModeGlobal &&
         capture.mode == cudaStreamCaptureModeGlobal;
}

}  // namespace

// "If any stream in the same context is being captured and it was not created
// with cudaStreamNonBlocking, any attempted use of the legacy stream is
// invalid"; and of an invalidated capture "further use of any streams which are
// being captured is invalid" (CUDA C++ Programming Guide, Prohibited and
// Unhandled Operations; Invalidation).
int CheckWork(cudaStream_t stream) {
  if (!IsAnyCapturing()) return cudaSuccess;
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  if (IsLegacy(stream)) {
    int code = cudaSuccess;
    for (auto& [id, capture] : captures.all) {
      if (!capture.has_blocking_stream ||
          capture.graph->device != CurrentDevice()) {
        continue;
      }
      capture.is_valid = false;
      code = cudaErrorStreamCaptureImplicit;
    }
    return code;
  }
  const auto at = captures.Of(StreamOf(stream));
  if (at == captures.all.end() || at->second.is_valid) return cudaSuccess;
  return cudaErrorStreamCaptureInvalidated;
}

// "It is invalid to synchronize or query the execution status of a stream which
// is being captured" (Prohibited and Unhandled Operations). Of another stream
// it is "potentially unsafe", which the vendor does not say: seen on an H200.
int CheckSynchronize(cudaStream_t stream) {
  if (!IsAnyCapturing()) return cudaSuccess;
  if (const int code = CheckWork(stream); code != cudaSuccess) return code;
  {
    Captures& captures = AllCaptures();
    const std::lock_guard<std::mutex> lock(captures.mu);
    const auto at = captures.Of(StreamOf(stream));
    if (at != captures.all.end()) {
      at->second.is_valid = false;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  return CheckUnsafe();
}

int CheckUnsafe() {
  if (!IsAnyCapturing()) return cudaSuccess;
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  int code = cudaSuccess;
  for (auto& [id, capture] : captures.all) {
    if (!Prohibits(capture)) continue;
    capture.is_valid = false;
    code = cudaErrorStreamCaptureUnsupported;
  }
  return code;
}

void BreakGlobalCaptures() {
  if (!IsAnyCapturing()) return;
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  for (auto& [id, capture] : captures.all) {
    if (capture.mode == cudaStreamCaptureModeGlobal) capture.is_valid = false;
  }
}

// "The operation is not permitted on an event which was last recorded in a
// capturing stream" (cudaErrorCapturedEvent), in any mode: relaxed threads are
// "still prohibited from API calls which necessarily conflict with stream
// capture, for example, attempting cudaEventQuery on an event that was last
// recorded inside a capture sequence".
int CheckQuery(cudaEvent_t event) {
  std::shared_ptr<CapturedPoint> captured;
  {
    const std::lock_guard<std::mutex> lock(event->mu);
    captured = event->captured;
  }
  if (captured == nullptr) return CheckUnsafe();
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto at = captures.all.find(captured->capture);
  if (at != captures.all.end()) at->second.is_valid = false;
  return cudaErrorCapturedEvent;
}

bool IsCapturing(Stream* stream) {
  if (!IsAnyCapturing()) return false;
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  return captures.Of(stream) != captures.all.end();
}

void CaptureWork(Stream* stream, const char* name,
                 const std::vector<Range>& ranges, const BindWork& bind) {
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto at = captures.Of(stream);
  if (at == captures.all.end() || !at->second.is_valid) return;
  GraphNode node;
  node.name = name;
  node.ranges = ranges;
  node.bind = bind;
  at->second.AddNode(stream, std::move(node));
}

void HoldInGraph(Stream* stream, const std::shared_ptr<void>& what) {
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto at = captures.Of(stream);
  if (at != captures.all.end()) at->second.graph->held.push_back(what);
}

bool CaptureRecord(Stream* stream, cudaEvent_t event) {
  if (!IsAnyCapturing()) return false;
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto at = captures.Of(stream);
  if (at == captures.all.end()) return false;
  const std::lock_guard<std::mutex> event_lock(event->mu);
  event->captured = std::make_shared<CapturedPoint>(
      CapturedPoint{at->first, at->second.last_nodes[stream]});
  return true;
}

// "It is invalid to merge two separate capture graphs by waiting on a captured
// event from a stream which is being captured and is associated with a
// different capture graph than the event"; "to wait on a non-captured event
// from a stream which is being captured without specifying
// cudaEventWaitExternal"; a stream that waits for a captured event "will also
// be placed into capture mode" (CUDA C++ Programming Guide, Cross-stream
// Dependencies and Events). Waiting for an event outside is not modelled.
std::optional<int> CaptureWait(cudaStream_t stream, cudaEvent_t event) {
  std::shared_ptr<CapturedPoint> captured;
  {
    const std::lock_guard<std::mutex> lock(event->mu);
    captured = event->captured;
  }
  if (captured == nullptr && !IsAnyCapturing()) return std::nullopt;
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto of_stream = captures.Of(StreamOf(stream));
  const bool is_captured = captured != nullptr;
  const auto of_event =
      is_captured ? captures.all.find(captured->capture) : captures.all.end();
  if (of_stream == captures.all.end() && !is_captured) return std::nullopt;
  if (of_event == captures.all.end()) {
    if (of_stream != captures.all.end()) of_stream->second.is_valid = false;
    return cudaErrorStreamCaptureIsolation;
  }
  if (of_stream != captures.all.end() && of_stream != of_event) {
    of_stream->second.is_valid = false;
    of_event->second.is_valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  Capture& capture = of_event->second;
  if (!capture.is_valid) return cudaErrorStreamCaptureInvalidated;
  capture.Join(stream);
  capture.last_nodes[StreamOf(stream)].insert(captured->after.begin(),
                                              captured->after.end());
  return cudaSuccess;
}

void SetRecord(cudaEvent_t event, const std::shared_ptr<Marker>& marker) {
  const std::lock_guard<std::mutex> lock(event->mu);
  event->last = marker;
  event->captured = nullptr;
}

}  // namespace fake_gpu

using fake_gpu::AllCaptures;
using fake_gpu::Failed;
using fake_gpu::StreamOf;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  FAKE_ENTER();
  std::swap(*mode, fake_gpu::thread_mode);
  return cudaSuccess;
}

// "Capture may not be initiated if stream is cudaStreamLegacy", and "only if
// the stream is not already in capture mode" (cudaStreamBeginCapture).
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  FAKE_ENTER();
  if (fake_gpu::IsLegacy(stream)) {
    return Failed(cudaErrorStreamCaptureUnsupported);
  }
  auto& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  if (captures.Of(StreamOf(stream)) != captures.all.end()) {
    return Failed(cudaErrorIllegalState);
  }
  auto& capture = captures.all[captures.next_id++];
  capture.mode = mode;
  capture.thread = std::this_thread::get_id();
  capture.origin = StreamOf(stream);
  capture.graph = std::make_unique<CUgraph_st>();
  capture.graph->device = capture.origin->device();
  capture.Join(stream);
  ++fake_gpu::num_captures;
  return cudaSuccess;
}

// "Capture must have been initiated on stream"; "If capture was invalidated,
// due to a violation of the rules of stream capture, then a NULL graph will be
// returned"; if it was not relaxed, "this call must be from the same thread as
// cudaStreamBeginCapture" (cudaStreamEndCapture).
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  FAKE_ENTER();
  *graph = nullptr;
  auto& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto at = captures.Of(StreamOf(stream));
  if (at == captures.all.end()) return Failed(cudaErrorIllegalState);
  auto& capture = at->second;
  if (capture.origin != StreamOf(stream)) {
    capture.is_valid = false;
    return Failed(cudaErrorStreamCaptureUnmatched);
  }
  if (capture.mode != cudaStreamCaptureModeRelaxed &&
      capture.thread != std::this_thread::get_id()) {
    return Failed(cudaErrorStreamCaptureWrongThread);
  }
  cudaError_t code = cudaSuccess;
  if (!capture.is_valid) {
    code = cudaErrorStreamCaptureInvalidated;
  } else if (!capture.IsJoined()) {
    code = cudaErrorStreamCaptureUnjoined;
  } else {
    *graph = capture.graph.release();
  }
  captures.all.erase(at);
  --fake_gpu::num_captures;
  return code == cudaSuccess ? code : Failed(code);
}

namespace fake_gpu {

cudaError_t CaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                        unsigned long long* id) {
  *status = cudaStreamCaptureStatusNone;
  if (!IsAnyCapturing()) return cudaSuccess;
  Captures& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto at = captures.Of(StreamOf(stream));
  if (at == captures.all.end()) return cudaSuccess;
  *status = at->second.is_valid ? cudaStreamCaptureStatusActive
                                : cudaStreamCaptureStatusInvalidated;
  if (id != nullptr) *id = at->first;
  return cudaSuccess;
}

}  // namespace fake_gpu

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus* status) {
  FAKE_ENTER();
  return fake_gpu::CaptureInfo(stream, status, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*,
                                     const cudaGraphNode_t**,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData**,
#endif
                                     size_t*) {
  FAKE_ENTER();
  return fake_gpu::CaptureInfo(stream, status, id);
}

// "Event is captured in the graph as an external event node when performing
// stream capture" (cudaEventRecordExternal), which is all it is for.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned flags) {
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  FAKE_ENTER();
  if (flags != cudaEventRecordExternal) return Failed(cudaErrorInvalidValue);
  if (!fake_gpu::IsKnown(stream) || event == nullptr) {
    return Failed(cudaErrorInvalidResourceHandle);
  }
  FAKE_CHECK(fake_gpu::CheckWork(stream));
  auto& captures = AllCaptures();
  const std::lock_guard<std::mutex> lock(captures.mu);
  const auto at = captures.Of(StreamOf(stream));
  if (at == captures.all.end()) return Failed(cudaErrorInvalidValue);
  fake_gpu::GraphNode node;
  node.event = event;
  at->second.AddNode(StreamOf(stream), std::move(node));
  return cudaSuccess;
}
