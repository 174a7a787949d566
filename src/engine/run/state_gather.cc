#include "engine/run/state_gather.h"

#include <limits>
#include <numeric>

namespace commsched::engine {
namespace {

constexpr char kGathering[] = "gathering from the ranks of the engine";

}  // namespace

Status StateGather::Open(commsched_context_t* context, commsched_group_t* group,
                         int64_t timeout_ns) {
  if (channel_ != nullptr) return Status();
  commsched_channel_desc_t desc = commsched_channel_desc_init();
  desc.launch_timeout_ns = timeout_ns;
  commsched_channel_t* channel = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_channel_create(context, group, &desc, &channel), kGathering));
  channel_.reset(channel);
  rank_ = static_cast<uint32_t>(commsched_group_rank(group));
  on_host_ =
      commsched_context_device(context, nullptr) == COMMSCHED_DEVICE_HOST;
  return Status();
}

Status StateGather::Gather(const Pieces& pieces, uint32_t root, float* out) {
  const uint64_t total =
      std::accumulate(pieces.counts.begin(), pieces.counts.end(), uint64_t{0});
  if (total == 0) return Status();
  Array<float> mine, all;
  ENGINE_RETURN_IF_ERROR(Array<float>::Create(memory_, kernels_, "a piece",
                                              pieces.counts[rank_], &mine));
  ENGINE_RETURN_IF_ERROR(pieces.read(mine.data()));
  float* gathered = on_host_ ? out : nullptr;
  if (rank_ == root && !on_host_) {
    ENGINE_RETURN_IF_ERROR(
        Array<float>::Create(memory_, kernels_, "a parameter", total, &all));
    gathered = all.data();
  }
  commsched_channel_op_t op = commsched_channel_op_init();
  op.kind = COMMSCHED_GATHER;
  op.dtype = COMMSCHED_F32;
  op.peer = static_cast<int32_t>(root);
  op.input = mine.data();
  op.output = gathered;
  op.counts = pieces.counts.data();
  op.num_counts = static_cast<uint32_t>(pieces.counts.size());
  uint64_t request = 0;
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_channel_submit(channel_.get(), &op,
                                                kernels_.stream(), &request),
                       kGathering));
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_channel_wait(channel_.get(), request,
                             std::numeric_limits<int64_t>::max()),
      kGathering));
  if (rank_ != root || on_host_) return Status();
  ENGINE_RETURN_IF_ERROR(kernels_.Copy(out, all.data(), all.bytes()));
  return kernels_.Synchronize();
}

}  // namespace commsched::engine
