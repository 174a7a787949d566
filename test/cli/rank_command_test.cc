#include "cli/rank_command.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

constexpr const char* kEnvironment[] = {
    "UCX_TLS=tcp",          "HOME=/mine",
    "COMMSCHED_LOG=info",   "COMMSCHED_TOKEN=secret",
    "COMMSCHED_RANK=9",     "COMMSCHED_TOKEN_FILE=/token",
    "LD_LIBRARY_PATH=/l=b", nullptr};

RankCommand CommandOf(const std::vector<std::string>& hosts) {
  RankCommand command;
  command.command = {"prog", "it's"};
  command.ranks = 4;
  command.agent = "agent {host} {index}";
  command.address = "10.0.0.1";
  command.port = 77;
  command.token = "secret";
  command.columns = 80;
  std::string why;
  EXPECT_TRUE(command.hosts.Build(hosts, 4, &why)) << why;
  return command;
}

std::string ValueOf(const Variables& variables, const std::string& name) {
  for (const auto& [key, value] : variables) {
    if (key == name) return value;
  }
  return "(none)";
}

TEST(RankCommandTest, HostsGetWhatBackendsAndTheLibraryReadButNoToken) {
  EXPECT_EQ(ForwardedVariables(kEnvironment),
            (Variables{{"UCX_TLS", "tcp"},
                       {"COMMSCHED_LOG", "info"},
                       {"LD_LIBRARY_PATH", "/l=b"}}));
}

TEST(RankCommandTest, ExportsReplaceWhatIsForwarded) {
  Variables variables = ForwardedVariables(kEnvironment);
  std::string why;
  ASSERT_TRUE(AddExports({"HOME", "UCX_TLS=shm", "EMPTY="}, kEnvironment,
                         &variables, &why))
      << why;
  EXPECT_EQ(ValueOf(variables, "HOME"), "/mine");
  EXPECT_EQ(ValueOf(variables, "UCX_TLS"), "shm");
  EXPECT_EQ(ValueOf(variables, "EMPTY"), "");
  EXPECT_EQ(variables.size(), 5);
}

TEST(RankCommandTest, ExportsThatCannotBeAreNamed) {
  for (const auto& [text, reason] :
       {std::pair("NOT_SET", "not set in the environment"),
        std::pair("a b=c", "neither NAME nor NAME=VALUE"),
        std::pair("", "neither NAME nor NAME=VALUE"),
        std::pair("COMMSCHED_TOKEN", "sets itself"),
        std::pair("COMMSCHED_RANK=1", "sets itself")}) {
    Variables variables;
    std::string why;
    EXPECT_FALSE(AddExports({text}, kEnvironment, &variables, &why)) << text;
    EXPECT_NE(why.find(reason), std::string::npos) << why;
  }
}

TEST(RankCommandTest, ARankOfThisHostIsTheProgramItself) {
  const Child::Spec spec = CommandOf({}).SpecOf(3);
  EXPECT_EQ(spec.arguments, (std::vector<std::string>{"prog", "it's"}));
  EXPECT_EQ(ValueOf(spec.variables, "COMMSCHED_RANK"), "3");
  EXPECT_EQ(ValueOf(spec.variables, "COMMSCHED_LOCAL_RANK"), "3");
  EXPECT_EQ(ValueOf(spec.variables, "COMMSCHED_CONTROL"), "10.0.0.1:77");
  EXPECT_EQ(ValueOf(spec.variables, "COMMSCHED_TOKEN"), "secret");
}

TEST(RankCommandTest, OnlyRank0DrawsOnTheTerminal) {
  const RankCommand command = CommandOf({});
  EXPECT_EQ(ValueOf(command.SpecOf(0).variables, "COMMSCHED_TERMINAL"), "80");
  EXPECT_EQ(ValueOf(command.SpecOf(1).variables, "COMMSCHED_TERMINAL"), "");
}

TEST(RankCommandTest, AnAgentGetsACommandForAShellWithoutTheToken) {
  RankCommand command = CommandOf({"a:2", "b:2"});
  command.variables = {{"UCX_TLS", "tcp,self"}};
  const Child::Spec spec = command.SpecOf(3);
  ASSERT_EQ(spec.arguments.size(), 6);
  EXPECT_EQ(std::vector<std::string>(spec.arguments.begin(),
                                     spec.arguments.begin() + 5),
            (std::vector<std::string>{"agent", "b", "1", "sh", "-c"}));
  const std::string& shell = spec.arguments[5];
  for (const char* part :
       {" UCX_TLS='tcp,self'", " COMMSCHED_RANK='3'",
        " COMMSCHED_LOCAL_RANK='1'", " COMMSCHED_LOCAL_WORLD_SIZE='2'",
        " 'prog' 'it'\\''s'"}) {
    EXPECT_NE(shell.find(part), std::string::npos) << part << shell;
  }
  EXPECT_EQ(shell.find("secret"), std::string::npos);
  EXPECT_EQ(spec.input, "secret\n");
}

TEST(RankCommandTest, SignalsAreRelayedWhereSshPassesOnNone) {
  RankCommand command = CommandOf({"a"});
  EXPECT_FALSE(command.SpecOf(0).relays);
  command.agent = "/usr/bin/ssh {host}";
  const Child::Spec spec = command.SpecOf(0);
  EXPECT_TRUE(spec.relays);
  ASSERT_EQ(spec.arguments.size(), 3);
  EXPECT_NE(spec.arguments[2].find("kill -s"), std::string::npos);
}

TEST(RankCommandTest, AnAddressWithColonsIsInBrackets) {
  RankCommand command = CommandOf({});
  command.address = "fe80::1";
  EXPECT_EQ(ValueOf(command.SpecOf(0).variables, "COMMSCHED_CONTROL"),
            "[fe80::1]:77");
}

TEST(RankCommandTest, AnAgentOfBlanksHasNoWords) {
  EXPECT_TRUE(AgentWords("", "a", 0).empty());
  EXPECT_TRUE(AgentWords("  ", "a", 0).empty());
  EXPECT_EQ(AgentWords(" ssh  {host}{index} ", "a", 3),
            (std::vector<std::string>{"ssh", "a3"}));
}

}  // namespace
}  // namespace commsched::cli
