// Frames over one connection.
#ifndef COMMSCHED_SRC_CONTROL_CONNECTION_H_
#define COMMSCHED_SRC_CONTROL_CONNECTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // Before Asio 1.74, which forgets it.

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "boost/asio/generic/stream_protocol.hpp"
#include "control/frame.h"
#include "control/hub.h"

namespace commsched {

// TCP, or the sockets of one host.
using Socket = boost::asio::generic::stream_protocol::socket;

// Reads and writes whole frames; either side. Lives as long as something is
// under way on it. Owned by the thread that runs its socket's io_context, on
// which all calls and callbacks are made.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  // What may wait to be sent to a peer that does not read.
  static constexpr size_t kMaxQueuedBytes = size_t{512} << 20;

  struct Callbacks {
    // A frame; not OK closes the connection with that reason.
    std::function<absl::Status(FrameKind kind, absl::string_view payload)>
        on_frame;
    // The connection has ended: the last callback. Not called by Close.
    std::function<void(const absl::Status& why)> on_closed;
  };

  explicit Connection(Socket socket);
  ~Connection();

  // Frames are limited to kMaxHandshakeBytes until AllowLargeFrames.
  void Start(Callbacks callbacks);
  // From now on, others hear of it.
  void Rebind(Callbacks callbacks) { callbacks_ = std::move(callbacks); }
  void AllowLargeFrames() { max_payload_bytes_ = kMaxPayloadBytes; }

  // Never blocks. Frames leave in order.
  void Send(SharedFrame frame);

  // Ends it without a callback, now or once everything queued has been sent.
  void Close();
  void CloseAfterSending();

  bool is_open() const { return open_; }
  // When the last byte came in (base/running_clock.h).
  int64_t heard_ns() const { return heard_ns_; }

 private:
  void ReadHeader();
  void ReadPayload(FrameHeader header);
  void WriteNext();
  void StopWriting(const boost::system::error_code& error);
  void Fail(const absl::Status& why);

  Socket socket_;
  Callbacks callbacks_;
  uint32_t max_payload_bytes_ = kMaxHandshakeBytes;
  std::array<char, kFrameHeaderBytes> header_;
  std::string payload_;
  std::deque<SharedFrame> queue_;  // The first is being written.
  size_t queued_bytes_ = 0;
  int64_t heard_ns_;
  bool open_ = true;
  bool closing_ = false;  // When the queue is empty.
  bool deaf_ = false;     // The peer takes nothing any more.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_CONNECTION_H_
