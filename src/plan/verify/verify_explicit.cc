#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/verify/verify_parts.h"

namespace commsched {
namespace {

class ExplicitVerifier {
 public:
  ExplicitVerifier(const Plan& plan, absl::Span<const ExplicitEdge> after,
                   OpOrder* order)
      : graph_(*plan.graph), after_(after), order_(*order) {}

  absl::Status Run() {
    for (const auto& edges : {after_, absl::MakeConstSpan(graph_.edges())}) {
      for (const ExplicitEdge& edge : edges) {
        RETURN_IF_ERROR(Check(edge.from, edge.to, edge.distance));
      }
    }
    return absl::OkStatus();
  }

 private:
  // An edge into a marker orders what comes after the marker; one out of it is
  // followed from there.
  absl::Status Check(OpId from, OpId to, int distance) {
    if (graph_.op(from).kind == OpKind::kMarker) return absl::OkStatus();
    if (graph_.op(to).kind == OpKind::kMarker) {
      return CheckThroughMarker(from, to, distance);
    }
    if (order_.Ordered(from, to, distance)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        "plan: explicit edge broken", order_.Missing(from, to, distance)));
  }

  absl::Status CheckThroughMarker(OpId from, OpId marker, int distance) {
    std::set<std::pair<OpId, int>> seen;
    std::vector<std::pair<OpId, int>> open = {{marker, std::min(1, distance)}};
    while (!open.empty()) {
      const auto [at, boundaries] = open.back();
      open.pop_back();
      if (!seen.insert({at, boundaries}).second) continue;
      if (graph_.op(at).kind != OpKind::kMarker) {
        RETURN_IF_ERROR(Check(from, at, boundaries));
        continue;
      }
      for (const auto& [next, more] : AfterMarkers()[at]) {
        open.push_back({next, std::min(1, boundaries + more)});
      }
    }
    return absl::OkStatus();
  }

  // What comes right after each marker, and at which distance.
  std::map<OpId, std::vector<std::pair<OpId, int>>>& AfterMarkers() {
    if (!after_markers_.empty()) return after_markers_;
    auto add = [&](OpId from, OpId to, int distance) {
      if (graph_.op(from).kind != OpKind::kMarker) return;
      after_markers_[from].push_back({to, distance});
    };
    for (const auto& edges : {after_, absl::MakeConstSpan(graph_.edges())}) {
      for (const ExplicitEdge& edge : edges) {
        add(edge.from, edge.to, edge.distance);
      }
    }
    return after_markers_;
  }

  const Graph& graph_;
  const absl::Span<const ExplicitEdge> after_;
  OpOrder& order_;
  std::map<OpId, std::vector<std::pair<OpId, int>>> after_markers_;
};

}  // namespace

absl::Status VerifyExplicit(const Plan& plan,
                            absl::Span<const ExplicitEdge> after,
                            OpOrder* order) {
  return ExplicitVerifier(plan, after, order).Run();
}

}  // namespace commsched
