// Random programs of sessions and channels over several groups, worlds and
// threads. Whatever the order of waits, legal ones end, and with what they
// should. Where one rank does something else than its group, that group fails
// and says who it was; all others go on.
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/channel/random_fault.h"
#include "test/channel/random_program.h"
#include "test/channel/random_run.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::Blamed;
using test::DescribeSeed;
using test::HostPlace;
using test::RandomFault;
using test::RandomGroup;
using test::RandomProgram;
using test::RandomRun;
using testing::HasSubstr;
using testing::IsSubsetOf;

// So many programs at a scale of 100; 2,000 in all at 1,000, which
// scripts/test --all runs.
struct PropertyBackend {
  const char* name;
  int num_legal;
  int num_faulty;
};
constexpr PropertyBackend kBackends[] = {
    {"inproc", 120, 35},
#ifdef COMMSCHED_TEST_UCX
    {"ucx", 30, 15},
#endif
};

class ChannelPropertyTest : public testing::TestWithParam<PropertyBackend> {};

INSTANTIATE_TEST_SUITE_P(Backends, ChannelPropertyTest,
                         testing::ValuesIn(kBackends),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChannelPropertyTest, RandomProgramsEndWithWhatTheyShould) {
  const int cases = test::PropertyCases(GetParam().num_legal);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    RandomProgram program = test::ProgramOf(seed);
    HostPlace where(GetParam().name, program.size);
    RandomRun run(&where, seed, std::move(program));
    ASSERT_OK(run.Run());
    if (HasFailure()) return;
  }
}

bool Names(const std::string& message, int rank) {
  return std::regex_search(
      message,
      std::regex(absl::StrCat("\\branks? ([0-9, -]*, )?", rank, "\\b")));
}

// All members of the fault's group have failed, and some say who it was, and
// nobody that it was another one.
void ExpectNamed(const RandomFault& fault, const RandomGroup& group,
                 const std::map<int, absl::Status>& failures) {
  std::set<int> guilty;
  for (int rank : fault.guilty) {
    guilty.insert(group.ranks[static_cast<size_t>(rank)]);
  }
  ASSERT_EQ(failures.size(), group.ranks.size());
  bool is_named = false;
  for (const auto& [rank, failure] : failures) {
    const std::string message(failure.message());
    SCOPED_TRACE(absl::StrCat("rank ", rank, ": ", message));
    EXPECT_THAT(message, HasSubstr(absl::StrCat("axis", fault.group)));
    EXPECT_EQ(failure.code() == absl::StatusCode::kDeadlineExceeded,
              fault.waits_for_deadline());
    EXPECT_THAT(Blamed(message), IsSubsetOf(guilty));
    is_named |= Names(message, group.ranks[static_cast<size_t>(fault.culprit)]);
  }
  EXPECT_TRUE(is_named) << "of the culprit";
}

TEST_P(ChannelPropertyTest, WhoDoesOtherwiseIsNamedAndNobodyElse) {
  const int cases = test::PropertyCases(GetParam().num_faulty);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    RandomProgram program = test::ProgramOf(seed);
    std::mt19937_64 random(~seed);
    const RandomFault fault = test::InsertFault(&random, &program);
    const RandomGroup group = program.groups[fault.group];
    SCOPED_TRACE(absl::StrCat(
        DescribeSeed(seed), ": ", test::FaultName(fault.kind), " of rank ",
        fault.culprit, " of ", group.size(), " of group ", fault.group));
    HostPlace where(GetParam().name, program.size);
    RandomRun run(&where, seed, std::move(program), fault);
    ASSERT_OK(run.Run());
    ExpectNamed(fault, group, run.failures());
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace commsched
