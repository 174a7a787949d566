#include "engine/update/agreed_values.h"

#include <bit>
#include <charconv>
#include <cstdint>

namespace commsched::engine {
namespace {

// In the sign of `second`, which is never negative.
constexpr uint64_t kHasCome = uint64_t{1} << 31;

struct Pair {
  float first, second;
};

Pair Unpacked(double number) {
  const uint64_t bits = std::bit_cast<uint64_t>(number);
  return {std::bit_cast<float>(static_cast<uint32_t>(bits >> 32)),
          std::bit_cast<float>(static_cast<uint32_t>(bits & ~kHasCome))};
}

// "0.5": the fewest digits that tell it from other floats.
std::string TextOfFloat(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

std::string NameOfPair(size_t index, bool second) {
  if (index == 0) return second ? "clip_norm" : "lr";
  const size_t set = (index - 1) / 2;
  const bool betas = index % 2 == 0;
  const char* name = second ? "decay" : "lr_scale";
  if (betas) name = second ? "beta2" : "beta1";
  return std::string(name) + " of option set " + std::to_string(set);
}

}  // namespace

// The first is finite, so that the number is, too.
double PairOf(float first, float second) {
  const auto bits_of = [](float value) {
    return uint64_t{std::bit_cast<uint32_t>(value == 0 ? 0.0f : value)};
  };
  return std::bit_cast<double>(bits_of(first) << 32 | kHasCome |
                               bits_of(second));
}

void SetAgreedValues(const commsched_engine_update_args_t& args,
                     std::vector<double>* out) {
  (*out)[0] = PairOf(args.lr, args.clip_norm);
  for (size_t i = 1; i < out->size(); i += 2) {
    // None given: another step than with any, since a set has a scale.
    commsched_option_values_t set = {};
    if (args.num_sets > 0) set = args.sets[(i - 1) / 2];
    (*out)[i] = PairOf(set.lr_scale, set.decay);
    (*out)[i + 1] = PairOf(set.beta1, set.beta2);
  }
}

Difference DifferenceAt(size_t index, double first, double other) {
  const Pair a = Unpacked(first);
  const Pair b = Unpacked(other);
  const bool second = a.first == b.first;
  return {.name = NameOfPair(index, second),
          .of_first = TextOfFloat(second ? a.second : a.first),
          .of_other = TextOfFloat(second ? b.second : b.first)};
}

}  // namespace commsched::engine
