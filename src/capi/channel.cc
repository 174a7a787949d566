#include "commsched/channel.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "capi/streams.h"
#include "capi/structs.h"
#include "capi/timeout.h"
#include "channel/channel.h"

using commsched::AtBoundary;
using commsched::AtVoidBoundary;
using commsched::RequireNonNull;

struct commsched_channel {
  std::shared_ptr<commsched::Context> context;
  std::unique_ptr<commsched::Channel> channel;  // Last: it goes first.
};

namespace commsched {
namespace {

static_assert(kGather == COMMSCHED_GATHER && kScatter == COMMSCHED_SCATTER);
static_assert(kAnyPeer == COMMSCHED_ANY_PEER);
static_assert(ChannelSpec::kMaxInFlight == COMMSCHED_MAX_COLLECTIVES_IN_FLIGHT);
static_assert(ChannelSpec::kMaxTransfers == COMMSCHED_MAX_TRANSFERS_IN_FLIGHT);

// More in a batch take an allocation.
constexpr size_t kInlineOps = 16;

absl::Status ReadDesc(const commsched_channel_desc_t* caller_desc,
                      ChannelSpec* spec) {
  commsched_channel_desc_t desc = commsched_channel_desc_init();
  if (caller_desc != nullptr) {
    ASSIGN_OR_RETURN(desc, ReadStruct(caller_desc, "commsched_channel_desc_t"));
  }
  if (desc.completions != nullptr) {
    spec->completions = desc.completions->completions;
  }
  spec->key = desc.key;
  if (desc.max_in_flight != 0) spec->max_in_flight = desc.max_in_flight;
  if (desc.max_transfers != 0) spec->max_transfers = desc.max_transfers;
  spec->max_bytes_in_flight = desc.max_bytes_in_flight;
  if (desc.flight_path != nullptr) spec->flight_path = desc.flight_path;
  if (desc.trace != nullptr) spec->recorder = desc.trace->recorder;
  ASSIGN_OR_RETURN(spec->launch_timeout_ns,
                   TimeoutNs("launch_timeout_ns", desc.launch_timeout_ns));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<commsched_channel>> CreateChannel(
    const commsched_context_t& context, const commsched_group_t& group,
    const commsched_channel_desc_t* desc) {
  if (group.context != context.context) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group, on axis '", group.spec.axis,
        "', belongs to another context, that of rank ", group.context->rank()));
  }
  auto handle = std::make_unique<commsched_channel>();
  handle->context = context.context;
  ChannelSpec spec;
  spec.world = handle->context->world();
  spec.world_rank = handle->context->rank();
  spec.group = group.spec;
  // A number once taken is one that the other members wait for, so a rank that
  // is refused takes one too, and tells them.
  spec.number = handle->context->TakeChannelNumber(absl::StrCat(
      group.spec.axis, "\n", absl::StrJoin(group.spec.ranks, ",")));
  if (absl::Status read = ReadDesc(desc, &spec); !read.ok()) {
    Channel::Decline(spec, read);
    return read;
  }
  ASSIGN_OR_RETURN(handle->channel, Channel::Create(std::move(spec)));
  return handle;
}

absl::StatusOr<ChannelOp> ReadOp(const commsched_channel_op_t* caller_op) {
  ASSIGN_OR_RETURN(const commsched_channel_op_t given,
                   ReadStruct(caller_op, "commsched_channel_op_t"));
  RETURN_IF_ERROR(RequireArrayField("op.counts", given.counts, "op.num_counts",
                                    given.num_counts));
  ChannelOp op;
  op.kind = given.kind;
  op.dtype = given.dtype;
  op.reduce_op = given.reduce_op;
  op.peer = given.peer;
  op.tag = given.tag;
  op.input = given.input;
  op.output = given.output;
  op.count = given.count;
  op.counts = {given.counts, given.num_counts};
  ASSIGN_OR_RETURN(op.deterministic,
                   ToFlag("op.deterministic", given.deterministic));
  op.user = given.user;
  op.scale = given.scale;
  return op;
}

absl::Status SubmitBatch(commsched_channel* channel,
                         const commsched_channel_op_t* const* ops,
                         uint32_t num_ops, commsched_stream_t stream,
                         uint64_t* out_request) {
  RETURN_IF_ERROR(RequireArray("ops", ops, num_ops));
  absl::InlinedVector<ChannelOp, kInlineOps> batch;
  for (uint32_t i = 0; i < num_ops; ++i) {
    if (ops[i] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("ops[", i, "] is NULL"));
    }
    ASSIGN_OR_RETURN(const ChannelOp op, ReadOp(ops[i]));
    batch.push_back(op);
  }
  ASSIGN_OR_RETURN(Stream * known,
                   StreamOf(stream, channel->context->device()));
  ASSIGN_OR_RETURN(*out_request, channel->channel->SubmitBatch(batch, known));
  return absl::OkStatus();
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_channel_create(
    commsched_context_t* context, commsched_group_t* group,
    const commsched_channel_desc_t* desc, commsched_channel_t** out_channel) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"context", context},
                                    {"group", group},
                                    {"out_channel", out_channel}}));
    ASSIGN_OR_RETURN(auto channel,
                     commsched::CreateChannel(*context, *group, desc));
    *out_channel = channel.release();
    return absl::OkStatus();
  });
}

void commsched_channel_destroy(commsched_channel_t* channel) {
  AtVoidBoundary([&] { delete channel; });
}

commsched_status_t commsched_channel_submit(commsched_channel_t* channel,
                                            const commsched_channel_op_t* op,
                                            commsched_stream_t stream,
                                            uint64_t* out_request) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"channel", channel}, {"op", op}, {"out_request", out_request}}));
    ASSIGN_OR_RETURN(const commsched::ChannelOp ours, commsched::ReadOp(op));
    ASSIGN_OR_RETURN(commsched::Stream * known,
                     commsched::StreamOf(stream, channel->context->device()));
    ASSIGN_OR_RETURN(*out_request, channel->channel->Submit(ours, known));
    return absl::OkStatus();
  });
}

commsched_status_t commsched_channel_submit_batch(
    commsched_channel_t* channel, const commsched_channel_op_t* const* ops,
    uint32_t num_ops, commsched_stream_t stream, uint64_t* out_request) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"channel", channel}, {"out_request", out_request}}));
    return commsched::SubmitBatch(channel, ops, num_ops, stream, out_request);
  });
}

commsched_status_t commsched_channel_test(commsched_channel_t* channel,
                                          uint64_t request,
                                          uint32_t* out_done) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(
        RequireNonNull({{"channel", channel}, {"out_done", out_done}}));
    ASSIGN_OR_RETURN(const bool done, channel->channel->Test(request));
    *out_done = done ? 1 : 0;
    return absl::OkStatus();
  });
}

commsched_status_t commsched_channel_wait(commsched_channel_t* channel,
                                          uint64_t request,
                                          int64_t timeout_ns) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"channel", channel}}));
    if (timeout_ns < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("timeout_ns is ", timeout_ns, ", below 0"));
    }
    return channel->channel->Wait(request, timeout_ns);
  });
}

commsched_status_t commsched_channel_before(commsched_channel_t* channel,
                                            uint64_t request,
                                            commsched_stream_t stream) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"channel", channel}}));
    ASSIGN_OR_RETURN(commsched::Stream * known,
                     commsched::StreamOf(stream, channel->context->device()));
    return channel->channel->Before(request, known);
  });
}

void commsched_channel_abort(commsched_channel_t* channel, const char* reason) {
  if (channel == nullptr) return;
  AtVoidBoundary([&] {
    channel->channel->Abort(reason == nullptr ? "no reason was given" : reason);
  });
}

commsched_status_t commsched_channel_status(
    const commsched_channel_t* channel) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"channel", channel}}));
    return channel->channel->status();
  });
}
