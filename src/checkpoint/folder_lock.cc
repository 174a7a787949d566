#include "checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "checkpoint/format/checkpoint_index.h"

namespace commsched::engine {
namespace {

// Byte 0 of the lock's file: shared by the savers of a run; exclusive while the
// first of them says which run it is, and while the last removes the file.
// Bytes from 1 on: exclusive, one for each saver of the run.
//
// The locks are of open files, not of processes: savers of several ranks in one
// process are told apart.

constexpr size_t kMaxTextBytes = 256;

// Somebody holds byte 0 alone for a few system calls. Who takes longer than
// this has been stopped.
constexpr std::chrono::seconds kPatience{5};

// Returns 0 or errno.
int SetLock(int descriptor, short type, uint64_t at) {  // NOLINT(runtime/int)
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(at);
  lock.l_len = 1;
  return fcntl(descriptor, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

bool IsHeld(int error) { return error == EAGAIN || error == EACCES; }

// Whether the file system has no locks.
bool IsUnsupported(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP ||
         error == EINVAL;
}

Status CannotLock(const std::string& path, int error) {
  return Status(
      COMMSCHED_UNAVAILABLE,
      "cannot lock '" + path + "': " + std::generic_category().message(error));
}

// "run RUN\nprocess 1234 on HOST\n"
std::string TextOf(const std::string& run) {
  std::array<char, 65> host = {};
  gethostname(host.data(), host.size() - 1);
  return "run " + run + "\nprocess " + std::to_string(getpid()) + " on " +
         host.data() + "\n";
}

}  // namespace

// Lets go first: of two that end at a time, each would find the other there.
FolderLock::~FolderLock() {
  if (!held_) return;
  SetLock(descriptor_.get(), F_UNLCK, 0);
  if (SetLock(descriptor_.get(), F_WRLCK, 0) != 0) return;
  if (IsCurrent()) unlink(path_.c_str());
}

// Whether the file that is open is still the one of that name.
bool FolderLock::IsCurrent() const {
  struct stat mine = {};
  struct stat there = {};
  return fstat(descriptor_.get(), &mine) == 0 &&
         lstat(path_.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

std::string FolderLock::Holder() const {
  std::array<char, kMaxTextBytes> text = {};
  const ssize_t bytes = pread(descriptor_.get(), text.data(), text.size(), 0);
  return std::string(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
}

Status FolderLock::Take(const std::string& folder, const std::string& run,
                        const std::string& member) {
  folder_ = folder;
  path_ = folder + "/" + kLockName;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < kPatience) {
    ENGINE_RETURN_IF_ERROR(OpenOrCreate(path_, &descriptor_));
    bool done = false;
    ENGINE_RETURN_IF_ERROR(TakeShared(run, &done));
    if (done && !held_) return Status();
    // Whoever was last may have removed it since it was opened.
    if (done && IsCurrent()) return TakeMember(member);
    held_ = false;
    descriptor_.Close();
    std::this_thread::yield();
  }
  return Status(COMMSCHED_UNAVAILABLE,
                "engine: folder '" + folder_ + "' stays locked by '" + path_ +
                    "'; a process that saves to it has been stopped");
}

// Sets `out_done` if that need not be tried again.
Status FolderLock::TakeShared(const std::string& run, bool* out_done) {
  *out_done = false;
  const int file = descriptor_.get();
  int error = SetLock(file, F_WRLCK, 0);
  if (error == 0) {
    const std::string text = TextOf(run);
    if (ftruncate(file, 0) != 0) return CannotLock(path_, errno);
    ENGINE_RETURN_IF_ERROR(
        WriteAt(descriptor_, path_, 0, text.data(), text.size()));
    error = SetLock(file, F_RDLCK, 0);
    held_ = *out_done = error == 0;
    return error == 0 ? Status() : CannotLock(path_, error);
  }
  if (IsUnsupported(error)) {
    *out_done = true;
    return Status();
  }
  if (!IsHeld(error)) return CannotLock(path_, error);
  error = SetLock(file, F_RDLCK, 0);
  if (IsHeld(error)) return Status();  // Held alone: not for long.
  if (error != 0) return CannotLock(path_, error);
  const std::string holder = Holder();
  const std::string mine = "run " + run + "\n";
  if (holder.compare(0, mine.size(), mine) == 0) {
    held_ = *out_done = true;
    return Status();
  }
  const size_t line = holder.find('\n');
  std::string who = holder.substr(0, line);
  if (line != std::string::npos) {
    who += " (" + holder.substr(line + 1, holder.rfind('\n') - line - 1) + ")";
  }
  return Status(COMMSCHED_UNAVAILABLE,
                "engine: " + who + " saves to folder '" + folder_ + "'; run '" +
                    run + "' must wait for its end or save to another folder");
}

Status FolderLock::TakeMember(const std::string& member) {
  // Positive, as an off_t.
  const uint64_t at = 1 + (HashOf(member.data(), member.size()) >> 2);
  const int error = SetLock(descriptor_.get(), F_WRLCK, at);
  if (error == 0) return Status();
  if (!IsHeld(error)) return CannotLock(path_, error);
  return Status(COMMSCHED_ALREADY_EXISTS,
                "engine: a saver of this run saves " + member + " to folder '" +
                    folder_ + "' already; give each engine a slice of its own");
}

}  // namespace commsched::engine
