#include "channel/request_table.h"

#include <vector>

#include "gtest/gtest.h"
#include "test/support/alloc_counter.h"

namespace commsched {
namespace {

class RequestTableTest : public testing::Test {
 protected:
  Parker parker_;
  RequestTable table_{&parker_};
};

TEST_F(RequestTableTest, RequestsAreNumberedFromOne) {
  EXPECT_EQ(table_.Begin()->number, 1u);
  EXPECT_EQ(table_.Begin()->number, 2u);
  EXPECT_EQ(table_.next(), 3u);
  EXPECT_EQ(table_.oldest(), 1u);
}

TEST_F(RequestTableTest, TheyFinishInAnyOrder) {
  ChannelRequest* const first = table_.Begin();
  ChannelRequest* const second = table_.Begin();
  table_.Finish(second);
  EXPECT_EQ(table_.Find(2), nullptr);
  EXPECT_EQ(table_.Find(1), first);
  EXPECT_EQ(table_.oldest(), 1u);
  table_.Finish(first);
  EXPECT_EQ(table_.oldest(), 3u);
}

TEST_F(RequestTableTest, OneThatIsUsedAgainHasAnotherGeneration) {
  ChannelRequest* const first = table_.Begin();
  const uint64_t generation = first->generation;
  first->done.Complete(generation);
  table_.Finish(first);
  ChannelRequest* const again = table_.Begin();
  ASSERT_EQ(again, first);
  EXPECT_TRUE(again->done.IsComplete(generation));
  EXPECT_FALSE(again->done.IsComplete(again->generation));
}

TEST_F(RequestTableTest, OneThatStaysLongIsFoundAmongManyThatDoNot) {
  ChannelRequest* const first = table_.Begin();
  for (int i = 0; i < 1000; ++i) table_.Finish(table_.Begin());
  EXPECT_EQ(table_.Find(1), first);
  EXPECT_EQ(table_.Find(500), nullptr);
  EXPECT_EQ(table_.oldest(), 1u);
  table_.Finish(first);
  EXPECT_EQ(table_.oldest(), 1002u);
}

TEST_F(RequestTableTest, NoMoreAtOnceThanBeforeAllocatesNothing) {
  const auto round = [&] {
    std::vector<ChannelRequest*> open;
    open.reserve(100);
    for (int i = 0; i < 100; ++i) open.push_back(table_.Begin());
    const uint64_t before = HeapAllocations();
    for (ChannelRequest* request : open) table_.Finish(request);
    for (int i = 0; i < 1000; ++i) table_.Finish(table_.Begin());
    return HeapAllocations() - before;
  };
  round();
  EXPECT_EQ(round(), 0u);
}

}  // namespace
}  // namespace commsched
