"""Ratios of what was measured in turns: the median, and where it lies."""

import math
import statistics

CONFIDENCE = 0.95


def interval(values):
  """Bounds of the median, whatever the distribution is: the order statistics nearest
  to the middle between which it lies with CONFIDENCE. Of fewer than six values it lies
  less surely even between the least and the greatest, which are returned then."""
  values = sorted(values)
  count, cut = len(values), 0
  outside = 2 / 2**count  # That the median is below the first or above the last.
  while cut < (count - 1) // 2:
    outside += 2 * math.comb(count, cut + 1) / 2**count
    if outside > 1 - CONFIDENCE:
      break
    cut += 1
  return values[cut], values[count - 1 - cut]


def gain(beside, mine):
  """How many times as long `beside` takes as `mine`, round by round: the median, and
  its interval."""
  ratios = [theirs / ours for theirs, ours in zip(beside, mine)]
  return statistics.median(ratios), interval(ratios)
