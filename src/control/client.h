// One rank's way to the control server.
#ifndef COMMSCHED_SRC_CONTROL_CLIENT_H_
#define COMMSCHED_SRC_CONTROL_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "control/claims.h"
#include "control/meeting_table.h"
#include "control/order_table.h"
#include "control/roster.h"

namespace commsched {

struct ControlClientSpec {
  std::string host;  // Name or address of the server.
  uint16_t port = 0;
  // A connection to the server instead, close-on-exec; taken. There is no
  // second try.
  int socket = -1;
  // The server lives in the process of rank 0: whoever loses it has lost that.
  bool rank_0_serves = false;
  std::string job;  // LaunchEnvironment::job
  std::string token;
  int rank = 0;
  int size = 0;
  uint64_t epoch = 0;
  RankPlace place;
  // How long who listens may say nothing: a server speaks first.
  int64_t speak_ns = int64_t{5} * 1000 * 1000 * 1000;
  int64_t connect_timeout_ns = int64_t{60} * 1000 * 1000 * 1000;
  // For how long, from here on, ranks that have not joined are waited for.
  int64_t join_timeout_ns = int64_t{60} * 1000 * 1000 * 1000;
  // A rank is lost, perhaps this one, because the others have given it up; or,
  // with kServer as `rank`, the server is. `why` names it. On the client's
  // thread; must not block nor destroy the client.
  static constexpr int kServer = -1;
  std::function<void(int rank, const std::string& why)> on_lost;
  // Another rank has called Fail(). Likewise.
  std::function<void(int rank, uint64_t scope, const absl::Status& why)>
      on_failed;
  // This rank and another one launch in another order (SayOrder). Likewise.
  std::function<void(const OrderDifference&)> on_orders_differ;
};

// Connects to a server (control/server.h), and keeps the connection alive on a
// thread of its own. Every call that blocks returns when what it waits for has
// become impossible: a member is lost, or the server (kUnavailable, or, if rank
// 0 serves, kAborted, naming it).
//
// Where exit() ends a process with a client in it, as a program does that a
// call has failed, the server hears first what the client has been told to say:
// a second at most. Only then the others learn why.
//
// Thread-safe.
class ControlClient {
 public:
  // Blocks until the rank has joined. Tries again while nobody listens, up to
  // the timeout: kDeadlineExceeded, saying what went wrong at last. A server
  // that refuses ends it at once: kUnauthenticated for another token,
  // kAlreadyExists for a rank that has joined, and so on; as does a server that
  // does not know the token, and somebody else who listens there and says
  // something else, or nothing for `speak_ns` (kUnavailable).
  static absl::StatusOr<std::unique_ptr<ControlClient>> Connect(
      ControlClientSpec spec);
  // Leaves the job, if it has not yet.
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  // Meetings (control/meeting_table.h) of `members`, world ranks of which this
  // is one; none: all. They block up to `timeout_ns`.
  absl::StatusOr<std::vector<std::string>> Gather(const MeetingMembers& members,
                                                  absl::string_view key,
                                                  absl::string_view payload,
                                                  int64_t timeout_ns);
  // Of equal payloads: OK, or kFailedPrecondition with two that differ.
  absl::Status Agree(const MeetingMembers& members, absl::string_view key,
                     absl::string_view payload, int64_t timeout_ns);
  // Whether what the members claim holds together.
  absl::StatusOr<bool> Match(const MeetingMembers& members,
                             absl::string_view key,
                             absl::Span<const Claim> claims,
                             int64_t timeout_ns);
  // The payload of the first member.
  absl::StatusOr<std::string> Broadcast(const MeetingMembers& members,
                                        absl::string_view key,
                                        absl::string_view payload,
                                        int64_t timeout_ns);
  // `payload`: MeetingTable::SplitPayload().
  absl::Status Split(const MeetingMembers& members, absl::string_view key,
                     absl::string_view payload, int64_t timeout_ns);
  // Never blocks, but exit() does (below).
  void Decline(const MeetingMembers& members, absl::string_view key,
               const absl::Status& why);

  // Tells all other ranks, those that join later too, that this one has failed
  // with `why`, which is not OK, in what they all call `scope`. The first
  // failure of a scope is told; the server ends the connection of a rank that
  // tells of more scopes than Hub::kMaxFailures. Longer messages than
  // FailedMessage::kMaxMessageBytes are cut. Never blocks, but exit() does.
  void Fail(uint64_t scope, const absl::Status& why);

  // Has the server compare it with what other ranks say of the same topic.
  // Never blocks.
  void SayOrder(const OrderSlice& slice);

  // This rank comes to no meeting any more: those that wait for it fail, as
  // does every later call here, with kFailedPrecondition. Blocks until all
  // ranks have left or are lost, or the server is, up to `timeout_ns`.
  void Leave(int64_t timeout_ns);

  // Leaves a value for everybody: kAlreadyExists if the key has one.
  absl::Status Put(absl::string_view key, absl::string_view value,
                   int64_t timeout_ns);
  // Blocks until somebody has put it; fails when one of `members`, who may put
  // it, is lost or leaves; none: any rank.
  absl::StatusOr<std::string> Get(absl::Span<const int> members,
                                  absl::string_view key, int64_t timeout_ns);
  absl::StatusOr<std::string> Get(absl::string_view key, int64_t timeout_ns) {
    return Get({}, key, timeout_ns);
  }

  // Blocks until all ranks have joined: where each is. Fails likewise.
  absl::StatusOr<Roster> WaitForRoster(int64_t timeout_ns);

 private:
  class Impl;
  explicit ControlClient(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_CLIENT_H_
