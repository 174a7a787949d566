#include "plan/explain/merge_report_text.h"

#include "absl/strings/str_cat.h"
#include "plan/explain/table.h"

namespace commsched {

absl::string_view ChoiceName(MergeReport::Choice choice) {
  switch (choice) {
    case MergeReport::Choice::kNotAsked:
      return "off";
    case MergeReport::Choice::kNothing:
      return "nothing";
    case MergeReport::Choice::kApart:
      return "apart";
    case MergeReport::Choice::kNoRoom:
      return "no_room";
    case MergeReport::Choice::kMerged:
      return "merged";
  }
  return "";
}

std::string MergeText(const MergeReport& report) {
  std::string text;
  switch (report.choice) {
    case MergeReport::Choice::kNotAsked:
      return "off";
    case MergeReport::Choice::kNothing:
      text = "no launches are worth it";
      break;
    case MergeReport::Choice::kApart:
      text = "none, as the step would be longer";
      break;
    case MergeReport::Choice::kNoRoom:
      return "none by cost, as the arena is too small";
    case MergeReport::Choice::kMerged:
      text = "by cost";
      break;
  }
  if (report.apart_ns == 0) return text;
  absl::StrAppend(&text, ": predicted step ");
  if (report.merged_ns != 0) {
    absl::StrAppend(&text, "merged ", Micros(report.merged_ns), ", ");
  }
  return absl::StrCat(text, "apart ", Micros(report.apart_ns));
}

}  // namespace commsched
