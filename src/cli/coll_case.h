// One case of `commsched bench coll`: what ranks have, what they must get, how
// sizes count, and the line that says how it went. Shared with the drivers of
// other libraries (bench/peers), so that the figures can be compared.
#ifndef COMMSCHED_SRC_CLI_COLL_CASE_H_
#define COMMSCHED_SRC_CLI_COLL_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "commsched/types.h"

namespace commsched::cli {

struct CollKind {
  const char* name;
  commsched_collective_t kind;
  bool input_has_parts;  // A part per rank, else one.
  bool output_has_parts;
  bool reduces;
};

inline constexpr CollKind kCollKinds[] = {
    {"all_reduce", COMMSCHED_ALL_REDUCE, false, false, true},
    {"all_gather", COMMSCHED_ALL_GATHER, false, true, false},
    {"reduce_scatter", COMMSCHED_REDUCE_SCATTER, true, false, true},
    {"all_to_all", COMMSCHED_ALL_TO_ALL, true, true, false},
    {"broadcast", COMMSCHED_BROADCAST, false, false, false},
    {"reduce", COMMSCHED_REDUCE, false, false, true},
};

// One rank's memory for a kind. As nccl-tests do, sizes are of the larger side:
// `bytes` is what that has, rounded down to whole parts of at least an element.
// COMMSCHED_F32 or COMMSCHED_BF16.
struct CollCase {
  CollCase(const CollKind& kind, commsched_dtype_t dtype, int rank, int size,
           uint64_t bytes);

  // Output elements that are not what the definition says.
  uint64_t CountWrong() const;
  // Of the larger side.
  uint64_t bytes() const;
  uint64_t element_bytes() const;
  const char* type() const;  // f32 or bf16.

  const CollKind& kind;
  const commsched_dtype_t dtype;
  const int rank;
  const int size;
  const uint64_t count;  // Elements of a part.
  std::vector<std::byte> input;
  std::vector<std::byte> output;
};

// Of one iteration: the slowest rank's time, the ranks' mean of a processor's,
// and what is wrong on all.
struct CollFigures {
  double seconds = 0;
  double cpu_seconds = 0;
  double busy_seconds = 0;  // Of all cores of the machine, whoever took them.
  uint64_t wrong = 0;
};

// Time since some moment in the past: `cpu` of this process on processors,
// `busy` of all cores that were not idle (/proc/stat, to 10 ms).
struct CollClock {
  static CollClock Now();
  // From `begin` to this one, of one of `iterations`.
  CollFigures Since(const CollClock& begin, double iterations) const;

  double wall = 0;
  double cpu = 0;
  double busy = 0;
};

// What a backend says beforehand of a case.
struct CollEstimate {
  const char* algorithm = nullptr;  // Null: it does not tell.
  double seconds = 0;               // 0: not known.
  uint64_t link_bytes = 0;          // Over the busiest link between hosts.
};

// The processor's time that this process has taken.
double CpuSeconds();

// In GB/s, as nccl-tests define them
// (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
double AlgBandwidth(const CollCase& one, const CollFigures& figures);
double BusBandwidth(const CollCase& one, const CollFigures& figures);

// A line of JSON, without its end.
std::string CollJson(const CollCase& one, const std::string& backend,
                     const CollFigures& figures,
                     const CollEstimate& estimate = {});

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_COLL_CASE_H_
