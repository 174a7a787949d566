#ifndef COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_TEXT_H_
#define COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_TEXT_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/identity/canonical_plan.h"

namespace commsched {

// The sink (plan/canonical_plan.h) that prints: two plans that differ in a
// field have different lines, as names are quoted and what is left out is
// always the same value.
class CanonicalText {
 public:
  void Line(CanonicalLine line, uint32_t index) {
    lines_.push_back(Opening(line, index));
  }
  template <typename Value>
  void Number(const char* label, Value value) {
    absl::StrAppend(&lines_.back(), label, value);
  }
  template <typename Value>
  void Number(const char* label, Value value,
              std::type_identity_t<Value> hidden) {
    if (value != hidden) Number(label, value);
  }
  void Number(const char* label, bool value) { Number(label, value ? 1 : 0); }
  void Flag(const char* label, bool value) {
    if (value) absl::StrAppend(&lines_.back(), label);
  }
  template <typename Value, typename NameOf>
  void Enum(const char* label, Value value, NameOf name_of) {
    absl::StrAppend(&lines_.back(), label, name_of(value));
  }
  void Text(const char* label, absl::string_view text) {
    absl::StrAppend(&lines_.back(), label, "'", absl::Utf8SafeCEscape(text),
                    "'");
  }
  template <typename Id>
  void Ref(const char* label, Id, absl::string_view name) {
    Text(label, name);
  }
  template <typename Item, typename Visit>
  void List(const char* label, absl::Span<const Item> items, Visit visit) {
    if (items.empty()) return;
    const char* separator = "[";
    absl::StrAppend(&lines_.back(), label);
    for (const Item& item : items) {
      absl::StrAppend(&lines_.back(), std::exchange(separator, ", "));
      visit(item);
    }
    Close("]");
  }
  void Shared(const SharedLines& shared) {
    lines_.insert(lines_.end(), shared.lines.begin(), shared.lines.end());
  }
  void Close(const char* text) { absl::StrAppend(&lines_.back(), text); }

  std::vector<std::string> TakeLines() { return std::move(lines_); }

 private:
  static std::string Opening(CanonicalLine line, uint32_t index) {
    switch (line) {
      case CanonicalLine::kOptions:
        return "options";
      case CanonicalLine::kRole:
        return "role";
      case CanonicalLine::kGroup:
        return "group";  // its number may be another one in each role
      case CanonicalLine::kBuffer:
        return absl::StrCat("buffer ", index);
      case CanonicalLine::kOp:
        return absl::StrCat("op ", index);
      case CanonicalLine::kLaunch:
        return absl::StrCat("launch ", index);
      case CanonicalLine::kMember:
        return absl::StrCat("collective #", index);
      case CanonicalLine::kPlace:
        return "place";
      case CanonicalLine::kArena:
        return "arena";
      case CanonicalLine::kGroupLaunch:
        return "";
    }
    return "";
  }

  std::vector<std::string> lines_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_TEXT_H_
