#include "examples/trainer/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace commsched::trainer {
namespace {

using ::testing::HasSubstr;

TEST(GptConfigTextTest, IsReadBackAsItWasWritten) {
  const GptConfig config = {
      .context = 64, .layers = 3, .heads = 6, .channels = 48, .kv_heads = 2};
  const auto read = ParseConfig(FormatConfig(config));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(FormatConfig(*read), FormatConfig(config));
  EXPECT_EQ(read->num_kv_heads(), 2);
}

TEST(GptConfigTextTest, AnythingElseIsRefused) {
  const std::string good = FormatConfig(PresetOf("nano")->config);
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), good.substr(1),
        good.substr(0, good.size() - 1),
        std::string(R"({"vocab":256,"context":1,"layers":1,"heads":"4",)"
                    R"("channels":128,"kv_heads":0})"),
        std::string(R"({"vocab":256,"context":1,"layers":1,"heads":3,)"
                    R"("channels":128,"kv_heads":0})")}) {
    EXPECT_EQ(ParseConfig(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(HuggingFaceConfigTest, HasTheSizesOfTheModel) {
  GptConfig config = PresetOf("mini")->config;
  config.context = 512;
  const auto text = HuggingFaceConfig(config);
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json json = nlohmann::json::parse(*text);
  EXPECT_EQ(json["model_type"], "gpt2");
  EXPECT_EQ(json["vocab_size"], 256);
  EXPECT_EQ(json["n_positions"], 512);
  EXPECT_EQ(json["n_layer"], 6);
  EXPECT_EQ(json["n_head"], 6);
  EXPECT_EQ(json["n_embd"], 384);
  EXPECT_EQ(json["activation_function"], "gelu_new");
}

TEST(HuggingFaceConfigTest, GroupedQueriesHaveNoneAndAreNamed) {
  GptConfig config = PresetOf("nano")->config;
  config.kv_heads = 4;  // One each.
  EXPECT_TRUE(HuggingFaceConfig(config).ok());
  config.kv_heads = 2;
  const auto text = HuggingFaceConfig(config);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("--kv-heads"));
}

}  // namespace
}  // namespace commsched::trainer
