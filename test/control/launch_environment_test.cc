#include "control/launch_environment.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "control/messages.h"
#include "control/roster.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using absl::StatusCode;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<LaunchEnvironment> Read(const Variables& variables) {
  return ReadLaunchEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables Torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node-a"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}};
}

TEST(LaunchEnvironmentTest, WithoutALauncherAProcessIsAJobOfOne) {
  ASSERT_OK_AND_ASSIGN(const auto alone, Read({{"MASTER_ADDR", "node-a"}}));
  EXPECT_EQ(alone.launcher, "");
  EXPECT_EQ(alone.rank, 0);
  EXPECT_EQ(alone.size, 1);
  EXPECT_EQ(alone.server_host, "");
}

TEST(LaunchEnvironmentTest, TorchrunOnTwoHosts) {
  ASSERT_OK_AND_ASSIGN(const auto job, Read(Torchrun()));
  EXPECT_EQ(job.launcher, "torchrun");
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.size, 8);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 4);
  EXPECT_EQ(job.epoch, 2u);
  // Not the address: hosts may call the first of them by different names.
  EXPECT_EQ(job.job, "torchrun, id none, port 29500");
  EXPECT_EQ(job.server_host, "node-a");
  EXPECT_EQ(job.server_port, 29501);
  EXPECT_TRUE(job.rank_0_serves);
}

TEST(LaunchEnvironmentTest, RanksOnOneHostNeedNoAddress) {
  Variables variables = Torchrun();
  variables["LOCAL_WORLD_SIZE"] = "8";
  variables["LOCAL_RANK"] = "5";
  ASSERT_OK_AND_ASSIGN(const auto job, Read(variables));
  EXPECT_EQ(job.server_host, "");
  EXPECT_TRUE(job.rank_0_serves);
  EXPECT_EQ(job.job, "torchrun, id none, address node-a, port 29500");
  EXPECT_EQ(job.rank_variable, "RANK");
}

TEST(LaunchEnvironmentTest, AJobIsWhatItsEnvironmentStates) {
  // As torch.distributed takes it, without torchrun.
  const Variables first = {{"RANK", "0"},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", "0"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", "29500"}};
  ASSERT_OK_AND_ASSIGN(const auto job, Read(first));
  EXPECT_EQ(job.job, "torchrun, address localhost, port 29500");
  for (const auto& [name, value] :
       {std::pair("MASTER_PORT", "29501"), std::pair("MASTER_ADDR", "10.0.0.1"),
        std::pair("TORCHELASTIC_RUN_ID", "other"),
        std::pair("COMMSCHED_PORT", "4000")}) {
    Variables other = first;
    other[name] = value;
    ASSERT_OK_AND_ASSIGN(const auto another, Read(other));
    EXPECT_NE(another.job, job.job) << name;
  }
  for (const auto& [name, value] :
       {std::pair("RANK", "1"), std::pair("LOCAL_RANK", "1"),
        std::pair("MASTER_ADDR", "localhost"),
        std::pair("COMMSCHED_TOKEN", "secret")}) {
    Variables same = first;
    same[name] = value;
    ASSERT_OK_AND_ASSIGN(const auto rank, Read(same));
    EXPECT_EQ(rank.job, job.job) << name;
  }
}

TEST(LaunchEnvironmentTest, CommschedRunComesFirst) {
  Variables variables = Torchrun();
  variables["COMMSCHED_RANK"] = "1";
  variables["COMMSCHED_WORLD_SIZE"] = "2";
  variables["COMMSCHED_LOCAL_RANK"] = "0";
  variables["COMMSCHED_LOCAL_WORLD_SIZE"] = "1";
  variables["COMMSCHED_CONTROL"] = "10.66.0.1:4000";
  variables["COMMSCHED_TOKEN"] = "secret";
  variables["COMMSCHED_EPOCH"] = "7";
  ASSERT_OK_AND_ASSIGN(const auto job, Read(variables));
  EXPECT_EQ(job.launcher, "commsched run");
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 2);
  EXPECT_EQ(job.epoch, 7u);
  EXPECT_EQ(job.server_host, "10.66.0.1");
  EXPECT_EQ(job.server_port, 4000);
  EXPECT_FALSE(job.rank_0_serves);
  EXPECT_EQ(job.token, "secret");
}

TEST(LaunchEnvironmentTest, MpirunOfOpenMpi) {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "3920101377"}};
  ASSERT_OK_AND_ASSIGN(const auto job, Read(variables));
  EXPECT_EQ(job.launcher, "mpirun of Open MPI");
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.local_size, 4);
  EXPECT_EQ(job.job, "mpirun of Open MPI, id 3920101377");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  EXPECT_THAT(Read(variables),
              StatusIs(StatusCode::kFailedPrecondition,
                       "rank 3 of 4, started by mpirun of Open MPI, has ranks "
                       "on other hosts: set MASTER_ADDR"));
  variables["COMMSCHED_CONTROL"] = "[fd00::1]:4000";
  ASSERT_OK_AND_ASSIGN(const auto served, Read(variables));
  EXPECT_EQ(served.server_host, "fd00::1");
}

TEST(LaunchEnvironmentTest, MpirunOfMpich) {
  ASSERT_OK_AND_ASSIGN(const auto job, Read({{"PMI_RANK", "1"},
                                             {"PMI_SIZE", "2"},
                                             {"MPI_LOCALRANKID", "1"},
                                             {"MPI_LOCALNRANKS", "2"}}));
  EXPECT_EQ(job.launcher, "mpirun of MPICH");
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.job, "");
}

TEST(LaunchEnvironmentTest, SrunOnSeveralNodes) {
  Variables variables = {{"SLURM_PROCID", "5"},
                         {"SLURM_STEP_NUM_TASKS", "9"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "4(x2),1"},
                         {"SLURM_STEP_NODELIST", "n[03-05]"},
                         {"SLURM_JOB_ID", "40123"},
                         {"SLURM_STEP_ID", "0"}};
  ASSERT_OK_AND_ASSIGN(const auto job, Read(variables));
  EXPECT_EQ(job.launcher, "srun");
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_size, 4);
  EXPECT_EQ(job.server_host, "n03");
  EXPECT_EQ(job.server_port, 20123);
  EXPECT_EQ(job.job, "srun, id 40123, step 0");
  variables["COMMSCHED_PORT"] = "4000";
  ASSERT_OK_AND_ASSIGN(const auto other, Read(variables));
  EXPECT_EQ(other.server_port, 4000);
}

TEST(LaunchEnvironmentTest, ABatchScriptOfSlurmIsNoStep) {
  ASSERT_OK_AND_ASSIGN(const auto alone,
                       Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));
  EXPECT_EQ(alone.size, 1);
}

TEST(LaunchEnvironmentTest, BadValuesNameVariableValueAndRange) {
  for (const auto& [name, value, message] :
       {std::tuple("RANK", "8", "RANK is '8', not an integer in 0..7"),
        std::tuple("RANK", "x", "RANK is 'x'"),
        std::tuple("WORLD_SIZE", "0", "WORLD_SIZE is '0', not an integer in 1"),
        std::tuple("LOCAL_WORLD_SIZE", "9", "'9', not an integer in 1..8"),
        std::tuple("LOCAL_RANK", "4", "'4', not an integer in 0..3"),
        std::tuple("MASTER_PORT", "65535", "'65535', not an integer"),
        std::tuple("COMMSCHED_PORT", "-1", "COMMSCHED_PORT is '-1'"),
        std::tuple("COMMSCHED_EPOCH", "-1", "COMMSCHED_EPOCH is '-1'"),
        std::tuple("COMMSCHED_CONTROL", "host", "'host', not host:port"),
        std::tuple("COMMSCHED_CONTROL", ":1", "':1', not host:port"),
        std::tuple("COMMSCHED_CONTROL", "a:0", "'a:0', not host:port")}) {
    Variables variables = Torchrun();
    variables[name] = value;
    EXPECT_THAT(Read(variables),
                StatusIs(StatusCode::kInvalidArgument, message))
        << name;
  }
}

TEST(LaunchEnvironmentTest, ALongNameIsCutAndStaysDifferent) {
  Variables variables = Torchrun();
  variables["TORCHELASTIC_RUN_ID"] = std::string(1000, 'y');
  ASSERT_OK_AND_ASSIGN(const auto job, Read(variables));
  EXPECT_LE(job.job.size(), kMaxJobBytes);
  variables["TORCHELASTIC_RUN_ID"].back() = 'z';
  ASSERT_OK_AND_ASSIGN(const auto other, Read(variables));
  EXPECT_NE(job.job, other.job);
}

TEST(LaunchEnvironmentTest, AHostIdIsTakenAndLimited) {
  Variables variables = Torchrun();
  ASSERT_OK_AND_ASSIGN(const auto without, Read(variables));
  EXPECT_EQ(without.host_id, "");
  variables["COMMSCHED_HOST_ID"] = std::string(24, 'x');
  ASSERT_OK_AND_ASSIGN(const auto with, Read(variables));
  EXPECT_EQ(with.host_id, std::string(24, 'x'));
  EXPECT_NE(OwnPlace("a").host, OwnPlace("b").host);
  EXPECT_LE(OwnPlace(with.host_id).host.size(), kMaxPlaceBytes);
  variables["COMMSCHED_HOST_ID"] += 'x';
  EXPECT_THAT(Read(variables),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "COMMSCHED_HOST_ID has 25 characters, not at most 24"));
}

TEST(LaunchEnvironmentTest, SlurmListsAreRead) {
  EXPECT_EQ(FirstSlurmHost("n1"), "n1");
  EXPECT_EQ(FirstSlurmHost("n1,n2"), "n1");
  EXPECT_EQ(FirstSlurmHost("n[03-06,9],m1"), "n03");
  EXPECT_EQ(FirstSlurmHost("n[7],m1"), "n7");
  EXPECT_EQ(FirstSlurmHost("n["), "n");
  EXPECT_EQ(FirstSlurmHost(""), "");
  EXPECT_EQ(SlurmTasksOfNode("4(x2),3", 0), 4);
  EXPECT_EQ(SlurmTasksOfNode("4(x2),3", 1), 4);
  EXPECT_EQ(SlurmTasksOfNode("4(x2),3", 2), 3);
  EXPECT_EQ(SlurmTasksOfNode("4(x2),3", 3), 0);
  EXPECT_EQ(SlurmTasksOfNode("", 0), 0);
  EXPECT_EQ(SlurmTasksOfNode("4(x", 0), 0);
  EXPECT_EQ(SlurmTasksOfNode("(x2)", 0), 0);
}

}  // namespace
}  // namespace commsched
