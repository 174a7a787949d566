#include "plan/identity/fingerprint.h"

#include "plan/identity/canonical_bytes.h"
#include "plan/identity/canonical_plan.h"
#include "plan/identity/canonical_text.h"

namespace commsched {

Fingerprint FingerprintOf(const Plan& plan) {
  CanonicalBytes out;
  out.Text("", "commsched-plan/4");
  VisitPlan(plan, &out);
  return out.Hash();
}

std::vector<std::string> CanonicalLines(const Plan& plan) {
  CanonicalText out;
  VisitPlan(plan, &out);
  return out.TakeLines();
}

}  // namespace commsched
