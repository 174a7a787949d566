#include "cli/line_prefix.h"

#include <string>

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

TEST(LinePrefixTest, LinesArePassedOnWhenTheyAreWhole) {
  LinePrefix prefix("[3] ");
  EXPECT_EQ(prefix.Add("one\ntw"), "[3] one\n");
  EXPECT_EQ(prefix.Add("o\n\nth"), "[3] two\n[3] \n");
  EXPECT_EQ(prefix.Add(""), "");
  EXPECT_EQ(prefix.End(), "[3] th\n");
  EXPECT_EQ(prefix.End(), "");
}

TEST(LinePrefixTest, ACarriageReturnEndsALineThatIsNotEmpty) {
  LinePrefix prefix("> ");
  EXPECT_EQ(prefix.Add("\rstep 1\rstep 2\r\n"), "> step 1\n> step 2\n> \n");
}

TEST(LinePrefixTest, ALineWithoutAnEndDoesNotGrowForEver) {
  LinePrefix prefix("");
  const auto line_of = [](size_t bytes) {
    std::string line(bytes, 'x');
    line.push_back('\n');
    return line;
  };
  const std::string bytes(3 * LinePrefix::kMaxLineBytes / 2, 'x');
  EXPECT_EQ(prefix.Add(bytes), line_of(LinePrefix::kMaxLineBytes));
  EXPECT_EQ(prefix.End(), line_of(LinePrefix::kMaxLineBytes / 2));
}

}  // namespace
}  // namespace commsched::cli
