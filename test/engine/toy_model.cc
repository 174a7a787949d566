#include "test/engine/toy_model.h"

#include <algorithm>
#include <numeric>

namespace commsched::engine {

namespace {

// Uniform in [-1, 1), from a mixed hash of the coordinates.
float Noise(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t z = a * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + c;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
}

}  // namespace

uint64_t ToyParameter::count() const {
  return std::accumulate(dims.begin(), dims.end(), uint64_t{1},
                         std::multiplies<>());
}

const std::vector<ToyParameter>& ToyParameters() {
  // Registered in another order than that of first use.
  static const auto& parameters = *new std::vector<ToyParameter>{
      {"head.norm", {17}, 3},         {"embed.weight", {50, 33}, 0},
      {"block0.weight", {64, 64}, 1}, {"block0.bias", {64}, 1},
      {"block1.weight", {300, 7}, 2}, {"block1.bias", {7}, 2},
  };
  return parameters;
}

const std::vector<ToyModule>& ToyModules() {
  static const auto& modules = *new std::vector<ToyModule>{
      {"embed", {1}}, {"block0", {2, 3}}, {"block1", {4, 5}}, {"head", {0, 1}}};
  return modules;
}

float ToyInitialValue(uint32_t parameter, uint64_t index) {
  return Noise(parameter, index, 1);
}

float ToyGradient(const ToyPlace& place, uint64_t index, float value) {
  const uint64_t where = (((uint64_t{place.step} * 8 + place.micro_batch) * 8 +
                           static_cast<uint64_t>(place.rank)) *
                              8 +
                          place.module) *
                             8 +
                         place.parameter;
  return 0.05f * value + 0.1f * Noise(where, index, 7);
}

bool ToyRun::Recomputes(uint32_t module) const {
  return std::any_of(recomputed.begin(), recomputed.end(), [&](auto& each) {
    return each.first <= module && module <= each.second;
  });
}

size_t ToyRun::SegmentBegin(const std::vector<uint32_t>& order,
                            size_t end) const {
  for (const auto& [first, last] : recomputed) {
    size_t begin = end;
    while (begin > 0 && first <= order[begin - 1] && order[begin - 1] <= last) {
      --begin;
    }
    if (begin < end) return begin;
  }
  return end - 1;
}

std::vector<uint32_t> ToyRun::Order(uint32_t step) const {
  return order == nullptr ? std::vector<uint32_t>{0, 1, 2, 3} : order(step);
}

}  // namespace commsched::engine
