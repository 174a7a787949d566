#include "test/engine_cuda/gpu_toys.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "commsched/commsched.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched::engine {
namespace {

void LoadNccl() {
  static const commsched_status_t loaded =
      commsched_plugin_load(COMMSCHED_TEST_NCCL, COMMSCHED_PLUGIN_REQUIRED);
  if (loaded != COMMSCHED_OK) std::abort();
}

class StandIns final : public ToyDevices {
 public:
  explicit StandIns(int32_t ranks) {
    LoadNccl();
    int num_devices = 0;
    cudaGetDeviceCount(&num_devices);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      cudaSetDevice(rank % num_devices);
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
      streams_.push_back(stream);
    }
    cudaSetDevice(0);
  }
  ~StandIns() override {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  void Describe(commsched_world_desc_t* desc) override {
    desc->backend = "nccl";
    desc->device_kind = COMMSCHED_DEVICE_CUDA;
  }
  commsched_stream_t stream(int32_t rank) override {
    return {COMMSCHED_STREAM_CUDA, 0, streams_[static_cast<size_t>(rank)]};
  }
  void Run(int32_t rank, const std::vector<Touched>& touched,
           std::function<void()> body) override {
    std::vector<fake_gpu_range_t> ranges;
    for (const Touched& each : touched) {
      ranges.push_back({each.address, each.bytes, 0});
      if (each.writes) ranges.push_back({each.address, each.bytes, 1});
    }
    fake_gpu_launch_ranges(
        streams_[static_cast<size_t>(rank)], "toy", ranges.data(),
        ranges.size(),
        [](void* user) {
          const std::unique_ptr<std::function<void()>> run(
              static_cast<std::function<void()>*>(user));
          (*run)();
        },
        new std::function<void()>(std::move(body)));
  }
  void* Peek(const void* address) override {
    return fake_gpu_peek(const_cast<void*>(address));
  }

 private:
  std::vector<cudaStream_t> streams_;
};

}  // namespace

std::shared_ptr<ToyDevices> StandInDevices(int32_t ranks) {
  return std::make_shared<StandIns>(ranks);
}

ToyRun OnDevices(ToyRun run) {
  run.devices = StandInDevices(run.ranks);
  return run;
}

}  // namespace commsched::engine
