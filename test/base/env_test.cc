#include "base/env.h"

#include <map>
#include <string>

#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr EnvVariable kTable[] = {
    {.name = "COMMSCHED_COLOUR",
     .type = EnvVariable::Type::kChoice,
     .min = 0,
     .max = 0,
     .choices = "red|green",
     .default_text = "green",
     .doc = ""},
    {.name = "COMMSCHED_DEPTH",
     .type = EnvVariable::Type::kInt,
     .min = -2,
     .max = 64,
     .choices = nullptr,
     .default_text = "8",
     .doc = ""},
};

absl::StatusOr<int64_t> GetFrom(
    const std::map<std::string, std::string>& variables,
    absl::string_view name) {
  const Env env(kTable, [&](const char* key) -> const char* {
    const auto it = variables.find(key);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
  return env.Get(name);
}

TEST(EnvTest, UnsetOrEmptyMeansTheDefault) {
  EXPECT_EQ(GetFrom({}, "COMMSCHED_DEPTH").value(), 8);
  EXPECT_EQ(GetFrom({{"COMMSCHED_DEPTH", ""}}, "COMMSCHED_DEPTH").value(), 8);
  EXPECT_EQ(GetFrom({}, "COMMSCHED_COLOUR").value(), 1);
}

TEST(EnvTest, BothEndsOfTheRangeAreAllowed) {
  EXPECT_EQ(GetFrom({{"COMMSCHED_DEPTH", "-2"}}, "COMMSCHED_DEPTH").value(),
            -2);
  EXPECT_EQ(GetFrom({{"COMMSCHED_DEPTH", "64"}}, "COMMSCHED_DEPTH").value(),
            64);
}

TEST(EnvTest, OutOfRangeNamesVariableValueAndRange) {
  EXPECT_THAT(GetFrom({{"COMMSCHED_DEPTH", "65"}}, "COMMSCHED_DEPTH"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "COMMSCHED_DEPTH is '65', not an integer in -2..64"));
}

TEST(EnvTest, TextThatIsNoNumberIsRefused) {
  for (const char* text : {"8x", "eight", "99999999999999999999", "1.5"}) {
    EXPECT_THAT(GetFrom({{"COMMSCHED_DEPTH", text}}, "COMMSCHED_DEPTH"),
                StatusIs(absl::StatusCode::kInvalidArgument, text));
  }
}

TEST(EnvTest, ChoiceIsItsIndexAndAnythingElseIsRefused) {
  EXPECT_EQ(GetFrom({{"COMMSCHED_COLOUR", "red"}}, "COMMSCHED_COLOUR").value(),
            0);
  EXPECT_THAT(GetFrom({{"COMMSCHED_COLOUR", "blue"}}, "COMMSCHED_COLOUR"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "COMMSCHED_COLOUR is 'blue', not one of red|green"));
}

TEST(EnvTest, AskingForAVariableOutsideTheTableIsOurError) {
  EXPECT_THAT(GetFrom({}, "COMMSCHED_HEIGHT"),
              StatusIs(absl::StatusCode::kInternal, "COMMSCHED_HEIGHT"));
}

TEST(EnvTest, EveryVariableOfTheLibraryHasAValidDefaultAndADoc) {
  const Env unset(EnvTable(), [](const char*) { return nullptr; });
  for (const EnvVariable& variable : EnvTable()) {
    if (variable.type == EnvVariable::Type::kText) {
      EXPECT_OK(unset.GetText(variable.name)) << variable.name;
    } else {
      EXPECT_OK(unset.Get(variable.name)) << variable.name;
    }
    EXPECT_NE(std::string(variable.doc), "") << variable.name;
    EXPECT_EQ(std::string(variable.name).rfind("COMMSCHED_", 0), 0u);
  }
}

}  // namespace
}  // namespace commsched
