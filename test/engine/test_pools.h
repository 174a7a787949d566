#ifndef COMMSCHED_TEST_ENGINE_TEST_POOLS_H_
#define COMMSCHED_TEST_ENGINE_TEST_POOLS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "commsched/pool.h"

namespace commsched::engine {

// A pool that is memory, and fails when it is told to.
class TestPool {
 public:
  commsched_pool_t table();

  // Of the reads and writes, or of one kind, that one fails which comes after
  // `calls` more.
  enum class Kind { kAny, kRead, kWrite };
  void FailAfter(Kind kind, int calls) {
    failing_ = kind;
    calls_left_ = calls;
  }
  void FailReserve(commsched_status_t code = COMMSCHED_RESOURCE_EXHAUSTED) {
    reserve_answer_ = code;
  }
  uint64_t bytes() const { return bytes_.size(); }

 private:
  static commsched_status_t Reserve(void* user, uint64_t bytes);
  static commsched_status_t Read(void* user, uint64_t offset, void* out,
                                 uint64_t bytes);
  static commsched_status_t Write(void* user, uint64_t offset, const void* from,
                                  uint64_t bytes);
  static const char* LastError(void* user);
  bool Fails(Kind kind, uint64_t offset, uint64_t bytes);

  std::vector<std::byte> bytes_;
  std::string message_;
  Kind failing_ = Kind::kAny;
  // Told in one thread, counted in another.
  std::atomic<int64_t> calls_left_{INT64_MAX};
  commsched_status_t reserve_answer_ = COMMSCHED_OK;
};

// One for each of up to 8 ranks. What is made anew reserves anew.
struct TestPools {
  std::vector<TestPool> of_rank = std::vector<TestPool>(8);
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_TEST_POOLS_H_
