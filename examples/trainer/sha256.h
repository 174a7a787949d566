#ifndef COMMSCHED_EXAMPLES_TRAINER_SHA256_H_
#define COMMSCHED_EXAMPLES_TRAINER_SHA256_H_

#include <openssl/evp.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"

namespace commsched::trainer {

// SHA-256 by libcrypto. Where that has no SHA-256, or no memory, the program
// ends. Thread-compatible.
class Sha256 {
 public:
  Sha256() {
    Check(context_ != nullptr &&
          EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Update(const void* data, size_t size) {
    Check(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }

  // 64 lower-case hexadecimal digits of everything so far. Ends the object's
  // use.
  std::string HexDigest() {
    std::string digest(32, '\0');
    Check(EVP_DigestFinal_ex(context_.get(),
                             reinterpret_cast<unsigned char*>(digest.data()),
                             nullptr) == 1);
    return absl::BytesToHexString(digest);
  }

 private:
  static void Check(bool ok) {
    if (ok) return;
    std::fputs("libcrypto has no SHA-256 or no memory\n", stderr);
    std::abort();
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_{
      EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_SHA256_H_
