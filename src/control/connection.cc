#include "control/connection.h"

#include "absl/strings/str_cat.h"
#include "base/running_clock.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/read.hpp"
#include "boost/asio/write.hpp"
#include "control/sockets.h"

namespace commsched {
namespace {

using boost::system::error_code;

// Why a read or a write ended, for messages.
absl::Status Ended(const error_code& error) {
  if (error == boost::asio::error::eof ||
      error == boost::asio::error::connection_reset ||
      error == boost::asio::error::broken_pipe) {
    return absl::UnavailableError("its connection was closed");
  }
  return absl::UnavailableError(
      absl::StrCat("its connection failed: ", error.message()));
}

}  // namespace

Connection::Connection(Socket socket)
    : socket_(std::move(socket)), heard_ns_(RunningClock::Get().NowNs()) {
  KeepFromForks(socket_.native_handle());
  // Messages are small, and somebody waits for each. Not having these options
  // costs time, nothing else; sockets of one host need none.
  error_code ignored;
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(boost::asio::socket_base::keep_alive(true), ignored);
}

Connection::~Connection() {
  if (open_) ReleaseToForks(socket_.native_handle());
}

void Connection::Start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  ReadHeader();
}

void Connection::ReadHeader() {
  boost::asio::async_read(
      socket_, boost::asio::buffer(header_),
      [self = shared_from_this()](const error_code& error, size_t) {
        if (!self->open_) return;
        if (error) return self->Fail(Ended(error));
        self->heard_ns_ = RunningClock::Get().NowNs();
        const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(
            absl::string_view(self->header_.data(), self->header_.size()),
            self->max_payload_bytes_);
        if (!header.ok()) return self->Fail(header.status());
        self->ReadPayload(*header);
      });
}

void Connection::ReadPayload(FrameHeader header) {
  payload_.resize(header.payload_bytes);
  boost::asio::async_read(
      socket_, boost::asio::buffer(payload_),
      [self = shared_from_this(), header](const error_code& error, size_t) {
        if (!self->open_) return;
        if (error) return self->Fail(Ended(error));
        self->heard_ns_ = RunningClock::Get().NowNs();
        // A copy, as the call may replace the callbacks.
        const auto on_frame = self->callbacks_.on_frame;
        const absl::Status status = on_frame(header.kind, self->payload_);
        if (!self->open_ || self->closing_) return;
        if (!status.ok()) return self->Fail(status);
        self->ReadHeader();
      });
}

void Connection::Send(SharedFrame frame) {
  if (!open_ || closing_ || deaf_) return;
  if (frame->size() > kMaxQueuedBytes - queued_bytes_) {
    // Not now: the caller may be in the middle of something.
    boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
      self->Fail(absl::ResourceExhaustedError(absl::StrCat(
          "it does not read: ", self->queued_bytes_, " bytes wait for it")));
    });
    return;
  }
  queued_bytes_ += frame->size();
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) WriteNext();
}

void Connection::WriteNext() {
  boost::asio::async_write(
      socket_, boost::asio::buffer(*queue_.front()),
      [self = shared_from_this()](const error_code& error, size_t) {
        if (!self->open_) return;
        if (error) return self->StopWriting(error);
        self->queued_bytes_ -= self->queue_.front()->size();
        self->queue_.pop_front();
        if (!self->queue_.empty()) return self->WriteNext();
        if (self->closing_) self->Close();
      });
}

// The peer may have said why it ended the connection: that is read first, and
// then the end.
void Connection::StopWriting(const error_code& error) {
  const bool peer_closed = error == boost::asio::error::broken_pipe ||
                           error == boost::asio::error::connection_reset;
  if (!peer_closed || closing_) return Fail(Ended(error));
  deaf_ = true;
  queue_.clear();
  queued_bytes_ = 0;
}

void Connection::Close() {
  if (!open_) return;
  open_ = false;
  callbacks_ = {};
  ReleaseToForks(socket_.native_handle());
  error_code ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.close(ignored);
}

void Connection::CloseAfterSending() {
  if (!open_) return;
  closing_ = true;
  if (queue_.empty()) Close();
}

void Connection::Fail(const absl::Status& why) {
  if (!open_) return;
  const auto on_closed = std::move(callbacks_.on_closed);
  Close();
  on_closed(why);
}

}  // namespace commsched
