#ifndef COMMSCHED_PLUGINS_UCX_SHARED_MEMORY_H_
#define COMMSCHED_PLUGINS_UCX_SHARED_MEMORY_H_

#include <cstdint>
#include <string>

namespace commsched::ucx {

// Where UCX makes the memory that ranks of a machine share.
std::string SharedMemoryFolder();

// "/dev/shm has 8192 KiB, of which 3984 KiB are free; ..." for a folder of
// `bytes` of which `free_bytes` are free, and what to do about it; "" if that
// is enough for a rank.
std::string SharedMemoryText(const std::string& folder, uint64_t bytes,
                             uint64_t free_bytes);

// The same of a folder as it is; "" also if there is none.
std::string SharedMemoryText(const std::string& folder);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_SHARED_MEMORY_H_
