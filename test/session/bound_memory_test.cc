// Memory that a caller gives for two buffers, which planning takes for two.
#include <algorithm>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "exec/bound_ranges.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/recording/recording_rig.h"
#include "test/session/bucket_graph.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Ranks;
using test::Read;
using test::SessionRig;
using test::Write;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// `make` writes a, which `use` reads, as it does b and c.
struct ThreeBuffers {
  ThreeBuffers() {
    GraphBuilder builder;
    a = builder.Buffer("a", 8);
    b = builder.Buffer("b", 8);
    c = builder.Buffer("c", 8);
    builder.Compute("make", {Write(a)});
    builder.Compute("use", {Read(a), Read(b), Read(c)});
    graph = builder.graph();
  }
  BufferId a, b, c;
  Graph graph;
};

// What comes of binding a, b and c to these elements of one piece of memory.
absl::Status BindAt(size_t a, size_t b, size_t c) {
  static std::vector<float> memory(64);
  SessionRig rig(Ranks(1), ThreeBuffers().graph, {});
  SessionSpec spec = rig.Spec(0);
  spec.bindings[0].address = memory.data() + a;
  spec.bindings[1].address = memory.data() + b;
  spec.bindings[2].address = memory.data() + c;
  return Session::Create(spec).status();
}

TEST(BoundMemoryTest, BuffersSideBySideAreFine) {
  EXPECT_OK(BindAt(0, 8, 16));
  EXPECT_OK(BindAt(16, 0, 8));
}

TEST(BoundMemoryTest, BuffersThatOverlapAreRefusedWithWhatTheyShare) {
  EXPECT_THAT(
      BindAt(0, 4, 16),
      StatusIs(kInvalid,
               "buffers 'a' and 'b' overlap in memory: bytes 16 to 31 of 'a' "
               "are bytes 0 to 15 of 'b', and op 'make' writes 'a'"));
  EXPECT_THAT(BindAt(4, 16, 0),
              StatusIs(kInvalid,
                       "bytes 16 to 31 of 'c' are bytes 0 to 15 of "
                       "'a', and op 'make' writes 'a'"));
  EXPECT_THAT(BindAt(0, 16, 0), StatusIs(kInvalid, "bytes 0 to 31 of 'a'"));
}

TEST(BoundMemoryTest, WhatIsOnlyReadMayBeShared) {
  EXPECT_OK(BindAt(0, 16, 16));
  EXPECT_OK(BindAt(0, 16, 20));
  EXPECT_OK(BindAt(32, 16, 20));
}

// The one in the middle ends before the last begins.
TEST(BoundMemoryTest, ALongBufferIsComparedBeyondItsNeighbour) {
  GraphBuilder b;
  const BufferId large = b.Buffer("long", 16);
  const BufferId small = b.Buffer("short", 2);
  const BufferId last = b.Buffer("last", 2);
  b.Compute("op", {Read(large), Read(small), Write(last)});
  float memory[16];
  EXPECT_THAT(BoundRanges(b.graph(), {memory, memory + 4, memory + 12})
                  .CheckApart("test"),
              StatusIs(kInvalid, "buffers 'long' and 'last' overlap"));
  EXPECT_THAT(BoundRanges(b.graph(), {memory + 1, memory + 14, memory})
                  .CheckApart("test"),
              StatusIs(kInvalid, "buffers 'last' and 'long' overlap"));
}

TEST(BoundMemoryTest, ABufferThatNoOpAccessesMayLieAnywhere) {
  GraphBuilder b;
  b.Buffer("spare", 8);
  b.Compute("make", {Write(b.Buffer("x", 8))});
  float memory[8];
  EXPECT_OK(BoundRanges(b.graph(), {memory, memory}).CheckApart("test"));
}

TEST(BoundMemoryTest, MemoryIsFoundByAnyOfItsBytes) {
  const ThreeBuffers made;
  std::vector<float> memory(32);
  const BoundRanges ranges(made.graph,
                           {memory.data() + 8, nullptr, memory.data() + 24});
  const auto met = [&](size_t at, size_t count) {
    return ranges.Meets(memory.data() + at, count * sizeof(float));
  };
  EXPECT_EQ(met(0, 9), made.a);
  EXPECT_EQ(met(10, 1), made.a);
  EXPECT_EQ(met(15, 9), made.a);
  EXPECT_EQ(met(0, 32), made.c);
  EXPECT_FALSE(met(0, 8).valid());
  EXPECT_FALSE(met(16, 8).valid());
  EXPECT_FALSE(met(10, 0).valid());
}

TEST(BoundMemoryTest, TwoSessionsMayBindTheSameMemory) {
  SessionRig rig(Ranks(1), ThreeBuffers().graph, {});
  SessionSpec spec = rig.Spec(0);
  const auto first = Session::Create(spec);
  EXPECT_OK(first);
  spec.instance = 1;
  EXPECT_OK(Session::Create(spec));
}

TEST(BoundMemoryTest, ARecordingRefusesItBeforeItsFirstStep) {
  test::ModulesSpec spec;
  spec.ranks = 2;
  spec.modules = 1;
  const auto statuses =
      test::RunModules(spec, [&](test::ModulesRank& rank) -> absl::Status {
        Buffer buffer;
        buffer.name = "again";
        buffer.dtype = DType::kI32;
        buffer.ownership = Ownership::kBound;
        buffer.count = spec.count;
        ASSIGN_OR_RETURN(
            const BufferId again,
            rank.recording().AddBuffer(
                buffer, const_cast<int32_t*>(rank.grad(0).data())));
        Op op;
        op.name = "op";
        op.accesses = {Read(again)};
        RETURN_IF_ERROR(rank.recording().AddCompute(op, 0).status());
        return rank.Step({0}, 0);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("'grad.0' and 'again' overlap"));
  }
}

}  // namespace
}  // namespace commsched
