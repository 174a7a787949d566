// Ways to do a launch, each in a file of its own with the same functions.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_ALGORITHM_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_ALGORITHM_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/layout.h"
#include "ucx/algorithms/link_costs.h"
#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

// All that a choice depends on, besides layout and costs. Equal on all ranks.
struct LaunchShape {
  commsched_collective_t kind = 0;
  int root = 0;  // 0 where the kind has none.
  // Arrays that are cut into parts: members, of which small ones are one.
  uint32_t num_arrays = 0;
  uint64_t element_bytes = 0;
  uint64_t partial_bytes = 0;
  // Of all members together: elements of the array or, of kinds with a part for
  // each rank, of all parts of a rank. Of members of an all-to-all with counts
  // none: n^2 counts are more than a choice is worth that has one algorithm.
  uint64_t elements = 0;
  // An all-to-all of one member without counts: all parts of all ranks have one
  // size, and a rank that takes another one for it sends messages of another.
  bool has_one_size = false;

  bool operator==(const LaunchShape&) const = default;
  uint64_t bytes() const { return elements * element_bytes; }
  bool sums() const {
    return kind == COMMSCHED_ALL_REDUCE || kind == COMMSCHED_REDUCE ||
           kind == COMMSCHED_REDUCE_SCATTER;
  }
};
LaunchShape ShapeOf(const commsched_launch_t& launch, int size);
// With all elements, for people.
LaunchShape WholeShapeOf(const commsched_launch_t& launch, int size);
// Of a member: what is added up in LaunchShape::elements.
uint64_t MemberElements(const commsched_launch_t& launch,
                        const commsched_member_t& member, int size);

// What costs are predicted from.
struct CostContext {
  const LaunchShape& shape;
  const Layout& layout;
  const LinkProfile& links;
  uint64_t chunk_bytes;
  std::vector<HostLoad>* loads;  // To work in; has room for all hosts.
};

struct Cost {
  int64_t ns = 0;
  int64_t messages = 0;  // Of the rank with most of them, at most.
};

// What crosses the links between hosts. Where parts are uneven, as if they were
// equal.
struct Crossing {
  uint64_t link_bytes = 0;  // Over the busiest direction of any host's link.
  // In which what a host's ranks have of an element of a sum leaves it, of the
  // host with most.
  uint32_t pieces = 0;
};

// One rank's part of a launch.
struct LaunchTask {
  const commsched_launch_t& launch;
  const Layout& layout;
  int rank = 0;
  uint64_t chunk_bytes = 0;
  bool measures = false;  // Nothing is at the launch's addresses.
  // Which members travel as one (packed_launch.h); others than small ones only
  // where it is measured.
  enum class Packs { kSmall, kNone, kAll };
  Packs packs = Packs::kSmall;
};

// Of what is `chunk_bytes` large where no order counts. On more than two hosts
// ranks fill a link to one peer at a time (pacer.h), and where two send to the
// same host, the link of a third one waits until the next chunk. Ranks that
// share a host mix what they send, so that theirs may be larger.
inline uint64_t ChunkBytesOn(const Layout& layout, uint64_t chunk_bytes) {
  constexpr uint64_t kTurnBytes = 128 << 10;
  constexpr uint64_t kSharedTurnBytes = 256 << 10;
  if (layout.num_hosts() <= 2) return chunk_bytes;
  const bool are_alone = layout.most_ranks_per_host() == 1;
  return std::min(chunk_bytes, are_alone ? kTurnBytes : kSharedTurnBytes);
}

// Functions are pure, and allocate nothing where there is room for it.
struct Algorithm {
  const char* name;
  const char* does;  // What it fits, for people.
  // Whether it does launches like this.
  bool (*fits)(const LaunchShape& shape, const Layout& layout);
  Cost (*cost)(const CostContext& context);
  // For people: costs do not take it from here. On several hosts.
  Crossing (*crossing)(const CostContext& context);
  // Scratch that build() needs. Uses room of `operation`.
  uint64_t (*scratch_bytes)(const LaunchTask& task, Operation* operation);
  // Writes what the rank does into `operation`, which has its scratch. Nothing
  // is posted; a rank's own data is copied where it belongs.
  void (*build)(const LaunchTask& task, Operation* operation);
};

// Every rank and every other directly, in one message: where latency counts and
// ranks are few. All-to-all, barriers, and lists of sends and receives of any
// size.
extern const Algorithm kExchange;
// By hosts, each byte over a link once, in chunks (routes.h): of any size.
extern const Algorithm kLevels;
// Up and down a tree, in log2 of the ranks messages: small launches.
extern const Algorithm kTree;
// By way of other ranks, in 2 sqrt(n) messages: small all-to-alls of a host.
extern const Algorithm kBruck;

inline constexpr std::array<const Algorithm*, 4> kAlgorithms = {
    &kExchange, &kLevels, &kBruck, &kTree};

// Of a class that makes one launch.
template <typename Maker>
uint64_t ScratchBytesWith(const LaunchTask& task, Operation* operation) {
  return Maker(task, operation).ScratchBytes();
}
template <typename Maker>
void BuildWith(const LaunchTask& task, Operation* operation) {
  Maker(task, operation).Build();
}

// Rounds in which what one has comes to `count` by doubling.
int CeilLog2(int count);
// What a rank of `size` may send and receive in a small launch (kSmallBytes),
// in messages, where hosts have up to 16 ranks, or equally many.
inline int64_t MostSmallMessages(int size) { return 2 * CeilLog2(size) + 8; }

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_ALGORITHM_H_
