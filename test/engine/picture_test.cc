#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "commsched/engine.h"
#include "test/engine/create_engine.h"
#include "test/engine/model_handle.h"
namespace commsched::engine {
namespace {

// The pictures of docs/engine.md, drawn from the plans of a small model: a step
// in its steady state, what crosses its end wrapped around to its begin.

constexpr int kPictureModules = 3;
constexpr uint64_t kElements = 1 << 18;  // 1 MiB and a bucket per module.
constexpr int64_t kColumnNs = 250000;
// Of stage 2: one bucket.
constexpr uint64_t kArenaBytes = 1 << 20;
constexpr uint64_t kMaxLiveBytes = 3 << 20;

nlohmann::json PlanJson(uint32_t stage) {
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  profile.link_bytes_per_s = 0.5e9;
  profile.link_latency_ns = 50000;
  profile.memory_bytes_per_s = 3.6e9;
  commsched_plan_options_t core = commsched_plan_options_init();
  core.backend = "inproc";
  core.arena_bytes = stage == 2 ? kArenaBytes : 0;
  const ModelHandle model = NewModel();
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  options.zero_stage = stage;
  options.plan = &core;
  options.bucket_bytes = 4 * kElements;
  options.max_live_bytes = stage == 3 ? kMaxLiveBytes : 0;
  options.profile = &profile;
  uint32_t id = 0;
  for (int m = 0; m < kPictureModules; ++m) {
    const std::string name = std::to_string(m);
    EXPECT_EQ(commsched_model_add_module(model.get(), name.c_str(), 7.5e7,
                                         1.5e8, &id),
              COMMSCHED_OK);
    EXPECT_EQ(AddParameter(model.get(), id, name.c_str(), &kElements, 1, &id),
              COMMSCHED_OK);
  }
  const StepPlanHandle planned = PlanModel(model.get(), 4, options);
  char* text = nullptr;
  EXPECT_EQ(commsched_plan_explain(commsched_step_plan_core_plan(planned.get()),
                                   COMMSCHED_JSON, &text),
            COMMSCHED_OK);
  nlohmann::json plan = nlohmann::json::parse(text);
  commsched_string_free(text);
  return plan;
}

// "reduce_scatter.2" is R2, "forward[0].1" F1.
std::string Label(const std::string& name) {
  static const auto& letters = *new std::map<std::string, std::string>{
      {"forward", "F"},    {"backward", "B"},       {"adamw", "A"},
      {"all_reduce", "R"}, {"reduce_scatter", "R"}, {"all_gather", "G"}};
  const size_t dot = name.find('.');
  const auto letter = letters.find(name.substr(0, name.find_first_of("[.")));
  if (dot == std::string::npos || letter == letters.end()) return name;
  return letter->second + name.substr(dot + 1, 1);
}

class Row {
 public:
  explicit Row(int64_t period_ns)
      : period_ns_(period_ns),
        text_(static_cast<size_t>((period_ns + kColumnNs - 1) / kColumnNs),
              ' ') {}

  void Draw(const std::string& name, int64_t begin_ns, int64_t end_ns) {
    if (end_ns <= begin_ns) return;
    // A gather for the first op begins before the step does.
    if (begin_ns < 0)
      return Draw(name, begin_ns + period_ns_, end_ns + period_ns_);
    const auto first = static_cast<size_t>(begin_ns / kColumnNs);
    const auto end = static_cast<size_t>(end_ns / kColumnNs);
    const std::string label = Label(name);
    for (size_t i = 0; first + i < std::max(first + 1, end); ++i) {
      text_[(first + i) % text_.size()] = i < label.size() ? label[i] : '-';
    }
  }
  std::string text() const {
    return text_.substr(0, text_.find_last_not_of(' ') + 1);
  }

 private:
  const int64_t period_ns_;
  std::string text_;
};

std::string Picture(uint32_t stage) {
  const nlohmann::json plan = PlanJson(stage);
  const int64_t period_ns = plan["prediction"]["step_ns"];
  Row compute(period_ns);
  for (const auto& op : plan["ops"]) {
    compute.Draw(op["name"], op["begin_ns"], op["end_ns"]);
  }
  Row link(period_ns);
  for (const auto& launch : plan["launches"]) {
    link.Draw(launch["members"][0], launch["begin_ns"], launch["end_ns"]);
  }
  return "ZeRO-" + std::to_string(stage) + "  compute  " + compute.text() +
         "\n        link     " + link.text() + "\n";
}

TEST(PictureTest, ThePageShowsWhatIsPlanned) {
  std::string pictures;
  for (uint32_t stage = 0; stage <= 3; ++stage) pictures += Picture(stage);
  std::ifstream file(COMMSCHED_ENGINE_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find("```text\n" + pictures + "```\n"),
            std::string::npos)
      << "docs/engine.md should have\n"
      << pictures;
}

}  // namespace
}  // namespace commsched::engine
