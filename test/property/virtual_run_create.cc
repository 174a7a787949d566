#include <algorithm>

#include "absl/strings/str_cat.h"
#include "test/property/virtual_run.h"

namespace commsched::test {
namespace {

constexpr int64_t kTimeoutNs = 1'000'000'000;

// Whether [begin, end) of the arena is given out once.
bool IsAlone(const Plan& plan, const Placement& placement) {
  const auto apart = [&](uint64_t offset, uint64_t bytes) {
    return offset + bytes <= placement.offset ||
           placement.offset + placement.bytes <= offset;
  };
  for (const Placement& other : plan.placements) {
    if (other.buffer != placement.buffer && !apart(other.offset, other.bytes)) {
      return false;
    }
  }
  return std::all_of(
      plan.launches.begin(), plan.launches.end(), [&](const Launch& launch) {
        return launch.way != Way::kPack ||
               apart(launch.staging_offset, launch.staging_bytes);
      });
}

}  // namespace

WorldSpec VirtualRun::MakeWorld() {
  WorldSpec spec = wire_.Spec(job_.num_ranks());
  if (trouble_.kind == Trouble::Kind::kFault) {
    faults_ = std::make_unique<FaultBackend>(std::vector<Fault>{trouble_.fault},
                                             &clock_);
    spec = faults_->Spec(spec);
  }
  return spy_.Spec(spec);
}

bool VirtualRun::Create() {
  world_ = World::Create(MakeWorld()).value();
  std::vector<SessionSpec> specs;
  for (int r = 0; r < job_.num_ranks(); ++r) {
    Rank& rank = ranks_.emplace_back();
    rank.number = r;
    const uint32_t role = job_.role_of_rank[r];
    rank.plan = plans_[role].get();
    rank.op_in_step = &job_.op_in_step[role];
    rank.nodes.assign(rank.plan->nodes.size(), NodeState::kIdle);
    specs.push_back(SpecOf(rank));
    CountUses(rank);
    const uint32_t index = static_cast<uint32_t>(r);
    actors_.push_back({kHost, index});
    actors_.push_back({kLane, index});
    for (uint32_t i = 0; i < rank.streams.size(); ++i) {
      actors_.push_back({kStream, index * 16 + i});
    }
  }
  actors_.push_back({kWire, 0});
  order_.resize(actors_.size());
  auto sessions = Session::CreateAll(std::move(specs));
  if (!sessions.ok()) {
    Wrong(absl::StrCat("sessions: ", sessions.status().ToString()));
    return false;
  }
  for (Rank& rank : ranks_) {
    rank.session = std::move((*sessions)[rank.number]);
    if (!FindAddresses(rank)) return false;
  }
  return true;
}

SessionSpec VirtualRun::SpecOf(Rank& rank) {
  SessionSpec spec;
  spec.world = world_;
  spec.world_rank = rank.number;
  spec.plan = plans_[job_.role_of_rank[rank.number]];
  spec.groups = job_.GroupsOf(rank.number);
  spec.launch_timeout_ns = kTimeoutNs;
  spec.manual = true;
  spec.clock = &clock_;
  rank.memory = expected_[0][rank.number];
  const std::vector<Buffer>& buffers = rank.plan->graph->buffers();
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].ownership != Ownership::kBound) continue;
    spec.bindings.push_back({BufferId(i), rank.memory[i].data(),
                             rank.memory[i].size() * sizeof(int64_t)});
  }
  for (uint32_t i = 0; i < rank.plan->num_compute_lanes; ++i) {
    spec.lanes.push_back(&rank.streams.emplace_back());
  }
  return spec;
}

void VirtualRun::CountUses(Rank& rank) {
  const Plan& plan = *rank.plan;
  rank.lives.resize(plan.graph->buffers().size());
  const auto count = [&](OpId op) {
    for (const Access& access : plan.graph->op(op).accesses) {
      ++rank.lives[access.buffer.value()].uses_per_step;
    }
  };
  for (const ComputeNode& node : plan.nodes) count(node.op);
  for (const Launch& launch : plan.launches) {
    for (OpId op : launch.members) count(op);
  }
  for (const Placement& placement : plan.placements) {
    rank.lives[placement.buffer.value()].alone = IsAlone(plan, placement);
  }
}

bool VirtualRun::FindAddresses(Rank& rank) {
  const Graph& graph = *rank.plan->graph;
  const std::vector<Buffer>& buffers = graph.buffers();
  rank.addresses.assign(num_steps_, std::vector<int64_t*>(buffers.size()));
  rank.late.resize(buffers.size() * num_steps_);
  const auto set = [&](BufferId buffer, int64_t* address) {
    for (auto& addresses : rank.addresses) addresses[buffer.value()] = address;
  };
  for (const ComputeNode& node : rank.plan->nodes) {
    for (const Access& access : graph.op(node.op).accesses) {
      const BufferId id = access.buffer;
      if (rank.addresses[0][id.value()] != nullptr) continue;
      if (buffers[id.value()].ownership != Ownership::kLateBound) {
        auto address = rank.session->Address(node.op, id);
        if (!address.ok()) {
          Wrong(address.status().ToString());
          return false;
        }
        set(id, static_cast<int64_t*>(*address));
        continue;
      }
      for (uint64_t t = 0; t < num_steps_; ++t) {
        auto& memory = rank.late[id.value() * num_steps_ + t];
        memory.assign(CountInStep(job_.step, id, t), kScribble);
        rank.addresses[t][id.value()] = memory.data();
      }
    }
  }
  for (const Placement& placement : rank.plan->placements) {
    int64_t* const address = rank.addresses[0][placement.buffer.value()];
    if (address == nullptr) continue;
    std::fill_n(address, buffers[placement.buffer.value()].count, kScribble);
  }
  return true;
}

}  // namespace commsched::test
