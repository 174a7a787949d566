// Which elements of a launch by levels (levels.cc) each rank owns, and in which
// chunks they travel.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_LEVEL_PARTS_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_LEVEL_PARTS_H_

#include <algorithm>
#include <cstdint>

#include "commsched/plugin.h"
#include "ucx/algorithms/layout.h"
#include "ucx/algorithms/operation.h"
#include "ucx/algorithms/relays.h"

namespace commsched::ucx {

// Equal on all ranks. Uses room of `operation`, one of it at a time.
// Thread-compatible.
class LevelParts {
 public:
  struct Part {
    Range range;
    bool exists = true;  // A part of nothing may be a message all the same.
  };

  // With chunks of up to `chunk` elements. All must outlive it.
  LevelParts(const commsched_launch_t& launch, const Layout& layout,
             uint64_t chunk, Operation* operation);
  LevelParts(const LevelParts&) = delete;
  LevelParts& operator=(const LevelParts&) = delete;

  uint64_t chunk() const { return chunk_; }
  uint64_t relayed_chunk() const { return Relays::ChunkOf(chunk_, element_); }
  const Relays& relays() const { return relays_; }

  // Called before anything is asked of a member, or of its relays.
  void Find(const commsched_member_t& member);
  // What `owner` owns of a member, in its whole, or in the side that has parts,
  // and does not send by way of others.
  Part Of(const commsched_member_t& member, int owner) const;
  // Likewise, of an all-gather, with what goes by way of others.
  Range WholeOf(const commsched_member_t& member, int owner) const {
    return SidePart(member, member.output_stride, owner);
  }

  // Calls each(owner, chunk): the first chunk of every part, beginning with
  // that of rank `first`, then the second, and so on.
  template <typename Each>
  void ForChunks(const commsched_member_t& member, int first,
                 const Each& each) const;

 private:
  void ShareOut();
  void FindRelays();
  void CutSmaller();
  int NumWaitedFor() const;
  Range ShareOf(int host, uint64_t count) const;
  Range BroadcastPart(uint64_t count, int owner) const;
  Range HostPart(Range share, int owner) const;
  Range SidePart(const commsched_member_t& member, uint64_t stride,
                 int part) const;
  Part StraightPart(Range part, int owner) const;

  const commsched_launch_t& launch_;
  const Layout& layout_;
  const int size_;
  const uint64_t element_;
  uint64_t chunk_;  // Elements.
  Operation& op_;
  Relays relays_;
};

template <typename Each>
void LevelParts::ForChunks(const commsched_member_t& member, int first,
                           const Each& each) const {
  bool more = true;
  for (uint64_t done = 0; more; done += chunk_) {
    more = false;
    for (int distance = 0; distance < size_; ++distance) {
      const int owner = (first + distance) % size_;
      const auto [part, exists] = Of(member, owner);
      if (!exists || (done != 0 && done >= part.count)) continue;
      const uint64_t count = std::min(chunk_, part.count - done);
      each(owner, Range{part.begin + done, count});
      more |= done + count < part.count;
    }
  }
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_LEVEL_PARTS_H_
