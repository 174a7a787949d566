// Runs every fuzz entry on its corpus and on random mutations of it, so that
// every build exercises it without a fuzzer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/fuzz/entries.h"
#include "test/support/property.h"

namespace commsched::test {
namespace {

struct Parser {
  const char* name;  // of its folder of the corpus
  FuzzEntry entry;
  int mutations;
};

std::ostream& operator<<(std::ostream& out, const Parser& parser) {
  return out << parser.name;
}

std::vector<std::string> CorpusOf(const Parser& parser) {
  const std::filesystem::path folder =
      std::filesystem::path(COMMSCHED_FUZZ_CORPUS) / parser.name;
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

size_t RunOnce(const Parser& parser, const std::string& text) {
  return parser.entry(reinterpret_cast<const uint8_t*>(text.data()),
                      text.size());
}

// Overwrites, inserts, erases or copies a few bytes, from the text itself as
// often as not, so that many mutations keep its form.
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

class FuzzReplayTest : public testing::TestWithParam<Parser> {};

TEST_P(FuzzReplayTest, TheCorpusIsHandledAndGetsSomewhere) {
  const auto corpus = CorpusOf(GetParam());
  EXPECT_GE(corpus.size(), 5u);
  size_t accepted = 0;
  for (const std::string& text : corpus) accepted += RunOnce(GetParam(), text);
  EXPECT_GT(accepted, 0u);
}

TEST_P(FuzzReplayTest, MutationsOfTheCorpusAreHandled) {
  const auto corpus = CorpusOf(GetParam());
  ASSERT_FALSE(corpus.empty());
  const int cases = PropertyCases(GetParam().mutations);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = PropertySeed() + i;
    SCOPED_TRACE(DescribeSeed(seed));
    std::mt19937_64 random(seed);
    std::string text = corpus[random() % corpus.size()];
    Mutate(random, text);
    RunOnce(GetParam(), text);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parsers, FuzzReplayTest,
    testing::Values(Parser{"checkpoint_index", FuzzCheckpointIndex, 20000},
                    Parser{"control_hub", FuzzControlHub, 20000},
                    Parser{"control_messages", FuzzControlMessages, 20000},
                    Parser{"environment", FuzzEnvironment, 20000},
                    Parser{"flight_record", FuzzFlightRecord, 1000},
                    Parser{"graph_json", FuzzGraphJson, 20000},
                    Parser{"link_profile", FuzzLinkProfile, 20000},
                    Parser{"plan_structs", FuzzPlanStructs, 5000},
                    Parser{"plugin_tables", FuzzPluginTables, 20000},
                    Parser{"safetensors", FuzzSafetensors, 20000}),
    [](const auto& info) { return std::string(info.param.name); });

#ifdef COMMSCHED_FUZZ_TRAINER
INSTANTIATE_TEST_SUITE_P(
    Trainer, FuzzReplayTest,
    testing::Values(Parser{"trainer_options", FuzzTrainerOptions, 1000}),
    [](const auto& info) { return std::string(info.param.name); });
#endif

}  // namespace
}  // namespace commsched::test
