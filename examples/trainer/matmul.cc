#include "examples/trainer/matmul.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace commsched::trainer {
namespace {

constexpr std::pair<int, const char*> kIsaNames[] = {
    {dnnl_cpu_isa_sse41, "sse41"},
    {dnnl_cpu_isa_avx, "avx"},
    {dnnl_cpu_isa_avx2, "avx2"},
    {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
    {dnnl_cpu_isa_avx512_core, "avx512_core"},
    {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
    {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
    {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"}};

const char* IsaName(int isa) {
  for (const auto& [value, name] : kIsaNames) {
    if (value == isa) return name;
  }
  return "generic";
}

char Letter(const Operand& operand) { return operand.transposed ? 'T' : 'N'; }

}  // namespace

// dnnl_sgemm and not a matmul primitive: no primitive to build and cache per
// shape, strides as they come, and 100 GF/s from 128 x 128 x 32 on.
void Matmul(const MatmulSize& size, const Operand& a, const Operand& b,
            const Product& out) {
  thread_local const bool one_thread = (omp_set_num_threads(1), true);
  (void)one_thread;
  const dnnl_status_t status =
      dnnl_sgemm(Letter(a), Letter(b), size.rows, size.cols, size.inner, 1.0f,
                 a.data, a.stride, b.data, b.stride,
                 out.accumulate ? 1.0f : 0.0f, out.data, out.stride);
  if (status != dnnl_success) {
    std::fprintf(stderr,
                 "dnnl_sgemm failed with status %d for a product of "
                 "%lld x %lld x %lld\n",
                 static_cast<int>(status), static_cast<long long>(size.rows),
                 static_cast<long long>(size.cols),
                 static_cast<long long>(size.inner));
    std::abort();
  }
}

std::string MatmulLibrary() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(
      "oneDNN ", version->major, ".", version->minor, ".", version->patch, " (",
      IsaName(dnnl_get_effective_cpu_isa()), "), 1 thread per rank");
}

}  // namespace commsched::trainer
