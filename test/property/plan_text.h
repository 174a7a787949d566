// Plans of a job in words, for the report of a failing case.
#ifndef COMMSCHED_TEST_PROPERTY_PLAN_TEXT_H_
#define COMMSCHED_TEST_PROPERTY_PLAN_TEXT_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "plan/plan.h"

namespace commsched::test {

// The roles' graphs and plans, for who looks into a failure.
std::string PlansText(absl::Span<const std::shared_ptr<const Plan>> plans);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_PROPERTY_PLAN_TEXT_H_
