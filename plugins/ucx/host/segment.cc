#include "ucx/host/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

namespace commsched::ucx {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Outcome NoMemory(const char* what, uint64_t bytes, int error) {
  return {IsForbidden(error) ? COMMSCHED_PERMISSION_DENIED
                             : COMMSCHED_RESOURCE_EXHAUSTED,
          "cannot " + std::string(what) + " a segment of " +
              std::to_string(bytes) +
              " bytes, which ranks of a host share: " + strerror(error)};
}

// Any signal has the kernel give back what it has reserved so far: those of a
// timer might never let it get to the end. And a limit of the size of files
// (ulimit -f), which this memory is to the kernel, would end the process by
// one.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~HeldSignals() {
    if (sigismember(&before_, SIGXFSZ) == 0) {
      const timespec now = {};
      sigset_t of_size;
      sigemptyset(&of_size);
      sigaddset(&of_size, SIGXFSZ);
      sigtimedwait(&of_size, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// Not to be executed, which vm.memfd_noexec=2 demands. Kernels before 6.3 do
// not know of it.
Descriptor NewMemory() {
  constexpr char kName[] = "commsched-ucx";
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL
  Descriptor fd(memfd_create(kName, kFlags | kNoExecSeal));
  if (fd.is_open() || errno != EINVAL) return fd;
  return Descriptor(memfd_create(kName, kFlags));
}

// 0, or the error.
int Reserve(int fd, uint64_t bytes) {
  const HeldSignals held;
  while (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

Outcome Segment::Create(uint64_t bytes, Segment* out) {
  Descriptor fd = NewMemory();
  if (!fd.is_open()) return NoMemory("create", bytes, errno);
  const int error = Reserve(fd.get(), bytes);
  if (error != 0) return NoMemory("reserve", bytes, error);
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return NoMemory("seal", bytes, errno);
  }
  Segment segment;
  const Outcome mapped = segment.Map(fd.get(), bytes);
  if (!mapped.ok()) return mapped;
  segment.fd_ = std::move(fd);
  *out = std::move(segment);
  return {};
}

Outcome Segment::Attach(const Descriptor& fd, uint64_t bytes, Segment* out) {
  struct stat found = {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      fstat(fd.get(), &found) != 0 ||
      static_cast<uint64_t>(found.st_size) != bytes) {
    return {COMMSCHED_INVALID_ARGUMENT,
            "no segment of " + std::to_string(bytes) + " bytes that stays so"};
  }
  Segment segment;
  const Outcome mapped = segment.Map(fd.get(), bytes);
  if (mapped.ok()) *out = std::move(segment);
  return mapped;
}

Outcome Segment::Map(int fd, uint64_t bytes) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return NoMemory("map", bytes, errno);
  data_ = static_cast<char*>(data);
  bytes_ = bytes;
  return {};
}

void Segment::Prepare(uint64_t begin, uint64_t bytes) const {
#ifdef MADV_POPULATE_WRITE
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t from = begin & ~(page - 1);
  madvise(data_ + from, begin + bytes - from, MADV_POPULATE_WRITE);
#endif
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Segment::Segment(Segment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fd_(std::move(other.fd_)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

}  // namespace commsched::ucx
