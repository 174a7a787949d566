// How hard the property tests try.
#ifndef COMMSCHED_TEST_SUPPORT_PROPERTY_SCALE_H_
#define COMMSCHED_TEST_SUPPORT_PROPERTY_SCALE_H_

#include <algorithm>
#include <cstdlib>

namespace commsched {

// `iterations` times the percentage in COMMSCHED_PROPERTY_SCALE, 100 if unset,
// and at least 1. The sanitizer builds run with a few percent.
inline int ScaledIterations(int iterations) {
  const char* text = std::getenv("COMMSCHED_PROPERTY_SCALE");
  const long long percent = text == nullptr ? 100 : std::atoll(text);
  return static_cast<int>(std::max(1LL, iterations * percent / 100));
}

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_PROPERTY_SCALE_H_
