// What a checkpoint brings back, through the C ABI.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/format/safetensors.h"
#include "test/engine/messages.h"
#include "test/engine/ranks_in_name.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"

namespace commsched::engine {
namespace {

using ::testing::Combine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Values;

using Weights = std::vector<std::vector<float>>;

// (ranks, ZeRO stage)
class CheckpointResumeTest
    : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  ToyRun Run() const {
    return ToyRunOf(std::get<0>(GetParam()),
                    static_cast<uint32_t>(std::get<1>(GetParam())));
  }
};

TEST_P(CheckpointResumeTest, HalfAndHalfIsTheWholeToTheBit) {
  ToyStretch stretch;
  stretch.run = Run();
  stretch.end = 6;
  Weights whole;
  ASSERT_EQ(TrainToy(stretch, &whole), "");
  const TemporaryFolder folder;
  stretch.end = 3;
  stretch.save = folder.path();
  ASSERT_EQ(TrainToy(stretch), "");
  stretch.end = 6;
  stretch.save.clear();
  stretch.load = folder.path();
  Weights resumed;
  ASSERT_EQ(TrainToy(stretch, &resumed), "");
  for (size_t rank = 0; rank < whole.size(); ++rank) {
    EXPECT_TRUE(SameBits(resumed[rank], whole[rank])) << "rank " << rank;
  }
}

TEST_P(CheckpointResumeTest, SavingChangesNothing) {
  ToyStretch stretch;
  stretch.run = Run();
  stretch.end = 4;
  Weights plain;
  ASSERT_EQ(TrainToy(stretch, &plain), "");
  const TemporaryFolder folder;
  stretch.save = folder.path();
  stretch.save_every = 1;
  Weights saved;
  ASSERT_EQ(TrainToy(stretch, &saved), "");
  EXPECT_TRUE(SameBits(saved[0], plain[0]));
  // Of four checkpoints the last is left.
  EXPECT_EQ(folder.Names().size(), plain.size() + 1);
}

TEST_P(CheckpointResumeTest, AnyOtherShapeOfTheJobLoadsTheSameBits) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), Run()), "");
  const std::vector<float> expected = ContentOf(folder.path());
  for (int32_t ranks : {1, 3}) {
    for (uint32_t stage : {0u, 1u, 2u, 3u}) {
      for (uint64_t bucket_bytes : {1024u, 1u << 20}) {
        ToyStretch stretch;
        stretch.run = ToyRunOf(ranks, stage, bucket_bytes);
        if (stage == 3) stretch.run.options.persist_below = 300;
        stretch.load = folder.path();
        stretch.end = 3;
        const TemporaryFolder again;
        stretch.save = again.path();
        ASSERT_EQ(TrainToy(stretch), "");
        EXPECT_TRUE(SameBits(ContentOf(again.path()), expected))
            << ranks << " ranks, stage " << stage << ", bucket "
            << bucket_bytes;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RanksAndStages, CheckpointResumeTest,
                         Combine(Values(1, 2, 3, 4), Values(0, 1, 2, 3)),
                         RanksInName());

// I4 over a change of stage and bucket size.
TEST(CheckpointTest, AnotherStageGoesOnWithTheSameBits) {
  ToyStretch stretch;
  stretch.run = ToyRunOf(3, 0);
  stretch.end = 6;
  Weights whole;
  ASSERT_EQ(TrainToy(stretch, &whole), "");
  for (uint32_t from : {0u, 1u, 2u, 3u}) {
    for (uint32_t to : {0u, 1u, 2u, 3u}) {
      const TemporaryFolder folder;
      ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(3, from)), "");
      stretch.run = ToyRunOf(3, to, 1024);
      stretch.load = folder.path();
      Weights resumed;
      ASSERT_EQ(TrainToy(stretch, &resumed), "");
      EXPECT_TRUE(SameBits(resumed[0], whole[0])) << from << " to " << to;
    }
  }
}

TEST(CheckpointTest, TheFilesAreOnePerRankAndAnIndex) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveToy(folder.path(), ToyRunOf(2, 2)), "");
  EXPECT_THAT(folder.Names(),
              ElementsAre("index.json",
                          "step-00000003-run-rank-00000-of-00002.safetensors",
                          "step-00000003-run-rank-00001-of-00002.safetensors"));
}

TEST(CheckpointTest, MetadataAndFiguresComeBack) {
  const TemporaryFolder folder;
  const std::string message =
      OnRanks(ToyRunOf(2, 3), [&](ToyRank& toy, int32_t) {
        if (std::string m = toy.Build(); !m.empty()) return m;
        SaverHandle saver;
        if (std::string m = CreateToySaver(toy, folder.path(), "r_1", &saver);
            !m.empty()) {
          return m;
        }
        const commsched_engine_metadata_t metadata[] = {{"seed", "7"},
                                                        {"text \"q\"", "\n"}};
        EXPECT_EQ(commsched_engine_saver_save(saver.get(), metadata, 2), 0);
        EXPECT_EQ(commsched_engine_saver_wait(saver.get()), 0);
        return std::string();
      });
  ASSERT_EQ(message, "");
  CheckpointHandle checkpoint;
  ASSERT_EQ(OpenToyCheckpoint(folder.path(), &checkpoint), "");
  EXPECT_STREQ(commsched_engine_checkpoint_metadata(checkpoint.get(), "seed"),
               "7");
  EXPECT_STREQ(
      commsched_engine_checkpoint_metadata(checkpoint.get(), "text \"q\""),
      "\n");
  EXPECT_EQ(commsched_engine_checkpoint_metadata(checkpoint.get(), "no"),
            nullptr);
  auto info = commsched_engine_checkpoint_info_init();
  ASSERT_EQ(commsched_engine_checkpoint_get_info(checkpoint.get(), &info), 0);
  EXPECT_EQ(info.step, 0u);
  EXPECT_EQ(info.num_ranks, 2u);
  EXPECT_EQ(info.zero_stage, 3u);
  EXPECT_EQ(info.num_tensors, ToyParameters().size());
}

TEST(CheckpointTest, AnExportIsOneFileWithNamesShapesAndValues) {
  const TemporaryFolder folder;
  ToyStretch stretch;
  stretch.run = ToyRunOf(3, 3, 1024);
  stretch.end = 2;
  stretch.save = folder.path();
  Weights weights;
  ASSERT_EQ(TrainToy(stretch, &weights), "");
  CheckpointHandle checkpoint;
  ASSERT_EQ(OpenToyCheckpoint(folder.path(), &checkpoint), "");
  const std::string path = folder.path() + "/merged.safetensors";
  ASSERT_EQ(commsched_engine_checkpoint_export(checkpoint.get(), path.c_str()),
            0);
  const std::string file = ReadFile(path);
  uint64_t bytes = 0;
  ASSERT_TRUE(ParseHeaderLength(
                  "f", reinterpret_cast<const unsigned char*>(file.data()),
                  file.size(), &bytes)
                  .ok());
  const std::string data = file.substr(kLengthBytes + bytes);
  TensorHeader header;
  ASSERT_TRUE(
      ParseHeader("f", file.substr(kLengthBytes, bytes), data.size(), &header)
          .ok());
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.tensors.size(), ToyParameters().size());
  for (size_t p = 0; p < header.tensors.size(); ++p) {
    EXPECT_EQ(header.tensors[p].name, ToyParameters()[p].name);
    EXPECT_EQ(header.tensors[p].shape, ToyParameters()[p].dims);
    EXPECT_EQ(header.tensors[p].dtype, "F32");
  }
  std::vector<float> values(data.size() / sizeof(float));
  std::memcpy(values.data(), data.data(), data.size());
  EXPECT_TRUE(SameBits(values, weights[0]));
}

TEST(CheckpointTest, AnEmptyFolderHasNone) {
  const TemporaryFolder folder;
  CheckpointHandle checkpoint;
  EXPECT_THAT(OpenToyCheckpoint(folder.path(), &checkpoint),
              HasSubstr("no checkpoint in '" + folder.path()));
  EXPECT_THAT(OpenToyCheckpoint(folder.path() + "/absent", &checkpoint),
              HasSubstr("no checkpoint in"));
}

TEST(CheckpointModelTest, ADifferenceIsNamed) {
  const TemporaryFolder folder;
  {
    SmallEngine engine({{"a", {2, 3}}, {"b", {4}}});
    SaverHandle saver;
    ASSERT_EQ(engine.CreateSaver(folder.path().c_str(), "r", &saver), "");
    ASSERT_EQ(commsched_engine_saver_save(saver.get(), nullptr, 0), 0);
    ASSERT_EQ(commsched_engine_saver_wait(saver.get()), 0);
  }
  CheckpointHandle checkpoint;
  ASSERT_EQ(OpenToyCheckpoint(folder.path(), &checkpoint), "");
  struct Case {
    std::vector<Named> parameters;
    const char* message;
  };
  for (const Case& each : std::vector<Case>{
           {{{"a", {3, 2}}, {"b", {4}}},
            "tensor 'a' of the checkpoint has shape [2,3]; the parameter has "
            "[3,2]"},
           {{{"a", {2, 3}}}, "tensor 'b' of the checkpoint is no parameter"},
           {{{"a", {2, 3}}, {"b", {4}}, {"c", {1}}},
            "the checkpoint has no tensor 'c'"}}) {
    SmallEngine engine(each.parameters);
    EXPECT_EQ(commsched_engine_checkpoint_load(checkpoint.get(), engine.get()),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_THAT(LastError(), HasSubstr(each.message));
  }
  SmallEngine other_order({{"b", {4}}, {"a", {2, 3}}});
  EXPECT_EQ(
      commsched_engine_checkpoint_load(checkpoint.get(), other_order.get()), 0);
}

}  // namespace
}  // namespace commsched::engine
