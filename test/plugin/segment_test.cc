// The memory that ranks of a host share with backend "ucx".
#include "plugins/ucx/host/segment.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::ucx {
namespace {

constexpr uint64_t kSegmentBytes = 64 << 10;

Descriptor Copy(const Segment& segment) {
  return Descriptor(fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
}

TEST(SegmentTest, IsZerosAndSharedWithWhoAttaches) {
  Segment created;
  ASSERT_TRUE(Segment::Create(kSegmentBytes, &created).ok());
  ASSERT_EQ(created.bytes(), kSegmentBytes);
  EXPECT_EQ(std::string(created.data(), kSegmentBytes),
            std::string(kSegmentBytes, '\0'));
  Segment attached;
  ASSERT_TRUE(Segment::Attach(Copy(created), kSegmentBytes, &attached).ok());
  ASSERT_NE(attached.data(), created.data());
  attached.data()[kSegmentBytes - 1] = 'x';
  EXPECT_EQ(created.data()[kSegmentBytes - 1], 'x');
}

#ifdef MADV_POPULATE_WRITE
// How many pages of this process's mapping there are. A sanitizer's own memory,
// which would count among page faults, does not matter.
int NumMappedPages(const void* data, uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<uint64_t> entries(bytes / page);
  const Descriptor file(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto size = static_cast<ssize_t>(entries.size() * sizeof(uint64_t));
  const auto offset = static_cast<off_t>(reinterpret_cast<uint64_t>(data) /
                                         page * sizeof(uint64_t));
  if (pread(file.get(), entries.data(), static_cast<size_t>(size), offset) !=
      size) {
    return -1;
  }
  return static_cast<int>(
      std::count_if(entries.begin(), entries.end(),
                    [](uint64_t entry) { return entry >> 63 != 0; }));
}

TEST(SegmentTest, WhatIsPreparedIsMapped) {
  constexpr uint64_t kBytes = 64 * kSegmentBytes;
  Segment created;
  ASSERT_TRUE(Segment::Create(kBytes, &created).ok());
  Segment attached;
  ASSERT_TRUE(Segment::Attach(Copy(created), kBytes, &attached).ok());
  if (madvise(created.data(), 1, MADV_POPULATE_WRITE) != 0) {
    GTEST_SKIP() << "this kernel populates no memory when it is asked to";
  }
  EXPECT_EQ(NumMappedPages(attached.data(), kBytes), 0);
  attached.Prepare(100, kBytes - 100);
  EXPECT_EQ(
      NumMappedPages(attached.data(), kBytes),
      static_cast<int>(kBytes / static_cast<uint64_t>(sysconf(_SC_PAGESIZE))));
}
#endif

TEST(SegmentTest, StaysMappedWhenItsCreatorIsGone) {
  Segment attached;
  {
    Segment created;
    ASSERT_TRUE(Segment::Create(kSegmentBytes, &created).ok());
    ASSERT_TRUE(Segment::Attach(Copy(created), kSegmentBytes, &attached).ok());
  }
  std::memset(attached.data(), 1, kSegmentBytes);
}

TEST(SegmentTest, NobodyMakesItSmaller) {
  Segment created;
  ASSERT_TRUE(Segment::Create(kSegmentBytes, &created).ok());
  EXPECT_NE(ftruncate(created.fd(), 0), 0);
  EXPECT_NE(ftruncate(created.fd(), 2 * kSegmentBytes), 0);
}

TEST(SegmentTest, WhatMayShrinkOrHasAnotherSizeIsNotAttached) {
  Segment created, attached;
  ASSERT_TRUE(Segment::Create(kSegmentBytes, &created).ok());
  EXPECT_EQ(Segment::Attach(Copy(created), 2 * kSegmentBytes, &attached).code,
            COMMSCHED_INVALID_ARGUMENT);
  Descriptor loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), kSegmentBytes), 0);
  EXPECT_EQ(Segment::Attach(std::move(loose), kSegmentBytes, &attached).code,
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(Segment::Attach(Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC)),
                            kSegmentBytes, &attached)
                .code,
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(attached.data(), nullptr);
}

TEST(SegmentTest, NobodyExecutesItWhereTheKernelCanSeeToThat) {
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL
  constexpr int kSealExec = 0x20;      // F_SEAL_EXEC
  const Descriptor probe(memfd_create("probe", MFD_CLOEXEC | kNoExecSeal));
  Segment created;
  ASSERT_TRUE(Segment::Create(kSegmentBytes, &created).ok());
  const int seals = fcntl(created.fd(), F_GET_SEALS);
  EXPECT_EQ((seals & kSealExec) != 0, probe.is_open());
}

TEST(SegmentTest, WhatCannotBeReservedIsAnErrorThatNamesTheSize) {
  // A limit of the size of files is one of this memory, too. The signal that
  // comes with it would end the child.
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {kSegmentBytes / 2, kSegmentBytes / 2};
    setrlimit(RLIMIT_FSIZE, &limit);
    Segment segment;
    const Outcome outcome = Segment::Create(kSegmentBytes, &segment);
    const bool is_named =
        outcome.code == COMMSCHED_RESOURCE_EXHAUSTED &&
        outcome.reason.find("65536 bytes") != std::string::npos &&
        segment.data() == nullptr;
    _exit(is_named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by a signal";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SegmentTest, WhatCannotBeMappedIsAnErrorThatNamesTheSize) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {1 << 20, 1 << 20};
    Segment segment;
    setrlimit(RLIMIT_AS, &limit);
    const Outcome outcome = Segment::Create(kSegmentBytes, &segment);
    const bool is_named = outcome.code == COMMSCHED_RESOURCE_EXHAUSTED &&
                          outcome.reason.find("map a segment of 65536 bytes") !=
                              std::string::npos;
    _exit(is_named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
// Sanitizers need more than that themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(status, 0);
#endif
}

}  // namespace
}  // namespace commsched::ucx
