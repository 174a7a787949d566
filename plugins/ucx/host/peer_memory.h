// Memory of other processes of this machine, read by the kernel
// (process_vm_readv): a byte is copied once, where it goes through a shared
// segment twice. UCX has a transport for that, too ("cma"), but 1.13 ends the
// process when the other one is gone in the middle of it.
#ifndef COMMSCHED_PLUGINS_UCX_HOST_PEER_MEMORY_H_
#define COMMSCHED_PLUGINS_UCX_HOST_PEER_MEMORY_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "support/outcome.h"

namespace commsched::ucx {

// What a process tells others, so that they can find out whether they may read
// its memory. Sent as it is.
struct MemoryCard {
  char machine[96] = "";  // Equal where process ids mean the same.
  int64_t pid = 0;
  uint64_t address = 0;  // Of a value that only this process has,
  uint64_t value = 0;    // and the value.
};

// Of this process, with `value`, which stays where it is for as long as anybody
// may read this process's memory.
MemoryCard OwnMemoryCard(const std::atomic<uint64_t>& value);

// Whether this process may read the memory of the one that `card` is of: the
// same machine and user, and no rule against it (Yama's ptrace_scope). Tries.
bool CanRead(const MemoryCard& card);

// Copies `bytes` at `address` of process `pid` to `to`. UNAVAILABLE, saying
// why, if not all of them could be read: the process, or the memory, is gone.
Outcome ReadMemory(pid_t pid, uint64_t address, void* to, uint64_t bytes);

// Likewise of the process that `card` is of. Also UNAVAILABLE if it has not the
// value of its card any more: then what is at `address` may be something else.
Outcome ReadMemory(const MemoryCard& card, uint64_t address, void* to,
                   uint64_t bytes);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_PEER_MEMORY_H_
