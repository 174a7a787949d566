// What ops and launches are taken to cost. Pure arithmetic on a CostProfile.
#ifndef COMMSCHED_SRC_PLAN_PREDICT_COST_MODEL_H_
#define COMMSCHED_SRC_PLAN_PREDICT_COST_MODEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace commsched {

// What a backend spends on each further member of a list: checks, addresses,
// one more pass of its transfer loop.
inline constexpr int64_t kMemberOverheadNs = 1000;

// This is about 115 days. A simulation sums the times of
// SteadyState::kMaxSteps steps and some more; those stay within int64_t.
inline constexpr double kMaxStepNs = 1e16;

// Bytes that the collectives of a step move, an exbibyte: sums over a few steps
// and of inputs and outputs stay within uint64_t.
inline constexpr uint64_t kMaxStepBytes = uint64_t{1} << 60;

// kInvalidArgument if a rate is not positive, a time or an op's cost (measured,
// estimated or derived) is negative or above Graph::kMaxCostNs, all ops of a
// step together take more than kMaxStepNs, or the profile measured another
// number of ops than `graph` has.
absl::Status CheckProfile(const Graph& graph, const CostProfile& profile);

// kOutOfRange if the payloads of all collectives sum to more than
// kMaxStepBytes.
absl::Status CheckStepBytes(const Graph& graph);

// Bytes of a collective's input and output; 0 of a side that it has not.
uint64_t InputBytes(const Graph& graph, const CollectiveSpec& spec);
uint64_t OutputBytes(const Graph& graph, const CollectiveSpec& spec);
// The larger of the two (I3).
uint64_t PayloadBytes(const Graph& graph, const CollectiveSpec& spec);

// Thread-CPU time of an op: measured, else the op's own estimate, else from its
// flops and bytes. Of a collective: its copies and reductions, 0 unless
// measured.
int64_t OpCostNs(const Graph& graph, OpId op, const CostProfile& profile);

// Time to arrival on an idle link: latency + f x bytes / bandwidth, where f is
// (n-1)/n for the full array, twice that for ALL_REDUCE, 1 for SEND and RECV, 0
// for BARRIER. A group of one moves nothing and takes no time. The other two
// know the counts of an uneven ALL_TO_ALL: there, f x bytes is what the busiest
// member sends to others or receives from them.
int64_t LinkNs(CollectiveKind kind, int group_size, uint64_t bytes,
               const CostProfile& profile);
int64_t LinkNs(const Graph& graph, const CollectiveSpec& spec,
               const CostProfile& profile);
// The time of a launch on the link, per direction: a list takes the latency
// once; sends and receives of one pipeline tick go both ways at once.
int64_t LinkNs(const Graph& graph, const Launch& launch,
               const CostProfile& profile);

// The part of LinkNs() in which the link carries nothing else: without the
// latency, in which the transfers behind it are under way.
int64_t BusyNs(const Graph& graph, const CollectiveSpec& spec,
               const CostProfile& profile);
int64_t BusyNs(const Graph& graph, const Launch& launch,
               const CostProfile& profile);
// Also with the latency if `backend` begins no launch of a lane before the one
// before it has arrived: launches of other lanes are taken to wait, too.
int64_t BusyNs(const Graph& graph, const Launch& launch,
               const CostProfile& profile, const BackendModel& backend);

// What a launch moves over the busier direction of a rank's link.
double LinkBytes(const Graph& graph, const Launch& launch);

// Time before the link: the launch itself, its further members, staging copies.
int64_t OverheadNs(const Graph& graph, const Launch& launch,
                   const CostProfile& profile);

// Ranks per core, for what they compute.
double RanksPerCore(const CostProfile& profile);

// How many times as long the compute ops of a rank take as each does alone on a
// core: with more ranks than cores they take turns with those of other ranks,
// and with launches. `op_ns` is what the compute ops of a step take,
// `launch_ns` what its launches do (LaunchCpuNs).
double CpuStretch(int64_t op_ns, int64_t launch_ns, const CostProfile& profile);

// The processor's time for a launch: OverheadNs, copies and reductions.
int64_t LaunchCpuNs(const Graph& graph, const Launch& launch,
                    const CostProfile& profile);

// A copy of `bytes`, in and out.
int64_t CopyNs(uint64_t bytes, const CostProfile& profile);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_PREDICT_COST_MODEL_H_
