#ifndef COMMSCHED_SRC_CLI_OUTLET_H_
#define COMMSCHED_SRC_CLI_OUTLET_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace commsched::cli {

// A stream of this process, such as its standard output, to which it writes
// without ever waiting for the reader: what does not fit yet is kept. The file
// descriptor may be shared with other processes, so its flags stay as they are:
// pipes and terminals are opened once more, without blocking.
//
// Thread-compatible. The process ignores SIGPIPE.
class Outlet {
 public:
  // Above this the outlet is full, and who has more to write should wait.
  static constexpr size_t kFullBytes = size_t{256} << 10;

  // `fd` stays the caller's.
  explicit Outlet(int fd);
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  bool is_terminal() const { return is_terminal_; }

  // Keeps `text` for Write(), also if the outlet is full. Once writing has
  // failed, drops it.
  void Add(const std::string& text);

  // Writes what the reader takes now.
  void Write();

  // To poll for POLLOUT while bytes are pending.
  int fd() const { return fd_; }
  size_t pending_bytes() const { return pending_.size() - begin_; }
  bool is_full() const { return pending_bytes() >= kFullBytes; }
  // Bytes that the reader has taken so far.
  int64_t written_bytes() const { return written_bytes_; }

  // The errno with which writing has failed for good, or 0.
  int error() const { return error_; }
  // Nobody reads any more.
  bool has_no_reader() const;

 private:
  enum class Kind { kFile, kSocket, kNonBlocking, kPolled };

  int64_t WriteSome();

  const int given_fd_;
  int fd_;
  Kind kind_ = Kind::kFile;
  bool is_terminal_ = false;
  std::string pending_;
  size_t begin_ = 0;  // What precedes it in `pending_` is written.
  int64_t written_bytes_ = 0;
  int error_ = 0;
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_OUTLET_H_
