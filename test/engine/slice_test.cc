// Engines on different groups that save to one folder.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "test/engine/create_engine.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/toy_checkpoint.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kWorld = 4;
constexpr uint64_t kCount = 700;

// One rank of an engine on `ranks` of a world of four, with one parameter.
class Member {
 public:
  Member(commsched_world_t* world, const std::vector<int32_t>& ranks,
         int32_t rank) {
    Require(commsched_context_create(world, ranks[static_cast<size_t>(rank)],
                                     &context_));
    Require(commsched_group_create(context_, "dp", ranks.data(),
                                   static_cast<uint32_t>(ranks.size()),
                                   &group_));
    uint32_t id = 0;
    Require(commsched_model_add_module(model_.get(), "m", 0, 0, &id));
    const uint64_t dims[] = {kCount};
    Require(AddParameter(model_.get(), 0, "w", dims, 1, &id));
  }
  ~Member() {
    commsched_engine_destroy(engine_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // All of the parameter is `value`.
  std::string Build(float value) {
    auto desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    auto options = commsched_step_plan_options_init();
    options.zero_stage = 2;
    RETURN_MESSAGE_IF_ERROR(
        CreateEngine(desc, model_.get(), options, &engine_));
    const std::vector<float> values(kCount, value);
    return Message(
        commsched_engine_set_parameter(engine_, 0, values.data(), kCount));
  }

  std::string Load(const std::string& folder, const std::string& slice) {
    commsched_engine_checkpoint_t* opened = nullptr;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_checkpoint_open_slice(
        folder.c_str(), slice.c_str(), &opened));
    const CheckpointHandle checkpoint(opened);
    return Message(commsched_engine_checkpoint_load(opened, engine_));
  }

  std::string Save(const std::string& folder, const char* run,
                   const char* slice, bool overwrite = false) {
    auto desc = commsched_engine_saver_desc_init();
    desc.folder = folder.c_str();
    desc.run = run;
    desc.slice = slice;
    desc.overwrite = overwrite ? 1 : 0;
    commsched_engine_saver_t* made = nullptr;
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_saver_create(engine_, &desc, &made));
    const SaverHandle saver(made);
    RETURN_MESSAGE_IF_ERROR(commsched_engine_saver_save(made, nullptr, 0));
    return Message(commsched_engine_saver_wait(made));
  }

 private:
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t* engine_ = nullptr;
};

// What the halves do, each rank for itself.
using OnMember = std::function<std::string(Member& member, int32_t half)>;

// Engines on the groups {0, 2}, with values 1, and {1, 3}, with values 2; "" or
// a message.
std::string OnHalves(const OnMember& body) {
  auto desc = commsched_world_desc_init();
  desc.size = kWorld;
  commsched_world_t* world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
  std::vector<std::string> messages(kWorld);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      const int32_t half = rank % 2;
      Member member(world, {half, half + 2}, rank / 2);
      std::string& message = messages[static_cast<size_t>(rank)];
      message = member.Build(static_cast<float>(1 + half));
      if (message.empty()) message = body(member, half);
    });
  }
  for (std::thread& thread : threads) thread.join();
  commsched_world_destroy(world);
  for (const std::string& message : messages) {
    if (!message.empty()) return message;
  }
  return "";
}

std::string SaveHalves(const std::string& folder,
                       const char* const slices[2] = nullptr) {
  return OnHalves([&](Member& member, int32_t half) {
    return member.Save(folder, "r", slices == nullptr ? nullptr : slices[half]);
  });
}

// The parameter of the slice, as one rank loads it.
std::string LoadSlice(const std::string& folder, const char* slice,
                      std::vector<float>* out_values) {
  commsched_engine_checkpoint_t* opened = nullptr;
  RETURN_MESSAGE_IF_ERROR(
      commsched_engine_checkpoint_open_slice(folder.c_str(), slice, &opened));
  const CheckpointHandle checkpoint(opened);
  SmallEngine engine({{"w", {kCount}}});
  RETURN_MESSAGE_IF_ERROR(
      commsched_engine_checkpoint_load(opened, engine.get()));
  out_values->resize(kCount);
  return Message(commsched_engine_get_parameter(engine.get(), 0,
                                                out_values->data(), kCount));
}

TEST(SliceTest, EnginesOnHalvesOfTheWorldShareAFolder) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveHalves(folder.path()), "");
  EXPECT_THAT(
      folder.Names(),
      ElementsAre("index-dp.0.json", "index-dp.1.json",
                  "step-00000000-r-dp.0-rank-00000-of-00002.safetensors",
                  "step-00000000-r-dp.0-rank-00001-of-00002.safetensors",
                  "step-00000000-r-dp.1-rank-00000-of-00002.safetensors",
                  "step-00000000-r-dp.1-rank-00001-of-00002.safetensors"));
  std::vector<float> values;
  ASSERT_EQ(LoadSlice(folder.path(), "dp.0", &values), "");
  EXPECT_EQ(values, std::vector<float>(kCount, 1));
  ASSERT_EQ(LoadSlice(folder.path(), "dp.1", &values), "");
  EXPECT_EQ(values, std::vector<float>(kCount, 2));
}

TEST(SliceTest, EachRemovesWhatItsOwnIndexHasReplaced) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveHalves(folder.path()), "");
  ASSERT_EQ(OnHalves([&](Member& member, int32_t half) {
              RETURN_MESSAGE_IF_ERROR(
                  member.Load(folder.path(), "dp." + std::to_string(half)));
              return member.Save(folder.path(), "s", nullptr);
            }),
            "");
  EXPECT_THAT(
      folder.Names(),
      ElementsAre("index-dp.0.json", "index-dp.1.json",
                  "step-00000000-r.s-dp.0-rank-00000-of-00002.safetensors",
                  "step-00000000-r.s-dp.0-rank-00001-of-00002.safetensors",
                  "step-00000000-r.s-dp.1-rank-00000-of-00002.safetensors",
                  "step-00000000-r.s-dp.1-rank-00001-of-00002.safetensors"));
}

// The run "r.s" was killed when only the slice dp.0 had saved.
TEST(SliceTest, ARunGoesOnFromOneThatWasKilledBetweenItsSlices) {
  for (const bool overwrite : {false, true}) {
    SCOPED_TRACE(overwrite);
    const TemporaryFolder folder;
    ASSERT_EQ(SaveHalves(folder.path()), "");
    const auto go_on = [&](const char* run, int32_t num_saved) {
      return OnHalves([&](Member& member, int32_t half) {
        RETURN_MESSAGE_IF_ERROR(
            member.Load(folder.path(), "dp." + std::to_string(half)));
        if (half >= num_saved) return std::string();
        return member.Save(folder.path(), run, nullptr, overwrite);
      });
    };
    ASSERT_EQ(go_on("s", 1), "");
    ASSERT_EQ(go_on("t", 1), "");
    std::vector<float> values;
    ASSERT_EQ(LoadSlice(folder.path(), "dp.1", &values), "");
    EXPECT_EQ(values, std::vector<float>(kCount, 2));
    ASSERT_EQ(go_on("u", 2), "");
    EXPECT_THAT(
        folder.Names(),
        ElementsAre("index-dp.0.json", "index-dp.1.json",
                    "step-00000000-r.u-dp.0-rank-00000-of-00002.safetensors",
                    "step-00000000-r.u-dp.0-rank-00001-of-00002.safetensors",
                    "step-00000000-r.u-dp.1-rank-00000-of-00002.safetensors",
                    "step-00000000-r.u-dp.1-rank-00001-of-00002.safetensors"));
  }
}

TEST(SliceTest, AnotherRunsSlicesAreNotReplaced) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveHalves(folder.path()), "");
  SmallEngine engine({{"w", {kCount}}});
  SaverHandle saver;
  EXPECT_THAT(engine.CreateSaver(folder.path().c_str(), "other", &saver),
              HasSubstr("step 0 of run 'r' ('index-dp."));
}

TEST(SliceTest, SlicesMayHaveNamesThatDoNotDependOnTheMesh) {
  const TemporaryFolder folder;
  const char* const names[] = {"tp0", "tp1"};
  ASSERT_EQ(SaveHalves(folder.path(), names), "");
  std::vector<float> values;
  ASSERT_EQ(LoadSlice(folder.path(), "tp1", &values), "");
  EXPECT_EQ(values, std::vector<float>(kCount, 2));
  EXPECT_THAT(LoadSlice(folder.path(), "tp2", &values),
              HasSubstr("no checkpoint in"));
}

TEST(SliceTest, WhichOfSeveralToOpenMustBeSaid) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveHalves(folder.path()), "");
  CheckpointHandle checkpoint;
  EXPECT_THAT(OpenToyCheckpoint(folder.path(), &checkpoint),
              AllOf(HasSubstr("'index-dp.0.json', 'index-dp.1.json'"),
                    HasSubstr("open one by the name of its slice")));
}

TEST(SliceTest, TheOnlyOneIsOpenedWithoutItsName) {
  const TemporaryFolder folder;
  ASSERT_EQ(SaveHalves(folder.path()), "");
  for (const std::string& name : folder.Names()) {
    if (name.find("dp.1") != std::string::npos) {
      std::filesystem::remove(folder.path() + "/" + name);
    }
  }
  CheckpointHandle checkpoint;
  EXPECT_EQ(OpenToyCheckpoint(folder.path(), &checkpoint), "");
}

// While the other saves, or after that.
TEST(SliceTest, TwoEnginesCannotSaveTheSameSlice) {
  const TemporaryFolder folder;
  const char* const names[] = {"x", "x"};
  EXPECT_THAT(SaveHalves(folder.path(), names),
              AnyOf(HasSubstr("give each engine a slice of its own"),
                    HasSubstr("run 'r' has saved to")));
}

TEST(SliceTest, ANameThatIsNoneIsRefused) {
  const TemporaryFolder folder;
  const char* const names[] = {"a-b", "rank"};
  EXPECT_THAT(SaveHalves(folder.path(), names), HasSubstr("slice is '"));
  EXPECT_TRUE(folder.Names().empty());
}

}  // namespace
}  // namespace commsched::engine
