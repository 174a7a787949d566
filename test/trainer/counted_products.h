#ifndef COMMSCHED_TEST_TRAINER_COUNTED_PRODUCTS_H_
#define COMMSCHED_TEST_TRAINER_COUNTED_PRODUCTS_H_

#include <cstdint>

namespace commsched::trainer {

// Heap allocations that oneDNN made within matrix products, which are part of
// HeapAllocations(). Since version 3 a product makes two vectors for each of
// its blocks, and no function of oneDNN's takes that memory from its caller; a
// matmul primitive makes a map of its arguments each time that it runs.
//
// Counts right while one thread computes.
uint64_t HeapAllocationsOfProducts();

}  // namespace commsched::trainer

#endif  // COMMSCHED_TEST_TRAINER_COUNTED_PRODUCTS_H_
