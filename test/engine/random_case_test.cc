// Random models, trainings and configurations against a plain loop.

#include "test/engine/random_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "test/engine/plain_training.h"
#include "test/engine/random_draw.h"
#include "test/engine/random_rank.h"
#include "test/support/property.h"

namespace commsched::engine {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// What is wrong is said alike by all ranks that can know of it.
void ExpectWrongIsRefused(const RandomCase& random_case,
                          const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (random_case.wrong == Wrong::kOptionOfStage3) {
      EXPECT_THAT(outcome.refusal,
                  AnyOf(HasSubstr("engine: max_live_bytes is 4096"),
                        HasSubstr("engine: persist_below is 4096")));
      EXPECT_THAT(outcome.refusal, HasSubstr("it is of stage 3"));
    } else {
      EXPECT_THAT(outcome.refusal,
                  HasSubstr("engine create: micro_batches is "));
    }
  }
}

// The size that the message of a limit which is too small gives; 0: none.
uint64_t StatedSize(const std::string& refusal) {
  for (const std::string before :
       {"the least size that works is ", "' needs "}) {
    const size_t at = refusal.rfind(before);
    if (at == std::string::npos) continue;
    return std::strtoull(refusal.c_str() + at + before.size(), nullptr, 10);
  }
  return 0;
}

void ExpectWithinLimits(const RandomCase& random_case,
                        const commsched_engine_info_t& info) {
  if (random_case.limit() > 0) {
    EXPECT_LE(info.arena_bytes, random_case.limit());
  }
  if (random_case.options.accumulate_bytes > 0) {
    EXPECT_LE(info.accumulated_bytes, random_case.options.accumulate_bytes);
  }
}

// How often cases ran in which things come together that could disturb each
// other.
class Meetings {
 public:
  void Count(const RandomCase& c) {
    if (c.wrong != Wrong::kNothing) return;
    const std::string stage = "stage " + std::to_string(c.options.zero_stage);
    const bool narrow = !c.is_fp32();
    const bool known = c.has_one_result() && c.ranks > 1;
    const bool again = !c.recomputed.empty();
    const bool recorded = !c.orders.empty();
    counts_[stage + ", known bits"] += known && !narrow;
    counts_[stage + ", known bits of 16 bits"] += known && narrow;
    counts_[stage + ", 16 bits, recorded"] += narrow && recorded;
    counts_[stage + ", 16 bits, recomputed"] += narrow && again;
    counts_[stage + ", recorded, recomputed"] += recorded && again;
    counts_[stage + ", recorded, left out"] +=
        recorded && c.engine.allow_skipped_modules != 0;
    counts_[stage + ", an order that changes"] += c.orders.size() > 1;
    counts_[stage + ", 16 bits, overflow"] += narrow && !c.overflows.empty();
    counts_[stage + ", several micro-batches of another type"] +=
        c.micro_batches() > 1 && c.options.parameter_dtype != COMMSCHED_F32;
    const bool exchanged = c.exchanges.any() && c.exchanges.sp > 1;
    counts_[stage + ", exchanged"] += exchanged;
    counts_[stage + ", exchanged, 16 bits"] += exchanged && narrow;
    counts_[stage + ", exchanged, recomputed"] += exchanged && again;
    counts_[stage + ", exchanged, left out"] +=
        exchanged && c.engine.allow_skipped_modules != 0;
    counts_[stage + ", a list of passes"] += !c.passes.empty();
    counts_["a list of passes, left out"] +=
        !c.passes.empty() && c.engine.allow_skipped_modules != 0;
    counts_[stage + ", fewer micro-batches"] +=
        c.comes_short && c.micro_batches() > 1;
    counts_[stage + ", cancelled"] += !c.cancels.empty() && c.ranks > 1;
    counts_[stage + ", ready gradients"] += c.options.gradient_ready != 0;
    const bool absent = c.options.absent_gradients != 0;
    counts_[stage + ", absent gradients"] += absent;
    counts_[stage + ", absent gradients, known bits of 16 bits"] +=
        absent && known && narrow;
    counts_["absent gradients, cancelled"] += absent && !c.cancels.empty();
    counts_["absent gradients, offloaded"] += absent && c.offloads;
    counts_["absent gradients without a norm"] += absent && !c.has_norm();
    counts_[stage + ", ready gradients, exchanged"] +=
        c.options.gradient_ready != 0 && exchanged;
    counts_["cancelled for all"] +=
        c.ranks > 1 &&
        std::any_of(c.cancels.begin(), c.cancels.end(),
                    [](const RandomCancel& each) { return each.all; });
    counts_["halves of backwards"] += std::any_of(
        c.passes.begin(), c.passes.end(), [](const commsched_pass_t& pass) {
          return pass.kind == COMMSCHED_BACKWARD_WEIGHT;
        });
    counts_[stage + ", a divisor, known bits"] +=
        known && c.options.gradient_divisor > 0;
    counts_[stage + ", option sets"] += c.options.option_sets > 0;
    counts_[stage + ", uneven evaluations"] +=
        c.options.uneven_evaluations != 0;
    counts_["fixed addresses"] += c.options.fixed_addresses != 0;
    counts_[stage + ", offloaded gradients"] +=
        c.options.zero_stage < 2 || c.offloads_gradients;
    const bool at_once =
        c.micro_batches() > 1 && c.options.accumulate_bytes > 0;
    counts_["offloaded gradients that add up"] +=
        c.offloads_gradients && at_once;
    counts_["offloaded gradients that add up, 16 bits"] +=
        c.offloads_gradients && at_once && narrow;
    const bool merged = c.options.bucket_merge == COMMSCHED_BUCKET_MERGE_ON;
    counts_[stage + ", merged buckets, known bits"] += merged && known;
    counts_[stage + ", another plan"] += !c.replans.empty();
    counts_["another list of passes, added up at once"] +=
        c.options.accumulate_bytes > 0 && c.micro_batches() > 1 &&
        std::any_of(
            c.replans.begin(), c.replans.end(),
            [](const RandomReplan& each) { return !each.passes.empty(); });
    counts_["another plan, exchanged"] += !c.replans.empty() && exchanged;
    counts_["another plan, recorded afterwards"] +=
        !c.replans.empty() && recorded;
    counts_["exchanged on a mesh"] += exchanged && c.exchanges.sp < c.ranks;
    const bool wrong = c.tries_wrong_orders && c.model.used.size() > 2;
    const bool skips = c.engine.allow_skipped_modules != 0;
    counts_[stage + ", wrong orders, known bits"] += wrong && !skips && known;
    counts_[stage + ", wrong orders, recomputed"] += wrong && !skips && again;
    counts_[stage + ", wrong orders, recorded"] += wrong && !skips && recorded;
    counts_[stage + ", wrong orders, left out"] +=
        wrong && skips && c.micro_batches() > 1;
    counts_["stage 3, a limit, wrong orders"] += c.limit() > 0 && wrong;
    counts_["stage 3, a limit, recorded"] += c.limit() > 0 && recorded;
    counts_["stage 3, a limit, 16 bits"] += c.limit() > 0 && narrow;
  }

  void ExpectEach(int times) const {
    for (const auto& [meeting, count] : counts_) {
      EXPECT_GE(count, times) << meeting;
    }
  }

 private:
  std::map<std::string, int> counts_;
};

// Runs the case; where the limit is too small, again with the size that the
// refusal gives.
void CheckCase(RandomCase random_case, const PlainTraining& plain) {
  for (int attempt = 0; attempt < 6; ++attempt) {
    SCOPED_TRACE(Describe(random_case));
    const std::vector<Outcome> outcomes = RunCase(random_case, plain);
    if (random_case.wrong != Wrong::kNothing) {
      ExpectWrongIsRefused(random_case, outcomes);
      return;
    }
    const uint64_t limit = random_case.limit();
    const std::string refusal = outcomes[0].refusal;
    for (const Outcome& outcome : outcomes) {
      ASSERT_EQ(outcome.failure, "") << outcomes.back().failure;
      ASSERT_EQ(outcome.refusal, refusal);
      if (refusal.empty()) ExpectWithinLimits(random_case, outcome.info);
    }
    if (refusal.empty()) return;
    ASSERT_GT(limit, 0u) << refusal;
    ASSERT_THAT(refusal, HasSubstr(std::to_string(limit) + " is too small"));
    random_case.SetLimit(StatedSize(refusal));
    ASSERT_GT(random_case.limit(), limit) << refusal;
  }
  FAIL() << "refused with the size that a refusal gave";
}

TEST(RandomCaseTest, HasTheWeightsOfAPlainLoopOrIsRefusedByAll) {
  const int num_cases = test::PropertyCases(500);
  Meetings meetings;
  for (int i = 0; i < num_cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    const RandomCase random_case = DrawCase(seed);
    meetings.Count(random_case);
    CheckCase(random_case, PlainTraining(random_case));
    if (::testing::Test::HasFatalFailure() ||
        ::testing::Test::HasNonfatalFailure()) {
      return;
    }
  }
  meetings.ExpectEach(num_cases / 200);
}

// The last module uses what the first does, one uses nothing.
RandomModel SmallModel() {
  return {.parameters = {{"embed", {50, 33}, 0, Gradients::kAlways},
                         {"weight", {64, 64}, 1, Gradients::kAlways},
                         {"bias", {255}, 1, Gradients::kNever},
                         {"branch", {300, 7}, 3, Gradients::kSometimes},
                         {"norm", {1}, 4, Gradients::kAlways}},
          .used = {{0}, {1, 2}, {}, {3}, {4, 0}}};
}

RandomCase CaseOfWindow(uint32_t micro_batches) {
  RandomCase c;
  c.model = SmallModel();
  c.ranks = 4;
  c.after_step = {Between::kNothing, Between::kEvaluate, Between::kNothing};
  c.options.micro_batches = micro_batches;
  c.engine.weight_decay = 0.1f;
  c.engine.clip_norm = 0.5f;
  c.plan.deterministic = 1;
  return c;
}

struct Window {
  uint32_t micro_batches;
  uint64_t accumulate_bytes;  // All buckets add up whole, or none.
};

class WindowBitsTest : public ::testing::TestWithParam<Window> {
 protected:
  // 1 is too little: CheckCase() then takes the least that works.
  void CheckLimits(RandomCase c, const PlainTraining& plain) {
    for (uint64_t limit : {0, 1, 120'000}) {
      if (limit > 0 && c.options.zero_stage < 3) continue;
      c.options.max_live_bytes = limit;
      CheckCase(c, plain);
    }
  }
};

// Sanitizer builds take a few of the combinations, of every stage one.
TEST_P(WindowBitsTest, AreThoseOfAPlainLoopForAnyStageBucketCapAndLimit) {
  constexpr uint64_t kBucketBytes[] = {1024, 4096, 16384, 1 << 20};
  constexpr int kCombinations = 64;
  RandomCase c = CaseOfWindow(GetParam().micro_batches);
  c.options.accumulate_bytes = GetParam().accumulate_bytes;
  const PlainTraining plain(c);
  const int step = kCombinations / test::PropertyCases(kCombinations);
  for (int i = 0; i < kCombinations; i += std::max(step, 1)) {
    c.options.zero_stage = static_cast<uint32_t>(i % 4);
    c.options.bucket_bytes = kBucketBytes[i / 4 % 4];
    c.plan.max_launches_in_flight = static_cast<uint32_t>(i / 16 % 2);
    c.plan.max_bytes_in_flight = i / 32 == 0 ? 0 : 9000;
    CheckLimits(c, plain);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, WindowBitsTest,
                         ::testing::Values(Window{1, 0}, Window{2, 0},
                                           Window{2, 1}, Window{4, 0},
                                           Window{4, 1}),
                         [](const auto& info) {
                           return std::to_string(info.param.micro_batches) +
                                  (info.param.accumulate_bytes == 0 ? "whole"
                                                                    : "atonce");
                         });

}  // namespace
}  // namespace commsched::engine
