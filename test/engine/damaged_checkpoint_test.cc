// Checkpoints whose files are not what was written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/format/checkpoint_index.h"
#include "test/engine/messages.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"
#include "test/support/property.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What loading into one rank says. The weights of the engine are not touched.
std::string LoadIntoOneRank(const std::string& folder) {
  return OnRanks(ToyRunOf(1, 1), [&](ToyRank& toy, int32_t) {
    if (std::string m = toy.Build(); !m.empty()) return m;
    std::vector<float> before;
    if (std::string m = toy.Weights(&before); !m.empty()) return m;
    CheckpointHandle checkpoint;
    std::string message = OpenToyCheckpoint(folder, &checkpoint);
    if (message.empty() &&
        commsched_engine_checkpoint_load(checkpoint.get(), toy.engine()) != 0) {
      message = LastError();
    }
    std::vector<float> after;
    if (std::string m = toy.Weights(&after); !m.empty()) return m;
    EXPECT_EQ(message.empty(), !SameBits(before, after));
    return message;
  });
}

class DamagedCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(SaveToy(folder_.path(), ToyRunOf(2, 2)), "");
  }

  std::string PathOf(const std::string& name) const {
    return folder_.path() + "/" + name;
  }

  const TemporaryFolder folder_;
};

TEST_F(DamagedCheckpointTest, AnyChangedByteIsNoticedAndNamesTheFile) {
  const std::vector<float> content = ContentOf(folder_.path());
  const std::vector<std::string> names = folder_.Names();
  const int cases = test::PropertyCases(200);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const std::string& name = names[random() % names.size()];
    const std::string original = ReadFile(PathOf(name));
    std::string changed = original;
    const size_t at = random() % changed.size();
    changed[at] = static_cast<char>(changed[at] ^ (1 + random() % 255));
    WriteFile(PathOf(name), changed);
    const std::string message = LoadIntoOneRank(folder_.path());
    if (name == kIndexName && message.empty()) {
      // One kind of white space for another.
      EXPECT_TRUE(SameBits(ContentOf(folder_.path()), content)) << "at " << at;
    } else {
      EXPECT_THAT(message, HasSubstr(name)) << "at " << at;
    }
    WriteFile(PathOf(name), original);
  }
}

TEST_F(DamagedCheckpointTest, AFileThatIsCutOffIsNoticed) {
  const int cases = test::PropertyCases(100);
  const std::vector<std::string> names = folder_.Names();
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(test::DescribeSeed(seed));
    std::mt19937_64 random(seed);
    const std::string& name = names[random() % names.size()];
    const std::string original = ReadFile(PathOf(name));
    // The index ends in a newline, which it can do without.
    WriteFile(PathOf(name),
              original.substr(0, random() % (original.size() - 1)));
    EXPECT_THAT(LoadIntoOneRank(folder_.path()), HasSubstr(name));
    WriteFile(PathOf(name), original);
  }
}

TEST_F(DamagedCheckpointTest, AMissingFileIsNamed) {
  const std::string name = folder_.Names()[2];
  std::filesystem::remove(PathOf(name));
  EXPECT_THAT(LoadIntoOneRank(folder_.path()),
              AllOf(HasSubstr(name), HasSubstr("No such file")));
}

TEST_F(DamagedCheckpointTest, FilesInEachOthersPlaceAreNoticed) {
  const std::vector<std::string> names = folder_.Names();
  std::filesystem::rename(PathOf(names[1]), PathOf("x"));
  std::filesystem::rename(PathOf(names[2]), PathOf(names[1]));
  std::filesystem::rename(PathOf("x"), PathOf(names[2]));
  EXPECT_THAT(LoadIntoOneRank(folder_.path()), HasSubstr(names[1]));
}

TEST_F(DamagedCheckpointTest, FilesOfAnotherSaveAreNoticed) {
  const TemporaryFolder other;
  ToyStretch stretch;
  stretch.run = ToyRunOf(2, 2);
  stretch.load = folder_.path();
  stretch.end = 3;
  stretch.run.engine.weight_decay = 0;
  stretch.save = other.path();
  stretch.name = "other";
  ASSERT_EQ(TrainToy(stretch), "");
  std::filesystem::copy_file(other.path() + "/" + other.Names()[1],
                             PathOf(folder_.Names()[1]),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(LoadIntoOneRank(folder_.path()), HasSubstr(folder_.Names()[1]));
}

TEST_F(DamagedCheckpointTest, AnotherFormatIsRefused) {
  std::string text = ReadFile(PathOf(kIndexName));
  const size_t at = text.find("commsched-checkpoint/1");
  ASSERT_NE(at, std::string::npos);
  WriteFile(PathOf(kIndexName), text.replace(at, 22, "commsched-checkpoint/2"));
  EXPECT_THAT(LoadIntoOneRank(folder_.path()),
              AllOf(HasSubstr(kIndexName), HasSubstr("checkpoint/2"),
                    HasSubstr("it must be 'commsched-checkpoint/1'")));
}

TEST_F(DamagedCheckpointTest, AnIndexThatMeansSomethingElseIsNoticed) {
  std::string text = ReadFile(PathOf(kIndexName));
  const std::string stage = "\"zero_stage\": 2";
  const size_t at = text.find(stage);
  ASSERT_NE(at, std::string::npos);
  text[at + stage.size() - 1] = '1';
  WriteFile(PathOf(kIndexName), text);
  EXPECT_THAT(LoadIntoOneRank(folder_.path()),
              AllOf(HasSubstr(kIndexName), HasSubstr("its checksum is")));
}

TEST_F(DamagedCheckpointTest, AFileThatIsNoFileIsRefused) {
  const std::string name = folder_.Names()[1];
  std::filesystem::remove(PathOf(name));
  std::filesystem::create_directory(PathOf(name));
  EXPECT_THAT(LoadIntoOneRank(folder_.path()),
              AllOf(HasSubstr(name), HasSubstr("regular file")));
}

}  // namespace
}  // namespace commsched::engine
