// Runs the fuzz entry on its corpus and on random mutations of it, so that
// every build exercises it without a fuzzer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/fuzz/graph_json_fuzz.h"
#include "test/support/property.h"

namespace commsched {
namespace {

std::vector<std::string> Corpus() {
  const std::filesystem::path folder =
      std::filesystem::path(COMMSCHED_FUZZ_CORPUS) / "graph_json";
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
  }
  return texts;
}

void RunOnce(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()),
                         text.size());
}

// Overwrites, inserts, erases or copies a few bytes, from the text itself as
// often as not, so that many mutations stay JSON.
void Mutate(std::mt19937_64& random, std::string& text) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t i = 0, n = below(4) + 1; i < n; ++i) {
    const size_t at = below(text.size() + 1);
    const size_t length = std::min(below(12), text.size() - at);
    const size_t source = below(text.size() + 1);
    switch (below(4)) {
      case 0:
        text.replace(at, length, text.substr(source, below(24)));
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(random()));
        break;
      case 2:
        text.erase(at, length);
        break;
      default:
        text.insert(at, text.substr(source, below(200)));
        break;
    }
  }
}

TEST(GraphJsonFuzzTest, CorpusIsHandled) {
  const auto corpus = Corpus();
  EXPECT_GE(corpus.size(), 5u);
  for (const std::string& text : corpus) RunOnce(text);
}

TEST(GraphJsonFuzzTest, MutationsOfTheCorpusAreHandled) {
  const auto corpus = Corpus();
  ASSERT_FALSE(corpus.empty());
  for (int i = 0, n = test::PropertyCases(20000); i < n; ++i) {
    const uint64_t seed = test::PropertySeed() + i;
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    std::string text = corpus[random() % corpus.size()];
    Mutate(random, text);
    RunOnce(text);
  }
}

}  // namespace
}  // namespace commsched
