#include "engine/update/agreed_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace commsched::engine {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();

std::string TextOf(const Difference& difference) {
  return difference.name + ": " + difference.of_first + ", " +
         difference.of_other;
}

// A sum over the ranks has the number of one of them, and zeros.
TEST(AgreedValuesTest, ANumberIsFiniteNeverZeroAndStaysWhenZerosAreAdded) {
  for (const float first : {0.0f, kLeast, 3e-4f, 1.0f, kMost}) {
    for (const float second : {0.0f, kLeast, 0.5f, kMost}) {
      const double number = PairOf(first, second);
      EXPECT_TRUE(std::isfinite(number));
      EXPECT_NE(number, 0);
      EXPECT_EQ(0.0 + number + 0.0, number);
    }
  }
}

TEST(AgreedValuesTest, TheFirstValueThatDiffersIsNamedWithBoth) {
  EXPECT_EQ(TextOf(DifferenceAt(0, PairOf(3e-4f, 1), PairOf(1e-4f, 1))),
            "lr: 3e-04, 1e-04");
  EXPECT_EQ(TextOf(DifferenceAt(0, PairOf(0, 1), PairOf(0, kLeast))),
            "clip_norm: 1, 1e-45");
  EXPECT_EQ(TextOf(DifferenceAt(3, PairOf(1, 0), PairOf(1, 0.1f))),
            "decay of option set 1: 0, 0.1");
  EXPECT_EQ(TextOf(DifferenceAt(4, PairOf(0, 0.5f), PairOf(0.9f, 0.5f))),
            "beta1 of option set 1: 0, 0.9");
}

TEST(AgreedValuesTest, EveryValueOfEachSetHasAPlace) {
  const std::vector<commsched_option_values_t> sets = {{1, 0.1f, 0, 0},
                                                       {2, 0, 0.8f, 0.7f}};
  commsched_engine_update_args_t args = commsched_engine_update_args_init();
  args.lr = 0.5f;
  args.clip_norm = 3;
  std::vector<double> none(5), given(5);
  SetAgreedValues(args, &none);
  args.sets = sets.data();
  args.num_sets = 2;
  SetAgreedValues(args, &given);
  EXPECT_EQ(given,
            (std::vector<double>{PairOf(0.5f, 3), PairOf(1, 0.1f), PairOf(0, 0),
                                 PairOf(2, 0), PairOf(0.8f, 0.7f)}));
  EXPECT_EQ(none[0], given[0]);
  EXPECT_NE(none[1], given[1]);
}

}  // namespace
}  // namespace commsched::engine
