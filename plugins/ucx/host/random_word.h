#ifndef COMMSCHED_PLUGINS_UCX_HOST_RANDOM_WORD_H_
#define COMMSCHED_PLUGINS_UCX_HOST_RANDOM_WORD_H_

#include <cstdint>
#include <random>

namespace commsched::ucx {

// That nobody else knows or has.
inline uint64_t RandomWord() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_HOST_RANDOM_WORD_H_
