#include "absl/strings/str_cat.h"
#include "plan/verify/verify_parts.h"

namespace commsched {

absl::Status VerifyExplicit(const Plan& plan,
                            absl::Span<const ExplicitEdge> after,
                            OpOrder* order) {
  for (const auto& edges : {after, absl::MakeConstSpan(plan.graph->edges())}) {
    for (const ExplicitEdge& edge : edges) {
      if (order->Ordered(edge.from, edge.to, edge.distance)) continue;
      return absl::InternalError(
          absl::StrCat("plan: explicit edge broken",
                       order->Missing(edge.from, edge.to, edge.distance)));
    }
  }
  return absl::OkStatus();
}

}  // namespace commsched
