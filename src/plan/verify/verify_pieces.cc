#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/collective_shape.h"
#include "plan/verify/verify_parts.h"

namespace commsched {
namespace {

// Elements of a part of the whole collective, from the access that the kind
// leaves undivided.
uint64_t WholePart(const Graph& graph, const CollectiveSpec& spec) {
  const Access& full =
      spec.kind == CollectiveKind::kAllGather ? spec.output : spec.input;
  uint64_t count = graph.buffer(full.buffer).count;
  if (full.region.kind == RegionKind::kRange) count = full.region.count;
  if (full.region.kind == RegionKind::kShard) {
    count /= static_cast<uint64_t>(graph.group(full.region.group).size);
  }
  return HasParts(spec.kind)
             ? count / static_cast<uint64_t>(graph.group(spec.group).size)
             : count;
}

class PieceVerifier {
 public:
  explicit PieceVerifier(const Plan& plan) : plan_(plan) {}

  absl::Status Run() const {
    size_t listed = 0;
    for (size_t i = 0; i < plan_.pieces.size(); ++i) {
      const auto& [op, launches] = plan_.pieces[i];
      if (i > 0 && !(plan_.pieces[i - 1].first < op)) {
        return absl::InternalError("plan: split collectives are not sorted");
      }
      const absl::Status checked = Check(op, launches);
      if (!checked.ok()) return checked;
      listed += launches.size();
    }
    const auto split =
        std::count_if(plan_.launches.begin(), plan_.launches.end(),
                      [](const Launch& each) { return each.piece.of != 1; });
    if (listed == static_cast<size_t>(split)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("plan: ", split,
                                            " launches are pieces; ", listed,
                                            " are listed as such"));
  }

 private:
  absl::Status Fail(OpId op, absl::string_view what) const {
    return absl::InternalError(absl::StrCat(
        "plan: the pieces of '", plan_.graph->op(op).name, "' ", what));
  }

  absl::Status Check(OpId op, const std::vector<LaunchId>& launches) const {
    if (op.value() >= plan_.graph->ops().size() ||
        plan_.graph->op(op).kind != OpKind::kCollective ||
        op.value() >= plan_.launch_of_op.size()) {
      return absl::InternalError(
          "plan: an op that is not a collective has pieces");
    }
    if (launches.size() < 2) return Fail(op, "are fewer than 2");
    if (!std::is_sorted(launches.begin(), launches.end()) ||
        launches.back().value() >= plan_.launches.size() ||
        plan_.launch_of_op[op.value()] != launches.back()) {
      return Fail(op, "are not listed in key order");
    }
    std::vector<Piece> pieces;
    for (LaunchId id : launches) {
      const Launch& launch = plan_.launches[id.value()];
      if (launch.members.size() != 1 || launch.members[0] != op ||
          launch.piece.of != launches.size()) {
        return Fail(op, "are not launches of it alone");
      }
      // Who waits for the last one relies on the lane for the others.
      if (launch.lane != plan_.launches[launches.front().value()].lane) {
        return Fail(op, "are on several lanes");
      }
      pieces.push_back(launch.piece);
    }
    return CheckCover(op, std::move(pieces));
  }

  absl::Status CheckCover(OpId op, std::vector<Piece> pieces) const {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.index < b.index; });
    uint64_t covered = 0;
    for (uint32_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].index != i || pieces[i].offset != covered ||
          pieces[i].count == 0) {
        return Fail(op, "leave a gap or overlap");
      }
      covered += pieces[i].count;
    }
    const uint64_t whole =
        WholePart(*plan_.graph, plan_.graph->op(op).collective);
    if (covered == whole) return absl::OkStatus();
    return Fail(op,
                absl::StrCat("cover ", covered, " of ", whole, " elements"));
  }

  const Plan& plan_;
};

}  // namespace

absl::Status VerifyPieces(const Plan& plan) {
  return PieceVerifier(plan).Run();
}

}  // namespace commsched
