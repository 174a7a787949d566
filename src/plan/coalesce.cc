#include "plan/coalesce.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/align.h"
#include "plan/cost_model.h"

namespace commsched {
namespace {

// The piece of a buffer that an access covers, if it is the same on all ranks.
struct Piece {
  BufferId buffer;
  uint64_t offset = 0;
  uint64_t count = 0;
};

bool FixedPiece(const Graph& graph, const Access& access, Piece* piece) {
  if (access.region.kind == RegionKind::kShard) return false;
  const bool range = access.region.kind == RegionKind::kRange;
  piece->buffer = access.buffer;
  piece->offset = range ? access.region.offset : 0;
  piece->count = CountOf(graph, access, {});
  return true;
}

bool HasOneRange(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

class Coalescer {
 public:
  Coalescer(const Graph& graph, const Dependencies& dependencies,
            const PlannedOrder& order, const PlanOptions& options,
            const CostProfile& profile)
      : graph_(graph),
        order_(order),
        options_(options),
        profile_(profile),
        launch_of_op_(graph.ops().size(), Plan::kNone),
        first_edge_(graph.ops().size() + 1, 0),
        edges_(dependencies.edges) {
    for (const Dependency& edge : edges_) ++first_edge_[edge.to.value() + 1];
    for (size_t i = 1; i < first_edge_.size(); ++i) {
      first_edge_[i] += first_edge_[i - 1];
    }
  }

  std::vector<Launch> Run() {
    for (OpId op : order_.collectives) {
      const std::string obstacle = Obstacle(op);
      if (!obstacle.empty()) {
        Close(obstacle);
        Open(op);
      }
      Join(op);
    }
    if (!launches_.empty()) Close("last in key order");
    return std::move(launches_);
  }

 private:
  // Why `op` cannot join the open launch; empty if it can.
  std::string Obstacle(OpId op) const {
    if (launches_.empty()) return "first in key order";
    if (options_.coalesce_bytes == 0) return "merging is off";
    const Launch& launch = launches_.back();
    const Op& next = graph_.op(op);
    const std::string differs = Difference(launch, next.collective);
    if (!differs.empty()) {
      return absl::StrCat("'", next.name, "' is of another ", differs);
    }
    const uint64_t weight = WeightBytes(graph_, next.collective);
    if (weight > options_.coalesce_bytes ||
        launch.weight_bytes > options_.coalesce_bytes - weight) {
      return absl::StrCat("with '", next.name, "' it would pass ",
                          options_.coalesce_bytes, " bytes");
    }
    if (order_.ready[op.value()] > first_need_) {
      return absl::StrCat("'", graph_.op(order_.host[first_need_]).name,
                          "' needs it before '", next.name, "' is ready");
    }
    if (DependsOnOpen(op)) {
      return absl::StrCat("'", next.name, "' depends on it");
    }
    return "";
  }

  std::string Difference(const Launch& launch,
                         const CollectiveSpec& next) const {
    if (launch.kind != next.kind) return "kind";
    if (launch.kind == CollectiveKind::kBarrier) return "kind";
    if (launch.group != next.group) return "group";
    if (launch.dtype != graph_.buffer(next.input.buffer).dtype) return "dtype";
    if (IsReducing(next.kind) && launch.reduce_op != next.reduce_op) {
      return "reduction";
    }
    if (IsRooted(next.kind) && launch.root != next.root) return "root";
    return "";
  }

  bool DependsOnOpen(OpId op) const {
    const uint32_t open = static_cast<uint32_t>(launches_.size()) - 1;
    for (uint32_t e = first_edge_[op.value()]; e < first_edge_[op.value() + 1];
         ++e) {
      const Dependency& edge = edges_[e];
      if (edge.distance == 0 && launch_of_op_[edge.from.value()] == open) {
        return true;
      }
    }
    return false;
  }

  void Open(OpId op) {
    const CollectiveSpec& spec = graph_.op(op).collective;
    Launch launch;
    launch.kind = spec.kind;
    launch.group = spec.group;
    if (spec.kind != CollectiveKind::kBarrier) {
      launch.dtype = graph_.buffer(spec.input.buffer).dtype;
    }
    launch.reduce_op = spec.reduce_op;
    launch.root = spec.root;
    launches_.push_back(std::move(launch));
    first_need_ = PlannedOrder::kNone;
  }

  void Join(OpId op) {
    Launch& launch = launches_.back();
    launch.members.push_back(op);
    launch.weight_bytes += WeightBytes(graph_, graph_.op(op).collective);
    launch_of_op_[op.value()] = static_cast<uint32_t>(launches_.size()) - 1;
    first_need_ = std::min(first_need_, order_.first_need[op.value()]);
  }

  // Decides the way of the open launch. `obstacle`: why it grows no further.
  void Close(const std::string& obstacle) {
    if (launches_.empty()) return;
    Launch& launch = launches_.back();
    if (launch.members.size() == 1) {
      launch.way = Way::kSingle;
      launch.reason = absl::StrCat("alone: ", obstacle);
    } else if (SortIfContiguous(&launch)) {
      launch.way = Way::kInPlace;
      launch.reason = absl::StrCat("pieces of one range; ends: ", obstacle);
    } else {
      ChooseListOrPack(&launch);
      absl::StrAppend(&launch.reason, "; ends: ", obstacle);
    }
  }

  // Whether inputs and outputs each make up one range of one buffer. If so, the
  // members are put in order of address.
  bool SortIfContiguous(Launch* launch) const {
    if (!HasOneRange(launch->kind)) return false;
    struct Member {
      Piece input, output;
      OpId op;
    };
    std::vector<Member> members;
    for (OpId op : launch->members) {
      const CollectiveSpec& spec = graph_.op(op).collective;
      Member member;
      member.op = op;
      if (!FixedPiece(graph_, spec.input, &member.input) ||
          !FixedPiece(graph_, spec.output, &member.output)) {
        return false;
      }
      members.push_back(member);
    }
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) {
                return a.input.offset < b.input.offset;
              });
    auto follows = [](const Piece& next, const Piece& piece) {
      return next.buffer == piece.buffer &&
             next.offset == piece.offset + piece.count;
    };
    for (size_t i = 1; i < members.size(); ++i) {
      if (!follows(members[i].input, members[i - 1].input) ||
          !follows(members[i].output, members[i - 1].output)) {
        return false;
      }
    }
    for (size_t i = 0; i < members.size(); ++i) {
      launch->members[i] = members[i].op;
    }
    return true;
  }

  // A list costs the backend an overhead per member, packing two copies.
  void ChooseListOrPack(Launch* launch) const {
    uint64_t input = 0;
    uint64_t output = 0;
    bool uneven = false;
    for (OpId op : launch->members) {
      const CollectiveSpec& spec = graph_.op(op).collective;
      input += InputBytes(graph_, spec);
      output += OutputBytes(graph_, spec);
      uneven = uneven || !spec.counts.empty();
    }
    launch->way = Way::kGroup;
    if (uneven) {
      launch->reason = "list: uneven counts are not packed";
      return;
    }
    const int64_t list_ns =
        kMemberOverheadNs * static_cast<int64_t>(launch->members.size() - 1);
    const int64_t pack_ns = CopyNs(input + output, profile_);
    launch->reason =
        absl::StrCat(pack_ns < list_ns ? "pack" : "list", ": copies ", pack_ns,
                     " ns, list overhead ", list_ns, " ns");
    if (pack_ns >= list_ns) return;
    launch->way = Way::kPack;
    launch->staging_output = AlignUp(input);  // relative until placed
    launch->staging_bytes = launch->staging_output + output;
  }

  const Graph& graph_;
  const PlannedOrder& order_;
  const PlanOptions& options_;
  const CostProfile& profile_;
  std::vector<uint32_t> launch_of_op_;
  std::vector<uint32_t> first_edge_;  // by target op, in edges_
  const std::vector<Dependency>& edges_;

  std::vector<Launch> launches_;               // the last one is open
  uint32_t first_need_ = PlannedOrder::kNone;  // of the open one
};

}  // namespace

std::vector<Launch> Coalesce(const Graph& graph,
                             const Dependencies& dependencies,
                             const PlannedOrder& order,
                             const PlanOptions& options,
                             const CostProfile& profile) {
  return Coalescer(graph, dependencies, order, options, profile).Run();
}

}  // namespace commsched
