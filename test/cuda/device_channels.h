// Ranks with channels on stand-in devices, as threads of a test.
#ifndef COMMSCHED_TEST_CUDA_DEVICE_CHANNELS_H_
#define COMMSCHED_TEST_CUDA_DEVICE_CHANNELS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "channel/channel.h"
#include "test/channel/channel_rig.h"
#include "test/cuda/gpu_rig.h"

namespace commsched::test {

// Elements on a device, which the host may look at while nobody writes them.
template <typename Element>
class OnDevice {
 public:
  OnDevice(std::shared_ptr<Device> device, const std::vector<Element>& values)
      : count_(values.size()),
        memory_(std::move(device), count_ * sizeof(Element)) {
    Set(values);
  }

  Element* at(size_t index = 0) const {
    return static_cast<Element*>(memory_.address()) + index;
  }
  void Set(const std::vector<Element>& values) {
    std::memcpy(Peek(memory_.address()), values.data(),
                values.size() * sizeof(Element));
  }
  std::vector<Element> Get() const {
    const auto* const first =
        reinterpret_cast<const Element*>(Peek(memory_.address()));
    return {first, first + count_};
  }

 private:
  const size_t count_;
  DeviceMemory memory_;
};

using DeviceFloats = OnDevice<float>;

// A world of `size` ranks of backend "nccl", on a device each.
class DeviceChannels {
 public:
  explicit DeviceChannels(int size) : size_(size) {
    WorldSpec spec;
    spec.size = size;
    spec.table = NcclTable();
    for (int rank = 0; rank < size; ++rank) {
      devices_.push_back(FakeDevice(rank));
    }
    spec.devices = devices_;
    world_ = World::Create(spec).value();
  }

  int size() const { return size_; }
  const std::shared_ptr<World>& world() const { return world_; }
  const std::shared_ptr<Device>& device(int rank) const {
    return devices_[static_cast<size_t>(rank)];
  }
  void set_timeout_ns(int64_t timeout_ns) { timeout_ns_ = timeout_ns; }

  ChannelSpec Spec(int rank, const std::string& axis = "dp") const {
    std::vector<int> all;
    for (int r = 0; r < size_; ++r) all.push_back(r);
    return SpecOf(rank, std::move(all), axis);
  }
  ChannelSpec SpecOf(int rank, std::vector<int> ranks,
                     const std::string& axis) const {
    ChannelSpec spec;
    spec.world = world_;
    spec.world_rank = rank;
    spec.group.axis = axis;
    spec.group.rank = static_cast<int>(
        std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    spec.group.ranks = std::move(ranks);
    spec.launch_timeout_ns = timeout_ns_;
    return spec;
  }

  // Waits for all ranks. `where`: another one for each time.
  absl::Status Meet(int rank, const std::string& where) const {
    return world_->meeting()
        ->AllGather(where, rank, "", 60 * kSecondNs)
        .status();
  }

  // Runs `body` with a channel of all ranks.
  std::vector<absl::Status> RunAll(
      const std::function<absl::Status(Channel& channel, int rank)>& body) {
    return RunRanks(size_, [&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                       Channel::Create(Spec(rank)));
      return body(*channel, rank);
    });
  }
  // The first status that is not OK.
  absl::Status Run(
      const std::function<absl::Status(Channel& channel, int rank)>& body) {
    absl::Status first;
    for (const absl::Status& status : RunAll(body)) first.Update(status);
    return first;
  }

 private:
  const int size_;
  std::vector<std::shared_ptr<Device>> devices_;
  std::shared_ptr<World> world_;
  int64_t timeout_ns_ = 20 * kSecondNs;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CUDA_DEVICE_CHANNELS_H_
