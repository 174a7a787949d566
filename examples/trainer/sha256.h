#ifndef COMMSCHED_EXAMPLES_TRAINER_SHA256_H_
#define COMMSCHED_EXAMPLES_TRAINER_SHA256_H_

#include <cstddef>
#include <memory>
#include <string>

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

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_SHA256_H_
