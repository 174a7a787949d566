// The text and the file. What Holistic Trace Analysis makes of them is tested
// in kineto_rules_test.py and hta_test.py.
#include "trace/kineto.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Record Made(RecordKind kind, int64_t begin_ns, int64_t end_ns,
            uint32_t index = 0) {
  Record record;
  record.kind = kind;
  record.begin_ns = begin_ns;
  record.end_ns = end_ns;
  record.index = index;
  return record;
}

class KinetoTest : public ::testing::Test {
 protected:
  KinetoTest() {
    RecordNames names;
    names.rank = 1;
    names.world_size = 2;
    names.ops = {"forward", ""};
    RecordNames::LaunchName launch;
    launch.name = "all_gather weight.0";
    launch.collective = "_allgather_base";
    launch.dtype = "f32";
    launch.axis = "dp_shard";
    launch.ranks = {0, 1};
    launch.input_count = 8;
    launch.output_count = 16;
    launch.bytes = 64;
    names.launches = {launch};
    names.launch_waits = {{{.launch = 0, .distance = 1}}};
    recorder_.SetNames(names);
  }

  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              absl::StrCat("commsched_", info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  size_t NumFiles() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(folder_)) {
      ++count;
    }
    return count;
  }

  Recorder recorder_{64};
  std::filesystem::path folder_;
};

TEST_F(KinetoTest, RankHasTheSpaceThatItsReaderLooksFor) {
  EXPECT_THAT(KinetoJson(recorder_), HasSubstr("\"rank\": 1,"));
}

TEST_F(KinetoTest, EmptyRecorderIsAnEmptyTrace) {
  EXPECT_THAT(KinetoJson(recorder_), Not(HasSubstr("\"ph\": \"X\"")));
}

TEST_F(KinetoTest, KernelAndItsLaunchShareACorrelation) {
  recorder_.Add(Made(RecordKind::kCompute, 5000, 9999));
  const std::string json = KinetoJson(recorder_);
  EXPECT_THAT(
      json,
      HasSubstr(
          "{\"ph\": \"X\",\"cat\": \"cuda_runtime\",\"name\": "
          "\"cudaLaunchKernel\",\"pid\": 3,\"tid\": 1,\"ts\": 4,\"dur\": 1,"
          "\"args\": {\"External id\": 1,\"cbid\": 211,\"correlation\": 1}}"));
  EXPECT_THAT(
      json,
      HasSubstr("{\"ph\": \"X\",\"cat\": \"kernel\",\"name\": \"forward\","
                "\"pid\": 1,\"tid\": 7,\"ts\": 5,\"dur\": 4,\"args\": "
                "{\"External id\": 1,\"queued\": 0,\"device\": 1,\"context\": "
                "1,\"stream\": 7,\"correlation\": 1,"));
}

TEST_F(KinetoTest, LaunchCarriesTheArgumentsOfACollective) {
  recorder_.Add(Made(RecordKind::kLaunch, 5000, 9000));
  EXPECT_THAT(
      KinetoJson(recorder_),
      HasSubstr("\"Collective name\": \"_allgather_base\",\"dtype\": \"f32\","
                "\"In msg nelems\": 8,\"Out msg nelems\": 16,\"Group size\": "
                "2,\"In split size\": \"[]\",\"Out split size\": \"[]\","
                "\"Process Group Name\": \"0\",\"Process Group Description\": "
                "\"dp_shard\",\"Process Group Ranks\": \"[0, 1]\",\"Rank\": "
                "1}"));
}

// The flow event `phase` ("s" or "f") of name `name`: what follows its name.
std::string FlowIn(const std::string& json, const std::string& phase,
                   const std::string& name) {
  const std::string head = absl::StrCat("{\"ph\": \"", phase, "\",\"id\": 1,",
                                        "\"cat\": \"", name, "\",");
  const size_t begin = json.find(head);
  if (begin == std::string::npos) return "";
  return json.substr(begin, json.find('}', begin) - begin);
}

TEST_F(KinetoTest, LaunchIsCalledWhenItWasReadyAndAnArrowLeadsToItsKernel) {
  recorder_.Add(Made(RecordKind::kLaunch, 50000, 90000));
  recorder_.Add(HoldRecord({.ready_ns = 20000, .started_ns = 60000}, 0, 0, 0));
  const std::string json = KinetoJson(recorder_);
  EXPECT_THAT(json, HasSubstr("\"tid\": 1001,\"ts\": 19,\"dur\": 1,"));
  EXPECT_THAT(FlowIn(json, "s", "ac2g"), HasSubstr("\"tid\": 1001,\"ts\": 19"));
  EXPECT_THAT(FlowIn(json, "f", "ac2g"),
              HasSubstr("\"pid\": 1,\"tid\": 20,\"ts\": 50,\"bp\": \"e\""));
}

TEST_F(KinetoTest, LaunchOfWhichNoHoldIsKnownIsCalledAtItsBegin) {
  recorder_.Add(Made(RecordKind::kLaunch, 50000, 90000));
  EXPECT_THAT(KinetoJson(recorder_),
              HasSubstr("\"tid\": 1001,\"ts\": 49,\"dur\": 1,"));
}

TEST_F(KinetoTest, AnArrowLeadsFromTheLaunchToTheWaitForIt) {
  recorder_.Add(Made(RecordKind::kLaunch, 10000, 40000));  // of step 0
  Record wait = Made(RecordKind::kWait, 30000, 40000);
  wait.step = 1;
  recorder_.Add(wait);
  const std::string json = KinetoJson(recorder_);
  EXPECT_THAT(FlowIn(json, "s", "commsched wait"),
              HasSubstr("\"pid\": 1,\"tid\": 20,\"ts\": 39"));
  EXPECT_THAT(FlowIn(json, "f", "commsched wait"),
              HasSubstr("\"pid\": 3,\"tid\": 1,\"ts\": 39,\"bp\": \"e\""));
}

TEST_F(KinetoTest, NoArrowLeadsFromALaunchThatWasCompleteBeforeTheWait) {
  recorder_.Add(Made(RecordKind::kLaunch, 10000, 20000));
  Record wait = Made(RecordKind::kWait, 30000, 40000);
  wait.step = 1;
  recorder_.Add(wait);
  EXPECT_EQ(FlowIn(KinetoJson(recorder_), "s", "commsched wait"), "");
}

TEST_F(KinetoTest, StepLastsUntilTheNextAndTheLastUntilTheEnd) {
  recorder_.Add(Made(RecordKind::kStepBegin, 10000, 0));
  Record second = Made(RecordKind::kStepBegin, 30000, 0);
  second.step = 1;
  recorder_.Add(second);
  recorder_.Add(Made(RecordKind::kCompute, 31000, 47000));
  const std::string json = KinetoJson(recorder_);
  EXPECT_THAT(json, HasSubstr("\"ProfilerStep#0\",\"pid\": 3,\"tid\": 1000,"
                              "\"ts\": 9,\"dur\": 20,"));
  EXPECT_THAT(json, HasSubstr("\"ProfilerStep#1\",\"pid\": 3,\"tid\": 1000,"
                              "\"ts\": 29,\"dur\": 19,"));
}

TEST_F(KinetoTest, WhatIsLeftOfAnOverwrittenStepIsCutOff) {
  recorder_.Add(Made(RecordKind::kCompute, 1000, 2000));
  recorder_.Add(Made(RecordKind::kLaunch, 5000, 15000));
  recorder_.Add(Made(RecordKind::kStepBegin, 10000, 0));
  const std::string json = KinetoJson(recorder_);
  EXPECT_THAT(json, Not(HasSubstr("\"forward\"")));
  EXPECT_THAT(json, HasSubstr("\"tid\": 20,\"ts\": 10,\"dur\": 5"));
}

TEST_F(KinetoTest, RecordWithoutANameIsNumbered) {
  recorder_.Add(Made(RecordKind::kCompute, 0, 1000, 1));
  recorder_.Add(Made(RecordKind::kCompute, 0, 1000, 99));
  recorder_.Add(Made(RecordKind::kLaunch, 0, 1000, 7));
  recorder_.Add(Made(RecordKind::kWait, 0, 1000, 98));
  const std::string json = KinetoJson(recorder_);
  EXPECT_THAT(json, HasSubstr("\"op#1\""));
  EXPECT_THAT(json, HasSubstr("\"op#99\""));
  EXPECT_THAT(json, HasSubstr("\"ncclDevKernel_launch#7(commsched)\""));
  EXPECT_THAT(json, HasSubstr("\"wait before op#98\""));
}

TEST_F(KinetoTest, FileHoldsTheTextAndNothingElseIsLeftBehind) {
  recorder_.Add(Made(RecordKind::kCompute, 1000, 2000));
  const std::filesystem::path path = folder_ / "rank1.json";

  ASSERT_OK(WriteKineto(recorder_, path.string()));

  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), KinetoJson(recorder_));
  EXPECT_EQ(NumFiles(), 1u);
}

TEST_F(KinetoTest, FileThatCannotBeWrittenIsNamed) {
  const std::string path = (folder_ / "missing" / "rank1.json").string();
  EXPECT_THAT(WriteKineto(recorder_, path),
              StatusIs(absl::StatusCode::kUnavailable, path));
}

TEST_F(KinetoTest, FailureLeavesWhatWasThere) {
  const std::filesystem::path path = folder_ / "rank1.json";
  std::filesystem::create_directory(path);  // a file cannot take its place

  EXPECT_THAT(WriteKineto(recorder_, path.string()),
              StatusIs(absl::StatusCode::kUnavailable, "rank1.json"));

  EXPECT_EQ(NumFiles(), 1u);
  EXPECT_TRUE(std::filesystem::is_directory(path));
}

// Files of this process may not grow beyond a limit while it lives; a write
// that would is an error, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    rlimit limit = old_limit_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_limit_;
  void (*old_handler_)(int);
};

TEST_F(KinetoTest, FullDiskIsReportedAndTheOldFileStays) {
  const std::filesystem::path path = folder_ / "rank1.json";
  ASSERT_OK(WriteKineto(recorder_, path.string()));
  const auto old_size = std::filesystem::file_size(path);
  for (int i = 0; i < 64; ++i) {
    recorder_.Add(Made(RecordKind::kCompute, 1000, 2000));
  }

  {
    const FileSizeLimit limit(2048);
    EXPECT_THAT(WriteKineto(recorder_, path.string()),
                StatusIs(absl::StatusCode::kUnavailable, "too large"));
  }

  EXPECT_EQ(std::filesystem::file_size(path), old_size);
  EXPECT_EQ(NumFiles(), 1u);
}

}  // namespace
}  // namespace commsched
