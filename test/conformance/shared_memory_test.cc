// Ranks of a host share memory with backend "ucx": else all would be right, and
// slow.
#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "test/conformance/backend_fixture.h"
#include "test/support/await.h"
#include "test/support/launches.h"

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

// They are threads here. Who joins needs a tree.
TEST_P(SharedMemoryTest, EachRankMapsTheSegmentsOfThoseThatItNeeds) {
  std::atomic<int> num_done{0};
  ASSERT_OK(OnCommAll([&](int /*rank*/, CommDriver& comm) -> absl::Status {
    const auto await_all = [&](int times) {
      ++num_done;
      EXPECT_TRUE(test::Await([&] { return num_done >= times * size(); }));
    };
    await_all(1);
    EXPECT_EQ(NumMappedSegments(), size() + 2 * (size() - 1));
    await_all(2);
    std::vector<float> values(2 * static_cast<size_t>(size()));
    const commsched_member_t member{
        values.data(), values.data() + size(), 1, nullptr, 0, 0, 0, 0};
    const absl::Status done = comm.LaunchAndWait(
        LaunchOf(COMMSCHED_ALL_TO_ALL, COMMSCHED_F32, 0, 0, 1, 1, &member));
    await_all(3);
    EXPECT_EQ(NumMappedSegments(), size() * size());
    return done;
  }));
}

bool IsUcxOnOneHost(const BackendCase& one) {
  return one.backend == "ucx" && one.config.empty() && !one.own_process;
}

COMMSCHED_INSTANTIATE_CONFORMANCE(SharedMemoryTest,
                                  BackendsWith(0, 2, IsUcxOnOneHost));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedMemoryTest);

}  // namespace
}  // namespace commsched
