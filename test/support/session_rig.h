// Ranks of one process that run sessions of one graph.
#ifndef COMMSCHED_TEST_SUPPORT_SESSION_RIG_H_
#define COMMSCHED_TEST_SUPPORT_SESSION_RIG_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "plan/planner.h"
#include "session/session.h"

namespace commsched::test {

// A world, a plan and, for each rank, memory for the BOUND buffers (zeroed).
// All groups hold all ranks.
class SessionRig {
 public:
  SessionRig(WorldSpec world, const Graph& graph, const PlanOptions& options)
      : SessionRig({World::Create(world).value()}, graph, options) {}
  // One world, or that of each rank, as processes have them.
  SessionRig(std::vector<std::shared_ptr<World>> worlds, const Graph& graph,
             const PlanOptions& options)
      : worlds_(std::move(worlds)),
        plan_(BuildPlan(graph, options, CostProfile{}).value()),
        memory_(static_cast<size_t>(worlds_[0]->spec().size)) {
    for (auto& rank : memory_) {
      for (const Buffer& buffer : graph.buffers()) {
        rank.emplace_back(buffer.ownership == Ownership::kBound
                              ? buffer.bytes() / sizeof(float) + 1
                              : 0);
      }
    }
  }

  // The float memory of a BOUND buffer of a rank.
  float* Memory(int rank, BufferId buffer) {
    return memory_[rank][buffer.value()].data();
  }

  // What a session of `rank` is created from; a test may change it.
  SessionSpec Spec(int rank) {
    return Spec(rank,
                worlds_[worlds_.size() == 1 ? 0 : static_cast<size_t>(rank)]);
  }
  // The same after TakeWorlds().
  SessionSpec Spec(int rank, std::shared_ptr<World> world) {
    const Graph& graph = *plan_->graph;
    SessionSpec spec;
    spec.world = std::move(world);
    spec.world_rank = rank;
    spec.plan = plan_;
    spec.launch_timeout_ns = int64_t{20} * 1000 * 1000 * 1000;
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
          {BufferId(i), memory_[rank][i].data(), buffer.bytes()});
    }
    return spec;
  }

  // Runs `body(rank)` on a thread per rank; returns their statuses.
  std::vector<absl::Status> RunRanks(
      const std::function<absl::Status(int rank)>& body) {
    std::vector<absl::Status> statuses(memory_.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < memory_.size(); ++r) {
      threads.emplace_back([&, r] { statuses[r] = body(static_cast<int>(r)); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  // The same with a session per rank, drained at the end.
  std::vector<absl::Status> RunSessions(
      const std::function<absl::Status(Session&, int rank)>& body) {
    return RunRanks([&](int rank) {
      absl::StatusOr<std::unique_ptr<Session>> session =
          Session::Create(Spec(rank));
      if (!session.ok()) return session.status();
      absl::Status status = body(**session, rank);
      return status.ok() ? (*session)->Drain() : status;
    });
  }

  const std::shared_ptr<World>& world() const { return worlds_[0]; }
  std::vector<std::shared_ptr<World>> TakeWorlds() {
    return std::move(worlds_);
  }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  void set_plan(std::shared_ptr<const Plan> plan) { plan_ = std::move(plan); }

 private:
  std::vector<std::shared_ptr<World>> worlds_;
  std::shared_ptr<const Plan> plan_;
  std::vector<std::vector<std::vector<float>>> memory_;  // rank, buffer
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_SESSION_RIG_H_
