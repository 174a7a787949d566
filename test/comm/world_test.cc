#include "comm/world.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

WorldSpec SpecOf(int size, const char* backend = "inproc") {
  WorldSpec spec;
  spec.size = size;
  spec.backend = backend;
  return spec;
}

TEST(WorldTest, HasTheBackendThatWasAskedFor) {
  for (const char* name : {"inproc", "null"}) {
    ASSERT_OK_AND_ASSIGN(auto world, World::Create(SpecOf(2, name)));
    EXPECT_STREQ(world->backend()->name, name);
    EXPECT_EQ(world->backend()->abi, uint32_t{COMMSCHED_BACKEND_ABI});
    EXPECT_NE(world->backend_instance(), nullptr);
  }
}

TEST(WorldTest, SizeMustBeInRange) {
  EXPECT_THAT(World::Create(SpecOf(0)),
              StatusIs(absl::StatusCode::kInvalidArgument, "1..4096"));
  EXPECT_THAT(World::Create(SpecOf(4097)),
              StatusIs(absl::StatusCode::kInvalidArgument, "4097"));
}

TEST(WorldTest, AnUnknownBackendIsNotFoundAndTheKnownAreListed) {
  EXPECT_THAT(World::Create(SpecOf(1, "mpi")),
              StatusIs(absl::StatusCode::kNotFound,
                       "'mpi'; there are: 'inproc', 'null'"));
}

TEST(WorldTest, LinksMustMakeSense) {
  WorldSpec spec = SpecOf(2);
  for (const double bad :
       {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    spec.link = {.bytes_per_s = bad, .latency_ns = 0};
    EXPECT_THAT(World::Create(spec),
                StatusIs(absl::StatusCode::kInvalidArgument, "bytes/s"));
  }
  spec.link = {.bytes_per_s = 1e9, .latency_ns = -1};
  EXPECT_THAT(World::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, "-1 ns"));
  spec.link = {.bytes_per_s = 0, .latency_ns = 5};
  EXPECT_THAT(World::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, "no bandwidth"));
}

TEST(WorldTest, TheNullBackendHasNoLink) {
  WorldSpec spec = SpecOf(2, "null");
  spec.link.bytes_per_s = 1e9;
  EXPECT_THAT(World::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, "'null'"));
}

TEST(WorldTest, ARankHasOneHolderAtATime) {
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(SpecOf(2)));
  EXPECT_OK(world->AcquireRank(1));
  EXPECT_THAT(world->AcquireRank(1),
              StatusIs(absl::StatusCode::kAlreadyExists, "rank 1"));
  EXPECT_OK(world->AcquireRank(0));
  world->ReleaseRank(1);
  EXPECT_OK(world->AcquireRank(1));
}

TEST(WorldTest, ARankOutsideTheWorldIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto world, World::Create(SpecOf(2)));
  EXPECT_THAT(world->AcquireRank(2),
              StatusIs(absl::StatusCode::kInvalidArgument, "0..1"));
  EXPECT_THAT(world->AcquireRank(-1),
              StatusIs(absl::StatusCode::kInvalidArgument, "rank -1"));
}

}  // namespace
}  // namespace commsched
