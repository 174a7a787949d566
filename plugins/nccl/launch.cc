// Launches of a communicator, as calls of NCCL's.
#include <cstddef>

#include "comm.h"
#include "elements.h"
#include "kernels/float16.h"

namespace commsched::nccl {
namespace {

// An element, as NCCL wants it.
union Scalar {
  float f32;
  double f64;
  uint16_t bits16;
};

Scalar ScaleOf(const commsched_launch_t& launch) {
  const bool has_scale = launch.struct_size >=
                         offsetof(commsched_launch_t, scale) + sizeof(double);
  const double scale = has_scale ? launch.scale : 0;
  const auto narrow = static_cast<float>(scale);
  Scalar scalar = {};
  switch (launch.dtype) {
    case COMMSCHED_F64:
      scalar.f64 = scale;
      break;
    case COMMSCHED_F16:
      scalar.bits16 = FloatToHalf(narrow);
      break;
    case COMMSCHED_BF16:
      scalar.bits16 = FloatToBfloat16(narrow);
      break;
    default:
      scalar.f32 = narrow;
  }
  return scalar;
}

}  // namespace

Outcome Comm::Launch(const commsched_launch_t& launch, cudaStream_t stream) {
  std::unique_lock<std::mutex> lock(mu_);
  // Who has been told of launches and has not asked whether it is ready again.
  changed_.wait(lock, [this] {
    return !is_expected_ ||
           (state_ != State::kJoining && state_ != State::kWarming) ||
           has_failed();
  });
  if (has_failed()) return Failure();
  if (state_ != State::kReady) {
    return {COMMSCHED_FAILED_PRECONDITION, name_ + " is not connected"};
  }
  Outcome outcome = CheckReduction(launch);
  if (outcome.ok()) outcome = MeetForFirst(launch, &lock);
  if (!outcome.ok()) return outcome;
  launching_.store(comm_, std::memory_order_relaxed);
  if (MayBeInGraphs(stream)) {
    // NCCL looks at an event then, in the mode in which the thread is
    // (ncclLaunchPrepare() of NCCL 2.28).
    const OutsideOfCaptures outside(library_);
    outcome = LaunchOnStream(launch, stream, &lock);
  } else {
    outcome = LaunchOnStream(launch, stream, &lock);
  }
  launching_.store(nullptr, std::memory_order_relaxed);
  // Where one has been aborted meanwhile, that is why.
  if (!outcome.ok() && has_failed()) outcome = Failure();
  return outcome;
}

bool Comm::MayBeInGraphs(cudaStream_t stream) {
  if (!has_stream_) {
    has_stream_ = true;
    stream_ = stream;
  }
  if (stream != stream_) has_streams_.store(true, std::memory_order_relaxed);
  return may_be_in_graphs();
}

Outcome Comm::LaunchOnStream(const commsched_launch_t& launch,
                             cudaStream_t stream,
                             std::unique_lock<std::mutex>* lock) {
  if (ReducesInOrder(launch)) return LaunchInOrder(launch, stream, lock);
  if (IsScaled(launch)) return LaunchScaled(launch, stream);
  return InGroup([&] { return LaunchMembers(launch, stream); });
}

// "An operator may be destroyed as soon as the last NCCL function which is
// given that operator returns" (nccl.h).
Outcome Comm::LaunchScaled(const commsched_launch_t& launch,
                           cudaStream_t stream) {
  Scalar scale = ScaleOf(launch);
  Outcome outcome = Check(
      "ncclRedOpCreatePreMulSum",
      library_.RedOpCreatePreMulSum(&scaled_sum_, &scale, DTypeOf(launch).type,
                                    ncclScalarHostImmediate, comm_));
  if (!outcome.ok()) return outcome;
  outcome = InGroup([&] { return LaunchMembers(launch, stream); });
  const ncclResult_t destroyed = library_.RedOpDestroy(scaled_sum_, comm_);
  if (destroyed != ncclSuccess && outcome.ok()) {
    outcome = Check("ncclRedOpDestroy", destroyed);
  }
  return outcome;
}

ncclRedOp_t Comm::ReductionOf(const commsched_launch_t& launch) const {
  return IsScaled(launch) ? scaled_sum_ : kReductions[launch.reduce_op];
}

Outcome Comm::LaunchMembers(const commsched_launch_t& launch,
                            cudaStream_t stream) {
  if (launch.kind == COMMSCHED_BARRIER) {
    return Check("ncclAllReduce",
                 library_.AllReduce(barrier_.address, barrier_.address, 1,
                                    ncclFloat, ncclSum, comm_, stream));
  }
  for (uint32_t i = 0; i < launch.num_members; ++i) {
    const commsched_member_t& member = launch.members[i];
    const Outcome outcome = member.counts != nullptr
                                ? LaunchUneven(launch, member, stream)
                                : LaunchMember(launch, member, stream);
    if (!outcome.ok()) return outcome;
  }
  return {};
}

Outcome Comm::LaunchMember(const commsched_launch_t& launch,
                           const commsched_member_t& member,
                           cudaStream_t stream) {
  const DType& dtype = DTypeOf(launch);
  const ncclRedOp_t reduction =
      IsReducing(launch) ? ReductionOf(launch) : ncclSum;
  switch (launch.kind) {
    case COMMSCHED_ALL_REDUCE:
      return Check("ncclAllReduce",
                   library_.AllReduce(member.input, member.output, member.count,
                                      dtype.type, reduction, comm_, stream));
    case COMMSCHED_REDUCE_SCATTER:
      return Check(
          "ncclReduceScatter",
          library_.ReduceScatter(member.input, member.output, member.count,
                                 dtype.type, reduction, comm_, stream));
    case COMMSCHED_ALL_GATHER:
      return Check("ncclAllGather",
                   library_.AllGather(member.input, member.output, member.count,
                                      dtype.type, comm_, stream));
    case COMMSCHED_ALL_TO_ALL:
      if (library_.AlltoAll == nullptr) {
        return ExchangeAll(launch, member, stream);
      }
      return Check("ncclAlltoAll",
                   library_.AlltoAll(member.input, member.output, member.count,
                                     dtype.type, comm_, stream));
    case COMMSCHED_BROADCAST:
      return Check("ncclBroadcast",
                   library_.Broadcast(member.input, member.output, member.count,
                                      dtype.type, launch.root, comm_, stream));
    case COMMSCHED_REDUCE:
      return Check(
          "ncclReduce",
          library_.Reduce(member.input, member.output, member.count, dtype.type,
                          reduction, launch.root, comm_, stream));
    case COMMSCHED_SEND:
      if (member.direction == COMMSCHED_RECV) {
        return Check("ncclRecv",
                     library_.Recv(member.output, member.count, dtype.type,
                                   member.peer, comm_, stream));
      }
      return Check("ncclSend",
                   library_.Send(member.input, member.count, dtype.type,
                                 member.peer, comm_, stream));
    case COMMSCHED_BARRIER:  // LaunchMembers() does without members.
    case COMMSCHED_RECV:     // A member's direction, of kind SEND.
      break;
  }
  return {COMMSCHED_UNIMPLEMENTED,
          "collective of kind " + std::to_string(launch.kind)};
}

// NCCL has no collectives of uneven parts: one per part, in one group.
Outcome Comm::LaunchUneven(const commsched_launch_t& launch,
                           const commsched_member_t& member,
                           cudaStream_t stream) {
  if (launch.kind == COMMSCHED_ALL_TO_ALL) {
    return ExchangeAll(launch, member, stream);
  }
  const DType& dtype = DTypeOf(launch);
  uint64_t offset = 0;
  for (int part = 0; part < size_; ++part) {
    const uint64_t count = member.counts[part];
    Outcome outcome;
    if (count != 0 && launch.kind == COMMSCHED_ALL_GATHER) {
      outcome = Check(
          "ncclBroadcast",
          library_.Broadcast(member.input, At(member.output, offset, dtype),
                             count, dtype.type, part, comm_, stream));
    } else if (count != 0) {
      outcome =
          Check("ncclReduce",
                library_.Reduce(At(member.input, offset, dtype), member.output,
                                count, dtype.type, ReductionOf(launch), part,
                                comm_, stream));
    }
    if (!outcome.ok()) return outcome;
    offset += count;
  }
  return {};
}

Outcome Comm::ExchangeAll(const commsched_launch_t& launch,
                          const commsched_member_t& member,
                          cudaStream_t stream) {
  const DType& dtype = DTypeOf(launch);
  const auto count_of = [&](int from, int to) {
    return member.counts == nullptr ? member.count
                                    : member.counts[from * size_ + to];
  };
  uint64_t sent = 0;
  uint64_t received = 0;
  for (int peer = 0; peer < size_; ++peer) {
    const uint64_t out = count_of(group_rank_, peer);
    const uint64_t in = count_of(peer, group_rank_);
    Outcome outcome;
    if (out != 0) {
      outcome =
          Check("ncclSend", library_.Send(At(member.input, sent, dtype), out,
                                          dtype.type, peer, comm_, stream));
    }
    if (outcome.ok() && in != 0) {
      outcome =
          Check("ncclRecv", library_.Recv(At(member.output, received, dtype),
                                          in, dtype.type, peer, comm_, stream));
    }
    if (!outcome.ok()) return outcome;
    sent += out;
    received += in;
  }
  return {};
}

}  // namespace commsched::nccl
