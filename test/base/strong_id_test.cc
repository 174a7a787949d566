#include "base/strong_id.h"

#include <type_traits>
#include <unordered_set>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

using OpId = StrongId<struct OpIdTag>;
using BufferId = StrongId<struct BufferIdTag>;

TEST(StrongIdTest, KindsDoNotMix) {
  static_assert(!std::is_convertible_v<OpId, BufferId>);
  static_assert(!std::is_constructible_v<OpId, BufferId>);
  static_assert(!std::is_convertible_v<uint32_t, OpId>);
  static_assert(!std::is_convertible_v<OpId, uint32_t>);
  static_assert(sizeof(OpId) == sizeof(uint32_t));
}

TEST(StrongIdTest, DefaultIsInvalid) {
  EXPECT_EQ(OpId(), OpId::invalid());
  EXPECT_FALSE(OpId().valid());
  EXPECT_TRUE(OpId(0).valid());
}

TEST(StrongIdTest, ComparesByValue) {
  EXPECT_EQ(OpId(3), OpId(3));
  EXPECT_NE(OpId(3), OpId(4));
  EXPECT_LT(OpId(3), OpId(4));
  EXPECT_LT(OpId(4), OpId::invalid());
  EXPECT_EQ(OpId(3).value(), 3u);
}

TEST(StrongIdTest, HashesInBothKindsOfSet) {
  const absl::flat_hash_set<OpId> flat = {OpId(1), OpId(2), OpId(1)};
  const std::unordered_set<OpId> chained = {OpId(1), OpId(2), OpId(1)};
  EXPECT_EQ(flat.size(), 2u);
  EXPECT_EQ(chained.size(), 2u);
  EXPECT_TRUE(flat.contains(OpId(2)));
}

}  // namespace
}  // namespace commsched
