#ifndef COMMSCHED_TEST_GPU_CHECK_PROCESSES_H_
#define COMMSCHED_TEST_GPU_CHECK_PROCESSES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/gpu_check.h"

namespace commsched::gpu_check {

using ChildEnvironment = std::vector<std::pair<std::string, std::string>>;

// Runs `command` as a job of as many processes as there are environments, which
// meet at a control server of this process. By rank.
std::vector<ChildEnd> RunProcesses(const std::vector<std::string>& command,
                                   const std::vector<ChildEnvironment>& more);

// What such a process does: "meet", or "train".
void RunMember(absl::string_view task, const Options& options,
               Results* results);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_PROCESSES_H_
