#include "capi/boundary.h"

#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ::testing::HasSubstr;

TEST(BoundaryTest, StatusBecomesItsCodeAndMessage) {
  EXPECT_EQ(AtBoundary([] { return absl::DataLossError("page 7 is torn"); }),
            COMMSCHED_DATA_LOSS);
  EXPECT_STREQ(commsched_last_error(), "page 7 is torn");
}

TEST(BoundaryTest, EveryCodeKeepsItsNumber) {
  for (int code = COMMSCHED_CANCELLED; code <= COMMSCHED_UNAUTHENTICATED;
       ++code) {
    EXPECT_EQ(AtBoundary([&] {
                return absl::Status(static_cast<absl::StatusCode>(code), "m");
              }),
              code);
  }
}

TEST(BoundaryTest, SuccessLeavesTheMessageAsItWas) {
  ReportFailure(COMMSCHED_NOT_FOUND, "earlier");
  EXPECT_EQ(AtBoundary([] { return absl::OkStatus(); }), COMMSCHED_OK);
  EXPECT_STREQ(commsched_last_error(), "earlier");
}

TEST(BoundaryTest, NoExceptionCrosses) {
  EXPECT_EQ(AtBoundary([]() -> absl::Status { throw std::bad_alloc(); }),
            COMMSCHED_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(commsched_last_error(), "out of host memory");
  EXPECT_EQ(AtBoundary([]() -> absl::Status {
              throw std::runtime_error("thrown by a library");
            }),
            COMMSCHED_INTERNAL);
  EXPECT_STREQ(commsched_last_error(), "thrown by a library");
  EXPECT_EQ(AtBoundary([]() -> absl::Status { throw 7; }), COMMSCHED_INTERNAL);
  AtVoidBoundary([] { throw std::runtime_error("in a destroy"); });
  EXPECT_STREQ(commsched_last_error(), "in a destroy");
}

TEST(BoundaryTest, EveryThreadHasItsOwnMessage) {
  ReportFailure(COMMSCHED_NOT_FOUND, "of the main thread");
  std::string seen;
  std::thread other([&] {
    seen = commsched_last_error();
    ReportFailure(COMMSCHED_NOT_FOUND, "of the other thread");
  });
  other.join();
  EXPECT_EQ(seen, "");
  EXPECT_STREQ(commsched_last_error(), "of the main thread");
}

TEST(BoundaryTest, CodeOfTheCallersThatIsNotOursIsUnknown) {
  EXPECT_THAT(StatusFromCode(COMMSCHED_ABORTED, "why"),
              StatusIs(absl::StatusCode::kAborted, "why"));
  EXPECT_THAT(StatusFromCode(17, "why"),
              StatusIs(absl::StatusCode::kUnknown, "why (code 17)"));
  EXPECT_THAT(StatusFromCode(-3, "why"),
              StatusIs(absl::StatusCode::kUnknown, "code -3"));
}

TEST(BoundaryTest, FirstNullArgumentIsNamed) {
  const int here = 0;
  EXPECT_OK(RequireNonNull({{"a", &here}, {"b", &here}}));
  EXPECT_THAT(RequireNonNull({{"a", &here}, {"b", nullptr}, {"c", nullptr}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "'b' is NULL"));
}

TEST(BoundaryTest, ArrayMayBeNullIfEmpty) {
  const int here = 0;
  EXPECT_OK(RequireArray("ids", nullptr, 0));
  EXPECT_OK(RequireArray("ids", &here, 1));
  EXPECT_THAT(RequireArray("ids", nullptr, 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'ids' is NULL, but has 3 entries"));
}

TEST(BoundaryTest, ArrayFieldsComeWithTheirCountOrNotAtAll) {
  const int here = 0;
  EXPECT_OK(RequireArrayField("ids", nullptr, "num_ids", 0));
  EXPECT_OK(RequireArrayField("ids", &here, "num_ids", 1));
  EXPECT_THAT(RequireArrayField("ids", nullptr, "num_ids", 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'ids' is NULL, but has 3 entries"));
  EXPECT_THAT(RequireArrayField("ids", &here, "num_ids", 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'ids' is given, but 'num_ids' is 0"));
}

}  // namespace
}  // namespace commsched
