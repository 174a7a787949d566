// Reductions in the order of the tree, which is not NCCL's to give: each rank
// gets the inputs of what it reduces, and a kernel adds them up. An all-reduce
// is a part of it per rank, gathered afterwards.
#include <algorithm>

#include "comm.h"
#include "elements.h"

namespace commsched::nccl {
namespace {

struct Part {
  uint64_t begin = 0;  // In the input.
  uint64_t count = 0;
};

// What rank `rank` of `size` reduces of a member.
Part PartOf(const commsched_launch_t& launch, const commsched_member_t& member,
            int rank, int size) {
  const auto r = static_cast<uint64_t>(rank);
  if (launch.kind == COMMSCHED_REDUCE) {
    return {0, rank == launch.root ? member.count : 0};
  }
  if (launch.kind == COMMSCHED_ALL_REDUCE) {
    const auto ranks = static_cast<uint64_t>(size);
    const uint64_t most = (member.count + ranks - 1) / ranks;
    const uint64_t begin = std::min(r * most, member.count);
    return {begin, std::min(most, member.count - begin)};
  }
  if (member.counts == nullptr) return {r * member.count, member.count};
  Part part;
  for (int i = 0; i < rank; ++i) part.begin += member.counts[i];
  part.count = member.counts[rank];
  return part;
}

// Of all members, what one rank reduces.
uint64_t BytesOfInputs(const commsched_launch_t& launch, int rank, int size) {
  uint64_t elements = 0;
  for (uint32_t i = 0; i < launch.num_members; ++i) {
    elements += PartOf(launch, launch.members[i], rank, size).count;
  }
  return elements * static_cast<uint64_t>(size) * DTypeOf(launch).bytes;
}

}  // namespace

bool Comm::ReducesInOrder(const commsched_launch_t& launch) const {
  // NCCL's mean of integers divides a sum that has wrapped around.
  const bool by_kernel = launch.deterministic != 0 || IsMeanOfIntegers(launch);
  return by_kernel && size_ > 1 &&
         (launch.kind == COMMSCHED_ALL_REDUCE ||
          launch.kind == COMMSCHED_REDUCE_SCATTER ||
          launch.kind == COMMSCHED_REDUCE);
}

Outcome Comm::Expect(const commsched_launch_t* launches,
                     uint32_t num_launches) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < num_launches; ++i) {
    const Outcome checked = CheckReduction(launches[i]);
    if (!checked.ok()) return checked;
    if (!ReducesInOrder(launches[i])) continue;
    most = std::max(most, BytesOfInputs(launches[i], group_rank_, size_));
  }
  if (most != 0 && !HasInputs(most)) {
    Outcome outcome = AddInputs(most);
    if (!outcome.ok()) return outcome;
  }
  return ConnectFor(WarmUp::Of(
      launches, num_launches, size_,
      [this](const auto& each) { return ReducesInOrder(each); }, Connected()));
}

WarmUp Comm::Connected() {
  const std::lock_guard<std::mutex> lock(mu_);
  return warmed_up_;
}

bool Comm::HasInputs(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mu_);
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [bytes](const auto& each) { return each.bytes >= bytes; });
}

// Without mu_: to allocate may wait for kernels that only an abort ends.
Outcome Comm::AddInputs(uint64_t bytes) {
  Outcome outcome;
  if (kernels_ == nullptr) outcome = rank_.Kernels(&kernels_);
  Rank::Scratch inputs;
  if (outcome.ok()) outcome = rank_.TakeScratch(bytes, &inputs);
  if (!outcome.ok()) return outcome;
  const std::lock_guard<std::mutex> lock(mu_);
  if (has_failed()) {  // An abort has taken away what there was.
    rank_.ReturnScratch(inputs);
    return Failure();
  }
  inputs_.push_back(inputs);
  return {};
}

// Launches of a communicator are in order, so that what Expect() has made is
// enough for all of them, unless they were not expected.
Outcome Comm::FindInputs(const commsched_launch_t& launch,
                         std::unique_lock<std::mutex>* lock,
                         char** out_inputs) {
  const uint64_t bytes =
      std::max<uint64_t>(BytesOfInputs(launch, group_rank_, size_), 1);
  for (const Rank::Scratch& each : inputs_) {
    if (each.bytes < bytes) continue;
    *out_inputs = static_cast<char*>(each.address);
    return {};
  }
  lock->unlock();
  const Outcome outcome = AddInputs(bytes);
  rank_.CountLaunchAllocation(name_, bytes);
  lock->lock();
  if (has_failed()) return Failure();
  return outcome.ok() ? FindInputs(launch, lock, out_inputs) : outcome;
}

Outcome Comm::LaunchInOrder(const commsched_launch_t& launch,
                            cudaStream_t stream,
                            std::unique_lock<std::mutex>* lock) {
  char* all_inputs = nullptr;
  Outcome outcome = FindInputs(launch, lock, &all_inputs);
  // Calls `each` with a member and where its inputs are.
  const auto for_members = [&](const auto& each) -> Outcome {
    char* inputs = all_inputs;
    for (uint32_t i = 0; i < launch.num_members; ++i) {
      const commsched_member_t& member = launch.members[i];
      const Outcome done = each(member, inputs);
      if (!done.ok()) return done;
      inputs += PartOf(launch, member, group_rank_, size_).count *
                static_cast<uint64_t>(size_) * DTypeOf(launch).bytes;
    }
    return {};
  };
  if (outcome.ok()) {
    outcome = InGroup([&] {
      return for_members([&](const commsched_member_t& member, char* inputs) {
        return ExchangeInputs(launch, member, inputs, stream);
      });
    });
  }
  if (outcome.ok()) {
    outcome = for_members([&](const commsched_member_t& member, char* inputs) {
      return ReduceInputs(launch, member, inputs, stream);
    });
  }
  if (!outcome.ok() || launch.kind != COMMSCHED_ALL_REDUCE) return outcome;
  return InGroup([&] {
    return for_members([&](const commsched_member_t& member, char*) {
      return GatherParts(launch, member, stream);
    });
  });
}

Outcome Comm::ExchangeInputs(const commsched_launch_t& launch,
                             const commsched_member_t& member, char* inputs,
                             cudaStream_t stream) {
  const DType& dtype = DTypeOf(launch);
  const uint64_t mine = PartOf(launch, member, group_rank_, size_).count;
  for (int peer = 0; peer < size_; ++peer) {
    const Part part = PartOf(launch, member, peer, size_);
    Outcome outcome;
    if (part.count != 0) {
      outcome =
          Check("ncclSend",
                library_.Send(At(member.input, part.begin, dtype), part.count,
                              dtype.type, peer, comm_, stream));
    }
    if (outcome.ok() && mine != 0) {
      outcome = Check("ncclRecv",
                      library_.Recv(inputs + static_cast<uint64_t>(peer) *
                                                 mine * dtype.bytes,
                                    mine, dtype.type, peer, comm_, stream));
    }
    if (!outcome.ok()) return outcome;
  }
  return {};
}

Outcome Comm::ReduceInputs(const commsched_launch_t& launch,
                           const commsched_member_t& member, const char* inputs,
                           cudaStream_t stream) {
  const Part part = PartOf(launch, member, group_rank_, size_);
  kernels::ReduceRanksArgs args = {};
  args.inputs = inputs;
  args.out = launch.kind == COMMSCHED_ALL_REDUCE
                 ? At(member.output, part.begin, DTypeOf(launch))
                 : static_cast<char*>(member.output);
  args.count = part.count;
  args.stride = part.count;
  args.num_inputs = static_cast<uint32_t>(size_);
  args.dtype = launch.dtype;
  args.op = launch.reduce_op;
  return rank_.OnDevice([&]() -> Outcome {
    const std::string why =
        kernels_->Launch<kernels::ReduceRanks>(args, stream);
    if (why.empty()) return {};
    return {COMMSCHED_INTERNAL, why};
  });
}

Outcome Comm::GatherParts(const commsched_launch_t& launch,
                          const commsched_member_t& member,
                          cudaStream_t stream) {
  const DType& dtype = DTypeOf(launch);
  for (int rank = 0; rank < size_; ++rank) {
    const Part part = PartOf(launch, member, rank, size_);
    if (part.count == 0) continue;
    char* const at = At(member.output, part.begin, dtype);
    const Outcome outcome = Check(
        "ncclBroadcast", library_.Broadcast(at, at, part.count, dtype.type,
                                            rank, comm_, stream));
    if (!outcome.ok()) return outcome;
  }
  return {};
}

}  // namespace commsched::nccl
