#include "collectives.h"

#include <algorithm>
#include <cstring>

#include "builder.h"
#include "routes.h"

namespace commsched::ucx {
namespace {

// Members up to here go to all who want them directly: latency counts.
constexpr uint64_t kSmallBytes = 16 << 10;
// Chunks are not cut smaller, and one per owner is at most this part of a
// launch.
constexpr uint64_t kLeastChunkBytes = 64 << 10;
constexpr uint64_t kIdleParts = 16;
// What the inputs of one chunk may be together.
constexpr uint64_t kMostInputBytes = 8 << 20;

// Where the elements of a part begin, and how many there are.
struct Range {
  uint64_t begin = 0;
  uint64_t count = 0;
};

// Part `part` of `parts` nearly equal ones.
Range EqualPart(Range whole, uint64_t parts, uint64_t part) {
  const uint64_t each = whole.count / parts;
  const uint64_t more = whole.count % parts;
  return {whole.begin + part * each + std::min(part, more),
          each + (part < more ? 1 : 0)};
}

// Part `part` of a side whose parts are `member.count` elements, `stride` (0:
// none between them) apart, or as long as the entries first, first + step ...
// of `counts` say.
Range SidePart(const commsched_member_t& member, uint64_t stride,
               uint64_t first, uint64_t step, int part) {
  const auto p = static_cast<uint64_t>(part);
  if (member.counts == nullptr) {
    return {p * (stride != 0 ? stride : member.count), member.count};
  }
  Range range;
  for (uint64_t i = 0; i < p; ++i) {
    range.begin += member.counts[first + i * step];
  }
  range.count = member.counts[first + p * step];
  return range;
}

uint64_t ChunkElements(const commsched_launch_t& launch, int size,
                       uint64_t chunk_bytes) {
  const uint64_t bytes = std::min(
      chunk_bytes, kMostInputBytes / static_cast<uint64_t>(std::max(size, 1)));
  return std::max<uint64_t>(1, bytes / ElementBytes(launch.dtype));
}

class Collective {
 public:
  Collective(const commsched_launch_t& launch, const Layout& layout, int rank,
             uint64_t chunk_bytes, bool measures, Operation* operation)
      : launch_(launch),
        layout_(layout),
        routes_(layout, launch),
        rank_(rank),
        size_(layout.size()),
        element_(ElementBytes(launch.dtype)),
        partial_(PartialBytes(launch.dtype, launch.reduce_op)),
        chunk_(ChunkElements(launch, layout.size(), chunk_bytes)),
        measures_(measures),
        op_(*operation),
        build_(layout.size(), element_, partial_, operation) {
    if (launch.kind == COMMSCHED_ALL_REDUCE ||
        launch.kind == COMMSCHED_REDUCE) {
      ShareOut();
    }
  }

  AllScratchNeeds Needs() const {
    AllScratchNeeds needs;
    if (!IsReducing()) return needs;
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      const commsched_member_t& member = launch_.members[m];
      ForNodeSums(member, [&](int /*owner*/, Range chunk) {
        ScratchNeeds* const sums = &needs[kNodeSums];
        sums->AddRoom(ScratchBytesOf(chunk.count * element_) *
                      static_cast<uint64_t>(layout_.NodeOf(rank_).size() - 1));
        sums->slot_bytes =
            std::max(sums->slot_bytes, ScratchBytesOf(chunk.count * partial_));
      });
      ForOwnChunks(member, [&](Range chunk) {
        ScratchNeeds* const sums = &needs[kOwnSums];
        uint64_t room = 0;
        ForPieces(member, [&](Node, bool is_partial, int peer, Phase) {
          if (peer == rank_) return;
          room +=
              ScratchBytesOf(chunk.count * (is_partial ? partial_ : element_));
        });
        sums->AddRoom(room);
        if (!OnlySendsOn()) return;
        sums->slot_bytes =
            std::max(sums->slot_bytes, ScratchBytesOf(chunk.count * element_));
      });
    }
    return needs;
  }

  void Build() {
    op_.kind = launch_.kind;
    op_.dtype = launch_.dtype;
    op_.reduce_op = launch_.reduce_op;
    if (launch_.kind == COMMSCHED_SEND) {
      SendAndReceive();
    } else if (launch_.kind == COMMSCHED_BARRIER) {
      Barrier();
    } else {
      build_.SetScratch(Needs());
      build_.BeginSteps(kNodeSums);
      if (IsReducing()) ForMembers(&Collective::AddNodeSums);
      build_.BeginSteps(kOwnSums);
      ForMembers(&Collective::AddOwnSteps);
      build_.BeginSteps(kForwards);
      ForMembers(&Collective::AddForwards);
      ForMembers(&Collective::ReceiveResults);
      ForMembers(&Collective::SendNodeInputs);
      next_own_step_ = op_.end_step[kNodeSums];
      ForMembers(&Collective::SendFirst);
    }
    build_.Finish();
  }

 private:
  bool IsReducing() const {
    return launch_.kind == COMMSCHED_ALL_REDUCE ||
           launch_.kind == COMMSCHED_REDUCE ||
           launch_.kind == COMMSCHED_REDUCE_SCATTER;
  }
  bool IsSmall(const commsched_member_t& member) const {
    return member.count * element_ <= kSmallBytes && member.counts == nullptr;
  }
  bool IsRoot() const { return rank_ == launch_.root; }
  // The results that this rank owns are not its own.
  bool OnlySendsOn() const {
    return launch_.kind == COMMSCHED_REDUCE && !IsRoot();
  }

  void ForMembers(void (Collective::*each)(const commsched_member_t&)) {
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      (this->*each)(launch_.members[m]);
    }
  }

  char* At(const void* base, uint64_t element) const {
    // As a number: nothing is at `base` where a launch is only measured.
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(base) +
                                   element * element_);
  }

  void CopyOwn(const void* from, void* to, uint64_t count) const {
    if (measures_ || from == to || count == 0) return;
    std::memmove(to, from, count * element_);
  }

  // ---- Parts and chunks ----

  // Which end of the whole each host's share has, of kWholeShare.
  void ShareOut() {
    int64_t piece_bytes = 0;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      piece_bytes += routes_.PieceBytes(host);
    }
    op_.loads.clear();
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      op_.loads.push_back(routes_.LoadOf(host, piece_bytes));
    }
    FindShares(op_.loads, &op_.shares);
    CutSmaller();
    for (size_t host = 1; host < op_.shares.size(); ++host) {
      op_.shares[host] += op_.shares[host - 1];
    }
  }

  // A host that owns nothing has sent a chunk to each owner before the first
  // result comes back, and waits as long for the last: its link idles for so
  // much of either direction.
  void CutSmaller() {
    int num_owners = 0;
    for (int rank = 0; rank < size_; ++rank) {
      const auto host = static_cast<size_t>(layout_.HostOf(rank));
      num_owners += op_.shares[host] != 0 ? 1 : 0;
    }
    if (num_owners == size_ || launch_.kind != COMMSCHED_ALL_REDUCE) return;
    uint64_t count = 0;
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      count += launch_.members[m].count;
    }
    const uint64_t chunk =
        count / (kIdleParts * static_cast<uint64_t>(num_owners));
    chunk_ = std::min(chunk_, std::max(chunk, kLeastChunkBytes / element_));
  }

  Range ShareOf(int host, uint64_t count) const {
    __extension__ typedef unsigned __int128 Wide;
    const auto end_of = [&](int h) {
      const auto end =
          static_cast<uint64_t>(op_.shares[static_cast<size_t>(h)]);
      return static_cast<uint64_t>(Wide{count} * end / kWholeShare);
    };
    const uint64_t begin = host == 0 ? 0 : end_of(host - 1);
    return {begin, end_of(host) - begin};
  }

  // Of the hosts without the root, or of the ranks without it, equal ones.
  Range BroadcastPart(uint64_t count, int owner) const {
    if (layout_.num_hosts() == 1) {
      if (owner == launch_.root) return {};
      return EqualPart({0, count}, static_cast<uint64_t>(size_ - 1),
                       static_cast<uint64_t>(owner - (owner > launch_.root)));
    }
    const int host = layout_.HostOf(owner);
    const int root_host = layout_.HostOf(launch_.root);
    if (host == root_host) return {};
    const Range share =
        EqualPart({0, count}, static_cast<uint64_t>(layout_.num_hosts() - 1),
                  static_cast<uint64_t>(host - (host > root_host)));
    return HostPart(share, owner);
  }

  // Of a host's share, a rank's.
  Range HostPart(Range share, int owner) const {
    return EqualPart(share, layout_.RanksOf(layout_.HostOf(owner)).size(),
                     static_cast<uint64_t>(layout_.IndexOf(owner)));
  }

  struct Part {
    Range range;
    bool exists = true;  // A part of nothing may be a message all the same.
  };

  // What `owner` owns of a member, in its whole, or in the side that has parts.
  Part PartOf(const commsched_member_t& member, int owner) const {
    const Range whole = {0, member.count};
    Range range;
    switch (launch_.kind) {
      case COMMSCHED_ALL_GATHER:
        return {SidePart(member, member.output_stride, 0, 1, owner)};
      case COMMSCHED_REDUCE_SCATTER:
        return {SidePart(member, member.input_stride, 0, 1, owner)};
      case COMMSCHED_ALL_REDUCE:
        if (IsSmall(member)) return {whole};
        range = HostPart(ShareOf(layout_.HostOf(owner), member.count), owner);
        break;
      case COMMSCHED_REDUCE:
        if (IsSmall(member)) return {whole, owner == launch_.root};
        range = HostPart(ShareOf(layout_.HostOf(owner), member.count), owner);
        break;
      default:  // COMMSCHED_BROADCAST
        if (IsSmall(member)) return {whole, owner == launch_.root};
        range = BroadcastPart(member.count, owner);
    }
    return {range, range.count != 0};
  }

  // Calls each(owner, chunk): the first chunk of every part, beginning with
  // that of rank `first`, then the second, and so on.
  template <typename Each>
  void ForChunks(const commsched_member_t& member, int first,
                 const Each& each) const {
    bool more = true;
    for (uint64_t done = 0; more; done += chunk_) {
      more = false;
      for (int distance = 0; distance < size_; ++distance) {
        const int owner = (first + distance) % size_;
        const auto [part, exists] = PartOf(member, owner);
        if (!exists || (done != 0 && done >= part.count)) continue;
        const uint64_t count = std::min(chunk_, part.count - done);
        each(owner, Range{part.begin + done, count});
        more |= done + count < part.count;
      }
    }
  }

  // Calls each(chunk), at least once for a part that exists.
  template <typename Each>
  void ForOwnChunks(const commsched_member_t& member, const Each& each) const {
    const auto [part, exists] = PartOf(member, rank_);
    for (uint64_t done = 0; exists; done += chunk_) {
      if (done != 0 && done >= part.count) return;
      each(Range{part.begin + done, std::min(chunk_, part.count - done)});
    }
  }

  // Ranks of a host begin with the same part, which is not theirs.
  int AfterOwnHost() const {
    return (layout_.RanksOf(layout_.HostOf(rank_)).back() + 1) % size_;
  }
  int AfterOwn() const { return (rank_ + 1) % size_; }

  // ---- Ways, of small members straight ones ----

  Hop InputTo(const commsched_member_t& member, int owner) const {
    if (!IsSmall(member)) return routes_.InputTo(rank_, owner);
    if (owner == rank_) return {};
    return {owner, kSmall};
  }

  Hop ResultFrom(const commsched_member_t& member, int rank, int owner) const {
    if (!IsSmall(member)) return routes_.ResultFrom(rank, owner);
    const bool is_result = launch_.kind == COMMSCHED_ALL_GATHER ||
                           launch_.kind == COMMSCHED_BROADCAST;
    if (!is_result || rank == owner) return {};
    return {owner, kSmall};
  }

  bool HandsOn(const commsched_member_t& member, int owner) const {
    return !IsSmall(member) && routes_.HandsOn(rank_, owner);
  }

  template <typename Each>
  void ForPieces(const commsched_member_t& member, const Each& each) const {
    if (!IsSmall(member)) return routes_.ForPieces(rank_, each);
    for (int rank = 0; rank < size_; ++rank) {
      each(Node{rank, rank + 1}, false, rank, kSmall);
    }
  }

  // Calls each(owner, chunk) for the sums that this rank makes for ranks of
  // other hosts.
  template <typename Each>
  void ForNodeSums(const commsched_member_t& member, const Each& each) const {
    const Node node = layout_.NodeOf(rank_);
    if (IsSmall(member) || !routes_.IsSummedUp(node)) return;
    ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      if (layout_.ShareHost(rank_, owner)) return;
      if (routes_.SummerOf(node, owner) == rank_) each(owner, chunk);
    });
  }

  // ---- Steps ----

  void AddNodeSums(const commsched_member_t& member) {
    const Node node = layout_.NodeOf(rank_);
    ForNodeSums(member, [&](int owner, Range chunk) {
      build_.AddStep();
      for (int rank = node.begin; rank < node.end; ++rank) {
        const Node one = {rank, rank + 1};
        if (rank == rank_) {
          build_.AddInput(At(member.input, chunk.begin), one, false);
        } else {
          build_.AddInput(rank, kNodeInputs, one, false);
        }
      }
      void* const sum = build_.TakeSlot();
      build_.Sum(chunk.count, sum, true);
      build_.SendOn(owner, kPartials, sum, chunk.count * partial_);
    });
  }

  void AddOwnSteps(const commsched_member_t& member) {
    if (IsReducing()) {
      const uint64_t begin = PartOf(member, rank_).range.begin;
      ForOwnChunks(member,
                   [&](Range chunk) { AddOwnSum(member, begin, chunk); });
    } else if (launch_.kind == COMMSCHED_BROADCAST && !IsSmall(member)) {
      ForOwnChunks(member, [&](Range chunk) {
        AddForward(member, launch_.root, rank_, chunk);
      });
    }
  }

  void AddOwnSum(const commsched_member_t& member, uint64_t part_begin,
                 Range chunk) {
    build_.AddStep();
    ForPieces(member, [&](Node node, bool is_partial, int peer, Phase phase) {
      if (peer == rank_) {
        build_.AddInput(At(member.input, chunk.begin), node, is_partial);
      } else {
        build_.AddInput(peer, phase, node, is_partial);
      }
    });
    void* output = nullptr;
    if (OnlySendsOn()) {
      output = build_.TakeSlot();
    } else if (launch_.kind == COMMSCHED_REDUCE_SCATTER) {
      output = At(member.output, chunk.begin - part_begin);
    } else {
      output = At(member.output, chunk.begin);
    }
    build_.Sum(chunk.count, output, false);
    SendResultOn(member, rank_, output, chunk.count);
  }

  void AddForwards(const commsched_member_t& member) {
    if (launch_.kind == COMMSCHED_ALL_TO_ALL) return;
    ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      if (HandsOn(member, owner)) AddForward(member, owner, owner, chunk);
    });
  }

  // Of a chunk of what `owner` owns, which comes from rank `from`.
  void AddForward(const commsched_member_t& member, int from, int owner,
                  Range chunk) {
    char* const to = At(member.output, chunk.begin);
    const uint32_t step = build_.AddStep();
    build_.Receive(from, kResults, to, chunk.count * element_, step);
    SendResultOn(member, owner, to, chunk.count);
  }

  // To those who get it of this rank, beginning with those of other hosts.
  template <typename Send>
  void ForReceivers(const commsched_member_t& member, int owner,
                    const Send& send) const {
    const int first = AfterOwnHost();
    for (int distance = 0; distance < size_; ++distance) {
      const int rank = (first + distance) % size_;
      const Hop hop = ResultFrom(member, rank, owner);
      if (rank != rank_ && hop.peer == rank_) send(rank, hop.phase);
    }
  }

  void SendResultOn(const commsched_member_t& member, int owner,
                    const void* data, uint64_t count) {
    ForReceivers(member, owner, [&](int rank, Phase phase) {
      build_.SendOn(rank, phase, data, count * element_);
    });
  }

  // ---- What is posted at once ----

  void ReceiveResults(const commsched_member_t& member) {
    if (launch_.kind == COMMSCHED_ALL_TO_ALL) return;
    const bool is_broadcast_by_steps =
        launch_.kind == COMMSCHED_BROADCAST && !IsSmall(member);
    ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      if (HandsOn(member, owner)) return;
      if (is_broadcast_by_steps && owner == rank_) return;
      const Hop hop = ResultFrom(member, rank_, owner);
      if (!hop.exists()) return;
      build_.Receive(hop.peer, hop.phase, At(member.output, chunk.begin),
                     chunk.count * element_);
    });
  }

  void SendNodeInputs(const commsched_member_t& member) {
    if (!IsReducing()) return;
    ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      const Hop hop = InputTo(member, owner);
      if (hop.exists() && hop.phase == kNodeInputs) {
        build_.Send(hop.peer, hop.phase, At(member.input, chunk.begin),
                    chunk.count * element_);
      }
    });
  }

  void SendFirst(const commsched_member_t& member) {
    switch (launch_.kind) {
      case COMMSCHED_ALL_GATHER:
        return SendOwnPart(member);
      case COMMSCHED_ALL_TO_ALL:
        return ExchangeParts(member);
      case COMMSCHED_BROADCAST:
        if (!IsRoot()) return;
        CopyOwn(member.input, member.output, member.count);
        return ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
          SendResult(member, owner, At(member.input, chunk.begin), chunk.count);
        });
      default:
        return SendInputs(member);
    }
  }

  void SendResult(const commsched_member_t& member, int owner, const void* data,
                  uint64_t count) {
    ForReceivers(member, owner, [&](int rank, Phase phase) {
      build_.Send(rank, phase, data, count * element_);
    });
  }

  // A small sum may overwrite the input, of which what is sent goes first.
  void SendInputs(const commsched_member_t& member) {
    const bool waits = launch_.kind == COMMSCHED_ALL_REDUCE && IsSmall(member);
    ForChunks(member, AfterOwn(), [&](int owner, Range chunk) {
      const Hop hop = InputTo(member, owner);
      if (!hop.exists() || hop.phase == kNodeInputs) return;
      const uint32_t step =
          waits ? next_own_step_ + static_cast<uint32_t>(chunk.begin / chunk_)
                : Operation::kNoStep;
      build_.Send(hop.peer, hop.phase, At(member.input, chunk.begin),
                  chunk.count * element_, step);
    });
    ForOwnChunks(member, [&](Range) { ++next_own_step_; });
  }

  void SendOwnPart(const commsched_member_t& member) {
    const Range own = PartOf(member, rank_).range;
    CopyOwn(member.input, At(member.output, own.begin), own.count);
    ForOwnChunks(member, [&](Range chunk) {
      SendResult(member, rank_, At(member.input, chunk.begin - own.begin),
                 chunk.count);
    });
  }

  // Row r of the counts is what rank r sends, column r what it gets. The first
  // chunk of each part, then the second: all links are busy.
  void ExchangeParts(const commsched_member_t& member) {
    const auto n = static_cast<uint64_t>(size_);
    const auto me = static_cast<uint64_t>(rank_);
    const auto out_part = [&](int peer) {
      return SidePart(member, member.input_stride, me * n, 1, peer);
    };
    const auto in_part = [&](int peer) {
      return SidePart(member, member.output_stride, me, n, peer);
    };
    CopyOwn(At(member.input, out_part(rank_).begin),
            At(member.output, in_part(rank_).begin), out_part(rank_).count);
    const auto for_chunks = [&](const auto& part_of, const auto& each) {
      bool more = true;
      for (uint64_t done = 0; more; done += chunk_) {
        more = false;
        for (int distance = 1; distance < size_; ++distance) {
          const int peer = (rank_ + distance) % size_;
          const Range part = part_of(peer);
          if (done != 0 && done >= part.count) continue;
          const uint64_t count = std::min(chunk_, part.count - done);
          each(peer, part.begin + done, count * element_);
          more |= done + count < part.count;
        }
      }
    };
    for_chunks(in_part, [&](int peer, uint64_t begin, uint64_t bytes) {
      build_.Receive(peer, kInputs, At(member.output, begin), bytes);
    });
    for_chunks(out_part, [&](int peer, uint64_t begin, uint64_t bytes) {
      build_.Send(peer, kInputs, At(member.input, begin), bytes);
    });
  }

  // Nothing but that all have come.
  void Barrier() {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      build_.Send(peer, kSmall, nullptr, 0);
      build_.Receive(peer, kSmall, nullptr, 0);
    }
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

  const commsched_launch_t& launch_;
  const Layout& layout_;
  const Routes routes_;
  const int rank_;
  const int size_;
  const uint64_t element_;
  const uint64_t partial_;
  uint64_t chunk_;  // Elements.
  const bool measures_;
  Operation& op_;
  Builder build_;
  uint32_t next_own_step_ = 0;
};

}  // namespace

uint64_t ScratchBytes(const commsched_launch_t& launch, const Layout& layout,
                      int rank, uint64_t chunk_bytes, Operation* operation) {
  const Collective collective(launch, layout, rank, chunk_bytes,
                              /*measures=*/true, operation);
  uint64_t bytes = 0;
  for (const ScratchNeeds& needs : collective.Needs()) bytes += needs.Bytes();
  return bytes;
}

void Build(const commsched_launch_t& launch, const Layout& layout, int rank,
           uint64_t chunk_bytes, Operation* operation) {
  Collective(launch, layout, rank, chunk_bytes, /*measures=*/false, operation)
      .Build();
}

void Measure(const commsched_launch_t& launch, const Layout& layout, int rank,
             uint64_t chunk_bytes, Operation* largest) {
  Operation one;
  // Any address will do that can be counted on from.
  one.scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
  Collective(launch, layout, rank, chunk_bytes, /*measures=*/true, &one)
      .Build();
  largest->Reserve(one);
}

}  // namespace commsched::ucx
