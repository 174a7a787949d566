// Memory that ranks of a host share. It has no name, so none is left when a
// process is killed: who is to map it is handed the descriptor (handover.h).
#ifndef COMMSCHED_PLUGINS_UCX_HOST_SEGMENT_H_
#define COMMSCHED_PLUGINS_UCX_HOST_SEGMENT_H_

#include <cerrno>
#include <cstdint>

#include "support/outcome.h"
#include "ucx/host/descriptor.h"

namespace commsched::ucx {

// Whether `error`, an errno, says that this process may not do something,
// rather than that something is scarce.
inline bool IsForbidden(int error) {
  return error == EACCES || error == EPERM || error == ENOSYS;
}

// Owns a mapping, or none. Moves; the memory stays where it is.
class Segment {
 public:
  // New memory, all zeros. All of it is taken from the system now, so that a
  // lack of it is RESOURCE_EXHAUSTED here, with the size, and no SIGBUS later;
  // and nobody can make it smaller. Its pages are on the caller's node.
  // PERMISSION_DENIED if the kernel makes no such memory for this process.
  static Outcome Create(uint64_t bytes, Segment* out);
  // Memory that another process has created. `fd` stays the caller's.
  // INVALID_ARGUMENT if it is no memory of that size that stays so;
  // RESOURCE_EXHAUSTED if it cannot be mapped.
  static Outcome Attach(const Descriptor& fd, uint64_t bytes, Segment* out);

  Segment() = default;
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  // Has this process use a part of it without page faults, if the kernel can.
  void Prepare(uint64_t begin, uint64_t bytes) const;

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Of memory that was created here; else -1.
  int fd() const { return fd_.get(); }

 private:
  Outcome Map(int fd, uint64_t bytes);

  char* data_ = nullptr;
  uint64_t bytes_ = 0;
  Descriptor fd_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_SEGMENT_H_
