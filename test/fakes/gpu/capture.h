// Stream capture: what is enqueued on a capturing stream goes into a graph.
#ifndef COMMSCHED_TEST_FAKES_GPU_CAPTURE_H_
#define COMMSCHED_TEST_FAKES_GPU_CAPTURE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "graph.h"

namespace fake_gpu {

class Marker;
class Stream;

// Where in a capture an event was last recorded.
struct CapturedPoint {
  uint64_t capture = 0;
  std::set<size_t> after;  // Nodes.
};

// What a function has to return, if not cudaSuccess, that ...
// ... enqueues work on `stream`.
int CheckWork(cudaStream_t stream);
// ... has the host wait for `stream`.
int CheckSynchronize(cudaStream_t stream);
// ... is "potentially unsafe" (cudaThreadExchangeStreamCaptureMode).
int CheckUnsafe();
// The same of a thread that has no capture, and is in the global mode.
void BreakGlobalCaptures();
// ... looks at `event`.
int CheckQuery(cudaEvent_t event);

bool IsCapturing(Stream* stream);
cudaError_t CaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                        unsigned long long* id);
// `stream` is capturing: its graph gets a node.
void CaptureWork(Stream* stream, const char* name,
                 const std::vector<Range>& ranges, const BindWork& bind);
// If it is capturing, the graph holds `what`.
void HoldInGraph(Stream* stream, const std::shared_ptr<void>& what);
// True if `stream` is capturing: `event` was recorded in the capture.
bool CaptureRecord(Stream* stream, cudaEvent_t event);
// What a wait has to return if `stream` is capturing or `event` was last
// recorded in a capture.
std::optional<int> CaptureWait(cudaStream_t stream, cudaEvent_t event);
// `event` is recorded outside of captures, perhaps by a launch of a graph.
void SetRecord(cudaEvent_t event, const std::shared_ptr<Marker>& marker);

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_CAPTURE_H_
