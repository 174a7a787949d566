#include "checkpoint/files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <utility>

namespace commsched::engine {
namespace {

// More at once gains nothing, and Linux writes no more than 2 GiB.
constexpr uint64_t kMostAtOnce = uint64_t{1} << 30;

commsched_status_t CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return COMMSCHED_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
      return COMMSCHED_PERMISSION_DENIED;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return COMMSCHED_RESOURCE_EXHAUSTED;
    default:
      return COMMSCHED_UNAVAILABLE;
  }
}

Status Failed(const char* doing, const std::string& path, int error) {
  return Status(CodeOf(error),
                std::string("cannot ") + doing + " '" + path +
                    "': " + std::generic_category().message(error));
}

// What errno says of the call that just failed.
Status Failed(const char* doing, const std::string& path) {
  return Failed(doing, path, errno);
}

// Standard input, output and error may be closed. What is written there must
// not land in a file that got the number of one of them.
int AwayFromStandard(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, int{STDERR_FILENO} + 1);
  const int error = errno;
  close(descriptor);
  errno = error;
  return moved;
}

// Opens a file that is not there under `prefix` and an ending that cannot be
// guessed. One that gets the number of a standard stream is given up: by the
// time that it has another, something may have been printed into it.
int OpenTemporary(const std::string& prefix, std::string* out_path) {
  constexpr int kTries = 100;
  Descriptor
      standard[kTries];  // Kept meanwhile, so that the next gets another.
  for (int i = 0; i < kTries; ++i) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return -1;
    char ending[32];
    std::snprintf(ending, sizeof(ending), ".%016" PRIx64 ".tmp", random);
    *out_path = prefix + ending;
    const int made =
        open(out_path->c_str(),
             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (made > STDERR_FILENO || (made < 0 && errno != EEXIST)) return made;
    if (made < 0) continue;
    unlink(out_path->c_str());
    standard[i] = Descriptor(made);
  }
  errno = EEXIST;
  return -1;
}

// Some file systems only make files with names.
int OpenUnnamed(const std::string& folder) {
#ifdef O_TMPFILE
  const int made = AwayFromStandard(
      open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (made >= 0) return made;
  if (errno != EOPNOTSUPP && errno != EISDIR) return -1;
#endif
  std::string name = folder + "/commsched-pool-XXXXXX";
  const int named = AwayFromStandard(mkostemp(name.data(), O_CLOEXEC));
  if (named >= 0) unlink(name.c_str());
  return named;
}

Status ReadAt(const Descriptor& file, const std::string& path, uint64_t offset,
              void* out, uint64_t bytes) {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(file.get(), next, std::min(bytes, kMostAtOnce),
                              static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    if (got == 0) {
      return Status(COMMSCHED_DATA_LOSS, "file '" + path + "' ends at byte " +
                                             std::to_string(offset) + "; " +
                                             std::to_string(bytes) +
                                             " more are needed");
    }
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return Status();
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, slash + 1);
}

// A name is on the disk when its folder is.
Status SyncFolder(const std::string& folder) {
  const Descriptor descriptor(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) return Failed("open folder", folder);
  // Some file systems have nothing to do for a folder, and say EINVAL.
  if (fsync(descriptor.get()) == 0 || errno == EINVAL) return Status();
  return Failed("sync folder", folder);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

void Descriptor::Close() {
  if (value_ >= 0) close(value_);
  value_ = -1;
}

NewFile::~NewFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status NewFile::Create(const std::string& path, const std::string& prefix) {
  path_ = path;
  std::string temporary;
  descriptor_ = Descriptor(OpenTemporary(prefix, &temporary));
  if (descriptor_.get() < 0) return Failed("create", temporary);
  temporary_ = std::move(temporary);
  bytes_ = 0;
  return Status();
}

Status NewFile::Append(const void* data, uint64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written =
        write(descriptor_.get(), next, std::min(bytes, kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", temporary_);
    bytes_ += static_cast<uint64_t>(written);
    next += written;
    bytes -= static_cast<uint64_t>(written);
  }
  return Status();
}

Status NewFile::Publish() {
  if (fsync(descriptor_.get()) != 0) return Failed("sync", temporary_);
  struct stat about = {};
  if (fstat(descriptor_.get(), &about) != 0) return Failed("sync", temporary_);
  if (static_cast<uint64_t>(about.st_size) != bytes_) {
    return Status(COMMSCHED_DATA_LOSS,
                  "file '" + temporary_ + "' has " +
                      std::to_string(about.st_size) + " bytes, but " +
                      std::to_string(bytes_) +
                      " were written: something else writes to it; '" + path_ +
                      "' is left as it was");
  }
  descriptor_.Close();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Failed("make", path_);
  }
  temporary_.clear();
  return SyncFolder(FolderOf(path_));
}

bool IsTemporaryEnding(const std::string& ending) {
  constexpr size_t kDigits = 16;
  return ending.size() == kDigits + 5 && ending[0] == '.' &&
         ending.find_first_not_of("0123456789abcdef", 1) == kDigits + 1 &&
         ending.compare(kDigits + 1, 4, ".tmp") == 0;
}

Status OldFile::Open(const std::string& path) {
  path_ = path;
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  descriptor_ = Descriptor(
      AwayFromStandard(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)));
  if (descriptor_.get() < 0) return Failed("open", path);
  struct stat about = {};
  if (fstat(descriptor_.get(), &about) != 0) return Failed("open", path);
  if (!S_ISREG(about.st_mode)) {
    return InvalidArgument("'" + path + "' is not a regular file");
  }
  bytes_ = static_cast<uint64_t>(about.st_size);
  return Status();
}

Status OldFile::Read(uint64_t offset, void* out, uint64_t bytes) const {
  return ReadAt(descriptor_, path_, offset, out, bytes);
}

Status UnnamedFile::Create(const std::string& folder) {
  ENGINE_RETURN_IF_ERROR(CheckFolder(folder));
  name_ = folder + "/(a file without a name)";
  descriptor_ = Descriptor(OpenUnnamed(folder));
  if (descriptor_.get() < 0) return Failed("make a file in", folder);
  return Status();
}

Status UnnamedFile::Reserve(uint64_t bytes) {
  const auto most = static_cast<uint64_t>(std::numeric_limits<off_t>::max());
  int error = EFBIG;
  if (bytes <= most) {
    do {
      error = posix_fallocate(descriptor_.get(), 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
  }
  if (error == 0) return Status();
  return Failed(("reserve " + std::to_string(bytes) + " bytes in").c_str(),
                name_, error);
}

Status UnnamedFile::Read(uint64_t offset, void* out, uint64_t bytes) const {
  return ReadAt(descriptor_, name_, offset, out, bytes);
}

Status UnnamedFile::Write(uint64_t offset, const void* from, uint64_t bytes) {
  return WriteAt(descriptor_, name_, offset, from, bytes);
}

Status WriteAt(const Descriptor& file, const std::string& path, uint64_t offset,
               const void* from, uint64_t bytes) {
  const char* next = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = pwrite(file.get(), next, std::min(bytes, kMostAtOnce),
                               static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed("write", path);
    next += put;
    offset += static_cast<uint64_t>(put);
    bytes -= static_cast<uint64_t>(put);
  }
  return Status();
}

Status ReadWhole(const std::string& path, uint64_t most, std::string* out) {
  OldFile file;
  ENGINE_RETURN_IF_ERROR(file.Open(path));
  if (file.bytes() > most) {
    return InvalidArgument("file '" + path + "' has " +
                           std::to_string(file.bytes()) +
                           " bytes; the limit is " + std::to_string(most));
  }
  std::string text(file.bytes(), '\0');
  ENGINE_RETURN_IF_ERROR(file.Read(0, text.data(), text.size()));
  *out = std::move(text);
  return Status();
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Status OpenOrCreate(const std::string& path, Descriptor* out) {
  *out = Descriptor(AwayFromStandard(
      open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666)));
  return out->get() < 0 ? Failed("create", path) : Status();
}

Status CheckFolder(const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0) return Failed("open folder", path);
  if (S_ISDIR(about.st_mode)) return Status();
  return InvalidArgument("'" + path + "' is not a folder");
}

}  // namespace commsched::engine
