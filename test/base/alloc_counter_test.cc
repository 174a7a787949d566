#include "test/support/alloc_counter.h"

#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace commsched {
namespace {

// The calls are spelled out, since a compiler may drop a new-expression whose
// memory is not used.
TEST(AllocCounterTest, CountsEveryFormOfNew) {
  const uint64_t before = HeapAllocations();
  void* plain = ::operator new(8);
  void* nothrow = ::operator new(8, std::nothrow);
  void* array = ::operator new[](8);
  void* aligned = ::operator new (100, std::align_val_t{256});
  EXPECT_EQ(HeapAllocations() - before, 4u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % 256, 0u);
  ::operator delete(plain);
  ::operator delete(nothrow, std::nothrow);
  ::operator delete[](array);
  ::operator delete (aligned, std::align_val_t{256});
}

TEST(AllocCounterTest, CountsOtherThreads) {
  const uint64_t before = HeapAllocations();
  std::thread other([] {
    for (int i = 0; i < 1000; ++i) ::operator delete(::operator new(8));
  });
  other.join();
  EXPECT_GE(HeapAllocations() - before, 1000u);
}

TEST(AllocCounterTest, WorkWithoutAllocationCountsNothing) {
  std::vector<int> values(100);
  const uint64_t before = HeapAllocations();
  for (int& value : values) value = 7;
  values.resize(50);
  EXPECT_EQ(HeapAllocations(), before);
}

}  // namespace
}  // namespace commsched
