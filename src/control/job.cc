#include "control/job.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/mutex.h"
#include "base/running_clock.h"
#include "base/status_macros.h"
#include "control/server.h"
#include "control/token.h"

namespace commsched {
namespace {

// How often a rank looks for the file, and how long it tries what that says.
constexpr auto kLook = std::chrono::milliseconds(5);
constexpr int64_t kTryNs = int64_t{1} * 1000 * 1000 * 1000;

absl::Status Failed(const char* what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(path, ": cannot ", what, ": ",
                   std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
}

// That only this user can read and write it.
absl::Status CheckPrivate(const struct stat& info, const std::string& path) {
  if (info.st_uid == geteuid() && (info.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " belongs to user ", info.st_uid, " and has mode ",
      absl::StrFormat("%03o", info.st_mode & 0777), "; it must belong to user ",
      geteuid(), ", and others may not read or write it"));
}

// All of a small file that only this user can read. kNotFound if there is none.
absl::StatusOr<std::string> ReadPrivate(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  if (fd < 0) return Failed("open it", path);
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed("stat it", path);
  RETURN_IF_ERROR(CheckPrivate(info, path));
  std::string text(kMaxTokenBytes + 64, '\0');
  const ssize_t n = read(fd, text.data(), text.size());
  if (n < 0) return Failed("read it", path);
  text.resize(static_cast<size_t>(n));
  return text;
}

// Whole or not at all.
absl::Status WritePrivate(const std::string& path, absl::string_view text) {
  const std::string draft = absl::StrCat(path, ".", getpid());
  unlink(draft.c_str());
  const int fd =
      open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("create it", draft);
  const ssize_t n = write(fd, text.data(), text.size());
  close(fd);
  if (n == static_cast<ssize_t>(text.size()) &&
      rename(draft.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const absl::Status status = Failed("write it", path);
  unlink(draft.c_str());
  return status;
}

// The folder of this user for such files.
absl::StatusOr<std::string> FolderOf(const JobSpec& spec) {
  std::string parent = spec.folder;
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    if (!parent.empty()) break;
    const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe)
    if (value != nullptr) parent = value;
  }
  if (parent.empty()) parent = "/tmp";
  const std::string folder = absl::StrCat(parent, "/commsched-", geteuid());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Failed("create it", folder);
  }
  struct stat info;
  if (lstat(folder.c_str(), &info) != 0) return Failed("stat it", folder);
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is not a folder"));
  }
  RETURN_IF_ERROR(CheckPrivate(info, folder));
  return folder;
}

absl::StatusOr<std::string> TokenOf(const LaunchEnvironment& environment) {
  if (!environment.token.empty() || environment.token_file.empty()) {
    return environment.token;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadPrivate(environment.token_file));
  return std::string(absl::StripAsciiWhitespace(text));
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
    if (!path_.empty()) unlink(path_.c_str());
  }

  absl::Status Join() {
    const LaunchEnvironment& environment = spec_.environment;
    deadline_ns_ = DeadlineAfter(RunningClock::Get().NowNs(), spec_.timeout_ns);
    if (!environment.server_host.empty()) return JoinAtAddress();
    if (environment.rank == 0) return ServeThisHost();
    return FindOnThisHost();
  }

  void Leave(int64_t timeout_ns) {
    left_by_ns_ = DeadlineAfter(RunningClock::Get().NowNs(), timeout_ns);
    client_->Leave(timeout_ns);
  }

  ControlClient& client() { return *client_; }
  int rank() const { return spec_.environment.rank; }
  int size() const { return spec_.environment.size; }

 private:
  absl::Status JoinAtAddress() {
    const LaunchEnvironment& environment = spec_.environment;
    ASSIGN_OR_RETURN(const std::string token, TokenOf(environment));
    if (environment.rank_0_serves && environment.rank == 0) {
      RETURN_IF_ERROR(Serve(environment.server_port, token,
                            token.empty() ? "127.0.0.1" : "0.0.0.0"));
    }
    return Connect(environment.server_host, environment.server_port, token,
                   spec_.timeout_ns);
  }

  absl::Status ServeThisHost() {
    ASSIGN_OR_RETURN(const std::string token, MakeToken());
    RETURN_IF_ERROR(Serve(0, token, "127.0.0.1"));
    if (size() > 1) {
      ASSIGN_OR_RETURN(std::string path, PathOfJob());
      RETURN_IF_ERROR(
          WritePrivate(path, absl::StrCat(server_->port(), " ", token, "\n")));
      path_ = std::move(path);
    }
    return Connect("127.0.0.1", server_->port(), token, spec_.timeout_ns);
  }

  // A file that an earlier job has left leads nowhere; so look again.
  absl::Status FindOnThisHost() {
    ASSIGN_OR_RETURN(const std::string path, PathOfJob());
    absl::Status last;
    while (RunningClock::Get().NowNs() < deadline_ns_) {
      const absl::StatusOr<std::string> text = ReadPrivate(path);
      last = text.status();
      if (text.ok()) {
        last = ConnectTo(*text);
        if (last.ok()) return last;
        // This is the right server, and it does not want this rank.
        if (last.code() == absl::StatusCode::kAlreadyExists ||
            last.code() == absl::StatusCode::kInvalidArgument) {
          return last;
        }
      } else if (last.code() != absl::StatusCode::kNotFound) {
        return last;
      }
      std::this_thread::sleep_for(kLook);
    }
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", rank(),
                     " has not found rank 0 on this host: ", last.message()));
  }

  absl::Status ConnectTo(absl::string_view text) {
    const size_t space = text.find(' ');
    int port = 0;
    if (space == absl::string_view::npos || text.back() != '\n' ||
        !absl::SimpleAtoi(text.substr(0, space), &port) || port < 1 ||
        port > 65535) {
      return absl::DataLossError("its file is not one of commsched");
    }
    const absl::string_view token =
        absl::StripAsciiWhitespace(text.substr(space + 1));
    return Connect("127.0.0.1", static_cast<uint16_t>(port),
                   std::string(token.data(), token.size()), kTryNs);
  }

  absl::StatusOr<std::string> PathOfJob() const {
    ASSIGN_OR_RETURN(const std::string folder, FolderOf(spec_));
    const LaunchEnvironment& environment = spec_.environment;
    // Ranks of a launcher that says nothing have the same parent.
    const std::string job = environment.job.empty()
                                ? absl::StrCat("parent-", getppid())
                                : environment.job;
    return absl::StrCat(folder, "/", job, ".", environment.epoch);
  }

  absl::Status Serve(uint16_t port, const std::string& token,
                     const char* address) {
    ControlServerSpec server;
    server.size = size();
    server.epoch = spec_.environment.epoch;
    server.address = address;
    server.port = port;
    server.token = token;
    server.on_departed = [this](int present, int /*joined*/) {
      MutexLock lock(&mu_);
      present_ = present;
      changed_.SignalAll();
    };
    ASSIGN_OR_RETURN(server_, ControlServer::Start(std::move(server)));
    return absl::OkStatus();
  }

  absl::Status Connect(const std::string& host, uint16_t port,
                       const std::string& token, int64_t timeout_ns) {
    ControlClientSpec client;
    client.host = host;
    client.port = port;
    client.token = token;
    client.rank = rank();
    client.size = size();
    client.epoch = spec_.environment.epoch;
    client.connect_timeout_ns = timeout_ns;
    client.on_lost = spec_.on_lost;
    client.on_failed = spec_.on_failed;
    ASSIGN_OR_RETURN(client_, ControlClient::Connect(std::move(client)));
    joined_ = true;
    return absl::OkStatus();
  }

  const JobSpec spec_;
  int64_t deadline_ns_ = 0;
  int64_t left_by_ns_ = 0;  // 0: not told to leave.
  bool joined_ = false;
  std::string path_;  // Of the file that this rank has written.

  Mutex mu_;
  CondVar changed_;
  int present_ ABSL_GUARDED_BY(mu_) = 1;  // At least this one.

  // After what on_over touches.
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

}  // namespace commsched
