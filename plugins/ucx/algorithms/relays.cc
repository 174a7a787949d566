#include "ucx/algorithms/relays.h"

namespace commsched::ucx {
namespace {

// Less is not worth a hop more.
constexpr uint64_t kLeastSavedBytes = 64 << 10;
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
  return (straight - relayed) * bytes >= kLeastSavedBytes;
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
  return Scaled(count, host.relayed, host.own);
}

void Relays::NextVia(uint64_t all) {
  room_ += hosts_[static_cast<size_t>(++via_)].room;
  via_end_ = Scaled(all, room_, all_room_);
}

uint64_t Relays::ChunkOf(uint64_t chunk, uint64_t element_bytes) {
  return std::min(chunk, kRelayedChunkBytes / element_bytes);
}

// A rank gets each element once, in a chunk, and sends it to those of its host;
// a host spreads no more in all than there is.
void Relays::Reserve(const commsched_launch_t& launch, int rank, uint64_t chunk,
                     Operation* operation) const {
  const auto size = static_cast<uint64_t>(layout_.size());
  const auto num_hosts = static_cast<uint64_t>(layout_.num_hosts());
  const auto near = static_cast<uint64_t>(layout_.most_ranks_per_host());
  if (launch.kind != COMMSCHED_ALL_GATHER || num_hosts < 3) return;
  bool are_even = size == near * num_hosts;
  uint64_t own_chunks = 0;
  uint64_t all_chunks = 0;
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    const commsched_member_t& member = launch.members[m];
    for (uint64_t owner = 0; owner < size; ++owner) {
      const uint64_t count =
          member.counts == nullptr ? member.count : member.counts[owner];
      const bool is_like_first =
          member.counts == nullptr || count == member.counts[0];
      are_even = are_even && is_like_first;
      const uint64_t chunks = count / chunk + 3;  // Some are cut.
      if (owner == static_cast<uint64_t>(rank)) own_chunks += chunks;
      all_chunks += chunks;
    }
  }
  if (are_even) return;
  const uint64_t messages =
      all_chunks * (near + 1) + own_chunks * (num_hosts + near);
  operation->messages.reserve(messages);
  operation->sent_on.reserve(messages);
  operation->steps.reserve(all_chunks);
  operation->copies.reserve(operation->copies.size() + all_chunks);
  operation->relayed.reserve(size + num_hosts);
}

}  // namespace commsched::ucx
