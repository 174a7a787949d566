#ifndef COMMSCHED_PLUGINS_UCX_HOST_DESCRIPTOR_H_
#define COMMSCHED_PLUGINS_UCX_HOST_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace commsched::ucx {

// Owns a file descriptor, or none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    fd_ = other.Release();
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_DESCRIPTOR_H_
