#include "ucx/network/resources.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace commsched::ucx {
namespace {

// A worker takes some 20, and more for its first peers.
constexpr size_t kDescriptors = 48;

Outcome CheckThread() {
  try {
    std::thread([] {}).join();
    return {};
  } catch (const std::system_error& e) {
    return {COMMSCHED_RESOURCE_EXHAUSTED,
            "cannot start the thread of UCX: " + e.code().message()};
  }
}

Outcome CheckDescriptors() {
  std::vector<int> taken;
  while (taken.size() < kDescriptors) {
    const int fd = taken.empty() ? eventfd(0, EFD_CLOEXEC)
                                 : fcntl(taken[0], F_DUPFD_CLOEXEC, 0);
    if (fd < 0) break;
    taken.push_back(fd);
  }
  for (const int fd : taken) close(fd);
  if (taken.size() == kDescriptors) return {};
  return {COMMSCHED_RESOURCE_EXHAUSTED,
          "UCX needs " + std::to_string(kDescriptors) +
              " descriptors, and this process has " +
              std::to_string(taken.size()) + " left (ulimit -n)"};
}

}  // namespace

Outcome CheckResources() {
  const Outcome thread = CheckThread();
  return thread.ok() ? CheckDescriptors() : thread;
}

}  // namespace commsched::ucx
