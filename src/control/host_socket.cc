#include "control/host_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/running_clock.h"
#include "base/status_macros.h"
#include "control/private_file.h"
#include "xxhash.h"

namespace commsched {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(5);
// Of a name, so that with a usual folder it fits a socket's address.
constexpr size_t kMaxReadable = 24;

// The address of a socket file, also where the path is longer than that may be.
class FileAddress {
 public:
  FileAddress(const std::string& folder, const std::string& name) {
    std::string path = absl::StrCat(folder, "/", name);
    if (path.size() >= sizeof(address_.sun_path)) {
      folder_ =
          Descriptor(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      path = absl::StrCat("/proc/self/fd/", folder_.get(), "/", name);
    }
    address_.sun_family = AF_UNIX;
    path.resize(std::min(path.size(), sizeof(address_.sun_path) - 1));
    std::memcpy(address_.sun_path, path.c_str(), path.size() + 1);
  }

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  static socklen_t size() { return sizeof(sockaddr_un); }

 private:
  Descriptor folder_;
  sockaddr_un address_ = {};
};

// Who listens at a socket file.
struct Owner {
  bool lives = false;
  pid_t process = 0;  // 0: not one that this process can see.
  Descriptor connection;
};

Owner OwnerOf(const std::string& folder, const std::string& name) {
  Owner owner;
  owner.connection = OpenSocket(AF_UNIX, SOCK_STREAM);
  const FileAddress address(folder, name);
  if (!owner.connection.valid()) {
    owner.lives = true;  // It is not known, so nobody takes its place.
    return owner;
  }
  if (connect(owner.connection.get(), address.get(), FileAddress::size()) !=
      0) {
    owner.connection.Close();
    // Busy: so many wait that it takes no more at the moment.
    owner.lives = errno == EAGAIN;
    return owner;
  }
  ucred credentials = {};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(owner.connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials,
                 &bytes) == 0) {
    owner.process = credentials.pid;
  }
  // A child that it has forked may still have the socket.
  owner.lives =
      owner.process == 0 || kill(owner.process, 0) == 0 || errno != ESRCH;
  return owner;
}

// While it lives no other process makes or removes files in the folder.
class FolderLock {
 public:
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) noexcept = default;
  // Also for a child that was forked meanwhile and has the descriptor, too.
  ~FolderLock() {
    if (fd_.valid()) flock(fd_.get(), LOCK_UN);
  }

  static absl::StatusOr<FolderLock> Take(const std::string& folder,
                                         int64_t deadline_ns) {
    FolderLock lock;
    lock.fd_ =
        Descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock.fd_.valid()) return SystemFailure("open it", folder);
    while (flock(lock.fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return SystemFailure("lock it", folder);
      }
      if (RunningClock::Get().NowNs() >= deadline_ns) {
        return absl::DeadlineExceededError(
            absl::StrCat(folder, ": another process keeps it locked"));
      }
      std::this_thread::sleep_for(kRetry);
    }
    return lock;
  }

 private:
  FolderLock() = default;

  Descriptor fd_;
};

void RemoveWhatTheDeadHaveLeft(const std::string& folder) {
  for (const std::string& name : NamesInFolder(folder, "")) {
    const std::string path = absl::StrCat(folder, "/", name);
    struct stat info;
    if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) continue;
    if (!OwnerOf(folder, name).lives) unlink(path.c_str());
  }
}

}  // namespace

std::vector<std::string> UsualParents(const Env::Lookup& lookup) {
  std::vector<std::string> parents;
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* value = lookup(name);
    if (value != nullptr && *value != '\0') parents.emplace_back(value);
  }
  parents.emplace_back("/tmp");
  return parents;
}

absl::StatusOr<std::string> UserFolder(
    const std::vector<std::string>& parents) {
  absl::Status last = absl::UnavailableError("there is no folder for files");
  for (const std::string& parent : parents) {
    const std::string folder = absl::StrCat(parent, "/commsched-", geteuid());
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      last = SystemFailure("create it", folder);
      continue;
    }
    struct stat info;
    if (lstat(folder.c_str(), &info) != 0) {
      return SystemFailure("stat it", folder);
    }
    if (!S_ISDIR(info.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder, " is not a folder"));
    }
    RETURN_IF_ERROR(CheckPrivate(info, folder));
    return folder;
  }
  return last;
}

std::string FileNameOf(absl::string_view text) {
  const absl::string_view some = text.substr(0, kMaxReadable);
  std::string name(some.data(), some.size());
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') {
      c = '_';
    }
  }
  absl::StrAppend(
      &name, "-",
      absl::Hex(XXH3_64bits(text.data(), text.size()), absl::kZeroPad16));
  return name;
}

std::vector<std::string> NamesInFolder(const std::string& folder,
                                       absl::string_view prefix) {
  std::vector<std::string> names;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return names;
  while (const dirent* entry =
             readdir(entries)) {  // NOLINT(concurrency-mt-unsafe)
    const absl::string_view name = entry->d_name;
    if (name == "." || name == ".." ||
        name.substr(0, prefix.size()) != prefix) {
      continue;
    }
    names.emplace_back(name.data(), name.size());
  }
  closedir(entries);
  return names;
}

absl::StatusOr<std::unique_ptr<HostSocket>> HostSocket::Listen(
    const std::string& folder, const std::string& name, int64_t deadline_ns) {
  ASSIGN_OR_RETURN(const FolderLock lock,
                   FolderLock::Take(folder, deadline_ns));
  const std::string path = absl::StrCat(folder, "/", name);
  RemoveWhatTheDeadHaveLeft(folder);
  if (const Owner owner = OwnerOf(folder, name); owner.lives) {
    return absl::AlreadyExistsError(absl::StrCat(
        path, " is that of ",
        owner.process == 0 ? "another process"
                           : absl::StrCat("process ", owner.process),
        ", which runs"));
  }
  std::unique_ptr<HostSocket> socket(new HostSocket(folder, name));
  const FileAddress address(folder, name);
  auto listener = ListenAt(address.get(), FileAddress::size());
  if (!listener.ok()) {
    return absl::Status(listener.status().code(),
                        absl::StrCat(path, " cannot be listened on: ",
                                     listener.status().message()));
  }
  socket->listener_ = *std::move(listener);
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return SystemFailure("stat it", path);
  socket->device_ = info.st_dev;
  socket->inode_ = info.st_ino;
  return socket;
}

HostSocket::~HostSocket() {
  if (inode_ == 0) return;
  constexpr int64_t kLockNs = int64_t{1} * 1000 * 1000 * 1000;
  const auto lock =
      FolderLock::Take(folder_, RunningClock::Get().NowNs() + kLockNs);
  const std::string path = absl::StrCat(folder_, "/", name_);
  struct stat info;
  if (lock.ok() && lstat(path.c_str(), &info) == 0 && info.st_dev == device_ &&
      info.st_ino == inode_) {
    unlink(path.c_str());
  }
}

absl::StatusOr<Descriptor> ConnectToHostSocket(const std::string& folder,
                                               const std::string& name) {
  Owner owner = OwnerOf(folder, name);
  if (owner.lives && owner.connection.valid()) {
    return std::move(owner.connection);
  }
  return absl::NotFoundError(
      absl::StrCat(folder, "/", name,
                   owner.lives ? " takes no connection at the moment"
                               : " is not there, or its process is gone"));
}

}  // namespace commsched
