#include "control/messages.h"

#include <string>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

std::string PayloadOfFrame(const std::string& frame) {
  return frame.substr(kFrameHeaderBytes);
}

TEST(MessagesTest, AMessageIsAFrameOfItsKind) {
  MeetMessage message;
  message.number = 7;
  message.kind = 1;
  message.key = "key";
  message.members = {0, 3};
  message.timeout_ns = -1;
  message.payload = "payload";
  const std::string frame = Encode(message);
  ASSERT_OK_AND_ASSIGN(
      const FrameHeader header,
      DecodeFrameHeader(frame.substr(0, kFrameHeaderBytes), kMaxPayloadBytes));
  EXPECT_EQ(header.kind, FrameKind::kMeet);
  ASSERT_OK_AND_ASSIGN(const MeetMessage read,
                       Decode<MeetMessage>(PayloadOfFrame(frame)));
  EXPECT_EQ(read.number, 7u);
  EXPECT_EQ(read.kind, 1u);
  EXPECT_EQ(read.key, "key");
  EXPECT_EQ(read.members, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(read.timeout_ns, -1);
  EXPECT_EQ(read.payload, "payload");
}

TEST(MessagesTest, AMessageWithoutFieldsIsEmpty) {
  EXPECT_EQ(Encode(BeatMessage{}).size(), kFrameHeaderBytes);
  EXPECT_OK(Decode<BeatMessage>(""));
  EXPECT_THAT(Decode<BeatMessage>("x"),
              StatusIs(absl::StatusCode::kInvalidArgument, "too long"));
}

TEST(MessagesTest, AHandshakeFitsItsLimit) {
  ChallengeMessage challenge;
  challenge.nonce.assign(32, 'n');
  ProofMessage proof;
  proof.nonce.assign(32, 'n');
  proof.proof.assign(32, 'p');
  JoinMessage join;
  join.job.assign(kMaxJobBytes, 'j');
  join.host.assign(kMaxPlaceBytes, 'h');
  join.network.assign(kMaxPlaceBytes, 'n');
  join.links.assign(kMaxLinksBytes, 'l');
  RefusedMessage refused;
  refused.message.assign(kMaxRefusedBytes, 'r');
  EXPECT_LE(PayloadOfFrame(Encode(join)).size(), kMaxHandshakeBytes);
  EXPECT_LE(PayloadOfFrame(Encode(refused)).size(), kMaxHandshakeBytes);
  EXPECT_LE(PayloadOfFrame(Encode(challenge)).size(), kMaxHandshakeBytes);
  EXPECT_LE(PayloadOfFrame(Encode(proof)).size(), kMaxHandshakeBytes);
}

TEST(MessagesTest, ACodeThatIsNoneIsAnInternalError) {
  EXPECT_THAT(StatusFrom(4, "late"),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "late"));
  EXPECT_THAT(StatusFrom(17, "odd"),
              StatusIs(absl::StatusCode::kInternal, "odd"));
  EXPECT_OK(StatusFrom(0, ""));
}

}  // namespace
}  // namespace commsched
