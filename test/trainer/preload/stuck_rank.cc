// Preloaded into the trainer: one matrix product never ends, as if the thread
// of its rank were frozen.

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

// Which of all ranks' products that is: COMMSCHED_STUCK_PRODUCT.
int StuckProduct() { return std::atoi(std::getenv("COMMSCHED_STUCK_PRODUCT")); }

dnnl_status_t dnnl_sgemm(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                         dnnl_dim_t k, float alpha, const float* a,
                         dnnl_dim_t lda, const float* b, dnnl_dim_t ldb,
                         float beta, float* c, dnnl_dim_t ldc) {
  static std::atomic<int> products{0};
  static const int stuck = StuckProduct();
  if (products.fetch_add(1) == stuck) {
    for (;;) pause();
  }
  const auto next =
      reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(RTLD_NEXT, "dnnl_sgemm"));
  return next(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
