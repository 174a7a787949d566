#include "comm/plugin/host.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace commsched {
namespace {

TEST(PluginHostTest, ReducesInTheOrderOfTheInputs) {
  const commsched_host_t* host = NewPluginHost("test");
  const float big[] = {1e8f, 1};
  const float small[] = {1, 2};
  const float back[] = {-1e8f, 3};
  float sum[2] = {};
  const void* inputs[] = {big, small, back};
  ASSERT_EQ(
      host->reduce(host->user, COMMSCHED_F32, COMMSCHED_SUM, 3, inputs, 2, sum),
      COMMSCHED_OK);
  EXPECT_EQ(sum[0], 0);  // The 1 was lost in 1e8: not so in another order.
  EXPECT_EQ(sum[1], 6);
  const void* other[] = {big, back, small};
  ASSERT_EQ(
      host->reduce(host->user, COMMSCHED_F32, COMMSCHED_SUM, 3, other, 2, sum),
      COMMSCHED_OK);
  EXPECT_EQ(sum[0], 1);
}

TEST(PluginHostTest, PartialSumsGiveTheBitsOfTheWhole) {
  const commsched_host_t* host = NewPluginHost("test");
  const float values[] = {1e8f, 1, -1e8f, 1, 3};
  const auto sum_of = [&](std::vector<commsched_piece_t> pieces, bool partial,
                          float* output) {
    commsched_tree_sum_t sum = {};
    sum.struct_size = sizeof(sum);
    sum.dtype = COMMSCHED_F32;
    sum.op = COMMSCHED_AVG;
    sum.size = 5;
    sum.num_pieces = static_cast<uint32_t>(pieces.size());
    sum.pieces = pieces.data();
    sum.count = 1;
    sum.output = output;
    sum.output_is_partial = partial ? 1 : 0;
    return host->reduce_tree(host->user, &sum);
  };
  const auto raw = [&](uint32_t i) {
    return commsched_piece_t{i, i + 1, 0, 0, &values[i]};
  };
  float whole = 0, back = 0, parts = 0;
  ASSERT_EQ(sum_of({raw(0), raw(1), raw(2), raw(3), raw(4)}, false, &whole),
            COMMSCHED_OK);
  EXPECT_EQ(whole, 3 * (1.0f / 5));  // (1e8 + 1) + (-1e8 + 1) = 0
  ASSERT_EQ(sum_of({raw(2), raw(3)}, true, &back), COMMSCHED_OK);
  EXPECT_EQ(back, -1e8f);
  ASSERT_EQ(
      sum_of({raw(0), raw(1), {2, 4, 1, 0, &back}, raw(4)}, false, &parts),
      COMMSCHED_OK);
  EXPECT_EQ(parts, whole);

  // Not the whole group; no node; gaps; a raw piece of two positions.
  for (const auto& pieces : std::vector<std::vector<commsched_piece_t>>{
           {raw(0), raw(1)},
           {raw(0), raw(1), raw(2), raw(4)},
           {raw(0), {1, 3, 1, 0, &back}, raw(3), raw(4)},
           {{0, 2, 0, 0, &back}, raw(2), raw(3), raw(4)},
           {{0, 4, 1, 0, &back}, {4, 6, 1, 0, &back}},
           {}}) {
    EXPECT_EQ(sum_of(pieces, false, &parts), COMMSCHED_INVALID_ARGUMENT);
  }
  EXPECT_EQ(sum_of({raw(1), raw(2)}, true, &parts), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(parts, whole);
}

TEST(PluginHostTest, RefusesWhatItCannotReduce) {
  const commsched_host_t* host = NewPluginHost("test");
  float value = 1;
  const void* inputs[] = {&value};
  EXPECT_EQ(host->reduce(host->user, 99, COMMSCHED_SUM, 1, inputs, 1, &value),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(host->reduce(host->user, COMMSCHED_F32, 99, 1, inputs, 1, &value),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(host->reduce(host->user, COMMSCHED_F32, COMMSCHED_SUM, 0, inputs, 1,
                         &value),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(host->reduce(host->user, COMMSCHED_F32, COMMSCHED_BAND, 1, inputs,
                         1, &value),
            COMMSCHED_INVALID_ARGUMENT);
  // It is given no scale.
  EXPECT_EQ(host->reduce(host->user, COMMSCHED_F32, COMMSCHED_PREMUL_SUM, 1,
                         inputs, 1, &value),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(host->reduce(host->user, COMMSCHED_BOOL, COMMSCHED_SUM, 1, inputs,
                         1, &value),
            COMMSCHED_INVALID_ARGUMENT);
}

// A plugin of 0.1 says where its description ends.
TEST(PluginHostTest, SumsOfAPluginThatKnowsNoScaleAreAsTheyWere) {
  const commsched_host_t* host = NewPluginHost("test");
  const float values[] = {1, 2};
  const commsched_piece_t pieces[] = {{0, 1, 0, 0, &values[0]},
                                      {1, 2, 0, 0, &values[1]}};
  float output = 0;
  commsched_tree_sum_t sum = {};
  sum.struct_size = offsetof(commsched_tree_sum_t, scale);
  sum.dtype = COMMSCHED_F32;
  sum.op = COMMSCHED_SUM;
  sum.size = sum.num_pieces = 2;
  sum.pieces = pieces;
  sum.count = 1;
  sum.output = &output;
  sum.scale = 5;  // Not its.
  EXPECT_EQ(host->reduce_tree(host->user, &sum), COMMSCHED_OK);
  EXPECT_EQ(output, 3);
  sum.op = COMMSCHED_PREMUL_SUM;
  EXPECT_EQ(host->reduce_tree(host->user, &sum), COMMSCHED_INVALID_ARGUMENT);
  sum.struct_size = sizeof(sum);
  EXPECT_EQ(host->reduce_tree(host->user, &sum), COMMSCHED_OK);
  EXPECT_EQ(output, 15);
}

TEST(PluginHostTest, PartialSumsAreOfScaledInputs) {
  const commsched_host_t* host = NewPluginHost("test");
  const float one = 1, partial = 10;
  const commsched_piece_t pieces[] = {{0, 2, 1, 0, &partial},
                                      {2, 3, 0, 0, &one}};
  float output = 0;
  commsched_tree_sum_t sum = {};
  sum.struct_size = sizeof(sum);
  sum.dtype = COMMSCHED_F32;
  sum.op = COMMSCHED_PREMUL_SUM;
  sum.size = 3;
  sum.num_pieces = 2;
  sum.pieces = pieces;
  sum.count = 1;
  sum.output = &output;
  sum.scale = 0.5;
  ASSERT_EQ(host->reduce_tree(host->user, &sum), COMMSCHED_OK);
  EXPECT_EQ(output, 10.5f);
}

}  // namespace
}  // namespace commsched
