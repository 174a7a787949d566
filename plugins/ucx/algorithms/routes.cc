#include "ucx/algorithms/routes.h"

#include <algorithm>

namespace commsched::ucx {

Routes::Routes(const Layout& layout, const LaunchShape& shape)
    : layout_(layout),
      kind_(shape.kind),
      root_(shape.root),
      element_bytes_(shape.element_bytes),
      partial_bytes_(shape.partial_bytes) {}

Hop Routes::InputTo(int rank, int owner) const {
  if (rank == owner) return {};
  const Node node = layout_.NodeOf(rank);
  if (layout_.ShareHost(rank, owner) || !IsSummedUp(node)) {
    return {owner, kInputs};
  }
  const int summer = SummerOf(node, owner);
  if (summer == rank) return {};
  return {summer, kNodeInputs};
}

int Routes::GetterAt(int host, int owner) const {
  const auto& ranks = layout_.RanksOf(host);
  return ranks[static_cast<size_t>(layout_.IndexOf(owner)) % ranks.size()];
}

bool Routes::HandsOn(int rank, int owner) const {
  return kind_ != COMMSCHED_REDUCE && !layout_.ShareHost(rank, owner) &&
         layout_.RanksOf(layout_.HostOf(rank)).size() > 1 &&
         ResultFrom(rank, owner).peer == owner;
}

Hop Routes::ResultFrom(int rank, int owner) const {
  if (kind_ == COMMSCHED_REDUCE_SCATTER) return {};
  if (kind_ == COMMSCHED_REDUCE) {
    if (rank != root_ || owner == root_) return {};
    return {owner, kResults};
  }
  if (kind_ == COMMSCHED_BROADCAST) {
    if (rank == root_) return {};
    const bool is_root_near =
        layout_.num_hosts() > 1 && layout_.ShareHost(rank, root_);
    if (rank == owner || is_root_near) return {root_, kResults};
  }
  if (rank == owner) return {};
  if (layout_.ShareHost(rank, owner)) return {owner, kResults};
  const int hands_on = GetterAt(layout_.HostOf(rank), owner);
  if (hands_on == rank) return {owner, kResults};
  return {hands_on, kForwarded};
}

Hop Routes::RelayedFrom(int rank, int owner, int via) const {
  if (rank == owner) return {};
  if (layout_.ShareHost(rank, owner)) return {owner, kResults};
  const int relay = GetterAt(via, owner);
  if (rank == relay) return {owner, kResults};
  const int host = layout_.HostOf(rank);
  const int getter = GetterAt(host, owner);
  if (host == via || rank == getter) return {relay, kRelayed};
  return {getter, kRelayForwarded};
}

bool Routes::HandsOnRelayed(int rank, int owner, int via) const {
  const int host = layout_.HostOf(rank);
  return host != via && !layout_.ShareHost(rank, owner) &&
         layout_.RanksOf(host).size() > 1 && GetterAt(host, owner) == rank;
}

int64_t Routes::PieceBytes(int host) const {
  uint64_t bytes = 0;
  for (const int rank : layout_.RanksOf(host)) {
    const Node node = layout_.NodeOf(rank);
    if (!IsSummedUp(node)) {
      bytes += element_bytes_;
    } else if (node.begin == rank) {
      bytes += partial_bytes_;
    }
  }
  return static_cast<int64_t>(bytes);
}

int64_t Routes::AllPieceBytes() const {
  int64_t bytes = 0;
  for (int host = 0; host < layout_.num_hosts(); ++host) {
    bytes += PieceBytes(host);
  }
  return bytes;
}

uint32_t Routes::MostPieces() const {
  uint32_t most = 0;
  for (int host = 0; host < layout_.num_hosts(); ++host) {
    uint32_t pieces = 0;
    for (const int rank : layout_.RanksOf(host)) {
      const Node node = layout_.NodeOf(rank);
      if (!IsSummedUp(node) || node.begin == rank) ++pieces;
    }
    most = std::max(most, pieces);
  }
  return most;
}

uint64_t Routes::MostInputs() const {
  const int64_t all = AllPieceBytes();
  uint64_t most = 1;
  for (int host = 0; host < layout_.num_hosts(); ++host) {
    const auto others = static_cast<uint64_t>(all - PieceBytes(host));
    most =
        std::max(most, others / element_bytes_ + layout_.RanksOf(host).size());
  }
  return most;
}

void Routes::FindLoads(std::vector<HostLoad>* loads) const {
  const int64_t all = AllPieceBytes();
  loads->clear();
  for (int host = 0; host < layout_.num_hosts(); ++host) {
    loads->push_back(LoadOf(host, all));
  }
}

// With a share s of the result: pieces for the rest of it go out and those of
// others for s come in. Of an all-reduce s goes to each other host and the rest
// comes in; of a reduce all but the root's share goes to its host.
HostLoad Routes::LoadOf(int host, int64_t all_piece_bytes) const {
  const int64_t own = PieceBytes(host);
  const int64_t others = all_piece_bytes - own;
  const auto element = static_cast<int64_t>(element_bytes_);
  HostLoad load = {{own, -own}, {0, others}};
  if (kind_ == COMMSCHED_ALL_REDUCE) {
    load.out.slope += element * (layout_.num_hosts() - 1);
    load.in.fixed += element;
    load.in.slope -= element;
  } else if (kind_ != COMMSCHED_REDUCE) {
    return load;
  } else if (layout_.HostOf(root_) == host) {
    load.in.fixed += element;
    load.in.slope -= element;
  } else {
    load.out.slope += element;
  }
  return load;
}

}  // namespace commsched::ucx
