// What the control plane's frames carry. Every message names its fields once,
// in Visit, from which it is written and read.
#ifndef COMMSCHED_SRC_CONTROL_MESSAGES_H_
#define COMMSCHED_SRC_CONTROL_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "control/frame.h"
#include "control/order_table.h"
#include "control/wire.h"

namespace commsched {

inline constexpr uint32_t kControlVersion = 7;

// So that a handshake fits kMaxHandshakeBytes.
inline constexpr size_t kMaxJobBytes = 128;
inline constexpr size_t kMaxPlaceBytes = 64;
// Of it, COMMSCHED_HOST_ID.
inline constexpr size_t kMaxHostIdBytes = 24;
inline constexpr size_t kMaxLinksBytes = 64;
inline constexpr size_t kMaxRefusedBytes = 480;

// ---- Handshake --------------------------------------------------------------

struct ChallengeMessage {
  static constexpr FrameKind kKind = FrameKind::kChallenge;
  uint32_t version = kControlVersion;
  std::string nonce;  // kNonceBytes (control/token.h)

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.version, self.nonce);
  }
};

struct ProofMessage {
  static constexpr FrameKind kKind = FrameKind::kProof;
  uint32_t version = kControlVersion;
  std::string nonce;
  std::string proof;  // of kClient, over both nonces

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.version, self.nonce, self.proof);
  }
};

struct ProvedMessage {
  static constexpr FrameKind kKind = FrameKind::kProved;
  std::string proof;  // of kServer, over both nonces

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.proof);
  }
};

struct JoinMessage {
  static constexpr FrameKind kKind = FrameKind::kJoin;
  int32_t rank = 0;
  int32_t world_size = 0;
  uint64_t epoch = 0;  // Counts the restarts of a job.
  // For how long it waits for ranks that have not joined, from here on.
  int64_t join_timeout_ns = 0;
  std::string job;      // LaunchEnvironment::job; up to kMaxJobBytes.
  std::string host;     // RankPlace (control/roster.h),
  std::string network;  // each up to kMaxPlaceBytes;
  std::string links;    // up to kMaxLinksBytes.

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.rank, self.world_size, self.epoch, self.join_timeout_ns,
          self.job, self.host, self.network, self.links);
  }
};

struct JoinedMessage {
  static constexpr FrameKind kKind = FrameKind::kJoined;
  int64_t beat_ns = 0;     // How often to send something,
  int64_t silence_ns = 0;  // and after how much silence who is silent is lost.

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.beat_ns, self.silence_ns);
  }
};

struct RefusedMessage {
  static constexpr FrameKind kKind = FrameKind::kRefused;
  uint32_t code = 0;    // absl::StatusCode
  std::string message;  // Up to kMaxRefusedBytes.

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.code, self.message);
  }
};

// ---- From a rank ------------------------------------------------------------

// How a meeting ends (control/meeting_table.h).
enum class MeetingKind : uint32_t {
  kGather = 0,
  kAgree = 1,
  kBroadcast = 2,
  kMatch = 3,
  kSplit = 4
};
inline constexpr uint32_t kNumMeetingKinds = 5;

struct MeetMessage {
  static constexpr FrameKind kKind = FrameKind::kMeet;
  uint64_t number = 0;  // Of this request, for the reply.
  uint32_t kind = 0;    // MeetingKind
  std::string key;
  std::vector<int32_t> members;  // None: all ranks.
  std::vector<int32_t> names;    // MeetingMembers::names
  int64_t timeout_ns = 0;
  std::string payload;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.number, self.kind, self.key, self.members, self.names,
          self.timeout_ns, self.payload);
  }
};

struct DeclineMessage {
  static constexpr FrameKind kKind = FrameKind::kDecline;
  std::string key;
  std::vector<int32_t> members;
  std::vector<int32_t> names;
  uint32_t code = 0;
  std::string message;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.key, self.members, self.names, self.code, self.message);
  }
};

struct PutMessage {
  static constexpr FrameKind kKind = FrameKind::kPut;
  uint64_t number = 0;
  std::string key;
  std::string value;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.number, self.key, self.value);
  }
};

struct GetMessage {
  static constexpr FrameKind kKind = FrameKind::kGet;
  uint64_t number = 0;
  std::string key;
  // Who may put it; none: all ranks. The request fails when one of them goes.
  std::vector<int32_t> members;
  int64_t timeout_ns = 0;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.number, self.key, self.members, self.timeout_ns);
  }
};

// The rank comes to no meeting any more, and is not lost. Answered by a reply
// of number kLeaveReply; the server ends the connection when all have left.
inline constexpr uint64_t kLeaveReply = 0;
struct LeaveMessage {
  static constexpr FrameKind kKind = FrameKind::kLeave;

  template <typename Self, typename Visitor>
  static void Visit(Self& /*self*/, Visitor& visit) {
    visit();
  }
};

// In which order the rank has launched; no reply.
struct OrderMessage {
  static constexpr FrameKind kKind = FrameKind::kOrder;
  OrderSlice slice;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.slice.topic, self.slice.first, self.slice.base,
          self.slice.before, self.slice.then);
  }
};

// ---- To a rank --------------------------------------------------------------

struct ReplyMessage {
  static constexpr FrameKind kKind = FrameKind::kReply;
  uint64_t number = 0;
  uint32_t code = 0;
  std::string message;
  std::vector<std::string> values;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.number, self.code, self.message, self.values);
  }
};

struct LostMessage {
  static constexpr FrameKind kKind = FrameKind::kLost;
  int32_t rank = 0;
  std::string why;  // "rank 2 is lost: its connection was closed"

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.rank, self.why);
  }
};

// To both ranks.
struct OrdersDifferMessage {
  static constexpr FrameKind kKind = FrameKind::kOrdersDiffer;
  std::string topic;  // OrderDifference
  uint64_t a_number = 0;
  uint64_t b_number = 0;
  int32_t a_first = 0;
  int32_t b_first = 0;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.topic, self.a_number, self.b_number, self.a_first, self.b_first);
  }
};

// ---- Both ways --------------------------------------------------------------

struct BeatMessage {
  static constexpr FrameKind kKind = FrameKind::kBeat;

  template <typename Self, typename Visitor>
  static void Visit(Self& /*self*/, Visitor& visit) {
    visit();
  }
};

// A rank has failed in what all ranks call `scope`. From the rank, and then to
// all others.
struct FailedMessage {
  static constexpr FrameKind kKind = FrameKind::kFailed;
  static constexpr size_t kMaxMessageBytes = 4096;

  uint64_t scope = 0;
  int32_t rank = 0;   // Which one; the server knows.
  uint32_t code = 0;  // absl::StatusCode, not OK.
  std::string message;

  template <typename Self, typename Visitor>
  static void Visit(Self& self, Visitor& visit) {
    visit(self.scope, self.rank, self.code, self.message);
  }
};

// The whole frame.
template <typename Message>
std::string Encode(const Message& message) {
  WireWriter writer;
  Message::Visit(message, writer);
  return EncodeFrame(Message::kKind, writer.Take());
}

// From the payload of a frame of kind Message::kKind.
template <typename Message>
absl::StatusOr<Message> Decode(absl::string_view payload) {
  Message message;
  WireReader reader(payload);
  Message::Visit(message, reader);
  const absl::Status status = reader.Finish();
  if (!status.ok()) return status;
  return message;
}

// A status as a message carries it: its code if that is one, else INTERNAL.
absl::Status StatusFrom(uint32_t code, absl::string_view message);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_MESSAGES_H_
