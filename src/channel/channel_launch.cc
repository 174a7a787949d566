#include "channel/channel_launch.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "channel/travel.h"
#include "comm/launch_check.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

// Of all gathers, and of all scatters, of a channel: of a pair of ranks they
// come in one order, as all collectives do.
constexpr uint64_t kGatherTag = kFirstOwnTag;
constexpr uint64_t kScatterTag = kFirstOwnTag + 1;

bool Has(const ChannelGroup& group, uint32_t capability) {
  return (group.backend->capabilities & capability) != 0;
}

absl::Status Named(const ChannelOp& op, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(ChannelKindName(op.kind),
                                                  ": ", status.message()));
}

// On a device messages of a pair come in the order of their launches.
bool IsOnDevice(const ChannelGroup& group) {
  return Has(group, COMMSCHED_BACKEND_STREAM_ORDERED);
}

// Gathers and scatters are made of sends and receives, too; tagged, but on a
// device.
absl::Status CheckTags(const ChannelGroup& group) {
  const bool on_device = IsOnDevice(group);
  if (Has(group, on_device ? COMMSCHED_BACKEND_P2P : COMMSCHED_BACKEND_TAGS)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("backend '", group.backend->name,
                   on_device ? "' does not send and receive"
                             : "' does not match sends and receives by tags"));
}

absl::Status CheckTag(const ChannelGroup& group, uint64_t tag) {
  if (IsOnDevice(group) && tag != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "the tag is ", tag, "; backend '", group.backend->name,
        "' matches what a pair of ranks sends and receives in the order of "
        "the submits: give 0"));
  }
  if (tag < kFirstOwnTag) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the tag is ", tag, "; the greatest is ", kFirstOwnTag - 1));
}

absl::Status CheckPeer(const ChannelGroup& group, const ChannelOp& op) {
  if (op.peer == kAnyPeer && op.kind == COMMSCHED_RECV) {
    return absl::UnimplementedError(
        "the peer is COMMSCHED_ANY_PEER; a receive names whom it is from");
  }
  if (op.peer >= 0 && op.peer < group.size && op.peer != group.rank) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the peer is ", op.peer,
                   ", not another rank of the group, 0..", group.size - 1));
}

absl::Status CheckRoot(const ChannelGroup& group, const ChannelOp& op) {
  if (op.peer >= 0 && op.peer < group.size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the root is ", op.peer, ", outside the group, 0..", group.size - 1));
}

// Counts that the kind takes; 0: it takes none.
size_t NumCounts(const ChannelGroup& group, commsched_collective_t kind) {
  const auto n = static_cast<size_t>(group.size);
  switch (kind) {
    case COMMSCHED_REDUCE_SCATTER:
    case COMMSCHED_ALL_GATHER:
    case kGather:
    case kScatter:
      return n;
    case COMMSCHED_ALL_TO_ALL:
      return 2 * n;
  }
  return 0;
}

absl::Status CheckCounts(const ChannelGroup& group, const ChannelOp& op) {
  if (op.counts.empty()) return absl::OkStatus();
  const size_t expected = NumCounts(group, op.kind);
  if (expected == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_counts is ", op.counts.size(),
                     ", but it has no parts of other sizes"));
  }
  if (op.counts.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_counts is ", op.counts.size(), "; among ", group.size,
                     " ranks it is 0 or ", expected));
  }
  if (op.kind == COMMSCHED_ALL_TO_ALL && !IsOnDevice(group) &&
      !Has(group, COMMSCHED_BACKEND_OWN_COUNTS)) {
    return absl::UnimplementedError(
        absl::StrCat("backend '", group.backend->name,
                     "' does not take a rank's own counts alone"));
  }
  return absl::OkStatus();
}

// Elements of all parts together, as the caller counts them.
absl::StatusOr<uint64_t> AllElements(const ChannelGroup& group,
                                     const ChannelOp& op) {
  absl::optional<uint64_t> all = op.count;
  if (!op.counts.empty()) {
    all = 0;
    for (uint64_t count : op.counts) {
      if (all) all = CheckedAdd(*all, count);
    }
  } else if (NumCounts(group, op.kind) != 0) {
    all = CheckedMul(op.count, static_cast<uint64_t>(group.size));
  }
  if (all) return *all;
  return absl::InvalidArgumentError("its elements overflow");
}

absl::Status CheckOrder(const ChannelGroup& group, const ChannelOp& op) {
  if (!op.deterministic) return absl::OkStatus();
  const bool in_order = Has(group, COMMSCHED_BACKEND_TREE_SUMS);
  const bool of_scaled = op.reduce_op == COMMSCHED_PREMUL_SUM &&
                         Has(group, COMMSCHED_BACKEND_STREAM_ORDERED);
  if (in_order && !of_scaled) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "backend '", group.backend->name, "' does not ",
      in_order ? "do premul_sum" : "sum", " in the order of the tree"));
}

// What a launch has whatever its kind.
void Begin(ChannelLaunch* launch) {
  launch->call = {};
  launch->call.struct_size = sizeof(launch->call);
  launch->call.slot = UINT32_MAX;
  launch->members.clear();
  launch->counts.clear();
  launch->bytes = 0;
  launch->own_input = nullptr;
  launch->own_output = nullptr;
  launch->own_bytes = 0;
  launch->is_transfer = false;
  launch->number = 0;
  launch->wake_at_ns = 0;
  launch->is_done = false;
}

// Checks what there is and counts its bytes.
absl::Status Finish(const ChannelGroup& group, ChannelLaunch* launch) {
  commsched_launch_t& call = launch->call;
  call.num_members = static_cast<uint32_t>(launch->members.size());
  call.members = call.num_members == 0 ? nullptr : launch->members.data();
  RETURN_IF_ERROR(CheckLaunch(call, group.max_members, group.rank, group.size));
  for (const commsched_member_t& member : launch->members) {
    ASSIGN_OR_RETURN(const Extents extents,
                     ExtentsOf(call, member, group.rank, group.size));
    launch->bytes += std::max(extents.input_bytes, extents.output_bytes);
  }
  return absl::OkStatus();
}

absl::Status BuildPlain(const ChannelGroup& group, const ChannelOp& op,
                        ChannelLaunch* launch) {
  commsched_launch_t& call = launch->call;
  if (op.kind > COMMSCHED_BARRIER) {
    return absl::InvalidArgumentError(
        absl::StrCat("kind ", op.kind, " is unknown"));
  }
  call.kind = op.kind;
  ASSIGN_OR_RETURN(const uint64_t all, AllElements(group, op));
  ASSIGN_OR_RETURN(const Travel travel, TravelOf(*group.backend, op.kind,
                                                 op.dtype, op.reduce_op, all));
  if (op.kind == COMMSCHED_BARRIER) return Finish(group, launch);
  call.dtype = travel.dtype;
  if (IsReducing(KindOf(op.kind))) {
    RETURN_IF_ERROR(CheckOrder(group, op));
    call.reduce_op = travel.reduce_op;
    call.deterministic = op.deterministic ? 1 : 0;
    call.scale = op.scale;
  }
  if (IsRooted(KindOf(op.kind))) {
    RETURN_IF_ERROR(CheckRoot(group, op));
    call.root = op.peer;
  }
  commsched_member_t member = {};
  member.input = op.input;
  member.output = op.output;
  if (op.counts.empty()) {
    member.count = op.count * travel.factor;
  } else {
    for (uint64_t count : op.counts) {
      launch->counts.push_back(count * travel.factor);
    }
    member.counts = launch->counts.data();
    if (op.kind == COMMSCHED_ALL_TO_ALL) {
      call.flags = COMMSCHED_LAUNCH_OWN_COUNTS;
    }
  }
  launch->members.push_back(member);
  return Finish(group, launch);
}

// Makes `launch` one of sends and receives, matched by `tag` if by any.
void BeginTransfers(const ChannelGroup& group, uint64_t tag,
                    ChannelLaunch* launch) {
  launch->call.kind = COMMSCHED_SEND;
  if (IsOnDevice(group)) return;
  launch->call.flags = COMMSCHED_LAUNCH_TAGGED;
  launch->call.tag = tag;
}

void AddTransfer(uint32_t direction, int32_t peer, const void* input,
                 void* output, uint64_t count, ChannelLaunch* launch) {
  commsched_member_t member = {};
  member.direction = direction;
  member.peer = peer;
  (direction == COMMSCHED_SEND ? member.input = input : member.output = output);
  member.count = count;
  launch->members.push_back(member);
}

// The root has a part of each rank on one side, and its own on the other.
absl::Status BuildRooted(const ChannelGroup& group, const ChannelOp& op,
                         ChannelLaunch* launch) {
  RETURN_IF_ERROR(CheckTags(group));
  RETURN_IF_ERROR(CheckRoot(group, op));
  const bool gathers = op.kind == kGather;
  ASSIGN_OR_RETURN(const uint64_t all, AllElements(group, op));
  ASSIGN_OR_RETURN(const Travel travel, TravelOf(*group.backend, COMMSCHED_SEND,
                                                 op.dtype, COMMSCHED_SUM, all));
  launch->call.dtype = travel.dtype;
  BeginTransfers(group, gathers ? kGatherTag : kScatterTag, launch);
  // All parts together fit, and so do these.
  const auto part = [&](int rank) {
    return travel.factor * (op.counts.empty()
                                ? op.count
                                : op.counts[static_cast<size_t>(rank)]);
  };
  if (group.rank != op.peer) {
    AddTransfer(gathers ? COMMSCHED_SEND : COMMSCHED_RECV, op.peer, op.input,
                op.output, part(group.rank), launch);
    return Finish(group, launch);
  }
  const uint64_t element_bytes = DTypeSize(static_cast<DType>(travel.dtype));
  const auto* from = static_cast<const char*>(op.input);
  auto* to = static_cast<char*>(op.output);
  const uint64_t own = part(group.rank);
  launch->own_bytes = own * element_bytes;
  if ((from == nullptr && (gathers ? own : all) != 0) ||
      (to == nullptr && (gathers ? all : own) != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", from == nullptr ? "input" : "output", " of the root is NULL"));
  }
  uint64_t at = 0;  // Bytes in front of the part.
  for (int rank = 0; rank < group.size; ++rank) {
    if (rank == group.rank) {
      launch->own_input = gathers ? from : from + at;
      launch->own_output = gathers ? to + at : to;
    } else if (gathers) {
      AddTransfer(COMMSCHED_RECV, rank, nullptr, to + at, part(rank), launch);
    } else {
      AddTransfer(COMMSCHED_SEND, rank, from + at, nullptr, part(rank), launch);
    }
    at += part(rank) * element_bytes;
  }
  // Nobody else is in the group: there is nothing to launch but the copy.
  if (launch->members.empty()) return absl::OkStatus();
  return Finish(group, launch);
}

// An all-to-all whose counts each rank knows its own of.
absl::Status BuildExchange(const ChannelGroup& group, const ChannelOp& op,
                           ChannelLaunch* launch) {
  RETURN_IF_ERROR(CheckTags(group));
  RETURN_IF_ERROR(AllElements(group, op).status());
  ASSIGN_OR_RETURN(const Travel travel, TravelOf(*group.backend, COMMSCHED_SEND,
                                                 op.dtype, COMMSCHED_SUM, 0));
  BeginTransfers(group, /*tag=*/0, launch);
  launch->call.dtype = travel.dtype;
  const uint64_t unit =
      travel.factor * DTypeSize(static_cast<DType>(travel.dtype));
  const auto n = static_cast<size_t>(group.size);
  const absl::Span<const uint64_t> sent = op.counts.subspan(0, n);
  const absl::Span<const uint64_t> received = op.counts.subspan(n);
  const auto own = static_cast<size_t>(group.rank);
  if (sent[own] != received[own]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its counts have rank ", group.rank, " of the group send ", sent[own],
        " elements to itself, and get ", received[own]));
  }
  const auto* from = static_cast<const char*>(op.input);
  auto* to = static_cast<char*>(op.output);
  const auto any = [](uint64_t count) { return count != 0; };
  if ((from == nullptr && std::any_of(sent.begin(), sent.end(), any)) ||
      (to == nullptr && std::any_of(received.begin(), received.end(), any))) {
    return absl::InvalidArgumentError(
        absl::StrCat("its ", from == nullptr ? "input" : "output", " is NULL"));
  }
  for (size_t peer = 0; peer < n; ++peer) {
    const auto rank = static_cast<int32_t>(peer);
    if (peer == own) {
      launch->own_input = from;
      launch->own_output = to;
      launch->own_bytes = sent[own] * unit;
    } else {
      if (sent[peer] != 0) {
        AddTransfer(COMMSCHED_SEND, rank, from, nullptr,
                    sent[peer] * travel.factor, launch);
      }
      if (received[peer] != 0) {
        AddTransfer(COMMSCHED_RECV, rank, nullptr, to,
                    received[peer] * travel.factor, launch);
      }
    }
    from += sent[peer] * unit;
    to += received[peer] * unit;
  }
  if (launch->members.empty()) return absl::OkStatus();
  return Finish(group, launch);
}

absl::Status BuildUnnamed(const ChannelGroup& group, const ChannelOp& op,
                          ChannelLaunch* launch) {
  RETURN_IF_ERROR(CheckCounts(group, op));
  if (op.kind == COMMSCHED_ALL_TO_ALL && !op.counts.empty() &&
      IsOnDevice(group)) {
    return BuildExchange(group, op, launch);
  }
  if (op.kind == kGather || op.kind == kScatter) {
    return BuildRooted(group, op, launch);
  }
  return BuildPlain(group, op, launch);
}

absl::Status CheckTransfer(const ChannelGroup& group, const ChannelOp& op) {
  if (!IsTransfer(op)) {
    return absl::InvalidArgumentError("a batch has sends and receives only");
  }
  RETURN_IF_ERROR(CheckCounts(group, op));
  RETURN_IF_ERROR(CheckPeer(group, op));
  RETURN_IF_ERROR(CheckTags(group));
  RETURN_IF_ERROR(CheckTag(group, op.tag));
  return DTypeFromInt(op.dtype).status();
}

}  // namespace

std::string ChannelKindName(commsched_collective_t kind) {
  if (kind == kGather) return "gather";
  if (kind == kScatter) return "scatter";
  return CollectiveName(kind);
}

absl::Status BuildLaunch(const ChannelGroup& group, const ChannelOp& op,
                         ChannelLaunch* launch) {
  Begin(launch);
  launch->kind = op.kind;
  return Named(op, BuildUnnamed(group, op, launch));
}

// Those of a batch may differ in their dtype: then they travel as bytes.
absl::Status BuildTransfers(const ChannelGroup& group,
                            absl::Span<const ChannelOp* const> ops,
                            ChannelLaunch* launch) {
  const ChannelOp& first = *ops.front();
  Begin(launch);
  bool is_mixed = false;
  for (const ChannelOp* op : ops) {
    RETURN_IF_ERROR(Named(*op, CheckTransfer(group, *op)));
    is_mixed |= op->dtype != first.dtype;
  }
  launch->kind = first.kind;
  launch->peer = first.peer;
  launch->is_transfer = true;
  BeginTransfers(group, first.tag, launch);
  for (const ChannelOp* op : ops) {
    const auto travel = TravelOf(*group.backend, COMMSCHED_SEND, op->dtype,
                                 COMMSCHED_SUM, op->count);
    if (!travel.ok()) return Named(*op, travel.status());
    const uint64_t unit =
        is_mixed ? DTypeSize(static_cast<DType>(travel->dtype)) : 1;
    launch->call.dtype =
        is_mixed ? commsched_dtype_t{COMMSCHED_U8} : travel->dtype;
    AddTransfer(op->kind, op->peer, op->input, op->output, travel->count * unit,
                launch);
  }
  return Named(first, Finish(group, launch));
}

std::string LaunchText(const ChannelGroup& group, const ChannelLaunch& launch) {
  const std::string of = absl::StrCat(" of the channel on axis ", group.axis);
  const commsched_launch_t& call = launch.call;
  if (!launch.is_transfer) {
    return absl::StrCat("#", launch.number, " ", ChannelKindName(launch.kind),
                        of);
  }
  std::string text = absl::StrCat(
      launch.kind == COMMSCHED_SEND ? "send to rank " : "receive from rank ",
      launch.peer, " of the group");
  if (call.num_members > 1) {
    absl::StrAppend(&text, " and ", call.num_members - 1, " more");
  }
  if ((call.flags & COMMSCHED_LAUNCH_TAGGED) != 0) {
    absl::StrAppend(&text, " with tag ", call.tag);
  }
  return absl::StrCat(text, of);
}

}  // namespace commsched
