#ifndef COMMSCHED_TEST_FUZZ_PLUGIN_TABLES_FUZZ_H_
#define COMMSCHED_TEST_FUZZ_PLUGIN_TABLES_FUZZ_H_

#include <cstddef>
#include <cstdint>

namespace commsched {

// Reads a list of plugins whose tables are made of `data`: sizes, versions,
// flags, texts, and which functions are there. Aborts if a table is accepted
// that the host must not use. Returns the number of plugins accepted.
size_t FuzzPluginTables(const uint8_t* data, size_t size);

}  // namespace commsched

#endif  // COMMSCHED_TEST_FUZZ_PLUGIN_TABLES_FUZZ_H_
