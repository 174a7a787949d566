#ifndef COMMSCHED_SRC_CHANNEL_CHANNEL_SPEC_H_
#define COMMSCHED_SRC_CHANNEL_CHANNEL_SPEC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "base/completions.h"
#include "comm/world.h"
#include "commsched/plugin.h"
#include "session/session_spec.h"
#include "trace/recorder.h"

namespace commsched {

// Of include/commsched/channel.h.
inline constexpr commsched_collective_t kGather = 32;
inline constexpr commsched_collective_t kScatter = 33;
inline constexpr int32_t kAnyPeer = -1;

struct ChannelSpec {
  // Of collectives, and of sends and receives, unless the caller says less.
  static constexpr uint32_t kMaxInFlight = 64;
  static constexpr uint32_t kMaxTransfers = 256;

  std::shared_ptr<World> world;
  int world_rank = 0;
  // Of this rank's channels on this axis among these ranks, from 0.
  uint64_t number = 0;
  GroupSpec group;
  std::shared_ptr<Completions> completions;  // null: nobody is told
  uint64_t key = 0;                          // Completion::channel
  // The window: what is posted and not complete. Equal on all members.
  uint32_t max_in_flight = kMaxInFlight;   // collectives
  uint32_t max_transfers = kMaxTransfers;  // sends and receives
  uint64_t max_bytes_in_flight = 0;        // of collectives; 0: no limit
  int64_t launch_timeout_ns = 0;
  std::string flight_path;             // of the flight record; empty: none
  std::shared_ptr<Recorder> recorder;  // null: launches are not traced
};

// What is submitted. Arrays are read during the call only.
struct ChannelOp {
  commsched_collective_t kind = COMMSCHED_BARRIER;
  commsched_dtype_t dtype = COMMSCHED_F32;
  commsched_reduce_op_t reduce_op = COMMSCHED_SUM;
  int32_t peer = 0;  // the root, or the other one of a send or receive
  uint64_t tag = 0;
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t count = 0;
  absl::Span<const uint64_t> counts;  // of uneven parts
  bool deterministic = false;
  double scale = 0;   // of PREMUL_SUM
  uint64_t user = 0;  // Completion::user
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_CHANNEL_SPEC_H_
