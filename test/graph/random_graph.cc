#include "test/graph/random_graph.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/collective_shape.h"
#include "test/graph/builders.h"

namespace commsched {
namespace {

// Buffers hold a multiple of this, so that groups of 1 to 4 share them equally.
constexpr uint64_t kUnit = 12;

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Graph Build(int num_ops) {
    for (int i = 0, n = Below(3) + 1; i < n; ++i) {
      EXPECT_OK(graph_.AddGroup(absl::StrCat("axis", i), Below(4) + 1));
    }
    for (int i = 0, n = Below(4) + 1; i < n; ++i) {
      Buffer buffer = F32(absl::StrCat("buffer", i), kUnit * (Below(3) + 1));
      buffer.ownership = Below(8) == 0   ? Ownership::kLateBound
                         : Below(2) == 0 ? Ownership::kOwned
                                         : Ownership::kBound;
      // Two of a group that are alive at once are refused when planning.
      if (buffer.ownership == Ownership::kOwned && Below(3) == 0) {
        buffer.place_group = static_cast<uint32_t>(Below(2) + 1);
      }
      EXPECT_OK(graph_.AddBuffer(buffer));
    }
    while (static_cast<int>(graph_.ops().size()) < num_ops) {
      // A random op may be refused, for example because its writes overlap.
      (void)graph_.AddOp(RandomOp());
    }
    for (int i = 0, n = Below(4); i < n; ++i) {
      // An edge that closes a cycle is refused.
      (void)graph_.AddEdge({SomeOp(), SomeOp(), Below(2)});
    }
    return std::move(graph_);
  }

 private:
  int Below(uint64_t n) { return static_cast<int>(random_() % n); }
  OpId SomeOp() { return OpId(Below(graph_.ops().size())); }
  GroupId SomeGroup() { return GroupId(Below(graph_.groups().size())); }

  Access SomeAccess() {
    const BufferId buffer(Below(graph_.buffers().size()));
    const auto mode = static_cast<AccessMode>(Below(3) + 1);
    const uint64_t count = graph_.buffer(buffer).count;
    const bool late_bound =
        graph_.buffer(buffer).ownership == Ownership::kLateBound;
    switch (late_bound ? 0 : Below(4)) {
      case 0:
        return Whole(buffer, mode);
      case 3:
        return SomeTile(buffer, mode);
      case 1: {
        const uint64_t offset = Below(count);
        return Range(buffer, offset, Below(count - offset) + 1, mode);
      }
      default:
        return Shard(buffer, SomeGroup(), mode);
    }
  }

  // Most of stride 6, so that many meet in one grid; a column may be cut by the
  // end of a row of the grid.
  Access SomeTile(BufferId buffer, AccessMode mode) {
    const uint64_t total = graph_.buffer(buffer).count;
    const uint64_t stride = Below(5) == 0 ? Below(5) + 1 : 6;
    const uint64_t count = Below(stride) + 1;
    const uint64_t offset = Below(total - count + 1);
    const uint64_t rows = (total - offset - count) / stride + 1;
    return Tile(buffer, offset, count, Below(rows) + 1, stride, mode);
  }

  std::vector<OpId> SomeAfter() {
    std::vector<OpId> after;
    if (!graph_.ops().empty() && Below(4) == 0) after.push_back(SomeOp());
    return after;
  }

  Op RandomOp() {
    const std::string name = absl::StrCat("op", graph_.ops().size());
    Op op = Below(2) == 0 ? RandomCompute(name) : RandomCollective(name);
    op.after = SomeAfter();
    op.priority = Below(5) - 2;
    return op;
  }

  Op RandomCompute(const std::string& name) {
    Op op = Compute(name);
    for (int i = 0, n = Below(4); i < n; ++i) {
      op.accesses.push_back(SomeAccess());
    }
    op.compute.lane = Below(3);
    op.compute.cost_ns = Below(1000);
    op.compute.flops = Below(1000) / 7.0;
    op.compute.bytes = Below(1000) / 3.0;
    return op;
  }

  // Counts that sum to `total`.
  std::vector<uint64_t> SomeCounts(int size, uint64_t total) {
    std::vector<uint64_t> counts(size, 0);
    for (uint64_t i = 0; i < total; ++i) ++counts[Below(size)];
    return counts;
  }

  Op RandomCollective(const std::string& name) {
    const auto kind = static_cast<CollectiveKind>(Below(9));
    const GroupId group = SomeGroup();
    Op op = Collective(name, kind, group, SomeAccess(), SomeAccess());
    op.collective.reduce_op = static_cast<ReduceOp>(Below(kNumGraphReduceOps));
    op.collective.root = Below(graph_.group(group).size);
    op.collective.peer_offset = Below(9) - 4;
    op.collective.lossy = MayBeLossy(kind) && Below(4) == 0;
    const bool scatters = kind == CollectiveKind::kReduceScatter;
    if (!scatters && kind != CollectiveKind::kAllGather) {
      if (Below(2) == 0) op.collective.output = op.collective.input;
      return op;
    }
    // Accesses drawn blindly hardly ever fit: take a buffer and its shard, of
    // the same buffer or of another, with equal parts or with counts.
    const BufferId buffer = op.collective.input.buffer;
    const BufferId other = op.collective.output.buffer;
    Access whole = Whole(Below(2) == 0 ? buffer : other);
    Access part = Shard(buffer, group);
    if (Below(3) == 0) {
      const uint64_t total = graph_.buffer(whole.buffer).count;
      op.collective.counts = SomeCounts(graph_.group(group).size, total);
    }
    op.collective.input = scatters ? whole : part;
    op.collective.output = scatters ? part : whole;
    return op;
  }

  std::mt19937_64 random_;
  Graph graph_;
};

}  // namespace

Graph RandomGraph(uint64_t seed, int num_ops) {
  return Generator(seed).Build(num_ops);
}

}  // namespace commsched
