// The job token: who knows it may join.
#ifndef COMMSCHED_SRC_CONTROL_TOKEN_H_
#define COMMSCHED_SRC_CONTROL_TOKEN_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kMaxTokenBytes = 1024;

enum class Prover { kServer, kClient };

// Bytes that nobody can guess, from the system. kInternal if there are none.
absl::StatusOr<std::string> RandomBytes(size_t num_bytes);

// A new token: 64 hexadecimal digits.
absl::StatusOr<std::string> MakeToken();

// That `prover` knows `token`, which is not told: HMAC-SHA256 (RFC 2104) over
// its part and both nonces, so that neither an earlier proof nor the other
// side's can be used again.
std::string Prove(absl::string_view token, Prover prover,
                  absl::string_view server_nonce,
                  absl::string_view client_nonce);

// Takes the same time wherever the two differ.
bool SameProof(absl::string_view a, absl::string_view b);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_TOKEN_H_
