#ifndef COMMSCHED_TEST_FUZZ_GRAPH_JSON_FUZZ_H_
#define COMMSCHED_TEST_FUZZ_GRAPH_JSON_FUZZ_H_

#include <cstddef>
#include <cstdint>

// Reads `data` as a graph. What is accepted must be written and read back
// equal, and have dependencies or a cycle; anything else ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#endif  // COMMSCHED_TEST_FUZZ_GRAPH_JSON_FUZZ_H_
