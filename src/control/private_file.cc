#include "control/private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "control/sockets.h"
#include "control/token.h"

namespace commsched {

absl::Status SystemFailure(const char* what, const std::string& path) {
  const bool is_scarcity = errno == EMFILE || errno == ENFILE;
  return absl::Status(
      is_scarcity ? absl::StatusCode::kResourceExhausted
                  : absl::StatusCode::kUnavailable,
      absl::StrCat(path, ": cannot ", what, ": ",
                   std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
}

absl::Status CheckPrivate(const struct stat& info, const std::string& path) {
  if (info.st_uid == geteuid() && (info.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, " belongs to user ", info.st_uid, " and has mode ",
      absl::StrFormat("%03o", info.st_mode & 0777), "; it must belong to user ",
      geteuid(), ", and others may not read or write it"));
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  if (!fd.valid()) return SystemFailure("open it", path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemFailure("stat it", path);
  RETURN_IF_ERROR(CheckPrivate(info, path));
  std::string text(kMaxTokenBytes + 64, '\0');
  const ssize_t n = read(fd.get(), text.data(), text.size());
  if (n < 0) return SystemFailure("read it", path);
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace commsched
