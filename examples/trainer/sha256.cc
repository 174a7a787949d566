#include "examples/trainer/sha256.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace commsched::trainer {
namespace {

EVP_MD_CTX* Context(void* pointer) { return static_cast<EVP_MD_CTX*>(pointer); }

// libcrypto fails here only when it cannot allocate, or has SHA-256 disabled.
void Check(bool ok, const char* call) {
  if (ok) return;
  std::fprintf(stderr, "%s failed: libcrypto has no SHA-256 or no memory\n",
               call);
  std::abort();
}

}  // namespace

void Sha256::Free::operator()(void* context) const {
  EVP_MD_CTX_free(Context(context));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  Check(context_ != nullptr, "EVP_MD_CTX_new");
  Check(EVP_DigestInit_ex(Context(context_.get()), EVP_sha256(), nullptr) == 1,
        "EVP_DigestInit_ex");
}

void Sha256::Update(const void* data, size_t size) {
  Check(EVP_DigestUpdate(Context(context_.get()), data, size) == 1,
        "EVP_DigestUpdate");
}

std::string Sha256::HexDigest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  Check(EVP_DigestFinal_ex(Context(context_.get()), digest, &size) == 1,
        "EVP_DigestFinal_ex");
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace commsched::trainer
