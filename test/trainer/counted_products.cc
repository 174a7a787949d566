#include "test/trainer/counted_products.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include <atomic>

#include "test/support/alloc_counter.h"

namespace {

std::atomic<uint64_t> allocations_of_products{0};

}  // namespace

// Found before that of the library, by the archive of the trainer.
dnnl_status_t dnnl_sgemm(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                         dnnl_dim_t k, float alpha, const float* a,
                         dnnl_dim_t lda, const float* b, dnnl_dim_t ldb,
                         float beta, float* c, dnnl_dim_t ldc) {
  static const auto next =
      reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(RTLD_NEXT, "dnnl_sgemm"));
  const uint64_t before = commsched::HeapAllocations();
  const dnnl_status_t status =
      next(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  allocations_of_products += commsched::HeapAllocations() - before;
  return status;
}

namespace commsched::trainer {

uint64_t HeapAllocationsOfProducts() { return allocations_of_products; }

}  // namespace commsched::trainer
