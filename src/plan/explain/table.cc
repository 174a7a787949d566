#include "plan/explain/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace commsched {
namespace {

constexpr absl::string_view kExposedCauses[] = {"-",     "cap",  "dependency",
                                                "order", "link", "straggler"};

}  // namespace

std::string Table(const std::vector<Row>& rows) {
  std::vector<size_t> width;
  for (const Row& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) {
      width[c] = std::max(width[c], row[c].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      absl::StrAppend(&line, " ", row[c]);
      if (c + 1 < row.size()) line.append(width[c] - row[c].size() + 1, ' ');
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string Micros(int64_t ns) {
  return absl::StrFormat("%.1f us", static_cast<double>(ns) / 1e3);
}

std::string BlameText(const Blame& blame) {
  const std::pair<absl::string_view, int64_t> parts[] = {
      {"cap", blame.cap_ns},
      {"dependency", blame.dependency_ns},
      {"order", blame.order_ns},
      {"link", blame.link_ns},
      {"straggler", blame.straggler_ns}};
  std::string text;
  for (const auto& [name, ns] : parts) {
    if (ns == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", Micros(ns));
  }
  return text;
}

Json BlameJson(const Blame& blame) {
  return {{"cap_ns", blame.cap_ns},
          {"dependency_ns", blame.dependency_ns},
          {"order_ns", blame.order_ns},
          {"link_ns", blame.link_ns},
          {"straggler_ns", blame.straggler_ns}};
}

absl::string_view CauseName(ExposedCause cause) {
  return kExposedCauses[static_cast<size_t>(cause)];
}

std::string MemberNames(const Plan& plan, const Launch& launch) {
  std::string names =
      absl::StrJoin(launch.members, "+", [&](std::string* out, OpId op) {
        absl::StrAppend(out, plan.graph->op(op).name);
      });
  if (launch.piece.of > 1) {
    absl::StrAppend(&names, "[", launch.piece.index + 1, "/", launch.piece.of,
                    "]");
  }
  return names;
}

Json MembersJson(const Plan& plan, const Launch& launch) {
  Json members = Json::array();
  for (OpId op : launch.members) members.push_back(plan.graph->op(op).name);
  return members;
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace commsched
