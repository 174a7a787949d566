// Whole jobs on one thread, where transfers get on block by block in an order
// of the seed, with faults below: results are those of a sequential run, and a
// fault is reported by every rank.
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "plan/planner.h"
#include "session/session.h"
#include "test/support/fault_backend.h"
#include "test/support/property.h"
#include "test/support/random_step.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_backend.h"
#include "test/support/virtual_job.h"

namespace commsched {
namespace {

using test::Fault;
using test::FaultBackend;
using test::InitialMemory;
using test::MakeRandomStep;
using test::PropertyCases;
using test::PropertySeed;
using test::RandomStep;
using test::RankMemory;
using test::RunCompute;
using test::RunSequentially;
using test::VirtualBackend;
using test::VirtualJob;

constexpr uint64_t kFaultySteps = 3;
constexpr int64_t kVirtualSecondNs = 1'000'000'000;

// A random step with its memory, run below on a virtual wire with faults.
class FaultyJob {
 public:
  FaultyJob(uint64_t seed, std::vector<Fault> faults)
      : seed_(seed),
        step_(MakeRandomStep(seed, {})),
        faults_(std::move(faults)) {
    PlanOptions options;
    options.max_launches_in_flight = static_cast<uint32_t>(seed % 4);
    options.coalesce_bytes = seed % 2 * 500;
    options.num_comm_lanes = 1 + static_cast<uint32_t>(seed / 2 % 2);
    plan_ = BuildPlan(step_.graph, options, CostProfile{}).value();
    world_ = World::Create(faults_.Spec(wire_.Spec(step_.num_ranks))).value();
    for (int r = 0; r < step_.num_ranks; ++r) {
      memory_.push_back(InitialMemory(step_, r));
    }
  }

  absl::Status Run() {
    std::vector<SessionSpec> specs;
    for (int r = 0; r < step_.num_ranks; ++r) specs.push_back(Spec(r));
    auto created = VirtualJob::Create(specs, seed_);
    if (!created.ok()) return created.status();
    job_ = *std::move(created);
    faults_.UseClock(&job_->clock());
    job_->set_wire([this](uint64_t draw) { return wire_.StepSome(draw); });
    const auto address = Addresses();
    return job_->Run(kFaultySteps, [&](int rank, OpId op, uint64_t t) {
      RunCompute(step_, op, t, rank, address[rank]);
    });
  }

  // Pumps until every rank knows, or nobody gets on.
  void PumpAll() {
    bool got_on = true;
    while (got_on) {
      got_on = false;
      for (int r = 0; r < step_.num_ranks; ++r) {
        got_on |= job_->session(r).Pump();
      }
    }
  }

  bool ResultIsRight() const {
    const std::vector<RankMemory> expected =
        RunSequentially(step_, kFaultySteps);
    for (int r = 0; r < step_.num_ranks; ++r) {
      for (uint32_t i = 0; i < step_.graph.buffers().size(); ++i) {
        const bool bound =
            step_.graph.buffers()[i].ownership == Ownership::kBound;
        if (bound && memory_[r][i] != expected[r][i]) return false;
      }
    }
    return true;
  }

  int num_ranks() const { return step_.num_ranks; }
  absl::Status status(int rank) const { return job_->session(rank).status(); }
  void Release() { job_.reset(); }
  const VirtualBackend& wire() const { return wire_; }
  const FaultBackend& faults() const { return faults_; }

 private:
  SessionSpec Spec(int rank) {
    SessionSpec spec;
    spec.world = world_;
    spec.world_rank = rank;
    spec.plan = plan_;
    spec.launch_timeout_ns = kVirtualSecondNs;
    for (const Group& group : step_.graph.groups()) {
      GroupSpec member{group.name, {}, rank};
      for (int i = 0; i < group.size; ++i) member.ranks.push_back(i);
      spec.groups.push_back(member);
    }
    for (uint32_t i = 0; i < step_.graph.buffers().size(); ++i) {
      if (step_.graph.buffers()[i].ownership != Ownership::kBound) continue;
      spec.bindings.push_back({BufferId(i), memory_[rank][i].data(),
                               memory_[rank][i].size() * sizeof(int64_t)});
    }
    return spec;
  }

  std::vector<std::vector<int64_t*>> Addresses() {
    std::vector<std::vector<int64_t*>> address(step_.num_ranks);
    for (int r = 0; r < step_.num_ranks; ++r) {
      address[r].resize(step_.graph.buffers().size());
      for (uint32_t i = 0; i < step_.graph.ops().size(); ++i) {
        for (const Access& access : step_.graph.ops()[i].accesses) {
          address[r][access.buffer.value()] = static_cast<int64_t*>(
              job_->session(r).Address(OpId(i), access.buffer).value());
        }
      }
    }
    return address;
  }

  const uint64_t seed_;
  const RandomStep step_;
  VirtualBackend wire_;
  FaultBackend faults_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<World> world_;
  std::vector<RankMemory> memory_;
  std::unique_ptr<VirtualJob> job_;
};

TEST(VirtualOrderTest, AnyOrderOfTransfersGivesTheSequentialResult) {
  for (int i = 0; i < PropertyCases(300); ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    FaultyJob job(seed, {});
    ASSERT_OK(job.Run());
    ASSERT_TRUE(job.ResultIsRight());
    job.Release();
    ASSERT_EQ(job.wire().num_members(), 0);
  }
}

TEST(VirtualOrderTest, DelaysChangeNoResult) {
  for (const Fault::Kind kind :
       {Fault::Kind::kDelay, Fault::Kind::kLateIssue, Fault::Kind::kAfterNext,
        Fault::Kind::kWakeStorm, Fault::Kind::kLoseWakes}) {
    uint64_t num_injected = 0;
    for (int i = 0; i < PropertyCases(60); ++i) {
      const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
      SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(kind), ": ",
                                test::DescribeSeed(seed)));
      Fault fault;
      fault.kind = kind;
      fault.per_million = 300'000;
      fault.seed = seed;
      fault.delay_ns = 1000;
      FaultyJob job(seed, {fault});
      ASSERT_OK(job.Run());
      ASSERT_TRUE(job.ResultIsRight());
      num_injected += job.faults().num_injected(0);
    }
    EXPECT_GT(num_injected, 0u);
  }
}

TEST(VirtualOrderTest, FaultsThatBreakALaunchReachEveryRank) {
  for (const Fault::Kind kind :
       {Fault::Kind::kFailLaunch, Fault::Kind::kFailPoll, Fault::Kind::kHang,
        Fault::Kind::kNeverIssue, Fault::Kind::kMismatchKind}) {
    uint64_t num_broken = 0;
    for (int i = 0; i < PropertyCases(60); ++i) {
      const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
      SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(kind), ": ",
                                test::DescribeSeed(seed)));
      Fault fault;
      fault.kind = kind;
      fault.world_rank = 0;
      fault.launch = static_cast<int64_t>(seed % 3);
      FaultyJob job(seed, {fault});
      const absl::Status ran = job.Run();
      if (job.faults().num_injected(0) == 0) {
        ASSERT_OK(ran);
        ASSERT_TRUE(job.ResultIsRight());
        continue;
      }
      // One rank alone agrees with itself on what is wrong.
      if (kind == Fault::Kind::kMismatchKind && job.num_ranks() == 1) continue;
      ++num_broken;
      ASSERT_FALSE(ran.ok());
      ASSERT_NE(ran.code(), absl::StatusCode::kInternal) << ran;
      job.PumpAll();
      for (int r = 0; r < job.num_ranks(); ++r) {
        ASSERT_FALSE(job.status(r).ok()) << "rank " << r;
      }
      job.Release();
      ASSERT_EQ(job.wire().num_members(), 0);
      ASSERT_EQ(job.faults().num_members(), 0);
    }
    EXPECT_GT(num_broken, 0u);
  }
}

// The check of results would notice a backend that lies.
TEST(VirtualOrderTest, AShortCompletionShowsInTheResult) {
  uint64_t num_short = 0, num_noticed = 0;
  for (int i = 0; i < PropertyCases(100); ++i) {
    const uint64_t seed = PropertySeed() + static_cast<uint64_t>(i);
    Fault fault;
    fault.kind = Fault::Kind::kShort;
    FaultyJob job(seed, {fault});
    ASSERT_OK(job.Run());
    if (job.num_ranks() == 1 || job.faults().num_injected(0) == 0) continue;
    ++num_short;
    if (!job.ResultIsRight()) ++num_noticed;
  }
  EXPECT_GT(num_short, 0u);
  if (num_short < 20) return;
  // Some tails are overwritten before anybody reads them.
  EXPECT_GE(num_noticed * 10, num_short * 7);
}

}  // namespace
}  // namespace commsched
