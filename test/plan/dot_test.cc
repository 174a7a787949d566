#include "plan/explain/dot.h"

#include <cctype>
#include <cstddef>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Reads the part of Graphviz's language that plans are written in:
//   graph     = "digraph" name block
//   block     = "{" { statement } "}"
//   statement = "subgraph" name block
//             | name "=" value ";"
//             | name { "->" name } [ "[" attributes "]" ] ";"
class DotReader {
 public:
  explicit DotReader(std::string text) : text_(std::move(text)) { Next(); }

  // Whether all of the text is one graph.
  bool Read() { return Take("digraph") && Name() && Block() && token_.empty(); }
  const std::set<std::string>& declared() const { return declared_; }
  const std::set<std::string>& used() const { return used_; }
  size_t num_edges() const { return num_edges_; }
  std::string rest() const { return token_ + text_.substr(at_).substr(0, 60); }

 private:
  bool Block() {
    if (!Take("{")) return false;
    while (token_ != "}") {
      if (!Statement()) return false;
    }
    return Take("}");
  }
  bool Statement() {
    if (Take("subgraph")) return Name() && Block();
    const std::string first = token_;
    if (!Name()) return false;
    if (Take("=")) return Value() && Take(";");
    bool edge = false;
    while (Take("->")) {
      edge = true;
      used_.insert(first);
      used_.insert(token_);
      ++num_edges_;
      if (!Name()) return false;
    }
    if (!edge && first != "node" && first != "edge") declared_.insert(first);
    return (token_ != "[" || Attributes()) && Take(";");
  }
  bool Attributes() {
    if (!Take("[")) return false;
    while (token_ != "]") {
      if (!Name() || !Take("=") || !Value()) return false;
      Take(",");
    }
    return Take("]");
  }
  bool Name() {
    const bool name = !token_.empty() && std::isalpha(token_[0]) != 0;
    if (name) Next();
    return name;
  }
  bool Value() {
    const bool value =
        !token_.empty() && (token_[0] == '"' || std::isalnum(token_[0]) != 0);
    if (value) Next();
    return value;
  }
  bool Take(const std::string& token) {
    if (token_ != token) return false;
    Next();
    return true;
  }
  // A word, a quoted string, "->" or one character; empty at the end.
  void Next() {
    while (at_ < text_.size() && std::isspace(text_[at_]) != 0) ++at_;
    const size_t begin = at_;
    if (at_ == text_.size()) {
    } else if (text_[at_] == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] == '\\') ++at_;
        if (at_ < text_.size() && text_[at_] == '\n') return Fail();
      }
      if (at_ >= text_.size()) return Fail();
      ++at_;
    } else if (text_.compare(at_, 2, "->") == 0) {
      at_ += 2;
    } else if (IsWord(text_[at_])) {
      while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    } else {
      ++at_;
    }
    token_ = text_.substr(begin, at_ - begin);
  }
  void Fail() {
    token_ = "unclosed";
    at_ = text_.size();
  }
  static bool IsWord(char c) { return std::isalnum(c) != 0 || c == '_'; }

  const std::string text_;
  size_t at_ = 0;
  std::string token_;
  std::set<std::string> declared_, used_;
  size_t num_edges_ = 0;
};

std::string Dot() {
  PlanOptions options;
  options.coalesce_bytes = 40000;
  options.max_launches_in_flight = 1;
  return ExplainDot(*test::MakePlan(test::ZeroStep(), options));
}

TEST(DotReaderTest, RefusesWhatIsNoGraph) {
  EXPECT_TRUE(DotReader("digraph g { a -> b [x=\"1\"]; }").Read());
  EXPECT_FALSE(DotReader("digraph g { a -> ; }").Read());
  EXPECT_FALSE(DotReader("digraph g { a [x=\"1]; }").Read());
  EXPECT_FALSE(DotReader("digraph g { a b; }").Read());
  EXPECT_FALSE(DotReader("digraph g { a; ").Read());
}

TEST(DotTest, IsAGraphOfDeclaredNodes) {
  const auto plan = test::MakePlan(test::ZeroStep());
  DotReader reader(ExplainDot(*plan));
  ASSERT_TRUE(reader.Read()) << reader.rest();
  EXPECT_EQ(reader.declared().size(),
            plan->nodes.size() + plan->launches.size());
  for (const std::string& name : reader.used()) {
    EXPECT_THAT(reader.declared(), Contains(name));
  }
  size_t waits = 0;
  for (const ComputeNode& node : plan->nodes) waits += node.waits.size();
  for (const Launch& launch : plan->launches) waits += launch.waits.size();
  EXPECT_GE(reader.num_edges(), waits);
}

TEST(DotTest, ShowsLanesMembersReasonsAndCauses) {
  const std::string dot = Dot();
  EXPECT_THAT(dot, HasSubstr("label=\"compute lane 0\""));
  EXPECT_THAT(dot, HasSubstr("label=\"communication lane 0\""));
  EXPECT_THAT(dot, HasSubstr("|rs.3|rs.2|"));
  EXPECT_THAT(dot, HasSubstr("ends: "));
  EXPECT_THAT(dot, HasSubstr("label=\"window\""));
  EXPECT_THAT(dot, HasSubstr("style=dashed"));
}

TEST(DotTest, NamesOfAnyKindStayInsideTheirLabels) {
  test::GraphBuilder b;
  const BufferId x = b.Buffer("x", 64);
  b.Compute("say \"{hi|<you>}\"\\", {test::Write(x)});
  b.AllReduce("a\nb|c", b.Group("g\"", 2), x);
  DotReader reader(ExplainDot(*test::MakePlan(b.graph())));
  ASSERT_TRUE(reader.Read()) << reader.rest();
  EXPECT_EQ(reader.declared().size(), 2u);
}

}  // namespace
}  // namespace commsched
