#include "test/cuda/recording_rig.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/rank_group.h"

namespace commsched::test {
namespace {

constexpr uint32_t kBackwardLane = 0;
constexpr uint32_t kOptimizerLane = 1;

}  // namespace

std::shared_ptr<World> WorldOnDevices(int ranks) {
  WorldSpec spec;
  spec.size = ranks;
  spec.table = NcclTable();
  for (int r = 0; r < ranks; ++r) spec.devices.push_back(FakeDevice(r));
  return World::Create(spec).value();
}

int32_t* DeviceWords::Peek() const {
  return static_cast<int32_t*>(fake_gpu_peek(address()));
}

void DeviceWords::Write(const std::vector<int32_t>& words) {
  std::copy(words.begin(), words.end(), Peek());
}

absl::StatusOr<std::unique_ptr<DeviceModulesRank>> DeviceModulesRank::Create(
    const ModulesSpec& spec, std::shared_ptr<World> world,
    std::atomic<uint64_t>* instances, int rank) {
  auto made = std::make_unique<DeviceModulesRank>();
  made->rank_ = rank;
  made->device_ = FakeDevice(rank);
  RecordingSpec recording;
  recording.world = std::move(world);
  recording.world_rank = rank;
  recording.take_instance = [instances] { return (*instances)++; };
  GroupSpec group;
  group.axis = "dp";
  for (int r = 0; r < spec.ranks; ++r) group.ranks.push_back(r);
  group.rank = rank;
  recording.groups.push_back(group);
  recording.options.coalesce_bytes = spec.coalesce_bytes;
  recording.options.partition_bytes = spec.partition_bytes;
  recording.steps_to_record = spec.steps_to_record;
  recording.max_recorded_steps = spec.max_recorded_steps;
  recording.launch_timeout_ns = spec.launch_timeout_ns;
  for (int lane = 0; lane < 2; ++lane) {
    ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                     made->device_->CreateSideStream());
    recording.lanes.push_back(stream.get());
    made->lanes_.push_back(std::move(stream));
  }
  spec.adjust(&recording);
  made->num_groups_ = static_cast<uint32_t>(recording.groups.size());
  ASSIGN_OR_RETURN(made->recording_, Recording::Create(std::move(recording)));
  for (uint32_t s = 1; s < spec.segments; ++s) {
    RETURN_IF_ERROR(
        made->recording_->AddSegment(absl::StrCat("s", s)).status());
  }
  for (int m = 0; m < spec.modules; ++m) {
    RETURN_IF_ERROR(made->Declare(spec, m));
  }
  return made;
}

absl::Status DeviceModulesRank::Declare(const ModulesSpec& spec, int m) {
  weight_.push_back(std::make_unique<DeviceWords>(device_, spec.count));
  grad_.push_back(std::make_unique<DeviceWords>(device_, spec.count));
  std::vector<int32_t> first;
  for (size_t i = 0; i < spec.count; ++i) {
    first.push_back(static_cast<int32_t>(31 * m + 7 * i));
  }
  weight_.back()->Write(first);
  const auto add_buffer = [&](const char* name, const DeviceWords& words) {
    Buffer buffer;
    buffer.name = absl::StrCat(name, m);
    buffer.dtype = DType::kI32;
    buffer.ownership = Ownership::kBound;
    buffer.count = spec.count;
    return recording_->AddBuffer(buffer, words.address());
  };
  ASSIGN_OR_RETURN(const BufferId weight,
                   add_buffer("weight.", *weight_.back()));
  ASSIGN_OR_RETURN(const BufferId grad, add_buffer("grad.", *grad_.back()));
  const uint32_t segment = static_cast<uint32_t>(m) % spec.segments;
  ASSIGN_OR_RETURN(const uint32_t bwd,
                   DeclareOp(absl::StrCat("bwd.", m), kBackwardLane,
                             {{weight, AccessMode::kRead, {}},
                              {grad, AccessMode::kReadWrite, {}}},
                             segment));
  bwd_.push_back(bwd);
  Op reduce;
  reduce.name = absl::StrCat("ar.", m);
  reduce.kind = OpKind::kCollective;
  reduce.collective.group = GroupId(static_cast<uint32_t>(m) % num_groups_);
  reduce.collective.input = {grad, AccessMode::kRead, {}};
  reduce.collective.output = {grad, AccessMode::kWrite, {}};
  ASSIGN_OR_RETURN(const OpId ar,
                   recording_->AddCollective(
                       reduce, segment,
                       {.alternative = spec.alternative, .early = spec.early}));
  ar_.push_back(ar.value());
  ASSIGN_OR_RETURN(const uint32_t opt,
                   DeclareOp(absl::StrCat("opt.", m), kOptimizerLane,
                             {{grad, AccessMode::kRead, {}},
                              {weight, AccessMode::kReadWrite, {}}},
                             segment));
  opt_.push_back(opt);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> DeviceModulesRank::DeclareOp(
    const std::string& name, uint32_t lane, std::vector<Access> accesses,
    uint32_t segment) {
  Op op;
  op.name = name;
  op.compute.lane = lane;
  op.accesses = std::move(accesses);
  ASSIGN_OR_RETURN(const OpId id, recording_->AddCompute(op, segment));
  return id.value();
}

absl::Status DeviceModulesRank::Backward(int m, int step) {
  Stream* const stream = lanes_[kBackwardLane].get();
  RETURN_IF_ERROR(recording_->Before(bwd_[m], stream));
  RunOn(stream,
        [weight = weight_[m].get(), grad = grad_[m].get(), step, rank = rank_] {
          for (size_t i = 0; i < grad->count(); ++i) {
            grad->Peek()[i] =
                test::Backward(weight->Peek()[i], grad->Peek()[i], step, rank);
          }
        });
  return recording_->After(bwd_[m], stream);
}

absl::Status DeviceModulesRank::Optimize(int m) {
  Stream* const stream = lanes_[kOptimizerLane].get();
  RETURN_IF_ERROR(recording_->Before(opt_[m], stream));
  RunOn(stream, [weight = weight_[m].get(), grad = grad_[m].get()] {
    for (size_t i = 0; i < grad->count(); ++i) {
      weight->Peek()[i] = test::Optimize(weight->Peek()[i], grad->Peek()[i]);
    }
  });
  return recording_->After(opt_[m], stream);
}

absl::Status DeviceModulesRank::Step(int step) {
  RETURN_IF_ERROR(recording_->StepBegin());
  const int modules = static_cast<int>(ar_.size());
  for (int m = 0; m < modules; ++m) {
    RETURN_IF_ERROR(Backward(m, step));
    RETURN_IF_ERROR(Reduce(m));
  }
  for (int m = 0; m < modules; ++m) RETURN_IF_ERROR(Optimize(m));
  return recording_->StepEnd();
}

std::vector<absl::Status> RunDeviceModules(
    const ModulesSpec& spec,
    const std::function<absl::Status(DeviceModulesRank&)>& body) {
  const std::shared_ptr<World> world = WorldOnDevices(spec.ranks);
  std::vector<std::atomic<uint64_t>> instances(spec.ranks);
  return RunRanks(spec.ranks, [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(
        std::unique_ptr<DeviceModulesRank> made,
        DeviceModulesRank::Create(spec, world, &instances[rank], rank));
    return body(*made);
  });
}

}  // namespace commsched::test
