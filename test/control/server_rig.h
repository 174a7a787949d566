// Servers, clients and strangers over loopback.
#ifndef COMMSCHED_TEST_CONTROL_SERVER_RIG_H_
#define COMMSCHED_TEST_CONTROL_SERVER_RIG_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "control/client.h"
#include "control/messages.h"
#include "control/server.h"
#include "control/token.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kMinuteNs = 60'000 * kMs;

// What on_lost said, from any thread.
class Losses {
 public:
  std::function<void(int, const std::string&)> Recorder() {
    return [this](int rank, const std::string& why) {
      MutexLock lock(&mu_);
      all_.emplace_back(rank, why);
    };
  }
  std::vector<std::pair<int, std::string>> all() {
    MutexLock lock(&mu_);
    return all_;
  }

 private:
  Mutex mu_;
  std::vector<std::pair<int, std::string>> all_;
};

inline std::unique_ptr<ControlServer> Serve(ControlServerSpec spec) {
  auto server = ControlServer::Start(std::move(spec));
  EXPECT_OK(server);
  return server.ok() ? *std::move(server) : nullptr;
}

inline std::unique_ptr<ControlServer> Serve(int size) {
  ControlServerSpec spec;
  spec.size = size;
  return Serve(std::move(spec));
}

inline ControlClientSpec SpecOf(const ControlServer& server, int rank,
                                int size) {
  ControlClientSpec spec;
  spec.host = "127.0.0.1";
  spec.port = server.port();
  spec.rank = rank;
  spec.size = size;
  return spec;
}

inline std::vector<std::unique_ptr<ControlClient>> JoinAll(
    const ControlServer& server, int size, Losses* losses = nullptr) {
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (int rank = 0; rank < size; ++rank) {
    ControlClientSpec spec = SpecOf(server, rank, size);
    if (losses != nullptr) spec.on_lost = losses[rank].Recorder();
    auto client = ControlClient::Connect(std::move(spec));
    EXPECT_OK(client);
    clients.push_back(client.ok() ? *std::move(client) : nullptr);
  }
  return clients;
}

// A socket that does as the test says.
class Stranger {
 public:
  explicit Stranger(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit = {60, 0};  // A test must fail, not hang.
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address),
                         sizeof(address)) == 0;
  }
  Stranger(Stranger&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~Stranger() { Close(); }

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  // With a reset instead of an end.
  void Reset() {
    const linger now = {1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }

  void Send(const std::string& bytes) {
    // The server may have closed it in the meantime.
    (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // The payload of the next frame; "" at the end.
  std::string Receive(FrameKind* kind = nullptr) {
    std::string header(kFrameHeaderBytes, '\0');
    if (!Fill(&header)) return "";
    const auto decoded = DecodeFrameHeader(header, kMaxPayloadBytes);
    if (!decoded.ok()) return "";
    if (kind != nullptr) *kind = decoded->kind;
    std::string payload(decoded->payload_bytes, '\0');
    return Fill(&payload) ? payload : "";
  }

  // Reads to the end.
  bool SeesTheEnd() {
    char bytes[4096];
    for (;;) {
      const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
      if (n == 0) return true;
      if (n < 0) return errno == ECONNRESET;
    }
  }

  // Joins as `rank`, by hand.
  bool Join(int rank, int size) {
    const auto challenge = Decode<ChallengeMessage>(Receive());
    if (!challenge.ok()) return false;
    ProofMessage proof;
    proof.nonce.assign(kNonceBytes, 'n');
    proof.proof = Prove("", Prover::kClient, challenge->nonce, proof.nonce);
    Send(Encode(proof));
    if (!Decode<ProvedMessage>(Receive()).ok()) return false;
    JoinMessage join;
    join.rank = rank;
    join.world_size = size;
    join.join_timeout_ns = kMinuteNs;
    Send(Encode(join));
    return Decode<JoinedMessage>(Receive()).ok();
  }

 private:
  bool Fill(std::string* bytes) {
    size_t have = 0;
    while (have < bytes->size()) {
      const ssize_t n =
          recv(fd_, bytes->data() + have, bytes->size() - have, 0);
      if (n <= 0) return false;
      have += static_cast<size_t>(n);
    }
    return true;
  }

  int fd_;
  bool connected_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_CONTROL_SERVER_RIG_H_
