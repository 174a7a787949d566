// What ranks say of themselves so that somebody else can tell whether they
// agree, without knowing what it is about.
#ifndef COMMSCHED_SRC_CONTROL_CLAIMS_H_
#define COMMSCHED_SRC_CONTROL_CLAIMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace commsched {

// That `subject` has `value`: all who claim the subject claim the same value,
// and, unless `holders` is 0, they are `holders` ranks. Hashes (XXH3), so that
// a claim has a size: two subjects may be taken for one, once in 2^64.
struct Claim {
  uint64_t subject = 0;
  uint64_t value_low = 0;
  uint64_t value_high = 0;
  uint32_t holders = 0;

  static Claim Of(absl::string_view subject, absl::string_view value,
                  uint32_t holders = 0);
  bool SameValue(const Claim& other) const {
    return value_low == other.value_low && value_high == other.value_high &&
           holders == other.holders;
  }
};

// Little endian, so that hosts may differ.
std::string EncodeClaims(absl::Span<const Claim> claims);
// From bytes that anybody may have sent.
absl::StatusOr<std::vector<Claim>> DecodeClaims(absl::string_view bytes);

// Whether claims hold together. Thread-compatible.
class ClaimTally {
 public:
  // Those of one rank, which claims a subject once.
  void Add(absl::Span<const Claim> claims);
  // Of all that were added.
  bool Hold() const;

 private:
  struct Claimed {
    Claim first;
    uint32_t num_holders = 0;
  };

  absl::flat_hash_map<uint64_t, Claimed> claimed_;
  bool differ_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_CLAIMS_H_
