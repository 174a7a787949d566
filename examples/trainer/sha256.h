#ifndef COMMSCHED_EXAMPLES_TRAINER_SHA256_H_
#define COMMSCHED_EXAMPLES_TRAINER_SHA256_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace commsched::trainer {

// SHA-256 by libcrypto. Thread-compatible.
class Sha256 {
 public:
  Sha256();

  void Update(const void* data, size_t size);

  // 64 lower-case hexadecimal digits of everything so far. Ends the object's
  // use.
  std::string HexDigest();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;  // EVP_MD_CTX.
};

struct NamedWeights {
  std::string name;  // Hugging Face's.
  std::span<const float> values;
};

// The identity of a model: SHA-256 over the little-endian fp32 values, without
// padding, of the parameters in byte order of their names.
std::string WeightsSha256(std::vector<NamedWeights> weights);

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_SHA256_H_
