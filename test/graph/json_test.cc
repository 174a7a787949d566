#include "graph/json.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "test/graph/builders.h"
#include "test/graph/random_graph.h"
#include "test/support/property.h"

namespace commsched {
namespace {

using absl::StatusCode;

// A group, a buffer and, between the brackets, `ops`; `edges` likewise.
std::string Document(const std::string& ops, const std::string& edges = "") {
  return absl::StrCat(
      R"({"format": "commsched-graph/1", "groups": [{"name": "dp", "size": 4}],)",
      R"("buffers": [{"name": "w", "dtype": "f32", "count": 16}],)",
      R"("ops": [)", ops, R"(], "edges": [)", edges, "]}");
}

TEST(GraphJsonTest, EmptyGraphIsWrittenInFull) {
  EXPECT_EQ(GraphToJson(Graph()),
            "{\n\"format\": \"commsched-graph/1\",\n\"num_ops\": 0,\n"
            "\"groups\": [],\n\"buffers\": [],\n\"ops\": [],\n"
            "\"edges\": []\n}\n");
}

TEST(GraphJsonTest, EachThingIsOneLineAndDefaultsAreLeftOut) {
  Graph graph;
  ASSERT_OK_AND_ASSIGN(const GroupId dp, graph.AddGroup("dp", 4));
  ASSERT_OK_AND_ASSIGN(const BufferId w, graph.AddBuffer(F32("w", 16)));
  ASSERT_OK(graph.AddOp(Compute("f", {Whole(w)})));
  ASSERT_OK(graph.AddOp(
      Collective("g", CollectiveKind::kAllGather, dp, Shard(w, dp), Whole(w))));
  EXPECT_EQ(GraphToJson(graph), R"({
"format": "commsched-graph/1",
"num_ops": 2,
"groups": [
{"name":"dp","size":4}
],
"buffers": [
{"name":"w","dtype":"f32","ownership":"owned","count":16}
],
"ops": [
{"name":"f","kind":"compute","accesses":[{"buffer":"w","mode":"read"}]},
{"name":"g","kind":"all_gather","group":"dp","input":{"buffer":"w","region":"shard","group":"dp"},"output":{"buffer":"w"}}
],
"edges": []
}
)");
}

TEST(GraphJsonTest, APlaceGroupIsWrittenWhereABufferHasOne) {
  Graph graph;
  Buffer buffer = F32("w", 16);
  buffer.place_group = 5;
  ASSERT_OK(graph.AddBuffer(buffer));
  const std::string text = GraphToJson(graph);
  EXPECT_THAT(text, testing::HasSubstr(
                        R"("ownership":"owned","count":16,"place_group":5})"));
  ASSERT_OK_AND_ASSIGN(const Graph read, GraphFromJson(text));
  EXPECT_EQ(read.buffers()[0].place_group, 5u);
}

TEST(GraphJsonTest, RandomGraphsComeBackEqual) {
  for (int i = 0, n = test::PropertyCases(1000); i < n; ++i) {
    const uint64_t seed = test::PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    const Graph graph = RandomGraph(seed, 14);
    const std::string text = GraphToJson(graph);
    ASSERT_OK_AND_ASSIGN(const Graph read, GraphFromJson(text));
    ASSERT_EQ(read, graph) << text;
  }
}

TEST(GraphJsonTest, ExtremeValuesComeBackEqual) {
  Graph graph;
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  Buffer huge = F32("\"quoted\" \\ \n\x01 \xE2\x88\x87", kMax);
  huge.dtype = DType::kU8;
  ASSERT_OK_AND_ASSIGN(const BufferId buffer, graph.AddBuffer(huge));
  Op op = Compute(std::string(256, 'n'), {Range(buffer, kMax - 1, 1)});
  op.priority = std::numeric_limits<int>::min();
  op.compute.cost_ns = Graph::kMaxCostNs;
  op.compute.flops = std::numeric_limits<double>::denorm_min();
  op.compute.bytes = std::numeric_limits<double>::max();
  ASSERT_OK(graph.AddOp(op));
  ASSERT_OK_AND_ASSIGN(const Graph read, GraphFromJson(GraphToJson(graph)));
  EXPECT_EQ(read, graph);
}

// The example of docs/graph_json.md, as it stands there.
std::string DocumentedExample() {
  std::ifstream file(COMMSCHED_GRAPH_JSON_DOC);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string fence = "```json\n";
  const size_t begin = page.find(fence) + fence.size();
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST(GraphJsonTest, ExampleOfTheDocumentationIsAGraph) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, GraphFromJson(DocumentedExample()));
  ASSERT_EQ(graph.ops().size(), 5u);
  EXPECT_EQ(graph.op(OpId(1)).after, std::vector<OpId>({OpId(0)}));
  EXPECT_EQ(graph.op(OpId(2)).collective.reduce_op, ReduceOp::kAvg);
  EXPECT_EQ(graph.op(OpId(3)).accesses[1].mode, AccessMode::kReadWrite);
  EXPECT_EQ(graph.op(OpId(4)).priority, 1);
  EXPECT_EQ(graph.edges()[0], (ExplicitEdge{OpId(3), OpId(0), 1}));
  EXPECT_EQ(graph.buffers()[0].ownership, Ownership::kBound);
}

TEST(GraphJsonTest, EveryPrefixIsRefused) {
  std::string text = DocumentedExample();
  text.erase(text.find_last_of('}') + 1);
  for (size_t length = 0; length < text.size(); ++length) {
    ASSERT_THAT(GraphFromJson(text.substr(0, length)),
                StatusIs(StatusCode::kInvalidArgument, "not JSON at byte "))
        << length;
  }
  EXPECT_THAT(GraphFromJson(text + "x"),
              StatusIs(StatusCode::kInvalidArgument, "not JSON at byte "));
}

struct Malformed {
  std::string text;
  StatusCode code;
  std::string message;
};

void ExpectErrors(const std::vector<Malformed>& cases) {
  for (const Malformed& c : cases) {
    EXPECT_THAT(GraphFromJson(c.text), StatusIs(c.code, c.message)) << c.text;
  }
}

TEST(GraphJsonTest, RootMustBeAGraphOfThisFormat) {
  ExpectErrors({
      {"[]", StatusCode::kInvalidArgument, "is array, not an object"},
      {"{}", StatusCode::kInvalidArgument, "format is missing"},
      {R"({"format": 1})", StatusCode::kInvalidArgument,
       "format is not a string"},
      {R"({"format": "commsched-graph/2"})", StatusCode::kInvalidArgument,
       "format 'commsched-graph/2' is not 'commsched-graph/1'"},
      {R"({"format": "commsched-graph/1", "opps": []})",
       StatusCode::kInvalidArgument, "opps is not a known field here"},
      {R"({"format": "commsched-graph/1", "ops": {}})",
       StatusCode::kInvalidArgument, "ops is not a list"},
      {R"({"format": "commsched-graph/1", "ops": [7]})",
       StatusCode::kInvalidArgument, "ops[0] is number, not an object"},
      {"\xEF\xBB\xBFnot json", StatusCode::kInvalidArgument, "not JSON"},
      {"{\"format\": \"\xFF\"}", StatusCode::kInvalidArgument, "not JSON"},
      {std::string("{\"format\": \"\0\"}", 15), StatusCode::kInvalidArgument,
       "not JSON"},
  });
}

TEST(GraphJsonTest, KeyThatIsThereTwiceIsRefused) {
  ExpectErrors({{Document(R"({"name": "a", "kind": "compute", "name": "b"})"),
                 StatusCode::kInvalidArgument,
                 "near 'ops': field 'name' appears twice"}});
}

TEST(GraphJsonTest, WrongFieldsOfOpsAreNamed) {
  const std::string a = R"({"name": "a", "kind": "compute", )";
  const auto access = [&](const std::string& fields) {
    return Document(a + R"("accesses": [{)" + fields + "}]}");
  };
  const auto bad = StatusCode::kInvalidArgument;
  ExpectErrors({
      {Document(R"({"kind": "compute"})"), bad, "ops[0].name is missing"},
      {Document(R"({"name": "a"})"), bad, "ops[0].kind is missing"},
      {Document(R"({"name": "a", "kind": "gather"})"), bad,
       "ops[0].kind: not compute, and collective 'gather' is"},
      {Document(R"({"name": "a", "kind": "marker"})"), bad,
       "ops[0].kind: not compute, and collective 'marker' is"},
      {Document(a + R"("lane": -1})"), bad, "ops[0].lane is not an integer in"},
      {Document(a + R"("lane": 1.5})"), bad, "ops[0].lane is not an integer"},
      {Document(a + R"("lane": 4294967296})"), bad, "in 0..4294967295"},
      {Document(a + R"("lane": 16})"), bad,
       "ops[0]: op 'a': lane 16 is not in 0..15"},
      {Document(a + R"("cost_ns": 9223372036854775808})"), bad,
       "ops[0].cost_ns is not an integer in 0..9223372036854775807"},
      {Document(a + R"("priority": -2147483649})"), bad,
       "ops[0].priority is not an integer in -2147483648..2147483647"},
      {Document(a + R"("flops": "1"})"), bad, "ops[0].flops is not a number"},
      {Document(a + R"("flops": 1e999})"), bad, "not JSON at byte"},
      {Document(a + R"("filler": true})"), bad,
       "ops[0].filler is not a known field here"},
      {Document(a + R"("after": "a"})"), bad, "ops[0].after is not a list"},
      {Document(a + R"("after": [0]})"), bad, "ops[0].after is not a list of"},
      {Document(a + R"("after": ["a"]})"), StatusCode::kNotFound,
       "ops[0].after: no op is called 'a'"},
      {access(R"("buffer": "w")"), bad, "ops[0].accesses[0].mode is missing"},
      {access(R"("buffer": "w", "mode": "")"), bad,
       "ops[0].accesses[0].mode '' is not one of read, write, read_write"},
      {access(R"("buffer": "x", "mode": "read")"), StatusCode::kNotFound,
       "ops[0].accesses[0].buffer: no buffer is called 'x'"},
      {access(R"("buffer": "w", "mode": "read", "region": "half")"), bad,
       "ops[0].accesses[0].region 'half' is not one of whole, range, shard"},
      {access(R"("buffer": "w", "mode": "read", "offset": 3)"), bad,
       "ops[0].accesses[0].offset is not a known field here"},
      {access(R"("buffer": "w", "mode": "read", "region": "range",)"
              R"("offset": 18446744073709551615, "count": 2)"),
       StatusCode::kOutOfRange, "ends outside buffer 'w'"},
      {access(R"("buffer": "w", "mode": "read", "region": "range",)"
              R"("offset": 18446744073709551616, "count": 2)"),
       bad, "ops[0].accesses[0].offset is not an integer in"},
      {access(R"("buffer": "w", "mode": "read", "region": "shard",)"
              R"("group": "tp")"),
       StatusCode::kNotFound, "accesses[0].group: no group is called 'tp'"},
      {access(R"("buffer": "w", "mode": "read", "region": "tile")"), bad,
       "ops[0].accesses[0].offset is missing"},
      {access(R"("buffer": "w", "mode": "read", "region": "tile",)"
              R"("offset": 0, "count": 4, "rows": 4)"),
       bad, "ops[0].accesses[0].stride is missing"},
      {access(R"("buffer": "w", "mode": "read", "region": "tile",)"
              R"("offset": 0, "count": 4, "rows": 5, "stride": 4)"),
       StatusCode::kOutOfRange, "ends outside buffer 'w'"},
      {access(R"("buffer": "w", "mode": "read", "region": "range",)"
              R"("offset": 0, "count": 4, "rows": 1)"),
       bad, "ops[0].accesses[0].rows is not a known field here"},
  });
}

TEST(GraphJsonTest, WrongFieldsOfCollectivesAreNamed) {
  const auto collective = [](const std::string& kind,
                             const std::string& fields) {
    return Document(absl::StrCat(R"({"name": "c", "kind": ")", kind,
                                 R"(", "group": "dp", )", fields, "}"));
  };
  const std::string sides =
      R"("input": {"buffer": "w"}, "output": {"buffer": "w"})";
  const auto bad = StatusCode::kInvalidArgument;
  ExpectErrors({
      {collective("all_reduce", sides), bad, "ops[0].reduce_op is missing"},
      {collective("all_reduce", R"("reduce_op": "xor", )" + sides), bad,
       "ops[0].reduce_op: reduction 'xor' is not one of"},
      {collective("all_reduce", R"("reduce_op": "premul_sum", )" + sides), bad,
       "reduction premul_sum is for channels; graphs take sum, avg"},
      {collective("broadcast", R"("reduce_op": "sum", )" + sides), bad,
       "ops[0].reduce_op is not a known field here"},
      {collective("broadcast", R"("root": 4, )" + sides),
       StatusCode::kOutOfRange, "root 4 is not in group 'dp' of 4 ranks"},
      {collective("broadcast", R"("root": -1, )" + sides),
       StatusCode::kOutOfRange, "root -1 is not in group"},
      {collective("broadcast", R"("input": {"buffer": "w"})"), bad,
       "ops[0].output is missing"},
      {collective("broadcast", R"("input": [], "output": {})"), bad,
       "ops[0].input is array, not an object"},
      {collective("broadcast",
                  R"("input": {"buffer": "w", "mode": "read"}, "output": {})"),
       bad, "ops[0].input.mode is not a known field here"},
      {collective("all_to_all", R"("counts": [-1], )" + sides), bad,
       "ops[0].counts is not a list of integers in 0.."},
      {collective("all_to_all", R"("counts": [1], )" + sides), bad,
       "has 1 counts; a group of 4 ranks needs 16"},
      {collective("send", R"("peer_offset": 1, )" + sides), bad,
       "ops[0].output is not a known field here"},
      {collective("recv", R"("input": {"buffer": "w"})"), bad,
       "ops[0].output is missing"},
      {collective("recv", R"("output": {"buffer": "w"})"), bad,
       "peer_offset 0 names the member itself in group 'dp' of 4 ranks"},
      {collective("broadcast", R"("peer_offset": 1, )" + sides), bad,
       "ops[0].peer_offset is not a known field here"},
      {collective("all_reduce", R"("reduce_op": "sum", "lossy": 1, )" + sides),
       bad, "ops[0].lossy is not true or false"},
      {collective("all_reduce",
                  R"("reduce_op": "sum", "lossy": true, )" + sides),
       bad, "cannot be lossy; ask for reduce_scatter and all_gather"},
      {collective("barrier", sides), bad,
       "ops[0].input is not a known field here"},
  });
}

TEST(GraphJsonTest, WrongGroupsBuffersAndEdgesAreNamed) {
  const std::string good = Document(R"({"name": "a", "kind": "compute"})");
  const auto with = [&](const std::string& from, const std::string& to) {
    return absl::StrReplaceAll(good, {{from, to}});
  };
  const auto edge = [&](const std::string& fields) {
    return Document(R"({"name": "a", "kind": "compute"})", "{" + fields + "}");
  };
  ASSERT_OK(GraphFromJson(good));
  const auto bad = StatusCode::kInvalidArgument;
  ExpectErrors({
      {with(R"("size": 4)", R"("size": 4097)"), bad,
       "groups[0]: group 'dp': size 4097 is not in 1..4096"},
      {with(R"("size": 4)", R"("size": -4)"), bad,
       "groups[0].size is not an integer"},
      {with(R"("f32")", R"("f8")"), bad, "buffers[0].dtype: dtype 'f8'"},
      {with(R"("f32")", R"("bool")"), bad,
       "buffers[0]: buffer 'w': dtype bool is for channels; graphs take f32"},
      {with(R"("count": 16)", R"("count": 0)"), bad,
       "buffers[0]: buffer 'w' has 0 elements"},
      {with(R"("count": 16)", R"("count": 4611686018427387904)"),
       StatusCode::kOutOfRange, "exceed 2^63-1 bytes"},
      {with(R"("count": 16)", R"("count": 16, "ownership": "mine")"), bad,
       "buffers[0].ownership 'mine' is not one of owned, bound"},
      {edge(R"("from": "a", "to": "b")"), StatusCode::kNotFound,
       "edges[0].to: no op is called 'b'"},
      {edge(R"("from": "a", "to": "a", "distance": 2)"), bad,
       "edges[0].distance is not an integer in 0..1"},
      {edge(R"("from": "a", "to": "a")"), bad,
       "edges: a cycle of 1 ops within the step: 'a' -> 'a'"},
  });
}

TEST(GraphJsonTest, NumberOfOpsMustAgreeAndIsLimited) {
  const auto document = [](const std::string& num_ops) {
    return R"({"format": "commsched-graph/1", "num_ops": )" + num_ops + "}";
  };
  EXPECT_OK(GraphFromJson(document("0")));
  ExpectErrors({
      {document("1"), StatusCode::kInvalidArgument,
       "num_ops is 1, but ops has 0 elements"},
      {document("16777217"), StatusCode::kResourceExhausted,
       "16777217 ops exceed the limit of 16777216"},
      {document("-1"), StatusCode::kInvalidArgument, "num_ops is not an int"},
      {document("1e3"), StatusCode::kInvalidArgument, "num_ops is not an int"},
  });
}

TEST(GraphJsonTest, ListOfMoreThanTwoToThe24IsRefused) {
  std::string zeros = ",0";
  while (zeros.size() < 2 * Graph::kMaxOps) zeros += zeros;
  const std::string text =
      absl::StrCat(R"({"format": "commsched-graph/1", "ops": [0)", zeros, "]}");
  EXPECT_THAT(GraphFromJson(text),
              StatusIs(StatusCode::kResourceExhausted,
                       "a list in 'ops' has more than 16777216 elements"));
}

TEST(GraphJsonTest, DeepNestingIsRefusedAtOnce) {
  for (const std::string& open : {std::string("["), std::string("{\"a\":")}) {
    std::string text;
    for (int i = 0; i < 1000000; ++i) text += open;
    EXPECT_THAT(GraphFromJson(text), StatusIs(StatusCode::kInvalidArgument,
                                              "nested more than 16 deep"));
  }
}

TEST(GraphJsonTest, MessagesStayShortHoweverLongTheText) {
  const auto read = GraphFromJson("\"" + std::string(1000000, 'x'));
  EXPECT_FALSE(read.ok());
  EXPECT_LE(read.status().message().size(), 1000u);
}

}  // namespace
}  // namespace commsched
