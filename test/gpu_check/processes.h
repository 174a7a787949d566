#ifndef COMMSCHED_TEST_GPU_CHECK_PROCESSES_H_
#define COMMSCHED_TEST_GPU_CHECK_PROCESSES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "comm/world.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/gpu_check.h"

namespace commsched::gpu_check {

// Of a job here: as many as NCCL takes on a device by default.
inline constexpr int kProcesses = 2;

using ChildEnvironment = std::vector<std::pair<std::string, std::string>>;

// Runs `command` as a job of as many processes as there are environments, which
// meet at a control server of this process. By rank.
std::vector<ChildEnd> RunProcesses(const std::vector<std::string>& command,
                                   const std::vector<ChildEnvironment>& more);

// The environments of kProcesses that share a device, each of which says that
// it is a host of its own (NCCL_HOSTID): what NCCL moves between them goes over
// TCP.
std::vector<ChildEnvironment> HostsOnOneDevice();

// `program`, which lies beside this one, with `arguments`.
std::vector<std::string> Beside(absl::string_view program,
                                const std::vector<std::string>& arguments);

// Adds the results of all ranks as one: the first that failed stands for its
// check. `prefix` is put in front of each.
void Merge(const std::vector<ChildEnd>& ends, absl::string_view prefix,
           Results* results);

// This process, one of those that share device 0, as a rank of its job.
absl::StatusOr<std::shared_ptr<World>> JoinOnDevice0();

// What such a process does: "meet", "train" or "lanes".
void RunMember(absl::string_view task, const Options& options,
               Results* results);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_PROCESSES_H_
