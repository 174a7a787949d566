// What messages are told apart by: 37 bits of the communicator, 12 of the
// sender's rank in the group, 15 of what it is.
#ifndef COMMSCHED_PLUGINS_UCX_TAGS_H_
#define COMMSCHED_PLUGINS_UCX_TAGS_H_

#include <cstdint>

#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

inline constexpr int kRankBits = 12;
inline constexpr int kTypeBits = 15;
inline constexpr int kCommBits = 64 - kRankBits - kTypeBits;
// A collective's data has its number modulo this, times the number of phases,
// and its phase (operation.h). Other messages have one of these.
inline constexpr uint64_t kNumLaunches = 0x700;
// What is sent with a tag has the request of the receive that it is for, added
// to this (ready_receives.h).
inline constexpr uint64_t kTaggedType = 0x4000;
// What is sent without one has its number between the two, modulo this.
inline constexpr uint64_t kPeersType = 0x5000;
inline constexpr uint64_t kNumPeersTypes = 0x2000;
inline constexpr uint64_t kCardsType = 0x7f7f;
// Of all communicators: these bits of theirs are 0, which none has.
inline constexpr uint64_t kNoticeType = 0x7f81;
inline constexpr uint64_t kAnswerType = 0x7f82;
inline constexpr uint64_t kTimesType = 0x7f83;
static_assert(kNumLaunches * kNumPhases <= kTaggedType);
static_assert(kTaggedType + kNumLaunches <= kPeersType);
static_assert(kPeersType + kNumPeersTypes <= kCardsType);
static_assert(kCardsType < kNoticeType);
// What a receive looks at.
inline constexpr uint64_t kWholeTag = ~uint64_t{0};
inline constexpr uint64_t kAnySource =
    ~(((uint64_t{1} << kRankBits) - 1) << kTypeBits);

// Whether messages of such a tag are received from any source.
inline constexpr bool IsFromAny(uint64_t tag) {
  return (tag & ((uint64_t{1} << kTypeBits) - 1)) >= kNoticeType;
}
inline constexpr uint64_t CommOf(uint64_t tag) {
  return tag >> (kRankBits + kTypeBits);
}
// `comm`: its 37 bits.
inline constexpr uint64_t TagOf(uint64_t comm, int source, uint64_t type) {
  return comm << (kRankBits + kTypeBits) |
         static_cast<uint64_t>(source) << kTypeBits | type;
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_TAGS_H_
