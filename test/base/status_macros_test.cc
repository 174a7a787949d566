#include "base/status_macros.h"

#include <memory>

#include "test/support/status_matchers.h"

namespace commsched {
namespace {

absl::Status PassOn(const absl::Status& status, bool* reached_end) {
  RETURN_IF_ERROR(status);
  *reached_end = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> AddOne(
    absl::StatusOr<std::unique_ptr<int>> input) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> value, std::move(input));
  ++*value;
  return value;
}

TEST(StatusMacrosTest, ReturnIfErrorPassesAnErrorOnUnchanged) {
  bool reached_end = false;
  EXPECT_THAT(PassOn(absl::NotFoundError("op 7"), &reached_end),
              StatusIs(absl::StatusCode::kNotFound, "op 7"));
  EXPECT_FALSE(reached_end);
}

TEST(StatusMacrosTest, ReturnIfErrorContinuesAfterOk) {
  bool reached_end = false;
  EXPECT_OK(PassOn(absl::OkStatus(), &reached_end));
  EXPECT_TRUE(reached_end);
}

TEST(StatusMacrosTest, AssignOrReturnMovesTheValueOut) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<int> value,
                       AddOne(std::make_unique<int>(41)));
  EXPECT_EQ(*value, 42);
}

TEST(StatusMacrosTest, AssignOrReturnPassesAnErrorOnUnchanged) {
  EXPECT_THAT(AddOne(absl::AbortedError("rank 3 left")),
              StatusIs(absl::StatusCode::kAborted, "rank 3 left"));
}

TEST(StatusMatchersTest, StatusIsWantsBothTheCodeAndTheText) {
  const absl::Status status = absl::NotFoundError("buffer 'wte'");
  EXPECT_THAT(status,
              ::testing::Not(StatusIs(absl::StatusCode::kAborted, "wte")));
  EXPECT_THAT(status,
              ::testing::Not(StatusIs(absl::StatusCode::kNotFound, "wpe")));
  EXPECT_THAT(status, ::testing::Not(IsOk()));
}

}  // namespace
}  // namespace commsched
