#include <string>

#include "absl/strings/string_view.h"
#include "control/frame.h"
#include "control/messages.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

// Whether the payload is a message of this kind, which then is written back as
// it came.
template <typename Message>
size_t Check(absl::string_view frame) {
  const auto message = Decode<Message>(frame.substr(kFrameHeaderBytes));
  if (!message.ok()) {
    Require(!message.status().message().empty());
    return 0;
  }
  Require(Encode(*message) == frame);
  return 1;
}

size_t CheckKind(FrameKind kind, absl::string_view frame) {
  switch (kind) {
    case FrameKind::kChallenge:
      return Check<ChallengeMessage>(frame);
    case FrameKind::kProof:
      return Check<ProofMessage>(frame);
    case FrameKind::kProved:
      return Check<ProvedMessage>(frame);
    case FrameKind::kJoin:
      return Check<JoinMessage>(frame);
    case FrameKind::kJoined:
      return Check<JoinedMessage>(frame);
    case FrameKind::kRefused:
      return Check<RefusedMessage>(frame);
    case FrameKind::kMeet:
      return Check<MeetMessage>(frame);
    case FrameKind::kDecline:
      return Check<DeclineMessage>(frame);
    case FrameKind::kPut:
      return Check<PutMessage>(frame);
    case FrameKind::kGet:
      return Check<GetMessage>(frame);
    case FrameKind::kLeave:
      return Check<LeaveMessage>(frame);
    case FrameKind::kOrder:
      return Check<OrderMessage>(frame);
    case FrameKind::kReply:
      return Check<ReplyMessage>(frame);
    case FrameKind::kLost:
      return Check<LostMessage>(frame);
    case FrameKind::kOrdersDiffer:
      return Check<OrdersDifferMessage>(frame);
    case FrameKind::kFailed:
      return Check<FailedMessage>(frame);
    case FrameKind::kBeat:
      return Check<BeatMessage>(frame);
  }
  return 0;
}

}  // namespace

size_t FuzzControlMessages(const uint8_t* data, size_t size) {
  const absl::string_view frame(reinterpret_cast<const char*>(data), size);
  if (size < kFrameHeaderBytes) return 0;
  const auto header =
      DecodeFrameHeader(frame.substr(0, kFrameHeaderBytes), kMaxPayloadBytes);
  if (!header.ok()) return 0;
  if (header->payload_bytes != size - kFrameHeaderBytes) return 0;
  return CheckKind(header->kind, frame);
}

}  // namespace commsched::test
