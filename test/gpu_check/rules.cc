#include "test/fakes/rules/rules.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/cuda_runtime.h"
#include "test/gpu_check/gpu_check.h"

namespace commsched::gpu_check {
namespace {

void Run(const std::vector<rules::Rule>& all, std::vector<Result>* results) {
  for (const rules::Rule& rule : all) {
    // Those are for test/cuda.
    if (rule.stand_in_only) continue;
    const std::string why = rule.check();
    absl::Status status;
    if (!why.empty()) {
      status = absl::InternalError(absl::StrCat(why, " (", rule.sentence, ")"));
    }
    results->push_back(
        {absl::StrCat(rule.source, ": ", rule.name), std::move(status), ""});
  }
}

}  // namespace

std::vector<Result> CheckRules() {
  const auto cuda = CudaRuntime::Get();
  if (!cuda.ok()) return {{"CUDA runtime", cuda.status(), ""}};
  std::vector<Result> results;
  Run(rules::CudaRules(), &results);
  Run(rules::CudaKernelRules(), &results);
  Run(rules::CudaErrorRules(), &results);
  Run(rules::CudaDriverRules(), &results);
  if (!Nccl().ok()) return results;
  Run(rules::NcclRules(), &results);
  Run(rules::NcclCommRules(), &results);
  return results;
}

}  // namespace commsched::gpu_check
