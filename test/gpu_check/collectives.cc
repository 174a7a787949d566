// What the conformance suite does with the host's memory, on a device's.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "device/cuda_device.h"
#include "device/cuda_runtime.h"
#include "test/conformance/collective_case.h"
#include "test/gpu_check/gpu_check.h"
#include "test/support/comm_driver.h"
#include "test/support/rank_group.h"

namespace commsched::gpu_check {
namespace {

// Memory of a device that ends with it.
class DeviceMemory {
 public:
  explicit DeviceMemory(Device* device) : device_(device) {}
  ~DeviceMemory() {
    if (address_ != nullptr) device_->Free(address_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // At least `bytes`.
  absl::Status Grow(uint64_t bytes) {
    if (bytes <= bytes_) return absl::OkStatus();
    if (address_ != nullptr) device_->Free(std::exchange(address_, nullptr));
    bytes_ = 0;
    ASSIGN_OR_RETURN(address_, device_->Allocate(bytes));
    bytes_ = bytes;
    return absl::OkStatus();
  }
  char* address() const { return static_cast<char*>(address_); }

 private:
  Device* const device_;
  void* address_ = nullptr;
  uint64_t bytes_ = 0;
};

uint64_t Aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// The launch of one rank of a case, on copies of its memory.
class LaunchOnDevice {
 public:
  LaunchOnDevice(CollectiveCase* of, int rank) : of_(of), rank_(rank) {}

  absl::Status Run(const CudaRuntime& cuda, CommDriver& comm,
                   DeviceMemory& memory) {
    commsched_launch_t launch = of_->launch(rank_);
    std::vector<commsched_member_t> members(
        launch.members, launch.members + launch.num_members);
    RETURN_IF_ERROR(memory.Grow(Bytes(launch)));
    char* to = memory.address();
    for (uint32_t m = 0; m < launch.num_members; ++m) {
      const commsched::Bytes& arena = *of_->arena(rank_, m);
      RETURN_IF_ERROR(cuda.Check(
          "cudaMemcpy",
          cuda.Memcpy(to, arena.data(), arena.size(), cudaMemcpyHostToDevice)));
      const auto moved = [&](const void* address) -> void* {
        if (address == nullptr) return nullptr;
        return to + (static_cast<const std::byte*>(address) - arena.data());
      };
      members[m].input = moved(members[m].input);
      members[m].output = moved(members[m].output);
      to += Aligned(arena.size());
    }
    // Such a copy may return before it has ended, and the lane does not wait.
    RETURN_IF_ERROR(cuda.Check("cudaStreamSynchronize",
                               cuda.StreamSynchronize(/*stream=*/nullptr)));
    launch.members = members.data();
    RETURN_IF_ERROR(comm.LaunchAndWait(launch));
    char* from = memory.address();
    for (uint32_t m = 0; m < launch.num_members; ++m) {
      commsched::Bytes& arena = *of_->arena(rank_, m);
      RETURN_IF_ERROR(
          cuda.Check("cudaMemcpy", cuda.Memcpy(arena.data(), from, arena.size(),
                                               cudaMemcpyDeviceToHost)));
      from += Aligned(arena.size());
    }
    return of_->Check(rank_);
  }

 private:
  uint64_t Bytes(const commsched_launch_t& launch) const {
    uint64_t bytes = 256;
    for (uint32_t m = 0; m < launch.num_members; ++m) {
      bytes += Aligned(of_->arena(rank_, m)->size());
    }
    return bytes;
  }

  CollectiveCase* const of_;
  const int rank_;
};

std::unique_ptr<CollectiveCase> MakeCase(int size, bool in_rank_order,
                                         uint64_t seed) {
  std::mt19937_64 random(seed);
  Shape shape = RandomShape(size, random);
  shape.keeps_nan = false;
  std::vector<MemberCase> members;
  const uint64_t most = random() % 8 == 0 ? 100'000 / uint64_t(size) : 200;
  for (uint64_t m = 1 + random() % 4; m > 0; --m) {
    members.push_back(RandomMember(shape, most, random));
  }
  const bool in_place = random() % 2 == 0;
  return std::make_unique<CollectiveCase>(shape, std::move(members), in_place,
                                          in_rank_order, random);
}

// Of `ranks` ranks in this process.
void CheckInProcess(int ranks, const Options& options, Results* results) {
  for (const bool in_rank_order : {true, false}) {
    std::string figures;
    const auto run = [&]() -> absl::Status {
      WorldSpec spec;
      spec.size = ranks;
      ASSIGN_OR_RETURN(spec.table, Nccl());
      for (int rank = 0; rank < ranks; ++rank) {
        ASSIGN_OR_RETURN(auto device, OpenCudaDevice(rank));
        spec.devices.push_back(std::move(device));
      }
      ASSIGN_OR_RETURN(const std::shared_ptr<World> world, World::Create(spec));
      std::vector<std::string> of_ranks(static_cast<size_t>(ranks));
      const absl::Status status = RunAllRanks(ranks, [&](int rank) {
        return RunCollectives(world.get(), rank, options, in_rank_order,
                              &of_ranks[static_cast<size_t>(rank)]);
      });
      figures = of_ranks[0];
      return status;
    };
    const absl::Status status = run();
    results->Add(
        absl::StrCat("collectives on device memory, ", RanksText(ranks),
                     in_rank_order ? ", in the tree's order" : ", NCCL's sums"),
        status, figures);
  }
}

}  // namespace

std::string RanksText(int ranks) {
  return ranks == 1 ? "1 rank, whose collectives are copies"
                    : absl::StrCat(ranks, " ranks");
}

absl::StatusOr<const commsched_backend_t*> Nccl() {
  return PluginRegistry::Process().Backend("nccl");
}

absl::Status RunCollectives(World* world, int rank, const Options& options,
                            bool in_rank_order, std::string* figures) {
  const int size = world->spec().size;
  const int num_cases = options.quick ? 40 : 300;
  ASSIGN_OR_RETURN(const CudaRuntime* cuda, CudaRuntime::Get());
  Device* const device = world->device(rank);
  RETURN_IF_ERROR(
      cuda->Check("cudaSetDevice", cuda->SetDevice(device->ordinal())));
  DeviceMemory memory(device);
  CommDriver comm;
  CommSpec spec;
  spec.id = absl::StrCat("collectives ", in_rank_order);
  spec.scope = in_rank_order ? 1 : 2;
  RETURN_IF_ERROR(comm.Create(world, spec, rank));
  for (int i = 0; i < num_cases; ++i) {
    // Each rank makes the whole case, and has its own part of it.
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    const auto each = MakeCase(size, in_rank_order, seed);
    const absl::Status status =
        LaunchOnDevice(each.get(), rank).Run(*cuda, comm, memory);
    if (status.ok()) continue;
    const std::string why = absl::StrCat("seed ", seed, " (", each->Describe(),
                                         "): ", status.message());
    // The others would wait for the launches that are not made any more.
    comm.Abort(COMMSCHED_ABORTED, why.c_str());
    return absl::Status(status.code(), why);
  }
  *figures = absl::StrCat(num_cases, " launches");
  return absl::OkStatus();
}

void CheckCollectives(const Options& options, Results* results) {
  const auto devices = NumCudaDevices();
  if (!devices.ok()) return results->Add("collectives", devices.status());
  CheckInProcess(1, options, results);
  const int ranks = std::min(*devices, options.max_ranks);
  if (ranks > 1) {
    CheckInProcess(ranks, options, results);
  } else {
    results->Skip("collectives on device memory, a rank per device",
                  "there is one device; ranks that share it are processes "
                  "(below)");
  }
}

}  // namespace commsched::gpu_check
