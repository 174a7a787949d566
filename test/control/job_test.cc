#include "control/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "control/server.h"
#include "gtest/gtest.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using absl::StatusCode;

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kMinuteNs = 60'000 * kMillisecond;

class JobTest : public testing::Test {
 protected:
  JobTest() {
    std::string name = testing::TempDir() + "/job-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~JobTest() override { std::filesystem::remove_all(folder_); }

  JobSpec SpecOf(int rank, int size) const {
    JobSpec spec;
    spec.environment.rank = rank;
    spec.environment.size = size;
    spec.environment.local_rank = rank;
    spec.environment.local_size = size;
    spec.environment.job = "test";
    spec.folder = folder_;
    return spec;
  }

  std::string Own() const {
    return absl::StrCat(folder_, "/commsched-", geteuid());
  }

  std::string folder_;
};

TEST_F(JobTest, RanksOnOneHostFindEachOtherAndLeaveNothing) {
  EXPECT_OK(RunAllRanks(4, [&](int rank) -> absl::Status {
    auto job = Job::Join(SpecOf(rank, 4));
    if (!job.ok()) return job.status();
    EXPECT_EQ((*job)->rank(), rank);
    EXPECT_EQ((*job)->size(), 4);
    return (*job)->client().Agree({}, "barrier", "", kMinuteNs);
  }));
  EXPECT_TRUE(std::filesystem::is_empty(Own()));
}

TEST_F(JobTest, AProcessAloneWritesNoFile) {
  ASSERT_OK_AND_ASSIGN(const auto job, Job::Join(SpecOf(0, 1)));
  EXPECT_OK(job->client().Agree({}, "barrier", "", kMinuteNs));
  EXPECT_FALSE(std::filesystem::exists(Own()));
}

TEST_F(JobTest, AFileOfAnEarlierJobIsPassedOver) {
  uint16_t port = 0;
  {
    ControlServerSpec old;
    old.size = 1;
    port = ControlServer::Start(old).value()->port();
  }
  std::filesystem::create_directory(Own());
  chmod(Own().c_str(), 0700);
  const std::string path = Own() + "/test.0";
  std::ofstream(path) << port << " token\n";
  chmod(path.c_str(), 0600);
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    auto job = Job::Join(SpecOf(rank, 2));
    if (!job.ok()) return job.status();
    return (*job)->client().Agree({}, "barrier", "", kMinuteNs);
  }));
}

TEST_F(JobTest, RanksAtAnAddressShareAToken) {
  ControlServerSpec server;
  server.size = 2;
  server.token = "secret";
  ASSERT_OK_AND_ASSIGN(const auto served, ControlServer::Start(server));
  const std::string token_file = folder_ + "/token";
  std::ofstream(token_file) << "secret\n";
  chmod(token_file.c_str(), 0600);
  JobSpec first = SpecOf(0, 2);
  first.environment.server_host = "localhost";
  first.environment.server_port = served->port();
  first.environment.rank_0_serves = false;
  JobSpec second = first;
  first.environment.token = "secret";
  second.environment.rank = 1;
  second.environment.token_file = token_file;
  ASSERT_OK_AND_ASSIGN(const auto a, Job::Join(first));
  ASSERT_OK_AND_ASSIGN(const auto b, Job::Join(second));
  chmod(token_file.c_str(), 0644);
  EXPECT_THAT(Job::Join(second),
              StatusIs(StatusCode::kFailedPrecondition, "has mode 644"));
  second.environment.token_file = folder_ + "/none";
  EXPECT_THAT(Job::Join(second),
              StatusIs(StatusCode::kNotFound, "/none does not exist"));
}

TEST_F(JobTest, Rank0ServesAtTheAddress) {
  // A port that was free a moment ago; nobody else is given it so soon.
  uint16_t port = 0;
  {
    ControlServerSpec any;
    any.size = 1;
    port = ControlServer::Start(any).value()->port();
  }
  EXPECT_OK(RunAllRanks(2, [&](int rank) -> absl::Status {
    JobSpec spec = SpecOf(rank, 2);
    spec.environment.server_host = "127.0.0.1";
    spec.environment.server_port = port;
    auto job = Job::Join(spec);
    if (!job.ok()) return job.status();
    return (*job)->client().Agree({}, "barrier", "", kMinuteNs);
  }));
}

TEST_F(JobTest, AFolderThatOthersCanWriteToIsRefused) {
  std::filesystem::create_directory(Own());
  chmod(Own().c_str(), 0777);
  EXPECT_THAT(Job::Join(SpecOf(0, 2)),
              StatusIs(StatusCode::kFailedPrecondition, "has mode 777"));
  EXPECT_THAT(Job::Join(SpecOf(1, 2)),
              StatusIs(StatusCode::kFailedPrecondition, "has mode 777"));
}

TEST_F(JobTest, NoRank0IsADeadline) {
  JobSpec spec = SpecOf(1, 2);
  spec.timeout_ns = 30 * kMillisecond;
  EXPECT_THAT(Job::Join(spec),
              StatusIs(StatusCode::kDeadlineExceeded,
                       "rank 1 has not found rank 0 on this host"));
}

TEST_F(JobTest, Rank0WaitsForThoseWhoAreThere) {
  ASSERT_OK_AND_ASSIGN(auto first, Job::Join(SpecOf(0, 3)));
  ASSERT_OK_AND_ASSIGN(auto second, Job::Join(SpecOf(1, 3)));
  std::atomic<bool> gone = false;
  std::thread leaving([&] {
    first.reset();
    EXPECT_TRUE(gone);
  });
  EXPECT_THAT(
      second->client().Gather({0, 1}, "key", "", kMinuteNs),
      StatusIs(StatusCode::kFailedPrecondition, "rank 0 will not come"));
  gone = true;
  second.reset();
  leaving.join();
}

}  // namespace
}  // namespace commsched
