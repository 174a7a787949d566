#include "comm/meeting/memory_store.h"

#include <thread>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int64_t kSoonNs = 1'000'000;
constexpr int64_t kLongNs = int64_t{60} * 1000 * 1000 * 1000;

TEST(MemoryStoreTest, AKeyHasOneValue) {
  MemoryStore store;
  EXPECT_OK(store.Put("key", "value"));
  EXPECT_THAT(store.Put("key", "other"),
              StatusIs(absl::StatusCode::kAlreadyExists, "key 'key'"));
  ASSERT_OK_AND_ASSIGN(const std::string value, store.Get("key", 0));
  EXPECT_EQ(value, "value");
}

TEST(MemoryStoreTest, WhoComesFirstWaits) {
  MemoryStore store;
  std::thread getter([&] {
    ASSERT_OK_AND_ASSIGN(const std::string value, store.Get("key", kLongNs));
    EXPECT_EQ(value, "value");
  });
  EXPECT_OK(store.Put("key", "value"));
  getter.join();
}

TEST(MemoryStoreTest, WaitingEndsAtTheDeadline) {
  MemoryStore store;
  EXPECT_THAT(store.Get("key", kSoonNs),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "waited 1 ms for key 'key', which nobody has put"));
}

}  // namespace
}  // namespace commsched
