// Small launches: a rank sends and receives log2 of the ranks messages, each of
// which holds all members.
//
//   all-reduce       the sum goes up the summing tree, as partial sums, and
//                    down the hosts. Of 2^k ranks, blocks of a host's ranks
//                    exchange their sums, doubling them each round, instead
//   reduce           up to the root
//   reduce-scatter   an all-reduce; down go the parts of those below only
//   broadcast        down from the root
//
// What is gathered is in gathering.h.
#include <algorithm>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/gathering.h"
#include "ucx/algorithms/packing.h"
#include "ucx/algorithms/rounds_cost.h"
#include "ucx/algorithms/tree_shape.h"

namespace commsched::ucx {
namespace {

// Of a launch, and of the sums that travel for it.
constexpr uint64_t kMostTreeBytes = 256 << 10;
constexpr uint64_t kMostTreeSumBytes = 1 << 20;

// Of the ranks of a sum those of a block share a host: the first ones exchange
// sums, where that doubles them until all is summed up. 0: it does not.
int ExchangedBlock(const Layout& layout) {
  const int size = layout.size();
  const bool doubles = (size & (size - 1)) == 0 && layout.block() < size;
  return doubles ? layout.block() : 0;
}

class Tree {
 public:
  Tree(const LaunchTask& task, Operation* operation)
      : launch_(task.launch),
        layout_(task.layout),
        rank_(task.rank),
        size_(task.layout.size()),
        partial_bytes_(PartialBytes(task.launch.dtype, task.launch.reduce_op)),
        op_(*operation),
        build_(ElementBytes(task.launch.dtype), partial_bytes_, operation),
        packing_(task, operation),
        block_(launch_.kind == COMMSCHED_REDUCE ? 0 : ExchangedBlock(layout_)),
        sum_place_(FindSumPlace(SummedHere(), rank_, SumRoot())) {
    FindAreas();
  }

  static Cost CostOf(const CostContext& context);
  static Crossing CrossingOf(const CostContext& context);

  uint64_t ScratchBytes() const {
    return input_bytes_ + output_bytes_ + needs_[kOwnSums].Bytes();
  }

  void Build() {
    build_.SetScratch(needs_, input_bytes_ + output_bytes_);
    build_.BeginSteps(kOwnSums);
    if (launch_.kind == COMMSCHED_BROADCAST) {
      Broadcast();
    } else {
      Reduce();
    }
    build_.Finish();
  }

 private:
  // What this rank has summed up so far, or its input.
  struct Piece {
    const char* data = nullptr;
    Node node;
    bool is_partial = false;
  };

  bool IsOne() const { return launch_.num_members == 1; }
  bool ToAll() const { return launch_.kind != COMMSCHED_REDUCE; }
  bool Scatters() const { return launch_.kind == COMMSCHED_REDUCE_SCATTER; }
  uint64_t PieceBytes(Node node) const {
    return node.size() > 1 ? packing_.count() * partial_bytes_
                           : packing_.Bytes(packing_.count());
  }
  // By the tree; the rest by exchanging.
  Node SummedHere() const {
    if (block_ == 0) return {0, size_};
    const int first = rank_ / block_ * block_;
    return {first, first + block_};
  }
  int SumRoot() const {
    return launch_.kind == COMMSCHED_REDUCE ? launch_.root : SummedHere().begin;
  }
  bool IsTop() const { return sum_place_.parent == kNobody; }

  // The scratch: inputs if they have to be packed, or would be overwritten
  // before all have got them; then what has to be unpacked to the outputs, then
  // inputs of others and partial sums.
  void FindAreas() {
    const uint64_t bytes = ScratchBytesOf(packing_.Bytes(packing_.count()));
    const bool is_root = rank_ == launch_.root;
    if (launch_.kind == COMMSCHED_BROADCAST) {
      packs_input_ = is_root && !IsOne();
      if (!IsOne()) (is_root ? input_bytes_ : output_bytes_) = bytes;
      return;
    }
    packs_input_ =
        !packing_.IsInputPacked() || (block_ == 1 && packing_.IsInPlace());
    if (packs_input_) input_bytes_ = bytes;
    const bool is_output = ToAll() || is_root;
    if (is_output && (Scatters() || !IsOne())) output_bytes_ = bytes;
    uint64_t room = 0;
    for (int i = 0; i < sum_place_.num_pieces; ++i) {
      const Node node = sum_place_.pieces[static_cast<size_t>(i)];
      if (node.begin != rank_) room += ScratchBytesOf(PieceBytes(node));
    }
    ScratchNeeds& sums = needs_[kOwnSums];
    sums.AddRoom(room);
    const bool exchanges = block_ != 0 && IsTop();
    for (int size = block_; exchanges && size < size_; size *= 2) {
      sums.AddRoom(ScratchBytesOf(PieceBytes({0, size})));
    }
    const bool sends_sums =
        exchanges ? 2 < size_ : !IsTop() && sum_place_.num_pieces > 1;
    if (!sends_sums) return;
    sums.slot_bytes = ScratchBytesOf(packing_.count() * partial_bytes_);
  }

  char* Inputs() const {
    if (!packs_input_) {
      return static_cast<char*>(const_cast<void*>(launch_.members[0].input));
    }
    packing_.PackInputs(op_.scratch.address);
    return op_.scratch.address;
  }
  bool UnpacksOutputs() const { return output_bytes_ != 0; }
  char* Outputs() const {
    return !Scatters() && IsOne()
               ? static_cast<char*>(launch_.members[0].output)
               : op_.scratch.address + input_bytes_;
  }

  // ---- Sums ----

  void Reduce() {
    Piece own = {Inputs(), {rank_, rank_ + 1}, false};
    const bool exchanges = block_ != 0 && IsTop();
    const bool ends = block_ == 0 && IsTop();
    if (sum_place_.num_pieces > 1 || ends) {
      build_.AddStep();
      for (int i = 0; i < sum_place_.num_pieces; ++i) {
        const Node node = sum_place_.pieces[static_cast<size_t>(i)];
        if (node.begin == rank_) {
          AddInput(own);
        } else {
          AddInputFrom(node.begin, node);
        }
      }
      if (ends) return EndSum();
      own = SumUp(sum_place_.node);
    }
    if (exchanges) return ExchangeSums(own);
    SendPiece(own, sum_place_.parent);
    if (ToAll()) ReceiveResult(ResultFan());
  }

  void AddInput(const Piece& piece) {
    build_.AddInput(piece.data, piece.node, piece.is_partial);
  }
  void AddInputFrom(int peer, Node node) {
    const bool is_partial = node.size() > 1;
    build_.AddInput(peer, is_partial ? kPartials : kInputs, node, is_partial);
  }

  void SendPiece(const Piece& piece, int peer) {
    if (piece.is_partial) {
      build_.SendOn(peer, kPartials, piece.data, PieceBytes(piece.node));
    } else {
      build_.Send(peer, kInputs, piece.data, PieceBytes(piece.node));
    }
  }

  // What the last step sums up is sent on.
  Piece SumUp(Node node) {
    auto* const sum = static_cast<char*>(build_.TakeSlot());
    build_.Sum(packing_.count(), sum, true);
    return {sum, node, true};
  }

  // With the other half of ever larger nodes.
  void ExchangeSums(Piece own) {
    for (int size = block_; size < size_; size *= 2) {
      const int peer = rank_ ^ size;
      const int begin = peer / size * size;
      SendPiece(own, peer);
      build_.AddStep();
      if (peer > rank_) AddInput(own);
      AddInputFrom(peer, {begin, begin + size});
      if (peer < rank_) AddInput(own);
      if (2 * size == size_) {
        EndSum();
      } else {
        const int both = std::min(begin, own.node.begin);
        own = SumUp({both, both + 2 * size});
      }
    }
  }

  // The last step sums up all.
  void EndSum() {
    build_.Sum(packing_.count(), Outputs(), false);
    SendResultOn(ToAll() ? ResultFan() : Fan{});
  }

  // ---- Results ----

  Fan ResultFan() const {
    return block_ == 0 ? FindFan(layout_, rank_, 0)
                       : FindBlockFan(layout_, block_, rank_);
  }

  // What of the result goes to who has these places.
  uint64_t ResultBegin(int begin) const {
    return Scatters() ? packing_.Bytes(packing_.Begin(begin)) : 0;
  }
  uint64_t ResultBytes(int begin, int end) const {
    return Scatters()
               ? packing_.Bytes(packing_.Begin(end) - packing_.Begin(begin))
               : packing_.Bytes(packing_.count());
  }

  void ReceiveResult(const Fan& fan) {
    const uint32_t step = build_.AddStep();
    build_.Receive(fan.parent, kResults, Outputs() + ResultBegin(fan.begin),
                   ResultBytes(fan.begin, fan.end), step);
    SendResultOn(fan);
  }

  // Once the last step has it.
  void SendResultOn(const Fan& fan) {
    for (int i = 0; i < fan.num_children; ++i) {
      const Fan::Child& child = fan.children[static_cast<size_t>(i)];
      build_.SendOn(child.rank, kResults, Outputs() + ResultBegin(child.begin),
                    ResultBytes(child.begin, child.end));
    }
    if (!UnpacksOutputs()) return;
    if (Scatters()) {
      packing_.CopyOwnPartOut(Outputs() + ResultBegin(layout_.PlaceOf(rank_)),
                              &build_);
    } else {
      packing_.CopyOut(Outputs(), &build_);
    }
  }

  void Broadcast() {
    const Fan fan = FindFan(layout_, rank_, launch_.root);
    if (rank_ != launch_.root) return ReceiveResult(fan);
    const char* const inputs = Inputs();
    packing_.CopyInputsToOutputs();
    for (int i = 0; i < fan.num_children; ++i) {
      build_.Send(fan.children[static_cast<size_t>(i)].rank, kResults, inputs,
                  packing_.Bytes(packing_.count()));
    }
  }

  const commsched_launch_t& launch_;
  const Layout& layout_;
  const int rank_;
  const int size_;
  const uint64_t partial_bytes_;
  Operation& op_;
  Builder build_;
  const Packing packing_;
  const int block_;  // ExchangedBlock(), if the kind exchanges sums.
  const SumPlace sum_place_;
  AllScratchNeeds needs_;
  bool packs_input_ = false;
  uint64_t input_bytes_ = 0;
  uint64_t output_bytes_ = 0;
};

// A level of the summing tree crosses links unless blocks of a host hold it.
void AddRoundsUp(const CostContext& context, int block, RoundsCost* cost) {
  const Layout& layout = context.layout;
  const uint64_t bytes = context.shape.elements * context.shape.partial_bytes;
  const int most = layout.most_ranks_per_host();
  for (int half = 1; half < layout.size(); half *= 2) {
    if (2 * half <= layout.block()) {
      cost->AddRoundsNear(1, bytes);
    } else if (layout.num_hosts() == 1) {
      cost->AddRoundsNear(1, bytes);
    } else if (block != 0) {
      cost->AddRoundsFar(1, bytes, CeilDiv(most, block));
    } else {
      cost->AddRoundsFar(1, bytes, CeilDiv(most, 2 * half));
    }
  }
}

Cost Tree::CostOf(const CostContext& context) {
  const LaunchShape& shape = context.shape;
  const Layout& layout = context.layout;
  const int up = CeilLog2(layout.size());
  const int within = CeilLog2(layout.most_ranks_per_host());
  const int between = CeilLog2(layout.num_hosts());
  const int block = ExchangedBlock(layout);
  const uint64_t bytes = shape.bytes();
  RoundsCost cost(context);
  int messages = within + between;
  switch (shape.kind) {
    case COMMSCHED_ALL_REDUCE:
    case COMMSCHED_REDUCE_SCATTER:
      AddRoundsUp(context, block, &cost);
      if (block != 0) {
        cost.AddRoundsNear(CeilLog2(block), bytes);
        messages = up;
      } else {
        cost.AddRoundsFar(between, bytes);
        cost.AddRoundsNear(within, bytes);
      }
      messages += up;
      break;
    case COMMSCHED_REDUCE:
      AddRoundsUp(context, /*block=*/0, &cost);
      messages = up + 1;
      break;
    default:  // A broadcast.
      cost.AddRoundsFar(between, bytes);
      cost.AddRoundsNear(within, bytes);
      break;
  }
  return {cost.ns(), messages};
}

// Adds up what crosses each host's link: the messages that Tree builds.
class TreeCrossing {
 public:
  explicit TreeCrossing(const CostContext& context)
      : shape_(context.shape),
        layout_(context.layout),
        size_(context.layout.size()),
        block_(shape_.kind == COMMSCHED_REDUCE ? 0 : ExchangedBlock(layout_)),
        links_(*context.loads),
        pieces_(static_cast<size_t>(layout_.num_hosts())) {
    links_.assign(static_cast<size_t>(layout_.num_hosts()), {});
  }

  Crossing Count() {
    for (int rank = 0; rank < size_; ++rank) {
      if (shape_.kind == COMMSCHED_BROADCAST) {
        AddFan(FindFan(layout_, rank, shape_.root), rank);
      } else {
        AddSum(rank);
      }
    }
    return {MostFixed(links_),
            *std::max_element(pieces_.begin(), pieces_.end())};
  }

 private:
  size_t HostOf(int rank) const {
    return static_cast<size_t>(layout_.HostOf(rank));
  }
  void Add(int from, int to, uint64_t bytes) {
    if (layout_.ShareHost(from, to)) return;
    links_[HostOf(from)].out.fixed += static_cast<int64_t>(bytes);
    links_[HostOf(to)].in.fixed += static_cast<int64_t>(bytes);
  }
  uint64_t PieceBytes(int num_inputs) const {
    return shape_.elements *
           (num_inputs > 1 ? shape_.partial_bytes : shape_.element_bytes);
  }
  // Of what has a part for each place.
  uint64_t BytesOfPlaces(int count) const {
    return shape_.bytes() / static_cast<uint64_t>(size_) *
           static_cast<uint64_t>(count);
  }

  void AddSum(int rank) {
    const int first = block_ == 0 ? 0 : rank / block_ * block_;
    const Node whole = {first, block_ == 0 ? size_ : first + block_};
    const int root = shape_.kind == COMMSCHED_REDUCE ? shape_.root : first;
    const SumPlace place = FindSumPlace(whole, rank, root);
    if (place.parent != kNobody) {
      Add(rank, place.parent, PieceBytes(place.node.size()));
      if (!layout_.ShareHost(rank, place.parent)) ++pieces_[HostOf(rank)];
    }
    if (block_ == 0) {
      if (shape_.kind != COMMSCHED_REDUCE)
        AddFan(FindFan(layout_, rank, 0), rank);
      return;
    }
    if (rank != first) return;
    ++pieces_[HostOf(rank)];
    for (int half = block_; half < size_; half *= 2) {
      Add(rank, rank ^ half, PieceBytes(half));
    }
  }

  void AddFan(const Fan& fan, int rank) {
    for (int i = 0; i < fan.num_children; ++i) {
      const Fan::Child& child = fan.children[static_cast<size_t>(i)];
      Add(rank, child.rank,
          shape_.kind == COMMSCHED_REDUCE_SCATTER
              ? BytesOfPlaces(child.end - child.begin)
              : shape_.bytes());
    }
  }

  const LaunchShape& shape_;
  const Layout& layout_;
  const int size_;
  const int block_;
  std::vector<HostLoad>& links_;
  std::vector<uint32_t> pieces_;  // By host.
};

Crossing Tree::CrossingOf(const CostContext& context) {
  return TreeCrossing(context).Count();
}

// ---- What is gathered, or not ----

bool IsGathered(commsched_collective_t kind) {
  return kind == COMMSCHED_ALL_GATHER || kind == COMMSCHED_BARRIER;
}

bool Fits(const LaunchShape& shape, const Layout& /*layout*/) {
  if (shape.kind == COMMSCHED_ALL_TO_ALL || shape.kind == COMMSCHED_SEND) {
    return false;
  }
  return shape.bytes() <= kMostTreeBytes &&
         shape.elements * shape.partial_bytes <= kMostTreeSumBytes;
}

Cost CostOf(const CostContext& context) {
  return IsGathered(context.shape.kind) ? Gathering::CostOf(context)
                                        : Tree::CostOf(context);
}

Crossing CrossingOf(const CostContext& context) {
  return IsGathered(context.shape.kind) ? Gathering::CrossingOf(context)
                                        : Tree::CrossingOf(context);
}

uint64_t ScratchBytes(const LaunchTask& task, Operation* operation) {
  return IsGathered(task.launch.kind)
             ? ScratchBytesWith<Gathering>(task, operation)
             : ScratchBytesWith<Tree>(task, operation);
}

void Build(const LaunchTask& task, Operation* operation) {
  IsGathered(task.launch.kind) ? BuildWith<Gathering>(task, operation)
                               : BuildWith<Tree>(task, operation);
}

}  // namespace

const Algorithm kTree = {
    .name = "tree",
    .does =
        "all but all-to-all and sends, up to 256 KiB and 1 MiB of partial sums",
    .fits = &Fits,
    .cost = &CostOf,
    .crossing = &CrossingOf,
    .scratch_bytes = &ScratchBytes,
    .build = &Build,
};

}  // namespace commsched::ucx
