#include "control/server.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/running_clock.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "control/asio_failure.h"
#include "control/connection.h"
#include "control/hub.h"
#include "control/messages.h"
#include "control/sockets.h"
#include "control/token.h"

namespace commsched {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto kServerTick = std::chrono::milliseconds(20);
constexpr int kMaxSize = 65536;
// How long the connection of a process that has ended may have more to say: it
// is there already, but this thread may not have got to it.
constexpr int64_t kLastWordsNs = int64_t{500} * 1000 * 1000;

absl::Status CheckSpec(const ControlServerSpec& spec,
                       const boost::asio::ip::address& address) {
  if (spec.size < 1 || spec.size > kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "control server: size is ", spec.size, ", not in 1..", kMaxSize));
  }
  if (spec.token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("control server: token of ", spec.token.size(),
                     " bytes exceeds the limit of ", kMaxTokenBytes));
  }
  if (spec.token.empty() && !address.is_loopback()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "control server: address ", spec.address,
        " is not loopback, and there is no token: anybody could join"));
  }
  if (spec.beat_ns <= 0 || spec.silence_ns <= spec.beat_ns ||
      spec.handshake_ns <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "control server: beat of ", spec.beat_ns, " ns, silence of ",
        spec.silence_ns, " ns, handshake of ", spec.handshake_ns,
        " ns: each is above 0, and silence is longer than a beat"));
  }
  return absl::OkStatus();
}

// So that ranks and handshakes have a file descriptor each.
absl::Status RaiseFileLimit(size_t connections) {
  constexpr size_t kOthers = 128;
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  const rlim_t needed = connections + kOthers;
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed) {
    return absl::OkStatus();
  }
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < needed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("control server: ", connections, " connections need ",
                     needed, " open files, and the limit of this process is ",
                     limit.rlim_max, " (ulimit -n)"));
  }
  limit.rlim_cur = needed;
  setrlimit(RLIMIT_NOFILE, &limit);
  return absl::OkStatus();
}

}  // namespace

class ControlServer::Impl {
 public:
  explicit Impl(ControlServerSpec spec)
      : spec_(std::move(spec)),
        listener_(io_),
        timer_(io_),
        hub_(spec_.size,
             [this](int rank, SharedFrame frame) {
               ranks_[static_cast<size_t>(rank)]->Send(std::move(frame));
             }),
        ranks_(static_cast<size_t>(spec_.size)) {
    spec_.max_handshakes =
        std::max(spec_.max_handshakes, 2 * static_cast<size_t>(spec_.size));
  }

  ~Impl() {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] { Stop(); });
    thread_.join();
  }

  absl::Status Start() {
    Descriptor given(std::exchange(spec_.listener, -1));
    error_code error;
    const auto address = boost::asio::ip::make_address(spec_.address, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat(
          "control server: '", spec_.address, "' is not a numeric address"));
    }
    RETURN_IF_ERROR(CheckSpec(spec_, address));
    RETURN_IF_ERROR(RaiseFileLimit(ranks_.size() + spec_.max_handshakes));
    if (!given.valid()) {
      const tcp::endpoint where(address, spec_.port);
      auto listening =
          ListenAt(where.data(), static_cast<socklen_t>(where.size()));
      if (!listening.ok()) {
        return absl::Status(listening.status().code(),
                            absl::StrCat("control server: ", spec_.address, ":",
                                         spec_.port, " cannot be listened on: ",
                                         listening.status().message()));
      }
      given = *std::move(listening);
    }
    port_ = PortOf(given.get());
    family_ = FamilyOf(given.get());
    spare_ = OpenSpare();
    if (!spare_.valid()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "control server: no descriptor is left to refuse ranks with"));
    }
    KeepFromForks(given.get());
    listener_.assign(given.Release(), error);
    if (error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("control server: ", error.message()));
    }
    Accept();
    Tick();
    ASSIGN_OR_RETURN(thread_, StartThread("the thread of the control server",
                                          [this] { Run(); }));
    return absl::OkStatus();
  }

  absl::Status ReportExit(int rank, const std::string& what) {
    if (rank < 0 || rank >= spec_.size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "control server: rank ", rank, " is not in 0..", spec_.size - 1));
    }
    boost::asio::post(io_, [this, rank, what] {
      if (hub_.IsAwaited(rank)) {
        hub_.Lose(rank, absl::StrCat(what, " before it joined"));
        Departed();
      } else if (hub_.IsPresent(rank)) {
        exits_.try_emplace(rank,
                           Exit{what, DeadlineAfter(RunningClock::Get().NowNs(),
                                                    kLastWordsNs)});
      }
    });
    return absl::OkStatus();
  }

  uint16_t port() const { return port_; }

 private:
  // Without memory for a handler it ends, which the ranks see.
  void Run() {
    try {
      io_.run();
    } catch (...) {
      const absl::Status why = CaughtOnThread("the control server ends");
      Log(LogLevel::kError, why.message());
      Stop();
    }
  }

  // A connection that has not joined.
  struct Guest {
    std::shared_ptr<Connection> connection;
    int64_t deadline_ns = 0;
    std::string nonce;
    bool proved = false;
  };
  using Guests = std::list<Guest>;  // Oldest first.
  // Of a process whose rank has joined.
  struct Exit {
    std::string what;
    int64_t deadline_ns = 0;  // Then the rank is lost, if it is still there.
  };

  void Accept() {
    listener_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [this](const error_code& error) {
          if (!listener_.is_open()) return;
          Descriptor fd;
          if (!error) fd = AcceptAt(listener_.native_handle());
          const int why = errno;
          // Goes on at the next tick.
          if (error || (!fd.valid() && why != EAGAIN && why != ECONNABORTED)) {
            accepting_ = false;
            if (!error) RefuseOne();
            return;
          }
          if (fd.valid()) Welcome(std::move(fd));
          Accept();
        });
    accepting_ = true;
  }

  static Descriptor OpenSpare() {
    return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  // Without a descriptor left. Who waits to be accepted would do so in vain.
  void RefuseOne() {
    spare_.Close();
    Descriptor fd = AcceptAt(listener_.native_handle());
    if (!fd.valid()) return;  // Nobody does.
    Socket socket(io_);
    error_code error;
    socket.assign(boost::asio::generic::stream_protocol(family_, 0), fd.get(),
                  error);
    if (error) return;
    fd.Release();
    RefusedMessage refused;
    refused.code = static_cast<uint32_t>(absl::StatusCode::kResourceExhausted);
    refused.message = "the server's process has no descriptor left for it";
    const auto connection = std::make_shared<Connection>(std::move(socket));
    connection->Start(
        {[](FrameKind, absl::string_view) { return absl::OkStatus(); },
         [](const absl::Status&) {}});
    connection->Send(FrameOf(refused));
    connection->CloseAfterSending();
  }

  void Welcome(Descriptor fd) {
    Socket socket(io_);
    error_code error;
    socket.assign(boost::asio::generic::stream_protocol(family_, 0), fd.get(),
                  error);
    if (error) return;
    fd.Release();
    if (guests_.size() >= spec_.max_handshakes) {
      guests_.front().connection->Close();
      guests_.pop_front();
    }
    absl::StatusOr<std::string> nonce = RandomBytes(kNonceBytes);
    if (!nonce.ok()) return;  // The peer sees its connection closed.
    const auto guest = guests_.emplace(guests_.end());
    guest->connection = std::make_shared<Connection>(std::move(socket));
    guest->deadline_ns =
        DeadlineAfter(RunningClock::Get().NowNs(), spec_.handshake_ns);
    guest->nonce = *std::move(nonce);
    guest->connection->Start(
        {[this, guest](FrameKind kind, absl::string_view payload) {
           return Admit(guest, kind, payload);
         },
         [this, guest](const absl::Status&) { guests_.erase(guest); }});
    ChallengeMessage challenge;
    challenge.nonce = guest->nonce;
    guest->connection->Send(FrameOf(challenge));
  }

  // A frame of a connection that has not joined.
  absl::Status Admit(Guests::iterator guest, FrameKind kind,
                     absl::string_view payload) {
    const absl::Status status = guest->proved
                                    ? Join(guest, kind, payload)
                                    : CheckProof(guest, kind, payload);
    if (status.ok()) return status;
    RefusedMessage refused;
    refused.code = static_cast<uint32_t>(status.code());
    refused.message = std::string(status.message().substr(0, kMaxRefusedBytes));
    const auto connection = guest->connection;
    guests_.erase(guest);
    connection->Send(FrameOf(refused));
    connection->CloseAfterSending();
    return absl::OkStatus();
  }

  absl::Status CheckProof(Guests::iterator guest, FrameKind kind,
                          absl::string_view payload) {
    if (kind != FrameKind::kProof) {
      return absl::InvalidArgumentError("a proof of the token comes first");
    }
    ASSIGN_OR_RETURN(const ProofMessage message, Decode<ProofMessage>(payload));
    if (message.version != kControlVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat("control protocol: the rank speaks version ",
                       message.version, ", the server ", kControlVersion));
    }
    if (message.nonce.size() != kNonceBytes ||
        !SameProof(message.proof, Prove(spec_.token, Prover::kClient,
                                        guest->nonce, message.nonce))) {
      return absl::UnauthenticatedError("the job token is not the server's");
    }
    guest->proved = true;
    ProvedMessage proved;
    proved.proof =
        Prove(spec_.token, Prover::kServer, guest->nonce, message.nonce);
    guest->connection->Send(FrameOf(proved));
    return absl::OkStatus();
  }

  absl::Status Join(Guests::iterator guest, FrameKind kind,
                    absl::string_view payload) {
    if (kind != FrameKind::kJoin) {
      return absl::InvalidArgumentError("a rank joins first");
    }
    ASSIGN_OR_RETURN(JoinMessage message, Decode<JoinMessage>(payload));
    if (!spec_.job.empty() && message.job != spec_.job) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", message.rank, " is of job '", message.job,
                       "', the server of job '", spec_.job, "'"));
    }
    if (message.world_size != spec_.size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", message.rank, " has a world of ", message.world_size,
          " ranks, the server one of ", spec_.size));
    }
    if (message.epoch != spec_.epoch) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", message.rank, " is of epoch ", message.epoch,
                       ", the job is in epoch ", spec_.epoch));
    }
    if (message.join_timeout_ns < 0) {
      return absl::InvalidArgumentError("a rank waits for less than 0 ns");
    }
    RETURN_IF_ERROR(
        hub_.Join(message.rank,
                  {std::move(message.host), std::move(message.network),
                   std::move(message.links)},
                  RunningClock::Get().NowNs(), message.join_timeout_ns));
    const int rank = message.rank;
    const auto connection = guest->connection;
    guests_.erase(guest);
    ranks_[static_cast<size_t>(rank)] = connection;
    connection->AllowLargeFrames();
    connection->Rebind(
        {[this, rank](FrameKind frame, absl::string_view bytes) {
           return Hear(rank, frame, bytes);
         },
         [this, rank](const absl::Status& why) { Lose(rank, why); }});
    JoinedMessage joined;
    joined.beat_ns = spec_.beat_ns;
    joined.silence_ns = spec_.silence_ns;
    connection->Send(FrameOf(joined));
    hub_.Greet(rank);
    return absl::OkStatus();
  }

  absl::Status Hear(int rank, FrameKind kind, absl::string_view payload) {
    RETURN_IF_ERROR(
        hub_.Handle(rank, kind, payload, RunningClock::Get().NowNs()));
    if (kind == FrameKind::kLeave) Departed();
    return absl::OkStatus();
  }

  // Who runs the server knows before the ranks do.
  void Lose(int rank, const absl::Status& why) {
    if (!hub_.IsPresent(rank)) return;  // It has left.
    const std::string reason(why.message());
    if (spec_.on_lost && !exits_.contains(rank)) {
      spec_.on_lost(rank, absl::StrCat("rank ", rank, " is lost: ", reason));
    }
    hub_.Lose(rank, reason);
    Departed();
  }

  void GiveUpLate(int64_t now_ns) {
    const auto late = hub_.Late(now_ns);
    if (!late) return;
    if (spec_.on_lost) spec_.on_lost(late->rank, late->why);
    hub_.GiveUpLate(*late);
    Departed();
  }

  // Those whose process has ended, and whose connection has not.
  void LoseExited(int64_t now_ns) {
    for (const auto& [rank, exit] : exits_) {
      if (now_ns < exit.deadline_ns || !hub_.IsPresent(rank)) continue;
      ranks_[static_cast<size_t>(rank)]->Close();
      hub_.Lose(rank, exit.what);
      Departed();
    }
  }

  // It may go on: then it is to know what it was to the others.
  void LoseSilent(int rank, int64_t silent_ns) {
    Connection& connection = *ranks_[static_cast<size_t>(rank)];
    if (!hub_.IsPresent(rank)) {  // And it does not take that.
      if (silent_ns > 2 * spec_.silence_ns) connection.Close();
      return;
    }
    const absl::Status why = absl::DeadlineExceededError(
        absl::StrCat("it has been silent for ", silent_ns / 1'000'000,
                     " ms, the limit is ", spec_.silence_ns / 1'000'000));
    LostMessage lost;
    lost.rank = rank;
    lost.why = absl::StrCat("rank ", rank, " is lost: ", why.message());
    connection.Send(FrameOf(lost));
    connection.CloseAfterSending();
    Lose(rank, why);
  }

  // Those who have left stay connected until nobody is left, so that they know
  // when that is.
  void Departed() {
    if (hub_.num_present() == 0) {
      for (const auto& connection : ranks_) {
        if (connection != nullptr) connection->CloseAfterSending();
      }
    }
    if (spec_.on_departed) {
      spec_.on_departed(hub_.num_present(), hub_.num_joined());
    }
  }

  void Tick() {
    const int64_t now_ns = RunningClock::Get().NowNs();
    if (!spare_.valid()) spare_ = OpenSpare();
    if (!accepting_) Accept();
    while (!guests_.empty() && guests_.front().deadline_ns <= now_ns) {
      guests_.front().connection->Close();
      guests_.pop_front();
    }
    hub_.Tick(now_ns);
    GiveUpLate(now_ns);
    LoseExited(now_ns);
    const bool beat = now_ns >= next_beat_ns_;
    if (beat) next_beat_ns_ = now_ns + spec_.beat_ns;
    const SharedFrame beat_frame = beat ? FrameOf(BeatMessage{}) : nullptr;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto& connection = ranks_[i];
      if (connection == nullptr || !connection->is_open()) continue;
      if (beat) connection->Send(beat_frame);
      const int64_t silent_ns = now_ns - connection->heard_ns();
      if (silent_ns <= spec_.silence_ns) continue;
      LoseSilent(static_cast<int>(i), silent_ns);
    }
    timer_.expires_after(kServerTick);
    timer_.async_wait([this](const error_code& error) {
      if (!error) Tick();
    });
  }

  void Stop() {
    error_code ignored;
    ReleaseToForks(listener_.native_handle());
    listener_.close(ignored);
    spare_.Close();
    timer_.cancel();
    for (Guest& guest : guests_) guest.connection->Close();
    guests_.clear();
    for (const auto& connection : ranks_) {
      if (connection != nullptr) connection->Close();
    }
    io_.stop();
  }

  ControlServerSpec spec_;
  uint16_t port_ = 0;
  int family_ = AF_INET;
  boost::asio::io_context io_{1};
  std::thread thread_;

  // Owned by the thread.
  boost::asio::posix::stream_descriptor listener_;
  Descriptor spare_;  // What makes room to refuse a connection.
  boost::asio::steady_timer timer_;
  bool accepting_ = false;
  int64_t next_beat_ns_ = 0;
  Guests guests_;
  Hub hub_;
  std::vector<std::shared_ptr<Connection>> ranks_;  // By rank; null: absent.
  absl::flat_hash_map<int, Exit> exits_;            // By rank.
};

ControlServer::ControlServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(
    ControlServerSpec spec) {
  ASSIGN_OR_RETURN(auto impl,
                   MakeWithAsio<Impl>("control server", std::move(spec)));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

uint16_t ControlServer::port() const { return impl_->port(); }

absl::Status ControlServer::ReportExit(int rank, absl::string_view what) {
  return impl_->ReportExit(rank, std::string(what.data(), what.size()));
}

}  // namespace commsched
