#ifndef COMMSCHED_SRC_SESSION_SESSION_ARENA_H_
#define COMMSCHED_SRC_SESSION_SESSION_ARENA_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/world.h"
#include "session/session_spec.h"

namespace commsched {

// A session's own memory, which goes back to where it came from: the caller's
// allocator, else the backend, else the rank's device.
//
// Thread-compatible.
class SessionArena {
 public:
  static constexpr uint64_t kAlignment = 256;  // Of the caller's memory.

  SessionArena() = default;
  SessionArena(const SessionArena&) = delete;
  SessionArena& operator=(const SessionArena&) = delete;
  ~SessionArena();

  // `bytes` for the rank of `spec`; nothing if 0. Where there is no memory,
  // `spec.allocator.trim` is called and it is tried once more.
  // kInvalidArgument, naming the address, if the caller's memory is not aligned
  // or not of the rank's device.
  absl::Status Allocate(const SessionSpec& spec, uint64_t bytes);
  // It stays for ever: something may still write to it.
  void Keep() { address_ = nullptr; }

  char* address() const { return static_cast<char*>(address_); }
  uint64_t bytes() const { return bytes_; }
  uint64_t retries() const { return retries_; }

 private:
  using Source = std::function<absl::StatusOr<void*>(uint64_t bytes)>;

  absl::StatusOr<void*> Try(const Source& source, const Allocator& allocator,
                            uint64_t bytes);
  absl::Status AllocateByCaller(const SessionSpec& spec, uint64_t bytes);
  absl::Status AllocateByBackend(const SessionSpec& spec, uint64_t bytes);

  void* address_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t retries_ = 0;
  std::function<void(void* address)> release_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_SESSION_ARENA_H_
