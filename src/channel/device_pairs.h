// Communicators of pairs of ranks, on streams of their own.
#ifndef COMMSCHED_SRC_CHANNEL_DEVICE_PAIRS_H_
#define COMMSCHED_SRC_CHANNEL_DEVICE_PAIRS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "channel/channel_spec.h"
#include "channel/device_line.h"
#include "comm/backend_rank.h"
#include "comm/comm_aborter.h"
#include "device/device.h"

namespace commsched {

// A device does what is launched on one communicator, or one stream, in that
// order, so that a send would wait for whatever was launched before it. So each
// pair of ranks has both for itself, made when a rank first sends to the other
// or receives from it, in whatever order pairs come. Nobody waits for the other
// rank: the pair is connected once both have come.
//
// When the world loses a rank, or the channel fails on another one, all are
// aborted.
//
// Thread-safe, but for Close().
class DevicePairs {
 public:
  // `num_lanes` is that of commsched_comm_desc_t. `channel`, `rank` and
  // `device` outlive this.
  DevicePairs(const ChannelSpec* channel, BackendRank* rank, Device* device,
              uint32_t num_lanes, uint32_t max_members);
  DevicePairs(const DevicePairs&) = delete;
  DevicePairs& operator=(const DevicePairs&) = delete;

  // Begins to make that with `peer`, another rank of the group, once.
  absl::StatusOr<DeviceRoad> Make(int peer);
  // What this rank is called in the pair with `peer`, and that one.
  int OwnRankIn(int peer) const { return channel_.group.rank < peer ? 0 : 1; }
  int PeerRankIn(int peer) const { return 1 - OwnRankIn(peer); }
  // Whether that of `road` is connected. With the rank's turn.
  absl::StatusOr<bool> IsConnected(const DeviceRoad& road) const;

  void Abort(const absl::Status& why) { aborter_->OnFailure(why); }
  // Destroys them, as Communicators::Close() does.
  absl::Status Close(int64_t timeout_ns);

 private:
  struct Pair {
    void* comm = nullptr;
    std::unique_ptr<Stream> stream;
  };
  absl::StatusOr<void*> CreateComm(int peer);

  const ChannelSpec& channel_;
  BackendRank* const rank_;
  Device* const device_;
  const uint32_t num_lanes_;
  const uint32_t max_members_;
  const std::shared_ptr<CommAborter> aborter_;

  Mutex mu_;
  // By peer, which is one order for all ranks: pairs end in it.
  std::map<int, Pair> pairs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CHANNEL_DEVICE_PAIRS_H_
