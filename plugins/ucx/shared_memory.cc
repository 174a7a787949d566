#include "shared_memory.h"

#include <sys/statvfs.h>

#include <cstdlib>

namespace commsched::ucx {
namespace {

// A rank's receive buffers, which UCX makes when the rank is opened; it makes
// as much again if many messages come early.
constexpr uint64_t kRankBytes = uint64_t{4208} << 10;

std::string Kib(uint64_t bytes) { return std::to_string(bytes >> 10) + " KiB"; }

}  // namespace

std::string SharedMemoryFolder() {
  const char* const folder = getenv("UCX_POSIX_DIR");
  return folder == nullptr ? "/dev/shm" : folder;
}

std::string SharedMemoryText(const std::string& folder, uint64_t bytes,
                             uint64_t free_bytes) {
  if (free_bytes >= 2 * kRankBytes) return "";
  return folder + " has " + Kib(bytes) + ", of which " + Kib(free_bytes) +
         " are free, and UCX takes " + Kib(kRankBytes) +
         " or more per rank: make it larger (docker run --shm-size), or let "
         "UCX do without it (UCX_TLS=^posix)";
}

std::string SharedMemoryText(const std::string& folder) {
  struct statvfs room = {};
  if (statvfs(folder.c_str(), &room) != 0) return "";
  return SharedMemoryText(folder, uint64_t{room.f_blocks} * room.f_frsize,
                          uint64_t{room.f_bavail} * room.f_frsize);
}

}  // namespace commsched::ucx
