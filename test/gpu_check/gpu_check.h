// What is to be shown on a GPU, by a program that runs on the stand-ins as
// well.
#ifndef COMMSCHED_TEST_GPU_CHECK_GPU_CHECK_H_
#define COMMSCHED_TEST_GPU_CHECK_GPU_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/world.h"
#include "test/gpu_check/result.h"

namespace commsched::gpu_check {

struct Options {
  int max_ranks = 8;   // Of a job.
  bool quick = false;  // For the stand-ins: sizes for a processor.
  uint64_t seed = 1;
};

// Versions and devices; false: there is nothing to check anything on, which is
// SKIPPED where there is no GPU.
bool CheckMachine(const Options& options, Results* results);

// What the vendor says of streams, memory and collectives: test/fakes/rules.
std::vector<Result> CheckRules();

// The kernels of src/kernels beside the processor's loops.
void CheckKernels(const Options& options, Results* results);

// Collectives of the backend beside their definition, on device memory: one
// rank, and one rank per device.
void CheckCollectives(const Options& options, Results* results);

// Sessions and recordings, on one rank per device.
void CheckSessions(const Options& options, Results* results);

// Ranks that are processes and share a device.
void CheckProcesses(const Options& options, Results* results);

// Worlds and sessions that share a device, on lanes of their own and on one.
void CheckLanes(const Options& options, Results* results);

// Channels, and what they do beside sessions and each other.
void CheckChannels(const Options& options, Results* results);

// Processes that import PyTorch.
void CheckTorch(const Options& options, Results* results);

// ZeRO-0 to 3 of the engine, by the program gpu_check_engine.
void CheckEngine(const Options& options, Results* results);

// What a launch costs the host beside the same calls by hand, and what is
// planned into few launches beside many.
void CheckCosts(const Options& options, Results* results);

// Copies and reductions beside matrix products.
void CheckOverlap(const Options& options, Results* results);

// A step as a CUDA graph beside the same step enqueued.
void CheckCapture(const Options& options, Results* results);

// Some of these under compute-sanitizer.
void CheckMemory(const Options& options, Results* results);

// "1 rank, whose collectives are copies", "2 ranks".
std::string RanksText(int ranks);

// The backend, or why it cannot be used.
absl::StatusOr<const commsched_backend_t*> Nccl();

// Random collectives between the ranks of `world`, of which `rank` is one that
// lives here; all ranks make the same calls.
absl::Status RunCollectives(World* world, int rank, const Options& options,
                            bool in_rank_order, std::string* figures);

}  // namespace commsched::gpu_check

#endif  // COMMSCHED_TEST_GPU_CHECK_GPU_CHECK_H_
