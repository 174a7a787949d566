#include "channel/travel.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "comm/reduce.h"
#include "gtest/gtest.h"
#include "test/support/property.h"
#include "test/support/status_matchers.h"
#include "test/support/tree_sum.h"

namespace commsched {
namespace {

using absl::StatusCode;

// One that takes everything.
commsched_backend_t AnyBackend() {
  commsched_backend_t backend = {};
  backend.name = "any";
  backend.reductions = COMMSCHED_BACKEND_BASIC_REDUCTIONS |
                       COMMSCHED_BACKEND_BITWISE_REDUCTIONS |
                       COMMSCHED_BACKEND_SCALED_REDUCTIONS;
  return backend;
}

absl::StatusOr<Travel> Reduced(commsched_dtype_t dtype,
                               commsched_reduce_op_t op, uint64_t count = 3) {
  return TravelOf(AnyBackend(), COMMSCHED_ALL_REDUCE, dtype, op, count);
}

TEST(TravelTest, WhatIsMovedGoesAsItIsOrAsBytes) {
  for (const auto kind :
       {COMMSCHED_ALL_GATHER, COMMSCHED_ALL_TO_ALL, COMMSCHED_BROADCAST,
        COMMSCHED_SEND, COMMSCHED_RECV}) {
    for (uint32_t dtype = 0; dtype < kNumDTypes; ++dtype) {
      // No reduction is looked at.
      ASSERT_OK_AND_ASSIGN(const Travel travel,
                           TravelOf(AnyBackend(), kind, dtype, 99, 5));
      const uint64_t bytes = DTypeSize(static_cast<DType>(dtype));
      const bool is_computed = dtype <= COMMSCHED_U8;
      EXPECT_EQ(travel.dtype, is_computed ? dtype : uint32_t{COMMSCHED_U8});
      EXPECT_EQ(travel.factor, is_computed ? 1 : bytes);
      EXPECT_EQ(travel.count, is_computed ? 5 : 5 * bytes);
      EXPECT_EQ(travel.reduce_op, uint32_t{COMMSCHED_SUM});
    }
  }
}

TEST(TravelTest, ABarrierHasNoType) {
  ASSERT_OK_AND_ASSIGN(const Travel travel,
                       TravelOf(AnyBackend(), COMMSCHED_BARRIER, 99, 99, 7));
  EXPECT_EQ(travel.count, 0u);
}

TEST(TravelTest, TypesThatAreComputedWithAreReducedAsTheyAre) {
  for (uint32_t dtype = 0; dtype <= COMMSCHED_U8; ++dtype) {
    for (uint32_t op = 0; op < kNumReduceOps; ++op) {
      const auto travel = Reduced(dtype, op);
      EXPECT_EQ(travel.ok(), IsReducible(static_cast<DType>(dtype),
                                         static_cast<ReduceOp>(op)));
      if (!travel.ok()) continue;
      EXPECT_EQ(travel->dtype, dtype);
      EXPECT_EQ(travel->reduce_op, op);
      EXPECT_EQ(travel->factor, 1u);
    }
  }
}

TEST(TravelTest, WhatIsNotReducedIsNamedWithWhatWouldBe) {
  const auto refused = [](commsched_dtype_t dtype, commsched_reduce_op_t op,
                          const char* why) {
    EXPECT_THAT(Reduced(dtype, op),
                StatusIs(StatusCode::kInvalidArgument, why));
  };
  refused(COMMSCHED_F8_E4M3, COMMSCHED_MAX,
          "dtype f8_e4m3 is not reduced by max; it only travels");
  refused(COMMSCHED_F8_E5M2, COMMSCHED_BOR,
          "dtype f8_e5m2 is not reduced by bor; it only travels");
  refused(COMMSCHED_I16, COMMSCHED_SUM,
          "dtype i16 is not reduced by sum, but by band, bor, bxor");
  refused(COMMSCHED_U32, COMMSCHED_MIN,
          "dtype u32 is not reduced by min, but by sum, prod, band, bor, bxor");
  refused(COMMSCHED_U64, COMMSCHED_AVG, "dtype u64 is not reduced by avg");
  refused(COMMSCHED_C64, COMMSCHED_PROD,
          "dtype c64 is not reduced by prod, but by sum, avg, premul_sum");
  refused(COMMSCHED_BOOL, COMMSCHED_AVG,
          "dtype bool is not reduced by avg, but by sum, min, max, prod, band, "
          "bor");
  refused(COMMSCHED_F32, COMMSCHED_BXOR,
          "dtype f32 is not reduced by bxor, but by sum, avg, min, max, prod, "
          "premul_sum");
  refused(17, COMMSCHED_SUM, "dtype 17 is not in 0..16");
  refused(COMMSCHED_F32, 9, "reduction 9 is not in 0..8");
}

// A table that says nothing of reductions knows those of ABI 1's beginning.
TEST(TravelTest, AReductionThatTheBackendDoesNotNameIsNotAskedFor) {
  commsched_backend_t older = AnyBackend();
  older.name = "older";
  older.reductions = 0;
  const auto asked = [&](commsched_dtype_t dtype, commsched_reduce_op_t op) {
    return TravelOf(older, COMMSCHED_REDUCE, dtype, op, 1);
  };
  EXPECT_THAT(asked(COMMSCHED_I32, COMMSCHED_BAND),
              StatusIs(StatusCode::kUnimplemented,
                       "backend 'older' does not reduce by band; it takes sum, "
                       "avg, min, max, prod"));
  EXPECT_THAT(asked(COMMSCHED_C64, COMMSCHED_PREMUL_SUM),
              StatusIs(StatusCode::kUnimplemented,
                       "backend 'older' does not reduce by premul_sum"));
  EXPECT_OK(asked(COMMSCHED_I32, COMMSCHED_PROD));
  // As a maximum and a minimum.
  EXPECT_OK(asked(COMMSCHED_BOOL, COMMSCHED_BOR));
  EXPECT_OK(asked(COMMSCHED_BOOL, COMMSCHED_BAND));
  older.reductions = 1u << COMMSCHED_SUM | COMMSCHED_BACKEND_SCALED_REDUCTIONS;
  EXPECT_THAT(asked(COMMSCHED_BOOL, COMMSCHED_BOR),
              StatusIs(StatusCode::kUnimplemented,
                       "does not reduce by max; it takes sum, premul_sum"));
}

TEST(TravelTest, TypesAndKindsThatTheBackendDoesNotTakeAreNamed) {
  commsched_backend_t narrow = AnyBackend();
  narrow.dtypes = 1u << COMMSCHED_F32 | 1u << COMMSCHED_I8;
  EXPECT_THAT(TravelOf(narrow, COMMSCHED_BROADCAST, COMMSCHED_I16, 0, 1),
              StatusIs(StatusCode::kUnimplemented,
                       "backend 'any' does not move u8; it takes f32, i8"));
  EXPECT_OK(TravelOf(narrow, COMMSCHED_ALL_REDUCE, COMMSCHED_C64, 0, 1));
  narrow = AnyBackend();
  narrow.kinds = 1u << COMMSCHED_ALL_REDUCE | 1u << COMMSCHED_BARRIER;
  EXPECT_THAT(TravelOf(narrow, COMMSCHED_BROADCAST, COMMSCHED_F32, 0, 1),
              StatusIs(StatusCode::kUnimplemented,
                       "backend 'any' does not do broadcast; it takes "
                       "all_reduce, barrier"));
  EXPECT_OK(TravelOf(narrow, COMMSCHED_BARRIER, 0, 0, 0));
}

TEST(TravelTest, ElementsAreCountedInTheirOwnBytes) {
  constexpr uint64_t kMost = uint64_t{INT64_MAX} / 16;
  ASSERT_OK_AND_ASSIGN(const Travel travel,
                       Reduced(COMMSCHED_C128, COMMSCHED_SUM, kMost));
  EXPECT_EQ(travel.count, 2 * kMost);
  EXPECT_THAT(Reduced(COMMSCHED_C128, COMMSCHED_SUM, kMost + 1),
              StatusIs(StatusCode::kInvalidArgument,
                       "576460752303423488 elements of c128, 16 bytes each, "
                       "exceed 2^63-1 bytes"));
  EXPECT_THAT(
      TravelOf(AnyBackend(), COMMSCHED_BROADCAST, COMMSCHED_F64, 0, UINT64_MAX),
      StatusIs(StatusCode::kInvalidArgument, "exceed 2^63-1 bytes"));
}

// ---- Against the definition -------------------------------------------------

// What a few ranks have, and what comes out of it the way it travels.
template <typename T>
class Ranks {
 public:
  explicit Ranks(std::mt19937_64& random)
      : inputs(1 + random() % 9), count(1 + random() % 70) {}

  std::vector<T> Travelled(commsched_dtype_t dtype, commsched_reduce_op_t op,
                           double scale) const {
    const absl::StatusOr<Travel> travel = Reduced(dtype, op, count);
    EXPECT_OK(travel);
    std::vector<T> result(count);
    Reduction reduction;
    std::vector<const void*> addresses;
    for (const std::vector<T>& input : inputs)
      addresses.push_back(input.data());
    reduction.op = static_cast<ReduceOp>(travel->reduce_op);
    reduction.num_inputs = static_cast<int>(inputs.size());
    reduction.inputs = addresses.data();
    reduction.result = result.data();
    reduction.count = travel->count;
    reduction.scale = scale;
    Reduce(static_cast<DType>(travel->dtype), reduction);
    return result;
  }

  // combine(a, b) in the order of the tree.
  template <typename Combine>
  T Of(uint64_t element, const Combine& combine) const {
    return test::OverTree(
        0, static_cast<int>(inputs.size()),
        [&](int rank) { return inputs[static_cast<size_t>(rank)][element]; },
        combine);
  }

  std::vector<std::vector<T>> inputs;
  const uint64_t count;
};

template <typename Real>
void CheckComplex(commsched_dtype_t dtype, uint64_t seed) {
  using Complex = std::complex<Real>;
  std::mt19937_64 random(seed);
  Ranks<Complex> ranks(random);
  std::uniform_real_distribution<Real> values(-4, 4);
  for (std::vector<Complex>& input : ranks.inputs) {
    for (uint64_t i = 0; i < ranks.count; ++i) {
      input.emplace_back(values(random), values(random));
    }
  }
  const double scale = values(random);
  const Real factor = Real{1} / static_cast<Real>(ranks.inputs.size());
  const auto plus = [](Complex a, Complex b) { return a + b; };
  const auto sums = ranks.Travelled(dtype, COMMSCHED_SUM, scale);
  const auto means = ranks.Travelled(dtype, COMMSCHED_AVG, scale);
  Ranks<Complex> scaled = ranks;
  for (std::vector<Complex>& input : scaled.inputs) {
    for (Complex& each : input) each *= static_cast<Real>(scale);
  }
  const auto scaled_sums = ranks.Travelled(dtype, COMMSCHED_PREMUL_SUM, scale);
  for (uint64_t i = 0; i < ranks.count; ++i) {
    ASSERT_EQ(sums[i], ranks.Of(i, plus)) << "element " << i;
    ASSERT_EQ(means[i], ranks.Of(i, plus) * factor) << "element " << i;
    ASSERT_EQ(scaled_sums[i], scaled.Of(i, plus)) << "element " << i;
  }
}

TEST(TravelPropertyTest, SumsOfComplexNumbersAreTheirs) {
  const uint64_t seed = test::PropertySeed();
  for (int i = 0; i < test::PropertyCases(200); ++i) {
    const uint64_t of_case = seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(of_case));
    CheckComplex<float>(COMMSCHED_C64, of_case);
    CheckComplex<double>(COMMSCHED_C128, of_case);
    if (HasFatalFailure()) return;
  }
}

// Also of bytes that are neither 0 nor 1, which some program may have written.
void CheckBool(uint64_t seed) {
  std::mt19937_64 random(seed);
  Ranks<uint8_t> ranks(random);
  for (std::vector<uint8_t>& input : ranks.inputs) {
    for (uint64_t i = 0; i < ranks.count; ++i) {
      const bool is_true = random() % 3 != 0;
      const bool is_odd_one = random() % 4 == 0;
      const auto odd_one = static_cast<uint8_t>(1 + random() % 255);
      input.push_back(!is_true ? 0 : is_odd_one ? odd_one : 1);
    }
  }
  const auto as_bool = [](uint8_t a) { return a != 0; };
  const auto check = [&](commsched_reduce_op_t op, const auto& combine) {
    const auto results = ranks.Travelled(COMMSCHED_BOOL, op, 1);
    for (uint64_t i = 0; i < ranks.count; ++i) {
      bool expected = as_bool(ranks.inputs[0][i]);
      bool plain = true;
      for (const std::vector<uint8_t>& input : ranks.inputs) {
        expected = combine(expected, as_bool(input[i]));
        plain = plain && input[i] <= 1;
      }
      ASSERT_EQ(as_bool(results[i]), expected) << "element " << i;
      if (plain) {
        ASSERT_EQ(results[i], expected ? 1 : 0) << "element " << i;
      }
    }
  };
  for (const auto op : {COMMSCHED_SUM, COMMSCHED_MAX, COMMSCHED_BOR}) {
    check(op, [](bool a, bool b) { return a || b; });
  }
  for (const auto op : {COMMSCHED_PROD, COMMSCHED_MIN, COMMSCHED_BAND}) {
    check(op, [](bool a, bool b) { return a && b; });
  }
}

TEST(TravelPropertyTest, BoolIsReducedByLogic) {
  const uint64_t seed = test::PropertySeed();
  for (int i = 0; i < test::PropertyCases(200); ++i) {
    const uint64_t of_case = seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(of_case));
    CheckBool(of_case);
    if (HasFatalFailure()) return;
  }
}

template <typename T>
void CheckInteger(commsched_dtype_t dtype, bool has_sums, uint64_t seed) {
  std::mt19937_64 random(seed);
  Ranks<T> ranks(random);
  for (std::vector<T>& input : ranks.inputs) {
    for (uint64_t i = 0; i < ranks.count; ++i) {
      input.push_back(static_cast<T>(random()));
    }
  }
  const auto check = [&](commsched_reduce_op_t op, const auto& combine) {
    const std::vector<T> results = ranks.Travelled(dtype, op, 1);
    for (uint64_t i = 0; i < ranks.count; ++i) {
      ASSERT_EQ(results[i],
                ranks.Of(i,
                         [&](T a, T b) {
                           return static_cast<T>(combine(uint64_t{0} + a, b));
                         }))
          << "op " << op << ", element " << i;
    }
  };
  check(COMMSCHED_BAND, [](uint64_t a, uint64_t b) { return a & b; });
  check(COMMSCHED_BOR, [](uint64_t a, uint64_t b) { return a | b; });
  check(COMMSCHED_BXOR, [](uint64_t a, uint64_t b) { return a ^ b; });
  if (!has_sums) return;
  check(COMMSCHED_SUM, [](uint64_t a, uint64_t b) { return a + b; });
  check(COMMSCHED_PROD, [](uint64_t a, uint64_t b) { return a * b; });
}

TEST(TravelPropertyTest, IntegersWrapAsTheirTypeDoes) {
  const uint64_t seed = test::PropertySeed();
  for (int i = 0; i < test::PropertyCases(200); ++i) {
    const uint64_t of_case = seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(of_case));
    CheckInteger<uint16_t>(COMMSCHED_U16, false, of_case);
    CheckInteger<uint16_t>(COMMSCHED_I16, false, of_case);
    CheckInteger<uint32_t>(COMMSCHED_U32, true, of_case);
    CheckInteger<uint64_t>(COMMSCHED_U64, true, of_case);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace commsched
