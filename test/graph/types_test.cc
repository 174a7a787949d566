#include "graph/types.h"

#include <set>
#include <string>

#include "test/support/status_matchers.h"

namespace commsched {
namespace {

TEST(CollectiveKindTest, NamesAreDistinctAndParseBack) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(CollectiveKind::kRecv); ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    names.emplace(CollectiveKindName(kind));
    ASSERT_OK_AND_ASSIGN(const CollectiveKind parsed,
                         ParseCollectiveKind(CollectiveKindName(kind)));
    EXPECT_EQ(parsed, kind);
  }
  EXPECT_EQ(names.size(), 9u);
}

TEST(CollectiveKindTest, UnknownNameIsRefusedWithTheList) {
  EXPECT_THAT(ParseCollectiveKind("gather"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "collective 'gather' is not one of all_reduce, "));
}

}  // namespace
}  // namespace commsched
