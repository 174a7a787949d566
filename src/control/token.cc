#include "control/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

// Unless the program has done so already, OpenSSL is not to be taken down by
// exit(), where threads of this library may still be in it.
void KeepOpenSsl() {
  static const bool kept =
      OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  (void)kept;
}

}  // namespace

absl::StatusOr<std::string> RandomBytes(size_t num_bytes) {
  KeepOpenSsl();
  std::string bytes(num_bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                 static_cast<int>(num_bytes)) != 1) {
    return absl::InternalError("the system gave no random bytes");
  }
  return bytes;
}

absl::StatusOr<std::string> MakeToken() {
  ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(32));
  return absl::BytesToHexString(bytes);
}

std::string Prove(absl::string_view token, Prover prover,
                  absl::string_view server_nonce,
                  absl::string_view client_nonce) {
  KeepOpenSsl();
  const std::string data = absl::StrCat(
      prover == Prover::kServer ? "commsched server" : "commsched client",
      server_nonce, client_nonce);
  std::string proof(kProofBytes, '\0');
  unsigned int num_bytes = kProofBytes;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
       reinterpret_cast<const unsigned char*>(data.data()), data.size(),
       reinterpret_cast<unsigned char*>(proof.data()), &num_bytes);
  return proof;
}

bool SameProof(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace commsched
