// A switch between hosts that are network namespaces of this machine: frames of
// a port leave at the link's rate, travel for the delay, and arrive at the
// link's rate. For kernels that have no netem (scripts/hosts.py).
//
//   bench_delay_switch DEVICE PORTS BITS_PER_S DELAY_US
//
// Makes TAP devices DEVICE0, DEVICE1, ... in its namespace, prints "ready", and
// runs until SIGTERM; they may be moved elsewhere meanwhile. Port i has the
// hardware address 02:00:00:00:00:<i>. BITS_PER_S 0: no limit. Frames of many
// segments (TSO) stay whole and count as what they would be on the wire.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <string>
#include <vector>

namespace {

constexpr int kMaxPorts = 200;
constexpr size_t kMaxFrame = 70000;
constexpr size_t kEthernet = 14;  // Addresses and type.
// Between frames on a wire: preamble, checksum and gap.
constexpr size_t kBetween = 24;
// What a port holds at most before it takes no more from its host.
constexpr int64_t kMaxQueueNs = 10'000'000;

// In front of each frame: Virtual I/O Device 1.1, 5.1.6 (the kernel's header is
// not C++).
struct VirtioHeader {
  uint8_t flags;
  uint8_t gso_type;
  uint16_t hdr_len;
  uint16_t gso_size;
  uint16_t csum_start;
  uint16_t csum_offset;
};
constexpr uint8_t kNoSegments = 0;

volatile std::sig_atomic_t stopped = 0;

int64_t NowNs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

struct Frame {
  int64_t due_ns = 0;
  std::vector<char> bytes;
};

struct Port {
  int fd = -1;
  int64_t sent_ns = 0;        // When the last frame from the host has left it.
  int64_t arrives_ns = 0;     // When the last frame to the host has arrived.
  std::deque<Frame> to_host;  // In order of `due_ns`.
};

// What the frame, behind its virtio header, takes on a wire.
size_t WireBytes(const char* data, size_t size) {
  VirtioHeader header;
  std::memcpy(&header, data, sizeof(header));
  const size_t frame = size - sizeof(header);
  const bool is_whole = header.gso_type == kNoSegments ||
                        header.gso_size == 0 || frame <= header.hdr_len;
  if (is_whole) return frame + kBetween;
  const size_t payload = frame - header.hdr_len;
  const size_t segments = (payload + header.gso_size - 1) / header.gso_size;
  return payload + segments * (header.hdr_len + kBetween);
}

class Switch {
 public:
  Switch(int num_ports, double bits_per_s, int64_t delay_ns)
      : ns_per_byte_(bits_per_s == 0 ? 0 : 8e9 / bits_per_s),
        delay_ns_(delay_ns),
        ports_(static_cast<size_t>(num_ports)),
        polled_(static_cast<size_t>(num_ports)) {}

  bool Open(const std::string& device) {
    for (size_t i = 0; i < ports_.size(); ++i) {
      const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
      ifreq request = {};
      request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
      const std::string name = device + std::to_string(i);
      name.copy(request.ifr_name, IFNAMSIZ - 1);
      int header_size = sizeof(VirtioHeader);
      if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0 ||
          ioctl(fd, TUNSETVNETHDRSZ, &header_size) != 0 ||
          ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
        std::fprintf(stderr, "bench_delay_switch: %s: %s\n", request.ifr_name,
                     std::strerror(errno));
        return false;
      }
      ports_[i].fd = fd;
      polled_[i].fd = fd;
    }
    return true;
  }

  void Run() {
    while (stopped == 0) {
      const int64_t now_ns = NowNs();
      Deliver(now_ns);
      // A port whose queue is full makes its host wait.
      int64_t wake_ns = INT64_MAX;
      for (size_t i = 0; i < ports_.size(); ++i) {
        const Port& port = ports_[i];
        const bool is_full = port.sent_ns > now_ns + kMaxQueueNs;
        polled_[i].events = is_full ? 0 : POLLIN;
        if (is_full) wake_ns = std::min(wake_ns, port.sent_ns - kMaxQueueNs);
        if (!port.to_host.empty()) {
          wake_ns = std::min(wake_ns, port.to_host.front().due_ns);
        }
      }
      const int64_t rest_ns = std::max<int64_t>(0, wake_ns - now_ns);
      const timespec rest = {rest_ns / 1'000'000'000, rest_ns % 1'000'000'000};
      if (ppoll(polled_.data(), polled_.size(),
                wake_ns == INT64_MAX ? nullptr : &rest, nullptr) <= 0) {
        continue;
      }
      for (size_t i = 0; i < ports_.size(); ++i) {
        if ((polled_[i].revents & POLLIN) != 0) TakeFrom(i);
      }
    }
  }

 private:
  void Deliver(int64_t now_ns) {
    for (Port& port : ports_) {
      while (!port.to_host.empty() && port.to_host.front().due_ns <= now_ns) {
        const std::vector<char>& bytes = port.to_host.front().bytes;
        // A host that takes nothing loses it, as from any card.
        [[maybe_unused]] const ssize_t written =
            write(port.fd, bytes.data(), bytes.size());
        port.to_host.pop_front();
      }
    }
  }

  void TakeFrom(size_t from) {
    const ssize_t read_bytes = read(ports_[from].fd, buffer_, sizeof(buffer_));
    if (read_bytes < static_cast<ssize_t>(sizeof(VirtioHeader) + kEthernet)) {
      return;
    }
    const auto size = static_cast<size_t>(read_bytes);
    const auto wire_ns = static_cast<int64_t>(
        static_cast<double>(WireBytes(buffer_, size)) * ns_per_byte_);
    Port& port = ports_[from];
    port.sent_ns = std::max(port.sent_ns, NowNs()) + wire_ns;
    const auto* target =
        reinterpret_cast<const unsigned char*>(buffer_) + sizeof(VirtioHeader);
    const bool is_for_all = (target[0] & 1) != 0;
    for (size_t to = 0; to < ports_.size(); ++to) {
      if (to != from && (is_for_all || target[5] == to)) {
        Send(port.sent_ns, wire_ns, size, &ports_[to]);
      }
    }
  }

  // Its last byte has left at `sent_ns`.
  void Send(int64_t sent_ns, int64_t wire_ns, size_t size, Port* to) {
    to->arrives_ns = std::max(sent_ns + delay_ns_, to->arrives_ns + wire_ns);
    to->to_host.push_back({to->arrives_ns, {buffer_, buffer_ + size}});
  }

  const double ns_per_byte_;
  const int64_t delay_ns_;
  std::vector<Port> ports_;
  std::vector<pollfd> polled_;
  char buffer_[kMaxFrame];
};

}  // namespace

int main(int argc, char** argv) {
  const int ports = argc == 5 ? std::atoi(argv[2]) : 0;
  const double bits_per_s = argc == 5 ? std::atof(argv[3]) : -1;
  const int64_t delay_us = argc == 5 ? std::atoll(argv[4]) : -1;
  if (ports < 2 || ports > kMaxPorts || bits_per_s < 0 || delay_us < 0) {
    std::fprintf(stderr,
                 "usage: bench_delay_switch DEVICE PORTS BITS_PER_S DELAY_US, "
                 "2..%d ports\n",
                 kMaxPorts);
    return 2;
  }
  std::signal(SIGTERM, [](int) { stopped = 1; });
  std::signal(SIGINT, [](int) { stopped = 1; });
  prctl(PR_SET_TIMERSLACK, 1UL);
  Switch between(ports, bits_per_s, delay_us * 1000);
  if (!between.Open(argv[1])) return 1;
  std::puts("ready");
  std::fflush(stdout);
  between.Run();
  return 0;
}
