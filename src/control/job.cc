#include "control/job.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/running_clock.h"
#include "base/status_macros.h"
#include "control/host_socket.h"
#include "control/private_file.h"
#include "control/server.h"
#include "control/sockets.h"
#include "control/token.h"

namespace commsched {
namespace {

// How often a rank looks for the file.
constexpr auto kLook = std::chrono::milliseconds(5);
// How long rank 0 asks who it is that listens at its port.
constexpr int64_t kAskNs = int64_t{1} * 1000 * 1000 * 1000;
// How often a rank looks whether its job has gone on without it.
constexpr int64_t kCheckEpochNs = int64_t{250} * 1000 * 1000;

absl::StatusOr<std::string> TokenOf(const LaunchEnvironment& environment) {
  if (!environment.token.empty() || environment.token_file.empty()) {
    return environment.token;
  }
  ASSIGN_OR_RETURN(const std::string text,
                   ReadPrivateFile(environment.token_file));
  return std::string(absl::StripAsciiWhitespace(text));
}

// The numeric address of `host` if it is this host's loopback, as the name of a
// machine may be ("127.0.1.1"); else "".
std::string LoopbackOf(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return "";
  const auto freeing = absl::MakeCleanup([found] { freeaddrinfo(found); });
  const addrinfo* best = nullptr;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(each->ai_addr);
      if (ntohl(in->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET) return "";
      if (best == nullptr || best->ai_family != AF_INET) best = each;
    } else {
      const auto* in = reinterpret_cast<const sockaddr_in6*>(each->ai_addr);
      if (!IN6_IS_ADDR_LOOPBACK(&in->sin6_addr)) return "";
      if (best == nullptr) best = each;
    }
  }
  char numeric[NI_MAXHOST] = "";
  getnameinfo(best->ai_addr, best->ai_addrlen, numeric, sizeof(numeric),
              nullptr, 0, NI_NUMERICHOST);
  return numeric;
}

// The first ancestor of this process that was not told a rank: what has started
// the ranks, be it through shells or "timeout", where nothing else is known.
pid_t LauncherProcess(const std::string& rank_variable) {
  pid_t process = getppid();
  while (process > 1) {
    std::ifstream file(absl::StrCat("/proc/", process, "/environ"));
    std::stringstream environ;
    environ << '\0' << file.rdbuf();
    const std::string set =
        absl::StrCat(std::string(1, '\0'), rank_variable, "=");
    if (rank_variable.empty() || environ.str().find(set) == std::string::npos) {
      return process;
    }
    // PID (NAME) STATE PARENT: the name may have anything.
    std::string stat;
    std::getline(std::ifstream(absl::StrCat("/proc/", process, "/stat")), stat);
    int parent = 0;
    const size_t end = stat.rfind(')');
    if (end == std::string::npos ||
        !absl::SimpleAtoi(
            stat.substr(end + 4, stat.find(' ', end + 4) - end - 4), &parent)) {
      return process;
    }
    process = parent;
  }
  return process;
}

// The name of the job among those of this host.
std::string NameOf(const LaunchEnvironment& environment) {
  if (!environment.job.empty()) return environment.job;
  return absl::StrCat(
      environment.launcher.empty() ? "ranks" : environment.launcher, " of ",
      environment.size, " ranks, process ",
      LauncherProcess(environment.rank_variable));
}

std::string Seconds(int64_t ns) {
  return absl::StrCat(static_cast<double>(ns) * 1e-9, " s");
}

}  // namespace

class Job::Impl {
 public:
  explicit Impl(JobSpec spec) : spec_(std::move(spec)) {}

  ~Impl() {
    client_.reset();
    if (server_ != nullptr && joined_) {
      const RunningClock& clock = RunningClock::Get();
      const int64_t deadline_ns =
          left_by_ns_ != 0 ? left_by_ns_
                           : DeadlineAfter(clock.NowNs(), spec_.timeout_ns);
      MutexLock lock(&mu_);
      while (present_ > 0 && clock.NowNs() < deadline_ns) {
        changed_.WaitUntil(&mu_, clock.SleepUntilNs(deadline_ns));
      }
    }
    socket_.reset();  // Before who listens at it, so that it is still its own.
  }

  absl::Status Join() {
    const LaunchEnvironment& environment = spec_.environment;
    deadline_ns_ = DeadlineAfter(RunningClock::Get().NowNs(), spec_.timeout_ns);
    if (!environment.server_host.empty()) {
      job_ = environment.job;
      return JoinAtAddress();
    }
    if (size() == 1) return ServeItself();
    job_ = NameOf(environment);
    prefix_ = absl::StrCat(FileNameOf(job_), ".");
    name_ = absl::StrCat(prefix_, environment.epoch);
    ASSIGN_OR_RETURN(
        folder_,
        UserFolder(spec_.folder.empty() ? UsualParents(Env::ProcessLookup())
                                        : std::vector{spec_.folder}));
    RETURN_IF_ERROR(CheckEpoch());
    return environment.rank == 0 ? ServeThisHost() : FindOnThisHost();
  }

  void Leave(int64_t timeout_ns) {
    left_by_ns_ = DeadlineAfter(RunningClock::Get().NowNs(), timeout_ns);
    client_->Leave(timeout_ns);
  }

  ControlClient& client() { return *client_; }
  int rank() const { return spec_.environment.rank; }
  int size() const { return spec_.environment.size; }
  int64_t timeout_ns() const { return spec_.timeout_ns; }

 private:
  // ---- On several hosts ----

  absl::Status JoinAtAddress() {
    const LaunchEnvironment& environment = spec_.environment;
    ASSIGN_OR_RETURN(const std::string token, TokenOf(environment));
    ControlClientSpec client = ClientSpec(token, spec_.timeout_ns);
    client.host = environment.server_host;
    client.port = environment.server_port;
    client.rank_0_serves = environment.rank_0_serves;
    if (!environment.rank_0_serves) return Connect(std::move(client));
    if (token.empty()) client.host = LoopbackOf(client.host);
    if (client.host.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", rank(), " of ", size(), ": MASTER_ADDR is ",
          environment.server_host,
          ", which is not this host's loopback, and there is no token: anybody "
          "could join. Set COMMSCHED_TOKEN, or COMMSCHED_TOKEN_FILE to a file "
          "that has it, equal on all ranks"));
    }
    if (environment.rank == 0) RETURN_IF_ERROR(ServeAtAddress(client));
    return WithAdvice(Connect(std::move(client)));
  }

  absl::Status ServeAtAddress(ControlClientSpec ask) {
    ControlServerSpec server = ServerSpec(ask.token);
    server.port = ask.port;
    server.address = ask.token.empty() ? ask.host : "0.0.0.0";
    const absl::Status status = Serve(std::move(server));
    if (status.code() != absl::StatusCode::kUnavailable) return status;
    // If it is this job's server, it says what is wrong.
    ask.connect_timeout_ns = kAskNs;
    const auto other = ControlClient::Connect(std::move(ask));
    if (other.status().code() == absl::StatusCode::kAlreadyExists) {
      return other.status();
    }
    return WithAdvice(status);
  }

  // What another program at the port does not know.
  absl::Status WithAdvice(const absl::Status& status) const {
    if (status.code() != absl::StatusCode::kUnavailable &&
        status.code() != absl::StatusCode::kUnauthenticated) {
      return status;
    }
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(),
                     "; COMMSCHED_PORT, equal on all ranks, says where rank 0 "
                     "is to listen, if another program has port ",
                     spec_.environment.server_port,
                     ", the one after MASTER_PORT"));
  }

  // ---- On this host ----

  // Nobody else is to find it.
  absl::Status ServeItself() {
    ASSIGN_OR_RETURN(const std::string token, MakeToken());
    RETURN_IF_ERROR(Serve(ServerSpec(token)));
    ControlClientSpec client = ClientSpec(token, spec_.timeout_ns);
    client.host = "127.0.0.1";
    client.port = server_->port();
    return Connect(std::move(client));
  }

  absl::Status ServeThisHost() {
    auto socket = HostSocket::Listen(folder_, name_, deadline_ns_);
    if (socket.status().code() == absl::StatusCode::kAlreadyExists) {
      return absl::AlreadyExistsError(
          absl::StrCat("job '", job_,
                       "' has a rank 0 already: ", socket.status().message()));
    }
    RETURN_IF_ERROR(socket.status());
    socket_ = *std::move(socket);
    ControlServerSpec server = ServerSpec("");
    server.listener = socket_->TakeListener().Release();
    RETURN_IF_ERROR(Serve(std::move(server)));
    return ConnectOnThisHost(name_);
  }

  absl::Status FindOnThisHost() {
    int64_t check_ns = 0;
    while (true) {
      const absl::Status last = ConnectOnThisHost(name_);
      // Whoever serves has gone, or does not yet.
      if (last.code() != absl::StatusCode::kNotFound &&
          last.code() != absl::StatusCode::kUnavailable) {
        return last;
      }
      const int64_t now_ns = RunningClock::Get().NowNs();
      if (now_ns >= deadline_ns_) {
        return absl::DeadlineExceededError(
            absl::StrCat("rank 0 of ", size(), " has not joined within ",
                         Seconds(spec_.timeout_ns), ": rank ", rank(),
                         " has not found it on this host, as that of job '",
                         job_, "': ", last.message()));
      }
      if (now_ns >= check_ns) {
        RETURN_IF_ERROR(CheckEpoch());
        check_ns = now_ns + kCheckEpochNs;
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  // A rank of an earlier epoch that is left over: the job has gone on.
  absl::Status CheckEpoch() {
    for (const std::string& name : NamesInFolder(folder_, prefix_)) {
      uint64_t epoch = 0;
      if (!absl::SimpleAtoi(name.substr(prefix_.size()), &epoch) ||
          epoch <= spec_.environment.epoch) {
        continue;
      }
      const absl::Status status = ConnectOnThisHost(name);
      if (status.code() == absl::StatusCode::kFailedPrecondition) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ConnectOnThisHost(const std::string& name) {
    ASSIGN_OR_RETURN(Descriptor connection, ConnectToHostSocket(folder_, name));
    const int64_t rest_ns = deadline_ns_ - RunningClock::Get().NowNs();
    ControlClientSpec client = ClientSpec("", std::max<int64_t>(rest_ns, 1));
    client.socket = connection.Release();
    client.rank_0_serves = true;
    return Connect(std::move(client));
  }

  // ---- Both ----

  ControlServerSpec ServerSpec(const std::string& token) {
    ControlServerSpec server;
    server.size = size();
    server.epoch = spec_.environment.epoch;
    server.job = job_;
    server.token = token;
    server.on_departed = [this](int present, int /*joined*/) {
      MutexLock lock(&mu_);
      present_ = present;
      changed_.SignalAll();
    };
    return server;
  }

  absl::Status Serve(ControlServerSpec spec) {
    ASSIGN_OR_RETURN(server_, ControlServer::Start(std::move(spec)));
    return absl::OkStatus();
  }

  ControlClientSpec ClientSpec(const std::string& token, int64_t timeout_ns) {
    ControlClientSpec client;
    client.job = job_;
    client.token = token;
    client.rank = rank();
    client.size = size();
    client.epoch = spec_.environment.epoch;
    client.place = OwnPlace(spec_.environment.host_id);
    client.place.links = spec_.links;
    client.connect_timeout_ns = timeout_ns;
    client.join_timeout_ns = spec_.timeout_ns;
    client.on_lost = spec_.on_lost;
    client.on_failed = spec_.on_failed;
    client.on_orders_differ = spec_.on_orders_differ;
    return client;
  }

  absl::Status Connect(ControlClientSpec client) {
    ASSIGN_OR_RETURN(client_, ControlClient::Connect(std::move(client)));
    joined_ = true;
    return absl::OkStatus();
  }

  const JobSpec spec_;
  int64_t deadline_ns_ = 0;
  int64_t left_by_ns_ = 0;  // 0: not told to leave.
  bool joined_ = false;
  std::string job_;  // Its name; "": none.
  // On one host: where the socket file is, and what begins its name.
  std::string folder_;
  std::string prefix_;
  std::string name_;

  Mutex mu_;
  CondVar changed_;
  int present_ ABSL_GUARDED_BY(mu_) = 1;  // At least this one.

  // After what on_departed touches.
  std::unique_ptr<HostSocket> socket_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<ControlClient> client_;
};

Job::Job(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Job::~Job() = default;

absl::StatusOr<std::unique_ptr<Job>> Job::Join(JobSpec spec) {
  auto impl = std::make_unique<Impl>(std::move(spec));
  RETURN_IF_ERROR(impl->Join());
  return std::unique_ptr<Job>(new Job(std::move(impl)));
}

void Job::Leave(int64_t timeout_ns) { impl_->Leave(timeout_ns); }
ControlClient& Job::client() { return impl_->client(); }
int Job::rank() const { return impl_->rank(); }
int Job::size() const { return impl_->size(); }
int64_t Job::timeout_ns() const { return impl_->timeout_ns(); }

}  // namespace commsched
