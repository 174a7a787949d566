// Every rank sends to every other directly: all that it has for it in one
// message, but for all-to-all, whose large parts go by chunks (pair_pack.h).
#include <algorithm>
#include <cstring>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/packed_parts.h"
#include "ucx/algorithms/packing.h"

namespace commsched::ucx {
namespace {

// Above, chunks that are summed up while the next ones travel are faster.
constexpr uint64_t kMostExchangedBytes = 64 << 10;
// Of all parts together.
constexpr uint64_t kMostExchangedPartsBytes = 512 << 10;
// Of what is there at once, such as the inputs of a sum.
constexpr uint64_t kMostReceivedBytes = 8 << 20;
// Chunks are not made smaller than this so that there are many of them.
constexpr uint64_t kLeastChunkBytes = 64 << 10;

// Of the parts of an all-to-all, in whole elements.
uint64_t ChunkBytes(const Layout& layout, uint64_t chunk_bytes,
                    uint64_t element_bytes) {
  const uint64_t most =
      std::max(kMostReceivedBytes / static_cast<uint64_t>(layout.size()),
               kLeastChunkBytes);
  const uint64_t bytes = std::min(ChunkBytesOn(layout, chunk_bytes), most);
  return std::max<uint64_t>(1, bytes / element_bytes) * element_bytes;
}

class Exchange {
 public:
  Exchange(const LaunchTask& task, Operation* operation)
      : task_(task),
        launch_(task.launch),
        layout_(task.layout),
        rank_(task.rank),
        size_(task.layout.size()),
        pair_counts_(task.launch, size_, rank_),
        element_(ElementBytes(task.launch.dtype)),
        op_(*operation),
        build_(element_, PartialBytes(task.launch.dtype, task.launch.reduce_op),
               operation),
        chunk_bytes_(ChunkBytes(task.layout, task.chunk_bytes, element_)),
        packing_(task, operation),
        parts_(task, chunk_bytes_, operation) {
    if (Packs()) FindAreas();
  }

  static bool Fits(const LaunchShape& shape, const Layout& layout);
  static Cost CostOf(const CostContext& context);
  static Crossing CrossingOf(const CostContext& context);

  uint64_t ScratchBytes() const {
    return input_bytes_ + output_bytes_ + needs_[kOwnSums].Bytes() +
           parts_.scratch_bytes();
  }

  void Build() {
    build_.SetScratch(needs_, input_bytes_ + output_bytes_);
    build_.BeginSteps(kOwnSums);
    switch (launch_.kind) {
      case COMMSCHED_ALL_GATHER:
        AllGather();
        break;
      case COMMSCHED_BROADCAST:
        Broadcast();
        break;
      case COMMSCHED_ALL_TO_ALL:
        AllToAll();
        break;
      case COMMSCHED_BARRIER:
        ForPeers([&](int peer) {
          build_.Send(peer, kSmall, nullptr, 0);
          build_.Receive(peer, kSmall, nullptr, 0);
        });
        break;
      case COMMSCHED_SEND:
        SendAndReceive();
        break;
      default:
        Reduce();
    }
    build_.Finish();
  }

 private:
  bool Packs() const {
    return launch_.kind != COMMSCHED_ALL_TO_ALL &&
           launch_.kind != COMMSCHED_BARRIER && launch_.kind != COMMSCHED_SEND;
  }
  bool IsRoot() const { return rank_ == launch_.root; }
  // Whether this rank makes a sum.
  bool Sums() const {
    return launch_.kind == COMMSCHED_ALL_REDUCE ||
           launch_.kind == COMMSCHED_REDUCE_SCATTER ||
           (launch_.kind == COMMSCHED_REDUCE && IsRoot());
  }

  // The scratch: inputs if they have to be packed, or would be overwritten
  // before all have got them; then what has to be unpacked to the outputs, then
  // inputs of others.
  void FindAreas() {
    const bool is_one = launch_.num_members == 1;
    const uint64_t all_bytes = ScratchBytesOf(packing_.Bytes(packing_.count()));
    if (launch_.kind == COMMSCHED_ALL_GATHER) {
      if (!is_one) output_bytes_ = all_bytes;
      return;
    }
    const bool sends = launch_.kind != COMMSCHED_BROADCAST || IsRoot();
    packs_input_ =
        sends &&
        (!packing_.IsInputPacked() ||
         (launch_.kind == COMMSCHED_ALL_REDUCE && packing_.IsInPlace()));
    if (packs_input_) input_bytes_ = all_bytes;
    const uint64_t out_bytes = ScratchBytesOf(packing_.Bytes(OutputCount()));
    const bool is_output = Sums() || !sends;
    if (is_output && !is_one) output_bytes_ = out_bytes;
    if (Sums()) {
      needs_[kOwnSums].AddRoom(static_cast<uint64_t>(size_ - 1) * out_bytes);
    }
  }

  uint64_t OutputCount() const {
    return launch_.kind == COMMSCHED_REDUCE_SCATTER ? PartCount(rank_)
                                                    : packing_.count();
  }
  uint64_t PartBegin(int rank) const {
    return packing_.Begin(layout_.PlaceOf(rank));
  }
  uint64_t PartCount(int rank) const {
    return packing_.Begin(layout_.PlaceOf(rank) + 1) - PartBegin(rank);
  }

  // Beginning behind this rank, so that not all begin with the same one.
  template <typename Each>
  void ForPeers(const Each& each) const {
    for (int distance = 1; distance < size_; ++distance) {
      each((rank_ + distance) % size_);
    }
  }

  char* InputArea() const { return op_.scratch.address; }
  char* OutputArea() const { return op_.scratch.address + input_bytes_; }
  char* Inputs() const {
    if (!packs_input_) return At(launch_.members[0].input, 0);
    packing_.PackInputs(InputArea());
    return InputArea();
  }
  // Of one member, whatever its count: its output.
  char* Outputs() const {
    return launch_.num_members == 1
               ? static_cast<char*>(launch_.members[0].output)
               : OutputArea();
  }

  // All send all that they have for each other; who has a sum makes it.
  void Reduce() {
    const bool scatters = launch_.kind == COMMSCHED_REDUCE_SCATTER;
    char* const inputs = Inputs();
    if (Sums()) {
      build_.AddStep();
      const uint64_t own = scatters ? packing_.Bytes(PartBegin(rank_)) : 0;
      for (int rank = 0; rank < size_; ++rank) {
        const Node node = {rank, rank + 1};
        if (rank == rank_) {
          build_.AddInput(inputs + own, node, false);
        } else {
          build_.AddInput(rank, kSmall, node, false);
        }
      }
      build_.Sum(OutputCount(), Outputs(), false);
      if (output_bytes_ != 0 && scatters) {
        packing_.CopyOwnPartOut(Outputs(), &build_);
      } else if (output_bytes_ != 0) {
        packing_.CopyOut(Outputs(), &build_);
      }
    }
    ForPeers([&](int peer) {
      if (launch_.kind == COMMSCHED_REDUCE && peer != launch_.root) return;
      const uint64_t begin = scatters ? PartBegin(peer) : 0;
      const uint64_t count = scatters ? PartCount(peer) : packing_.count();
      build_.Send(peer, kSmall, inputs + packing_.Bytes(begin),
                  packing_.Bytes(count));
    });
  }

  void AllGather() {
    const commsched_member_t& member = launch_.members[0];
    if (launch_.num_members == 1) {
      packing_.ForPartsOfOne([&](int rank, char* part, uint64_t count) {
        if (rank == rank_) {
          CopyOwn(member.input, part, count);
        } else {
          build_.Receive(rank, kSmall, part, count * element_);
        }
      });
      return ForPeers([&](int peer) {
        build_.Send(peer, kSmall, member.input,
                    packing_.Bytes(PartCount(rank_)));
      });
    }
    const auto part_of = [&](int rank) {
      return OutputArea() + packing_.Bytes(PartBegin(rank));
    };
    packing_.PackOwnPart(part_of(rank_));
    const uint32_t step = build_.AddStep();
    ForPeers([&](int peer) {
      build_.Receive(peer, kSmall, part_of(peer),
                     packing_.Bytes(PartCount(peer)), step);
    });
    packing_.CopyOut(OutputArea(), &build_);
    ForPeers([&](int peer) {
      build_.Send(peer, kSmall, part_of(rank_),
                  packing_.Bytes(PartCount(rank_)));
    });
  }

  void Broadcast() {
    const uint64_t bytes = packing_.Bytes(packing_.count());
    if (!IsRoot()) {
      const uint32_t step = build_.AddStep();
      build_.Receive(launch_.root, kSmall, Outputs(), bytes, step);
      if (output_bytes_ != 0) packing_.CopyOut(Outputs(), &build_);
      return;
    }
    const char* const inputs = Inputs();
    packing_.CopyInputsToOutputs();
    ForPeers([&](int peer) { build_.Send(peer, kSmall, inputs, bytes); });
  }

  void CopyOwn(const void* from, void* to, uint64_t count) const {
    if (task_.measures || from == to || count == 0) return;
    std::memmove(to, from, count * element_);
  }

  // Where the parts begin that this rank sends, or gets: they lie behind each
  // other, or are their stride apart.
  void FindBegins(const commsched_member_t& member, bool sends) const {
    const uint64_t stride = sends ? member.input_stride : member.output_stride;
    std::vector<uint64_t>& begins = op_.part_begins;
    begins.assign(1, 0);
    for (int peer = 0; peer < size_; ++peer) {
      const bool has_stride = member.counts == nullptr && stride != 0;
      begins.push_back(
          begins.back() +
          (has_stride ? stride : pair_counts_.Of(member, peer, sends)));
    }
  }
  uint64_t BeginOf(int rank) const {
    return op_.part_begins[static_cast<size_t>(rank)];
  }

  // Calls each(peer, done, bytes) for the first chunk of what bytes_of(peer) is
  // long, of all peers, then for the second, and so on: all links are busy. Of
  // nothing there is a chunk all the same, but not of PackedParts::kNoPack.
  template <typename BytesOf, typename Each>
  void ForChunks(const BytesOf& bytes_of, const Each& each) const {
    bool more = true;
    for (uint64_t done = 0; more; done += chunk_bytes_) {
      more = false;
      ForPeers([&](int peer) {
        const uint64_t all = bytes_of(peer);
        if (all == PackedParts::kNoPack || (done != 0 && done >= all)) return;
        const uint64_t bytes = std::min(chunk_bytes_, all - done);
        each(peer, done, bytes);
        more |= done + bytes < all;
      });
    }
  }

  char* At(const void* base, uint64_t element) const {
    // As a number: nothing is at `base` where a launch is only measured.
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(base) +
                                   element * element_);
  }

  // What two ranks have for each other is in one phase, packs first.
  void AllToAll() {
    if (parts_.has_packs()) ExchangePacks();
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      ExchangeParts(m);
      CopyOwnPart(launch_.members[m]);
    }
  }

  void ExchangePacks() {
    parts_.CopyIn();
    const uint32_t first = parts_.AddSteps(&build_);
    for (const bool sends : {false, true}) {
      const auto bytes_of = [&](int peer) {
        return parts_.BytesOf(peer, sends);
      };
      ForChunks(bytes_of, [&](int peer, uint64_t done, uint64_t bytes) {
        char* const chunk = parts_.AddressOf(peer, sends) + done;
        if (sends) return build_.Send(peer, kInputs, chunk, bytes);
        const auto distance =
            static_cast<uint32_t>((peer - rank_ + size_) % size_);
        build_.Receive(peer, kInputs, chunk, bytes, first + distance - 1);
      });
    }
  }

  void ExchangeParts(uint32_t m) {
    const commsched_member_t& member = launch_.members[m];
    FindBegins(member, /*sends=*/false);
    ForChunks([&](int peer) { return ApartBytes(m, peer, /*sends=*/false); },
              [&](int peer, uint64_t done, uint64_t bytes) {
                build_.Receive(peer, kInputs,
                               At(member.output, BeginOf(peer)) + done, bytes);
              });
    FindBegins(member, /*sends=*/true);
    ForChunks([&](int peer) { return ApartBytes(m, peer, /*sends=*/true); },
              [&](int peer, uint64_t done, uint64_t bytes) {
                build_.Send(peer, kInputs,
                            At(member.input, BeginOf(peer)) + done, bytes);
              });
  }

  // Of a part that is in no pack; PackedParts::kNoPack: it is in one.
  uint64_t ApartBytes(uint32_t m, int peer, bool sends) const {
    if (parts_.IsPacked(m, peer, sends)) return PackedParts::kNoPack;
    return element_ * pair_counts_.Of(launch_.members[m], peer, sends);
  }

  void CopyOwnPart(const commsched_member_t& member) {
    FindBegins(member, /*sends=*/false);
    char* const to = At(member.output, BeginOf(rank_));
    FindBegins(member, /*sends=*/true);
    CopyOwn(At(member.input, BeginOf(rank_)), to,
            pair_counts_.Of(member, rank_, /*sends=*/true));
  }

  // Of the members, each is one message.
  void SendAndReceive() {
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      const commsched_member_t& member = launch_.members[m];
      const uint64_t bytes = member.count * element_;
      if (member.direction == COMMSCHED_SEND) {
        build_.Send(member.peer, kInputs, member.input, bytes);
      } else {
        build_.Receive(member.peer, kInputs, member.output, bytes);
      }
    }
  }

  const LaunchTask& task_;
  const commsched_launch_t& launch_;
  const Layout& layout_;
  const int rank_;
  const int size_;
  const PairCounts pair_counts_;
  const uint64_t element_;
  Operation& op_;
  Builder build_;
  const uint64_t chunk_bytes_;
  const Packing packing_;
  const PackedParts parts_;
  AllScratchNeeds needs_;
  bool packs_input_ = false;
  uint64_t input_bytes_ = 0;
  uint64_t output_bytes_ = 0;
};

bool Exchange::Fits(const LaunchShape& shape, const Layout& layout) {
  const auto n = static_cast<uint64_t>(layout.size());
  switch (shape.kind) {
    case COMMSCHED_ALL_TO_ALL:
    case COMMSCHED_BARRIER:
    case COMMSCHED_SEND:
      return true;
    case COMMSCHED_ALL_GATHER:
      return shape.bytes() <= n * kMostExchangedBytes &&
             shape.bytes() <= kMostExchangedPartsBytes;
    case COMMSCHED_REDUCE_SCATTER:  // One rank may have all of it.
      return shape.bytes() <= n * kMostExchangedBytes &&
             n * shape.bytes() <= kMostReceivedBytes;
    default:
      return shape.bytes() <= kMostExchangedBytes &&
             n * shape.bytes() <= kMostReceivedBytes;
  }
}

// Of an all-to-all of one member with equal parts.
PairPack PackOf(const CostContext& context, uint64_t part_bytes) {
  const uint64_t element = context.shape.element_bytes;
  PairPack pack(context.layout.size(), element,
                ChunkBytes(context.layout, context.chunk_bytes, element));
  pack.Add(part_bytes / element);
  return pack;
}

// Messages to all others, which go out one after the other; the link of a host
// carries those of all its ranks.
Cost Exchange::CostOf(const CostContext& context) {
  const LaunchShape& shape = context.shape;
  const Layout& layout = context.layout;
  const int64_t size = layout.size();
  const int64_t near = layout.most_ranks_per_host();
  const int64_t far = size - near;
  // To one peer, in each direction; and how many of a host do so.
  uint64_t bytes = shape.bytes();
  int64_t senders = near;
  int64_t ways = 2;
  switch (shape.kind) {
    case COMMSCHED_SEND:
      return {};
    case COMMSCHED_REDUCE:
    case COMMSCHED_BROADCAST:
      senders = ways = 1;
      break;
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_REDUCE_SCATTER:
    case COMMSCHED_ALL_TO_ALL:
      bytes /= static_cast<uint64_t>(size);
      break;
    default:
      break;
  }
  int64_t messages = 1;
  if (shape.kind == COMMSCHED_ALL_TO_ALL) {
    messages = static_cast<int64_t>(std::max(
        PackOf(context, bytes).num_messages(), uint64_t{shape.num_arrays}));
  }
  const LinkLevel& within = context.links.host;
  const LinkLevel& between = context.links.network;
  const auto link_bytes = static_cast<uint64_t>(senders * far) * bytes;
  const int64_t core_ns =
      ways * messages *
          (far * between.message_ns + (near - 1) * within.message_ns) +
      TransferNs(within, static_cast<uint64_t>(size - 1) * bytes);
  return {std::max(far == 0 ? 0 : TransferNs(between, link_bytes), core_ns) +
              (far == 0 ? within : between).latency_ns,
          ways * messages * (size - 1)};
}

// Of a host with r of n ranks r (n - r) messages each way, which is most where
// r is: no two hosts have more than half of the ranks. The root has one for
// each rank of other hosts, or of them.
Crossing Exchange::CrossingOf(const CostContext& context) {
  const LaunchShape& shape = context.shape;
  const Layout& layout = context.layout;
  const auto size = static_cast<uint64_t>(layout.size());
  auto near = static_cast<uint64_t>(layout.most_ranks_per_host());
  uint64_t senders = near;
  uint64_t bytes = shape.bytes();
  switch (shape.kind) {
    case COMMSCHED_SEND:
      return {};
    case COMMSCHED_REDUCE:
    case COMMSCHED_BROADCAST:
      near = layout.RanksOf(layout.HostOf(shape.root)).size();
      senders = 1;
      break;
    case COMMSCHED_ALL_TO_ALL:
      bytes /= size;
      if (PackOf(context, bytes).exists()) bytes += PairPack::kDigestBytes;
      break;
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_REDUCE_SCATTER:
      bytes /= size;
      break;
    default:
      break;
  }
  Crossing crossing;
  crossing.link_bytes = senders * (size - near) * bytes;
  if (shape.sums()) {
    crossing.pieces = static_cast<uint32_t>(layout.most_ranks_per_host());
  }
  return crossing;
}

}  // namespace

const Algorithm kExchange = {
    .name = "exchange",
    .does =
        "all-to-all, barriers, sends, and all else up to 64 KiB, of all ranks "
        "8 MiB",
    .fits = &Exchange::Fits,
    .cost = &Exchange::CostOf,
    .crossing = &Exchange::CrossingOf,
    .scratch_bytes = &ScratchBytesWith<Exchange>,
    .build = &BuildWith<Exchange>,
};

}  // namespace commsched::ucx
