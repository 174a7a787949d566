// From which size on ranks of a host read messages from each other's memory.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "test/plugin/ucx_ranks.h"
#include "test/support/comm_driver.h"
#include "test/support/joined_ranks.h"
#include "test/support/launches.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace {

// The largest piece that has been read of another's memory.
std::atomic<uint64_t> g_most_read{0};

}  // namespace

// In place of the C library's.
extern "C" __attribute__((visibility("default"))) ssize_t process_vm_readv(
    pid_t pid, const iovec* local, unsigned long num_local, const iovec* remote,
    unsigned long num_remote, unsigned long flags) noexcept {
  for (unsigned long i = 0; i < num_remote; ++i) {
    const uint64_t bytes = remote[i].iov_len;
    uint64_t most = g_most_read.load();
    while (bytes > most && !g_most_read.compare_exchange_weak(most, bytes)) {
    }
  }
  return syscall(SYS_process_vm_readv, pid, local, num_local, remote,
                 num_remote, flags);
}

namespace commsched {
namespace {

class UcxReadingTest : public testing::Test {
 protected:
  static constexpr int kSize = 4;
  // That says whose memory it is.
  static constexpr uint64_t kWord = sizeof(uint64_t);

  // An all-gather of such parts: the largest piece that was read for it.
  uint64_t MostReadOf(uint64_t part_bytes) {
    g_most_read = 0;
    EXPECT_OK(RunAllRanks(kSize, [&](int rank) -> absl::Status {
      CommDriver comm;
      absl::Status status = comm.Create(ranks_.WorldOf(rank).get(), {}, rank);
      const uint64_t count = part_bytes / sizeof(float);
      const std::vector<float> input(count, static_cast<float>(rank));
      std::vector<float> output(count * kSize);
      const commsched_member_t member = {
          input.data(), output.data(), count, nullptr, 0, 0, 0, 0};
      if (status.ok()) {
        status =
            comm.LaunchAndWait(LaunchOf(COMMSCHED_ALL_GATHER, COMMSCHED_F32,
                                        COMMSCHED_SUM, 0, 1, 1, &member));
      }
      for (int part = 0; status.ok() && part < kSize; ++part) {
        EXPECT_EQ(output[static_cast<uint64_t>(part + 1) * count - 1],
                  static_cast<float>(part));
      }
      const absl::Status met = ranks_.Meet("end", rank);
      return status.ok() ? met : status;
    }));
    return g_most_read;
  }

  JoinedRanks ranks_;
};

TEST_F(UcxReadingTest, OfOneHostMessagesAreReadFrom512KiBOn) {
  ASSERT_OK(JoinUcx("algorithm=levels", kSize, &ranks_));
  EXPECT_LE(MostReadOf((512 << 10) - 4), kWord);
  EXPECT_GT(MostReadOf(512 << 10), kWord);
}

TEST_F(UcxReadingTest, OfSeveralHostsMessagesAreReadFrom32KiBOn) {
  ASSERT_OK(JoinUcx("algorithm=levels", kSize, &ranks_, /*per_host=*/2));
  EXPECT_LE(MostReadOf((32 << 10) - 4), kWord);
  EXPECT_GT(MostReadOf(32 << 10), kWord);
}

TEST_F(UcxReadingTest, OrFromTheSizeThatIsAskedFor) {
  ASSERT_OK(JoinUcx("algorithm=levels;read_bytes=65536", kSize, &ranks_));
  EXPECT_LE(MostReadOf((64 << 10) - 4), kWord);
  EXPECT_GT(MostReadOf(64 << 10), kWord);
}

}  // namespace
}  // namespace commsched
