// Members of a PREMUL_SUM that multiply by other scales.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/conformance/backend_fixture.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

class ScalesTest : public BackendTest {
 protected:
  // An all-reduce in which the last rank multiplies by `last`, others by 0.5.
  std::vector<absl::Status> LaunchAll(double last, uint64_t count) {
    return OnComm([&](int rank, CommDriver& comm) -> absl::Status {
      std::vector<float> in(count, 2);
      std::vector<float> out(count);
      commsched_member_t member = {};
      member.input = in.data();
      member.output = out.data();
      member.count = count;
      commsched_launch_t launch = {};
      launch.struct_size = sizeof(launch);
      launch.slot = UINT32_MAX;
      launch.kind = COMMSCHED_ALL_REDUCE;
      launch.dtype = COMMSCHED_F32;
      launch.reduce_op = COMMSCHED_PREMUL_SUM;
      launch.scale = rank == size() - 1 ? last : 0.5;
      launch.num_members = 1;
      launch.members = &member;
      const absl::Status status = comm.LaunchAndWait(launch);
      if (!status.ok()) return status;
      for (const float sum : out) {
        if (sum != static_cast<float>(size())) {
          return absl::InternalError(absl::StrCat("a sum is ", sum));
        }
      }
      return status;
    });
  }
};

TEST_P(ScalesTest, EqualOnesAreTaken) {
  for (const uint64_t count : {1, 1000, 1 << 18}) {
    for (const absl::Status& status : LaunchAll(0.5, count)) {
      EXPECT_OK(status) << count;
    }
  }
}

// By a rank that has one of the two.
TEST_P(ScalesTest, OthersAreNamedWithBothRanks) {
  for (const uint64_t count : {1, 1000, 1 << 18}) {
    bool is_named = false;
    for (const absl::Status& status : LaunchAll(0.25, count)) {
      is_named |= absl::StrContains(status.message(), "has scale 0.5") &&
                  absl::StrContains(status.message(), "has 0.25");
      is_named |= absl::StrContains(status.message(), "has scale 0.25") &&
                  absl::StrContains(status.message(), "has 0.5");
    }
    EXPECT_TRUE(is_named) << count;
  }
}

bool ComparesScales(const BackendCase& one) {
  return (one.reductions & COMMSCHED_BACKEND_SCALED_REDUCTIONS) != 0 &&
         (one.checks_launches || one.backend == "ucx");
}

COMMSCHED_INSTANTIATE_CONFORMANCE(ScalesTest,
                                  BackendsWith(0, 2, ComparesScales));
// A backend that the environment names may be none such.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ScalesTest);

}  // namespace
}  // namespace commsched
