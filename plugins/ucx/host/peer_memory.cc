#include "ucx/host/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace commsched::ucx {
namespace {

// Nobody's memory.
const std::atomic<uint64_t> kNoValue{0};

}  // namespace

MemoryCard OwnMemoryCard(const std::atomic<uint64_t>& value) {
  MemoryCard card;
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char ids[32] = "";  // Of the namespace of process ids.
  if (readlink("/proc/self/ns/pid", ids, sizeof(ids) - 1) <= 0) boot.clear();
  if (boot.empty()) return card;  // Nobody reads.
  snprintf(card.machine, sizeof(card.machine), "%.40s %.31s", boot.c_str(),
           ids);
  card.pid = getpid();
  card.address = reinterpret_cast<uint64_t>(&value);
  card.value = value.load(std::memory_order_relaxed);
  return card;
}

bool CanRead(const MemoryCard& card) {
  const MemoryCard own = OwnMemoryCard(kNoValue);
  if (own.machine[0] == '\0' ||
      strncmp(own.machine, card.machine, sizeof(card.machine)) != 0) {
    return false;
  }
  uint64_t value = 0;
  const Outcome read = ReadMemory(static_cast<pid_t>(card.pid), card.address,
                                  &value, sizeof(value));
  return read.ok() && value == card.value;
}

Outcome ReadMemory(pid_t pid, uint64_t address, void* to, uint64_t bytes) {
  uint64_t done = 0;
  while (done < bytes) {
    const iovec local = {static_cast<char*>(to) + done, bytes - done};
    const iovec remote = {reinterpret_cast<void*>(address + done),
                          bytes - done};
    const ssize_t read = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (read > 0) {
      done += static_cast<uint64_t>(read);
      continue;
    }
    if (read < 0 && errno == EINTR) continue;
    return {COMMSCHED_UNAVAILABLE,
            "reading " + std::to_string(bytes) + " bytes of process " +
                std::to_string(pid) + ": " +
                (read == 0 ? "the memory is gone" : strerror(errno))};
  }
  return {};
}

// The value is read last: while it is there the memory has been as it was.
Outcome ReadMemory(const MemoryCard& card, uint64_t address, void* to,
                   uint64_t bytes) {
  uint64_t value = 0;
  const iovec locals[] = {{to, bytes}, {&value, sizeof(value)}};
  const iovec remotes[] = {
      {reinterpret_cast<void*>(address), bytes},
      {reinterpret_cast<void*>(card.address), sizeof(value)}};
  const auto pid = static_cast<pid_t>(card.pid);
  ssize_t read = -1;
  do {
    read = process_vm_readv(pid, locals, 2, remotes, 2, 0);
  } while (read < 0 && errno == EINTR);
  // Less than all: a signal has come in between, or a part is gone.
  if (read != static_cast<ssize_t>(bytes + sizeof(value))) {
    Outcome outcome = ReadMemory(pid, address, to, bytes);
    if (outcome.ok()) {
      outcome = ReadMemory(pid, card.address, &value, sizeof(value));
    }
    if (!outcome.ok()) return outcome;
  }
  if (value == card.value) return {};
  return {COMMSCHED_UNAVAILABLE,
          "reading " + std::to_string(bytes) + " bytes of process " +
              std::to_string(pid) + ": it has taken them back"};
}

}  // namespace commsched::ucx
