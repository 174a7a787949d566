// Ranks of a host share memory with backend "ucx": else all would be right, and
// slow.
#include <fstream>
#include <string>

#include "test/conformance/backend_fixture.h"

namespace commsched {
namespace {

int NumMappedSegments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:commsched-ucx") != std::string::npos) ++count;
  }
  return count;
}

class SharedMemoryTest : public BackendTest {};

// They are threads here.
TEST_P(SharedMemoryTest, EachRankMapsTheSegmentsOfAll) {
  ASSERT_OK(OnCommAll(
      [](int /*rank*/, CommDriver& /*comm*/) { return absl::OkStatus(); }));
  EXPECT_EQ(NumMappedSegments(), size() * size());
}

bool IsUcxOnOneHost(const BackendCase& one) {
  return one.backend == "ucx" && one.config.empty() && !one.own_process;
}

COMMSCHED_INSTANTIATE_CONFORMANCE(SharedMemoryTest,
                                  BackendsWith(0, 2, IsUcxOnOneHost));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedMemoryTest);

}  // namespace
}  // namespace commsched
