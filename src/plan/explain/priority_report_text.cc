#include "plan/explain/priority_report_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/explain/table.h"

namespace commsched {
namespace {

using Choice = PriorityReport::Choice;

}  // namespace

absl::string_view ChoiceName(Choice choice) {
  switch (choice) {
    case Choice::kNotAsked:
      return "off";
    case Choice::kNoChoice:
      return "no_choice";
    case Choice::kReady:
      return "as_ready";
    case Choice::kNeed:
      return "by_need";
    case Choice::kPolicy:
      return "policy";
  }
  return "";
}

PriorityReport Bounded(PriorityReport report, int64_t bound_ns) {
  if (report.as_ready_ns == 0) return report;
  for (int64_t* ns : {&report.as_ready_ns, &report.chosen_ns, &report.bound_ns,
                      &report.by_need_ns}) {
    if (ns == &report.by_need_ns && !report.by_need_tried) continue;
    *ns = std::max(*ns, bound_ns);
  }
  return report;
}

std::string PriorityText(const PriorityReport& report) {
  std::string text(ChoiceName(report.choice));
  std::replace(text.begin(), text.end(), '_', ' ');
  if (report.as_ready_ns == 0) return text;
  absl::StrAppend(&text, ": predicted step ", Micros(report.chosen_ns),
                  ", as ready ", Micros(report.as_ready_ns));
  if (report.by_need_tried) {
    absl::StrAppend(&text, ", by need ", Micros(report.by_need_ns));
  }
  const int64_t most =
      std::max<int64_t>(0, report.as_ready_ns - report.bound_ns);
  absl::StrAppend(&text, "; no order is below ", Micros(report.bound_ns),
                  ", so priority could gain at most ", Micros(most),
                  absl::StrFormat(" (%.1f %%)",
                                  100.0 * static_cast<double>(most) /
                                      static_cast<double>(report.as_ready_ns)));
  return text;
}

}  // namespace commsched
