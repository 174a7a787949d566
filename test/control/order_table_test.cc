#include "control/order_table.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

OrderSlice Slice(uint64_t first, uint64_t base, std::vector<int32_t> before,
                 uint64_t then, const std::string& topic = "topic") {
  return {.topic = topic,
          .first = first,
          .base = base,
          .before = std::move(before),
          .then = then};
}

// "0: a1 b1, 1: b1 a1": who launches which first; "" if nothing differs.
std::string Text(const absl::optional<OrderDifference>& found) {
  if (!found.has_value()) return "";
  const std::string a = absl::StrCat("a", found->a_number);
  const std::string b = absl::StrCat("b", found->b_number);
  return absl::StrCat(found->a_first, ": ", a, " ", b, ", ", found->b_first,
                      ": ", b, " ", a);
}

TEST(OrderTableTest, RanksOfOneOrderDoNotDiffer) {
  OrderTable table;
  EXPECT_EQ(Text(table.Say(0, Slice(1, 0, {0, 1, 1}, 2))), "");
  EXPECT_EQ(Text(table.Say(1, Slice(1, 0, {0, 1, 1}, 2))), "");
}

TEST(OrderTableTest, WhoIsBehindDoesNotDiffer) {
  OrderTable table;
  EXPECT_EQ(Text(table.Say(0, Slice(1, 0, {0, 1, 1}, 2))), "");
  EXPECT_EQ(Text(table.Say(1, Slice(1, 0, {0}, 1))), "");
  EXPECT_EQ(Text(table.Say(2, Slice(1, 0, {}, 0))), "");
}

TEST(OrderTableTest, AnotherNumberBeforeALaunchDiffers) {
  OrderTable table;
  EXPECT_EQ(Text(table.Say(0, Slice(1, 0, {0, 2}, 2))), "");
  EXPECT_EQ(Text(table.Say(1, Slice(1, 0, {0, 3}, 3))), "0: a2 b3, 1: b3 a2");
}

// Neither has launched what the other has begun with.
TEST(OrderTableTest, WhatIsYetToComeIsBehindWhatIsThere) {
  for (const bool a_is_first : {true, false}) {
    OrderTable table;
    const OrderSlice a = Slice(1, 0, {0}, 0);
    const OrderSlice b = Slice(1, 1, {}, 1);
    EXPECT_EQ(Text(table.Say(a_is_first ? 5 : 7, a_is_first ? a : b)), "");
    EXPECT_EQ(Text(table.Say(a_is_first ? 7 : 5, a_is_first ? b : a)),
              "5: a1 b1, 7: b1 a1");
  }
}

TEST(OrderTableTest, ARankIsToldOfATopicOnce) {
  OrderTable table;
  (void)table.Say(0, Slice(1, 0, {0}, 0));
  EXPECT_NE(Text(table.Say(1, Slice(1, 0, {1}, 1))), "");
  EXPECT_EQ(Text(table.Say(1, Slice(1, 0, {1, 1}, 1))), "");
  EXPECT_EQ(Text(table.Say(1, Slice(1, 0, {1}, 1, "another"))), "");
}

// Later blocks are compared whatever came before.
TEST(OrderTableTest, BlocksAreComparedApart) {
  constexpr uint64_t kNext = OrderSlice::kBlock + 1;
  OrderTable table;
  (void)table.Say(0, Slice(1, 0, {0}, 0));
  (void)table.Say(0, Slice(kNext, 10, {0, 1}, 11));
  EXPECT_EQ(Text(table.Say(1, Slice(kNext + 1, 12, {0}, 12))),
            absl::StrCat("0: a", kNext + 1, " b12, 1: b12 a", kNext + 1));
}

TEST(OrderTableTest, TheOldestTopicsAreForgotten) {
  OrderTable table;
  (void)table.Say(0, Slice(1, 0, {0}, 0, "first"));
  for (size_t i = 0; i < OrderTable::kMaxTopics; ++i) {
    (void)table.Say(0, Slice(1, 0, {0}, 0, absl::StrCat(i)));
  }
  EXPECT_EQ(Text(table.Say(1, Slice(1, 0, {1}, 1, "first"))), "");
}

TEST(OrderTableTest, WhatAnybodyMayHaveSentIsChecked) {
  EXPECT_OK(Slice(1, 0, {0}, 0).Check());
  EXPECT_OK(Slice(64, 0, {0}, 0).Check());
  for (const OrderSlice& bad :
       {Slice(0, 0, {0}, 0), Slice(64, 0, {0, 0}, 0), Slice(1, 0, {-1}, 0),
        Slice(1, 0, std::vector<int32_t>(65), 0), Slice(1, 0, {0}, 0, ""),
        Slice(1, 0, {0}, 0, std::string(65, 'x')), Slice(UINT64_MAX, 0, {0}, 0),
        Slice(1, UINT64_MAX, {0}, 0)}) {
    EXPECT_THAT(bad.Check(), StatusIs(absl::StatusCode::kInvalidArgument, ""));
  }
}

// A rank's way through an order: what it says after some launches.
class Sayer {
 public:
  Sayer(int rank, std::vector<char> order)
      : rank_(rank), order_(std::move(order)) {}

  bool is_over() const { return at_ == order_.size(); }
  void Launch() {
    if (order_[at_++] == 'b') {
      ++num_b_;
      return;
    }
    slice_.before.push_back(static_cast<int32_t>(num_b_ - slice_.base));
    slice_.then = num_b_;
    ++num_a_;
  }
  // As a rank does: after a block, and else when it likes to.
  bool IsBlockOver() const {
    return !slice_.before.empty() && num_a_ % OrderSlice::kBlock == 0;
  }
  std::string SayTo(OrderTable* table) {
    slice_.topic = "topic";
    slice_.then = num_b_;
    const std::string text = Text(table->Say(rank_, slice_));
    if (IsBlockOver()) {
      slice_ = {};
      slice_.topic = "topic";
      slice_.first = num_a_ + 1;
      slice_.base = num_b_;
    }
    return text;
  }

 private:
  const int rank_;
  const std::vector<char> order_;
  size_t at_ = 0;
  uint64_t num_a_ = 0, num_b_ = 0;
  OrderSlice slice_;
};

// Ranks of any pace that say at any time: those of one order never differ, and
// those whose orders do are found once all is said.
TEST(OrderTableTest, RandomOrdersDifferIfAndOnlyIfTheyDo) {
  const int cases = test::PropertyCases(2000);
  int num_differ = 0;
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 3);
    std::vector<char> order(random() % 400);
    for (char& each : order) each = random() % 3 == 0 ? 'b' : 'a';
    std::vector<char> other = order;
    for (uint64_t swaps = random() % 3; swaps > 0 && order.size() > 1;) {
      const size_t at = random() % (order.size() - 1);
      std::swap(other[at], other[at + 1]);
      --swaps;
    }
    std::vector<Sayer> sayers;
    for (int rank = 0; rank < ranks; ++rank) {
      sayers.emplace_back(rank, rank == 1 ? other : order);
    }
    OrderTable table;
    std::string found;
    const auto say = [&](Sayer* sayer) {
      const std::string text = sayer->SayTo(&table);
      if (found.empty()) found = text;
    };
    while (!std::all_of(sayers.begin(), sayers.end(),
                        [](const Sayer& each) { return each.is_over(); })) {
      Sayer& sayer = sayers[random() % sayers.size()];
      for (uint64_t n = random() % 40; n > 0 && !sayer.is_over(); --n) {
        sayer.Launch();
        if (sayer.IsBlockOver()) say(&sayer);
      }
      if (random() % 2 == 0) say(&sayer);
    }
    for (Sayer& sayer : sayers) say(&sayer);
    EXPECT_EQ(found.empty(), order == other) << found;
    num_differ += order == other ? 0 : 1;
  }
  EXPECT_GT(num_differ, cases / 10);
}

}  // namespace
}  // namespace commsched
