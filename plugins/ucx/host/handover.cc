#include "ucx/host/handover.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "ucx/host/random_word.h"

namespace commsched::ucx {
namespace {

// More callers than ranks, and so many, that say nothing: the first one goes.
constexpr size_t kMostStrangers = 16;
// Who is accepted at once. The rest wait for the next step.
constexpr int kMostAccepted = 256;
// How often what finds no room at another rank is tried again.
constexpr int kRetryMs = 1;
constexpr char kConfirmation = 'y';

// With the two descriptors.
struct Hello {
  uint64_t secret[2] = {};  // Of who is called.
  int64_t rank = 0;         // Who calls.
};

struct SocketAddress {
  sockaddr_un value = {};
  socklen_t bytes = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&value);
  }
};

// Abstract: its first byte is 0.
SocketAddress AddressOf(uint64_t name) {
  SocketAddress address;
  address.value.sun_family = AF_UNIX;
  const int length =
      snprintf(address.value.sun_path + 1, sizeof(address.value.sun_path) - 1,
               "commsched-ucx-%016llx", static_cast<unsigned long long>(name));
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                         static_cast<size_t>(length));
  return address;
}

Descriptor NewSocket() {
  return Descriptor(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

Outcome NoDescriptor(const char* what, int error) {
  return {IsForbidden(error) ? COMMSCHED_PERMISSION_DENIED
                             : COMMSCHED_RESOURCE_EXHAUSTED,
          std::string(what) +
              " by which ranks of a host share memory: " + strerror(error)};
}

bool IsScarcity(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM ||
         error == ENOBUFS;
}

// Of what is sent to who has hung up, and not got it.
bool IsHungUp(int error) {
  return error == EPIPE || error == ECONNRESET || error == ECONNREFUSED;
}

// Whether the other end is this user's.
bool IsOwn(int fd) {
  ucred other = {};
  socklen_t bytes = sizeof(other);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 &&
         other.uid == geteuid();
}

constexpr size_t kNumFds = 2;
union FdsBuffer {
  cmsghdr header;  // For its alignment.
  char bytes[CMSG_SPACE(kNumFds * sizeof(int))];
};

// 0, or the error.
int SendHello(int to, const Hello& hello, const int (&fds)[kNumFds]) {
  FdsBuffer buffer = {};
  iovec part = {const_cast<Hello*>(&hello), sizeof(hello)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.bytes;
  message.msg_controllen = sizeof(buffer.bytes);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds, sizeof(fds));
  return sendmsg(to, &message, MSG_NOSIGNAL) == sizeof(hello) ? 0 : errno;
}

// recvmsg(). An end is looked at again: the kernel finds no message, and then
// that the other has hung up (unix_dgram_recvmsg(), Linux 6.18), so that it
// tells of the end before what was sent in between. With the end nothing more
// comes, and what was sent is there.
ssize_t ReceiveMessage(int from, msghdr* message) {
  const msghdr asked = *message;
  const ssize_t bytes = recvmsg(from, message, MSG_CMSG_CLOEXEC);
  if (bytes != 0) return bytes;
  *message = asked;
  return recvmsg(from, message, MSG_CMSG_CLOEXEC);
}

struct Heard {
  bool is_whole = false;  // But for its descriptors.
  bool has_fds = false;
  bool is_over = false;  // Nothing comes any more.
  bool no_room = false;  // For its descriptors.
  Hello hello;
  Descriptor fds[kNumFds];
};

Heard ReceiveHello(int from) {
  Heard heard;
  FdsBuffer buffer = {};
  iovec part = {&heard.hello, sizeof(heard.hello)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer.bytes;
  message.msg_controllen = sizeof(buffer.bytes);
  const ssize_t bytes = ReceiveMessage(from, &message);
  if (bytes < 0) {
    heard.is_over = errno != EAGAIN && errno != EINTR;
    return heard;
  }
  size_t count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t given = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < given; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      Descriptor owned(fd);
      if (count < kNumFds) heard.fds[count++] = std::move(owned);
    }
  }
  heard.no_room = (message.msg_flags & MSG_CTRUNC) != 0;
  heard.is_whole = bytes == sizeof(heard.hello);
  heard.has_fds = count == kNumFds;
  heard.is_over = !heard.is_whole;
  return heard;
}

}  // namespace

Handover::Handover(int rank, int world_size, const Segment& segment,
                   int event_fd)
    : rank_(rank),
      segment_bytes_(segment.bytes()),
      segment_fd_(segment.fd()),
      event_fd_(event_fd),
      peers_(static_cast<size_t>(world_size)) {
  std::memcpy(&card_.nonce, segment.data(), sizeof(card_.nonce));
  card_.secret[0] = RandomWord();
  card_.secret[1] = RandomWord();
}

Outcome Handover::Open(int rank, int world_size, const Segment& segment,
                       int event_fd, std::unique_ptr<Handover>* out) {
  std::unique_ptr<Handover> handover(
      new Handover(rank, world_size, segment, event_fd));
  const Outcome listens = handover->Listen();
  if (listens.ok()) *out = std::move(handover);
  return listens;
}

Outcome Handover::Listen() {
  listener_ = NewSocket();
  if (!listener_.is_open()) return NoDescriptor("no socket is left", errno);
  while (true) {
    card_.name = RandomWord() | 1;
    const SocketAddress address = AddressOf(card_.name);
    if (bind(listener_.get(), address.get(), address.bytes) == 0) break;
    if (errno != EADDRINUSE) {
      return NoDescriptor("no name for the socket", errno);
    }
  }
  if (listen(listener_.get(), SOMAXCONN) != 0) {
    return NoDescriptor("no listening at the socket", errno);
  }
  return {};
}

void Handover::Begin(int peer, const SegmentCard& card) {
  Peer& other = peers_[static_cast<size_t>(peer)];
  if (other.has_begun) return;
  other.has_begun = true;
  other.card = card;
  other.is_apart = card.name == 0;
  if (other.is_apart) other.why_apart = "it has no memory to share";
}

Handover::State Handover::StateOf(int peer) const {
  const Peer& other = peers_[static_cast<size_t>(peer)];
  if (!other.has_begun) return State::kUnknown;
  if (!other.IsDecided()) return State::kBegun;
  return other.is_apart ? State::kApart : State::kShared;
}

SharedParts Handover::TakeParts(int peer) {
  return std::move(peers_[static_cast<size_t>(peer)].parts);
}

Outcome Handover::Step(int wait_ms) {
  WaitForOthers(wait_ms);
  Outcome outcome = HearCallers();
  if (outcome.ok()) outcome = Accept();
  if (!outcome.ok()) return outcome;
  for (Peer& peer : peers_) {
    if (!peer.has_begun || peer.IsDecided()) continue;
    outcome = Give(&peer);
    if (outcome.ok()) outcome = Take(&peer);
    if (!outcome.ok()) return outcome;
    AwaitConfirmation(&peer);
  }
  if (IsWaiting()) return {};
  for (Descriptor& caller : callers_) {
    if (outcome.ok()) outcome = Dismiss(&caller);
  }
  callers_.clear();
  return outcome;
}

bool Handover::IsWaiting() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.has_begun && !peer.IsDecided();
  });
}

// Both sides learn of it, by the end of their connections.
void Handover::Part(Peer* peer, std::string why) {
  peer->is_apart = true;
  peer->why_apart = std::move(why);
  peer->HangUp();
  peer->segment_fd.Reset();
  peer->parts = {};
}

// ---- What this rank gives ----

// What finds no room now is tried again at the next step: the other has a
// thousand callers, or has dismissed this one before it said anything, or too
// many descriptors are on their way.
Outcome Handover::Give(Peer* peer) {
  if (peer->is_sent) return {};
  Descriptor call = NewSocket();
  if (!call.is_open()) return NoDescriptor("no socket is left", errno);
  const SocketAddress address = AddressOf(peer->card.name);
  if (connect(call.get(), address.get(), address.bytes) != 0) {
    if (errno == EAGAIN || errno == EINTR || IsScarcity(errno)) return {};
    // There may be no such name in this network namespace.
    Part(peer, std::string("no connection to its socket: ") + strerror(errno));
    return {};
  }
  if (!IsOwn(call.get())) {
    Part(peer, "its socket is another user's");
    return {};
  }
  const Hello hello = {.secret = {peer->card.secret[0], peer->card.secret[1]},
                       .rank = rank_};
  const int error = SendHello(call.get(), hello, {segment_fd_, event_fd_});
  if (error == ETOOMANYREFS || error == EAGAIN || error == EINTR ||
      IsScarcity(error) || IsHungUp(error)) {
    return {};
  }
  if (error != 0) {
    Part(peer, std::string("handing over memory: ") + strerror(error));
    return {};
  }
  peer->given = std::move(call);
  peer->is_sent = true;
  return {};
}

void Handover::AwaitConfirmation(Peer* peer) {
  if (peer->is_apart || !peer->is_sent) return;
  if (peer->IsDecided()) return peer->HangUp();
  char answer = 0;
  iovec part = {&answer, 1};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t bytes = ReceiveMessage(peer->given.get(), &message);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // What comes after the confirmation is the end: the other has parted since.
  if (peer->is_confirmed || bytes != 1 || answer != kConfirmation) {
    const char* const what = bytes < 0    ? strerror(errno)
                             : bytes == 0 ? "it has hung up"
                                          : "it has said something else";
    return Part(peer, std::string(peer->is_confirmed ? "behind its confirmation"
                                                     : "no confirmation") +
                          (peer->has_confirmed ? ", confirmed here: " : ": ") +
                          what);
  }
  peer->is_confirmed = true;
  if (peer->IsDecided()) peer->HangUp();
}

// ---- What it gets ----

Outcome Handover::HearCallers() {
  Outcome outcome;
  for (Descriptor& caller : callers_) {
    if (outcome.ok()) outcome = Hear(&caller);
  }
  std::erase_if(callers_, [](const Descriptor& fd) { return !fd.is_open(); });
  return outcome;
}

Outcome Handover::Accept() {
  Outcome outcome;
  for (int i = 0; i < kMostAccepted && outcome.ok(); ++i) {
    Descriptor caller(accept4(listener_.get(), nullptr, nullptr,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!caller.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) break;
      return NoDescriptor("no descriptor for the socket", errno);
    }
    if (!IsOwn(caller.get())) continue;
    outcome = Hear(&caller);
    if (!caller.is_open()) continue;
    callers_.push_back(std::move(caller));
    if (callers_.size() <= peers_.size() + kMostStrangers) continue;
    outcome = Dismiss(&callers_.front());
    callers_.erase(callers_.begin());
  }
  return outcome;
}

// Whoever has not said anything yet, and was about to, calls again (Give()).
Outcome Handover::Dismiss(Descriptor* caller) {
  shutdown(caller->get(), SHUT_RD);
  const Outcome outcome = Hear(caller);
  caller->Reset();
  return outcome;
}

// Keeps what is a rank's until it has begun here, too.
Outcome Handover::Hear(Descriptor* caller) {
  Heard heard = ReceiveHello(caller->get());
  if (heard.is_over) caller->Reset();
  if (!heard.is_whole) return {};
  const Hello& hello = heard.hello;
  const bool knows =
      hello.secret[0] == card_.secret[0] && hello.secret[1] == card_.secret[1];
  if (!knows || hello.rank < 0 ||
      hello.rank >= static_cast<int64_t>(peers_.size()) || !heard.has_fds) {
    caller->Reset();
    // So the other learns that it is apart, and nobody waits.
    if (!knows || !heard.no_room) return {};
    return NoDescriptor("no descriptor is left", EMFILE);
  }
  Peer& peer = peers_[static_cast<size_t>(hello.rank)];
  if (peer.is_apart || peer.has_parts) {
    caller->Reset();
    return {};
  }
  peer.got = std::move(*caller);
  peer.segment_fd = std::move(heard.fds[0]);
  peer.parts.event_fd = std::move(heard.fds[1]);
  peer.has_parts = true;
  return Take(&peer);  // Which needs no descriptor of the segment any more.
}

// Confirms only what is sure to be returned: so that the other side does not
// take for shared what is not.
Outcome Handover::Take(Peer* peer) {
  if (peer->is_apart || !peer->has_parts || peer->has_confirmed ||
      !peer->is_sent) {
    return {};
  }
  const Outcome attached =
      Segment::Attach(peer->segment_fd, segment_bytes_, &peer->parts.segment);
  // Tried again at the next step.
  if (attached.code == COMMSCHED_RESOURCE_EXHAUSTED) return attached;
  peer->segment_fd.Reset();
  uint64_t nonce = 0;
  if (attached.ok()) {
    std::memcpy(&nonce, peer->parts.segment.data(), sizeof(nonce));
  }
  if (!attached.ok() || nonce != peer->card.nonce) {
    Part(peer, attached.ok() ? "its memory is another one" : attached.reason);
    return {};
  }
  if (send(peer->got.get(), &kConfirmation, 1, MSG_NOSIGNAL) != 1) {
    Part(peer, std::string("confirming: ") + strerror(errno));
    return {};
  }
  peer->has_confirmed = true;
  return {};
}

void Handover::WaitForOthers(int wait_ms) {
  std::vector<pollfd> fds = {{listener_.get(), POLLIN, 0}};
  for (const Descriptor& caller : callers_) {
    fds.push_back({caller.get(), POLLIN, 0});
  }
  for (const Peer& peer : peers_) {
    if (!peer.has_begun || peer.IsDecided()) continue;
    // There is something to do here.
    if (!peer.is_sent) wait_ms = std::min(wait_ms, kRetryMs);
    if (peer.has_parts && !peer.has_confirmed) wait_ms = 0;
    if (peer.given.is_open()) fds.push_back({peer.given.get(), POLLIN, 0});
  }
  poll(fds.data(), fds.size(), wait_ms);
}

}  // namespace commsched::ucx
