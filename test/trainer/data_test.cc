#include "examples/trainer/data.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

using testing::HasSubstr;

constexpr int64_t kSeq = 8;

// Byte i is i modulo 251, so that a window tells where it starts.
Dataset CountingText(int64_t size) {
  std::vector<uint8_t> text(size);
  for (int64_t i = 0; i < size; ++i) text[i] = static_cast<uint8_t>(i % 251);
  return Dataset(std::move(text));
}

struct Windows {
  explicit Windows(int64_t count)
      : inputs(count * kSeq), targets(count * kSeq) {}
  bool operator==(const Windows&) const = default;

  std::vector<uint8_t> inputs;
  std::vector<uint8_t> targets;
};

Windows Training(const Sampler& sampler, int64_t step, int64_t first,
                 int64_t count) {
  Windows windows(count);
  sampler.FillTraining(step, first, count, windows.inputs.data(),
                       windows.targets.data());
  return windows;
}

TEST(DatasetTest, TheLastTenthIsHeldOut) {
  const Dataset data = CountingText(1000);
  EXPECT_EQ(data.train().size(), 900u);
  EXPECT_EQ(data.validation().size(), 100u);
  EXPECT_EQ(data.validation().front(), 900 % 251);
}

TEST(DatasetTest, StaysValidWhenMoved) {
  Dataset data = CountingText(1000);
  const Dataset moved = std::move(data);
  EXPECT_EQ(moved.validation().back(), 999 % 251);
}

TEST(SamplerTest, SharingASequenceRangeOutChangesNothing) {
  const Dataset data = CountingText(5000);
  const Sampler sampler(data, kSeq, 7);
  const Windows whole = Training(sampler, 3, 0, 12);
  for (int64_t share : {1, 2, 3, 4, 6, 12}) {
    Windows joined(0);
    for (int64_t first = 0; first < 12; first += share) {
      const Windows part = Training(sampler, 3, first, share);
      joined.inputs.insert(joined.inputs.end(), part.inputs.begin(),
                           part.inputs.end());
      joined.targets.insert(joined.targets.end(), part.targets.begin(),
                            part.targets.end());
    }
    EXPECT_TRUE(joined == whole) << "in shares of " << share;
  }
}

TEST(SamplerTest, TargetsAreTheNextBytes) {
  const Dataset data = CountingText(5000);
  const Windows windows = Training(Sampler(data, kSeq, 7), 0, 0, 4);
  for (size_t i = 0; i < windows.inputs.size(); ++i) {
    EXPECT_EQ(windows.targets[i], (windows.inputs[i] + 1) % 251);
  }
}

TEST(SamplerTest, StepSequenceAndSeedEachMatter) {
  const Dataset data = CountingText(100000);
  const Sampler sampler(data, kSeq, 7);
  const Windows windows = Training(sampler, 0, 0, 8);
  EXPECT_FALSE(windows == Training(sampler, 1, 0, 8));
  EXPECT_FALSE(windows == Training(sampler, 0, 8, 8));
  EXPECT_FALSE(windows == Training(Sampler(data, kSeq, 8), 0, 0, 8));
}

// 20 bytes are 18 of training text: 10 starts. All appear; none is beyond.
TEST(SamplerTest, EveryTrainingWindowCanBeDrawn) {
  const Dataset data = CountingText(20);
  const Windows windows = Training(Sampler(data, kSeq, 7), 0, 0, 400);
  std::set<int> starts;
  for (int64_t i = 0; i < 400; ++i) starts.insert(windows.inputs[i * kSeq]);
  EXPECT_THAT(starts, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(SamplerTest, ValidationSpansTheHeldOutTextWhateverTheSeed) {
  const Dataset data = CountingText(2500);
  Windows a(5);
  Windows b(5);
  Sampler(data, kSeq, 1)
      .FillValidation(5, 0, 5, a.inputs.data(), a.targets.data());
  Sampler(data, kSeq, 2)
      .FillValidation(5, 0, 5, b.inputs.data(), b.targets.data());
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.inputs.front(), data.validation().front());
  EXPECT_EQ(a.targets.back(), data.validation().back());
}

TEST(SamplerTest, ASingleValidationWindowIsTheFirst) {
  const Dataset data = CountingText(2500);
  Windows window(1);
  Sampler(data, kSeq, 1)
      .FillValidation(1, 0, 1, window.inputs.data(), window.targets.data());
  EXPECT_EQ(window.inputs.front(), data.validation().front());
}

class LoadDatasetTest : public testing::Test {
 protected:
  std::string WriteFile(const std::string& content) {
    const testing::TestInfo* test =
        testing::UnitTest::GetInstance()->current_test_info();
    const std::string path = testing::TempDir() + "load_dataset_" +
                             test->name() + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << content;
    paths_.push_back(path);
    return path;
  }

  void TearDown() override {
    for (const std::string& path : paths_) std::remove(path.c_str());
  }

 private:
  std::vector<std::string> paths_;
};

TEST_F(LoadDatasetTest, ReadsAFileByteForByte) {
  std::string content;
  for (int i = 0; i < 200000; ++i) content += static_cast<char>(i % 256);
  const auto data = LoadDataset(WriteFile(content), kSeq);
  ASSERT_TRUE(data.ok()) << data.status();
  std::string read(data->train().begin(), data->train().end());
  read.append(data->validation().begin(), data->validation().end());
  EXPECT_TRUE(read == content);
}

TEST_F(LoadDatasetTest, MissingFileIsNamed) {
  const absl::Status status =
      LoadDataset("/no/such/file; echo x", kSeq).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'/no/such/file; echo x'"));
}

TEST_F(LoadDatasetTest, AFolderOrADeviceIsRefusedUnread) {
  for (const std::string path : {"/proc", "/dev/zero"}) {
    const absl::Status status = LoadDataset(path, kSeq).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + path + "'"));
  }
}

TEST_F(LoadDatasetTest, ATextThatIsTooLongNamesTheLimit) {
  const std::string path = WriteFile(std::string(101, 'x'));
  const absl::Status status = LoadDataset(path, kSeq, 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("101 bytes; texts are kept in memory and may have 100"));
  EXPECT_TRUE(LoadDataset(path, kSeq, 101).ok());
}

// Of a pipe the length is not known before.
TEST_F(LoadDatasetTest, APipeIsReadUpToTheLimit) {
  int ends[2];
  for (const int64_t max_bytes : {100, 99}) {
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], std::string(100, 'x').data(), 100), 100);
    close(ends[1]);
    const std::string path = "/dev/fd/" + std::to_string(ends[0]);
    EXPECT_EQ(LoadDataset(path, kSeq, max_bytes).status().code(),
              max_bytes == 100 ? absl::StatusCode::kOk
                               : absl::StatusCode::kResourceExhausted);
    close(ends[0]);
  }
}

TEST_F(LoadDatasetTest, TooShortATextNamesTheLimit) {
  const absl::Status status =
      LoadDataset(WriteFile(std::string(89, 'x')), kSeq).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("89 bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("need 90"));
  EXPECT_TRUE(LoadDataset(WriteFile(std::string(90, 'x')), kSeq).ok());
}

TEST_F(LoadDatasetTest, KjvIsTheWholeBible) {
  const auto data = LoadDataset("kjv", 128);
  if (data.status().code() == absl::StatusCode::kNotFound) {
    GTEST_SKIP() << data.status().message();
  }
  ASSERT_TRUE(data.ok()) << data.status();
  const std::string begin(data->train().begin(), data->train().begin() + 60);
  EXPECT_EQ(begin,
            "Ge1:1 In the beginning God created the heaven and the earth.");
  EXPECT_GT(data->train().size() + data->validation().size(), 4'000'000u);
}

}  // namespace
}  // namespace commsched::trainer
