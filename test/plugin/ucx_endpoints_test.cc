// With whom ranks of a real communicator connect, beside what is counted of
// launches as they are built (bench/messages).
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "bench/messages/counts.h"
#include "gtest/gtest.h"
#include "plugins/ucx/algorithms/collectives.h"
#include "plugins/ucx/algorithms/tree_shape.h"
#include "test/plugin/ucx_ranks.h"
#include "test/support/comm_driver.h"
#include "test/support/joined_ranks.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int kWorldSize = 16;

// Ranks are threads here: each segment is mapped by its owner, and once for
// each rank that is connected with it.
int NumMappedSegments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:commsched-ucx") != std::string::npos) ++count;
  }
  return count;
}

// Those of UCX over TCP: a connection has both of its ends here.
int NumSockets() {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (!error && target.string().starts_with("socket:")) ++count;
  }
  return count;
}

// A world of kWorldSize ranks of one host, who reach each other as the
// parameter says.
class UcxEndpointsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_OK(JoinUcx(GetParam(), kWorldSize, &ranks_)); }

  bool is_by_ucx() const { return *GetParam() != '\0'; }

  JoinedRanks ranks_;
};

// Connections of all ranks, each counted at both ends, as they are built.
int64_t AllEndpoints(const commsched_launch_t& launch) {
  const ucx::Layout layout(std::vector<int>(kWorldSize, 0));
  const ucx::ChoiceOptions options;
  const ucx::Algorithm& algorithm =
      *ucx::Choices(layout, options).Of(launch).algorithm;
  int64_t count = 0;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ucx::Operation operation;
    ucx::BuildNowhere(algorithm,
                      {launch, layout, rank, options.chunk_bytes,
                       /*measures=*/true},
                      &operation);
    std::vector<bool> peers(kWorldSize);
    ucx::MarkPeers(operation, &peers);
    ucx::MarkJoinPeers(layout, rank, &peers);
    count += std::count(peers.begin(), peers.end(), true);
  }
  return count;
}

TEST_P(UcxEndpointsTest, RanksConnectWithThoseOfTheTableAndNobodyElse) {
  constexpr uint64_t kCount = 1024;
  std::vector<std::vector<float>> values(kWorldSize,
                                         std::vector<float>(kCount, 1));
  const auto member_of = [&](int rank) {
    float* const data = values[static_cast<size_t>(rank)].data();
    return commsched_member_t{data, data, kCount, nullptr, 0, 0, 0, 0};
  };
  const auto launch_of = [](const commsched_member_t& member) {
    return LaunchOf(COMMSCHED_ALL_REDUCE, COMMSCHED_F32, COMMSCHED_SUM, 0, 1, 1,
                    &member);
  };
  const int sockets_before = NumSockets();
  EXPECT_OK(RunAllRanks(kWorldSize, [&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status status = comm.Create(ranks_.WorldOf(rank).get(), {}, rank);
    const commsched_member_t member = member_of(rank);
    if (status.ok()) status = comm.LaunchAndWait(launch_of(member));
    if (status.ok()) status = ranks_.Meet("launched", rank);
    if (status.ok() && rank == 0) {
      const int64_t endpoints = AllEndpoints(launch_of(member));
      if (!is_by_ucx()) {
        EXPECT_EQ(NumMappedSegments() - kWorldSize, endpoints);
      } else {
        // UCX may make several connections for two endpoints. All pairs would
        // take two sockets each at least.
        EXPECT_GE(NumSockets() - sockets_before, endpoints);
        EXPECT_LT(NumSockets() - sockets_before, kWorldSize * (kWorldSize - 1));
      }
    }
    const absl::Status met = ranks_.Meet("counted", rank);
    return status.ok() ? met : status;
  }));
  EXPECT_EQ(values[kWorldSize - 1][kCount - 1], kWorldSize);
  const LaunchCounts table =
      CountLaunch({.kind = COMMSCHED_ALL_REDUCE,
                   .size = kWorldSize,
                   .per_host = kWorldSize,
                   .array_bytes = kCount * sizeof(float)},
                  {});
  const commsched_member_t member = member_of(0);
  EXPECT_LE(AllEndpoints(launch_of(member)), kWorldSize * table.endpoints);
  EXPECT_LE(table.endpoints, 8);
}

INSTANTIATE_TEST_SUITE_P(Ways, UcxEndpointsTest,
                         testing::Values("", "local=net"), [](const auto& way) {
                           return *way.param == '\0' ? "Segments" : "Ucx";
                         });

}  // namespace
}  // namespace commsched
