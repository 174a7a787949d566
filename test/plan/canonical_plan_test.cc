// Whatever changes a fingerprint changes a line: every field, one by one. Which
// fields there are is asked of the visitor, so that a new one without a change
// here fails the test.
#include "plan/identity/canonical_plan.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/identity/canonical_bytes.h"
#include "plan/identity/canonical_text.h"
#include "plan/identity/fingerprint.h"
#include "test/plan/plan_test_support.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::MakePlan;
using test::Range;
using test::Read;
using test::Shard;
using test::Tile;
using test::Write;
using ::testing::Contains;
using ::testing::HasSubstr;

// A sink that lists the fields: where each is, and what it holds.
class FieldList {
 public:
  struct Field {
    std::string name;
    std::string value;
  };

  void Line(CanonicalLine line, uint32_t) {
    line_ = absl::StrCat(static_cast<int>(line), ":");
    Add("(line)", "");
  }
  template <typename Value>
  void Number(const char* label, Value value) {
    Add(label, absl::StrCat(value));
  }
  template <typename Value, typename Hidden>
  void Number(const char* label, Value value, Hidden) {
    Number(label, value);
  }
  void Flag(const char* label, bool value) { Number(label, value); }
  template <typename Value, typename NameOf>
  void Enum(const char* label, Value value, NameOf) {
    Number(label, static_cast<int>(value));
  }
  void Text(const char* label, absl::string_view text) {
    Add(label, std::string(text.data(), text.size()));
  }
  template <typename Id>
  void Ref(const char* label, Id id, absl::string_view) {
    Number(label, id.value());
  }
  template <typename Item, typename Visit>
  void List(const char* label, absl::Span<const Item> items, Visit visit) {
    Number(label, items.size());
    const std::string outer = line_;
    line_ = absl::StrCat(line_, label, ":");
    for (const Item& item : items) visit(item);
    line_ = outer;
  }
  void Shared(const SharedLines& shared) {
    line_ = "shared";
    for (const std::string& line : shared.lines) Add("", line);
  }
  void Close(const char*) {}

  const std::vector<Field>& fields() const { return fields_; }

 private:
  void Add(absl::string_view label, std::string value) {
    fields_.push_back({absl::StrCat(line_, label), std::move(value)});
  }

  std::string line_;
  std::vector<Field> fields_;
};

std::vector<FieldList::Field> FieldsOf(const Plan& plan) {
  FieldList list;
  VisitPlan(plan, &list);
  return list.fields();
}

std::set<std::string> NamesOf(const Plan& plan) {
  std::set<std::string> names;
  for (const FieldList::Field& field : FieldsOf(plan)) names.insert(field.name);
  return names;
}

// What cannot differ first: which lines there are follows from fields of lines
// before, and the number of accesses of a collective from its kind.
bool FollowsFromOthers(const std::string& name) {
  return name.find("(line)") != std::string::npos ||
         name == absl::StrCat(static_cast<int>(CanonicalLine::kOptions),
                              ": gone ") ||
         name == absl::StrCat(static_cast<int>(CanonicalLine::kMember),
                              ": accesses ");
}

// The first field in which two plans differ; empty if there is none.
std::string FirstDifference(const Plan& a, const Plan& b) {
  const auto x = FieldsOf(a);
  const auto y = FieldsOf(b);
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (x[i].name != y[i].name || x[i].value != y[i].value) return x[i].name;
  }
  return x.size() == y.size() ? "" : "the end";
}

// A graph with all that a canonical plan tells of one.
struct GraphSpec {
  std::string group = "dp";
  int group_size = 2;
  std::string buffer = "x";
  DType dtype = DType::kF32;
  uint64_t count = 64;
  Ownership ownership = Ownership::kOwned;
  uint32_t place_group = 0;
  std::string op = "make";
  AccessMode mode = AccessMode::kWrite;
  bool one_more = false;  // an access of a compute op, and of a collective
  bool other_buffer = false;
  bool other_group = false;
  Region range = Range(0, 16);
  Region tile = Tile(0, 4, 4, 16);
  std::string sum = "sum";
  CollectiveKind kind = CollectiveKind::kAllGather;
  std::vector<uint64_t> counts = {4, 4, 4, 4};
  int peer = 1;
  bool lossy = false;
  bool cast_other = false;
  Region cast = {};
};

Graph Make(const GraphSpec& spec) {
  GraphBuilder b;
  const GroupId dp = b.Group(spec.group, spec.group_size);
  const GroupId tp = b.Group("tp", 2);
  const BufferId x = b.Buffer({.name = spec.buffer,
                               .dtype = spec.dtype,
                               .ownership = spec.ownership,
                               .count = spec.count,
                               .place_group = spec.place_group});
  const BufferId y = b.Buffer("y", 64);
  const BufferId z = b.Buffer("z", 64);
  std::vector<Access> accesses = {
      {.buffer = x, .mode = spec.mode, .region = {}},
      Read(y, spec.range),
      Read(spec.other_buffer ? y : z, Shard(spec.other_group ? tp : dp)),
      Read(z, spec.tile)};
  if (spec.one_more) accesses.push_back(Read(y));
  b.Compute(spec.op, accesses);
  b.Collective(spec.sum,
               test::Spec(CollectiveKind::kAllReduce, dp, Read(x), Write(x)));
  const BufferId casted = spec.cast_other ? z : y;
  b.Collective("cast",
               test::Spec(CollectiveKind::kBroadcast, dp,
                          Read(casted, spec.cast), Write(casted, spec.cast)));
  CollectiveSpec swap =
      test::Spec(CollectiveKind::kAllToAll, tp, Read(y), Write(z));
  swap.counts = spec.counts;
  b.Collective("swap", swap);
  CollectiveSpec gather = test::Spec(
      spec.kind, tp,
      spec.kind == CollectiveKind::kAllGather ? Read(y, Shard(tp)) : Read(y),
      Write(y));
  gather.lossy = spec.lossy;
  b.Collective("gather", gather);
  CollectiveSpec send;
  send.kind = CollectiveKind::kSend;
  send.group = tp;
  send.peer_offset = spec.peer;
  send.input = Read(y);
  b.Collective("out", send);
  CollectiveSpec receive;
  receive.kind = CollectiveKind::kRecv;
  receive.group = tp;
  receive.peer_offset = 1;
  receive.output = Write(z);
  b.Collective("in", receive);
  b.Compute("use", {Read(x), Read(y), Read(z)});
  return b.graph();
}

// What no planning of so small a graph brings about is set by hand.
Plan BasePlan() {
  Plan plan = *MakePlan(Make({}));
  plan.due_after.back() = static_cast<uint32_t>(plan.nodes.size());
  Launch& first = plan.launches[0];
  EXPECT_EQ(first.kind, CollectiveKind::kAllReduce);
  first.way = Way::kPack;
  first.piece = {.index = 1, .of = 3, .offset = 5, .count = 7};
  first.waits.push_back({{NodeRef::Kind::kLaunch, 2}, 1, WaitCause::kArena});
  first.producers.push_back(OpId(0));
  ComputeNode& node = plan.nodes[1];
  node.after.push_back(OpId(0));
  node.needs.push_back(LaunchId(0));
  node.waits.push_back({{NodeRef::Kind::kOp, 0}, 0, WaitCause::kHazard});
  node.waits.push_back({{NodeRef::Kind::kLaunch, 1}, 1, WaitCause::kWindow});
  return plan;
}

size_t LaunchOf(const Plan& plan, CollectiveKind kind) {
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    if (plan.launches[k].kind == kind) return k;
  }
  ADD_FAILURE() << CollectiveKindName(kind);
  return 0;
}

using Change = std::function<void(Plan*)>;

// Another graph under the same plan.
Change OfGraph(const std::function<void(GraphSpec*)>& change) {
  GraphSpec spec;
  change(&spec);
  return [graph = std::make_shared<const Graph>(Make(spec))](Plan* plan) {
    plan->graph = graph;
  };
}

std::vector<Change> ChangesOfOptions() {
  return {
      [](Plan* p) { p->options.schedule = Schedule::kSerial; },
      [](Plan* p) { p->options.deterministic = true; },
      [](Plan* p) { p->options.max_launches_in_flight = 9; },
      [](Plan* p) { p->options.max_bytes_in_flight = 9; },
      [](Plan* p) { p->options.num_comm_lanes = 9; },
      [](Plan* p) { p->options.coalesce_bytes = 9; },
      [](Plan* p) { p->options.arena_bytes = 9; },
      [](Plan* p) { p->options.priority = Priority::kOn; },
      [](Plan* p) { p->options.partition_bytes = 9; },
      [](Plan* p) { p->options.codec.name = "int8"; },
      [](Plan* p) { p->options.codec.block_elements = 9; },
      [](Plan* p) { p->options.codec.block_bytes = 9; },
      [](Plan* p) { p->options.codec.dtypes = 9; },
      [](Plan* p) { p->options.backend.lists = false; },
      [](Plan* p) { p->options.backend.deterministic = false; },
      [](Plan* p) { p->options.backend.strided = false; },
      [](Plan* p) { p->options.backend.point_to_point = false; },
      [](Plan* p) { p->options.backend.kinds = 9; },
      [](Plan* p) { p->options.backend.dtypes = 9; },
      [](Plan* p) { p->options.backend.reductions = 9; },
      [](Plan* p) { p->role = 1; },
      [](Plan* p) { p->num_roles = 2; },
      [](Plan* p) { p->arena_bytes += 256; },
      [](Plan* p) { p->placements[0].buffer = BufferId(1); },
      [](Plan* p) { p->placements[0].offset += 256; },
      [](Plan* p) { p->placements[0].bytes += 256; },
      [](Plan* p) { p->placements.clear(); },
      [](Plan* p) {
        auto other = std::make_shared<SharedLines>(*p->group_sends.back());
        other->lines.back() += "0";
        other->hash[0] ^= 1;
        p->group_sends.back() = other;
      },
  };
}

std::vector<Change> ChangesOfGraph() {
  return {
      OfGraph([](GraphSpec* s) { s->group = "dq"; }),
      OfGraph([](GraphSpec* s) { s->group_size = 4; }),
      OfGraph([](GraphSpec* s) { s->buffer = "x2"; }),
      OfGraph([](GraphSpec* s) { s->dtype = DType::kI32; }),
      OfGraph([](GraphSpec* s) { s->count = 128; }),
      OfGraph([](GraphSpec* s) { s->ownership = Ownership::kBound; }),
      OfGraph([](GraphSpec* s) { s->place_group = 1; }),
      OfGraph([](GraphSpec* s) { s->op = "made"; }),
      OfGraph([](GraphSpec* s) { s->mode = AccessMode::kReadWrite; }),
      OfGraph([](GraphSpec* s) { s->one_more = true; }),
      OfGraph([](GraphSpec* s) { s->other_buffer = true; }),
      OfGraph([](GraphSpec* s) { s->other_group = true; }),
      OfGraph([](GraphSpec* s) { s->range = {}; }),
      OfGraph([](GraphSpec* s) { s->range = Range(1, 16); }),
      OfGraph([](GraphSpec* s) { s->range = Range(0, 17); }),
      OfGraph([](GraphSpec* s) { s->tile = Tile(1, 4, 4, 16); }),
      OfGraph([](GraphSpec* s) { s->tile = Tile(0, 5, 4, 16); }),
      OfGraph([](GraphSpec* s) { s->tile = Tile(0, 4, 3, 16); }),
      OfGraph([](GraphSpec* s) { s->tile = Tile(0, 4, 4, 15); }),
      OfGraph([](GraphSpec* s) { s->sum = "sum2"; }),
      OfGraph([](GraphSpec* s) { s->kind = CollectiveKind::kAllReduce; }),
      OfGraph([](GraphSpec* s) { s->counts = {}; }),
      OfGraph([](GraphSpec* s) {
        s->counts = {5, 3, 4, 4};
      }),
      OfGraph([](GraphSpec* s) { s->peer = -1; }),
      OfGraph([](GraphSpec* s) { s->lossy = true; }),
      OfGraph([](GraphSpec* s) { s->cast_other = true; }),
      OfGraph([](GraphSpec* s) { s->cast = Range(0, 32); }),
  };
}

std::vector<Change> ChangesOfNodes() {
  return {
      [](Plan* p) { p->nodes[0].op = OpId(7); },
      [](Plan* p) { p->nodes[0].lane = 1; },
      [](Plan* p) { p->nodes[1].after.clear(); },
      [](Plan* p) { p->nodes[1].after[0] = OpId(7); },
      [](Plan* p) { p->nodes[1].needs.clear(); },
      [](Plan* p) { p->nodes[1].needs[0] = LaunchId(3); },
      [](Plan* p) { p->nodes[1].waits.pop_back(); },
      [](Plan* p) { p->nodes[1].waits.back().producer.index = 3; },
      [](Plan* p) { p->nodes[1].waits.back().distance = 0; },
      [](Plan* p) { p->nodes[1].waits.back().cause = WaitCause::kHazard; },
      [](Plan* p) {
        WaitList& waits = p->nodes[1].waits;
        waits[waits.size() - 2].producer.index = 7;
      },
      [](Plan* p) {
        p->nodes[1].waits.back().producer.kind = NodeRef::Kind::kOp;
      },
  };
}

std::vector<Change> ChangesOfLaunches() {
  return {
      [](Plan* p) { p->launches.pop_back(); },
      [](Plan* p) { p->launches[0].kind = CollectiveKind::kAllGather; },
      [](Plan* p) { p->launches[0].dtype = DType::kI32; },
      [](Plan* p) { p->launches[0].reduce_op = ReduceOp::kMax; },
      [](Plan* p) {
        p->launches[LaunchOf(*p, CollectiveKind::kBroadcast)].root = 1;
      },
      [](Plan* p) { p->launches[0].group = GroupId(1); },
      [](Plan* p) { p->launches[0].members.push_back(OpId(2)); },
      [](Plan* p) { p->launches[0].members[0] = OpId(2); },
      [](Plan* p) { p->launches[0].way = Way::kSingle; },
      [](Plan* p) { p->launches[0].coded = true; },
      [](Plan* p) { p->launches[0].lane = 9; },
      [](Plan* p) { p->launches[0].key += 1; },
      [](Plan* p) { p->launches[0].payload_bytes += 1; },
      [](Plan* p) { p->launches[0].piece.of = 4; },
      [](Plan* p) { p->launches[0].piece.index = 2; },
      [](Plan* p) { p->launches[0].piece.offset = 4; },
      [](Plan* p) { p->launches[0].piece.count = 8; },
      [](Plan* p) { p->launches[0].staging_offset += 1; },
      [](Plan* p) { p->launches[0].staging_bytes += 1; },
      [](Plan* p) { p->launches[0].staging_output += 1; },
      [](Plan* p) { p->due_after[0] = 0; },
      [](Plan* p) { p->due_after.back() += 1; },
      [](Plan* p) { p->launches[0].producers.push_back(OpId(7)); },
      [](Plan* p) { p->launches[0].producers[0] = OpId(7); },
      [](Plan* p) { p->launches[0].waits.clear(); },
      [](Plan* p) { p->launches[0].waits.back().producer.index = 3; },
      [](Plan* p) { p->launches[0].waits.back().distance = 0; },
      [](Plan* p) { p->launches[0].waits.back().cause = WaitCause::kHazard; },
      [](Plan* p) {
        p->launches[0].waits.back().producer.kind = NodeRef::Kind::kOp;
      },
      [](Plan* p) {
        Launch& last = p->launches.back();
        last.piece = {.index = 0, .of = 2, .offset = 0, .count = 0};
      },
  };
}

TEST(CanonicalPlanTest, EveryFieldChangesTheFingerprintAndALine) {
  const Plan base = BasePlan();
  const std::vector<std::string> lines = CanonicalLines(base);
  std::set<std::string> changed;
  for (const auto& changes : {ChangesOfOptions(), ChangesOfGraph(),
                              ChangesOfNodes(), ChangesOfLaunches()}) {
    for (size_t i = 0; i < changes.size(); ++i) {
      Plan other = base;
      changes[i](&other);
      const std::string field = FirstDifference(base, other);
      SCOPED_TRACE(absl::StrCat("change ", i, ", of '", field, "'"));
      EXPECT_NE(field, "");
      changed.insert(field);
      EXPECT_NE(FingerprintOf(other), FingerprintOf(base));
      const std::vector<std::string> others = CanonicalLines(other);
      EXPECT_NE(others, lines);
    }
  }
  for (const std::string& name : NamesOf(base)) {
    if (FollowsFromOthers(name)) continue;
    EXPECT_THAT(changed, Contains(name)) << "no change tries this field";
  }
}

TEST(CanonicalPlanTest, TheLineOfALossyCollectiveSaysSo) {
  Plan plan = BasePlan();
  EXPECT_THAT(CanonicalLines(plan),
              Not(Contains(HasSubstr("'gather' all_gather accesses [r 'y'/'tp'"
                                     ", w 'y'] lossy"))));
  OfGraph([](GraphSpec* s) { s->lossy = true; })(&plan);
  EXPECT_THAT(CanonicalLines(plan),
              Contains(HasSubstr("'gather' all_gather accesses [r 'y'/'tp', "
                                 "w 'y'] lossy")));
}

TEST(CanonicalPlanTest, NamesThatLookLikeOtherFieldsAreNoSuchFields) {
  auto line = [](const std::string& name, Region region) {
    GraphBuilder b;
    const BufferId x = b.Buffer("x", 64);
    b.Buffer("x'[0,+8", 64);
    b.Compute(name, {Read(x, region)});
    return CanonicalLines(*MakePlan(b.graph()));
  };
  EXPECT_NE(line("a' accesses [r 'x'", {}), line("a", {}));
  EXPECT_THAT(line("a'b", Range(0, 8)), Contains(HasSubstr("'a\\'b' accesses "
                                                           "[r 'x'[0,+8]]")));
}

}  // namespace
}  // namespace commsched
