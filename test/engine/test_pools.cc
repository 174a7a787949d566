#include "test/engine/test_pools.h"

#include <gtest/gtest.h>

#include <cstring>

namespace commsched::engine {
namespace {

TestPool& PoolOf(void* user) { return *static_cast<TestPool*>(user); }

}  // namespace

commsched_pool_t TestPool::table() {
  commsched_pool_t pool = commsched_pool_init();
  pool.user = this;
  pool.reserve = Reserve;
  pool.read = Read;
  pool.write = Write;
  pool.last_error = LastError;
  return pool;
}

bool TestPool::Fails(Kind kind, uint64_t offset, uint64_t bytes) {
  EXPECT_LE(offset, bytes_.size());
  EXPECT_LE(bytes, bytes_.size() - offset);
  if (failing_ != Kind::kAny && failing_ != kind) return false;
  if (calls_left_.fetch_sub(1) != 0) return false;
  message_ = "the test's disk broke";
  return true;
}

commsched_status_t TestPool::Reserve(void* user, uint64_t bytes) {
  TestPool& pool = PoolOf(user);
  if (pool.reserve_answer_ != COMMSCHED_OK) {
    pool.message_ = "the test's disk is full";
    return pool.reserve_answer_;
  }
  pool.bytes_.assign(bytes, std::byte{0});
  return COMMSCHED_OK;
}

commsched_status_t TestPool::Read(void* user, uint64_t offset, void* out,
                                  uint64_t bytes) {
  TestPool& pool = PoolOf(user);
  if (pool.Fails(Kind::kRead, offset, bytes)) return COMMSCHED_DATA_LOSS;
  std::memcpy(out, pool.bytes_.data() + offset, bytes);
  return COMMSCHED_OK;
}

commsched_status_t TestPool::Write(void* user, uint64_t offset,
                                   const void* from, uint64_t bytes) {
  TestPool& pool = PoolOf(user);
  if (pool.Fails(Kind::kWrite, offset, bytes)) return COMMSCHED_UNAVAILABLE;
  std::memcpy(pool.bytes_.data() + offset, from, bytes);
  return COMMSCHED_OK;
}

const char* TestPool::LastError(void* user) {
  return PoolOf(user).message_.c_str();
}

}  // namespace commsched::engine
