#include "comm/plugin/table_support.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(PluginMessageTest, IsEmptyUntilAPluginWritesToIt) {
  PluginMessage message;
  EXPECT_EQ(message.text(), "");
  std::strcpy(message.Begin(), "the cable is out");
  EXPECT_EQ(message.text(), "the cable is out");
  (void)message.Begin();
  EXPECT_EQ(message.text(), "");
}

TEST(PluginMessageTest, EndsWithItsRoomIfItHasNoOtherEnd) {
  PluginMessage message;
  std::memset(message.Begin(), 'x', PluginMessage::size());
  EXPECT_EQ(message.text(), std::string(PluginMessage::size(), 'x'));
}

TEST(PluginFailureTest, IsThePluginsCodeAndReason) {
  PluginMessage message;
  std::strcpy(message.Begin(), "the cable is out");
  const absl::Status failure =
      PluginFailure("backend 'b'", "poll", COMMSCHED_UNAVAILABLE, message);
  EXPECT_EQ(failure, absl::UnavailableError("the cable is out"));
}

TEST(PluginFailureTest, WithoutAReasonNamesPluginAndCall) {
  const absl::Status failure =
      PluginFailure("backend 'b'", "poll", COMMSCHED_UNAVAILABLE, {});
  EXPECT_EQ(failure, absl::UnavailableError(
                         "backend 'b' gave no reason why poll failed"));
}

TEST(PluginFailureTest, OfACodeThatIsNoneIsInternalAndNamesIt) {
  PluginMessage message;
  std::strcpy(message.Begin(), "the cable is out");
  for (const commsched_status_t code : {-1, 17, 999}) {
    EXPECT_THAT(
        PluginFailure("backend 'b'", "poll", code, message),
        StatusIs(absl::StatusCode::kInternal,
                 "backend 'b': poll() returned " + std::to_string(code) +
                     ", which is not a status code: the cable is out"));
  }
}

}  // namespace
}  // namespace commsched
