// Savers of plain arrays, and what a checkpoint has of them.

#include "checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/snapshot.h"
#include "test/checkpoint/temporary_folder.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = 2;
constexpr char kMomentumKind[] = "sgd.momentum";
constexpr uint64_t kTotal = 10;  // Elements of the parameter "w" [5, 2].

// What one rank keeps: its elements of "w" and the momentum of each.
struct Arrays {
  Arrays(uint64_t rank, uint64_t begin, std::vector<float> values)
      : rank(rank), begin(begin), values(std::move(values)) {}

  Snapshot snapshot() {
    Snapshot snapshot;
    snapshot.rank = rank;
    snapshot.world = kWorld;
    snapshot.zero_stage = 1;
    snapshot.tensors = {{"w", "F32", {5, 2}}};
    for (const char* kind : {kMomentumKind, kValueKind}) {
      if (values.empty()) continue;
      snapshot.pieces.push_back({.kind = kind,
                                 .parameter = "w",
                                 .dtype = "F32",
                                 .shape = {5, 2},
                                 .begin = begin,
                                 .count = values.size()});
    }
    snapshot.check = [this](uint64_t* out_step) {
      *out_step = step;
      return busy;
    };
    snapshot.copy_out = [this](float* out) {
      if (!broken.ok()) return broken;
      for (float value : values) *out++ = -value;
      std::copy(values.begin(), values.end(), out);
      return Status();
    };
    snapshot.add_metadata = [this](auto* metadata) {
      metadata->emplace("commsched.rank", std::to_string(rank));
    };
    snapshot.lineage = &lineage;
    return snapshot;
  }

  uint64_t rank;
  uint64_t begin;
  std::vector<float> values;
  uint64_t step = 1;
  Status busy;
  Status broken;
  Lineage lineage;
};

// Those of a job.
struct Job {
  Arrays first{0, 0, {0, 1, 2, 3}};
  Arrays second{1, 4, {4, 5, 6, 7, 8, 9}};
};

std::unique_ptr<Saver> SaverOf(Arrays& arrays, const std::string& folder,
                               const std::string& run = "r") {
  std::unique_ptr<Saver> saver;
  const Status made =
      Saver::Create(arrays.snapshot(), {.folder = folder, .run = run}, &saver);
  EXPECT_TRUE(made.ok()) << made.message();
  return saver;
}

Status SaveAndWait(Saver& saver) {
  const Status saved = saver.Save({{"seed", "7"}});
  return saved.ok() ? saver.Wait() : saved;
}

Status SaveJob(Job& job, const std::string& folder, const std::string& run) {
  const std::unique_ptr<Saver> first = SaverOf(job.first, folder, run);
  const std::unique_ptr<Saver> second = SaverOf(job.second, folder, run);
  const Status saved = SaveAndWait(*first);
  return saved.ok() ? SaveAndWait(*second) : saved;
}

std::unique_ptr<Checkpoint> Opened(const std::string& folder) {
  std::unique_ptr<Checkpoint> checkpoint;
  const Status opened = Checkpoint::Open(folder, nullptr, &checkpoint);
  EXPECT_TRUE(opened.ok()) << opened.message();
  return checkpoint;
}

std::vector<float> ElementsOf(const Checkpoint& checkpoint,
                              const std::string& kind) {
  const Checkpoint::Range range = {
      .tensor = 0, .kind = kind, .begin = 0, .count = kTotal};
  EXPECT_TRUE(checkpoint.Verify(range).ok());
  std::vector<float> elements(kTotal);
  EXPECT_TRUE(checkpoint.Read(range, elements.data()).ok());
  return elements;
}

TEST(ArraySaverTest, PiecesOfTwoRanksComeOutAsOneTensor) {
  const TemporaryFolder folder;
  Job job;
  ASSERT_TRUE(SaveJob(job, folder.path(), "r").ok());
  const std::unique_ptr<Checkpoint> checkpoint = Opened(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->index().id, (SaveId{1, "r", ""}));
  EXPECT_THAT(ElementsOf(*checkpoint, kValueKind),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(ElementsOf(*checkpoint, kMomentumKind),
              ElementsAre(0, -1, -2, -3, -4, -5, -6, -7, -8, -9));
  EXPECT_FALSE(checkpoint->Has("adamw.m"));
}

TEST(ArraySaverTest, ARankWithoutPiecesSavesAnEmptyFile) {
  const TemporaryFolder folder;
  Job job;
  job.first.values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  job.second.values.clear();
  ASSERT_TRUE(SaveJob(job, folder.path(), "r").ok());
  const std::unique_ptr<Checkpoint> checkpoint = Opened(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(ElementsOf(*checkpoint, kValueKind), job.first.values);
}

TEST(ArraySaverTest, MetadataIsTheCallersAndTheStates) {
  const TemporaryFolder folder;
  Job job;
  ASSERT_TRUE(SaveJob(job, folder.path(), "r").ok());
  const std::unique_ptr<Checkpoint> checkpoint = Opened(folder.path());
  ASSERT_NE(checkpoint, nullptr);
  const std::map<std::string, std::string> expected = {{"commsched.rank", "1"},
                                                       {"seed", "7"}};
  EXPECT_EQ(checkpoint->index().metadata, expected);
  EXPECT_THAT(SaverOf(job.first, folder.path(), "s")
                  ->Save({{"commsched.x", ""}})
                  .message(),
              HasSubstr("begins with 'commsched.'"));
}

TEST(ArraySaverTest, AStateThatIsBusyIsNotCopied) {
  const TemporaryFolder folder;
  Job job;
  const std::unique_ptr<Saver> saver = SaverOf(job.first, folder.path());
  job.first.busy = FailedPrecondition("in a step");
  job.first.broken = Status(COMMSCHED_INTERNAL, "copied");
  EXPECT_EQ(SaveAndWait(*saver).message(), "in a step");
  EXPECT_THAT(folder.Names(), ElementsAre());
}

TEST(ArraySaverTest, ACopyThatFailsIsNoSave) {
  const TemporaryFolder folder;
  Job job;
  const std::unique_ptr<Saver> saver = SaverOf(job.first, folder.path());
  job.first.broken = Status(COMMSCHED_ABORTED, "lost a rank");
  EXPECT_EQ(SaveAndWait(*saver).message(), "lost a rank");
  EXPECT_THAT(folder.Names(), ElementsAre());
  EXPECT_FALSE(job.first.lineage.HasRun("r"));
  job.first.broken = Status();
  EXPECT_TRUE(SaveAndWait(*saver).ok());
  EXPECT_TRUE(job.first.lineage.HasRun("r"));
}

TEST(ArraySaverTest, AStateThatWasLoadedReplacesWhatItComesFrom) {
  const TemporaryFolder folder;
  Job before;
  ASSERT_TRUE(SaveJob(before, folder.path(), "r").ok());
  Job after;
  std::unique_ptr<Saver> refused;
  EXPECT_THAT(Saver::Create(after.first.snapshot(),
                            {.folder = folder.path(), .run = "s"}, &refused)
                  .message(),
              AllOf(HasSubstr("step 1 of run 'r'"), HasSubstr("run 's'")));
  const SaveId loaded = Opened(folder.path())->index().id;
  for (Arrays* arrays : {&after.first, &after.second}) {
    arrays->lineage.Load(loaded);
    arrays->step = 2;
  }
  ASSERT_TRUE(SaveJob(after, folder.path(), "s").ok());
  EXPECT_THAT(folder.Names(),
              ElementsAre("index.json",
                          "step-00000002-r.s-rank-00000-of-00002.safetensors",
                          "step-00000002-r.s-rank-00001-of-00002.safetensors"));
}

}  // namespace
}  // namespace commsched::engine
