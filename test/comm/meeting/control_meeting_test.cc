#include "comm/meeting/control_meeting.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::ElementsAre;

constexpr int64_t kMinuteNs = int64_t{60} * 1'000'000'000;

class ControlMeetingTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  ControlMeetingTest() {
    ControlServerSpec server;
    server.size = kRanks;
    server_ = *ControlServer::Start(server);
    for (int rank = 0; rank < kRanks; ++rank) {
      ControlClientSpec client;
      client.host = "127.0.0.1";
      client.port = server_->port();
      client.rank = rank;
      client.size = kRanks;
      clients_.push_back(*ControlClient::Connect(client));
      meetings_.push_back(
          std::make_unique<ControlMeeting>(clients_.back().get(), rank));
    }
  }

  std::unique_ptr<ControlServer> server_;
  std::vector<std::unique_ptr<ControlClient>> clients_;
  std::vector<std::unique_ptr<Meeting>> meetings_;
};

TEST_F(ControlMeetingTest, RanksMeetAllAndSome) {
  EXPECT_OK(RunAllRanks(kRanks, [&](int rank) -> absl::Status {
    auto all = meetings_[rank]->AllGather("key", rank, absl::StrCat("p", rank),
                                          kMinuteNs);
    if (!all.ok()) return all.status();
    EXPECT_THAT(*all, ElementsAre("p0", "p1", "p2"));
    if (rank == 1) return absl::OkStatus();
    auto some = meetings_[rank]->AllGatherAmong(
        {2, 0}, "key", rank, absl::StrCat("q", rank), kMinuteNs);
    if (!some.ok()) return some.status();
    EXPECT_THAT(*some, ElementsAre("q2", "q0"));
    return absl::OkStatus();
  }));
}

TEST_F(ControlMeetingTest, WhoDeclinesIsNamed) {
  meetings_[1]->Decline("all", 1, absl::InvalidArgumentError("no plan"));
  meetings_[2]->DeclineAmong({0, 2}, "some", 2, absl::AbortedError("enough"));
  EXPECT_THAT(meetings_[0]->AllGather("all", 0, "", kMinuteNs),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "rank 1 will not come: no plan"));
  EXPECT_THAT(meetings_[0]->AllGatherAmong({0, 2}, "some", 0, "", kMinuteNs),
              StatusIs(absl::StatusCode::kAborted, "rank 2 will not come"));
}

TEST_F(ControlMeetingTest, OtherRanksAreOtherProcesses) {
  EXPECT_THAT(meetings_[0]->AllGather("key", 1, "", kMinuteNs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "rank 1 is not that of this process, 0"));
}

}  // namespace
}  // namespace commsched
