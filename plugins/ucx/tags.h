// What messages are told apart by: 38 bits of the communicator, 12 of the
// sender's rank in the group, 14 of what it is.
#ifndef COMMSCHED_PLUGINS_UCX_TAGS_H_
#define COMMSCHED_PLUGINS_UCX_TAGS_H_

#include <cstdint>

#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

inline constexpr int kRankBits = 12;
inline constexpr int kTypeBits = 14;
inline constexpr int kCommBits = 64 - kRankBits - kTypeBits;
// A collective's data has its number modulo this, times the number of phases,
// and its phase (operation.h). Other messages have one of these.
inline constexpr uint64_t kNumLaunches = 0x7c0;
inline constexpr uint64_t kCardsType = 0x3f7f;
inline constexpr uint64_t kPeersType = 0x3f80;
// Of all communicators: these bits of theirs are 0, which none has.
inline constexpr uint64_t kNoticeType = 0x3f81;
inline constexpr uint64_t kAnswerType = 0x3f82;
inline constexpr uint64_t kTimesType = 0x3f83;
static_assert(kNumLaunches * kNumPhases <= kCardsType);
static_assert(kPeersType < kNoticeType);
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
// `comm`: its 38 bits.
inline constexpr uint64_t TagOf(uint64_t comm, int source, uint64_t type) {
  return comm << (kRankBits + kTypeBits) |
         static_cast<uint64_t>(source) << kTypeBits | type;
}

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_TAGS_H_
