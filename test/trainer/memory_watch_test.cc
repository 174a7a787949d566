#include "examples/trainer/memory_watch.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace commsched::trainer {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

std::vector<char> Touched(uint64_t bytes) {
  return std::vector<char>(bytes, 1);
}

TEST(MemoryWatchTest, AFieldOfTheStatusIsReadInBytes) {
  const auto bytes = [](const char* text, const char* field) {
    std::istringstream status(text);
    return BytesInStatus(status, field);
  };
  const char* status = "Name:\tprog\nVmHWM:\t    1234 kB\nVmRSS:\t 10 kB\n";
  EXPECT_EQ(bytes(status, "VmHWM"), uint64_t{1234} << 10);
  EXPECT_EQ(bytes(status, "VmRSS"), uint64_t{10} << 10);
  EXPECT_EQ(bytes(status, "Vm"), 0u);
  EXPECT_EQ(bytes(status, "VmSwap"), 0u);
  EXPECT_EQ(bytes("VmHWM: many kB", "VmHWM"), 0u);
}

TEST(MemoryWatchTest, SavesTakeWhatTheirSaversKeepAndWhatThePeakGrowsBy) {
  MemoryWatch watch;
  watch.BeforeSaver();
  const std::vector<char> kept = Touched(32 * kMib);
  watch.AfterSaver();
  EXPECT_EQ(watch.SaveBytes(), 0u);  // Nothing was saved.
  watch.BeforeFirstSave();
  EXPECT_GE(watch.SaveBytes(), 24 * kMib);
  const uint64_t before = watch.PeakBytes();
  const std::vector<char> written = Touched(64 * kMib);
  EXPECT_GE(watch.PeakBytes(), before + 48 * kMib);
  EXPECT_GE(watch.SaveBytes(), 72 * kMib);
}

}  // namespace
}  // namespace commsched::trainer
