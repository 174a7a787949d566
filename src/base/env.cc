#include "base/env.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace commsched {
namespace {

// Sorted by name.
constexpr EnvVariable kTable[] = {
    {.name = "COMMSCHED_LOG",
     .type = EnvVariable::Type::kChoice,
     .min = 0,
     .max = 0,
     .choices = "debug|info|warning|error|off",
     .default_text = "warning",
     .doc = "The least severe line that is logged."},
    {.name = "COMMSCHED_PLUGIN_PATH",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "Folders with plugins, separated by colons; searched first."},
};

absl::StatusOr<int64_t> ParseInt(const EnvVariable& variable,
                                 absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < variable.min ||
      value > variable.max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "environment variable ", variable.name, " is '", text,
        "', not an integer in ", variable.min, "..", variable.max));
  }
  return value;
}

absl::StatusOr<int64_t> ParseChoice(const EnvVariable& variable,
                                    absl::string_view text) {
  const std::vector<absl::string_view> choices =
      absl::StrSplit(variable.choices, '|');
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == text) return static_cast<int64_t>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable ", variable.name, " is '", text,
                   "', not one of ", variable.choices));
}

}  // namespace

absl::Span<const EnvVariable> EnvTable() { return kTable; }

Env::Env(absl::Span<const EnvVariable> table, Lookup lookup)
    : table_(table), lookup_(std::move(lookup)) {}

const Env& Env::Process() {
  // The library never changes the environment, so reading it is safe.
  static const Env* const env =
      new Env(EnvTable(), [](const char* name) -> const char* {
        return getenv(name);  // NOLINT(concurrency-mt-unsafe)
      });
  return *env;
}

absl::StatusOr<int64_t> Env::Get(absl::string_view name) const {
  for (const EnvVariable& variable : table_) {
    if (variable.name != name) continue;
    const std::string text = TextOf(variable);
    switch (variable.type) {
      case EnvVariable::Type::kInt:
        return ParseInt(variable, text);
      case EnvVariable::Type::kChoice:
        return ParseChoice(variable, text);
      case EnvVariable::Type::kText:
        return absl::InternalError(absl::StrCat("environment variable ", name,
                                                " is declared as text"));
    }
  }
  return absl::InternalError(
      absl::StrCat("environment variable ", name, " is not in the table"));
}

absl::StatusOr<std::string> Env::GetText(absl::string_view name) const {
  for (const EnvVariable& variable : table_) {
    if (variable.name == name && variable.type == EnvVariable::Type::kText) {
      return TextOf(variable);
    }
  }
  return absl::InternalError(
      absl::StrCat("environment variable ", name, " is not declared as text"));
}

std::string Env::TextOf(const EnvVariable& variable) const {
  const char* text = lookup_(variable.name);
  return text == nullptr || *text == '\0' ? variable.default_text : text;
}

}  // namespace commsched
