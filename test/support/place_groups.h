// Graphs whose buffers take turns at one place.
#ifndef COMMSCHED_TEST_SUPPORT_PLACE_GROUPS_H_
#define COMMSCHED_TEST_SUPPORT_PLACE_GROUPS_H_

#include <cstdint>

#include "graph/graph.h"

namespace commsched::test {

// `graph` with place groups, drawn among the owned buffers that are not alive
// at the same time in declared order. The same for the same seed.
//
// A send and a receive that are neighbours count as one op, as a ring's are: to
// take over from one another they would have to wait for each other.
Graph WithPlaceGroups(const Graph& graph, uint64_t seed);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_PLACE_GROUPS_H_
