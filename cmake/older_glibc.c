// What the C++ library's archive asks of glibc 2.36, for those that are older:
// see commsched_link_for_wheel().
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

// As glibc's: random, and never a failure.
uint32_t arc4random(void) {
  uint32_t value = 0;
  if (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value)) abort();
  return value;
}
