// How messages are told apart in a stream of bytes.
#ifndef COMMSCHED_SRC_CONTROL_FRAME_H_
#define COMMSCHED_SRC_CONTROL_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

enum class FrameKind : uint16_t {
  // Handshake, in this order.
  kChallenge = 1,  // server
  kProof = 2,      // client
  kProved = 3,     // server
  kJoin = 4,       // client
  kJoined = 5,     // server
  kRefused = 6,    // server, in place of kProved or kJoined
  // From a rank that has joined.
  kMeet = 16,
  kDecline = 17,
  kPut = 18,
  kGet = 19,
  kLeave = 20,
  kOrder = 21,
  // To it.
  kReply = 32,
  kLost = 33,
  kOrdersDiffer = 34,
  // Both ways.
  kBeat = 48,
  kFailed = 49,
};

// A frame is a header of 12 bytes, little-endian, and a payload: the magic
// "cmsc", the kind (16 bits), 16 bits of zero, and the bytes of the payload.
struct FrameHeader {
  FrameKind kind = FrameKind::kBeat;
  uint32_t payload_bytes = 0;
};

inline constexpr size_t kFrameHeaderBytes = 12;
// Of a frame's payload: while nobody has proved anything, and after.
inline constexpr uint32_t kMaxHandshakeBytes = 512;
inline constexpr uint32_t kMaxPayloadBytes = 64 << 20;

// `payload` has at most kMaxPayloadBytes.
std::string EncodeFrame(FrameKind kind, absl::string_view payload);

// `bytes` has kFrameHeaderBytes. kInvalidArgument if this is no header of ours,
// kResourceExhausted if its payload is larger than `max_payload_bytes`.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::string_view bytes,
                                              uint32_t max_payload_bytes);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_FRAME_H_
