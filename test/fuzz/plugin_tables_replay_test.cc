#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "test/fuzz/entries.h"

namespace commsched::test {
namespace {

// A codec that is taken: one plugin, a whole table, then one byte per choice.
std::vector<uint8_t> GoodCodec() {
  std::vector<uint8_t> input = {0x10, 64, 1};  // one plugin; 128 bytes; ABI 0
  auto add = [&](std::initializer_list<int> bytes) {
    for (int byte : bytes) input.push_back(static_cast<uint8_t>(byte));
  };
  add({1, 0, 0, 0});   // dtypes: f32
  add({2, 'o', 'k'});  // name
  add({1, '1'});       // version
  add({1, 1});         // neither is NULL
  // Words: block_elements and block_bytes, then functions.
  for (int i = 0; i < 28; ++i) input.push_back(16);
  add({2});  // a codec
  return input;
}

TEST(PluginTablesFuzzTest, MutationsAreRefusedOrSound) {
  std::mt19937_64 random(20240607);
  size_t accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::vector<uint8_t> input = GoodCodec();
    // Half the time, other kinds, which do not share the codec's first word.
    if (random() % 2 == 0) input.back() = static_cast<uint8_t>(random() % 4);
    const int changes = static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      input[random() % input.size()] = static_cast<uint8_t>(random());
    }
    accepted += FuzzPluginTables(input.data(), input.size());
  }
  EXPECT_GT(accepted, 1000u);  // Else nothing behind the first check is tried.
}

TEST(PluginTablesFuzzTest, NoiseIsRefusedOrSound) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50000; ++round) {
    std::vector<uint8_t> input(random() % 600);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    FuzzPluginTables(input.data(), input.size());
  }
}

}  // namespace
}  // namespace commsched::test
