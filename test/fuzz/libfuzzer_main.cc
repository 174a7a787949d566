// The door of a libFuzzer program to its entry.
#include "test/fuzz/entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  commsched::test::COMMSCHED_FUZZ_ENTRY(data, size);
  return 0;
}
