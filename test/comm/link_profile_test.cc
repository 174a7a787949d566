#include "comm/link_profile.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "control/messages.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using absl::StatusCode;

constexpr char kText[] = R"({
  "format": "commsched-links/1",
  "note": "two hosts",
  "host": {"latency_ns": 7, "bytes_per_s": 2e9, "message_ns": 3},
  "network": {"latency_ns": 90, "bytes_per_s": 125000000, "message_ns": 11}
})";

void ExpectEqual(const commsched_link_level_t& a,
                 const commsched_link_level_t& b) {
  EXPECT_EQ(a.latency_ns, b.latency_ns);
  EXPECT_EQ(a.bytes_per_s, b.bytes_per_s);
  EXPECT_EQ(a.message_ns, b.message_ns);
}

TEST(LinkProfileTest, EveryKeyIsRead) {
  ASSERT_OK_AND_ASSIGN(const auto profile, LinkProfileFromJson(kText));
  ExpectEqual(profile.host, {7, 2e9, 3});
  ExpectEqual(profile.network, {90, 1.25e8, 11});
}

TEST(LinkProfileTest, WhatIsNotThereHasItsDefault) {
  const commsched_link_profile_t defaults = commsched_link_profile_init();
  ASSERT_OK_AND_ASSIGN(
      const auto profile,
      LinkProfileFromJson(
          R"({"format": "commsched-links/1", "host": {"latency_ns": 1}})"));
  EXPECT_EQ(profile.host.latency_ns, 1);
  EXPECT_EQ(profile.host.bytes_per_s, defaults.host.bytes_per_s);
  EXPECT_EQ(profile.host.message_ns, defaults.host.message_ns);
  ExpectEqual(profile.network, defaults.network);
}

TEST(LinkProfileTest, WhatIsWrittenIsReadBack) {
  ASSERT_OK_AND_ASSIGN(const auto profile, LinkProfileFromJson(kText));
  const std::string text = LinkProfileToJson(profile, "how it was measured");
  EXPECT_THAT(text, testing::HasSubstr("\"note\": \"how it was measured\""));
  ASSERT_OK_AND_ASSIGN(const auto again, LinkProfileFromJson(text));
  ExpectEqual(again.host, profile.host);
  ExpectEqual(again.network, profile.network);
}

TEST(LinkProfileTest, ErrorsNameKeyValueAndRange) {
  const auto refused = [](const char* levels, const char* message) {
    EXPECT_THAT(LinkProfileFromJson(absl::StrCat(
                    R"({"format": "commsched-links/1", )", levels, "}")),
                StatusIs(StatusCode::kInvalidArgument, message));
  };
  refused(R"("host": {"bytes_per_s": 0})",
          "host.bytes_per_s is 0; it must be 1 to 1e+15");
  refused(R"("host": {"bytes_per_s": 1e16})", "host.bytes_per_s is 1e+16");
  refused(R"("network": {"latency_ns": -1})", "network.latency_ns");
  refused(R"("network": {"latency_ns": 10000000001})", "network.latency_ns");
  refused(R"("network": {"message_ns": 1.5})", "network.message_ns");
  refused(R"("network": {"rate": 1})", "network.rate");
  refused(R"("rack": {})", "rack");
  refused(R"("host": 3)", "host");
  refused(R"("host": {}, "host": {})", "appears twice");
  EXPECT_THAT(LinkProfileFromJson(R"({"format": "commsched-links/2"})"),
              StatusIs(StatusCode::kInvalidArgument,
                       "'commsched-links/2' is not 'commsched-links/1'"));
  EXPECT_THAT(LinkProfileFromJson("{}"),
              StatusIs(StatusCode::kInvalidArgument, "format"));
  EXPECT_THAT(LinkProfileFromJson("host"),
              StatusIs(StatusCode::kInvalidArgument, "not JSON"));
}

TEST(LinkProfileTest, TextHasALimit) {
  const std::string note(kMaxLinkNoteBytes + 1, 'x');
  EXPECT_THAT(LinkProfileFromJson(absl::StrCat(
                  R"({"format": "commsched-links/1", "note": ")", note, "\"}")),
              StatusIs(StatusCode::kInvalidArgument, "note has 4097 bytes"));
  EXPECT_THAT(
      LinkProfileFromJson(std::string(kMaxLinkProfileBytes + 1, ' ')),
      StatusIs(StatusCode::kResourceExhausted, "has more than 65536 bytes"));
}

TEST(LinkProfileTest, AFileIsNamedByWhatIsWrongWithIt) {
  const std::string path = testing::TempDir() + "/links.json";
  EXPECT_THAT(ReadLinkProfile(path + ".none"),
              StatusIs(StatusCode::kNotFound, "links.json.none: "));
  std::ofstream(path) << "{}";
  EXPECT_THAT(ReadLinkProfile(path),
              StatusIs(StatusCode::kInvalidArgument, "links.json: "));
  std::ofstream(path) << kText;
  ASSERT_OK_AND_ASSIGN(const auto profile, ReadLinkProfile(path));
  EXPECT_EQ(profile.host.latency_ns, 7);
  EXPECT_THAT(ReadLinkProfile(testing::TempDir()),
              StatusIs(StatusCode::kUnavailable, "directory"));
}

TEST(LinkProfileTest, TravelsAsFewBytes) {
  ASSERT_OK_AND_ASSIGN(const auto profile, LinkProfileFromJson(kText));
  const std::string bytes = EncodeLinks(profile);
  EXPECT_LE(bytes.size(), kMaxLinksBytes);
  ASSERT_OK_AND_ASSIGN(const auto again, DecodeLinks(bytes));
  ASSERT_TRUE(again.has_value());
  ExpectEqual(again->host, profile.host);
  ExpectEqual(again->network, profile.network);
  ASSERT_OK_AND_ASSIGN(const auto none, DecodeLinks(""));
  EXPECT_FALSE(none.has_value());
  for (const std::string& wrong :
       {bytes.substr(1), std::string(bytes.size(), '\xff')}) {
    EXPECT_THAT(DecodeLinks(wrong), StatusIs(StatusCode::kInvalidArgument,
                                             "rank 0's profile of links: "));
  }
}

}  // namespace
}  // namespace commsched
