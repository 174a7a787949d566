// Ranks on stand-in devices whose eager programs are recorded: ops are kernels
// on streams of the caller's, and nothing but events orders them with launches.
#ifndef COMMSCHED_TEST_CUDA_RECORDING_RIG_H_
#define COMMSCHED_TEST_CUDA_RECORDING_RIG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/world.h"
#include "recording/recording.h"
#include "test/cuda/gpu_rig.h"
#include "test/recording/recording_rig.h"

namespace commsched::test {

// Of backend "nccl", each rank on the device of its number.
std::shared_ptr<World> WorldOnDevices(int ranks);

// Words of device memory, zeroed.
class DeviceWords {
 public:
  DeviceWords(const std::shared_ptr<Device>& device, uint64_t count)
      : count_(count), memory_(device, count * sizeof(int32_t)) {}

  void* address() const { return memory_.address(); }
  uint64_t count() const { return count_; }
  // The host's way there, for kernels, and for streams that have come to rest.
  int32_t* Peek() const;
  std::vector<int32_t> Read() const { return {Peek(), Peek() + count_}; }
  void Write(const std::vector<int32_t>& words);

 private:
  const uint64_t count_;
  DeviceMemory memory_;
};

// ModulesRank's program: backward on one stream, the optimizer on another.
// Modules reduce in the groups of the recording in turn, all of which hold all
// ranks.
class DeviceModulesRank {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceModulesRank>> Create(
      const ModulesSpec& spec, std::shared_ptr<World> world,
      std::atomic<uint64_t>* instances, int rank);

  absl::Status Backward(int m, int step);
  absl::Status Reduce(int m) { return recording_->Submit(ar_[m]); }
  absl::Status Optimize(int m);
  // Backward and reduction of each module, then its optimizer.
  absl::Status Step(int step);

  Recording& recording() { return *recording_; }
  int rank() const { return rank_; }
  std::vector<int32_t> weight(int m) const { return weight_[m]->Read(); }
  std::vector<int32_t> grad(int m) const { return grad_[m]->Read(); }
  uint32_t ar(int m) const { return ar_[m]; }

 private:
  absl::Status Declare(const ModulesSpec& spec, int m);
  absl::StatusOr<uint32_t> DeclareOp(const std::string& name, uint32_t lane,
                                     std::vector<Access> accesses,
                                     uint32_t segment);

  int rank_ = 0;
  uint32_t num_groups_ = 1;
  std::shared_ptr<Device> device_;
  std::vector<std::unique_ptr<DeviceWords>> weight_, grad_;
  std::vector<std::unique_ptr<Stream>> lanes_;
  std::vector<uint32_t> bwd_, ar_, opt_;
  std::unique_ptr<Recording> recording_;  // goes before its memory
};

// Runs `body` on a thread per rank, each with its recording.
std::vector<absl::Status> RunDeviceModules(
    const ModulesSpec& spec,
    const std::function<absl::Status(DeviceModulesRank&)>& body);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CUDA_RECORDING_RIG_H_
