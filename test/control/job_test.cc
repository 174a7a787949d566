#include "control/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "control/host_socket.h"
#include "control/server.h"
#include "gmock/gmock.h"
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

absl::Status MeetAll(const JobSpec& spec) {
  auto job = Job::Join(spec);
  if (!job.ok()) return job.status();
  return (*job)->client().Agree({}, "barrier", "", kMinuteNs);
}

TEST_F(JobTest, WhatADeadJobHasLeftIsRemovedByTheNext) {
  const std::string folder = UserFolder({folder_}).value();
  std::vector<std::unique_ptr<HostSocket>> left;
  for (const char* name : {"dead.0", "other.3"}) {
    left.push_back(HostSocket::Listen(folder, name, kMinuteNs).value());
    left.back()->TakeListener();  // Closed, as by a kill; the file is there.
  }
  EXPECT_OK(RunAllRanks(2, [&](int rank) { return MeetAll(SpecOf(rank, 2)); }));
  EXPECT_TRUE(std::filesystem::is_empty(Own()));
}

TEST_F(JobTest, TwoJobsOfOneShellDoNotMix) {
  JobSpec specs[2][2];
  for (int job = 0; job < 2; ++job) {
    for (int rank = 0; rank < 2; ++rank) {
      specs[job][rank] = SpecOf(rank, 2);
      specs[job][rank].environment.job =
          absl::StrCat("torchrun, port ", 29500 + job);
    }
  }
  // Each rank 1 looks while both jobs are there.
  ASSERT_OK_AND_ASSIGN(const auto first, Job::Join(specs[0][0]));
  ASSERT_OK_AND_ASSIGN(const auto second, Job::Join(specs[1][0]));
  ASSERT_OK_AND_ASSIGN(const auto third, Job::Join(specs[0][1]));
  ASSERT_OK_AND_ASSIGN(const auto fourth, Job::Join(specs[1][1]));
  Job* const all[] = {first.get(), second.get(), third.get(), fourth.get()};
  EXPECT_OK(RunAllRanks(4, [&](int i) {
    return all[i]->client().Agree({}, "job", absl::StrCat(i % 2), kMinuteNs);
  }));
}

TEST_F(JobTest, ASecondRank0IsRefusedAndTakesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto first, Job::Join(SpecOf(0, 2)));
  EXPECT_THAT(Job::Join(SpecOf(0, 2)),
              StatusIs(StatusCode::kAlreadyExists,
                       absl::StrCat("that of process ", getpid())));
  EXPECT_THAT(Job::Join(SpecOf(0, 2)),
              StatusIs(StatusCode::kAlreadyExists, "job 'test' has a rank 0"));
  ASSERT_OK_AND_ASSIGN(const auto second, Job::Join(SpecOf(1, 2)));
  EXPECT_THAT(Job::Join(SpecOf(1, 2)),
              StatusIs(StatusCode::kAlreadyExists, "rank 1 has already"));
  EXPECT_OK(RunAllRanks(2, [&](int rank) {
    return (rank == 0 ? first : second)
        ->client()
        .Agree({}, "barrier", "", kMinuteNs);
  }));
}

TEST_F(JobTest, AnotherSizeAndAnEarlierEpochAreRefused) {
  JobSpec server = SpecOf(0, 2);
  server.environment.epoch = 3;
  ASSERT_OK_AND_ASSIGN(const auto first, Job::Join(server));
  JobSpec other = SpecOf(1, 4);
  other.environment.epoch = 3;
  EXPECT_THAT(Job::Join(other),
              StatusIs(StatusCode::kInvalidArgument,
                       "rank 1 has a world of 4 ranks, the server one of 2"));
  for (const int rank : {0, 1}) {
    JobSpec old = SpecOf(rank, 2);
    old.environment.epoch = 2;
    EXPECT_THAT(
        Job::Join(old),
        StatusIs(StatusCode::kFailedPrecondition,
                 absl::StrCat("rank ", rank,
                              " is of epoch 2, the job is in epoch 3")));
  }
}

// Ranks of the earlier epoch may be on their way out.
TEST_F(JobTest, ALaterEpochIsAJobOfItsOwn) {
  ASSERT_OK_AND_ASSIGN(const auto old, Job::Join(SpecOf(0, 2)));
  EXPECT_OK(RunAllRanks(2, [&](int rank) {
    JobSpec spec = SpecOf(rank, 2);
    spec.environment.epoch = 1;
    return MeetAll(spec);
  }));
}

TEST_F(JobTest, AFolderWithALongNameWillDo) {
  folder_ += "/" + std::string(120, 'x');
  std::filesystem::create_directory(folder_);
  EXPECT_OK(RunAllRanks(2, [&](int rank) { return MeetAll(SpecOf(rank, 2)); }));
  EXPECT_TRUE(std::filesystem::is_empty(Own()));
  folder_ = std::filesystem::path(folder_).parent_path();
}

TEST_F(JobTest, ALauncherThatSaysNothingIsTheRanksAncestor) {
  EXPECT_OK(RunAllRanks(2, [&](int rank) {
    JobSpec spec = SpecOf(rank, 2);
    spec.environment.job = "";
    spec.environment.rank_variable = "PMI_RANK";
    return MeetAll(spec);
  }));
}

TEST(UserFolderTest, AVariableMayOutliveTheFolderThatItNames) {
  const std::map<std::string, std::string> variables = {
      {"XDG_RUNTIME_DIR", "/nowhere/run"}, {"TMPDIR", testing::TempDir()}};
  const auto parents = UsualParents([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  EXPECT_EQ(parents, (std::vector<std::string>{"/nowhere/run",
                                               testing::TempDir(), "/tmp"}));
  ASSERT_OK_AND_ASSIGN(const std::string folder, UserFolder(parents));
  EXPECT_EQ(folder.rfind(testing::TempDir(), 0), 0u) << folder;
  EXPECT_THAT(UserFolder({"/nowhere/run"}),
              StatusIs(StatusCode::kUnavailable,
                       absl::StrCat("/nowhere/run/commsched-", geteuid(),
                                    ": cannot create it")));
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

TEST_F(JobTest, SomebodyElseAtThePortIsNamedWithWhatToSet) {
  ControlServerSpec other;
  other.size = 1;
  other.token = "other";
  ASSERT_OK_AND_ASSIGN(const auto stranger, ControlServer::Start(other));
  for (const int rank : {0, 1}) {
    JobSpec spec = SpecOf(rank, 2);
    spec.environment.server_host = "127.0.0.1";
    spec.environment.server_port = stranger->port();
    const auto job = Job::Join(spec);
    EXPECT_THAT(job, StatusIs(rank == 0 ? StatusCode::kUnavailable
                                        : StatusCode::kUnauthenticated,
                              absl::StrCat("127.0.0.1:", stranger->port())));
    EXPECT_THAT(std::string(job.status().message()),
                testing::HasSubstr("COMMSCHED_PORT"));
  }
}

TEST_F(JobTest, ASecondRank0AtTheAddressIsRefused) {
  JobSpec spec = SpecOf(0, 2);
  spec.environment.server_host = "127.0.0.1";
  {
    ControlServerSpec any;
    any.size = 1;
    spec.environment.server_port = ControlServer::Start(any).value()->port();
  }
  ASSERT_OK_AND_ASSIGN(const auto first, Job::Join(spec));
  EXPECT_THAT(Job::Join(spec), StatusIs(StatusCode::kAlreadyExists,
                                        "rank 0 has already joined"));
}

TEST_F(JobTest, AnAddressThatOthersReachNeedsAToken) {
  for (const int rank : {0, 1}) {
    JobSpec spec = SpecOf(rank, 2);
    spec.environment.server_host = "192.0.2.1";  // Of nobody (RFC 5737).
    spec.environment.server_port = 29501;
    EXPECT_THAT(Job::Join(spec),
                StatusIs(StatusCode::kFailedPrecondition,
                         "MASTER_ADDR is 192.0.2.1, which is not this host's "
                         "loopback, and there is no token"));
  }
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
                       "rank 0 of 2 has not joined within 0.03 s"));
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
