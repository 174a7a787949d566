#include "comm/world.h"

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

TEST(WorldTest, ABackendRefusesAConfigurationThatItDoesNotKnow) {
  WorldSpec spec = SpecOf(2);
  spec.backend_config = "link_bytes_per_s=fast";
  EXPECT_THAT(World::Create(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "backend 'inproc': configuration: link_bytes_per_s is "
                       "'fast'"));
  spec.backend = "null";
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
