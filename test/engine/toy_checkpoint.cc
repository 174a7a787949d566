#include "test/engine/toy_checkpoint.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "checkpoint/checkpoint.h"
#include "test/engine/create_engine.h"
#include "test/engine/messages.h"

namespace commsched::engine {
namespace {

// Loads, and says after which step that was.
std::string Load(ToyRank& toy, const std::string& folder, uint32_t* out_step) {
  CheckpointHandle checkpoint;
  std::string message = OpenToyCheckpoint(folder, &checkpoint);
  if (!message.empty()) return message;
  auto info = commsched_engine_checkpoint_info_init();
  message =
      Message(commsched_engine_checkpoint_get_info(checkpoint.get(), &info));
  if (!message.empty()) return message;
  *out_step = static_cast<uint32_t>(info.step);
  return Message(
      commsched_engine_checkpoint_load(checkpoint.get(), toy.engine()));
}

std::string TrainRank(const ToyStretch& stretch, ToyRank& toy) {
  uint32_t step = 0;
  std::string message = toy.Build();
  if (message.empty() && !stretch.load.empty()) {
    message = Load(toy, stretch.load, &step);
  }
  SaverHandle saver;
  if (message.empty() && !stretch.save.empty()) {
    message = CreateToySaver(toy, stretch.save, stretch.name, &saver,
                             stretch.overwrite, stretch.whole);
  }
  // A stretch without a step saves what it has loaded.
  bool due = saver != nullptr && step == stretch.end;
  while (message.empty() && (step < stretch.end || due)) {
    if (step < stretch.end) message = toy.Step(step++);
    due = saver != nullptr &&
          (step == stretch.end ||
           (stretch.save_every > 0 && step % stretch.save_every == 0));
    if (message.empty() && due) {
      message = Message(commsched_engine_saver_save(saver.get(), nullptr, 0));
    }
    due = false;
  }
  if (message.empty() && saver != nullptr) {
    message = Message(commsched_engine_saver_wait(saver.get()));
  }
  return message;
}

}  // namespace

std::string CreateToySaver(ToyRank& toy, const std::string& folder,
                           const std::string& name, SaverHandle* out,
                           bool overwrite, bool whole) {
  auto desc = commsched_engine_saver_desc_init();
  desc.whole = whole ? 1 : 0;
  desc.overwrite = overwrite ? 1 : 0;
  desc.folder = folder.c_str();
  desc.run = name.c_str();
  commsched_engine_saver_t* saver = nullptr;
  const std::string message =
      Message(commsched_engine_saver_create(toy.engine(), &desc, &saver));
  out->reset(saver);
  return message;
}

std::string OpenToyCheckpoint(const std::string& folder,
                              CheckpointHandle* out) {
  commsched_engine_checkpoint_t* checkpoint = nullptr;
  const std::string message =
      Message(commsched_engine_checkpoint_open(folder.c_str(), &checkpoint));
  out->reset(checkpoint);
  return message;
}

std::string TrainToy(const ToyStretch& stretch,
                     std::vector<std::vector<float>>* out_weights) {
  if (out_weights != nullptr) {
    out_weights->assign(static_cast<size_t>(stretch.run.ranks), {});
  }
  return OnRanks(stretch.run, [&](ToyRank& toy, int32_t rank) {
    std::string message = TrainRank(stretch, toy);
    if (!message.empty() || out_weights == nullptr) return message;
    return toy.Weights(&(*out_weights)[static_cast<size_t>(rank)]);
  });
}

std::string SaveToy(const std::string& folder, const ToyRun& run) {
  ToyStretch stretch;
  stretch.run = run;
  stretch.end = 3;
  stretch.save = folder;
  return TrainToy(stretch);
}

ToyRun ToyRunOf(int32_t ranks, uint32_t stage, uint64_t bucket_bytes) {
  ToyRun run;
  run.ranks = ranks;
  run.options.zero_stage = stage;
  run.options.bucket_bytes = bucket_bytes;
  return run;
}

std::vector<float> ContentOf(const std::string& folder) {
  std::unique_ptr<Checkpoint> checkpoint;
  const Status status = Checkpoint::Open(folder, nullptr, &checkpoint);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<float> content;
  for (uint32_t p = 0; status.ok() && p < ToyParameters().size(); ++p) {
    const ToyParameter& parameter = ToyParameters()[p];
    const int64_t tensor = checkpoint->Find(parameter.name);
    EXPECT_GE(tensor, 0) << parameter.name;
    for (const std::string& kind : checkpoint->Kinds()) {
      const Checkpoint::Range range = {static_cast<size_t>(tensor), kind, 0,
                                       parameter.count()};
      std::vector<float> values(parameter.count());
      EXPECT_TRUE(checkpoint->Verify(range).ok());
      EXPECT_TRUE(checkpoint->Read(range, values.data()).ok());
      content.insert(content.end(), values.begin(), values.end());
    }
  }
  return content;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

SmallEngine::SmallEngine(const std::vector<Named>& parameters) {
  auto world_desc = commsched_world_desc_init();
  world_desc.size = 1;
  EXPECT_EQ(commsched_world_create_inproc(&world_desc, &world_), 0);
  EXPECT_EQ(commsched_context_create(world_, 0, &context_), 0);
  const int32_t me = 0;
  EXPECT_EQ(commsched_group_create(context_, "dp", &me, 1, &group_), 0);
  uint32_t id = 0;
  EXPECT_EQ(commsched_model_add_module(model_.get(), "m", 0, 0, &id), 0);
  for (const Named& each : parameters) {
    EXPECT_EQ(AddParameter(model_.get(), 0, each.name.c_str(), each.dims.data(),
                           static_cast<uint32_t>(each.dims.size()), &id),
              0);
  }
  auto desc = commsched_engine_desc_init();
  desc.context = context_;
  desc.group = group_;
  EXPECT_EQ(CreateEngine(desc, model_.get(), commsched_step_plan_options_init(),
                         &engine_),
            0)
      << commsched_engine_last_error();
}

SmallEngine::~SmallEngine() {
  commsched_engine_destroy(engine_);
  commsched_group_destroy(group_);
  commsched_context_destroy(context_);
  commsched_world_destroy(world_);
}

std::string SmallEngine::CreateSaver(const char* folder, const char* run,
                                     SaverHandle* out) {
  auto desc = commsched_engine_saver_desc_init();
  desc.folder = folder;
  desc.run = run;
  commsched_engine_saver_t* saver = nullptr;
  const std::string message =
      Message(commsched_engine_saver_create(engine_, &desc, &saver));
  out->reset(saver);
  return message;
}

}  // namespace commsched::engine
