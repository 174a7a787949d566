// How hard the property tests try, and where they start.
#ifndef COMMSCHED_TEST_SUPPORT_PROPERTY_H_
#define COMMSCHED_TEST_SUPPORT_PROPERTY_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace commsched::test {

// `base` times COMMSCHED_PROPERTY_SCALE percent (100 if unset), at least 1. The
// sanitizer builds run with a few percent.
inline int PropertyCases(int base) {
  const char* text = std::getenv("COMMSCHED_PROPERTY_SCALE");
  const long long percent = text == nullptr ? 100 : std::atoll(text);
  return static_cast<int>(std::max(1LL, base * percent / 100));
}

// COMMSCHED_PROPERTY_SEED (decimal, or 0x and hexadecimal), or a fixed default,
// so that a run without it is the same every time. Case k of a test uses
// PropertySeed() + k: one failing case is repeated by naming its seed, with the
// scale at 1.
inline uint64_t PropertySeed() {
  const char* text = std::getenv("COMMSCHED_PROPERTY_SEED");
  if (text == nullptr || *text == '\0') return 20261121;
  return std::strtoull(text, nullptr, 0);
}

// What to set to repeat the case of `seed`: SCOPED_TRACE(DescribeSeed(seed)).
inline std::string DescribeSeed(uint64_t seed) {
  const char* scale = std::getenv("COMMSCHED_PROPERTY_SCALE");
  return "repeat this case with COMMSCHED_PROPERTY_SEED=" +
         std::to_string(seed) +
         " COMMSCHED_PROPERTY_SCALE=1 (seed of the run " +
         std::to_string(PropertySeed()) + ", scale " +
         (scale == nullptr ? "100" : scale) + ")";
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_PROPERTY_H_
