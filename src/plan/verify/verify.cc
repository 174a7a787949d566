#include "plan/verify/verify.h"

#include "base/status_macros.h"
#include "plan/verify/verify_parts.h"

namespace commsched {

absl::Status VerifyPlan(const Plan& plan) {
  RETURN_IF_ERROR(VerifyPieces(plan));
  ASSIGN_OR_RETURN(const Witness witness, VerifyProgress(plan));
  HappensBefore order(plan, witness);
  RETURN_IF_ERROR(VerifyHazards(plan, witness, &order));
  RETURN_IF_ERROR(VerifyArena(plan, witness, &order));
  return VerifyCaps(plan, witness, order);
}

}  // namespace commsched
