#include "test/engine/toy_training.h"

#include <algorithm>
#include <barrier>
#include <cstring>

#include "gtest/gtest.h"
#include "test/engine/messages.h"
#include "test/support/alloc_counter.h"

namespace commsched::engine {

ToyResult RunToy(const ToyRun& run) {
  ToyResult result;
  result.weights.resize(static_cast<size_t>(run.ranks));
  result.error = OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
    if (std::string message = toy.Build(); !message.empty()) return message;
    for (uint32_t step = 0; step < run.steps; ++step) {
      if (std::string message = toy.Step(step); !message.empty()) {
        return message;
      }
    }
    if (rank == 0) {
      RETURN_MESSAGE_IF_ERROR(
          commsched_engine_get_info(toy.engine(), &result.info));
      if (run.engine.clip_norm > 0) {
        RETURN_MESSAGE_IF_ERROR(
            commsched_engine_norm(toy.engine(), &result.norm));
      }
    }
    return toy.Weights(&result.weights[static_cast<size_t>(rank)]);
  });
  return result;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

uint64_t AllocationsOnceWarm(
    const ToyRun& run,
    const std::function<std::string(ToyRank&, uint32_t step)>& step) {
  constexpr uint32_t kWarmUp = 3, kSteps = 40;
  std::barrier all(run.ranks);
  uint64_t allocations = 0;
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    const auto steps = [&](uint32_t from, uint32_t to) {
      for (uint32_t t = from; message.empty() && t < to; ++t) {
        message = step(toy, t);
      }
    };
    steps(0, kWarmUp);
    all.arrive_and_wait();
    if (rank == 0) allocations = HeapAllocations();
    all.arrive_and_wait();
    steps(kWarmUp, kWarmUp + kSteps);
    all.arrive_and_wait();
    if (rank == 0) allocations = HeapAllocations() - allocations;
    all.arrive_and_wait();
    return message;
  });
  EXPECT_EQ(error, "");
  return allocations;
}

uint64_t BytesSeenInBackwards(const ToyRun& run) {
  std::vector<uint64_t> bytes(static_cast<size_t>(run.ranks));  // By rank.
  const std::string error = OnRanks(run, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    const float* begin = nullptr;
    const float* end = nullptr;
    const auto include = [&](const float* address, uint64_t count) {
      if (begin == nullptr || address < begin) begin = address;
      end = std::max(end, address + count);
    };
    const auto look = [&](uint32_t module) {
      for (uint32_t p : ToyModules()[module].used) {
        include(toy.values()[p], ToyParameters()[p].count());
        include(static_cast<const float*>(toy.gradients()[p]),
                ToyParameters()[p].count());
      }
    };
    for (uint32_t t = 0; message.empty() && t < 2; ++t) {
      message = toy.Step(t, look);
    }
    bytes[static_cast<size_t>(rank)] =
        static_cast<uint64_t>(end - begin) * sizeof(float);
    return message;
  });
  EXPECT_EQ(error, "");
  return *std::max_element(bytes.begin(), bytes.end());
}

Planned PlanOf(const ToyRun& run) {
  Planned planned;
  planned.error = OnRanks(run, [&](ToyRank& toy, int32_t rank) -> std::string {
    std::string message = toy.Build();
    if (rank != 0 || !message.empty()) return message;
    char* text = nullptr;
    if (commsched_plan_explain(commsched_engine_plan(toy.engine()),
                               COMMSCHED_JSON, &text) != COMMSCHED_OK) {
      return commsched_last_error();
    }
    planned.plan = nlohmann::json::parse(text);
    commsched_string_free(text);
    RETURN_MESSAGE_IF_ERROR(
        commsched_engine_get_info(toy.engine(), &planned.info));
    return message;
  });
  return planned;
}

}  // namespace commsched::engine
