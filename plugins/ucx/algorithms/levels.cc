// Each byte crosses a host's link once (routes.h), in chunks.
//
//   all-gather       every rank owns its part, which goes to all
//   reduce-scatter   every rank owns its part, whose inputs come from all
//   all-reduce       hosts own shares, cut among their ranks: a chunk goes to
//                    all once it is summed up
//   reduce           the same; chunks go to the root
//   broadcast        hosts without the root own shares, cut among their ranks:
//                    each gets its part from the root and hands it on
#include <algorithm>
#include <cstring>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/packed_launch.h"
#include "ucx/algorithms/routes.h"

namespace commsched::ucx {
namespace {

// What the inputs of one chunk may be together.
constexpr uint64_t kMostInputBytes = 7 << 20;
// One chunk of each owner is a sixteenth of a launch at most, where links would
// wait for it, but none is smaller than this.
constexpr uint64_t kIdleParts = 16;
constexpr uint64_t kLeastIdleChunkBytes = 64 << 10;
// Chunks that are not summed up are not made smaller than this so that there
// are many of them.
constexpr uint64_t kLeastUnsummedBytes = 64 << 10;

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

// Equal on all ranks. No message is larger than a chunk, partial sums of wider
// elements neither: UCX sends so much without asking (Network::eager_bytes).
uint64_t ChunkElements(const LaunchShape& shape, const Layout& layout,
                       uint64_t chunk_bytes) {
  const auto size = static_cast<uint64_t>(layout.size());
  const uint64_t largest = ChunkBytesOn(layout, chunk_bytes);
  if (!shape.sums()) {
    const uint64_t most = std::max(kMostInputBytes / size, kLeastUnsummedBytes);
    return std::max<uint64_t>(1, std::min(largest, most) / shape.element_bytes);
  }
  const bool has_partials =
      layout.num_hosts() > 1 && layout.most_ranks_per_host() > 1;
  const uint64_t most = kMostInputBytes / Routes(layout, shape).MostInputs() /
                        shape.element_bytes;
  const uint64_t widest =
      has_partials ? shape.partial_bytes : shape.element_bytes;
  return std::max<uint64_t>(1, std::min(largest / widest, most));
}

class Levels {
 public:
  Levels(const LaunchTask& task, Operation* operation)
      : packed_(task, operation),
        launch_(packed_.launch()),
        layout_(task.layout),
        routes_(task.layout, task.launch),
        rank_(task.rank),
        size_(task.layout.size()),
        element_(ElementBytes(task.launch.dtype)),
        partial_(PartialBytes(task.launch.dtype, task.launch.reduce_op)),
        chunk_(ChunkElements(ShapeOf(task.launch, size_), task.layout,
                             task.chunk_bytes)),
        measures_(task.measures),
        op_(*operation),
        build_(element_, partial_, operation) {
    if (HasShares()) ShareOut();
  }

  static bool Fits(const LaunchShape& shape, const Layout& layout);
  static Cost CostOf(const CostContext& context);
  static Crossing CrossingOf(const CostContext& context);

  uint64_t ScratchBytes() {
    uint64_t bytes = packed_.scratch_bytes();
    for (const ScratchNeeds& needs : Needs()) bytes += needs.Bytes();
    return bytes;
  }

  void Build() {
    packed_.CopyIn();
    build_.SetScratch(Needs(), packed_.scratch_bytes());
    build_.BeginSteps(kNodeSums);
    if (IsReducing()) ForMembers(&Levels::AddNodeSums);
    build_.BeginSteps(kOwnSums);
    ForMembers(&Levels::AddOwnSteps);
    build_.BeginSteps(kForwards);
    ForMembers(&Levels::AddForwards);
    ForMembers(&Levels::ReceiveResults);
    if (IsReducing()) ForMembers(&Levels::SendNodeInputs);
    ForMembers(&Levels::SendFirst);
    build_.Finish();
  }

 private:
  bool HasShares() const {
    return launch_.kind == COMMSCHED_ALL_REDUCE ||
           launch_.kind == COMMSCHED_REDUCE;
  }
  bool IsReducing() const {
    return HasShares() || launch_.kind == COMMSCHED_REDUCE_SCATTER;
  }
  bool IsRoot() const { return rank_ == launch_.root; }
  // The results that this rank owns are not its own.
  bool OnlySendsOn() const {
    return launch_.kind == COMMSCHED_REDUCE && !IsRoot();
  }

  void ForMembers(void (Levels::*each)(const commsched_member_t&)) {
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      FindParts(launch_.members[m]);
      (this->*each)(launch_.members[m]);
    }
  }

  AllScratchNeeds Needs() {
    AllScratchNeeds needs;
    if (!IsReducing()) return needs;
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      const commsched_member_t& member = launch_.members[m];
      FindParts(member);
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
        routes_.ForPieces(rank_, [&](Node, bool is_partial, int peer, Phase) {
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
    routes_.FindLoads(&op_.loads);
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
    const uint64_t num_chunks = kIdleParts * static_cast<uint64_t>(num_owners);
    const uint64_t chunk = (count + num_chunks - 1) / num_chunks;
    chunk_ = std::min(chunk_, std::max(chunk, kLeastIdleChunkBytes / element_));
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

  // Where parts of uneven counts begin. Called before anything is made of a
  // member.
  void FindParts(const commsched_member_t& member) {
    if (member.counts == nullptr) return;
    op_.part_begins.assign(1, 0);
    for (int rank = 0; rank < size_; ++rank) {
      op_.part_begins.push_back(op_.part_begins.back() +
                                member.counts[static_cast<size_t>(rank)]);
    }
  }

  // Of a side with a part for each rank, `stride` (0: none between them) apart.
  Range SidePart(const commsched_member_t& member, uint64_t stride,
                 int part) const {
    const auto p = static_cast<size_t>(part);
    if (member.counts != nullptr) {
      return {op_.part_begins[p], member.counts[p]};
    }
    return {p * (stride != 0 ? stride : member.count), member.count};
  }

  // What `owner` owns of a member, in its whole, or in the side that has parts.
  Part PartOf(const commsched_member_t& member, int owner) const {
    Range range;
    switch (launch_.kind) {
      case COMMSCHED_ALL_GATHER:
        return {SidePart(member, member.output_stride, owner)};
      case COMMSCHED_REDUCE_SCATTER:
        return {SidePart(member, member.input_stride, owner)};
      case COMMSCHED_BROADCAST:
        range = BroadcastPart(member.count, owner);
        break;
      default:
        range = HostPart(ShareOf(layout_.HostOf(owner), member.count), owner);
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

  // Calls each(owner, chunk) for the sums that this rank makes for ranks of
  // other hosts.
  template <typename Each>
  void ForNodeSums(const commsched_member_t& member, const Each& each) const {
    const Node node = layout_.NodeOf(rank_);
    if (!routes_.IsSummedUp(node)) return;
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
    } else if (launch_.kind == COMMSCHED_BROADCAST) {
      ForOwnChunks(member, [&](Range chunk) {
        AddForward(member, launch_.root, rank_, chunk);
      });
    }
  }

  void AddOwnSum(const commsched_member_t& member, uint64_t part_begin,
                 Range chunk) {
    build_.AddStep();
    routes_.ForPieces(
        rank_, [&](Node node, bool is_partial, int peer, Phase phase) {
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
    if (!OnlySendsOn()) CopyOut(member, rank_, chunk);
    SendResultOn(rank_, output, chunk.count);
  }

  void AddForwards(const commsched_member_t& member) {
    ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      if (routes_.HandsOn(rank_, owner))
        AddForward(member, owner, owner, chunk);
    });
  }

  // Of a chunk of what `owner` owns, which comes from rank `from`.
  void AddForward(const commsched_member_t& member, int from, int owner,
                  Range chunk) {
    char* const to = At(member.output, chunk.begin);
    const uint32_t step = build_.AddStep();
    build_.Receive(from, kResults, to, chunk.count * element_, step);
    CopyOut(member, owner, chunk);
    SendResultOn(owner, to, chunk.count);
  }

  // Of a chunk that the last step completes.
  void CopyOut(const commsched_member_t& member, int owner, Range chunk) {
    if (!packed_.IsPack(member)) return;
    packed_.CopyOut(owner, chunk.begin, chunk.count, &build_);
  }

  // To those who get it of this rank, beginning with those of other hosts. Who
  // does not own it has it for the owner, or for its own host.
  template <typename Send>
  void ForReceivers(int owner, const Send& send) const {
    const auto send_to = [&](int rank) {
      if (rank == rank_) return;
      const Hop hop = routes_.ResultFrom(rank, owner);
      if (hop.peer == rank_) send(rank, hop.phase);
    };
    if (owner == rank_) {
      const int first = AfterOwnHost();
      for (int distance = 0; distance < size_; ++distance) {
        send_to((first + distance) % size_);
      }
      return;
    }
    send_to(owner);
    for (const int rank : layout_.RanksOf(layout_.HostOf(rank_))) {
      if (rank != owner) send_to(rank);
    }
  }

  void SendResultOn(int owner, const void* data, uint64_t count) {
    ForReceivers(owner, [&](int rank, Phase phase) {
      build_.SendOn(rank, phase, data, count * element_);
    });
  }

  // ---- What is posted at once ----

  // Steps wait for those of a pack only to copy them out.
  void ReceiveResults(const commsched_member_t& member) {
    ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      if (routes_.HandsOn(rank_, owner)) return;
      if (launch_.kind == COMMSCHED_BROADCAST && owner == rank_) return;
      const Hop hop = routes_.ResultFrom(rank_, owner);
      if (!hop.exists()) return;
      const uint32_t step =
          packed_.IsPack(member) ? build_.AddStep() : Operation::kNoStep;
      build_.Receive(hop.peer, hop.phase, At(member.output, chunk.begin),
                     chunk.count * element_, step);
      CopyOut(member, owner, chunk);
    });
  }

  void SendNodeInputs(const commsched_member_t& member) {
    SendInputs(member, AfterOwnHost(), /*to_nodes=*/true);
  }

  void SendInputs(const commsched_member_t& member, int first, bool to_nodes) {
    ForChunks(member, first, [&](int owner, Range chunk) {
      const Hop hop = routes_.InputTo(rank_, owner);
      if (!hop.exists() || (hop.phase == kNodeInputs) != to_nodes) return;
      build_.Send(hop.peer, hop.phase, At(member.input, chunk.begin),
                  chunk.count * element_);
    });
  }

  void SendFirst(const commsched_member_t& member) {
    switch (launch_.kind) {
      case COMMSCHED_ALL_GATHER:
        return SendOwnPart(member);
      case COMMSCHED_BROADCAST:
        if (!IsRoot()) return;
        CopyOwn(member.input, member.output, member.count);
        return ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
          SendResult(owner, At(member.input, chunk.begin), chunk.count);
        });
      default:
        return SendInputs(member, AfterOwn(), /*to_nodes=*/false);
    }
  }

  void SendResult(int owner, const void* data, uint64_t count) {
    ForReceivers(owner, [&](int rank, Phase phase) {
      build_.Send(rank, phase, data, count * element_);
    });
  }

  void SendOwnPart(const commsched_member_t& member) {
    const Range own = PartOf(member, rank_).range;
    CopyOwn(member.input, At(member.output, own.begin), own.count);
    ForOwnChunks(member, [&](Range chunk) {
      SendResult(rank_, At(member.input, chunk.begin - own.begin), chunk.count);
    });
  }

  const PackedLaunch packed_;
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
};

bool Levels::Fits(const LaunchShape& shape, const Layout& /*layout*/) {
  switch (shape.kind) {
    case COMMSCHED_ALL_REDUCE:
    case COMMSCHED_REDUCE:
    case COMMSCHED_REDUCE_SCATTER:
    case COMMSCHED_ALL_GATHER:
    case COMMSCHED_BROADCAST:
      return true;
    default:
      return false;
  }
}

// What a rank does for a chunk of every owner, and all ranks together, where
// hosts are alike.
struct Traffic {
  int64_t far_messages = 0;
  int64_t near_messages = 0;
  int64_t far_hops = 0;
  int64_t near_hops = 0;
  uint64_t near_bytes = 0;
  uint64_t link_bytes = 0;
};

// Inputs, to the owners.
void AddInputs(const CostContext& context, Traffic* traffic) {
  const int64_t near = context.layout.most_ranks_per_host();
  const int64_t far = context.layout.size() - near;
  const int64_t node = std::min<int64_t>(context.layout.block(), near);
  const int64_t num_nodes = (near + node - 1) / node;
  traffic->far_messages +=
      far * num_nodes / near + (context.layout.num_hosts() - 1) * num_nodes;
  traffic->near_messages += 2 * (near - 1) + 2 * far * (node - 1) / node;
  traffic->far_hops += 1;
  traffic->near_hops += near > 1 ? 1 : 0;
  traffic->near_bytes += context.shape.bytes();
}

// Results, to all.
void AddResults(const CostContext& context, Traffic* traffic) {
  const int64_t near = context.layout.most_ranks_per_host();
  const int64_t far = context.layout.size() - near;
  traffic->far_messages += context.layout.num_hosts() - 1 + far / near;
  traffic->near_messages += 2 * (near - 1) + 2 * far * (near - 1) / near;
  traffic->far_hops += 1;
  traffic->near_hops += near > 1 ? 1 : 0;
  traffic->near_bytes += context.shape.bytes();
}

// What the busiest direction of a link carries of a sum.
uint64_t SummedLinkBytes(const CostContext& context) {
  __extension__ typedef unsigned __int128 Wide;
  const LaunchShape& shape = context.shape;
  const Layout& layout = context.layout;
  Routes(layout, shape).FindLoads(context.loads);
  if (shape.kind != COMMSCHED_REDUCE_SCATTER) {
    const auto load = static_cast<uint64_t>(LeastLoad(*context.loads));
    return static_cast<uint64_t>(Wide{load} * shape.elements / kWholeShare);
  }
  // Shares are those of the ranks.
  const auto size = static_cast<uint64_t>(layout.size());
  uint64_t most = 0;
  for (int host = 0; host < layout.num_hosts(); ++host) {
    const HostLoad& load = (*context.loads)[static_cast<size_t>(host)];
    const uint64_t share = layout.RanksOf(host).size();
    most =
        std::max({most, static_cast<uint64_t>(load.out.fixed) * (size - share),
                  static_cast<uint64_t>(load.in.slope) * share});
  }
  return static_cast<uint64_t>(Wide{most} * shape.elements / size);
}

uint64_t GatheredLinkBytes(const CostContext& context) {
  const auto near = static_cast<uint64_t>(context.layout.most_ranks_per_host());
  const auto size = static_cast<uint64_t>(context.layout.size());
  const auto num_hosts = static_cast<uint64_t>(context.layout.num_hosts());
  return std::max(near * (num_hosts - 1), size - near) * context.shape.bytes() /
         size;
}

Traffic TrafficOf(const CostContext& context) {
  const LaunchShape& shape = context.shape;
  const int near = context.layout.most_ranks_per_host();
  const bool has_links = context.layout.num_hosts() > 1;
  Traffic traffic;
  if (shape.sums()) {
    AddInputs(context, &traffic);
    if (has_links) traffic.link_bytes = SummedLinkBytes(context);
  }
  switch (shape.kind) {
    case COMMSCHED_ALL_REDUCE:
      AddResults(context, &traffic);
      break;
    case COMMSCHED_REDUCE:  // The root has most of them.
      traffic.far_messages += context.layout.size() - near;
      traffic.near_messages += near - 1;
      traffic.far_hops += 1;
      traffic.near_bytes += shape.bytes();
      break;
    case COMMSCHED_ALL_GATHER:
      AddResults(context, &traffic);
      if (has_links) traffic.link_bytes = GatheredLinkBytes(context);
      break;
    case COMMSCHED_BROADCAST:  // From the root, or else from all the others.
      AddResults(context, &traffic);
      traffic.far_messages =
          std::max(traffic.far_messages,
                   static_cast<int64_t>(context.layout.size()) - near);
      traffic.far_hops += context.layout.num_hosts() != 2 ? 1 : 0;
      if (has_links) traffic.link_bytes = shape.bytes();
      break;
    default:
      break;
  }
  return traffic;
}

Crossing Levels::CrossingOf(const CostContext& context) {
  Crossing crossing;
  crossing.link_bytes = TrafficOf(context).link_bytes;
  if (context.shape.sums()) {
    crossing.pieces = Routes(context.layout, context.shape).MostPieces();
  }
  return crossing;
}

// Chunks travel while others are summed up: what is slowest counts.
Cost Levels::CostOf(const CostContext& context) {
  const LaunchShape& shape = context.shape;
  const LinkLevel& within = context.links.host;
  const LinkLevel& between = context.links.network;
  Traffic traffic = TrafficOf(context);
  if (context.layout.num_hosts() == 1) {
    traffic.near_hops = traffic.far_hops;
    traffic.far_hops = traffic.far_messages = 0;
  }
  const auto size = static_cast<uint64_t>(context.layout.size());
  const uint64_t chunk =
      ChunkElements(shape, context.layout, context.chunk_bytes);
  const uint64_t chunks_of_part = (shape.elements / size + chunk - 1) / chunk;
  const auto num_chunks = static_cast<int64_t>(
      std::max<uint64_t>({chunks_of_part, shape.num_arrays, 1}));
  const int64_t core_ns =
      num_chunks * (traffic.far_messages * between.message_ns +
                    traffic.near_messages * within.message_ns) +
      TransferNs(within, traffic.near_bytes);
  int64_t messages =
      num_chunks * (traffic.far_messages + traffic.near_messages);
  const int near = context.layout.most_ranks_per_host();
  const bool has_levels = near > 1 && context.layout.num_hosts() > 1;
  // The rank of a small host does the work of several of another.
  if (has_levels) messages *= 2;
  return {traffic.far_hops * between.latency_ns +
              traffic.near_hops * within.latency_ns +
              std::max(core_ns, TransferNs(between, traffic.link_bytes)),
          messages};
}

}  // namespace

const Algorithm kLevels = {
    .name = "levels",
    .does = "all but all-to-all, barriers and sends",
    .fits = &Levels::Fits,
    .cost = &Levels::CostOf,
    .crossing = &Levels::CrossingOf,
    .scratch_bytes = &ScratchBytesWith<Levels>,
    .build = &BuildWith<Levels>,
};

}  // namespace commsched::ucx
