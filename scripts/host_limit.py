"""The least that collectives take of the links between hosts.

`host_of` is the host of each rank. Bytes are of the larger side, as those of
`commsched bench coll`, so that a part of n ranks has `num_bytes` / n.

Parts that are gathered leave their host once at least, and each host gets those of
all others: that is enough where hosts send on what others have (see below). Those
of an all-to-all go straight to their host. A deterministic sum is a tree over the ranks, T(lo, hi) = T(lo, m) + T(m, hi), with m - lo the largest power
of two below hi - lo; a host sends a partial sum (a piece) for each largest node of
the tree that covers its own ranks only. Each element is added up on one host, which
sends the result to those that want it. Where the result is not in parts, the shares
that the hosts add up are such that the busiest direction of all links carries the
least.
"""

ROUNDS = 60  # Of the bisection: each halves the error.


def pieces(host_of, host, widening=1):
  """What `host` sends of a sum that others add up, in sizes of the array.

  With `widening` 2 partial sums are in a type twice as wide as the elements, as
  fp32 is for 16-bit types: a host sends two elements rather than their sum.
  """
  def covering(low, high):
    mine = host_of[low:high].count(host)
    if mine == 0:
      return 0
    if mine == high - low:
      return min(mine, widening)
    middle = low + (1 << (high - low - 1).bit_length() - 1)
    return covering(low, middle) + covering(middle, high)
  return covering(0, len(host_of))


def least_of_shares(links):
  """The least `busiest` for which there are shares of the hosts, of sum 1, with
  a + b * share <= busiest for each (a, b) of the host's."""
  low, high = 0.0, float(sum(abs(a) + abs(b) for link in links for a, b in link))
  for _ in range(ROUNDS):
    busiest = (low + high) / 2
    if has_shares(links, busiest):
      high = busiest
    else:
      low = busiest
  return high


def has_shares(links, busiest):
  least, most = 0.0, 0.0
  for link in links:
    low, high = 0.0, 1.0
    for a, b in link:
      if b > 0:
        high = min(high, (busiest - a) / b)
      elif b < 0:
        low = max(low, (busiest - a) / b)
      elif a > busiest:
        return False
    if low > high:
      return False
    least, most = least + low, most + high
  return least <= 1 <= most


def all_reduce(host_of, sent):
  others = len(sent) - 1
  # The links out, then in, of a host with that share.
  return least_of_shares([[(c, others - c), (1, sum(sent) - c - 1)]
                          for c in sent])


def reduce(host_of, sent):
  """To rank 0."""
  def link(host, c):
    in_pieces = sum(sent) - c
    if host == host_of[0]:
      return [(c, -c), (1, in_pieces - 1)]
    return [(c, 1 - c), (0, in_pieces)]
  return least_of_shares([link(host, c) for host, c in enumerate(sent)])


def reduce_scatter(host_of, sent):
  return max(max(c * (1 - share), (sum(sent) - c) * share)
             for c, share in zip(sent, shares_of_ranks(host_of)))


def all_gather(host_of, sent):
  # A host that spreads s of the array, its own parts or others', sends its own
  # ones once and each of these to the len(sent) - 2 hosts that lack it still:
  # hosts can spread all of it within this, since the others have to get
  # len(sent) - 1 arrays in all.
  return max(max(share, 1 - share) for share in shares_of_ranks(host_of))


def broadcast(host_of, sent):
  return 1


def all_to_all(host_of, sent):
  return max(share * (1 - share) * len(host_of)
             for share in shares_of_ranks(host_of))


def shares_of_ranks(host_of):
  return [host_of.count(host) / len(host_of)
          for host in range(max(host_of) + 1)]


LIMITS = {function.__name__: function for function in
          (all_reduce, all_gather, reduce_scatter, all_to_all, broadcast,
           reduce)}


def least_bytes(collective, host_of, num_bytes, widening=1):
  """What the busiest direction of a link carries; 0 on one host."""
  hosts = range(max(host_of) + 1)
  if len(hosts) == 1:
    return 0.0
  sent = [pieces(host_of, host, widening) for host in hosts]
  return LIMITS[collective](host_of, sent) * num_bytes
