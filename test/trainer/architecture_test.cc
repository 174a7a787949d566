#include "examples/trainer/architecture.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Architecture Preset(absl::string_view name) {
  return BuildArchitecture(PresetOf(name)->config);
}

int64_t CountElements(const Architecture& architecture) {
  int64_t count = 0;
  for (const ParameterSpec& spec : architecture.parameters) count += spec.count;
  return count;
}

// C (V + T + 2) + L (12 C^2 + 13 C), worked out by hand.
TEST(ArchitectureTest, PresetsHaveTheirParameterCounts) {
  EXPECT_EQ(CountElements(Preset("nano")), 842'496);
  EXPECT_EQ(CountElements(Preset("mini")), 10'795'008);
  EXPECT_EQ(CountElements(Preset("small")), 85'350'912);
}

TEST(ArchitectureTest, ParametersAreHuggingFaces) {
  GptConfig config = PresetOf("nano")->config;
  config.layers = 1;
  const Architecture architecture = BuildArchitecture(config);
  std::vector<std::string> names;
  for (const ParameterSpec& spec : architecture.parameters) {
    names.push_back(spec.name);
  }
  EXPECT_THAT(names,
              ElementsAre("wte.weight", "wpe.weight", "h.0.ln_1.weight",
                          "h.0.ln_1.bias", "h.0.attn.c_attn.weight",
                          "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight",
                          "h.0.attn.c_proj.bias", "h.0.ln_2.weight",
                          "h.0.ln_2.bias", "h.0.mlp.c_fc.weight",
                          "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight",
                          "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"));
  EXPECT_THAT(architecture.parameters[4].shape, ElementsAre(128, 384));
}

TEST(ArchitectureTest, ModulesAreInOrderOfFirstUse) {
  GptConfig config = PresetOf("nano")->config;
  config.layers = 2;
  std::vector<std::string> names;
  for (const ModuleSpec& module : BuildArchitecture(config).modules) {
    names.push_back(module.name);
  }
  EXPECT_THAT(names, ElementsAre("embed", "h.0.attn", "h.0.mlp", "h.1.attn",
                                 "h.1.mlp", "head"));
}

TEST(ArchitectureTest, EveryParameterHasOneOwner) {
  const Architecture architecture = Preset("mini");
  std::set<int> owned;
  for (size_t m = 0; m < architecture.modules.size(); ++m) {
    for (int i : architecture.modules[m].owned) {
      EXPECT_TRUE(owned.insert(i).second) << "parameter " << i;
      EXPECT_EQ(architecture.parameters[i].module, static_cast<int>(m));
    }
  }
  EXPECT_EQ(owned.size(), architecture.parameters.size());
}

TEST(ArchitectureTest, TheHeadUsesTheTiedEmbedding) {
  const Architecture architecture = Preset("nano");
  const ModuleSpec& head = architecture.modules[architecture.head_module()];
  ASSERT_EQ(head.owned.size(), 2u);
  EXPECT_THAT(head.used, ElementsAre(head.owned[0], head.owned[1], 0));
  EXPECT_EQ(architecture.parameters[0].name, "wte.weight");
}

TEST(ArchitectureTest, OnlyMatricesDecay) {
  for (const ParameterSpec& spec : Preset("nano").parameters) {
    const bool is_matrix = spec.name.find("ln_") == std::string::npos &&
                           spec.name.find("bias") == std::string::npos;
    EXPECT_EQ(spec.decays(), is_matrix) << spec.name;
  }
}

TEST(ArchitectureTest, FlopsAreSixPerWeightAndTokenPlusAttention) {
  const Architecture architecture = Preset("nano");
  int64_t total = 0;
  for (int m = 0; m <= architecture.head_module(); ++m) {
    const ModuleFlops flops = CountFlops(architecture, m, 3, 128);
    total += flops.forward + flops.backward;
  }
  const int64_t rows = 3 * 128;
  const int64_t matrix_weights = 4 * 12 * 128 * 128 + 256 * 128;
  const int64_t seen_pairs = 3 * 128 * 129 / 2;
  EXPECT_EQ(total, 6 * rows * matrix_weights + 4 * 12 * seen_pairs * 128);
}

TEST(InitializeParameterTest, FollowsGpt2) {
  for (const ParameterSpec& spec : Preset("nano").parameters) {
    std::vector<float> values(spec.count);
    InitializeRange(spec, 42, 0, spec.count, values.data());
    double sum = 0;
    double squares = 0;
    for (double value : values) {
      sum += value;
      squares += value * value;
    }
    const double mean = sum / static_cast<double>(spec.count);
    const double deviation =
        std::sqrt(squares / static_cast<double>(spec.count) - mean * mean);
    const bool is_norm = spec.name.find("ln_") != std::string::npos &&
                         spec.name.find("weight") != std::string::npos;
    const bool is_residual =
        spec.name.find("c_proj.weight") != std::string::npos;
    double expected = spec.decays() ? 0.02 : 0;
    if (is_residual) expected /= std::sqrt(8.0);
    EXPECT_NEAR(mean, is_norm ? 1 : 0, 5e-4) << spec.name;
    EXPECT_NEAR(deviation, expected, 0.03 * expected) << spec.name;
  }
}

TEST(InitializeParameterTest, IsTheSameFilledPieceByPiece) {
  for (const ParameterSpec& spec : Preset("nano").parameters) {
    std::vector<float> whole(spec.count);
    InitializeRange(spec, 42, 0, spec.count, whole.data());
    std::vector<float> pieces(spec.count);
    const int64_t cut = spec.count / 3;
    InitializeRange(spec, 42, cut, spec.count - cut, pieces.data() + cut);
    InitializeRange(spec, 42, 0, cut, pieces.data());
    EXPECT_EQ(pieces, whole) << spec.name;
  }
}

TEST(InitializeParameterTest, DependsOnSeedAndName) {
  ParameterSpec spec = Preset("nano").parameters[1];
  std::vector<float> a(spec.count);
  std::vector<float> b(spec.count);
  InitializeRange(spec, 1, 0, spec.count, a.data());
  InitializeRange(spec, 1, 0, spec.count, b.data());
  EXPECT_EQ(a, b);
  InitializeRange(spec, 2, 0, spec.count, b.data());
  EXPECT_NE(a, b);
  spec.name = "another";
  InitializeRange(spec, 1, 0, spec.count, b.data());
  EXPECT_NE(a, b);
}

TEST(ConfigTest, UnknownPresetListsThePresets) {
  const absl::Status status = PresetOf("huge").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'huge'"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nano, mini and small"));
}

TEST(ConfigTest, PresetsAreValid) {
  for (const char* name : {"nano", "mini", "small"}) {
    EXPECT_TRUE(ValidateConfig(PresetOf(name)->config).ok()) << name;
  }
}

TEST(ConfigTest, RefusalNamesFieldAndValue) {
  GptConfig config = PresetOf("nano")->config;
  config.layers = 0;
  EXPECT_THAT(std::string(ValidateConfig(config).message()),
              HasSubstr("layers is 0"));
  config = PresetOf("nano")->config;
  config.vocab = 257;
  EXPECT_THAT(std::string(ValidateConfig(config).message()),
              HasSubstr("vocab is 257"));
  config = PresetOf("nano")->config;
  config.heads = 3;
  EXPECT_THAT(std::string(ValidateConfig(config).message()),
              HasSubstr("channels is 128; it must be a multiple of heads, 3"));
}

}  // namespace
}  // namespace commsched::trainer
