#include "examples/trainer/matmul.h"

#include <omp.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "examples/trainer/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

std::vector<float> RandomMatrix(int64_t count, uint64_t stream) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(RandomNormal(17, stream, i));
  }
  return values;
}

float At(const Operand& m, int64_t row, int64_t col) {
  return m.transposed ? m.data[col * m.stride + row]
                      : m.data[row * m.stride + col];
}

class MatmulTest : public testing::TestWithParam<std::pair<bool, bool>> {};

TEST_P(MatmulTest, IsTheSumOfProducts) {
  const MatmulSize size = {.rows = 33, .cols = 20, .inner = 45};
  // 50 is wider than either matrix in either direction.
  const std::vector<float> a_data = RandomMatrix(50 * 50, 1);
  const std::vector<float> b_data = RandomMatrix(50 * 50, 2);
  const Operand a = {a_data.data(), 50, GetParam().first};
  const Operand b = {b_data.data(), 50, GetParam().second};
  std::vector<float> out(33 * 30, 1.0f);
  Matmul(size, a, b, {out.data(), 30, /*accumulate=*/true});
  for (int64_t r = 0; r < size.rows; ++r) {
    for (int64_t c = 0; c < size.cols; ++c) {
      double sum = 1;
      for (int64_t k = 0; k < size.inner; ++k) {
        sum += static_cast<double>(At(a, r, k)) * At(b, k, c);
      }
      EXPECT_NEAR(out[r * 30 + c], sum, 1e-4) << r << ", " << c;
    }
    for (int64_t c = size.cols; c < 30; ++c) EXPECT_EQ(out[r * 30 + c], 1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Transposes, MatmulTest,
                         testing::Values(std::pair(false, false),
                                         std::pair(false, true),
                                         std::pair(true, false),
                                         std::pair(true, true)));

TEST(MatmulThreadsTest, FourThreadsAtOnceGetTheSameBits) {
  constexpr int64_t kSize = 200;
  const std::vector<float> a = RandomMatrix(kSize * kSize, 3);
  const std::vector<float> b = RandomMatrix(kSize * kSize, 4);
  const auto product = [&] {
    std::vector<float> out(kSize * kSize);
    Matmul({kSize, kSize, kSize}, {a.data(), kSize}, {b.data(), kSize},
           {out.data(), kSize});
    return out;
  };
  const std::vector<float> alone = product();
  std::vector<int> mismatches(4);
  std::vector<std::thread> threads;
  for (int& count : mismatches) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) count += product() != alone;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(mismatches, testing::Each(0));
}

TEST(MatmulThreadsTest, UsesTheCallingThreadAlone) {
  int team = 0;
  std::thread([&] {
    const float one = 1;
    float out = 0;
    Matmul({1, 1, 1}, {&one, 1}, {&one, 1}, {&out, 1});
    team = omp_get_max_threads();
  }).join();
  EXPECT_EQ(team, 1);
}

TEST(MatmulLibraryTest, NamesLibraryAndThreads) {
  EXPECT_THAT(MatmulLibrary(),
              testing::MatchesRegex("oneDNN [0-9.]+ \\(.+\\), 1 thread.*"));
}

}  // namespace
}  // namespace commsched::trainer
