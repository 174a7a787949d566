// How explain and describe lay out what they say.
#ifndef COMMSCHED_SRC_PLAN_EXPLAIN_TABLE_H_
#define COMMSCHED_SRC_PLAN_EXPLAIN_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/blame.h"
#include "nlohmann/json.hpp"
#include "plan/plan.h"
#include "plan/predict/predict.h"

namespace commsched {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

// Columns padded to their widest cell, two blanks between them.
std::string Table(const std::vector<Row>& rows);

// "12.3 us": three digits or so are what a prediction is worth.
std::string Micros(int64_t ns);

// "dependency 4.0 us, link 1.2 us": the parts that are not 0; empty: none.
std::string BlameText(const Blame& blame);
Json BlameJson(const Blame& blame);

absl::string_view CauseName(ExposedCause cause);  // "-" for none

// "rs.3+rs.2", "ar.7[1/4]" for a piece.
std::string MemberNames(const Plan& plan, const Launch& launch);
Json MembersJson(const Plan& plan, const Launch& launch);

// Text of a document, with a newline.
std::string Dump(const Json& json);

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_EXPLAIN_TABLE_H_
