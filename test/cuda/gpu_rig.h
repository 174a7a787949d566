// Ranks on stand-in devices that run sessions of one graph.
#ifndef COMMSCHED_TEST_CUDA_GPU_RIG_H_
#define COMMSCHED_TEST_CUDA_GPU_RIG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/world.h"
#include "device/device.h"
#include "device/host_device.h"
#include "plan/planner.h"
#include "session/session.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched::test {

// The stand-in device: the same as long as somebody has it, since what fails on
// a stream is its device's failure. ctest sets COMMSCHED_CUDART_LIB and
// COMMSCHED_NCCL_LIB, which a run by hand needs, too.
std::shared_ptr<Device> FakeDevice(int ordinal);

// Backend "nccl", on the stand-in.
const commsched_backend_t* NcclTable();

// Memory of a device, zeroed.
class DeviceMemory {
 public:
  DeviceMemory(std::shared_ptr<Device> device, uint64_t bytes);
  ~DeviceMemory() { device_->Free(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* address() const { return address_; }

 private:
  const std::shared_ptr<Device> device_;
  void* address_ = nullptr;
};

// The host's way to a float of a device, for kernels and for tests whose
// streams have come to rest.
float* Peek(void* address);

// Runs `body` on `stream`, as a kernel would; at once if it is the caller.
void RunOn(Stream* stream, std::function<void()> body);
// A kernel that is called `name` and touches `ranges`, for what looks for races
// (fake_gpu_races()).
void RunOn(Stream* stream, const std::string& name,
           const std::vector<fake_gpu_range_t>& ranges,
           std::function<void()> body);

// A world of backend "nccl", each rank on the device of its number; a plan; and
// for each rank memory for the BOUND buffers and a stream per compute lane. All
// groups hold all ranks.
class GpuRig {
 public:
  GpuRig(int size, const Graph& graph, const PlanOptions& options);

  void* Memory(int rank, BufferId buffer) {
    return ranks_[rank].memory[buffer.value()]->address();
  }
  Stream* lane(int rank, uint32_t lane) {
    return by_host_ ? CallerStream() : ranks_[rank].lanes[lane].get();
  }
  SessionSpec Spec(int rank);

  // Runs `body` on a thread per rank with a session each, drained at the end.
  std::vector<absl::Status> RunSessions(
      const std::function<absl::Status(Session&, int rank)>& body);

  // Compute ops are done by the calling threads.
  void compute_by_host() { by_host_ = true; }
  // Of launches, and of how long sessions wait for NCCL to let go.
  void set_timeout_ns(int64_t timeout_ns) { timeout_ns_ = timeout_ns; }
  // Of the latter alone.
  void set_end_timeout_ns(int64_t timeout_ns) { end_timeout_ns_ = timeout_ns; }

  const std::shared_ptr<World>& world() const { return world_; }
  const Plan& plan() const { return *plan_; }

 private:
  struct RankParts {
    std::shared_ptr<Device> device;
    std::vector<std::unique_ptr<DeviceMemory>> memory;  // by BufferId, or null
    std::vector<std::unique_ptr<Stream>> lanes;
  };

  std::shared_ptr<const Plan> plan_;
  std::vector<RankParts> ranks_;
  std::shared_ptr<World> world_;
  uint64_t instance_ = 0;
  bool by_host_ = false;
  int64_t timeout_ns_ = int64_t{20} * 1000 * 1000 * 1000;
  int64_t end_timeout_ns_ = 0;  // As of launches.
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CUDA_GPU_RIG_H_
