// Which elements of an all-gather go by way of a third host.
//
// A host that sends what it has straight to each of H - 1 others has it on its
// link H - 1 times. What it sends to one of them alone, which sends it to the
// rest, it has there once, and the other one H - 2 times. So a host with `own`
// elements of its ranks that spreads s elements, its own ones or others', sends
// own + (H - 2) s; all spread what there is. Whoever has how many: none has to
// send more than the busiest direction must carry in any case, which is what
// the host with most has, or what the host with least has to get.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_RELAYS_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_RELAYS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/layout.h"
#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

// Where the elements of a part begin, and how many there are.
struct Range {
  uint64_t begin = 0;
  uint64_t count = 0;
};

// What the busiest direction of any link carries of `all` elements, of which
// the hosts have `least` to `most` each.
struct GatherLoads {
  uint64_t straight = 0;  // Without relays,
  uint64_t relayed = 0;   // and with them.

  GatherLoads(int num_hosts, uint64_t all, uint64_t least, uint64_t most);
  // Whether relays save enough, where each of `all` is so large: of the link,
  // and of what it carries, beside which they cost messages.
  bool AreWorthwhile(uint64_t bytes) const;
};

// What a rank has of an all-gather, of all members.
uint64_t GatheredOf(const commsched_launch_t& launch, int rank);

// Of one launch. Equal on all ranks. Uses room of `operation`, one of it at a
// time, and allocates nothing where there is enough.
class Relays {
 public:
  // No host gets less of one rank's part to send on: a message is sent on to
  // each of H - 2 hosts. Of many ranks a part may be small, and worth it.
  static constexpr uint64_t kLeastPartBytes = 256;

  Relays(const Layout& layout, Operation* operation);

  // First, what ranks have of the launch, of all members.
  void Add(int rank, uint64_t elements);
  // Then, what goes by way of others. False: nothing.
  bool Find(uint64_t element_bytes);
  bool exist() const { return exist_; }

  // How many of the `count` elements that a rank has of a member, the first
  // ones, go by way of others.
  uint64_t CountOf(int rank, uint64_t count) const;
  // Finds by way of whom, of the member whose parts are part_of(rank).
  template <typename PartOf>
  void Cut(const PartOf& part_of);

  // Calls each(owner, via, elements) for chunks of these: the first one of
  // each, then the second, and so on. `via` is a host, which is not the
  // owner's.
  template <typename Each>
  void ForChunks(uint64_t chunk, const Each& each) const;

  // Elements of a chunk, where those of other parts are `chunk`: a host waits
  // for one from each rank of another host before its link has work.
  static uint64_t ChunkOf(uint64_t chunk, uint64_t element_bytes);

  // Whether anything may go by way of others, in this launch or with smaller
  // counts.
  static bool MayExist(const commsched_launch_t& launch, const Layout& layout);
  // Then, room for all such launches of `rank`.
  static void Reserve(const commsched_launch_t& launch, const Layout& layout,
                      int rank, uint64_t chunk, Operation* operation);
  // And those of other hosts with whom the rank has messages in one of them.
  static void MarkPeers(const Layout& layout, int rank,
                        std::vector<bool>* peers);

 private:
  // Where those that go by way of the next host end, on a line of `all`.
  void NextVia(uint64_t all);

  const Layout& layout_;
  std::vector<Operation::Spread>& hosts_;
  std::vector<Operation::Relayed>& parts_;
  bool exist_ = false;
  uint64_t least_part_ = 0;  // Elements.
  uint64_t all_room_ = 0;
  // While a member is cut: the host, up to which there is so much room, and
  // which ends there.
  int via_ = 0;
  uint64_t room_ = 0;
  uint64_t via_end_ = 0;
};

template <typename PartOf>
void Relays::Cut(const PartOf& part_of) {
  parts_.clear();
  if (!exist_) return;
  uint64_t all = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    all += CountOf(rank, part_of(rank).count);
  }
  via_ = -1;
  room_ = via_end_ = 0;
  uint64_t place = 0;
  for (int at = 0; at < layout_.size(); ++at) {
    const int rank = layout_.RankAt(at);
    const Range part = part_of(rank);
    const uint64_t count = CountOf(rank, part.count);
    for (uint64_t done = 0; done < count;) {
      while (place >= via_end_) NextVia(all);
      uint64_t some = std::max(via_end_ - place, least_part_);
      if (count - done < some + least_part_) some = count - done;
      parts_.push_back({rank, via_, part.begin + done, some});
      done += some;
      place += some;
    }
  }
}

template <typename Each>
void Relays::ForChunks(uint64_t chunk, const Each& each) const {
  bool more = exist_;
  for (uint64_t done = 0; more; done += chunk) {
    more = false;
    for (const Operation::Relayed& part : parts_) {
      if (done >= part.count) continue;
      const uint64_t count = std::min(chunk, part.count - done);
      each(part.owner, part.via, Range{part.begin + done, count});
      more |= done + count < part.count;
    }
  }
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_RELAYS_H_
