#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/env.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

// Returns 1 if the text of `variable` is accepted.
size_t CheckVariable(const Env& env, const EnvVariable& variable) {
  const std::string text = env.TextOf(variable);
  if (variable.type == EnvVariable::Type::kText) {
    Require(env.GetText(variable.name).value() == text);
    Require(env.Get(variable.name).status().code() ==
            absl::StatusCode::kInternal);
    return 0;
  }
  Require(!env.GetText(variable.name).ok());
  const auto value = env.Get(variable.name);
  if (!value.ok()) {
    Require(value.status().code() == absl::StatusCode::kInvalidArgument);
    Require(absl::StrContains(value.status().message(), variable.name));
    return 0;
  }
  if (variable.type == EnvVariable::Type::kInt) {
    Require(*value >= variable.min && *value <= variable.max);
  } else {
    const std::vector<std::string> choices =
        absl::StrSplit(variable.choices, '|');
    Require(*value >= 0 && *value < static_cast<int64_t>(choices.size()));
    Require(choices[*value] == text);
  }
  return 1;
}

}  // namespace

size_t FuzzEnvironment(const uint8_t* data, size_t size) {
  Source source(data, size);
  std::vector<EnvVariable> table(EnvTable().begin(), EnvTable().end());
  table.push_back({.name = "COMMSCHED_TEST_NUMBER",
                   .type = EnvVariable::Type::kInt,
                   .min = source.Take<int8_t>(),
                   .max = source.Take<int64_t>(),
                   .choices = nullptr,
                   .default_text = "0",
                   .doc = ""});
  // As from the environment: to the first zero byte, or not set.
  std::map<std::string, std::string> texts;
  for (const EnvVariable& variable : table) {
    if (source.Take<uint8_t>() % 8 == 7) continue;
    texts[variable.name] = source.TakeText().c_str();
  }
  const Env env(table, [&texts](const char* name) -> const char* {
    const auto found = texts.find(name);
    return found == texts.end() ? nullptr : found->second.c_str();
  });
  size_t accepted = 0;
  for (const EnvVariable& variable : table) {
    accepted += CheckVariable(env, variable);
  }
  Require(env.Get("COMMSCHED_ABSENT").status().code() ==
          absl::StatusCode::kInternal);
  return accepted;
}

}  // namespace commsched::test
