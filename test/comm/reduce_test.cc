// Reductions of every type against a reference are in test/conformance; here is
// what is settled about single values.
#include "comm/reduce.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <ostream>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/float16.h"
#include "kernels/formats.h"
#include "test/support/tree_sum.h"

namespace commsched {
namespace {

template <typename T>
T ReduceOne(DType dtype, ReduceOp op, const std::vector<T>& values,
            double scale = 1) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T result;
  Reduction reduction;
  reduction.op = op;
  reduction.num_inputs = static_cast<int>(inputs.size());
  reduction.inputs = inputs.data();
  reduction.result = &result;
  reduction.count = 1;
  reduction.scale = scale;
  Reduce(dtype, reduction);
  return result;
}

// Arrays of random floats, and their sums in the order of the tree.
class RandomFloats {
 public:
  RandomFloats(int num_inputs, uint64_t count) : sums_(count) {
    std::minstd_rand random(static_cast<uint32_t>(num_inputs));
    std::uniform_real_distribution<float> values(-1, 1);
    for (int i = 0; i < num_inputs; ++i) {
      for (float& value : inputs_.emplace_back(count)) value = values(random);
    }
    for (uint64_t e = 0; e < count; ++e) {
      sums_[e] = test::OverTree(
          0, num_inputs, [&](int i) { return inputs_[i][e]; },
          [](float a, float b) { return a + b; });
    }
    for (const std::vector<float>& input : inputs_) {
      addresses_.push_back(input.data());
    }
  }
  RandomFloats(const RandomFloats&) = delete;

  Reduction SumTo(float* result) const {
    Reduction reduction;
    reduction.num_inputs = static_cast<int>(addresses_.size());
    reduction.inputs = addresses_.data();
    reduction.result = result;
    reduction.count = sums_.size();
    return reduction;
  }
  std::vector<float>& input(int index) { return inputs_[index]; }
  const std::vector<float>& sums() const { return sums_; }

 private:
  std::vector<std::vector<float>> inputs_;
  std::vector<const void*> addresses_;
  std::vector<float> sums_;
};

// A group whose positions have random elements of some type.
ReduceOp SomeReduction(DType dtype, std::minstd_rand* random) {
  while (true) {
    const auto op = static_cast<ReduceOp>((*random)() % kNumReduceOps);
    if (IsReducible(dtype, op)) return op;
  }
}

class RandomGroup {
 public:
  using Bytes = std::vector<unsigned char>;

  explicit RandomGroup(uint32_t seed)
      : random_(seed),
        dtype_(static_cast<DType>(random_() % kNumComputedDTypes)),
        op_(SomeReduction(dtype_, &random_)),
        size_(1 + random_() % 40),
        count_(1 + random_() % 150),
        bytes_(count_ * static_cast<uint64_t>(DTypeSize(dtype_))),
        inputs_(size_, Bytes(bytes_)) {
    const uint64_t last = DTypeSize(dtype_) - 1;
    for (Bytes& input : inputs_) {
      for (uint64_t b = 0; b < bytes_; ++b) {
        input[b] = static_cast<unsigned char>(random_());
        // Of floats, of either sign, so near 1 that products stay finite.
        if (b % (last + 1) == last) input[b] = (input[b] & 0x80) | 0x3c;
      }
    }
  }

  // Of all positions at once.
  Bytes Sum() {
    std::vector<commsched_piece_t> all;
    for (uint32_t i = 0; i < size_; ++i) all.push_back(Raw(i));
    return Result(all);
  }

  // Of which random nodes were summed up before.
  Bytes SumOfRandomPieces() { return Result(RandomPieces(0, size_)); }

  friend std::ostream& operator<<(std::ostream& out, const RandomGroup& g) {
    return out << g.size_ << " x " << g.count_ << " " << DTypeName(g.dtype_)
               << ", " << ReduceOpName(g.op_);
  }

 private:
  commsched_piece_t Raw(uint32_t position) const {
    return {position, position + 1, 0, 0, inputs_[position].data()};
  }

  std::vector<commsched_piece_t> RandomPieces(uint32_t lo, uint32_t hi) {
    std::vector<commsched_piece_t> pieces;
    if (hi - lo == 1) {
      pieces.push_back(Raw(lo));
    } else {
      const uint32_t middle = lo + std::bit_floor(hi - lo - 1);
      pieces = RandomPieces(lo, middle);
      const auto right = RandomPieces(middle, hi);
      pieces.insert(pieces.end(), right.begin(), right.end());
    }
    if (random_() % 3 != 0) return pieces;
    const uint64_t bytes = count_ * PartialBytes(dtype_, op_);
    auto& sum = partial_sums_.emplace_back((bytes + 15) / 16);
    Reduce(dtype_, Of(pieces, sum.data(), true));
    return {{lo, hi, 1, 0, sum.data()}};
  }

  Bytes Result(const std::vector<commsched_piece_t>& pieces) const {
    Bytes result(bytes_);
    Reduce(dtype_, Of(pieces, result.data(), false));
    return result;
  }

  Reduction Of(const std::vector<commsched_piece_t>& pieces, void* result,
               bool is_partial) const {
    Reduction reduction;
    reduction.op = op_;
    reduction.num_inputs = static_cast<int>(pieces.size());
    reduction.pieces = pieces.data();
    reduction.size = size_;
    reduction.count = count_;
    reduction.scale = 0.7;
    reduction.result = result;
    reduction.result_is_partial = is_partial;
    return reduction;
  }

  std::minstd_rand random_;
  const DType dtype_;
  const ReduceOp op_;
  const uint32_t size_;
  const uint64_t count_;
  const uint64_t bytes_;
  std::vector<Bytes> inputs_;
  // Aligned for every type.
  std::deque<std::vector<kernels::Int128>> partial_sums_;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ReduceTest, NanWinsMinAndMaxWhereverItIs) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(ReduceOne<float>(DType::kF32, op, {kNan, 1, 2})));
    EXPECT_TRUE(std::isnan(ReduceOne<float>(DType::kF32, op, {1, kNan, 2})));
    EXPECT_TRUE(std::isnan(ReduceOne<double>(DType::kF64, op, {1, 2, kNan})));
    EXPECT_TRUE(std::isnan(HalfToFloat(
        ReduceOne<uint16_t>(DType::kF16, op, {0x3c00, 0x7e00, 0x4000}))));
  }
}

TEST(ReduceTest, IntegerSumsAndProductsWrap) {
  EXPECT_EQ(ReduceOne<int8_t>(DType::kI8, ReduceOp::kSum, {100, 100}), -56);
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kU8, ReduceOp::kProd, {16, 17}), 16);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kI32, ReduceOp::kSum, {INT32_MAX, 1}),
            INT32_MIN);
  EXPECT_EQ(ReduceOne<int64_t>(DType::kI64, ReduceOp::kProd, {INT64_MIN, -1}),
            INT64_MIN);
}

TEST(ReduceTest, IntegerAveragesTruncateTowardsZero) {
  EXPECT_EQ(ReduceOne<int32_t>(DType::kI32, ReduceOp::kAvg, {-3, -4}), -3);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kI32, ReduceOp::kAvg, {3, 4}), 3);
  EXPECT_EQ(ReduceOne<int8_t>(DType::kI8, ReduceOp::kAvg, {-1, 0}), 0);
  EXPECT_EQ(ReduceOne<int64_t>(DType::kI64, ReduceOp::kAvg, {-9, 0, 1}), -2);
}

TEST(ReduceTest, IntegerAveragesFitThoughTheirSumsDoNot) {
  const auto mean_of_equal = []<typename T>(DType dtype, T value) {
    return ReduceOne<T>(dtype, ReduceOp::kAvg, {value, value, value});
  };
  EXPECT_EQ(mean_of_equal(DType::kI8, int8_t{100}), 100);
  EXPECT_EQ(mean_of_equal(DType::kI8, int8_t{-128}), -128);
  EXPECT_EQ(mean_of_equal(DType::kU8, uint8_t{200}), 200);
  EXPECT_EQ(mean_of_equal(DType::kI32, INT32_MAX), INT32_MAX);
  EXPECT_EQ(mean_of_equal(DType::kI64, INT64_MIN), INT64_MIN);
  EXPECT_EQ(ReduceOne<int64_t>(DType::kI64, ReduceOp::kAvg,
                               {INT64_MAX, INT64_MAX, -1}),
            INT64_MAX / 3 * 2);
}

// 2048 + 1 is no binary16, so a sum in binary16 would lose both ones.
TEST(ReduceTest, HalfSumsAreKeptInSinglePrecisionAndRoundedOnce) {
  const uint16_t big = FloatToHalf(2048), one = FloatToHalf(1);
  EXPECT_EQ(HalfToFloat(ReduceOne<uint16_t>(DType::kF16, ReduceOp::kSum,
                                            {big, one, one})),
            2050);
  const uint16_t wide = FloatToBfloat16(256);
  EXPECT_EQ(Bfloat16ToFloat(ReduceOne<uint16_t>(
                DType::kBF16, ReduceOp::kSum,
                {wide, FloatToBfloat16(1), FloatToBfloat16(1)})),
            258);
}

TEST(ReduceTest, SumsAreTakenInTheOrderOfTheTree) {
  const float big = 0x1p24f;
  EXPECT_EQ(ReduceOne<float>(DType::kF32, ReduceOp::kSum, {big, 1, 1}), big);
  EXPECT_EQ(ReduceOne<float>(DType::kF32, ReduceOp::kSum, {1, 1, big}),
            big + 2);
  for (const uint64_t count : {1, 16, 63, 64, 65, 300}) {
    for (int num_inputs = 1; num_inputs <= 40; ++num_inputs) {
      const RandomFloats floats(num_inputs, count);
      std::vector<float> result(count);
      Reduce(DType::kF32, floats.SumTo(result.data()));
      EXPECT_EQ(result, floats.sums()) << num_inputs << " x " << count;
    }
  }
}

TEST(ReduceTest, NodesOfTheTreeAreBlocksAndWhatEndsTheGroup) {
  for (uint32_t size = 1; size <= 40; ++size) {
    std::set<std::pair<uint32_t, uint32_t>> nodes;
    std::vector<std::pair<uint32_t, uint32_t>> left = {{0, size}};
    while (!left.empty()) {
      const auto [lo, hi] = left.back();
      left.pop_back();
      nodes.insert({lo, hi});
      if (hi - lo == 1) continue;
      uint32_t half = 1;
      while (2 * half < hi - lo) half *= 2;
      left.push_back({lo, lo + half});
      left.push_back({lo + half, hi});
    }
    for (uint32_t lo = 0; lo <= size; ++lo) {
      for (uint32_t hi = 0; hi <= size + 1; ++hi) {
        EXPECT_EQ(IsTreeNode(lo, hi, size), nodes.count({lo, hi}) == 1)
            << "[" << lo << ", " << hi << ") of " << size;
      }
    }
  }
}

TEST(ReduceTest, WhoeverHasANodeMaySumItUp) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomGroup group(seed);
    ASSERT_EQ(group.SumOfRandomPieces(), group.Sum()) << group;
  }
}

TEST(ReduceTest, TheResultMayReplaceAnyInput) {
  for (int replaced = 0; replaced < 6; ++replaced) {
    RandomFloats floats(6, 300);
    Reduce(DType::kF32, floats.SumTo(floats.input(replaced).data()));
    EXPECT_EQ(floats.input(replaced), floats.sums()) << replaced;
  }
}

TEST(ReduceTest, WhatIsNextMayNotBeThereAndChangesNothing) {
  const RandomFloats floats(5, 300);
  const std::vector<const void*> nowhere(5, nullptr);
  std::vector<float> result(300);
  Reduction reduction = floats.SumTo(result.data());
  reduction.next_inputs = nowhere.data();
  Reduce(DType::kF32, reduction);
  EXPECT_EQ(result, floats.sums());
}

TEST(ReduceTest, AveragesMultiplyByTheReciprocal) {
  EXPECT_EQ(ReduceOne<float>(DType::kF32, ReduceOp::kAvg, {1, 2, 4}),
            7.0f * (1.0f / 3.0f));
  EXPECT_EQ(ReduceOne<double>(DType::kF64, ReduceOp::kAvg, {1, 2, 4}),
            7.0 * (1.0 / 3.0));
}

TEST(ReduceTest, BitsOfIntegersAreCombinedOneByOne) {
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kU8, ReduceOp::kBand, {0x3f, 0xf5, 0x9d}),
            0x15);
  EXPECT_EQ(ReduceOne<int8_t>(DType::kI8, ReduceOp::kBor, {-128, 1, 4}), -123);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kI32, ReduceOp::kBxor,
                               {0x70605040, 0x01020304, 0x00ff00ff}),
            0x719d53bb);
  EXPECT_EQ(ReduceOne<int64_t>(DType::kI64, ReduceOp::kBor,
                               {INT64_MIN, int64_t{1} << 40, 0}),
            INT64_MIN + (int64_t{1} << 40));
}

// One that rounds the sum only, or fuses product and sum, has other bits.
TEST(ReduceTest, AScaleMultipliesEachInputAndTheProductIsRounded) {
  const auto scaled = [](float value) {
    volatile float product = value * 0.1f;
    return product;
  };
  for (const float a : {1.0f, 3.3f, 5.7f, 1e-3f}) {
    for (const float b : {7.0f, -3.1f, 0.3f}) {
      EXPECT_EQ(
          ReduceOne<float>(DType::kF32, ReduceOp::kPremulSum, {a, b}, 0.1),
          scaled(a) + scaled(b))
          << a << " " << b;
    }
  }
  EXPECT_EQ(ReduceOne<float>(DType::kF32, ReduceOp::kPremulSum, {3}, 0.1),
            scaled(3));
  EXPECT_EQ(ReduceOne<double>(DType::kF64, ReduceOp::kPremulSum, {3, 5}, 0.1),
            3 * 0.1 + 5 * 0.1);
}

// 0.1 has other bits as binary16: the product is of the fp32 that is nearest.
TEST(ReduceTest, AScaleOf16BitTypesIsAnFp32AndTheSumIsRoundedOnce) {
  const std::vector<float> values = {1000, 3, 77};
  std::vector<uint16_t> halves, brains;
  for (const float value : values) {
    halves.push_back(FloatToHalf(value));
    brains.push_back(FloatToBfloat16(value));
  }
  const float sum = (1000 * 0.1f + 3 * 0.1f) + 77 * 0.1f;
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kF16, ReduceOp::kPremulSum, halves, 0.1),
            FloatToHalf(sum));
  EXPECT_EQ(
      ReduceOne<uint16_t>(DType::kBF16, ReduceOp::kPremulSum, brains, 0.1),
      FloatToBfloat16(sum));
}

// Vector bodies and scalar tails give the same.
TEST(ReduceTest, TheSameAtEveryPlaceInABlock) {
  for (int d = 0; d < kNumComputedDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    constexpr uint64_t kCount = 67;
    const auto bytes = static_cast<uint64_t>(DTypeSize(dtype));
    std::vector<unsigned char> a(kCount * bytes), b(kCount * bytes);
    for (size_t i = 0; i < a.size(); ++i) {  // Every element the same.
      a[i] = static_cast<unsigned char>(0x31 + i % bytes);
      b[i] = static_cast<unsigned char>(0x3a + i % bytes);
    }
    const void* const inputs[] = {a.data(), b.data()};
    std::vector<unsigned char> result(kCount * bytes);
    for (int o = 0; o < kNumReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (!IsReducible(dtype, op)) continue;
      Reduction reduction;
      reduction.op = op;
      reduction.num_inputs = 2;
      reduction.inputs = inputs;
      reduction.result = result.data();
      reduction.count = kCount;
      Reduce(dtype, reduction);
      for (size_t i = bytes; i < result.size(); ++i) {
        ASSERT_EQ(result[i], result[i % bytes])
            << DTypeName(dtype) << " " << ReduceOpName(op) << " byte " << i;
      }
    }
  }
}

}  // namespace
}  // namespace commsched
