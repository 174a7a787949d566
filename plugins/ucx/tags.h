// What messages are told apart by: 40 bits of the communicator, 12 of the
// sender's rank in the group, 12 of what it is.
#ifndef COMMSCHED_PLUGINS_UCX_TAGS_H_
#define COMMSCHED_PLUGINS_UCX_TAGS_H_

#include <cstdint>

namespace commsched::ucx {

inline constexpr int kRankBits = 12;
inline constexpr int kTypeBits = 12;
// A collective's data has its number modulo this, twice, and its phase: what is
// sent on is matched apart from what goes first. Other messages have one of
// these.
inline constexpr uint64_t kNumLaunches = 0x7c0;
inline constexpr uint64_t kPeersType = 0xf80;
inline constexpr uint64_t kNoticeType = 0xf81;
inline constexpr uint64_t kAnswerType = 0xf82;
// What a receive looks at.
inline constexpr uint64_t kWholeTag = ~uint64_t{0};
inline constexpr uint64_t kAnySource =
    ~(((uint64_t{1} << kRankBits) - 1) << kTypeBits);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_TAGS_H_
