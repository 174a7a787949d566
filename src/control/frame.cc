#include "control/frame.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "control/wire.h"

namespace commsched {
namespace {

constexpr uint32_t kMagic = 0x63736d63;  // "cmsc"

bool IsKnown(uint32_t kind) {
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::kChallenge:
    case FrameKind::kProof:
    case FrameKind::kProved:
    case FrameKind::kJoin:
    case FrameKind::kJoined:
    case FrameKind::kRefused:
    case FrameKind::kMeet:
    case FrameKind::kDecline:
    case FrameKind::kPut:
    case FrameKind::kGet:
    case FrameKind::kLeave:
    case FrameKind::kOrder:
    case FrameKind::kReply:
    case FrameKind::kLost:
    case FrameKind::kOrdersDiffer:
    case FrameKind::kBeat:
    case FrameKind::kFailed:
      return true;
  }
  return false;
}

}  // namespace

std::string EncodeFrame(FrameKind kind, absl::string_view payload) {
  WireWriter header;
  header(kMagic, static_cast<uint32_t>(kind),
         static_cast<uint32_t>(payload.size()));
  std::string frame = header.Take();
  frame.append(payload.data(), payload.size());
  return frame;
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes,
                                              uint32_t max_payload_bytes) {
  uint32_t magic = 0;
  uint32_t kind = 0;  // With the 16 bits of zero above.
  FrameHeader header;
  WireReader reader(bytes);
  reader(magic, kind, header.payload_bytes);
  RETURN_IF_ERROR(reader.Finish());
  if (magic != kMagic || kind > UINT16_MAX || !IsKnown(kind)) {
    return absl::InvalidArgumentError("received bytes are not a frame");
  }
  header.kind = static_cast<FrameKind>(kind);
  if (header.payload_bytes > max_payload_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("frame of ", header.payload_bytes,
                     " bytes exceeds the limit of ", max_payload_bytes));
  }
  return header;
}

}  // namespace commsched
