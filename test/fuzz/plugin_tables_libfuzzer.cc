// The libFuzzer program's door.
#include "test/fuzz/plugin_tables_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  commsched::FuzzPluginTables(data, size);
  return 0;
}
