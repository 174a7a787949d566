// A tool of NVTX's that writes down which ranges it is told of.
#ifndef COMMSCHED_TEST_NVTX_NVTX_TOOL_H_
#define COMMSCHED_TEST_NVTX_NVTX_TOOL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace commsched::test {

struct ToolRange {
  std::string domain;
  std::string name;    // Empty: not one that was registered.
  uint64_t begin = 0;  // Counted over the beginnings and ends of all ranges.
  uint64_t end = 0;    // 0: open.
};

// All since the last call.
std::vector<ToolRange> TakeToolRanges();
// Names that were registered, and not counted before.
uint64_t TakeToolNames();

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_NVTX_NVTX_TOOL_H_
