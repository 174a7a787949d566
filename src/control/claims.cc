#include "control/claims.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "control/wire.h"
#include "xxhash.h"

namespace commsched {
namespace {

constexpr size_t kClaimBytes = 3 * sizeof(uint64_t) + sizeof(uint32_t);

}  // namespace

Claim Claim::Of(absl::string_view subject, absl::string_view value,
                uint32_t holders) {
  const XXH128_hash_t hash = XXH3_128bits(value.data(), value.size());
  return {.subject = XXH3_64bits(subject.data(), subject.size()),
          .value_low = hash.low64,
          .value_high = hash.high64,
          .holders = holders};
}

std::string EncodeClaims(absl::Span<const Claim> claims) {
  WireWriter writer;
  for (const Claim& claim : claims) {
    writer(claim.subject, claim.value_low, claim.value_high, claim.holders);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<Claim>> DecodeClaims(absl::string_view bytes) {
  if (bytes.size() % kClaimBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("claims of ", bytes.size(),
                                                   " bytes are not of ",
                                                   kClaimBytes, " bytes each"));
  }
  std::vector<Claim> claims(bytes.size() / kClaimBytes);
  WireReader reader(bytes);
  for (Claim& claim : claims) {
    reader(claim.subject, claim.value_low, claim.value_high, claim.holders);
  }
  return claims;
}

void ClaimTally::Add(absl::Span<const Claim> claims) {
  for (const Claim& claim : claims) {
    Claimed& claimed =
        claimed_.try_emplace(claim.subject, Claimed{claim, 0}).first->second;
    differ_ = differ_ || !claimed.first.SameValue(claim);
    ++claimed.num_holders;
  }
}

bool ClaimTally::Hold() const {
  return !differ_ &&
         std::all_of(claimed_.begin(), claimed_.end(), [](const auto& each) {
           const Claimed& claimed = each.second;
           return claimed.first.holders == 0 ||
                  claimed.first.holders == claimed.num_holders;
         });
}

}  // namespace commsched
