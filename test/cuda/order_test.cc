// Two process groups on one device, in worlds of their own: what they launch
// needs one order on all ranks where they share a lane, and none where not.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/cuda/reduction_step.h"
#include "test/support/property.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::ReductionStep;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRanks = 2;
constexpr int64_t kMs = int64_t{1000} * 1000;

// Warnings of orders that differ, while it lives.
class Warnings {
 public:
  Warnings() {
    SetLogSink({[](void* self, LogLevel, absl::string_view line) {
                  auto* const to = static_cast<Warnings*>(self);
                  MutexLock lock(&to->mu_);
                  if (line.find("share a lane") == line.npos) return;
                  to->lines_.emplace_back(line);
                },
                this});
  }
  ~Warnings() { SetLogSink({nullptr, nullptr}); }
  std::vector<std::string> Get() {
    MutexLock lock(&mu_);
    return lines_;
  }

 private:
  Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

// Worlds that are split off one, each with a session that reduces a gradient
// on an axis of its own. They have a lane each, or all share the last one:
// others have the rest twice.
class Groups {
 public:
  Groups(int num_groups, bool share_a_lane)
      : all_(kRanks, Ownership::kOwned, AxesOf(share_a_lane)),
        rig_(kRanks, all_.graph(), Lanes(AxesOf(share_a_lane).size())) {
    for (int i = 0; i < num_groups; ++i) {
      steps_.push_back(std::make_unique<ReductionStep>(
          kRanks, Ownership::kOwned,
          std::vector<std::string>{absl::StrCat("axis of ", i)}));
      rigs_.push_back(std::make_unique<GpuRig>(kRanks, steps_.back()->graph(),
                                               PlanOptions()));
    }
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      for (uint64_t i = 0; share_a_lane && i < 2; ++i) {
        SessionSpec spec = rig_.Spec(rank);
        spec.instance = i;
        ASSIGN_OR_RETURN(auto session, Session::Create(std::move(spec)));
        fillers_[rank].push_back(std::move(session));
      }
      for (int i = 0; i < num_groups; ++i) {
        ASSIGN_OR_RETURN(auto world,
                         rig_.world()->Split(rank, {0, 1}, absl::StrCat("w", i),
                                             60 * 1000 * kMs));
        SessionSpec spec = rigs_[i]->Spec(rank);
        spec.world = world;
        spec.launch_timeout_ns = 2400 * kMs;
        spec.join_timeout_ns = 60 * 1000 * kMs;
        spec.end_timeout_ns = 20 * 1000 * kMs;
        ASSIGN_OR_RETURN(auto session, Session::Create(std::move(spec)));
        sessions_[rank].push_back(std::move(session));
      }
      return absl::OkStatus();
    }));
  }
  ~Groups() {
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      sessions_[rank].clear();
      fillers_[rank].clear();
      return absl::OkStatus();
    }));
  }

  absl::Status Step(int rank, int group) {
    return RunStep(sessions_[rank][group].get(), *steps_[group],
                   rigs_[group]->lane(rank, 0));
  }
  absl::Status Drain(int rank, int group) {
    return sessions_[rank][group]->Drain();
  }
  absl::Status DrainAll(int rank) {
    absl::Status first;
    for (const auto& session : sessions_[rank]) {
      const absl::Status drained = session->Drain();
      if (first.ok()) first = drained;
    }
    return first;
  }

 private:
  static std::vector<std::string> AxesOf(bool share_a_lane) {
    std::vector<std::string> axes = {"dp"};
    while (share_a_lane && axes.size() + 1 < LaneBudget::kLanes) {
      axes.push_back(absl::StrCat("axis", axes.size()));
    }
    return axes;
  }
  static PlanOptions Lanes(size_t num_lanes) {
    PlanOptions options;
    options.num_comm_lanes = static_cast<uint32_t>(num_lanes);
    return options;
  }

  const ReductionStep all_;
  GpuRig rig_;
  std::vector<std::unique_ptr<ReductionStep>> steps_;
  std::vector<std::unique_ptr<GpuRig>> rigs_;
  std::vector<std::unique_ptr<Session>> fillers_[kRanks];
  std::vector<std::unique_ptr<Session>> sessions_[kRanks];
};

// What either rank says of both.
testing::Matcher<std::string> HasBothOrders() {
  const char of_0[] = "launch 1 of 'axis of 0' of session 0 of world 'w0'";
  const char of_1[] = "launch 1 of 'axis of 1' of session 0 of world 'w1'";
  return AllOf(HasSubstr(absl::StrCat("rank 0 has ", of_0, " before ", of_1)),
               HasSubstr(absl::StrCat("rank 1 has ", of_1, " before ", of_0)));
}

class CudaOrderTest : public testing::TestWithParam<bool> {};

// Neither ever ends: each rank's device has what the other one waits for behind
// what waits for the other one. Parameter: whether hosts wait as well, so that
// no rank comes to its second launch.
TEST_P(CudaOrderTest, AnotherOrderOnASharedLaneIsTheNamedCause) {
  Warnings warnings;
  Groups groups(2, /*share_a_lane=*/true);
  const bool waits = GetParam();
  const std::vector<absl::Status> statuses =
      RunRanks(kRanks, [&](int rank) -> absl::Status {
        for (const int group : {rank, 1 - rank}) {
          RETURN_IF_ERROR(groups.Step(rank, group));
          if (waits) RETURN_IF_ERROR(groups.Drain(rank, group));
        }
        return groups.DrainAll(rank);
      });
  int num_failed = 0;
  for (const absl::Status& status : statuses) {
    if (status.ok()) continue;
    ++num_failed;
    EXPECT_THAT(std::string(status.message()), HasBothOrders());
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_THAT(warnings.Get(), ElementsAre(HasBothOrders(), HasBothOrders()))
      << "one per rank";
}

INSTANTIATE_TEST_SUITE_P(HostsWait, CudaOrderTest, testing::Bool());

TEST(CudaOrdersTest, LanesOfTheirOwnNeedNoOrder) {
  Warnings warnings;
  Groups groups(2, /*share_a_lane=*/false);
  test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
    for (int i = 0; i < 200; ++i) {
      RETURN_IF_ERROR(groups.Step(rank, rank));
      RETURN_IF_ERROR(groups.Step(rank, 1 - rank));
    }
    return groups.DrainAll(rank);
  }));
  EXPECT_THAT(warnings.Get(), IsEmpty());
}

// All ranks take the same random order; each waits for what it likes to.
TEST(CudaOrdersTest, OneOrderOnASharedLaneIsNeverFlagged) {
  constexpr int kGroups = 3;
  const int cases = test::PropertyCases(6);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    Warnings warnings;
    Groups groups(kGroups, /*share_a_lane=*/true);
    test::ExpectAllOk(RunRanks(kRanks, [&](int rank) -> absl::Status {
      std::mt19937_64 order(seed);
      std::mt19937_64 waits(seed + static_cast<uint64_t>(rank) + 1);
      for (int n = 0; n < 400; ++n) {
        const int group = static_cast<int>(order() % kGroups);
        RETURN_IF_ERROR(groups.Step(rank, group));
        if (waits() % 8 == 0) RETURN_IF_ERROR(groups.Drain(rank, group));
      }
      return groups.DrainAll(rank);
    }));
    EXPECT_THAT(warnings.Get(), IsEmpty());
  }
}

}  // namespace
}  // namespace commsched
