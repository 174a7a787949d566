// Which members of an all-to-all travel as one from a rank to another.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_PAIR_PACK_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_PAIR_PACK_H_

#include <algorithm>
#include <cstdint>

#include "ucx/algorithms/algorithm.h"

namespace commsched::ucx {

// What one rank has for another: a pack, which is the first message, and then
// the parts of members that are not in it, by chunks. In the pack is a digest
// of the members' counts, and behind it the parts of small members, if there
// are two. Without them there is a pack if a part has several chunks, since a
// chunk does not tell how many follow.
//
// Sender and receiver decide by these counts alone, of which each has its own
// copy. If the copies differ, so do the sizes of messages, or the digests:
// counts of other ranks do not matter. Where ranks give their own counts only,
// which nobody has compared, there is always a pack, and every small part is in
// it.
class PairPack {
 public:
  // Up to here copying a part at both ends costs less than the message of its
  // own that it saves.
  static constexpr uint64_t kMostPartBytes = 32 << 10;
  // Of all packs that a rank sends, or receives.
  static constexpr uint64_t kMostBytes = 8 << 20;
  static constexpr uint64_t kDigestBytes = sizeof(uint64_t);

  // Of members of `element_bytes` in chunks of `chunk_bytes`.
  PairPack(int size, uint64_t element_bytes, uint64_t chunk_bytes,
           LaunchTask::Packs packs = LaunchTask::Packs::kSmall,
           bool has_own_counts = false)
      : has_own_counts_(has_own_counts),
        element_bytes_(element_bytes),
        chunk_bytes_(chunk_bytes),
        most_bytes_(kMostBytes / static_cast<uint64_t>(size) - kRoundingBytes),
        packs_(packs) {}

  // Of each member, in their order. Whether its part is in the pack, if
  // has_parts() says so in the end.
  bool Add(uint64_t count) {
    const uint64_t bytes = count * element_bytes_;
    digest_ = (digest_ ^ count) * 0x9e3779b97f4a7c15;
    digest_ ^= digest_ >> 29;
    if (IsSmall(bytes)) {
      ++num_small_;
      small_bytes_ += bytes;
      return true;
    }
    const uint64_t num_chunks = NumChunks(bytes);
    has_chunks_ |= num_chunks > 1;
    num_apart_ += num_chunks;
    return false;
  }

  bool has_parts() const { return num_small_ > (has_own_counts_ ? 0 : 1); }
  bool exists() const { return has_own_counts_ || has_parts() || has_chunks_; }
  uint64_t bytes() const {
    return kDigestBytes + (has_parts() ? small_bytes_ : 0);
  }
  uint64_t digest() const { return digest_; }
  // Of the pair, in this direction.
  uint64_t num_messages() const {
    return num_apart_ + (has_parts() ? 0 : num_small_) +
           (exists() ? NumChunks(bytes()) : 0);
  }

 private:
  static constexpr uint64_t kRoundingBytes = 128;
  const bool has_own_counts_;

  bool IsSmall(uint64_t bytes) const {
    if (packs_ != LaunchTask::Packs::kSmall) {
      return packs_ == LaunchTask::Packs::kAll;
    }
    return bytes <= kMostPartBytes &&
           kDigestBytes + small_bytes_ + bytes <= most_bytes_;
  }
  // A part of nothing is a message all the same.
  uint64_t NumChunks(uint64_t bytes) const {
    return bytes == 0 ? 1 : (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  }

  const uint64_t element_bytes_;
  const uint64_t chunk_bytes_;
  const uint64_t most_bytes_;
  const LaunchTask::Packs packs_;
  uint64_t num_small_ = 0;
  uint64_t small_bytes_ = 0;
  uint64_t num_apart_ = 0;  // Messages of the others.
  bool has_chunks_ = false;
  uint64_t digest_ = 0;
};

inline bool HasOwnCounts(const commsched_launch_t& launch) {
  return (launch.flags & COMMSCHED_LAUNCH_OWN_COUNTS) != 0;
}

// What `rank` sends to a peer, or gets of it, in the members of an all-to-all.
// Thread-compatible.
class PairCounts {
 public:
  PairCounts(const commsched_launch_t& launch, int size, int rank)
      : has_own_(HasOwnCounts(launch)),
        size_(static_cast<size_t>(size)),
        rank_(static_cast<size_t>(rank)) {}

  // Row r of the counts is what rank r sends, column r what it gets; of own
  // counts, the first row is what this rank sends, the second what it gets.
  size_t First(bool sends) const {
    if (has_own_) return sends ? 0 : size_;
    return sends ? rank_ * size_ : rank_;
  }
  size_t Step(bool sends) const { return sends || has_own_ ? 1 : size_; }
  uint64_t Of(const commsched_member_t& member, int peer, bool sends) const {
    if (member.counts == nullptr) return member.count;
    return member
        .counts[First(sends) + static_cast<size_t>(peer) * Step(sends)];
  }

 private:
  const bool has_own_;
  const size_t size_;
  const size_t rank_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_PAIR_PACK_H_
