// Random jobs on stand-in devices: compute ops are kernels on the caller's
// streams, launches NCCL's on side streams, and only events order them. Nothing
// is read by the host but at the end.
#ifndef COMMSCHED_TEST_CUDA_DEVICE_JOB_H_
#define COMMSCHED_TEST_CUDA_DEVICE_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "test/support/random_job.h"

namespace commsched::test {

using Plans = std::vector<std::shared_ptr<const Plan>>;

struct DeviceJob {
  RandomJob job;
  PlanOptions options;
  CostProfile profile;
  bool by_calls = false;
  uint32_t delay_us = 0;
  uint64_t seed = 0;

  // By role.
  Plans MakePlans() const;
};

// The same for the same seed.
DeviceJob DrawDeviceJob(uint64_t seed);

// How a run went.
struct Outcome {
  std::string wrong;  // A status, or memory that differs from the reference.
  uint64_t races = 0;
  std::string first_race;
};

// Streams run on threads, late at times. Returns Outcome::wrong.
std::string RunOnThreads(const DeviceJob& drawn, const Plans& plans);

// Streams run as late as can be, and accesses that nothing orders are found.
Outcome RunBySeed(const DeviceJob& drawn, const Plans& plans);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CUDA_DEVICE_JOB_H_
