#include "bench/support/rank_steps.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace commsched::bench {

// Requests to one rank: the number of steps to run, or -1 to end.
struct RankSteps::Rank {
  int rank = 0;
  std::vector<std::vector<char>> memory;  // by BufferId, of bound ones
  std::unique_ptr<Session> session;
  std::thread thread;
  std::mutex mu;
  std::condition_variable changed;
  int64_t request = 0;  // 0: nothing to do
  bool ok = true;
};

namespace {

SessionSpec SpecOf(std::shared_ptr<World> world,
                   std::shared_ptr<const Plan> plan, int rank,
                   std::vector<std::vector<char>>* memory) {
  SessionSpec spec;
  spec.world = std::move(world);
  spec.world_rank = rank;
  spec.plan = std::move(plan);
  spec.launch_timeout_ns = int64_t{60} * 1000 * 1000 * 1000;
  for (const Group& group : spec.plan->graph->groups()) {
    GroupSpec member;
    member.axis = group.name;
    for (int r = 0; r < group.size; ++r) member.ranks.push_back(r);
    member.rank = rank;
    spec.groups.push_back(member);
  }
  for (const Buffer& buffer : spec.plan->graph->buffers()) {
    const uint32_t id = static_cast<uint32_t>(memory->size());
    const bool bound = buffer.ownership == Ownership::kBound;
    memory->emplace_back(bound ? buffer.bytes() : 0, char{1});
    if (!bound) continue;
    spec.bindings.push_back(
        {BufferId(id), memory->back().data(), buffer.bytes()});
  }
  return spec;
}

}  // namespace

RankSteps::RankSteps(WorldSpec world, const Graph& graph,
                     const PlanOptions& options, Work work)
    : work_(std::move(work)),
      world_(World::Create(world).value()),
      plan_(BuildPlan(graph, options, CostProfile{}).value()) {
  for (int r = 0; r < world.size; ++r) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->rank = r;
  }
  auto create = [this](Rank* rank) {
    rank->session =
        Session::Create(SpecOf(world_, plan_, rank->rank, &rank->memory))
            .value();
  };
  for (size_t r = 1; r < ranks_.size(); ++r) {
    Rank* rank = ranks_[r].get();
    rank->thread = std::thread([this, create, rank] {
      create(rank);
      Follow(rank);
    });
  }
  create(ranks_[0].get());
}

RankSteps::~RankSteps() {
  for (const auto& rank : ranks_) {
    if (!rank->thread.joinable()) continue;
    {
      std::lock_guard lock(rank->mu);
      rank->request = -1;
    }
    rank->changed.notify_all();
  }
  for (const auto& rank : ranks_) {
    if (rank->thread.joinable()) rank->thread.join();
  }
}

namespace {

bool RunSteps(Session* session, const RankSteps::Work& work,
              uint64_t num_steps) {
  auto compute = [](void* user, OpId op, Stream*) {
    const auto& body = *static_cast<const RankSteps::Work*>(user);
    if (body) body(op);
    return absl::OkStatus();
  };
  return session->Run(compute, const_cast<RankSteps::Work*>(&work), num_steps)
             .ok() &&
         session->Drain().ok();
}

}  // namespace

void RankSteps::Follow(Rank* rank) {
  std::unique_lock lock(rank->mu);
  while (true) {
    rank->changed.wait(lock, [rank] { return rank->request != 0; });
    if (rank->request < 0) break;
    const auto num_steps = static_cast<uint64_t>(rank->request);
    lock.unlock();
    const bool ok = RunSteps(rank->session.get(), work_, num_steps);
    lock.lock();
    rank->ok = rank->ok && ok;
    rank->request = 0;
    rank->changed.notify_all();
  }
  lock.unlock();
  rank->session.reset();
}

bool RankSteps::Run(uint64_t num_steps) {
  for (size_t r = 1; r < ranks_.size(); ++r) {
    Rank* rank = ranks_[r].get();
    {
      std::lock_guard lock(rank->mu);
      rank->request = static_cast<int64_t>(num_steps);
    }
    rank->changed.notify_all();
  }
  bool ok = RunSteps(ranks_[0]->session.get(), work_, num_steps);
  for (size_t r = 1; r < ranks_.size(); ++r) {
    Rank* rank = ranks_[r].get();
    std::unique_lock lock(rank->mu);
    rank->changed.wait(lock, [rank] { return rank->request == 0; });
    ok = ok && rank->ok;
  }
  return ok;
}

}  // namespace commsched::bench
