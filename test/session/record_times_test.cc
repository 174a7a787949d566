// When the records of a session say that things were.
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/support/await.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

using test::SessionRig;

constexpr int kWorkIterations = 300 * 1000;
constexpr int kTimedBuckets = 3;

int64_t NowNs() { return SystemClock::Get().NowNs(); }

// As much work each time, however long it takes: tests compare records with
// the times at which it begins and ends.
void Work() {
  volatile int sink = 0;
  for (int i = 0; i < kWorkIterations; ++i) sink = sink + 1;
}

// When an op's work began and ended.
struct Worked {
  int64_t begin_ns = 0, end_ns = 0;
};

Worked TimedWork() {
  Worked worked;
  worked.begin_ns = NowNs();
  Work();
  worked.end_ns = NowNs();
  return worked;
}

// kTimedBuckets times: a compute op that writes a gradient, and its
// all-reduce.
Graph Buckets(int num_ranks) {
  Graph graph;
  const GroupId group = graph.AddGroup("dp", num_ranks).value();
  for (int i = 0; i < kTimedBuckets; ++i) {
    Buffer buffer;
    buffer.name = absl::StrCat("grad", i);
    buffer.ownership = Ownership::kBound;
    buffer.count = 4;
    const BufferId id = graph.AddBuffer(buffer).value();
    Op compute;
    compute.name = absl::StrCat("backward", i);
    compute.accesses.push_back({id, AccessMode::kReadWrite, {}});
    (void)graph.AddOp(compute).value();
    Op reduce;
    reduce.name = absl::StrCat("reduce", i);
    reduce.kind = OpKind::kCollective;
    reduce.collective.group = group;
    reduce.collective.input = {id, AccessMode::kRead, {}};
    reduce.collective.output = {id, AccessMode::kWrite, {}};
    (void)graph.AddOp(reduce).value();
  }
  return graph;
}

OpId ComputeOp(int bucket) { return OpId(static_cast<uint32_t>(2 * bucket)); }

// The null backend launches inline; the in-process one has a lane thread.
class RecordTimesTest : public testing::TestWithParam<const char*> {
 protected:
  RecordTimesTest() : rig_(OneRank(), Buckets(1), {}) {
    SessionSpec spec = rig_.Spec(0);
    spec.recorder = &recorder_;
    session_ = Session::Create(spec).value();
  }

  static WorldSpec OneRank() {
    WorldSpec world;
    world.size = 1;
    world.backend = GetParam();
    return world;
  }

  void Read() {
    for (const Record& record : recorder_.Snapshot()) {
      if (record.kind == RecordKind::kCompute) computes_.push_back(record);
      if (record.kind == RecordKind::kLaunch) launches_.push_back(record);
    }
  }

  SessionRig rig_;
  Recorder recorder_{1024};
  std::unique_ptr<Session> session_;
  std::vector<Record> computes_, launches_;
};

INSTANTIATE_TEST_SUITE_P(Backends, RecordTimesTest,
                         testing::Values("null", "inproc"));

TEST_P(RecordTimesTest, AReplayedOpsRecordIsItsWork) {
  std::vector<Worked> worked;
  ASSERT_OK(session_->Run(
      [](void* user, OpId, Stream*) {
        static_cast<std::vector<Worked>*>(user)->push_back(TimedWork());
        return absl::OkStatus();
      },
      &worked, 2));
  ASSERT_OK(session_->Drain());

  Read();

  ASSERT_EQ(computes_.size(), worked.size());
  for (size_t i = 0; i < computes_.size(); ++i) {
    EXPECT_LE(computes_[i].begin_ns, worked[i].begin_ns);
    EXPECT_GE(computes_[i].end_ns, worked[i].end_ns);
    if (i + 1 == computes_.size()) continue;
    EXPECT_LE(computes_[i].end_ns, worked[i + 1].begin_ns);
    EXPECT_GE(computes_[i + 1].begin_ns, worked[i].end_ns);
  }
}

TEST_P(RecordTimesTest, NoRecordHasWhatTheCallerDoesBetweenOps) {
  ASSERT_OK(session_->StepBegin());
  std::vector<Worked> between, within;
  for (int i = 0; i < kTimedBuckets; ++i) {
    between.push_back(TimedWork());
    ASSERT_OK(session_->Before(ComputeOp(i), CallerStream()));
    within.push_back(TimedWork());
    ASSERT_OK(session_->After(ComputeOp(i), CallerStream()));
    // Whatever the lane thread still does.
    ASSERT_TRUE(test::Await([&] {
      return session_->counters().launches > static_cast<uint64_t>(i);
    }));
  }
  ASSERT_OK(session_->StepEnd());
  ASSERT_OK(session_->Drain());

  Read();

  ASSERT_EQ(computes_.size(), within.size());
  ASSERT_EQ(launches_.size(), within.size());
  for (size_t i = 0; i < within.size(); ++i) {
    EXPECT_GE(computes_[i].begin_ns, between[i].end_ns);
    EXPECT_LE(computes_[i].begin_ns, within[i].begin_ns);
    EXPECT_GE(computes_[i].end_ns, within[i].end_ns);
    EXPECT_GE(launches_[i].begin_ns, computes_[i].end_ns);
    if (i == 0) continue;
    EXPECT_LE(launches_[i - 1].end_ns, between[i].begin_ns);
  }
}

// By step and launch.
using RecordMap = std::map<std::pair<uint64_t, uint32_t>, Record>;

RecordMap ByLaunch(const std::vector<Record>& records) {
  RecordMap map;
  for (const Record& record : records) {
    if (record.kind != RecordKind::kLaunch &&
        record.kind != RecordKind::kHold) {
      continue;
    }
    map[{record.step, record.index}] = record;
  }
  return map;
}

// The times of both ranks' threads, of which one says when all have arrived,
// are of one clock.
TEST(RecordTimesOfRanksTest, ALaunchBeginsOnAllRanksBeforeItEndsOnAny) {
  constexpr uint64_t kSteps = 3;
  WorldSpec world;
  world.size = 2;
  SessionRig rig(world, Buckets(2), {});
  Recorder recorders[2] = {Recorder(1024), Recorder(1024)};
  const auto run = [&](int rank) -> absl::Status {
    SessionSpec spec = rig.Spec(rank);
    spec.recorder = &recorders[rank];
    ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
    bool late = rank == 1;
    RETURN_IF_ERROR(session->Run(
        [](void* is_late, OpId, Stream*) {
          if (*static_cast<bool*>(is_late)) Work();
          return absl::OkStatus();
        },
        &late, kSteps));
    return session->Drain();
  };
  for (const absl::Status& status : rig.RunRanks(run)) ASSERT_OK(status);

  const RecordMap launches[2] = {ByLaunch(recorders[0].Snapshot()),
                                 ByLaunch(recorders[1].Snapshot())};
  const RecordMap holds[2] = {ByLaunch(recorders[0].SnapshotOfHolds()),
                              ByLaunch(recorders[1].SnapshotOfHolds())};

  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(launches[rank].size(), kSteps * kTimedBuckets);
    for (const auto& [key, launch] : launches[rank]) {
      const Hold hold = HoldOf(holds[rank].at(key));
      EXPECT_LE(hold.ready_ns, launch.begin_ns);
      EXPECT_GE(hold.started_ns, launch.begin_ns);
      EXPECT_LE(hold.started_ns, launch.end_ns);
      EXPECT_LE(launches[1 - rank].at(key).begin_ns, launch.end_ns);
    }
  }
}

using InlineRecordTimesTest = RecordTimesTest;
INSTANTIATE_TEST_SUITE_P(Inline, InlineRecordTimesTest,
                         testing::Values("null"));

TEST_P(InlineRecordTimesTest, RecordsThatTouchShareATime) {
  ASSERT_OK(session_->Run([](void*, OpId, Stream*) { return absl::OkStatus(); },
                          nullptr, 1));

  Read();

  ASSERT_EQ(computes_.size(), size_t{kTimedBuckets});
  ASSERT_EQ(launches_.size(), size_t{kTimedBuckets});
  for (int i = 0; i < kTimedBuckets; ++i) {
    EXPECT_EQ(launches_[i].begin_ns, computes_[i].end_ns);
    if (i == 0) continue;
    EXPECT_EQ(computes_[i].begin_ns, launches_[i - 1].end_ns);
  }
}

}  // namespace
}  // namespace commsched
