#include "capi/timeout.h"

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(TimeoutTest, IsTheCallersOrElseThatOfTheEnvironment) {
  EXPECT_EQ(TimeoutNs("timeout_ns", 5).value(), 5);
  // COMMSCHED_TIMEOUT_S is not set in tests.
  EXPECT_EQ(TimeoutNs("timeout_ns", 0).value(), int64_t{600} * 1'000'000'000);
  EXPECT_THAT(TimeoutNs("timeout_ns", -1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "desc.timeout_ns is -1, below 0"));
}

}  // namespace
}  // namespace commsched
