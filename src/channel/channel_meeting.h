// Where the members of a channel meet.
#ifndef COMMSCHED_SRC_CHANNEL_CHANNEL_MEETING_H_
#define COMMSCHED_SRC_CHANNEL_CHANNEL_MEETING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "channel/channel_spec.h"

namespace commsched {

// What the channel is known by: equal on all members, and no other's. `scope`
// is the same as a number.
std::string ChannelId(const ChannelSpec& spec);
uint64_t ChannelScope(const ChannelSpec& spec);

// Blocks until all members have come with a channel of the same name, and
// compares what has to be equal. `described`: this rank's failure, if it cannot
// take part; it gets it back, and the others learn it.
//
// kFailedPrecondition if a member cannot, creates another channel while it
// waits for this one, or has other limits, naming ranks and values;
// kDeadlineExceeded, naming who is missing, after the launch timeout.
absl::Status MeetMembers(const ChannelSpec& spec,
                         const absl::Status& described);

// All members say whether they can use their communicators: so none launches
// into one that another could not join. The same errors.
absl::Status MeetReady(const ChannelSpec& spec, const absl::Status& ready);

// Instead of MeetMembers(): this rank will not come. Never blocks.
void DeclineToMeet(const ChannelSpec& spec, const absl::Status& why);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_CHANNEL_MEETING_H_
