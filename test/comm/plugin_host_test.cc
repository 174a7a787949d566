#include "comm/plugin_host.h"

#include <cstdint>

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
}

}  // namespace
}  // namespace commsched
