#include "capi/structs.h"

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

// One struct in three versions of the library.
struct Old {
  uint64_t struct_size = sizeof(Old);
  uint64_t first = 0;
};
struct Ours {
  uint64_t struct_size = sizeof(Ours);
  uint64_t first = 0;
  uint64_t second = 0;
};
struct New {
  uint64_t struct_size = sizeof(New);
  uint64_t first = 0;
  uint64_t second = 0;
  uint64_t third = 0;
};

template <typename T>
const Ours* AsOurs(const T& caller) {
  return reinterpret_cast<const Ours*>(&caller);
}

TEST(StructsTest, FieldsThatAnOldCallerLacksAreZero) {
  Old caller;
  caller.first = 5;
  ASSERT_OK_AND_ASSIGN(const Ours ours, ReadStruct(AsOurs(caller), "Ours"));
  EXPECT_EQ(ours.struct_size, sizeof(Ours));
  EXPECT_EQ(ours.first, 5u);
  EXPECT_EQ(ours.second, 0u);
}

TEST(StructsTest, FieldsThatWeLackMustBeZero) {
  New caller;
  caller.second = 6;
  ASSERT_OK_AND_ASSIGN(const Ours ours, ReadStruct(AsOurs(caller), "Ours"));
  EXPECT_EQ(ours.second, 6u);
  caller.third = 1;
  EXPECT_THAT(ReadStruct(AsOurs(caller), "Ours"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "Ours has a field at byte 24"));
}

TEST(StructsTest, SizeThatIsNotSetIsRefused) {
  Ours caller;
  for (const uint64_t size : {uint64_t{0}, uint64_t{7}, sizeof(Ours) - 3,
                              kMaxStructSize + 1, ~uint64_t{0}}) {
    caller.struct_size = size;
    EXPECT_THAT(
        ReadStruct(&caller, "Ours"),
        StatusIs(absl::StatusCode::kInvalidArgument, "Ours.struct_size"));
    EXPECT_THAT(
        WriteStruct(Ours(), &caller, "Ours"),
        StatusIs(absl::StatusCode::kInvalidArgument, "Ours.struct_size"));
  }
}

TEST(StructsTest, NothingIsWrittenBeyondAnOldCallersStruct) {
  struct {
    Old caller;
    uint64_t beyond = 99;
  } memory;
  Ours ours;
  ours.first = 1;
  ours.second = 2;
  ASSERT_OK(WriteStruct(ours, reinterpret_cast<Ours*>(&memory), "Ours"));
  EXPECT_EQ(memory.caller.struct_size, sizeof(Old));
  EXPECT_EQ(memory.caller.first, 1u);
  EXPECT_EQ(memory.beyond, 99u);
}

TEST(StructsTest, FieldsOfANewCallerThatWeLackStayAsTheyWere) {
  New caller;
  caller.third = 3;
  Ours ours;
  ours.second = 2;
  ASSERT_OK(WriteStruct(ours, reinterpret_cast<Ours*>(&caller), "Ours"));
  EXPECT_EQ(caller.struct_size, sizeof(New));
  EXPECT_EQ(caller.second, 2u);
  EXPECT_EQ(caller.third, 3u);
}

}  // namespace
}  // namespace commsched
