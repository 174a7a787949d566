#include "test/support/random_run.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/inproc/emulated_link.h"
#include "device/host_device.h"
#include "session/session.h"

namespace commsched::test {
namespace {

constexpr uint64_t kSteps = RandomRun::kSteps;

// Launches that begin late, that are slow, and that end out of order, each on
// one rank or on all.
std::vector<Fault> DrawDelays(std::mt19937_64& random) {
  constexpr int64_t kMaxDelayNs = 50'000;
  std::vector<Fault> delays;
  for (const Fault::Kind kind :
       {Fault::Kind::kDelay, Fault::Kind::kLateIssue, Fault::Kind::kAfterNext,
        Fault::Kind::kWakeStorm}) {
    Fault delay;
    delay.kind = kind;
    delay.world_rank = static_cast<int>(random() % 5) - 1;
    delay.per_million = static_cast<uint32_t>(random() % 250'000);
    delay.seed = random();
    delay.delay_ns = static_cast<int64_t>(random() % kMaxDelayNs);
    delays.push_back(delay);
  }
  return delays;
}

}  // namespace

RandomRun DrawRandomRun(uint64_t seed, int min_ranks, int max_ranks) {
  std::mt19937_64 random(seed ^ 0xabcdef);
  auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  RandomRun drawn;
  drawn.seed = seed;
  RandomStepLimits limits;
  limits.min_ranks = min_ranks;
  limits.max_ranks = max_ranks;
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
  options.deterministic = draw(0, 1) == 1;
  options.max_launches_in_flight = draw(0, 4);
  options.max_bytes_in_flight = draw(0, 1) * draw(8, 400);
  options.coalesce_bytes = draw(0, 2) * draw(16, 1000);
  options.num_comm_lanes = draw(1, 2);
  options.partition_bytes = draw(0, 1) * draw(8, 200);
  options.priority = static_cast<Priority>(draw(0, 2));
  // So slow a copy that a list is cheaper than packing.
  if (draw(0, 1) == 1) drawn.profile.copy_bytes_per_s = 1e3;
  drawn.world.size = drawn.job.num_ranks();
  if (draw(0, 3) == 0)
    drawn.world.backend_config =
        LinkConfig({.bytes_per_s = 1e9, .latency_ns = 0});
  drawn.worker_lanes = draw(0, 2) == 0;
  drawn.shuffled_calls = !drawn.worker_lanes && draw(0, 1) == 1;
  if (draw(0, 1) == 1) drawn.delays = DrawDelays(random);
  return drawn;
}

RandomRun::Plans RandomRun::BuildPlans() const {
  return commsched::BuildPlans(job.Roles(profile), options).value();
}

namespace {

// One rank of a run: its memory, its session, its thread.
class RandomRank {
 public:
  RandomRank(const RandomRun& drawn, std::shared_ptr<World> world,
             std::shared_ptr<const Plan> plan, int rank)
      : run_(drawn),
        world_(std::move(world)),
        plan_(std::move(plan)),
        rank_(rank),
        random_(drawn.seed * 31 + rank),
        memory_(InitialMemory(drawn.job.step, rank)) {}

  absl::Status Run() {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(Spec());
    if (!session.ok()) return session.status();
    session_ = *std::move(session);
    absl::Status status = FindAddresses();
    if (status.ok()) {
      const bool calls = run_.worker_lanes || run_.shuffled_calls || IsLate();
      status = calls ? DriveCalls() : Replay();
    }
    if (status.ok()) status = session_->Drain();
    session_.reset();
    return status;
  }

  RankMemory TakeMemory() { return std::move(memory_); }

 private:
  SessionSpec Spec() {
    const Graph& graph = *plan_->graph;
    SessionSpec spec;
    spec.world = world_;
    spec.world_rank = rank_;
    spec.plan = plan_;
    spec.groups = run_.job.GroupsOf(rank_);
    for (uint32_t i = 0; i < graph.buffers().size(); ++i) {
      if (graph.buffers()[i].ownership != Ownership::kBound) continue;
      spec.bindings.push_back({BufferId(i), memory_[i].data(),
                               memory_[i].size() * sizeof(int64_t)});
    }
    for (uint32_t i = 0; i < plan_->num_compute_lanes; ++i) {
      if (!run_.worker_lanes) break;
      workers_.push_back(
          HostStream::Create(absl::StrCat("lane", i), 256).value());
      spec.lanes.push_back(workers_.back().get());
    }
    return spec;
  }

  absl::Status FindAddresses() {
    const Graph& graph = *plan_->graph;
    address_.assign(kSteps, std::vector<int64_t*>(graph.buffers().size()));
    late_.resize(graph.buffers().size() * kSteps);
    for (uint32_t i = 0; i < graph.ops().size(); ++i) {
      for (const Access& access : graph.ops()[i].accesses) {
        if (IsLate(access.buffer)) {
          BindEveryStep(access.buffer);
          continue;
        }
        absl::StatusOr<void*> address =
            session_->Address(OpId(i), access.buffer);
        if (!address.ok()) return address.status();
        for (auto& addresses : address_) {
          addresses[access.buffer.value()] = static_cast<int64_t*>(*address);
        }
      }
    }
    return absl::OkStatus();
  }

  bool IsLate(BufferId buffer) const {
    return plan_->graph->buffer(buffer).ownership == Ownership::kLateBound;
  }
  bool IsLate() const {
    for (uint32_t i = 0; i < plan_->graph->buffers().size(); ++i) {
      if (IsLate(BufferId(i))) return true;
    }
    return false;
  }

  // To memory of its own in every step.
  void BindEveryStep(BufferId buffer) {
    for (uint64_t t = 0; t < kSteps; ++t) {
      auto& memory = late_[buffer.value() * kSteps + t];
      // As large as can be: a broken plan may mistake the step.
      memory.resize(plan_->graph->buffer(buffer).count);
      address_[t][buffer.value()] = memory.data();
    }
  }

  absl::Status CallAfter(OpId op, uint64_t t, Stream* stream) {
    std::vector<LateBinding> late;
    for (uint32_t i = 0; i < plan_->graph->buffers().size(); ++i) {
      const BufferId buffer(i);
      if (plan_->graph->LateBoundWriter(buffer) != op) continue;
      late.push_back(
          {buffer, address_[t][i], CountInStep(run_.job.step, buffer, t), {}});
    }
    return late.empty() ? session_->After(op, stream)
                        : session_->AfterBound(op, stream, late);
  }

  void Compute(OpId op, uint64_t t) {
    const uint32_t role = run_.job.role_of_rank[rank_];
    RunCompute(run_.job.step, run_.job.op_in_step[role][op.value()], t, rank_,
               address_[t]);
  }

  void MaybeYield() {
    if (random_() % 4 == 0) std::this_thread::yield();
  }

  absl::Status Replay() {
    return session_->Run(
        [](void* user, OpId op, Stream*) {
          auto* self = static_cast<RandomRank*>(user);
          self->MaybeYield();
          self->Compute(op, self->replayed_++ / self->plan_->nodes.size());
          return absl::OkStatus();
        },
        this, kSteps);
  }

  // A unit of work for a worker stream.
  struct Work {
    RandomRank* rank;
    OpId op;
    uint64_t step;
  };

  absl::Status DriveCalls() {
    work_.reserve(kSteps * plan_->nodes.size());
    for (uint64_t t = 0; t < kSteps; ++t) {
      absl::Status status = session_->StepBegin();
      for (uint32_t node : NextOrder()) {
        if (!status.ok()) return status;
        status = Call(plan_->nodes[node], t);
      }
      if (status.ok()) status = session_->StepEnd();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Call(const ComputeNode& node, uint64_t t) {
    Stream* stream =
        run_.worker_lanes ? workers_[node.lane].get() : CallerStream();
    absl::Status status = session_->Before(node.op, stream);
    if (!status.ok()) return status;
    MaybeYield();
    if (run_.worker_lanes) {
      work_.push_back({this, node.op, t});
      workers_[node.lane]->Enqueue(
          [](void* user) {
            Work* work = static_cast<Work*>(user);
            work->rank->Compute(work->op, work->step);
          },
          &work_.back());
    } else {
      Compute(node.op, t);
    }
    return CallAfter(node.op, t, stream);
  }

  static bool NeedsLaunch(const ComputeNode& node) {
    return !node.needs.empty() ||
           std::any_of(node.waits.begin(), node.waits.end(),
                       [](const Wait& wait) {
                         return wait.producer.kind == NodeRef::Kind::kLaunch &&
                                wait.distance == 0;
                       });
  }

  // The planned order, or one in which neighbours without a dependency, and
  // without a launch that one of them needs, have changed places.
  std::vector<uint32_t> NextOrder() {
    std::vector<uint32_t> order(plan_->nodes.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    if (!run_.shuffled_calls) return order;
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      const ComputeNode& next = plan_->nodes[order[i + 1]];
      const OpId op = plan_->nodes[order[i]].op;
      const bool depends =
          NeedsLaunch(next) || std::find(next.after.begin(), next.after.end(),
                                         op) != next.after.end();
      if (!depends && random_() % 2 == 0) std::swap(order[i], order[i + 1]);
    }
    return order;
  }

  const RandomRun& run_;
  const std::shared_ptr<World> world_;
  const std::shared_ptr<const Plan> plan_;
  const int rank_;
  std::mt19937_64 random_;
  RankMemory memory_;
  std::vector<std::unique_ptr<HostStream>> workers_;
  std::unique_ptr<Session> session_;
  std::vector<std::vector<int64_t*>> address_;  // by step, then buffer
  std::vector<std::vector<int64_t>> late_;      // by buffer * kSteps + step
  std::vector<Work> work_;
  uint64_t replayed_ = 0;
};

}  // namespace

absl::Status RunAsRank(const RandomRun& run, std::shared_ptr<World> world,
                       std::shared_ptr<const Plan> plan, int rank,
                       RankMemory* out_memory) {
  RandomRank one(run, std::move(world), std::move(plan), rank);
  absl::Status status = one.Run();
  *out_memory = one.TakeMemory();
  return status;
}

std::string FindDifference(const RandomRun& run, const RankMemory& memory,
                           const RankMemory& expected) {
  for (size_t b = 0; b < expected.size(); ++b) {
    const Buffer& buffer = run.job.step.graph.buffers()[b];
    if (buffer.ownership != Ownership::kBound) continue;
    if (memory[b] != expected[b]) return buffer.name;
  }
  return "";
}

}  // namespace commsched::test
