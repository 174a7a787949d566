// Each byte crosses a host's link once (routes.h), in chunks.
//
//   all-gather       every rank owns its part, which goes to all, some of it by
//                    way of a third host
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
#include "ucx/algorithms/level_parts.h"
#include "ucx/algorithms/packed_launch.h"
#include "ucx/algorithms/relays.h"
#include "ucx/algorithms/routes.h"

namespace commsched::ucx {
namespace {

// What the inputs of one chunk may be together.
constexpr uint64_t kMostInputBytes = 7 << 20;
// Chunks that are not summed up are not made smaller than this so that there
// are many of them.
constexpr uint64_t kLeastUnsummedBytes = 64 << 10;

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
        measures_(task.measures),
        may_relay_(measures_ && Relays::MayExist(task.launch, task.layout)),
        op_(*operation),
        parts_(launch_, task.layout,
               ChunkElements(ShapeOf(task.launch, size_), task.layout,
                             task.chunk_bytes),
               operation),
        relays_(parts_.relays()),
        build_(element_, partial_, operation) {}

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
    if (relays_.exist()) ForMembers(&Levels::AddRelayForwards);
    if (relays_.exist()) ForMembers(&Levels::ReceiveRelayed);
    ForMembers(&Levels::ReceiveResults);
    if (IsReducing()) ForMembers(&Levels::SendNodeInputs);
    if (relays_.exist()) ForMembers(&Levels::SendRelayed);
    ForMembers(&Levels::SendFirst);
    build_.Finish();
    if (!may_relay_) return;
    Relays::Reserve(launch_, layout_, rank_, parts_.relayed_chunk(), &op_);
  }

 private:
  bool IsReducing() const {
    return launch_.kind == COMMSCHED_ALL_REDUCE ||
           launch_.kind == COMMSCHED_REDUCE ||
           launch_.kind == COMMSCHED_REDUCE_SCATTER;
  }
  bool IsRoot() const { return rank_ == launch_.root; }
  // The results that this rank owns are not its own.
  bool OnlySendsOn() const {
    return launch_.kind == COMMSCHED_REDUCE && !IsRoot();
  }

  void ForMembers(void (Levels::*each)(const commsched_member_t&)) {
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      parts_.Find(launch_.members[m]);
      (this->*each)(launch_.members[m]);
    }
  }

  AllScratchNeeds Needs() {
    AllScratchNeeds needs;
    if (!IsReducing()) return needs;
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      const commsched_member_t& member = launch_.members[m];
      parts_.Find(member);
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

  // ---- Chunks ----

  // Calls each(chunk), at least once for a part that exists.
  template <typename Each>
  void ForOwnChunks(const commsched_member_t& member, const Each& each) const {
    const auto [part, exists] = parts_.Of(member, rank_);
    const uint64_t chunk = parts_.chunk();
    for (uint64_t done = 0; exists; done += chunk) {
      if (done != 0 && done >= part.count) return;
      each(Range{part.begin + done, std::min(chunk, part.count - done)});
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
    parts_.ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
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
      const uint64_t begin = parts_.Of(member, rank_).range.begin;
      ForOwnChunks(member,
                   [&](Range chunk) { AddOwnSum(member, begin, chunk); });
    } else if (launch_.kind == COMMSCHED_BROADCAST) {
      ForOwnChunks(member, [&](Range chunk) {
        AddForward(member, launch_.root, rank_, chunk);
      });
    } else if (relays_.exist()) {
      relays_.ForChunks(parts_.relayed_chunk(),
                        [&](int owner, int via, Range chunk) {
                          if (routes_.GetterAt(via, owner) != rank_) return;
                          AddRelayed(member, owner, via, chunk);
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
    parts_.ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      if (routes_.HandsOn(rank_, owner))
        AddForward(member, owner, owner, chunk);
    });
  }

  // Of a chunk of what `owner` owns, which comes from rank `from`.
  void AddForward(const commsched_member_t& member, int from, int owner,
                  Range chunk) {
    ReceiveToSendOn(member, {from, kResults}, owner, chunk);
    SendResultOn(owner, At(member.output, chunk.begin), chunk.count);
  }

  void ReceiveToSendOn(const commsched_member_t& member, const Hop& from,
                       int owner, Range chunk) {
    const uint32_t step = build_.AddStep();
    build_.Receive(from.peer, from.phase, At(member.output, chunk.begin),
                   chunk.count * element_, step);
    CopyOut(member, owner, chunk);
  }

  // Of what `owner` sends by way of host `via`: to those who get it of this
  // rank, which is not the owner.
  void AddRelayed(const commsched_member_t& member, int owner, int via,
                  Range chunk) {
    ReceiveToSendOn(member, routes_.RelayedFrom(rank_, owner, via), owner,
                    chunk);
    ForRelayReceivers(owner, via, [&](int rank, Phase phase) {
      build_.SendOn(rank, phase, At(member.output, chunk.begin),
                    chunk.count * element_);
    });
  }

  void AddRelayForwards(const commsched_member_t& member) {
    relays_.ForChunks(parts_.relayed_chunk(),
                      [&](int owner, int via, Range chunk) {
                        if (!routes_.HandsOnRelayed(rank_, owner, via)) return;
                        AddRelayed(member, owner, via, chunk);
                      });
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

  // Likewise, of what goes by way of host `via`.
  template <typename Send>
  void ForRelayReceivers(int owner, int via, const Send& send) const {
    const auto send_to = [&](int rank) {
      const Hop hop = routes_.RelayedFrom(rank, owner, via);
      if (hop.peer == rank_) send(rank, hop.phase);
    };
    const int host = layout_.HostOf(rank_);
    for (int distance = 1; distance < layout_.num_hosts(); ++distance) {
      const int other = (host + distance) % layout_.num_hosts();
      if (other == layout_.HostOf(owner)) continue;
      send_to(routes_.GetterAt(other, owner));
    }
    for (const int rank : layout_.RanksOf(host)) send_to(rank);
  }

  void SendResultOn(int owner, const void* data, uint64_t count) {
    ForReceivers(owner, [&](int rank, Phase phase) {
      build_.SendOn(rank, phase, data, count * element_);
    });
  }

  // ---- What is posted at once ----

  // Before those of ReceiveResults(), as they are sent.
  void ReceiveRelayed(const commsched_member_t& member) {
    relays_.ForChunks(parts_.relayed_chunk(),
                      [&](int owner, int via, Range chunk) {
                        if (routes_.GetterAt(via, owner) == rank_ ||
                            routes_.HandsOnRelayed(rank_, owner, via)) {
                          return;
                        }
                        const Hop hop = routes_.RelayedFrom(rank_, owner, via);
                        if (hop.exists())
                          ReceiveResult(member, hop, owner, chunk);
                      });
  }

  void ReceiveResults(const commsched_member_t& member) {
    parts_.ForChunks(member, AfterOwnHost(), [&](int owner, Range chunk) {
      if (routes_.HandsOn(rank_, owner)) return;
      if (launch_.kind == COMMSCHED_BROADCAST && owner == rank_) return;
      const Hop hop = routes_.ResultFrom(rank_, owner);
      if (hop.exists()) ReceiveResult(member, hop, owner, chunk);
    });
  }

  // Steps wait for those of a pack only to copy them out.
  void ReceiveResult(const commsched_member_t& member, const Hop& from,
                     int owner, Range chunk) {
    const uint32_t step =
        packed_.IsPack(member) ? build_.AddStep() : Operation::kNoStep;
    build_.Receive(from.peer, from.phase, At(member.output, chunk.begin),
                   chunk.count * element_, step);
    CopyOut(member, owner, chunk);
  }

  void SendNodeInputs(const commsched_member_t& member) {
    SendInputs(member, AfterOwnHost(), /*to_nodes=*/true);
  }

  void SendInputs(const commsched_member_t& member, int first, bool to_nodes) {
    parts_.ForChunks(member, first, [&](int owner, Range chunk) {
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
        return parts_.ForChunks(
            member, AfterOwnHost(), [&](int owner, Range chunk) {
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

  // First, so that other hosts have something to send on.
  void SendRelayed(const commsched_member_t& member) {
    const uint64_t begin = parts_.WholeOf(member, rank_).begin;
    relays_.ForChunks(
        parts_.relayed_chunk(), [&](int owner, int via, Range chunk) {
          if (owner != rank_) return;
          ForRelayReceivers(owner, via, [&](int rank, Phase phase) {
            build_.Send(rank, phase, At(member.input, chunk.begin - begin),
                        chunk.count * element_);
          });
        });
  }

  void SendOwnPart(const commsched_member_t& member) {
    const Range own = parts_.WholeOf(member, rank_);
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
  const bool measures_;
  const bool may_relay_;
  Operation& op_;
  LevelParts parts_;
  const Relays& relays_;
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

void AddGathered(const CostContext& context, Traffic* traffic) {
  const Layout& layout = context.layout;
  const auto size = static_cast<uint64_t>(layout.size());
  uint64_t least = size;
  for (int host = 0; host < layout.num_hosts(); ++host) {
    least = std::min<uint64_t>(least, layout.RanksOf(host).size());
  }
  const GatherLoads loads(layout.num_hosts(), size, least,
                          static_cast<uint64_t>(layout.most_ranks_per_host()));
  const uint64_t bytes = context.shape.bytes();
  const bool are_relayed = loads.AreWorthwhile(bytes / size);
  traffic->far_hops += are_relayed ? 1 : 0;
  traffic->link_bytes =
      (are_relayed ? loads.relayed : loads.straight) * bytes / size;
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
      if (has_links) AddGathered(context, &traffic);
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
