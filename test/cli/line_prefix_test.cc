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

TEST(LinePrefixTest, OnATerminalALineThatIsDrawnAgainIsABarAndNoLine) {
  LinePrefix prefix("> ", LinePrefix::Output::kTerminal);
  EXPECT_EQ(prefix.bar(), "");
  EXPECT_EQ(prefix.Add("\r[#..] 1/3\033[K"), "");
  EXPECT_EQ(prefix.bar(), "> [#..] 1/3");
  EXPECT_EQ(prefix.Add("\r[##.] 2"), "");
  EXPECT_EQ(prefix.bar(), "> [##.] 2");
  EXPECT_EQ(prefix.Add("/3\033[K"), "");
  EXPECT_EQ(prefix.bar(), "> [##.] 2/3");
  EXPECT_EQ(prefix.Add("\r\033[K"), "");
  EXPECT_EQ(prefix.bar(), "");
  EXPECT_EQ(prefix.End(), "");
}

TEST(LinePrefixTest, OnATerminalABarThatIsEndedIsALine) {
  LinePrefix prefix("> ", LinePrefix::Output::kTerminal);
  EXPECT_EQ(prefix.Add("50 %\r"), "");
  EXPECT_EQ(prefix.bar(), "> 50 %");
  EXPECT_EQ(prefix.Add("100 %\033[K\nnext"), "> 100 %\n");
  EXPECT_EQ(prefix.bar(), "");
  EXPECT_EQ(prefix.Add("\r\n"), "> next\n");
  EXPECT_EQ(prefix.bar(), "");
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
