#ifndef COMMSCHED_SRC_GRAPH_SORT_EDGES_H_
#define COMMSCHED_SRC_GRAPH_SORT_EDGES_H_

#include <algorithm>
#include <iterator>

namespace commsched {

// Sorts the edges into one op, of a type whose equal values are the same. Most
// ops have few. An op that everything leads to has long runs, up and down,
// which take std::sort() three times as long as merging them does.
template <typename Iterator>
void SortEdges(Iterator begin, Iterator end) {
  constexpr auto kFew = 32;
  if (std::distance(begin, end) <= kFew) {
    std::sort(begin, end);
  } else {
    std::stable_sort(begin, end);
  }
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_SORT_EDGES_H_
