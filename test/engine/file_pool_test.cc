// The pool that is a file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "commsched/pool.h"
#include "test/engine/file_faults.h"
#include "test/engine/toy_checkpoint.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct PoolDelete {
  void operator()(commsched_file_pool_t* pool) const {
    commsched_file_pool_destroy(pool);
  }
};
using PoolHandle = std::unique_ptr<commsched_file_pool_t, PoolDelete>;

PoolHandle PoolIn(const std::string& folder) {
  commsched_file_pool_t* pool = nullptr;
  EXPECT_EQ(commsched_file_pool_create(folder.c_str(), &pool), COMMSCHED_OK)
      << commsched_engine_last_error();
  return PoolHandle(pool);
}

TEST(FilePoolTest, WhatIsReservedReadsAsZerosAndThenAsItWasWritten) {
  const TemporaryFolder folder;
  const PoolHandle handle = PoolIn(folder.path());
  const commsched_pool_t pool = commsched_file_pool_table(handle.get());
  ASSERT_EQ(pool.reserve(pool.user, 100'000), COMMSCHED_OK);
  std::vector<char> read(100'000, 'x');
  ASSERT_EQ(pool.read(pool.user, 0, read.data(), read.size()), COMMSCHED_OK);
  EXPECT_EQ(read, std::vector<char>(100'000, '\0'));
  const std::vector<char> written(70'000, 'y');
  ASSERT_EQ(pool.write(pool.user, 20'000, written.data(), written.size()),
            COMMSCHED_OK);
  ASSERT_EQ(pool.read(pool.user, 19'999, read.data(), 70'002), COMMSCHED_OK);
  EXPECT_EQ(read[0], '\0');
  EXPECT_EQ(std::vector<char>(read.begin() + 1, read.begin() + 70'001),
            written);
  EXPECT_EQ(read[70'001], '\0');
}

TEST(FilePoolTest, TheFileHasNoName) {
  const TemporaryFolder folder;
  const PoolHandle handle = PoolIn(folder.path());
  const commsched_pool_t pool = commsched_file_pool_table(handle.get());
  ASSERT_EQ(pool.reserve(pool.user, 4096), COMMSCHED_OK);
  EXPECT_TRUE(folder.Names().empty());
}

TEST(FilePoolTest, WhatIsNoFolderIsRefused) {
  const TemporaryFolder folder;
  commsched_file_pool_t* pool = nullptr;
  const std::string none = folder.path() + "/none";
  EXPECT_EQ(commsched_file_pool_create(none.c_str(), &pool),
            COMMSCHED_NOT_FOUND);
  EXPECT_THAT(commsched_engine_last_error(), HasSubstr(none));
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "text";
  EXPECT_EQ(commsched_file_pool_create(file.c_str(), &pool),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(commsched_engine_last_error(),
              AllOf(HasSubstr(file), HasSubstr("not a folder")));
  EXPECT_EQ(commsched_file_pool_create(nullptr, &pool),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(commsched_file_pool_create(folder.path().c_str(), nullptr),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(pool, nullptr);
}

TEST(FilePoolTest, MoreThanTheFileSystemHasIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const PoolHandle handle = PoolIn(folder.path());
  const commsched_pool_t pool = commsched_file_pool_table(handle.get());
  for (const uint64_t bytes : {uint64_t{1} << 62, ~uint64_t{0}}) {
    EXPECT_EQ(pool.reserve(pool.user, bytes), COMMSCHED_RESOURCE_EXHAUSTED);
    EXPECT_THAT(
        pool.last_error(pool.user),
        AllOf(HasSubstr(std::to_string(bytes)), HasSubstr(folder.path())));
  }
}

TEST(FilePoolTest, ItReservesOnce) {
  const TemporaryFolder folder;
  const PoolHandle handle = PoolIn(folder.path());
  const commsched_pool_t pool = commsched_file_pool_table(handle.get());
  ASSERT_EQ(pool.reserve(pool.user, 1), COMMSCHED_OK);
  EXPECT_EQ(pool.reserve(pool.user, 1), COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(pool.last_error(pool.user), HasSubstr("already reserved"));
}

TEST(FilePoolTest, ReadingBeyondTheEndIsDataLoss) {
  const TemporaryFolder folder;
  const PoolHandle handle = PoolIn(folder.path());
  const commsched_pool_t pool = commsched_file_pool_table(handle.get());
  ASSERT_EQ(pool.reserve(pool.user, 10), COMMSCHED_OK);
  char read[11] = {};
  EXPECT_EQ(pool.read(pool.user, 0, read, sizeof(read)), COMMSCHED_DATA_LOSS);
  EXPECT_THAT(pool.last_error(pool.user), HasSubstr("ends at byte 10"));
}

// Null hooks aside, writes are short: they take several.
std::atomic<int> g_writes{0};
int FailThirdWrite(const char* call) {
  return std::strcmp(call, "pwrite") == 0 && ++g_writes == 3 ? ENOSPC : 0;
}
int InterruptSecondWrite(const char* call) {
  return std::strcmp(call, "pwrite") == 0 && ++g_writes == 2 ? EINTR : 0;
}

TEST(FilePoolTest, AWriteGoesOnWhereItWasCutAndSaysWhyItCannot) {
  const TemporaryFolder folder;
  const PoolHandle handle = PoolIn(folder.path());
  const commsched_pool_t pool = commsched_file_pool_table(handle.get());
  ASSERT_EQ(pool.reserve(pool.user, 1000), COMMSCHED_OK);
  std::vector<char> written(1000);
  for (size_t i = 0; i < written.size(); ++i) {
    written[i] = static_cast<char>(i % 101);
  }
  g_writes = 0;
  SetFileHook(InterruptSecondWrite);
  EXPECT_EQ(pool.write(pool.user, 0, written.data(), 1000), COMMSCHED_OK);
  std::vector<char> read(1000);
  EXPECT_EQ(pool.read(pool.user, 0, read.data(), 1000), COMMSCHED_OK);
  EXPECT_EQ(read, written);
  g_writes = 0;
  SetFileHook(FailThirdWrite);
  EXPECT_EQ(pool.write(pool.user, 0, written.data(), 1000),
            COMMSCHED_RESOURCE_EXHAUSTED);
  SetFileHook(nullptr);
  EXPECT_THAT(pool.last_error(pool.user),
              AllOf(HasSubstr("cannot write"), HasSubstr("No space left")));
}

}  // namespace
}  // namespace commsched::engine
