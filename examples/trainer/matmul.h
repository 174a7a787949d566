#ifndef COMMSCHED_EXAMPLES_TRAINER_MATMUL_H_
#define COMMSCHED_EXAMPLES_TRAINER_MATMUL_H_

#include <cstdint>
#include <string>

namespace commsched::trainer {

struct MatmulSize {
  int64_t rows;   // Of the result.
  int64_t cols;   // Of the result.
  int64_t inner;  // Summed over.
};

// A row-major matrix in memory; `stride` is the distance between its rows in
// elements. `transposed` means that the product uses its transpose.
struct Operand {
  const float* data;
  int64_t stride;
  bool transposed = false;
};

struct Product {
  float* data;
  int64_t stride;
  bool accumulate = false;  // Add to what is there instead of replacing it.
};

// out = a b, or out += a b.
//
// Runs on the calling thread alone: the first call of a thread sets that
// thread's OpenMP team to one, since the ranks are threads and share the
// cores. The bits of the result depend on the arguments only, not on what
// other threads do. An out-of-memory in the library ends the program, since a
// training step cannot go on without its product.
//
// Thread-safe.
void Matmul(const MatmulSize& size, const Operand& a, const Operand& b,
            const Product& out);

// What computes the products here, for people: "oneDNN 2.6.3 (avx512_core),
// 1 thread per rank".
std::string MatmulLibrary();

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_MATMUL_H_
