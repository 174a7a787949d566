// The order of deterministic sums, by its definition (commsched/plugin.h).
#ifndef COMMSCHED_TEST_SUPPORT_TREE_SUM_H_
#define COMMSCHED_TEST_SUPPORT_TREE_SUM_H_

namespace commsched::test {

// What of(lo) to of(hi - 1) are together: what the two halves are, of which the
// first is as long as the greatest power of two that leaves something to the
// other.
template <typename Of, typename Combine>
auto OverTree(int lo, int hi, const Of& of, const Combine& combine)
    -> decltype(of(lo)) {
  if (hi - lo == 1) return of(lo);
  int half = 1;
  while (2 * half < hi - lo) half *= 2;
  const auto left = OverTree(lo, lo + half, of, combine);
  return combine(left, OverTree(lo + half, hi, of, combine));
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_TREE_SUM_H_
