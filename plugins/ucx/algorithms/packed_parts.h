// The small members of an all-to-all as one, so that what they have for a peer
// is one message.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_PARTS_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_PARTS_H_

#include <cstdint>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/operation.h"
#include "ucx/algorithms/pair_pack.h"

namespace commsched::ucx {

// A pack (PairPack) for each other rank that gets one, in scratch, and behind
// them one of each that sends one. Uses room of `operation`: one of it at a
// time. Thread-compatible.
class PackedParts {
 public:
  static constexpr uint64_t kNoPack = UINT64_MAX;

  // Of an all-to-all in chunks of `chunk_bytes`; of other launches nothing is
  // packed.
  PackedParts(const LaunchTask& task, uint64_t chunk_bytes,
              Operation* operation);
  PackedParts(const PackedParts&) = delete;
  PackedParts& operator=(const PackedParts&) = delete;

  bool has_packs() const { return scratch_bytes_ != 0; }
  uint64_t scratch_bytes() const { return scratch_bytes_; }
  // Whether the part that goes to, or comes from, a peer is in a pack.
  bool IsPacked(uint32_t member, int peer, bool sends) const {
    return pack_.is_packed[FlagOf(member, peer, sends)] != 0;
  }
  // Of the pack to, or from, a peer; kNoPack: there is none.
  uint64_t BytesOf(int peer, bool sends) const {
    return pack_.counts[PairOf(peer, sends)];
  }
  char* AddressOf(int peer, bool sends) const {
    return op_.scratch.address + pack_.begins[PairOf(peer, sends)];
  }

  // Makes the packs that are sent.
  void CopyIn() const;
  // Adds a step for each other rank, beginning with the next one, that copies
  // what has been received of it. Gives the number of the first one.
  uint32_t AddSteps(Builder* build) const;

 private:
  size_t PairOf(int peer, bool sends) const {
    return static_cast<size_t>(sends ? peer : size_ + peer);
  }
  size_t FlagOf(uint32_t member, int peer, bool sends) const {
    return PairOf(peer, sends) * task_.launch.num_members + member;
  }
  void FindPacks(uint64_t chunk_bytes, bool sends);
  // Where members' parts begin in their inputs, or outputs.
  void FindPlaces(bool sends) const;
  uint64_t CountOf(uint32_t member, int peer, bool sends) const {
    return pair_counts_.Of(task_.launch.members[member], peer, sends);
  }
  // Calls each(member, place, address, bytes) for what members have in the pack
  // to a peer, or of it: `place` is where it is in the member.
  template <typename Each>
  void ForParts(int peer, bool sends, const Each& each) const;

  const LaunchTask& task_;
  Operation& op_;
  Operation::Pack& pack_;
  const int size_;
  const PairCounts pair_counts_;
  const uint64_t element_bytes_;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_PARTS_H_
