#include "test/cuda/gpu_rig.h"

#include <cstdlib>
#include <utility>

#include "base/mutex.h"
#include "comm/plugin/registry.h"
#include "device/cuda_device.h"
#include "session/backend_model.h"
#include "test/support/rank_group.h"

namespace commsched::test {
namespace {

constexpr int kNumDevices = 4;

}  // namespace

const commsched_backend_t* NcclTable() {
  static const commsched_backend_t* const table = [] {
    PluginRegistry& registry = PluginRegistry::Process();
    const absl::Status loaded = registry.Load(COMMSCHED_TEST_NCCL);
    if (!loaded.ok()) std::abort();
    return registry.Backend("nccl").value();
  }();
  return table;
}

std::shared_ptr<Device> FakeDevice(int ordinal) {
  static Mutex mu;
  static std::weak_ptr<Device> devices[kNumDevices];
  const MutexLock lock(&mu);
  std::weak_ptr<Device>& last = devices[ordinal % kNumDevices];
  std::shared_ptr<Device> device = last.lock();
  if (device == nullptr) {
    device = OpenCudaDevice(ordinal % kNumDevices).value();
    last = device;
  }
  return device;
}

DeviceMemory::DeviceMemory(std::shared_ptr<Device> device, uint64_t bytes)
    : device_(std::move(device)), address_(device_->Allocate(bytes).value()) {
  device_->Fill(address_, 0, bytes).IgnoreError();
}

float* Peek(void* address) {
  return static_cast<float*>(fake_gpu_peek(address));
}

void RunOn(Stream* stream, std::function<void()> body) {
  RunOn(stream, "", {}, std::move(body));
}

void RunOn(Stream* stream, const std::string& name,
           const std::vector<fake_gpu_range_t>& ranges,
           std::function<void()> body) {
  if (stream->is_caller()) {
    body();
    return;
  }
  fake_gpu_launch_ranges(
      stream->handle().native, name.c_str(), ranges.data(), ranges.size(),
      [](void* user) {
        const std::unique_ptr<std::function<void()>> run(
            static_cast<std::function<void()>*>(user));
        (*run)();
      },
      new std::function<void()>(std::move(body)));
}

GpuRig::GpuRig(int size, const Graph& graph, const PlanOptions& options)
    : ranks_(static_cast<size_t>(size)) {
  PlanOptions for_backend = options;
  for_backend.backend = ModelOf(*NcclTable());
  plan_ = BuildPlan(graph, for_backend, CostProfile{}).value();
  WorldSpec spec;
  spec.size = size;
  spec.table = NcclTable();
  for (int r = 0; r < size; ++r) {
    RankParts& rank = ranks_[static_cast<size_t>(r)];
    rank.device = FakeDevice(r);
    spec.devices.push_back(rank.device);
    for (const Buffer& buffer : graph.buffers()) {
      rank.memory.push_back(
          buffer.ownership == Ownership::kBound
              ? std::make_unique<DeviceMemory>(rank.device, buffer.bytes())
              : nullptr);
    }
    for (uint32_t lane = 0; lane < plan_->num_compute_lanes; ++lane) {
      rank.lanes.push_back(rank.device->CreateSideStream().value());
    }
  }
  world_ = World::Create(spec).value();
}

SessionSpec GpuRig::Spec(int rank) {
  const Graph& graph = *plan_->graph;
  SessionSpec spec;
  spec.world = world_;
  spec.world_rank = rank;
  spec.instance = instance_;
  spec.plan = plan_;
  spec.launch_timeout_ns = timeout_ns_;
  spec.end_timeout_ns = end_timeout_ns_;
  for (const Group& group : graph.groups()) {
    GroupSpec member;
    member.axis = group.name;
    for (int r = 0; r < group.size; ++r) member.ranks.push_back(r);
    member.rank = rank;
    spec.groups.push_back(member);
  }
  for (uint32_t i = 0; i < graph.buffers().size(); ++i) {
    const Buffer& buffer = graph.buffers()[i];
    if (buffer.ownership != Ownership::kBound) continue;
    spec.bindings.push_back(
        {BufferId(i), Memory(rank, BufferId(i)), buffer.bytes()});
  }
  for (uint32_t i = 0; i < plan_->num_compute_lanes; ++i) {
    spec.lanes.push_back(lane(rank, i));
  }
  return spec;
}

std::vector<absl::Status> GpuRig::RunSessions(
    const std::function<absl::Status(Session&, int rank)>& body) {
  std::vector<absl::Status> statuses =
      RunRanks(static_cast<int>(ranks_.size()), [&](int rank) {
        absl::StatusOr<std::unique_ptr<Session>> session =
            Session::Create(Spec(rank));
        if (!session.ok()) return session.status();
        absl::Status status = body(**session, rank);
        return status.ok() ? (*session)->Drain() : status;
      });
  ++instance_;
  return statuses;
}

}  // namespace commsched::test
