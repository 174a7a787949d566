// Counts heap allocations of the whole process. Link the object library
// `alloc_counter` into the binary that wants it: it replaces operator new.
#ifndef COMMSCHED_TEST_SUPPORT_ALLOC_COUNTER_H_
#define COMMSCHED_TEST_SUPPORT_ALLOC_COUNTER_H_

#include <cstdint>

namespace commsched {

// Calls of operator new, in all its forms and by all threads, since the
// process started. Thread-safe.
uint64_t HeapAllocations();

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_ALLOC_COUNTER_H_
