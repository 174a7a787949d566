#include "test/cuda/device_job.h"

#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "session/backend_model.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/random_step.h"
#include "test/support/rank_group.h"

namespace commsched::test {
namespace {

constexpr uint64_t kSteps = 7;  // More than run-ahead.

// One rank of a case: its memory on a device, its streams, its session.
class Rank {
 public:
  Rank(const DeviceJob& drawn, std::shared_ptr<World> world,
       std::shared_ptr<const Plan> plan, int rank)
      : case_(drawn),
        world_(std::move(world)),
        plan_(std::move(plan)),
        rank_(rank) {
    const RankMemory initial = InitialMemory(drawn.job.step, rank);
    for (size_t b = 0; b < initial.size(); ++b) {
      bound_.push_back(MakeMemory(initial[b].size()));
      std::memcpy(Peek(bound_[b]->address()), initial[b].data(),
                  initial[b].size() * sizeof(int64_t));
    }
    for (uint32_t i = 0; i < plan_->num_compute_lanes; ++i) {
      lanes_.push_back(device()->CreateSideStream().value());
    }
  }

  absl::Status Run() {
    ASSIGN_OR_RETURN(session_, Session::Create(Spec()));
    absl::Status status = FindAddresses();
    if (status.ok()) {
      status = case_.by_calls || !late_.empty() ? DriveCalls() : Replay();
    }
    if (status.ok()) status = session_->Drain();
    session_.reset();
    return status;
  }

  // Once the streams are at rest.
  const int64_t* Contents(size_t buffer) const {
    return reinterpret_cast<const int64_t*>(Peek(bound_[buffer]->address()));
  }

 private:
  Device* device() const { return world_->device(rank_); }

  std::unique_ptr<DeviceMemory> MakeMemory(uint64_t elements) {
    return std::make_unique<DeviceMemory>(FakeDevice(device()->ordinal()),
                                          elements * sizeof(int64_t));
  }

  SessionSpec Spec() {
    const Graph& graph = *plan_->graph;
    SessionSpec spec;
    spec.world = world_;
    spec.world_rank = rank_;
    spec.plan = plan_;
    spec.groups = case_.job.GroupsOf(rank_);
    spec.launch_timeout_ns = int64_t{20} * 1000 * 1000 * 1000;
    for (uint32_t i = 0; i < graph.buffers().size(); ++i) {
      if (graph.buffers()[i].ownership != Ownership::kBound) continue;
      spec.bindings.push_back({BufferId(i), bound_[i]->address(),
                               graph.buffers()[i].count * sizeof(int64_t)});
    }
    for (const auto& lane : lanes_) spec.lanes.push_back(lane.get());
    return spec;
  }

  absl::Status FindAddresses() {
    const Graph& graph = *plan_->graph;
    address_.assign(kSteps, std::vector<void*>(graph.buffers().size()));
    for (uint32_t i = 0; i < graph.ops().size(); ++i) {
      for (const Access& access : graph.ops()[i].accesses) {
        const uint32_t b = access.buffer.value();
        if (address_[0][b] != nullptr) continue;
        if (graph.buffers()[b].ownership == Ownership::kLateBound) {
          for (auto& addresses : address_) {
            late_.push_back(MakeMemory(graph.buffers()[b].count));
            addresses[b] = late_.back()->address();
          }
          continue;
        }
        ASSIGN_OR_RETURN(void* address,
                         session_->Address(OpId(i), access.buffer));
        for (auto& addresses : address_) addresses[b] = address;
      }
    }
    return absl::OkStatus();
  }

  void Compute(OpId op, uint64_t t, Stream* stream) {
    std::vector<int64_t*> peeked;
    for (void* address : address_[t]) {
      peeked.push_back(reinterpret_cast<int64_t*>(Peek(address)));
    }
    const uint32_t role = case_.job.role_of_rank[rank_];
    const OpId in_step = case_.job.op_in_step[role][op.value()];
    std::vector<fake_gpu_range_t> ranges;
    for (const ElementRun& run :
         ElementsOfCompute(case_.job.step, in_step, t, rank_)) {
      const auto* const at =
          static_cast<const int64_t*>(address_[t][run.buffer.value()]);
      ranges.push_back(
          {at + run.begin, run.count * sizeof(int64_t), run.writes ? 1 : 0});
    }
    const std::string& name = case_.job.step.graph.op(in_step).name;
    RunOn(stream, name, ranges, [this, in_step, t, peeked = std::move(peeked)] {
      RunCompute(case_.job.step, in_step, t, rank_, peeked);
    });
  }

  absl::Status Replay() {
    return session_->Run(
        [](void* user, OpId op, Stream* stream) {
          Rank* const self = static_cast<Rank*>(user);
          const uint64_t t = self->replayed_++ / self->plan_->nodes.size();
          self->Compute(op, t, stream);
          return absl::OkStatus();
        },
        this, kSteps);
  }

  absl::Status DriveCalls() {
    for (uint64_t t = 0; t < kSteps; ++t) {
      RETURN_IF_ERROR(session_->StepBegin());
      for (const ComputeNode& node : plan_->nodes) {
        Stream* const stream = lanes_[node.lane].get();
        RETURN_IF_ERROR(session_->Before(node.op, stream));
        Compute(node.op, t, stream);
        RETURN_IF_ERROR(CallAfter(node.op, t, stream));
      }
      RETURN_IF_ERROR(session_->StepEnd());
    }
    return absl::OkStatus();
  }

  absl::Status CallAfter(OpId op, uint64_t t, Stream* stream) {
    std::vector<LateBinding> late;
    for (uint32_t i = 0; i < plan_->graph->buffers().size(); ++i) {
      const BufferId buffer(i);
      if (plan_->graph->LateBoundWriter(buffer) != op) continue;
      late.push_back(
          {buffer, address_[t][i], CountInStep(case_.job.step, buffer, t), {}});
    }
    return session_->AfterBound(op, stream, late);
  }

  const DeviceJob& case_;
  const std::shared_ptr<World> world_;
  const std::shared_ptr<const Plan> plan_;
  const int rank_;
  std::vector<std::unique_ptr<DeviceMemory>> bound_;  // By BufferId.
  std::vector<std::unique_ptr<DeviceMemory>> late_;
  std::vector<std::unique_ptr<Stream>> lanes_;
  std::unique_ptr<Session> session_;
  std::vector<std::vector<void*>> address_;  // By step, then buffer.
  uint64_t replayed_ = 0;
};

std::string Compare(const DeviceJob& drawn,
                    const std::vector<std::unique_ptr<Rank>>& ranks,
                    const std::vector<absl::Status>& statuses) {
  const std::vector<RankMemory> expected =
      RunSequentially(drawn.job.step, kSteps);
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!statuses[r].ok()) {
      return absl::StrCat("rank ", r, ": ", statuses[r].ToString());
    }
    for (size_t b = 0; b < expected[r].size(); ++b) {
      const Buffer& buffer = drawn.job.step.graph.buffers()[b];
      if (buffer.ownership != Ownership::kBound) continue;
      if (std::memcmp(ranks[r]->Contents(b), expected[r][b].data(),
                      expected[r][b].size() * sizeof(int64_t)) != 0) {
        return absl::StrCat("buffer '", buffer.name, "' of rank ", r);
      }
    }
  }
  return "";
}

std::string RunJob(const DeviceJob& drawn, const Plans& plans) {
  const int num_ranks = drawn.job.num_ranks();
  WorldSpec spec;
  spec.size = num_ranks;
  spec.table = NcclTable();
  for (int r = 0; r < num_ranks; ++r) {
    spec.devices.push_back(FakeDevice(r));
  }
  auto world = World::Create(spec);
  if (!world.ok()) return std::string(world.status().message());
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < num_ranks; ++r) {
    ranks.push_back(std::make_unique<Rank>(
        drawn, *world, plans[drawn.job.role_of_rank[r]], r));
  }
  const std::vector<absl::Status> statuses =
      RunRanks(num_ranks, [&](int rank) { return ranks[rank]->Run(); });
  return Compare(drawn, ranks, statuses);
}

}  // namespace

DeviceJob DrawDeviceJob(uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x6370);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  DeviceJob drawn;
  drawn.seed = seed;
  RandomStepLimits limits;
  limits.max_compute_lanes = draw(1, 3);
  limits.subgroups = draw(0, 1) == 1;
  limits.tiles = draw(0, 1) == 1;
  limits.uneven = draw(0, 1) == 1;
  limits.peers = draw(0, 1) == 1;
  limits.late_bound = draw(0, 2) == 0;
  limits.barriers = draw(0, 1) == 1;
  limits.place_groups = seed % 2 == 0;
  drawn.job = MakeRandomJob(seed, limits, draw(0, 1) == 0 ? 1 : 4);
  PlanOptions& options = drawn.options;
  options.schedule = draw(0, 3) == 0 ? Schedule::kSerial : Schedule::kOverlap;
  options.max_launches_in_flight = draw(0, 4);
  options.max_bytes_in_flight = draw(0, 1) * draw(8, 400);
  options.coalesce_bytes = draw(0, 2) * draw(16, 1000);
  options.num_comm_lanes = draw(1, 2);
  options.priority = static_cast<Priority>(draw(0, 2));
  options.backend = ModelOf(*NcclTable());
  if (draw(0, 1) == 1) drawn.profile.copy_bytes_per_s = 1e3;
  drawn.by_calls = draw(0, 1) == 1;
  drawn.delay_us = draw(0, 1) * static_cast<uint32_t>(draw(1, 100));
  return drawn;
}

std::string RunOnThreads(const DeviceJob& drawn, const Plans& plans) {
  fake_gpu_delay(drawn.seed, drawn.delay_us);
  std::string wrong = RunJob(drawn, plans);
  fake_gpu_delay(0, 0);
  return wrong;
}

Outcome RunBySeed(const DeviceJob& drawn, const Plans& plans) {
  fake_gpu_deterministic(drawn.seed);
  Outcome outcome;
  outcome.wrong = RunJob(drawn, plans);
  outcome.races = fake_gpu_races();
  outcome.first_race = fake_gpu_first_race();
  fake_gpu_deterministic(0);
  return outcome;
}

Plans DeviceJob::MakePlans() const {
  return BuildPlans(job.Roles(profile), options).value();
}

}  // namespace commsched::test
