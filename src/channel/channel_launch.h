// What a request asks of the backend.
#ifndef COMMSCHED_SRC_CHANNEL_CHANNEL_LAUNCH_H_
#define COMMSCHED_SRC_CHANNEL_CHANNEL_LAUNCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "channel/channel_spec.h"
#include "commsched/plugin.h"

namespace commsched {

struct ChannelRequest;

// A launch, with all that it refers to. It is used again once it is complete,
// so that launches of shapes that were seen allocate nothing.
struct ChannelLaunch {
  commsched_launch_t call = {};
  std::vector<commsched_member_t> members;
  std::vector<uint64_t> counts;
  commsched_collective_t kind = COMMSCHED_BARRIER;  // as it was submitted
  uint64_t bytes = 0;  // payload, as the window counts it
  // What this rank has for itself of a gather or scatter, or of an all-to-all
  // that is made of sends and receives.
  const void* own_input = nullptr;
  void* own_output = nullptr;
  uint64_t own_bytes = 0;

  // Matched by pair and tag, in no order with collectives; on a device by pair,
  // in the order of submits.
  bool is_transfer = false;
  int32_t peer = 0;     // of the first of its sends and receives
  uint64_t number = 0;  // of a collective: among the channel's, from 1
  ChannelRequest* request = nullptr;
  ChannelLaunch* next = nullptr;  // in the list that it is in

  // Once it is with the backend.
  int64_t posted_ns = 0;   // if it is traced
  uint32_t posted_as = 0;  // the backend's number for it
  int64_t wake_at_ns = 0;
  bool is_done = false;  // the backend says so
};

// What launches are checked and made for.
struct ChannelGroup {
  const commsched_backend_t* backend = nullptr;
  absl::string_view axis;
  int rank = 0;  // in the group
  int size = 0;
  uint32_t max_members = 1;  // of a launch
};

// Tags from here on are the library's.
inline constexpr uint64_t kFirstOwnTag = uint64_t{1} << 63;

// "gather", "all_reduce", or "collective 99".
std::string ChannelKindName(commsched_collective_t kind);

// Whether `op` is a send or a receive of its own.
inline bool IsTransfer(const ChannelOp& op) {
  return op.kind == COMMSCHED_SEND || op.kind == COMMSCHED_RECV;
}

// Fills in what `op` asks of the backend. kInvalidArgument and kUnimplemented,
// naming the field, its value and what is allowed; then `launch` may be used
// for another op. Collectives only.
absl::Status BuildLaunch(const ChannelGroup& group, const ChannelOp& op,
                         ChannelLaunch* launch);

// The same of sends and receives that have one tag.
absl::Status BuildTransfers(const ChannelGroup& group,
                            absl::Span<const ChannelOp* const> ops,
                            ChannelLaunch* launch);

// For messages: "#3 all_reduce of the channel on axis dp", "send to rank 2 with
// tag 5 of the channel on axis dp". Ranks are those of the group.
std::string LaunchText(const ChannelGroup& group, const ChannelLaunch& launch);

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_CHANNEL_LAUNCH_H_
