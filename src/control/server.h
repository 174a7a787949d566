// Where the ranks of a job meet.
#ifndef COMMSCHED_SRC_CONTROL_SERVER_H_
#define COMMSCHED_SRC_CONTROL_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

struct ControlServerSpec {
  int size = 0;        // Ranks of the job.
  uint64_t epoch = 0;  // Of the job: ranks of another are refused.
  std::string job;     // Likewise, but for "": it is not known.
  // Where to listen. Addresses other than loopback need a token.
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: one that is free.
  // What to listen on instead, close-on-exec; taken.
  int listener = -1;
  std::string token;
  // How often each side sends something, and after how much silence a rank is
  // lost.
  int64_t beat_ns = int64_t{1} * 1000 * 1000 * 1000;
  int64_t silence_ns = int64_t{10} * 1000 * 1000 * 1000;
  // How long a connection may take to join, and how many may be at it at once
  // (at least twice the number of ranks are): above, the oldest is dropped.
  int64_t handshake_ns = int64_t{5} * 1000 * 1000 * 1000;
  size_t max_handshakes = 256;
  // Both on the server's thread; they must not block nor destroy the server.
  // A rank is gone, or did not join in time; `why` names it. Of several that
  // did not join, the first, with a sentence about all.
  std::function<void(int rank, const std::string& why)> on_lost;
  // After a rank has left or was lost: how many are there, and how many have
  // ever joined, or are lost without.
  std::function<void(int present, int joined)> on_departed;
};

// A star: every rank has one connection to it (control/client.h), and what it
// does with what they say is in control/hub.h. Runs on a thread of its own.
//
// Nothing that a peer sends is parsed, but for a frame of fixed size, before
// the peer has proved that it knows the token; and a rank that has not joined
// costs some 600 bytes and a file descriptor.
//
// Thread-safe.
class ControlServer {
 public:
  // kInvalidArgument for a spec that cannot be, kUnavailable if the address
  // cannot be listened on, kResourceExhausted if the process may not open as
  // many files as the ranks need.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(
      ControlServerSpec spec);
  // Closes all connections; ranks that are left find the server lost.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  uint16_t port() const;

  // The process of `rank` has ended: `what` says how. If the
  // rank has not joined it is lost, and so is one that has not left a moment
  // later, though a child of the process may keep its connection. The caller
  // knows of it: on_lost is not called. Never blocks. kInvalidArgument for a
  // rank that is not of the job.
  absl::Status ReportExit(int rank, absl::string_view what);

 private:
  class Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_SERVER_H_
