// Where the ranks of a job that are on one host meet: a socket file.
#ifndef COMMSCHED_SRC_CONTROL_HOST_SOCKET_H_
#define COMMSCHED_SRC_CONTROL_HOST_SOCKET_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/env.h"
#include "control/sockets.h"

namespace commsched {

// Where a user's files of this kind may be, in this order: XDG_RUNTIME_DIR,
// TMPDIR, /tmp.
std::vector<std::string> UsualParents(const Env::Lookup& lookup);

// The folder of this user in the first of `parents` in which there can be one:
// a variable may outlive the folder that it names. Made if it is not there.
// kFailedPrecondition if others may read or write it.
absl::StatusOr<std::string> UserFolder(const std::vector<std::string>& parents);

// A file name for what anybody may have chosen: some of `text`, so that it can
// be recognised, and a hash of all of it.
std::string FileNameOf(absl::string_view text);

// A socket file of this process, at which others can connect as long as it
// lives. Thread-compatible.
class HostSocket {
 public:
  // `folder` is a UserFolder(). kAlreadyExists, with its process, if somebody
  // who lives has that name; what the dead have left in the folder is removed.
  // kDeadlineExceeded if another process keeps the folder locked until
  // `deadline_ns` of RunningClock, kUnavailable if the file cannot be made.
  static absl::StatusOr<std::unique_ptr<HostSocket>> Listen(
      const std::string& folder, const std::string& name, int64_t deadline_ns);
  // Removes the file, unless it is another's meanwhile.
  ~HostSocket();
  HostSocket(const HostSocket&) = delete;
  HostSocket& operator=(const HostSocket&) = delete;

  // What it listens on, once.
  Descriptor TakeListener() { return std::move(listener_); }

 private:
  HostSocket(std::string folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  const std::string folder_;
  const std::string name_;
  Descriptor listener_;
  dev_t device_ = 0;  // Of the file, with `inode_`.
  ino_t inode_ = 0;
};

// Connects to the socket file of a process that lives. kNotFound if there is
// none, or its process is gone.
absl::StatusOr<Descriptor> ConnectToHostSocket(const std::string& folder,
                                               const std::string& name);

// Names in `folder` that begin with `prefix`.
std::vector<std::string> NamesInFolder(const std::string& folder,
                                       absl::string_view prefix);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_HOST_SOCKET_H_
