#include "control/frame.h"

#include <string>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(FrameTest, AHeaderSaysKindAndSize) {
  const std::string frame = EncodeFrame(FrameKind::kPut, "value");
  ASSERT_EQ(frame.size(), kFrameHeaderBytes + 5);
  ASSERT_OK_AND_ASSIGN(
      const FrameHeader header,
      DecodeFrameHeader(frame.substr(0, kFrameHeaderBytes), 5));
  EXPECT_EQ(header.kind, FrameKind::kPut);
  EXPECT_EQ(header.payload_bytes, 5u);
  EXPECT_EQ(frame.substr(kFrameHeaderBytes), "value");
}

TEST(FrameTest, APayloadAboveTheLimitIsRefusedWithBoth) {
  const std::string frame = EncodeFrame(FrameKind::kPut, "value");
  EXPECT_THAT(DecodeFrameHeader(frame.substr(0, kFrameHeaderBytes), 4),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "5 bytes exceeds the "
                       "limit of 4"));
}

TEST(FrameTest, EveryBitOfMagicAndKindCounts) {
  const std::string good =
      EncodeFrame(FrameKind::kBeat, "").substr(0, kFrameHeaderBytes);
  for (size_t bit = 0; bit < 64; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const auto header = DecodeFrameHeader(bad, 0);
    // Some other kinds exist, too.
    if (header.ok()) {
      EXPECT_GE(bit, 32u);
      EXPECT_NE(header->kind, FrameKind::kBeat);
    } else {
      EXPECT_THAT(header,
                  StatusIs(absl::StatusCode::kInvalidArgument, "not a frame"));
    }
  }
}

TEST(FrameTest, AnHttpRequestIsNoFrame) {
  EXPECT_THAT(DecodeFrameHeader("GET / HTTP/1", kMaxPayloadBytes),
              StatusIs(absl::StatusCode::kInvalidArgument, "not a frame"));
}

}  // namespace
}  // namespace commsched
