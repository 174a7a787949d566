#ifndef COMMSCHED_TEST_GRAPH_RANDOM_GRAPH_H_
#define COMMSCHED_TEST_GRAPH_RANDOM_GRAPH_H_

#include <cstdint>

#include "graph/graph.h"

namespace commsched {

// A small valid graph with all kinds of ops, regions and edges, some of them
// against the declared order. The same for the same seed.
Graph RandomGraph(uint64_t seed, int num_ops);

}  // namespace commsched

#endif  // COMMSCHED_TEST_GRAPH_RANDOM_GRAPH_H_
