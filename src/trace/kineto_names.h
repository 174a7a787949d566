// What ops and launches are called in a Kineto trace. Holistic Trace Analysis
// tells kernels apart by name alone, so names must say what they are and must
// not by accident say something else.
#ifndef COMMSCHED_SRC_TRACE_KINETO_NAMES_H_
#define COMMSCHED_SRC_TRACE_KINETO_NAMES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "trace/recorder.h"

namespace commsched {

// `name` changed as little as makes it the name of a computation: "GradSync"
// becomes "Gradsync", "nccl_pack" becomes "op:nccl_pack". An empty name is
// returned as it is.
std::string ComputeKernelName(absl::string_view name);

// "ncclDevKernel_ReduceScatter_Sum_f32_grad.0+grad.1(commsched)".
std::string LaunchKernelName(const RecordNames::LaunchName& launch);

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_KINETO_NAMES_H_
