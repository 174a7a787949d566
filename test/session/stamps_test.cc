// When the records of a session say that things were.
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "trace/recorder.h"

namespace commsched {
namespace {

using test::SessionRig;

constexpr int64_t kWorkNs = 300 * 1000;
constexpr int64_t kInexactNs = 1000;  // of ticks
constexpr int kBuckets = 3;

int64_t NowNs() { return SystemClock::Get().NowNs(); }

void Work() {
  const int64_t end_ns = NowNs() + kWorkNs;
  while (NowNs() < end_ns) {
  }
}

// kBuckets times: a compute op that writes a gradient, and its all-reduce.
Graph Buckets() {
  Graph graph;
  const GroupId group = graph.AddGroup("dp", 1).value();
  for (int i = 0; i < kBuckets; ++i) {
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
class StampsTest : public testing::TestWithParam<const char*> {
 protected:
  StampsTest() : rig_(OneRank(), Buckets(), {}) {
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

  // Once: ticks may be a nanosecond elsewhere when the ring is read again.
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

INSTANTIATE_TEST_SUITE_P(Backends, StampsTest,
                         testing::Values("null", "inproc"));

TEST_P(StampsTest, AReplayedOpsRecordIsItsWork) {
  std::vector<int64_t> called_ns;
  ASSERT_OK(session_->Run(
      [](void* user, OpId, Stream*) {
        static_cast<std::vector<int64_t>*>(user)->push_back(NowNs());
        Work();
        return absl::OkStatus();
      },
      &called_ns, 2));
  ASSERT_OK(session_->Drain());

  Read();

  ASSERT_EQ(computes_.size(), called_ns.size());
  for (size_t i = 0; i < computes_.size(); ++i) {
    EXPECT_LE(computes_[i].begin_ns, called_ns[i] + kInexactNs);
    EXPECT_GE(computes_[i].end_ns, called_ns[i] + kWorkNs - kInexactNs);
    if (i + 1 == computes_.size()) continue;
    EXPECT_LE(computes_[i].end_ns, called_ns[i + 1] + kInexactNs);
    EXPECT_GE(computes_[i + 1].begin_ns, called_ns[i] + kWorkNs - kInexactNs);
  }
}

TEST_P(StampsTest, NoRecordHasWhatTheCallerDoesBetweenOps) {
  ASSERT_OK(session_->StepBegin());
  std::vector<int64_t> called_ns;
  for (int i = 0; i < kBuckets; ++i) {
    Work();
    called_ns.push_back(NowNs());
    ASSERT_OK(session_->Before(ComputeOp(i), CallerStream()));
    Work();
    ASSERT_OK(session_->After(ComputeOp(i), CallerStream()));
    // Whatever the lane thread still does.
    while (session_->counters().launches <= static_cast<uint64_t>(i)) {
      std::this_thread::yield();
    }
  }
  ASSERT_OK(session_->StepEnd());
  ASSERT_OK(session_->Drain());

  Read();

  ASSERT_EQ(computes_.size(), called_ns.size());
  ASSERT_EQ(launches_.size(), called_ns.size());
  for (size_t i = 0; i < called_ns.size(); ++i) {
    EXPECT_GE(computes_[i].begin_ns, called_ns[i] - kInexactNs);
    EXPECT_GE(computes_[i].end_ns - computes_[i].begin_ns,
              kWorkNs - kInexactNs);
    EXPECT_GE(launches_[i].begin_ns, computes_[i].end_ns - kInexactNs);
    if (i == 0) continue;
    EXPECT_LE(launches_[i - 1].end_ns, called_ns[i] - kWorkNs + kInexactNs);
  }
}

using InlineStampsTest = StampsTest;
INSTANTIATE_TEST_SUITE_P(Inline, InlineStampsTest, testing::Values("null"));

TEST_P(InlineStampsTest, RecordsThatTouchShareATime) {
  ASSERT_OK(session_->Run([](void*, OpId, Stream*) { return absl::OkStatus(); },
                          nullptr, 1));

  Read();

  ASSERT_EQ(computes_.size(), size_t{kBuckets});
  ASSERT_EQ(launches_.size(), size_t{kBuckets});
  for (int i = 0; i < kBuckets; ++i) {
    EXPECT_EQ(launches_[i].begin_ns, computes_[i].end_ns);
    if (i == 0) continue;
    EXPECT_EQ(computes_[i].begin_ns, launches_[i - 1].end_ns);
  }
}

}  // namespace
}  // namespace commsched
