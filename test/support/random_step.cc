#include "test/support/random_step.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/region.h"

namespace commsched::test {
namespace {

// Draws one graph. What Graph::AddOp refuses is drawn again: the graph room's
// own tests say what it must accept.
class Generator {
 public:
  Generator(uint64_t seed, const RandomStepLimits& limits)
      : random_(seed), limits_(limits) {}

  RandomStep Make() {
    step_.num_ranks = Draw(1, limits_.max_ranks);
    AddGroups();
    AddBuffers();
    const int num_ops = Draw(2, limits_.max_ops);
    for (int i = 0; i < num_ops; ++i) {
      if (Chance(10)) {
        AddNeighbours(i);
      } else {
        AddOp(absl::StrCat("op", i));
      }
    }
    return std::move(step_);
  }

 private:
  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  bool Chance(int percent) { return Draw(1, 100) <= percent; }

  void AddGroups() {
    const int num_groups = Draw(1, 2);
    for (int i = 0; i < num_groups; ++i) {
      (void)step_.graph.AddGroup(absl::StrCat("axis", i), step_.num_ranks);
    }
  }

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

  void AddOp(const std::string& name) {
    for (int attempt = 0; attempt < 50; ++attempt) {
      Op op = Chance(50) ? AnyCompute() : AnyCollective();
      if (Chance(5)) op = Marker();
      op.name = name;
      AddExplicit(&op);
      if (!StartsLifetimes(op)) continue;
      const Op copy = op;
      if (!step_.graph.AddOp(std::move(op)).ok()) continue;
      for (const Access& access : copy.accesses) {
        started_[access.buffer.value()] = true;
      }
      return;
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

  // Whether every owned buffer that `op` is the first to touch is written as a
  // whole, and not read. A reduce writes on its root only.
  bool StartsLifetimes(const Op& op) const {
    const bool writes_everywhere =
        op.kind != OpKind::kCollective ||
        op.collective.kind != CollectiveKind::kReduce;
    return std::all_of(
        op.accesses.begin(), op.accesses.end(), [&](const Access& access) {
          return started_[access.buffer.value()] ||
                 (writes_everywhere && access.mode == AccessMode::kWrite &&
                  access.region.kind == RegionKind::kWhole);
        });
  }

  static Op Marker() {
    Op op;
    op.kind = OpKind::kMarker;
    return op;
  }

  // Explicit dependencies, now and then: on markers and on other ops.
  void AddExplicit(Op* op) {
    const int num_ops = static_cast<int>(step_.graph.ops().size());
    const int percent = op->kind == OpKind::kMarker ? 90 : 15;
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
    if (IsRooted(spec.kind)) spec.root = Draw(0, step_.num_ranks - 1);
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
          FillParts(&spec->output, &spec->input);
        return;
      case CollectiveKind::kAllGather:
        if (in_place)
          spec->input.region = shard;
        else
          FillParts(&spec->input, &spec->output);
        return;
      default:
        if (in_place) {
          spec->input.region = AnyRegion(spec->input.buffer);
          spec->output.region = spec->input.region;
        } else {
          FillParts(&spec->input, &spec->output, 1);
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
  void FillParts(Access* part, Access* whole, int n = 0) {
    if (n == 0) n = step_.num_ranks;
    const uint64_t part_count = step_.graph.buffer(part->buffer).count;
    const uint64_t whole_count = step_.graph.buffer(whole->buffer).count;
    uint64_t count = std::min(part_count, whole_count / n);
    if (n == 1) count -= count % step_.num_ranks;  // all-to-all
    part->region = First(count);
    whole->region = First(count * n);
    if (count == part_count) part->region = Region{};
    if (count * n == whole_count) whole->region = Region{};
  }

  std::mt19937_64 random_;
  const RandomStepLimits limits_;
  RandomStep step_;
  std::vector<bool> started_;  // by buffer: has been wholly written, or bound
};

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

Extent ExtentOf(const Graph& graph, const Access& access, int rank) {
  return ResolveRegion(graph, access, rank, {});
}

// One collective over the memory of all ranks, by its definition.
class CollectiveReference {
 public:
  CollectiveReference(const Graph& graph, const CollectiveSpec& spec,
                      std::vector<RankMemory>* memory)
      : graph_(graph), spec_(spec), memory_(*memory) {}

  void Run() {
    const int n = static_cast<int>(memory_.size());
    for (int r = 0; r < n; ++r) inputs_.push_back(Take(r));
    for (int r = 0; r < n; ++r) Put(r, OutputOf(r));
  }

 private:
  std::vector<int64_t> Take(int rank) const {
    const Extent extent = ExtentOf(graph_, spec_.input, rank);
    const auto begin =
        memory_[rank][spec_.input.buffer.value()].begin() + extent.offset;
    return std::vector<int64_t>(begin, begin + extent.count);
  }

  void Put(int rank, const std::vector<int64_t>& values) {
    const Extent extent = ExtentOf(graph_, spec_.output, rank);
    std::copy(
        values.begin(), values.end(),
        memory_[rank][spec_.output.buffer.value()].begin() + extent.offset);
  }

  std::vector<int64_t> OutputOf(int rank) const {
    const size_t n = inputs_.size();
    switch (spec_.kind) {
      case CollectiveKind::kAllReduce:
        return Reduced();
      case CollectiveKind::kReduce:
        if (rank != spec_.root) return {};
        return Reduced();
      case CollectiveKind::kReduceScatter: {
        const std::vector<int64_t> all = Reduced();
        const size_t part = all.size() / n;
        return {all.begin() + rank * part, all.begin() + (rank + 1) * part};
      }
      case CollectiveKind::kAllGather: {
        std::vector<int64_t> all;
        for (const auto& input : inputs_) {
          all.insert(all.end(), input.begin(), input.end());
        }
        return all;
      }
      case CollectiveKind::kAllToAll: {
        std::vector<int64_t> all;
        const size_t part = inputs_[0].size() / n;
        for (const auto& input : inputs_) {
          all.insert(all.end(), input.begin() + rank * part,
                     input.begin() + (rank + 1) * part);
        }
        return all;
      }
      case CollectiveKind::kBroadcast:
        return inputs_[spec_.root];
      case CollectiveKind::kBarrier:
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv:
        break;
    }
    return {};
  }

  std::vector<int64_t> Reduced() const {
    std::vector<int64_t> result = inputs_[0];
    for (size_t r = 1; r < inputs_.size(); ++r) {
      for (size_t i = 0; i < result.size(); ++i) {
        result[i] = Combine(result[i], inputs_[r][i]);
      }
    }
    return result;
  }

  int64_t Combine(int64_t a, int64_t b) const {
    if (spec_.reduce_op == ReduceOp::kMin) return std::min(a, b);
    if (spec_.reduce_op == ReduceOp::kMax) return std::max(a, b);
    return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                static_cast<uint64_t>(b));
  }

  const Graph& graph_;
  const CollectiveSpec& spec_;
  std::vector<RankMemory>& memory_;
  std::vector<std::vector<int64_t>> inputs_;
};

}  // namespace

RandomStep MakeRandomStep(uint64_t seed, const RandomStepLimits& limits) {
  return Generator(seed, limits).Make();
}

RankMemory InitialMemory(const RandomStep& step, int rank) {
  RankMemory memory;
  for (const Buffer& buffer : step.graph.buffers()) {
    std::vector<int64_t> values(buffer.count);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int64_t>(Mix(Mix(memory.size(), rank), i));
    }
    memory.push_back(std::move(values));
  }
  return memory;
}

void RunCompute(const RandomStep& step, OpId id, uint64_t t, int rank,
                const std::vector<int64_t*>& address) {
  const Op& op = step.graph.op(id);
  uint64_t hash = Mix(Mix(id.value(), t), rank);
  for (const Access& access : op.accesses) {
    if (!Reads(access.mode)) continue;
    const Extent extent = ExtentOf(step.graph, access, rank);
    const int64_t* from = address[access.buffer.value()] + extent.offset;
    for (uint64_t i = 0; i < extent.count; ++i) hash = Mix(hash, from[i]);
  }
  for (const Access& access : op.accesses) {
    if (!Writes(access.mode)) continue;
    const Extent extent = ExtentOf(step.graph, access, rank);
    int64_t* to = address[access.buffer.value()] + extent.offset;
    for (uint64_t i = 0; i < extent.count; ++i) {
      to[i] = static_cast<int64_t>(Mix(hash, i));
    }
  }
}

std::vector<RankMemory> RunSequentially(const RandomStep& step,
                                        uint64_t num_steps) {
  std::vector<RankMemory> memory;
  for (int r = 0; r < step.num_ranks; ++r) {
    memory.push_back(InitialMemory(step, r));
  }
  for (uint64_t t = 0; t < num_steps; ++t) {
    for (uint32_t i = 0; i < step.graph.ops().size(); ++i) {
      const Op& op = step.graph.ops()[i];
      if (op.kind == OpKind::kCollective) {
        CollectiveReference(step.graph, op.collective, &memory).Run();
        continue;
      }
      for (int r = 0; r < step.num_ranks; ++r) {
        std::vector<int64_t*> address;
        for (auto& buffer : memory[r]) address.push_back(buffer.data());
        RunCompute(step, OpId(i), t, r, address);
      }
    }
  }
  return memory;
}

}  // namespace commsched::test
