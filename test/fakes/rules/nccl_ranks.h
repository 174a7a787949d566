// What rules of NCCL run on: two ranks, on a thread and a device each.
#ifndef COMMSCHED_TEST_FAKES_RULES_NCCL_RANKS_H_
#define COMMSCHED_TEST_FAKES_RULES_NCCL_RANKS_H_

#include <functional>
#include <string>
#include <vector>

#include "test/fakes/rules/vendor.h"

namespace commsched::rules {

inline constexpr int kRanks = 2;
inline constexpr size_t kCount = 256;

// One rank: its device, stream, communicator, and memory for kCount floats per
// rank on either side.
struct Rank {
  const Cuda& cuda;
  const Nccl& nccl;
  int rank = 0;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  float* send = nullptr;
  float* receive = nullptr;
  std::string error = "";

  void Must(int code) {
    if (code == 0 || !error.empty()) return;
    error = "rank " + std::to_string(rank) + ": a call failed with code " +
            std::to_string(code);
  }
  void Require(bool holds, const char* what) {
    if (!holds && error.empty()) error = std::string("does not hold: ") + what;
  }
  void Synchronize() { Must(cuda.StreamSynchronize(stream)); }
  std::vector<float> Read(const float* from, size_t count) {
    std::vector<float> values(count);
    Must(cuda.Memcpy(values.data(), from, count * sizeof(float),
                     cudaMemcpyDeviceToHost));
    return values;
  }
  void Write(float* to, float value, size_t count) {
    const std::vector<float> values(count, value);
    Must(cuda.Memcpy(to, values.data(), count * sizeof(float),
                     cudaMemcpyHostToDevice));
    Must(cuda.StreamSynchronize(nullptr));  // `stream` does not wait for it.
  }
};

using Body = std::function<void(Rank&)>;

// "", or what does not hold. Where there is one device only, nothing can be
// shown, nor by an NCCL that is older than `oldest`. `aborts`: the body ends
// the communicators.
std::string OnRanks(const Body& body, bool aborts = false, int oldest = 0);

}  // namespace commsched::rules

#endif  // COMMSCHED_TEST_FAKES_RULES_NCCL_RANKS_H_
