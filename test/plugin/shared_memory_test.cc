// What backend "ucx" says of little shared memory.
#include "plugins/ucx/shared_memory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched::ucx {
namespace {

using testing::HasSubstr;

TEST(SharedMemoryTextTest, LittleRoomIsNamedWithWhatThereIs) {
  const std::string text =
      SharedMemoryText("/dev/shm", uint64_t{8} << 20, uint64_t{3984} << 10);
  EXPECT_THAT(text,
              HasSubstr("/dev/shm has 8192 KiB, of which 3984 KiB are free, "
                        "and UCX takes 4208 KiB or more per rank"));
  EXPECT_THAT(text, HasSubstr("--shm-size"));
}

TEST(SharedMemoryTextTest, OfEnoughNothingIsSaid) {
  EXPECT_EQ(
      SharedMemoryText("/dev/shm", uint64_t{64} << 20, uint64_t{60} << 20), "");
  EXPECT_EQ(SharedMemoryText("/no/such/folder"), "");
}

}  // namespace
}  // namespace commsched::ucx
