#include "ucx/algorithms/relays.h"

#include "ucx/algorithms/routes.h"

namespace commsched::ucx {
namespace {

// Less is not worth a hop more.
constexpr uint64_t kLeastSavedBytes = 64 << 10;
constexpr uint64_t kLeastSavedPart = 16;  // One of so many.
constexpr uint64_t kRelayedChunkBytes = 128 << 10;

// Rounded down.
uint64_t Scaled(uint64_t count, uint64_t part, uint64_t whole) {
  __extension__ typedef unsigned __int128 Wide;
  return whole == 0 ? 0 : static_cast<uint64_t>(Wide{count} * part / whole);
}

}  // namespace

GatherLoads::GatherLoads(int num_hosts, uint64_t all, uint64_t least,
                         uint64_t most)
    : straight(
          std::max(most * static_cast<uint64_t>(num_hosts - 1), all - least)),
      relayed(num_hosts > 1 ? std::max(most, all - least) : 0) {}

bool GatherLoads::AreWorthwhile(uint64_t bytes) const {
  const uint64_t saved = straight - relayed;
  return saved * bytes >= kLeastSavedBytes &&
         saved >= relayed / kLeastSavedPart;
}

uint64_t GatheredOf(const commsched_launch_t& launch, int rank) {
  uint64_t elements = 0;
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    const commsched_member_t& member = launch.members[m];
    elements += member.counts != nullptr
                    ? member.counts[static_cast<size_t>(rank)]
                    : member.count;
  }
  return elements;
}

Relays::Relays(const Layout& layout, Operation* operation)
    : layout_(layout), hosts_(operation->spreads), parts_(operation->relayed) {
  hosts_.assign(static_cast<size_t>(layout.num_hosts()), {});
  parts_.clear();
}

void Relays::Add(int rank, uint64_t elements) {
  hosts_[static_cast<size_t>(layout_.HostOf(rank))].own += elements;
}

// A host spreads its own elements first.
bool Relays::Find(uint64_t element_bytes) {
  least_part_ = kLeastPartBytes / element_bytes;
  uint64_t all = 0;
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const Operation::Spread& host : hosts_) {
    all += host.own;
    least = std::min(least, host.own);
    most = std::max(most, host.own);
  }
  const GatherLoads loads(layout_.num_hosts(), all, least, most);
  if (!loads.AreWorthwhile(element_bytes)) return false;
  uint64_t left = 0;  // To go by way of somebody.
  for (Operation::Spread& host : hosts_) {
    const uint64_t spread = (loads.relayed - host.own) / (hosts_.size() - 2);
    host.relayed = host.own - std::min(host.own, spread);
    host.room = spread - std::min(host.own, spread);
    left += host.relayed;
    all_room_ += host.room;
  }
  // Rooms were rounded down.
  for (Operation::Spread& host : hosts_) {
    if (left <= all_room_) break;
    const uint64_t less = std::min(host.relayed, left - all_room_);
    host.relayed -= less;
    left -= less;
  }
  exist_ = all_room_ != 0;
  return exist_;
}

uint64_t Relays::CountOf(int rank, uint64_t count) const {
  if (!exist_) return 0;
  const Operation::Spread& host =
      hosts_[static_cast<size_t>(layout_.HostOf(rank))];
  const uint64_t relayed = Scaled(count, host.relayed, host.own);
  return relayed < least_part_ ? 0 : relayed;
}

void Relays::NextVia(uint64_t all) {
  room_ += hosts_[static_cast<size_t>(++via_)].room;
  via_end_ = Scaled(all, room_, all_room_);
}

uint64_t Relays::ChunkOf(uint64_t chunk, uint64_t element_bytes) {
  return std::min(chunk, kRelayedChunkBytes / element_bytes);
}

bool Relays::MayExist(const commsched_launch_t& launch, const Layout& layout) {
  const int num_hosts = layout.num_hosts();
  if (launch.kind != COMMSCHED_ALL_GATHER || num_hosts < 3) return false;
  bool may_be_uneven =
      layout.size() != layout.most_ranks_per_host() * num_hosts;
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    may_be_uneven |= launch.members[m].counts != nullptr;
  }
  if (!may_be_uneven) return false;
  const uint64_t least = kLeastPartBytes / ElementBytes(launch.dtype);
  for (int rank = 0; rank < layout.size(); ++rank) {
    if (GatheredOf(launch, rank) >= least) return true;
  }
  return false;
}

namespace {

// Of some of the ranks: what they have, in how many parts that do not go by way
// of others, and in how many that do, each by way of one host.
struct Gathered {
  uint64_t elements = 0;
  uint64_t straight_parts = 0;
  uint64_t relayed_parts = 0;
};

// The most that a rank does in an all-gather with these or smaller counts,
// whatever goes by way of whom, in chunks and parts of at least these sizes.
class RelayBounds {
 public:
  RelayBounds(const commsched_launch_t& launch, const Layout& layout, int rank,
              uint64_t chunk)
      : chunk_(chunk),
        element_(ElementBytes(launch.dtype)),
        least_part_(Relays::kLeastPartBytes / element_),
        members_(launch.num_members),
        num_hosts_(static_cast<uint64_t>(layout.num_hosts())),
        near_(layout.RanksOf(layout.HostOf(rank)).size()) {
    const Routes routes(layout, LaunchShape{.kind = launch.kind});
    for (int owner = 0; owner < layout.size(); ++owner) {
      const uint64_t elements = GatheredOf(launch, owner);
      Add(elements, &all_);
      if (owner == rank) {
        Add(elements, &own_);
      } else if (!layout.ShareHost(owner, rank) &&
                 routes.GetterAt(layout.HostOf(rank), owner) == rank) {
        Add(elements, &got_);
      }
    }
  }

  // Of others, each of which comes once.
  uint64_t Received() const { return ChunksOf(all_); }
  // Of other hosts, which the rank has for its own, or for others.
  uint64_t HandedOn() const { return ChunksOf(got_); }
  uint64_t SentOn() const {
    return HandedOn() * (near_ - 1) + RelayedFor() * (num_hosts_ - 2);
  }
  uint64_t Sent() const {
    const uint64_t straight = OwnStraight() / chunk_ + members_;
    return straight * (num_hosts_ - 1 + near_ - 1) + ChunksOf(own_) * near_;
  }

 private:
  void Add(uint64_t elements, Gathered* gathered) const {
    gathered->elements += elements;
    gathered->straight_parts += members_;
    gathered->relayed_parts += std::min(members_, elements / least_part_);
  }

  // Where hosts are changed each time, a part is cut.
  uint64_t ChunksOf(const Gathered& gathered) const {
    return gathered.elements / chunk_ + gathered.straight_parts +
           std::min(gathered.relayed_parts + members_ * (num_hosts_ - 1),
                    gathered.elements / least_part_);
  }

  // A host spreads no more than H - 2 of which are all that there is, and, of
  // each member, what is cut off to no part that is too small.
  uint64_t RelayedFor() const {
    const uint64_t most =
        all_.elements / (num_hosts_ - 2) + members_ * (2 * least_part_ + 1);
    const uint64_t elements = std::min(got_.elements, most);
    return elements / chunk_ +
           std::min(got_.relayed_parts, elements / least_part_);
  }

  // Likewise; more only where the busiest link would not be relieved by it, or
  // of each member what is too small for a part.
  uint64_t OwnStraight() const {
    const uint64_t most = (all_.elements + all_.elements / kLeastSavedPart +
                           kLeastSavedBytes / element_) /
                              (num_hosts_ - 2) +
                          2 * num_hosts_ + members_ * (least_part_ + 1);
    return std::min(own_.elements, most);
  }

  const uint64_t chunk_;
  const uint64_t element_;
  const uint64_t least_part_;
  const uint64_t members_;
  const uint64_t num_hosts_;
  const uint64_t near_;
  Gathered all_;
  Gathered own_;
  Gathered got_;
};

}  // namespace

void Relays::Reserve(const commsched_launch_t& launch, const Layout& layout,
                     int rank, uint64_t chunk, Operation* operation) {
  const RelayBounds bounds(launch, layout, rank, chunk);
  const uint64_t received = bounds.Received();
  operation->messages.reserve(received + bounds.SentOn() + bounds.Sent());
  operation->sent_on.reserve(bounds.SentOn());
  // Of a pack all that is received is copied out.
  const bool may_pack = launch.num_members > 1;
  operation->steps.reserve(may_pack ? received : bounds.HandedOn());
  if (!operation->copies.empty()) {
    operation->copies.reserve(operation->copies.size() + received);
  }
  operation->relayed.reserve(
      static_cast<size_t>(layout.size() + layout.num_hosts()));
}

// By way of any host to any other one, of an owner on a third one; and straight
// from the owner.
void Relays::MarkPeers(const Layout& layout, int rank,
                       std::vector<bool>* peers) {
  const auto size_of = [&](int host) {
    return static_cast<int>(layout.RanksOf(host).size());
  };
  const auto mark = [&](int host, int index) {
    const int peer =
        layout.RanksOf(host)[static_cast<size_t>(index % size_of(host))];
    (*peers)[static_cast<size_t>(peer)] = true;
  };
  const int own_host = layout.HostOf(rank);
  const int near = size_of(own_host);
  for (int index = layout.IndexOf(rank); index < layout.most_ranks_per_host();
       index += near) {
    int num_owners = 0;
    for (int host = 0; host < layout.num_hosts(); ++host) {
      num_owners += host != own_host && size_of(host) > index ? 1 : 0;
    }
    for (int host = 0; host < layout.num_hosts(); ++host) {
      if (host == own_host) continue;
      const bool is_owner_there = size_of(host) > index;
      const bool is_third = num_owners > (is_owner_there ? 1 : 0);
      if (index < near || is_owner_there || is_third) mark(host, index);
    }
  }
}

}  // namespace commsched::ucx
