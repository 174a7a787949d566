// GoogleTest matchers for absl::Status and absl::StatusOr.
#ifndef COMMSCHED_TEST_SUPPORT_STATUS_MATCHERS_H_
#define COMMSCHED_TEST_SUPPORT_STATUS_MATCHERS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// A status of `code` whose message contains `part`. Say in `part` what the
// message must name: the object, the value, the limit.
MATCHER_P2(StatusIs, code, part,
           absl::StatusCodeToString(code) + " saying '" + std::string(part) +
               "'") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         std::string(status.message()).find(part) != std::string::npos;
}

}  // namespace commsched

#define EXPECT_OK(expr) EXPECT_THAT(expr, ::commsched::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT(expr, ::commsched::IsOk())

namespace commsched::test {

// Expects that every rank's call succeeded; `statuses` has one per rank.
inline void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_OK(statuses[rank]) << "rank " << rank;
  }
}

}  // namespace commsched::test

// Declares or assigns `lhs` from the StatusOr `expr`; ends the test if it
// failed.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  COMMSCHED_ASSERT_OK_AND_ASSIGN_(      \
      COMMSCHED_TEST_CONCAT_(commsched_test_statusor_, __LINE__), lhs, expr)
#define COMMSCHED_ASSERT_OK_AND_ASSIGN_(statusor, lhs, expr) \
  auto statusor = (expr);                                    \
  ASSERT_OK(statusor);                                       \
  lhs = *std::move(statusor)
#define COMMSCHED_TEST_CONCAT_(a, b) COMMSCHED_TEST_CONCAT_INNER_(a, b)
#define COMMSCHED_TEST_CONCAT_INNER_(a, b) a##b

#endif  // COMMSCHED_TEST_SUPPORT_STATUS_MATCHERS_H_
