#ifndef COMMSCHED_TEST_TRAINER_TENSOR_DIGEST_H_
#define COMMSCHED_TEST_TRAINER_TENSOR_DIGEST_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace commsched::trainer {

// Enough of a tensor to tell it from a wrong one: what digest() of reference.py
// writes.
struct Digest {
  double norm;
  double projection;
  std::vector<double> samples;
};

Digest DigestOf(const std::string& name, std::span<const float> values,
                uint64_t seed, int64_t num_samples);

// A random projection of a tensor is as large as its norm, and its error as
// large as the norm of the tensor's error: hence the norm is what both are
// compared with. Samples are compared as one vector.
void ExpectClose(const std::string& name, const Digest& actual,
                 const nlohmann::json& expected, double tolerance);

}  // namespace commsched::trainer

#endif  // COMMSCHED_TEST_TRAINER_TENSOR_DIGEST_H_
