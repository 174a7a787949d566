// I6: what a steady step does not do, with everything on.

#include <gtest/gtest.h>

#include <cstdint>

#include "commsched/engine.h"
#include "test/engine/plain_training.h"
#include "test/engine/random_case.h"
#include "test/engine/random_rank.h"

namespace commsched::engine {
namespace {

constexpr uint32_t kWarmUpSteps = 5;
constexpr uint32_t kSteps = 40;

// One that all ranks, or pairs of them, exchange in a forward and a backward.
RandomExchanges SomeExchanges() {
  RandomExchanges exchanges;
  exchanges.sp = 2;
  exchanges.num_activations = 3;
  exchanges.count = 64;
  const RandomStep write = {.output = 0, .parameters = {1}};
  const RandomStep swap = {
      .is_collective = true, .input = 0, .output = 1, .in_sp = true};
  const RandomStep sum = {.is_collective = true,
                          .input = 0,
                          .output = 2,
                          .kind = COMMSCHED_ALL_REDUCE};
  const RandomStep read = {.input = 1, .parameters = {1, 2}};
  const RandomStep add = {.input = 2, .parameters = {1}, .gradients = {1}};
  RandomStep read_sum = add;
  read_sum.gradients.clear();
  exchanges.steps.resize(4);
  exchanges.steps[1] = {
      {{write, swap, sum, read, read_sum}, {write, swap, sum, read, add}}};
  return exchanges;
}

// Types of 16 bits, windows of which some buckets accumulate, clipping, a loss
// scale, offloaded state and gradients, modules left out, recomputed and such
// that exchange something, a window of launches, a slow link, split and urgent
// collectives, costs measured, and a trace whose ring goes round.
RandomCase EverythingOn(uint32_t zero_stage) {
  RandomCase c;
  c.model = {.parameters = {{"embed", {50, 33}, 0, Gradients::kAlways},
                            {"weight", {64, 64}, 1, Gradients::kAlways},
                            {"bias", {64}, 1, Gradients::kNever},
                            {"branch", {300, 7}, 2, Gradients::kSometimes},
                            {"norm", {17}, 3, Gradients::kAlways}},
             .used = {{0}, {1, 2}, {3}, {4, 0}}};
  c.ranks = 4;
  c.after_step.resize(kWarmUpSteps + kSteps, Between::kNothing);
  c.link_bytes_per_s = 1e9;
  c.link_latency_ns = 2000;
  c.profile.link_bytes_per_s = 1e9;
  c.profile.link_latency_ns = 2000;
  c.traced = true;
  c.options.zero_stage = zero_stage;
  c.options.bucket_bytes = 4096;
  c.options.edge_bucket_bytes = 2048;
  c.options.micro_batches = 3;
  c.options.accumulate_bytes = 8192;
  c.engine.clip_norm = 0.5f;
  c.engine.weight_decay = 0.1f;
  c.optimizer = commsched_adamw(0.9f, 0.95f, 1e-3f);
  c.engine.measure_steps = kWarmUpSteps + kSteps;
  c.engine.allow_skipped_modules = 1;
  c.recomputed = {{1, 2}};
  c.offloads = true;
  c.offloads_gradients = zero_stage >= 2;
  c.engine.loss_scale = 1024;
  c.engine.loss_scale_window = 3;
  c.options.parameter_dtype = COMMSCHED_BF16;
  c.options.reduce_dtype = COMMSCHED_F16;
  c.exchanges = SomeExchanges();
  c.plan.deterministic = 1;
  c.plan.max_launches_in_flight = 2;
  c.plan.max_bytes_in_flight = 20000;
  c.plan.coalesce_bytes = 9000;
  c.plan.partition_bytes = 6000;
  c.plan.priority = COMMSCHED_PRIORITY_ON;
  if (zero_stage == 3) {
    c.options.max_live_bytes = 100'000;
    c.options.persist_below = 300;
    c.options.prefetch_bytes = 30'000;
  }
  return c;
}

class SteadyStateTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SteadyStateTest, StepsWithEverythingOnAllocateLockAndCreateNothing) {
  const RandomCase c = EverythingOn(GetParam());
  const Surprises surprises =
      SurprisesOnceWarm(c, PlainTraining(c), kWarmUpSteps);
  EXPECT_EQ(surprises.allocations, 0u);
  EXPECT_EQ(surprises.lock_contentions, 0u);
  EXPECT_EQ(surprises.events, 0u);
  EXPECT_EQ(surprises.streams, 0u);
  EXPECT_EQ(surprises.registrations, 0u);
}

INSTANTIATE_TEST_SUITE_P(Stages, SteadyStateTest,
                         ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace commsched::engine
