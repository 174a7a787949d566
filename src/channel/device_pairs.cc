#include "channel/device_pairs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "channel/channel_meeting.h"
#include "comm/plugin/table_support.h"

namespace commsched {

DevicePairs::DevicePairs(const ChannelSpec* channel, BackendRank* rank,
                         Device* device, uint32_t num_lanes,
                         uint32_t max_members)
    : channel_(*channel),
      rank_(rank),
      device_(device),
      num_lanes_(num_lanes),
      max_members_(max_members),
      aborter_(std::make_shared<CommAborter>(rank)) {
  channel_.world->Watch(aborter_, channel_.world_rank, ChannelScope(channel_));
}

absl::StatusOr<DeviceRoad> DevicePairs::Make(int peer) {
  Pair pair;
  ASSIGN_OR_RETURN(pair.stream, device_->CreateSideStream());
  ASSIGN_OR_RETURN(pair.comm, CreateComm(peer));
  DeviceRoad road;
  road.comm = pair.comm;
  road.stream = pair.stream.get();
  MutexLock lock(&mu_);
  pairs_[peer] = std::move(pair);
  return road;
}

absl::StatusOr<void*> DevicePairs::CreateComm(int peer) {
  const commsched_backend_t& backend = rank_->table();
  const int low = std::min(peer, channel_.group.rank);
  const int high = std::max(peer, channel_.group.rank);
  const std::string id = absl::StrCat("channel ", ChannelScope(channel_),
                                      " pair ", low, " and ", high);
  const int32_t ranks[] = {channel_.group.ranks[static_cast<size_t>(low)],
                           channel_.group.ranks[static_cast<size_t>(high)]};
  commsched_comm_desc_t desc = {};
  desc.struct_size = sizeof(desc);
  desc.id = id.c_str();
  desc.axis = channel_.group.axis.c_str();
  desc.ranks = ranks;
  desc.size = 2;
  desc.rank = OwnRankIn(peer);
  desc.max_in_flight = channel_.max_transfers;
  desc.max_members = max_members_;
  desc.num_lanes = num_lanes_;
  desc.in_any_order = 1;
  PluginMessage message;
  void* comm = nullptr;
  commsched_status_t code = COMMSCHED_OK;
  {
    const BackendRank::Turn turn(rank_);
    code = backend.comm_create(rank_->handle(), &desc, &comm, message.Begin(),
                               PluginMessage::size());
  }
  if (code != COMMSCHED_OK) {
    return BackendFailure(backend, "comm_create", code, message);
  }
  aborter_->Add(comm);
  return comm;
}

absl::StatusOr<bool> DevicePairs::IsConnected(const DeviceRoad& road) const {
  const commsched_backend_t& backend = rank_->table();
  if (backend.comm_ready == nullptr) return true;
  PluginMessage message;
  uint32_t ready = 0;
  const commsched_status_t code = backend.comm_ready(
      road.comm, &ready, message.Begin(), PluginMessage::size());
  if (code != COMMSCHED_OK) {
    return BackendFailure(backend, "comm_ready", code, message);
  }
  RETURN_IF_ERROR(CheckReady(backend, ready));
  return ready == 1;
}

absl::Status DevicePairs::Close(int64_t timeout_ns) {
  aborter_->Close();
  const int64_t deadline_ns =
      DeadlineAfter(SystemClock::Get().NowNs(), timeout_ns);
  absl::Status result;
  const BackendRank::Turn turn(rank_);
  MutexLock lock(&mu_);
  for (auto& [peer, pair] : pairs_) {
    PluginMessage message;
    const commsched_status_t code = rank_->table().comm_destroy(
        std::exchange(pair.comm, nullptr), deadline_ns, message.Begin(),
        PluginMessage::size());
    if (code != COMMSCHED_OK && result.ok()) {
      result = BackendFailure(rank_->table(), "comm_destroy", code, message);
    }
  }
  return result;
}

}  // namespace commsched
