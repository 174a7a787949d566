#include "test/trainer/tensor_digest.h"

#include <cmath>

#include "examples/trainer/random.h"
#include "gtest/gtest.h"

namespace commsched::trainer {

Digest DigestOf(const std::string& name, std::span<const float> values,
                uint64_t seed, int64_t num_samples) {
  Digest digest = {.norm = 0, .projection = 0, .samples = {}};
  const uint64_t direction = StreamOf("projection " + name);
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    digest.norm += value * value;
    digest.projection += value * RandomNormal(seed, direction, i);
  }
  digest.norm = std::sqrt(digest.norm);
  const uint64_t picks = StreamOf("sample " + name);
  for (int64_t i = 0; i < num_samples; ++i) {
    digest.samples.push_back(
        values[RandomBelow(values.size(), seed, picks, i)]);
  }
  return digest;
}

void ExpectClose(const std::string& name, const Digest& actual,
                 const nlohmann::json& expected, double tolerance) {
  const double norm = expected["norm"];
  ASSERT_GT(norm, 0) << name;
  EXPECT_LE(std::abs(actual.norm - norm) / norm, tolerance) << name;
  const double projection = expected["projection"];
  EXPECT_LE(std::abs(actual.projection - projection) / norm, tolerance) << name;
  const std::vector<double> samples = expected["samples"];
  ASSERT_EQ(actual.samples.size(), samples.size()) << name;
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    error += std::pow(actual.samples[i] - samples[i], 2);
    size += std::pow(samples[i], 2);
  }
  EXPECT_GT(size, 0) << name;
  EXPECT_LE(std::sqrt(error / size), tolerance) << name;
}

}  // namespace commsched::trainer
