// Which collectives are encoded depends on hosts, of which a recording asks the
// job that it runs in.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/hosts.h"
#include "comm/plugin/registry.h"
#include "comm/world.h"
#include "device/host_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/host_links.h"
#include "recording/recording.h"
#include "test/support/joined_ranks.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kHostRanks = 8;
constexpr uint64_t kPart = 1024;

// A backend that moves nothing, as if it sent a host's sums.
const commsched_backend_t* HostSummingBackend() {
  static const commsched_backend_t table = [] {
    commsched_backend_t null =
        *PluginRegistry::Process().Backend("null").value();
    null.capabilities |= COMMSCHED_BACKEND_HOST_SUMS;
    return null;
  }();
  return &table;
}

Access WholeOf(BufferId buffer, AccessMode mode) { return {buffer, mode, {}}; }

// One rank of a job, which records steps with a lossy reduce-scatter.
class LossyRank {
 public:
  LossyRank(std::shared_ptr<World> world, int rank, const PlanOptions& options)
      : gradient_(kHostRanks * kPart), sum_(kPart) {
    RecordingSpec spec;
    spec.world = std::move(world);
    spec.world_rank = rank;
    spec.take_instance = [this] { return next_instance_++; };
    GroupSpec all;
    all.axis = "dp";
    all.rank = rank;
    for (int r = 0; r < kHostRanks; ++r) all.ranks.push_back(r);
    spec.groups = {all};
    spec.options = options;
    recording_ = Recording::Create(std::move(spec)).value();
    const BufferId gradient = Declare("gradient", &gradient_);
    const BufferId sum = Declare("sum", &sum_);
    backward_ = DeclareOp("backward", WholeOf(gradient, AccessMode::kWrite));
    Op scatter;
    scatter.name = "scatter";
    scatter.kind = OpKind::kCollective;
    scatter.collective.kind = CollectiveKind::kReduceScatter;
    scatter.collective.group = GroupId(0);
    scatter.collective.lossy = true;
    scatter.collective.input = WholeOf(gradient, AccessMode::kRead);
    scatter.collective.output = WholeOf(sum, AccessMode::kWrite);
    scatter_ =
        recording_->AddCollective(scatter, 0, {.early = true}).value().value();
    update_ = DeclareOp("update", WholeOf(sum, AccessMode::kRead));
  }

  absl::Status Step() {
    RETURN_IF_ERROR(recording_->StepBegin());
    RETURN_IF_ERROR(Run(backward_));
    RETURN_IF_ERROR(recording_->Submit(scatter_));
    RETURN_IF_ERROR(Run(update_));
    return recording_->StepEnd();
  }

  Recording& recording() { return *recording_; }

 private:
  BufferId Declare(const char* name, std::vector<float>* memory) {
    Buffer buffer;
    buffer.name = name;
    buffer.ownership = Ownership::kBound;
    buffer.count = memory->size();
    return recording_->AddBuffer(buffer, memory->data()).value();
  }
  uint32_t DeclareOp(const char* name, const Access& access) {
    Op op;
    op.name = name;
    op.accesses = {access};
    return recording_->AddCompute(op, 0).value().value();
  }
  absl::Status Run(uint32_t op) {
    RETURN_IF_ERROR(recording_->Before(op, CallerStream()));
    return recording_->After(op, CallerStream());
  }

  std::vector<float> gradient_, sum_;
  uint64_t next_instance_ = 0;
  uint32_t backward_ = 0, scatter_ = 0, update_ = 0;
  std::unique_ptr<Recording> recording_;  // Goes before its memory.
};

class RecordingHostsTest : public testing::Test {
 protected:
  // Ranks that are joined one by one, each host with so many.
  void Join(int per_host) {
    WorldSpec spec;
    spec.table = HostSummingBackend();
    ASSERT_OK(ranks_.Join(spec, kHostRanks, per_host));
  }

  // Of 4 bytes one is left; there is no such codec for a session.
  static PlanOptions Encoding() {
    PlanOptions options;
    options.codec = {"small", 256, 256, UINT32_MAX};
    return options;
  }

  // Three steps, of which two are recorded; by rank.
  std::vector<absl::Status> Run(const PlanOptions& options) {
    return RunRanks(kHostRanks, [&](int rank) -> absl::Status {
      LossyRank one(ranks_.WorldOf(rank), rank, options);
      for (int step = 0; step < 3; ++step) RETURN_IF_ERROR(one.Step());
      EXPECT_FALSE(one.recording().plan()->launches[0].coded);
      return one.recording().Drain();
    });
  }

  JoinedRanks ranks_;
};

TEST_F(RecordingHostsTest, WhereHostsSendNoMoreInSumsNothingIsEncoded) {
  Join(/*per_host=*/4);
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> hosts,
                       HostsOf(ranks_.WorldOf(0).get()));
  EXPECT_THAT(hosts, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  for (const absl::Status& status : Run(Encoding())) EXPECT_OK(status);
}

TEST_F(RecordingHostsTest, WhereTheCodecSavesBytesItEncodes) {
  Join(/*per_host=*/2);
  for (const absl::Status& status : Run(Encoding())) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no codec is called 'small'"));
  }
}

TEST_F(RecordingHostsTest, HostsThatACallerGivesHold) {
  Join(/*per_host=*/2);
  PlanOptions options = Encoding();
  options.hosts = HostLinksOf(std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 1});
  for (const absl::Status& status : Run(options)) EXPECT_OK(status);
}

}  // namespace
}  // namespace commsched
