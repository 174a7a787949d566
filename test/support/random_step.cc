#include "test/support/random_step.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/collective_shape.h"
#include "graph/region.h"
#include "test/support/graph_builder.h"
#include "test/support/place_groups.h"

namespace commsched::test {
namespace {

// Draws one graph. What Graph::AddOp refuses is drawn again: the graph room's
// own tests say what it must accept.
class Generator {
 public:
  Generator(uint64_t seed, const RandomStepLimits& limits)
      : seed_(seed), random_(seed), limits_(limits) {}

  RandomStep Make() {
    step_.num_ranks = Draw(limits_.min_ranks, limits_.max_ranks);
    AddGroups();
    AddBuffers();
    rings_ = limits_.peers && Chance(70);
    const int num_ops = Draw(2, limits_.max_ops);
    for (int i = 0; i < num_ops; ++i) {
      if (Chance(10)) {
        AddNeighbours(i);
      } else if (rings_ && Chance(15)) {
        AddRing(i);
      } else if (limits_.late_bound && Chance(30)) {
        AddLate(i);
      } else {
        AddOp(absl::StrCat("op", i));
      }
    }
    if (limits_.place_groups) step_.graph = WithPlaceGroups(step_.graph, seed_);
    return std::move(step_);
  }

 private:
  static constexpr uint64_t kStride = 6;

  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  bool Chance(int percent) { return Draw(1, 100) <= percent; }

  void AddGroups() {
    const int num_groups = Draw(1, 2);
    std::vector<int> world(step_.num_ranks);
    std::iota(world.begin(), world.end(), 0);
    for (int i = 0; i < num_groups; ++i) AddGroup({world});
    if (!limits_.subgroups || step_.num_ranks < 4) return;
    // Halves, and what has the same place in each: a mesh.
    const int half = step_.num_ranks / 2;
    if (step_.num_ranks % 2 != 0) return;
    AddGroup({{world.begin(), world.begin() + half},
              {world.begin() + half, world.end()}});
    std::vector<std::vector<int>> pairs;
    for (int i = 0; i < half; ++i) pairs.push_back({i, i + half});
    AddGroup(pairs);
  }

  void AddGroup(std::vector<std::vector<int>> communicators) {
    (void)step_.graph.AddGroup(absl::StrCat("axis", step_.communicators.size()),
                               static_cast<int>(communicators[0].size()));
    step_.communicators.push_back(std::move(communicators));
  }
  int SizeOf(GroupId group) const { return step_.graph.group(group).size; }

  // Sizes are multiples of the group size, so that every buffer can be sharded.
  // An owned buffer begins its life with a whole write: the arena's first
  // contents are nobody's.
  void AddBuffers() {
    const int num_buffers = Draw(1, limits_.max_buffers);
    for (int i = 0; i < num_buffers; ++i) {
      Buffer buffer;
      buffer.name = absl::StrCat("buffer", i);
      buffer.dtype = DType::kI64;
      buffer.ownership = Chance(40) ? Ownership::kOwned : Ownership::kBound;
      buffer.count = static_cast<uint64_t>(step_.num_ranks) * Draw(1, 12);
      if (limits_.late_bound && Chance(25)) {
        buffer.ownership = Ownership::kLateBound;
        // Every share of it is a multiple of the ranks.
        buffer.count = static_cast<uint64_t>(step_.num_ranks) * 6 * Draw(1, 2);
      }
      (void)step_.graph.AddBuffer(buffer);
    }
    started_.assign(num_buffers, false);
    for (int i = 0; i < num_buffers; ++i) {
      if (step_.graph.buffers()[i].ownership == Ownership::kBound) {
        started_[i] = true;
      }
    }
  }

  BufferId AnyBuffer() {
    return BufferId(Draw(0, static_cast<int>(started_.size()) - 1));
  }
  GroupId AnyGroup() {
    return GroupId(Draw(0, static_cast<int>(step_.graph.groups().size()) - 1));
  }

  Region AnyRegion(BufferId buffer) {
    Region region;
    const uint64_t count = step_.graph.buffer(buffer).count;
    if (IsLate(buffer)) return region;
    if (limits_.tiles && Chance(30)) return AnyTile(count);
    const int kind = Draw(0, 2);
    if (kind == 1) {
      region.kind = RegionKind::kRange;
      region.offset = Draw(0, static_cast<int>(count) - 1);
      region.count = Draw(1, static_cast<int>(count - region.offset));
    } else if (kind == 2) {
      region.kind = RegionKind::kShard;
      region.group = AnyGroup();
    }
    return region;
  }

  bool IsLate(BufferId buffer) const {
    return step_.graph.buffer(buffer).ownership == Ownership::kLateBound;
  }

  // Columns of a buffer of `count` elements: most often in rows of one length.
  Region AnyTile(uint64_t count) {
    Region region;
    region.kind = RegionKind::kTile;
    const int stride = rings_ || Chance(80) ? kStride : Draw(2, 8);
    region.stride = std::min<uint64_t>(stride, count);
    region.count = Draw(1, static_cast<int>(region.stride));
    region.offset = Draw(0, static_cast<int>(count - region.count));
    region.rows = (count - region.offset - region.count) / region.stride + 1;
    if (Chance(30)) region.rows = Draw(1, static_cast<int>(region.rows));
    return region;
  }

  // A range, or now and then a tile, of `elements` elements that can be split
  // into `parts`.
  Region Fitting(BufferId buffer, uint64_t elements, uint64_t parts) {
    const uint64_t total = step_.graph.buffer(buffer).count;
    const Region range = First(elements);
    if (!limits_.tiles || IsLate(buffer) || Chance(50)) return range;
    for (uint64_t rows = Draw(2, 4); rows > 1; --rows) {
      const uint64_t columns = elements / rows;
      if (columns == 0 || elements % (rows * parts) != 0) continue;
      const uint64_t widest = (total - columns) / (rows - 1);
      if (widest < columns) continue;
      if (rings_ && (columns > kStride || widest < kStride)) continue;
      Region tile = First(columns);
      tile.kind = RegionKind::kTile;
      tile.rows = rows;
      tile.stride = rings_
                        ? kStride
                        : columns + Draw(0, static_cast<int>(widest - columns));
      tile.offset =
          Draw(0, static_cast<int>(total - columns - (rows - 1) * tile.stride));
      return tile;
    }
    return range;
  }

  void AddOp(const std::string& name) {
    for (int attempt = 0; attempt < 50; ++attempt) {
      Op op = Chance(50) ? AnyCompute() : AnyCollective();
      if (limits_.barriers && Chance(5)) op = Barrier();
      op.name = name;
      AddExplicit(&op);
      if (Try(std::move(op))) return;
    }
  }

  // All-reduces, in place, of neighbouring ranges: what can be merged without a
  // copy.
  void AddNeighbours(int index) {
    const BufferId buffer = AnyBuffer();
    const uint64_t count = step_.graph.buffer(buffer).count;
    if (!started_[buffer.value()] || count < 2) return;
    const uint64_t first = Draw(1, static_cast<int>(count) - 1);
    const GroupId group = AnyGroup();
    for (int part = 0; part < 2; ++part) {
      Op op;
      op.name = absl::StrCat("op", index, part == 0 ? "a" : "b");
      op.kind = OpKind::kCollective;
      op.collective.group = group;
      op.collective.input = {buffer, AccessMode::kRead, First(first)};
      if (part == 1) {
        op.collective.input.region.offset = first;
        op.collective.input.region.count = count - first;
      }
      op.collective.output = op.collective.input;
      op.collective.output.mode = AccessMode::kWrite;
      (void)step_.graph.AddOp(std::move(op));
    }
  }

  bool Try(Op op) {
    if (op.kind == OpKind::kCollective) {
      op.accesses.clear();
      if (HasInput(op.collective.kind)) op.accesses = {op.collective.input};
      if (HasOutput(op.collective.kind)) {
        op.accesses.push_back(op.collective.output);
      }
    }
    if (!StartsLifetimes(op)) return false;
    const std::vector<Access> accesses = op.accesses;
    if (!step_.graph.AddOp(std::move(op)).ok()) return false;
    for (const Access& access : accesses) {
      started_[access.buffer.value()] = true;
    }
    return true;
  }

  Op SideOp(std::string name, CollectiveKind kind, GroupId group, Access input,
            Access output) {
    Op op;
    op.name = std::move(name);
    op.kind = OpKind::kCollective;
    op.collective.kind = kind;
    op.collective.group = group;
    op.collective.input = input;
    op.collective.output = output;
    op.collective.input.mode = AccessMode::kRead;
    op.collective.output.mode = AccessMode::kWrite;
    return op;
  }

  // Every member sends to one and receives from another. The two ops are
  // neighbours and touch different memory: else each would wait for the other.
  void AddRing(int index) {
    const GroupId group = AnyGroup();
    const int n = SizeOf(group);
    if (n == 1) return;
    const BufferId from = AnyBuffer();
    const BufferId to = AnyBuffer();
    if (!started_[from.value()]) return;
    if (IsLate(from) != IsLate(to)) return;
    const uint64_t count =
        std::min(step_.graph.buffer(from).count, step_.graph.buffer(to).count);
    Access input = {from, AccessMode::kRead, {}};
    Access output = {to, AccessMode::kWrite, {}};
    if (IsLate(from)) {
      if (step_.graph.buffer(from).count != step_.graph.buffer(to).count) {
        return;
      }
      if (!started_[to.value()]) return;
    } else {
      const uint64_t elements =
          from == to ? count / 2 : Draw(1, static_cast<int>(count));
      if (elements == 0) return;
      input.region = Fitting(from, elements, 1);
      output.region = Fitting(to, elements, 1);
      if (from == to && output.region.kind == RegionKind::kRange) {
        output.region.offset = count - elements;
      }
      if (elements == step_.graph.buffer(to).count) output.region = Region{};
    }
    if (MayOverlap(step_.graph, input, output)) return;
    Op send = SideOp(absl::StrCat("op", index, "s"), CollectiveKind::kSend,
                     group, input, {});
    send.collective.peer_offset = Draw(1, n - 1);
    Op recv = SideOp(absl::StrCat("op", index, "r"), CollectiveKind::kRecv,
                     group, {}, output);
    recv.collective.peer_offset = -send.collective.peer_offset;
    recv.accesses = {output};
    if (!StartsLifetimes(recv)) return;
    if (Chance(30)) std::swap(send, recv);
    (void)(Try(send) && Try(recv));
  }

  // A collective between a late-bound buffer and another.
  void AddLate(int index) {
    const BufferId late = AnyBuffer();
    if (!IsLate(late) || !started_[late.value()]) return;
    const BufferId other = AnyBuffer();
    const GroupId group = AnyGroup();
    const uint64_t n = SizeOf(group);
    const uint64_t most = step_.graph.buffer(late).count;
    static constexpr CollectiveKind kKinds[] = {
        CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
        CollectiveKind::kAllGather, CollectiveKind::kAllToAll,
        CollectiveKind::kBroadcast, CollectiveKind::kReduce};
    const CollectiveKind kind = kKinds[Draw(0, 5)];
    const bool is_input = Chance(50);
    uint64_t wanted = most;  // elements of the other side
    const bool gathers = kind == CollectiveKind::kAllGather;
    if (gathers || kind == CollectiveKind::kReduceScatter) {
      wanted = gathers == is_input ? most * n : most / n;
    }
    if (step_.graph.buffer(other).count < wanted) return;
    Access a = {late, AccessMode::kRead, {}};
    Access b = {other, AccessMode::kRead, {}};
    if (step_.graph.buffer(other).count != wanted) b.region = First(wanted);
    Op op = SideOp(absl::StrCat("op", index, "l"), kind, group, a, b);
    if (!is_input) {
      std::swap(op.collective.input.buffer, op.collective.output.buffer);
      std::swap(op.collective.input.region, op.collective.output.region);
    }
    if (IsReducing(kind)) op.collective.reduce_op = ReduceOp::kMax;
    if (IsRooted(kind)) op.collective.root = Draw(0, static_cast<int>(n) - 1);
    (void)Try(op);
  }

  // Whether every owned buffer that `op` is the first to touch is written as a
  // whole, and not read. A reduce writes on its root only; by counts, or beside
  // a late-bound side, a part may be written.
  bool StartsLifetimes(const Op& op) const {
    const CollectiveSpec& spec = op.collective;
    const auto is_late = [&](const Access& access) {
      return IsLate(access.buffer);
    };
    const bool writes_everywhere =
        op.kind != OpKind::kCollective ||
        (spec.kind != CollectiveKind::kReduce && spec.counts.empty() &&
         std::none_of(op.accesses.begin(), op.accesses.end(), is_late));
    return std::all_of(
        op.accesses.begin(), op.accesses.end(), [&](const Access& access) {
          return started_[access.buffer.value()] ||
                 (writes_everywhere && access.mode == AccessMode::kWrite &&
                  access.region.kind == RegionKind::kWhole);
        });
  }

  Op Barrier() {
    Op op;
    op.kind = OpKind::kCollective;
    op.collective.kind = CollectiveKind::kBarrier;
    op.collective.group = AnyGroup();
    return op;
  }

  // Explicit dependencies, now and then.
  void AddExplicit(Op* op) {
    const int num_ops = static_cast<int>(step_.graph.ops().size());
    const bool touches_nothing =
        op->kind == OpKind::kCollective &&
        op->collective.kind == CollectiveKind::kBarrier;
    const int percent = touches_nothing ? 90 : 15;
    for (int i = 0; i < 2 && num_ops > 0; ++i) {
      if (Chance(percent)) op->after.push_back(OpId(Draw(0, num_ops - 1)));
    }
  }

  Op AnyCompute() {
    Op op;
    op.kind = OpKind::kCompute;
    op.compute.lane = Draw(0, limits_.max_compute_lanes - 1);
    op.compute.cost_ns = Draw(0, 1000);
    const int num_accesses = Draw(1, 3);
    for (int i = 0; i < num_accesses; ++i) {
      Access access;
      access.buffer = AnyBuffer();
      access.mode = static_cast<AccessMode>(Draw(1, 3));
      access.region = AnyRegion(access.buffer);
      if (!started_[access.buffer.value()]) {
        access.mode = AccessMode::kWrite;
        access.region = Region{};
      } else if (IsLate(access.buffer)) {
        access.mode = AccessMode::kRead;
      }
      op.accesses.push_back(access);
    }
    return op;
  }

  Op AnyCollective() {
    static constexpr CollectiveKind kKinds[] = {
        CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
        CollectiveKind::kAllGather, CollectiveKind::kAllToAll,
        CollectiveKind::kBroadcast, CollectiveKind::kReduce};
    static constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin,
                                        ReduceOp::kMax};
    Op op;
    op.kind = OpKind::kCollective;
    CollectiveSpec& spec = op.collective;
    spec.kind = kKinds[Draw(0, 5)];
    spec.group = AnyGroup();
    if (IsReducing(spec.kind)) spec.reduce_op = kOps[Draw(0, 2)];
    if (IsRooted(spec.kind)) spec.root = Draw(0, SizeOf(spec.group) - 1);
    spec.input.mode = AccessMode::kRead;
    spec.output.mode = AccessMode::kWrite;
    spec.input.buffer = AnyBuffer();
    spec.output.buffer = Chance(50) ? spec.input.buffer : AnyBuffer();
    FillRegions(&spec);
    op.accesses = {spec.input, spec.output};
    return op;
  }

  // Regions that fit each other more often than chance would have it.
  void FillRegions(CollectiveSpec* spec) {
    Region shard;
    shard.kind = RegionKind::kShard;
    shard.group = spec->group;
    const bool in_place = spec->input.buffer == spec->output.buffer;
    switch (spec->kind) {
      case CollectiveKind::kReduceScatter:
        if (in_place)
          spec->output.region = shard;
        else
          FillParts(spec, &spec->output, &spec->input);
        return;
      case CollectiveKind::kAllGather:
        if (in_place)
          spec->input.region = shard;
        else
          FillParts(spec, &spec->input, &spec->output);
        return;
      default:
        if (in_place) {
          spec->input.region = AnyRegion(spec->input.buffer);
          spec->output.region = spec->input.region;
        } else {
          FillEqual(spec);
        }
        return;
    }
  }

  static Region First(uint64_t count) {
    Region region;
    region.kind = RegionKind::kRange;
    region.count = count;
    return region;
  }

  // A range of `part`, and one n times as large of `whole`.
  void FillParts(CollectiveSpec* spec, Access* part, Access* whole) {
    const uint64_t n = SizeOf(spec->group);
    const uint64_t part_count = step_.graph.buffer(part->buffer).count;
    const uint64_t whole_count = step_.graph.buffer(whole->buffer).count;
    const uint64_t count = std::min(part_count, whole_count / n);
    part->region = Fitting(part->buffer, count, 1);
    whole->region = Fitting(whole->buffer, count * n, n);
    if (count == part_count) part->region = Region{};
    if (count * n == whole_count) whole->region = Region{};
    // The counts of a late-bound side would come with every step.
    if (IsLate(part->buffer) || IsLate(whole->buffer)) return;
    if (!limits_.uneven || !Chance(60)) return;
    // Up to `count` each; the whole is their sum.
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; ++i) {
      spec->counts.push_back(Draw(0, static_cast<int>(count)));
      sum += spec->counts.back();
    }
    whole->region = First(sum);
  }

  // As much of both sides.
  void FillEqual(CollectiveSpec* spec) {
    const uint64_t n = SizeOf(spec->group);
    const uint64_t input = step_.graph.buffer(spec->input.buffer).count;
    const uint64_t output = step_.graph.buffer(spec->output.buffer).count;
    uint64_t count = std::min(input, output);
    const bool exchange = spec->kind == CollectiveKind::kAllToAll;
    if (exchange) count -= count % n;
    spec->input.region = Fitting(spec->input.buffer, count, exchange ? n : 1);
    spec->output.region = Fitting(spec->output.buffer, count, exchange ? n : 1);
    const bool late = IsLate(spec->input.buffer) || IsLate(spec->output.buffer);
    if (exchange && !late && limits_.uneven && Chance(60)) {
      // What a side holds of n parts, and any part can be left small.
      for (uint64_t i = 0; i < n * n; ++i) {
        spec->counts.push_back(Draw(0, static_cast<int>(count / n)));
      }
    }
    if (count == input) spec->input.region = Region{};
    if (count == output) spec->output.region = Region{};
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  const RandomStepLimits limits_;
  RandomStep step_;
  // Whether there are rings. Then all tiles have one stride: with several, the
  // hazards between them are taken for more than they are, and where a receive
  // is taken to change what the rank sends, the ring cannot begin.
  bool rings_ = false;
  std::vector<bool> started_;  // by buffer: has been wholly written, or bound
};

}  // namespace

const std::vector<int>& RandomStep::RanksOf(GroupId group, int rank) const {
  const auto& all = communicators[group.value()];
  return *std::find_if(all.begin(), all.end(), [&](const auto& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
}

int RandomStep::PositionOf(GroupId group, int rank) const {
  const std::vector<int>& ranks = RanksOf(group, rank);
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) -
                          ranks.begin());
}

RandomStep MakeRandomStep(uint64_t seed, const RandomStepLimits& limits) {
  return Generator(seed, limits).Make();
}

}  // namespace commsched::test
