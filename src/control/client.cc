#include "control/client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/running_clock.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "control/asio_failure.h"
#include "control/connection.h"
#include "control/hub.h"
#include "control/meeting_table.h"
#include "control/messages.h"
#include "control/sockets.h"
#include "control/token.h"

namespace commsched {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto kClientTick = std::chrono::milliseconds(20);
// How much later than the server a call gives up by itself.
constexpr int64_t kGraceNs = int64_t{5} * 1000 * 1000 * 1000;
// How long the last words may take, and at least.
constexpr int64_t kLeaveNs = int64_t{1} * 1000 * 1000 * 1000;
constexpr int64_t kLeastLeaveNs = int64_t{50} * 1000 * 1000;

std::string Text(absl::string_view view) { return {view.data(), view.size()}; }

std::vector<int32_t> Numbers(absl::Span<const int> members) {
  return {members.begin(), members.end()};
}

}  // namespace

class ControlClient::Impl {
  // Those of this process, for exit().
  class ClientsAtExit {
   public:
    // Never destroyed: it is used at the very end.
    static ClientsAtExit& Get() {
      static auto* const clients = [] {
        (void)atexit([] { Get().AwaitHeard(); });
        return new ClientsAtExit;
      }();
      return *clients;
    }
    void Add(Impl* client) {
      MutexLock lock(&mu_);
      if (process_ != getpid()) all_.clear();  // They are the parent's.
      process_ = getpid();
      all_.push_back(client);
    }
    void Remove(Impl* client) {
      MutexLock lock(&mu_);
      std::erase(all_, client);
    }

   private:
    void AwaitHeard() {
      // A child that was forked has the clients, and not their threads. Nor
      // those that may have been within the clock, or held the mutex.
      if (process_ != getpid()) return;
      const int64_t by_ns =
          DeadlineAfter(RunningClock::Get().NowNs(), kLeaveNs);
      MutexLock lock(&mu_);
      for (Impl* const client : all_) client->AwaitHeard(by_ns);
    }

    Mutex mu_;
    std::atomic<pid_t> process_ = 0;  // Whose they are.
    std::vector<Impl*> all_ ABSL_GUARDED_BY(mu_);
  };

 public:
  explicit Impl(ControlClientSpec spec)
      : spec_(std::move(spec)),
        given_(spec_.socket),
        resolver_(io_),
        timer_(io_) {}

  ~Impl() {
    ClientsAtExit::Get().Remove(this);
    if (!thread_.joinable()) return;
    Leave(0, kLeaveNs);
    boost::asio::post(io_, [this] { Stop(); });
    thread_.join();
  }

  // Blocks up to `heard_timeout_ns`, of the first call, until the server has
  // heard of it, and up to `timeout_ns` until all have left.
  void Leave(int64_t timeout_ns, int64_t heard_timeout_ns) {
    const RunningClock& clock = RunningClock::Get();
    const int64_t now_ns = clock.NowNs();
    const int64_t left_ns = DeadlineAfter(now_ns, timeout_ns);
    MutexLock lock(&mu_);
    if (!joined_) return;
    if (!leaving_) {
      leaving_ = true;
      heard_by_ns_ = DeadlineAfter(now_ns, heard_timeout_ns);
      Post(FrameOf(LeaveMessage{}));
    }
    while (!left_ && failure_.ok() && clock.NowNs() < heard_by_ns_) {
      changed_.WaitUntil(&mu_, clock.SleepUntilNs(heard_by_ns_));
    }
    while (!all_left_ && failure_.ok() && clock.NowNs() < left_ns) {
      changed_.WaitUntil(&mu_, clock.SleepUntilNs(left_ns));
    }
  }

  absl::Status Connect() {
    const int64_t now_ns = RunningClock::Get().NowNs();
    connect_deadline_ns_ = DeadlineAfter(now_ns, spec_.connect_timeout_ns);
    boost::asio::post(io_, [this] {
      Tick();
      Try();
    });
    ASSIGN_OR_RETURN(
        thread_,
        StartThread(absl::StrCat("the control thread of rank ", spec_.rank),
                    [this] { Run(); }));
    ClientsAtExit::Get().Add(this);
    MutexLock lock(&mu_);
    while (!joined_ && failure_.ok()) changed_.Wait(&mu_);
    return failure_;
  }

  // Sends `message` with a number of its own, and waits for the reply.
  template <typename Message>
  absl::StatusOr<std::vector<std::string>> Ask(Message message,
                                               int64_t timeout_ns) {
    const RunningClock& clock = RunningClock::Get();
    const int64_t deadline_ns =
        DeadlineAfter(DeadlineAfter(clock.NowNs(), timeout_ns), kGraceNs);
    Pending pending;
    MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    if (leaving_) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", spec_.rank, " has left the job"));
    }
    message.number = ++last_number_;
    SharedFrame frame = FrameOf(message);
    if (frame->size() > kMaxPayloadBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("key '", message.key, "': message of ", frame->size(),
                       " bytes exceeds the limit of ", kMaxPayloadBytes));
    }
    pending_[message.number] = &pending;
    Post(std::move(frame));
    while (!pending.done && failure_.ok() && clock.NowNs() < deadline_ns) {
      changed_.WaitUntil(&mu_, clock.SleepUntilNs(deadline_ns));
    }
    pending_.erase(message.number);
    if (pending.done) {
      if (!pending.status.ok()) return pending.status;
      return std::move(pending.values);
    }
    if (!failure_.ok()) return failure_;
    return absl::DeadlineExceededError(
        absl::StrCat("key '", message.key, "': rank ", spec_.rank,
                     " had no answer from ", ServerName()));
  }

  int size() const { return spec_.size; }

  // What nobody waits for an answer to.
  void Say(SharedFrame frame) {
    {
      MutexLock lock(&mu_);
      says_ = true;
    }
    Post(std::move(frame));
  }

  // What is of no use once the rank has left.
  void Mention(SharedFrame frame) {
    MutexLock lock(&mu_);
    if (!leaving_) Post(std::move(frame));
  }

  // Blocks until the server has heard all that has been said, up to `by_ns`: it
  // answers what comes after it.
  void AwaitHeard(int64_t by_ns) {
    const RunningClock& clock = RunningClock::Get();
    Pending pending;
    MutexLock lock(&mu_);
    if (!says_ || !joined_ || leaving_ || !failure_.ok()) return;
    GetMessage message;
    message.number = ++last_number_;
    message.key = Hub::kRosterKey;
    pending_[message.number] = &pending;
    Post(FrameOf(message));
    while (!pending.done && failure_.ok() && clock.NowNs() < by_ns) {
      changed_.WaitUntil(&mu_, clock.SleepUntilNs(by_ns));
    }
    pending_.erase(message.number);
  }

  void Post(SharedFrame frame) {
    boost::asio::post(io_, [this, frame = std::move(frame)] {
      if (connection_ != nullptr) connection_->Send(frame);
    });
  }

 private:
  enum class Step { kConnecting, kChallenged, kProved, kJoined, kOver };

  struct Pending {
    bool done = false;
    absl::Status status;
    std::vector<std::string> values;
  };

  std::string ServerName() const {
    return spec_.socket >= 0
               ? "control server of rank 0"
               : absl::StrCat("control server ", spec_.host, ":", spec_.port);
  }

  // A handler may lack memory, or the thread that resolves names.
  void Run() {
    try {
      io_.run();
    } catch (...) {
      Fail(CaughtOnThread(absl::StrCat("control thread of rank ", spec_.rank)));
    }
  }

  // ---- On the thread: joining ----

  void Try() {
    step_ = Step::kConnecting;
    if (spec_.socket >= 0) {
      Begin(given_.Release());
      return;
    }
    error_code not_numeric;
    const auto address = boost::asio::ip::make_address(spec_.host, not_numeric);
    if (!not_numeric) {
      endpoints_ = {tcp::endpoint(address, spec_.port)};
      return OpenNext();
    }
    resolver_.async_resolve(spec_.host, absl::StrCat(spec_.port),
                            [this](const error_code& error,
                                   const tcp::resolver::results_type& results) {
                              if (step_ == Step::kOver) return;
                              if (error) return TryAgain(error.message());
                              endpoints_.clear();
                              for (const auto& result : results) {
                                endpoints_.push_back(result.endpoint());
                              }
                              OpenNext();
                            });
  }

  // The first of the endpoints that are left.
  void OpenNext() {
    if (endpoints_.empty()) return TryAgain("no address is left");
    const tcp::endpoint where = endpoints_.front();
    endpoints_.erase(endpoints_.begin());
    Descriptor fd = OpenSocket(where.protocol().family(), SOCK_STREAM);
    auto socket = std::make_shared<Socket>(io_);
    error_code failed;
    if (!fd.valid()) {
      failed = error_code(errno, boost::system::system_category());
    } else {
      socket->assign(where.protocol(), fd.get(), failed);
    }
    // Trying again would not help.
    if (IsScarcity(failed)) {
      return Fail(absl::ResourceExhaustedError(
          absl::StrCat(ServerName(), ": rank ", spec_.rank,
                       " cannot open a socket: ", failed.message())));
    }
    if (failed) return TryAgain(failed.message());
    fd.Release();
    socket->async_connect(where, [this, socket](const error_code& error) {
      if (step_ == Step::kOver) return;
      if (!error) return Begin(std::move(*socket));
      if (!endpoints_.empty()) return OpenNext();
      TryAgain(error.message());
    });
  }

  void Begin(int fd) {
    Socket socket(io_);
    error_code error;
    socket.assign(boost::asio::generic::stream_protocol(FamilyOf(fd), 0), fd,
                  error);
    if (!error) return Begin(std::move(socket));
    close(fd);
    TryAgain(error.message());
  }

  void Begin(Socket socket) {
    connection_ = std::make_shared<Connection>(std::move(socket));
    connection_->Start({[this](FrameKind kind, absl::string_view payload) {
                          return Handle(kind, payload);
                        },
                        [this](const absl::Status& why) { Closed(why); }});
  }

  // At the next tick: nobody listens yet, or the server was busy.
  void TryAgain(absl::string_view why) {
    last_error_ = Text(why);
    connection_.reset();
    if (spec_.socket < 0) {
      try_again_ = true;
      return;
    }
    Fail(absl::UnavailableError(absl::StrCat(ServerName(), " is gone: ", why)));
  }

  // Somebody else listens there.
  void FailStrange(absl::string_view why) {
    Fail(absl::UnavailableError(
        absl::StrCat("what listens at ", spec_.host, ":", spec_.port,
                     " is no control server of commsched: ", why)));
  }

  void Closed(const absl::Status& why) {
    if (step_ == Step::kJoined) {
      // The server ends it when all have left.
      MutexLock lock(&mu_);
      if (left_) {
        all_left_ = true;
        step_ = Step::kOver;
        changed_.SignalAll();
        return;
      }
    }
    if (step_ == Step::kJoined) return FailLost(why.message());
    if (step_ == Step::kConnecting &&
        why.code() != absl::StatusCode::kUnavailable) {
      return FailStrange(why.message());
    }
    TryAgain(why.message());
  }

  // Once it has joined.
  void FailLost(absl::string_view why) {
    if (spec_.rank_0_serves && spec_.rank != 0) {
      lost_rank_ = 0;
      Fail(absl::AbortedError(
          absl::StrCat("rank 0, which serves the job, is lost: ", why)));
      return;
    }
    Fail(absl::UnavailableError(absl::StrCat(ServerName(), " is lost: ", why)));
  }

  absl::Status Handle(FrameKind kind, absl::string_view payload) {
    if (kind == FrameKind::kBeat) return absl::OkStatus();
    if (step_ != Step::kJoined && kind == FrameKind::kRefused) {
      ASSIGN_OR_RETURN(const auto refused, Decode<RefusedMessage>(payload));
      Fail(absl::Status(StatusFrom(refused.code, "").code(),
                        absl::StrCat(ServerName(), " refused rank ", spec_.rank,
                                     ": ", refused.message)));
      return absl::OkStatus();
    }
    switch (step_) {
      case Step::kConnecting:
        return AnswerChallenge(kind, payload);
      case Step::kChallenged:
        return CheckServer(kind, payload);
      case Step::kProved:
        return Join(kind, payload);
      case Step::kJoined:
        return Hear(kind, payload);
      case Step::kOver:
        break;
    }
    return absl::OkStatus();
  }

  static absl::Status Expect(FrameKind expected, FrameKind kind) {
    if (kind == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("it sent a frame of kind ", static_cast<uint32_t>(kind),
                     " instead of ", static_cast<uint32_t>(expected)));
  }

  absl::Status AnswerChallenge(FrameKind kind, absl::string_view payload) {
    RETURN_IF_ERROR(Expect(FrameKind::kChallenge, kind));
    ASSIGN_OR_RETURN(const auto challenge, Decode<ChallengeMessage>(payload));
    if (challenge.version != kControlVersion) {
      Fail(absl::FailedPreconditionError(absl::StrCat(
          ServerName(), " speaks version ", challenge.version,
          " of the control protocol, this rank ", kControlVersion)));
      return absl::OkStatus();
    }
    absl::StatusOr<std::string> nonce = RandomBytes(kNonceBytes);
    if (!nonce.ok()) return nonce.status();
    server_nonce_ = challenge.nonce;
    ProofMessage proof;
    proof.nonce = client_nonce_ = *std::move(nonce);
    proof.proof =
        Prove(spec_.token, Prover::kClient, server_nonce_, client_nonce_);
    connection_->Send(FrameOf(proof));
    step_ = Step::kChallenged;
    return absl::OkStatus();
  }

  absl::Status CheckServer(FrameKind kind, absl::string_view payload) {
    RETURN_IF_ERROR(Expect(FrameKind::kProved, kind));
    ASSIGN_OR_RETURN(const auto proved, Decode<ProvedMessage>(payload));
    if (!SameProof(proved.proof, Prove(spec_.token, Prover::kServer,
                                       server_nonce_, client_nonce_))) {
      Fail(absl::UnauthenticatedError(
          absl::StrCat(ServerName(), " does not know the job token")));
      return absl::OkStatus();
    }
    JoinMessage join;
    join.rank = spec_.rank;
    join.world_size = spec_.size;
    join.epoch = spec_.epoch;
    join.join_timeout_ns = spec_.join_timeout_ns;
    join.job = spec_.job;
    join.host = spec_.place.host;
    join.network = spec_.place.network;
    join.links = spec_.place.links;
    connection_->Send(FrameOf(join));
    step_ = Step::kProved;
    return absl::OkStatus();
  }

  absl::Status Join(FrameKind kind, absl::string_view payload) {
    RETURN_IF_ERROR(Expect(FrameKind::kJoined, kind));
    ASSIGN_OR_RETURN(const auto joined, Decode<JoinedMessage>(payload));
    beat_ns_ = joined.beat_ns;
    silence_ns_ = joined.silence_ns;
    next_beat_ns_ = RunningClock::Get().NowNs() + beat_ns_;
    connection_->AllowLargeFrames();
    step_ = Step::kJoined;
    MutexLock lock(&mu_);
    joined_ = true;
    changed_.SignalAll();
    return absl::OkStatus();
  }

  // ---- On the thread: a rank that has joined ----

  absl::Status Hear(FrameKind kind, absl::string_view payload) {
    if (kind == FrameKind::kLost) {
      ASSIGN_OR_RETURN(const auto lost, Decode<LostMessage>(payload));
      if (lost.rank == spec_.rank) {
        // The others have given it up; the server ends the connection.
        lost_rank_ = lost.rank;
        Fail(absl::AbortedError(lost.why));
        return absl::OkStatus();
      }
      if (spec_.on_lost) spec_.on_lost(lost.rank, lost.why);
      return absl::OkStatus();
    }
    if (kind == FrameKind::kFailed) {
      ASSIGN_OR_RETURN(const auto failed, Decode<FailedMessage>(payload));
      if (spec_.on_failed) {
        spec_.on_failed(failed.rank, failed.scope,
                        StatusFrom(failed.code, failed.message));
      }
      return absl::OkStatus();
    }
    if (kind == FrameKind::kOrdersDiffer) {
      ASSIGN_OR_RETURN(auto differ, Decode<OrdersDifferMessage>(payload));
      if (spec_.on_orders_differ) {
        spec_.on_orders_differ({.topic = std::move(differ.topic),
                                .a_number = differ.a_number,
                                .b_number = differ.b_number,
                                .a_first = differ.a_first,
                                .b_first = differ.b_first});
      }
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Expect(FrameKind::kReply, kind));
    ASSIGN_OR_RETURN(auto reply, Decode<ReplyMessage>(payload));
    MutexLock lock(&mu_);
    if (reply.number == kLeaveReply) {
      left_ = true;
      changed_.SignalAll();
      return absl::OkStatus();
    }
    const auto at = pending_.find(reply.number);
    if (at == pending_.end()) return absl::OkStatus();  // It gave up.
    at->second->status = StatusFrom(reply.code, reply.message);
    at->second->values = std::move(reply.values);
    at->second->done = true;
    changed_.SignalAll();
    return absl::OkStatus();
  }

  void Tick() {
    const int64_t now_ns = RunningClock::Get().NowNs();
    if (step_ == Step::kJoined) {
      CheckServerIsAlive(now_ns);
    } else if (now_ns >= connect_deadline_ns_) {
      Fail(absl::DeadlineExceededError(absl::StrCat(
          ServerName(), ": rank ", spec_.rank, " could not join within ",
          spec_.connect_timeout_ns / 1'000'000,
          " ms: ", last_error_.empty() ? "no answer" : last_error_)));
    } else if (step_ == Step::kConnecting && connection_ != nullptr &&
               spec_.socket < 0 &&
               now_ns - connection_->heard_ns() > spec_.speak_ns) {
      FailStrange(absl::StrCat("it says nothing for ",
                               spec_.speak_ns / 1'000'000, " ms"));
    } else if (try_again_) {
      try_again_ = false;
      Try();
    }
    if (step_ == Step::kOver) return;
    timer_.expires_after(kClientTick);
    timer_.async_wait([this](const error_code& error) {
      if (!error) Tick();
    });
  }

  void CheckServerIsAlive(int64_t now_ns) {
    if (now_ns >= next_beat_ns_) {
      next_beat_ns_ = now_ns + beat_ns_;
      connection_->Send(FrameOf(BeatMessage{}));
    }
    const int64_t silent_ns = now_ns - connection_->heard_ns();
    if (silent_ns <= silence_ns_) return;
    FailLost(absl::StrCat("it has been silent for ", silent_ns / 1'000'000,
                          " ms, the limit is ", silence_ns_ / 1'000'000));
  }

  // The end of it: nothing can be asked any more.
  void Fail(const absl::Status& why) {
    if (step_ == Step::kOver) return;
    const bool had_joined = step_ == Step::kJoined;
    step_ = Step::kOver;
    if (connection_ != nullptr) connection_->Close();
    {
      MutexLock lock(&mu_);
      failure_ = why;
      changed_.SignalAll();
    }
    if (had_joined && spec_.on_lost) {
      spec_.on_lost(lost_rank_, Text(why.message()));
    }
  }

  void Stop() {
    step_ = Step::kOver;
    if (connection_ != nullptr) connection_->Close();
    io_.stop();
  }

  const ControlClientSpec spec_;
  int64_t connect_deadline_ns_ = 0;
  boost::asio::io_context io_{1};
  std::thread thread_;

  // Owned by the thread.
  Descriptor given_;  // spec_.socket, until it is connected.
  tcp::resolver resolver_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Connection> connection_;
  std::vector<tcp::endpoint> endpoints_;  // Yet to be tried.
  Step step_ = Step::kConnecting;
  int lost_rank_ = ControlClientSpec::kServer;  // Whom Fail() tells about.
  bool try_again_ = false;
  std::string last_error_;
  std::string server_nonce_;
  std::string client_nonce_;
  int64_t beat_ns_ = 0;
  int64_t silence_ns_ = 0;
  int64_t next_beat_ns_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  bool says_ ABSL_GUARDED_BY(mu_) = false;  // Say() has been called.
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  int64_t heard_by_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool left_ ABSL_GUARDED_BY(mu_) = false;      // The server knows.
  bool all_left_ ABSL_GUARDED_BY(mu_) = false;  // And so have the others.
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, Pending*> pending_ ABSL_GUARDED_BY(mu_);
};

ControlClient::ControlClient(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
ControlClient::~ControlClient() = default;

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Connect(
    ControlClientSpec spec) {
  Descriptor given(spec.socket);
  if (spec.size < 1 || spec.rank < 0 || spec.rank >= spec.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("control client: rank ", spec.rank,
                     " is not in a world of ", spec.size, " ranks"));
  }
  if (spec.token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("control client: token of ", spec.token.size(),
                     " bytes exceeds the limit of ", kMaxTokenBytes));
  }
  if (spec.job.size() > kMaxJobBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("control client: job name of ", spec.job.size(),
                     " bytes exceeds the limit of ", kMaxJobBytes));
  }
  const std::string what = absl::StrCat("control client of rank ", spec.rank);
  ASSIGN_OR_RETURN(auto impl, MakeWithAsio<Impl>(what, std::move(spec)));
  given.Release();  // It is the client's now.
  RETURN_IF_ERROR(impl->Connect());
  return std::unique_ptr<ControlClient>(new ControlClient(std::move(impl)));
}

namespace {

MeetMessage Meeting(MeetingKind kind, const MeetingMembers& members,
                    absl::string_view key, absl::string_view payload,
                    int64_t timeout_ns) {
  MeetMessage message;
  message.kind = static_cast<uint32_t>(kind);
  message.key = Text(key);
  message.members = Numbers(members.ranks);
  message.names = Numbers(members.names);
  message.timeout_ns = timeout_ns;
  message.payload = Text(payload);
  return message;
}

// The value of an answer that has one.
absl::StatusOr<std::string> Only(
    absl::StatusOr<std::vector<std::string>> values) {
  RETURN_IF_ERROR(values.status());
  if (values->size() == 1) return std::move(values->front());
  return absl::InternalError(absl::StrCat("the control server answered with ",
                                          values->size(), " values, not 1"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ControlClient::Gather(
    const MeetingMembers& members, absl::string_view key,
    absl::string_view payload, int64_t timeout_ns) {
  return impl_->Ask(
      Meeting(MeetingKind::kGather, members, key, payload, timeout_ns),
      timeout_ns);
}

absl::Status ControlClient::Agree(const MeetingMembers& members,
                                  absl::string_view key,
                                  absl::string_view payload,
                                  int64_t timeout_ns) {
  return impl_
      ->Ask(Meeting(MeetingKind::kAgree, members, key, payload, timeout_ns),
            timeout_ns)
      .status();
}

absl::StatusOr<bool> ControlClient::Match(const MeetingMembers& members,
                                          absl::string_view key,
                                          absl::Span<const Claim> claims,
                                          int64_t timeout_ns) {
  const absl::StatusOr<std::string> answer =
      Only(impl_->Ask(Meeting(MeetingKind::kMatch, members, key,
                              EncodeClaims(claims), timeout_ns),
                      timeout_ns));
  RETURN_IF_ERROR(answer.status());
  return *answer == MeetingTable::kMatches;
}

absl::StatusOr<std::string> ControlClient::Broadcast(
    const MeetingMembers& members, absl::string_view key,
    absl::string_view payload, int64_t timeout_ns) {
  return Only(impl_->Ask(
      Meeting(MeetingKind::kBroadcast, members, key, payload, timeout_ns),
      timeout_ns));
}

absl::Status ControlClient::Split(const MeetingMembers& members,
                                  absl::string_view key,
                                  absl::string_view payload,
                                  int64_t timeout_ns) {
  return impl_
      ->Ask(Meeting(MeetingKind::kSplit, members, key, payload, timeout_ns),
            timeout_ns)
      .status();
}

void ControlClient::Decline(const MeetingMembers& members,
                            absl::string_view key, const absl::Status& why) {
  DeclineMessage message;
  message.key = Text(key);
  message.members = Numbers(members.ranks);
  message.names = Numbers(members.names);
  message.code = static_cast<uint32_t>(why.code());
  message.message = Text(why.message());
  impl_->Say(FrameOf(message));
}

void ControlClient::Fail(uint64_t scope, const absl::Status& why) {
  FailedMessage message;
  message.scope = scope;
  message.code = static_cast<uint32_t>(why.code());
  message.message =
      Text(why.message().substr(0, FailedMessage::kMaxMessageBytes));
  impl_->Say(FrameOf(message));
}

void ControlClient::SayOrder(const OrderSlice& slice) {
  impl_->Mention(FrameOf(OrderMessage{.slice = slice}));
}

void ControlClient::Leave(int64_t timeout_ns) {
  impl_->Leave(timeout_ns, std::clamp(timeout_ns, kLeastLeaveNs, kLeaveNs));
}

absl::Status ControlClient::Put(absl::string_view key, absl::string_view value,
                                int64_t timeout_ns) {
  PutMessage message;
  message.key = Text(key);
  message.value = Text(value);
  return impl_->Ask(std::move(message), timeout_ns).status();
}

absl::StatusOr<std::string> ControlClient::Get(absl::Span<const int> members,
                                               absl::string_view key,
                                               int64_t timeout_ns) {
  GetMessage message;
  message.key = Text(key);
  message.members = Numbers(members);
  message.timeout_ns = timeout_ns;
  return Only(impl_->Ask(std::move(message), timeout_ns));
}

absl::StatusOr<Roster> ControlClient::WaitForRoster(int64_t timeout_ns) {
  ASSIGN_OR_RETURN(const std::string bytes, Get(Hub::kRosterKey, timeout_ns));
  return Roster::Decode(bytes, impl_->size());
}

}  // namespace commsched
