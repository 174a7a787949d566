// The engine on stand-in devices: the bits of the host, and no waiting.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/ranks_in_name.h"
#include "test/engine/toy_checkpoint.h"
#include "test/engine/toy_training.h"
#include "test/engine/update_call.h"
#include "test/engine_cuda/gpu_toys.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched::engine {
namespace {

using ::testing::AllOf;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Values;

// Both, step by step; late streams by a seed.
void ExpectTheHostsBits(const ToyRun& run, uint64_t seed) {
  const ToyResult host = RunToy(run);
  ASSERT_EQ(host.error, "");
  fake_gpu_delay(seed, /*most_us=*/100);
  const ToyResult device = RunToy(OnDevices(run));
  fake_gpu_delay(0, 0);
  ASSERT_EQ(device.error, "");
  for (size_t rank = 0; rank < device.weights.size(); ++rank) {
    EXPECT_TRUE(SameBits(device.weights[rank], host.weights[rank]))
        << "rank " << rank;
  }
  EXPECT_EQ(device.norm, host.norm);
  EXPECT_EQ(device.info.skipped_steps, host.info.skipped_steps);
}

class EngineDeviceBitsTest
    : public ::testing::TestWithParam<std::tuple<int, int, float>> {
 protected:
  ToyRun Run() const {
    ToyRun run;
    run.ranks = std::get<0>(GetParam());
    run.options.zero_stage = static_cast<uint32_t>(std::get<1>(GetParam()));
    run.engine.clip_norm = std::get<2>(GetParam());
    run.steps = 6;
    return run;
  }
};

TEST_P(EngineDeviceBitsTest, AreThoseOfTheHost) {
  ExpectTheHostsBits(Run(), 1);
}

// The norm is read, and an option set has corrections of its own.
TEST_P(EngineDeviceBitsTest, AreThoseOfTheHostWithValuesOfEachStep) {
  ToyRun run = Run();
  run.options.norm = 1;
  run.options.option_sets = 1;
  run.update = [](commsched_engine_t* engine) -> std::string {
    double norm = 0;
    RETURN_MESSAGE_IF_ERROR(commsched_engine_norm(engine, &norm));
    commsched_option_values_t set = commsched_option_values_init();
    set.beta2 = 0.7f;
    set.decay = 0.2f;
    commsched_engine_update_args_t args = UpdateArgs(0.01f);
    args.clip_norm = static_cast<float>(norm / 2);
    args.sets = &set;
    args.num_sets = 1;
    return Message(commsched_engine_update(engine, &args));
  };
  ExpectTheHostsBits(run, 5);
}

// Of some parameters all ranks have none in a step: the device leaves them.
TEST_P(EngineDeviceBitsTest, AreThoseOfTheHostWithoutSomeGradients) {
  ToyRun run = Run();
  run.options.micro_batches = 2;
  run.options.absent_gradients = 1;
  run.absent = [](const ToyPass& pass, uint32_t parameter) {
    return (pass.step + parameter) % 3 == 0 ||
           (static_cast<uint32_t>(pass.rank) + parameter) % 2 == 0;
  };
  ExpectTheHostsBits(run, 6);
}

TEST_P(EngineDeviceBitsTest, AreThoseOfTheHostWithAStepThatAllCancel) {
  ToyRun run = Run();
  run.options.cancel_all = 1;
  run.cancel_scope = COMMSCHED_CANCEL_ALL;
  run.cancels = [last = run.ranks - 1](const ToyBegin& next) {
    const bool here = next.pass.rank == last && next.pass.step == 2 &&
                      next.backward && next.pass.module == kBlock0;
    return here ? ToyCancel::kBefore : ToyCancel::kNot;
  };
  ExpectTheHostsBits(run, 7);
}

TEST_P(EngineDeviceBitsTest, AreThoseOfTheHostInMicroBatchesOf16Bits) {
  ToyRun run = Run();
  run.options.micro_batches = 3;
  run.options.accumulate_bytes = 40'000;
  run.options.parameter_dtype = COMMSCHED_BF16;
  run.options.reduce_dtype = COMMSCHED_BF16;
  ExpectTheHostsBits(run, 2);
}

TEST_P(EngineDeviceBitsTest, AreThoseOfTheHostWithSgdAndLittleMemory) {
  ToyRun run = Run();
  run.optimizer = commsched_sgd(0.9f, 1);
  run.plan.max_launches_in_flight = 1;
  if (run.options.zero_stage == 3) run.options.max_live_bytes = 120'000;
  ExpectTheHostsBits(run, 3);
}

INSTANTIATE_TEST_SUITE_P(RanksStagesAndClipping, EngineDeviceBitsTest,
                         Combine(Values(1, 2, 3), Values(0, 1, 2, 3),
                                 Values(0.0f, 0.5f)),
                         RanksInName());

TEST(EngineDeviceTest, ANonFiniteGradientSkipsTheStepAndHalvesTheScale) {
  const auto train = [](ToyRun run, std::vector<float>* weights,
                        commsched_engine_loss_scale_info_t* info) {
    return OnRanks(run, [&](ToyRank& toy, int32_t rank) {
      std::string message = toy.Build();
      for (uint32_t step = 0; message.empty() && step < 8; ++step) {
        const ToyRank::Look spoil = [&, step](uint32_t module) {
          if (step != 2 || rank != 1 || module != 2) return;
          static_cast<float*>(toy.gradients()[4])[3] =
              std::numeric_limits<float>::infinity();
        };
        message = toy.Step(step, spoil);
        if (message.empty()) {
          message = Message(commsched_engine_drain(toy.engine()));
        }
      }
      std::vector<float> mine;
      if (message.empty()) message = toy.Weights(&mine);
      if (rank != 0 || !message.empty()) return message;
      *weights = mine;
      return Message(commsched_engine_get_loss_scale(toy.engine(), info));
    });
  };
  ToyRun run;
  run.engine.loss_scale = 1024;
  run.engine.loss_scale_window = 3;
  std::vector<float> host_weights, weights;
  auto host_info = commsched_engine_loss_scale_info_init();
  auto info = commsched_engine_loss_scale_info_init();
  ASSERT_EQ(train(run, &host_weights, &host_info), "");
  ASSERT_EQ(train(OnDevices(run), &weights, &info), "");
  EXPECT_TRUE(SameBits(weights, host_weights));
  EXPECT_EQ(info.skipped_steps, 1u);
  EXPECT_EQ(info.scale, host_info.scale);
  EXPECT_EQ(info.good_steps, host_info.good_steps);
}

TEST(EngineDeviceTest, TooManySkippedStepsEndTrainingAndLeaveTheWeights) {
  ToyRun run;
  run.options.check_finite = 1;
  run.engine.max_skipped_steps = 2;
  run.steps = 20;
  std::vector<std::string> errors(2);
  const ToyRun on_devices = OnDevices(run);
  (void)OnRanks(on_devices, [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    const ToyRank::Look spoil = [&](uint32_t module) {
      if (module != 2) return;
      static_cast<float*>(toy.gradients()[4])[3] =
          std::numeric_limits<float>::quiet_NaN();
    };
    uint32_t step = 0;
    for (; message.empty() && step < run.steps; ++step) {
      message = toy.Step(step, spoil);
    }
    // Up to three steps after the second.
    EXPECT_GE(step, 2u);
    EXPECT_LE(step, 6u);
    errors[static_cast<size_t>(rank)] = message;
    return message;
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("the gradients of 2 steps in a row, up to "
                                 "step 2, were not finite"));
    EXPECT_THAT(error, HasSubstr("The weights are those of step 0"));
  }
}

TEST(EngineDeviceTest, LearningRatesThatDifferAreFound) {
  for (const uint32_t stage : {0u, 2u}) {
    for (const float clip : {0.0f, 1.0f}) {
      ToyRun run;
      run.options.zero_stage = stage;
      run.engine.clip_norm = clip;
      std::string error =
          OnRanks(OnDevices(run), [&](ToyRank& toy, int32_t rank) {
            std::string message = toy.Build();
            for (uint32_t step = 0; message.empty() && step < 9; ++step) {
              message = toy.ForwardBackward(step);
              if (!message.empty()) break;
              const float lr = step == 3 && rank == 1 ? 0.02f : 0.01f;
              message = Message(UpdateWith(toy.engine(), lr));
              if (!message.empty()) break;
              message = Message(commsched_engine_step_end(toy.engine()));
            }
            return message.empty()
                       ? Message(commsched_engine_drain(toy.engine()))
                       : message;
          });
      EXPECT_THAT(error,
                  HasSubstr("lr of step 4 is 0.01 on rank 0 of the group and "
                            "0.02 on rank 1"))
          << "stage " << stage << ", clip " << clip;
    }
  }
}

// I6, on a device.
TEST(EngineDeviceTest, ASteadyStepMakesFreesAndWaitsForNothing) {
  for (const uint32_t stage : {0u, 1u, 2u, 3u}) {
    ToyRun run;
    run.options.zero_stage = stage;
    const char* const calls[] = {"cudaMalloc",
                                 "cudaFree",
                                 "cuMemAlloc",
                                 "cuMemFree",
                                 "cuMemHostAlloc",
                                 "cuMemFreeHost",
                                 "cudaMemcpy",
                                 "cudaMemset",
                                 "cudaEventCreateWithFlags",
                                 "cudaEventDestroy",
                                 "cudaStreamCreateWithPriority",
                                 "cudaStreamDestroy",
                                 "cudaStreamSynchronize",
                                 "cuLibraryLoadData",
                                 "cuLibraryGetKernel",
                                 "cuKernelGetFunction",
                                 "ncclCommRegister",
                                 "ncclCommInitRankConfig"};
    std::vector<uint64_t> before;
    std::vector<uint64_t> after;
    const auto count = [&] {
      std::vector<uint64_t> counts;
      for (const char* call : calls) counts.push_back(fake_gpu_num_calls(call));
      return counts;
    };
    run.ranks = 1;
    const std::string error =
        OnRanks(OnDevices(run), [&](ToyRank& toy, int32_t) {
          std::string message = toy.Build();
          for (uint32_t step = 0; message.empty() && step < 20; ++step) {
            if (step == 5) before = count();
            message = toy.Step(step);
          }
          after = count();
          return message.empty() ? Message(commsched_engine_drain(toy.engine()))
                                 : message;
        });
    EXPECT_EQ(error, "");
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(after[i], before[i]) << calls[i] << " in stage " << stage;
    }
  }
}

TEST(EngineDeviceTest, WhatIsNotThereYetIsRefusedByName) {
  const auto create = [](ToyRun run, const char* what) {
    run = OnDevices(run);
    commsched_world_desc_t world_desc = commsched_world_desc_init();
    world_desc.size = 1;
    run.devices->Describe(&world_desc);
    commsched_world_t* world = nullptr;
    ASSERT_EQ(commsched_world_create_inproc(&world_desc, &world), COMMSCHED_OK);
    commsched_context_t* context = nullptr;
    ASSERT_EQ(commsched_context_create(world, 0, &context), COMMSCHED_OK);
    int32_t device = -1;
    EXPECT_EQ(commsched_context_device(context, &device),
              COMMSCHED_DEVICE_CUDA);
    EXPECT_EQ(device, 0);
    const int32_t rank = 0;
    commsched_group_t* group = nullptr;
    ASSERT_EQ(commsched_group_create(context, "dp", &rank, 1, &group),
              COMMSCHED_OK);
    run.engine.context = context;
    run.engine.group = group;
    const ModelHandle model = NewModel();
    const uint64_t count = 100;
    uint32_t id = 0;
    ASSERT_EQ(commsched_model_add_module(model.get(), "m", 0, 0, &id),
              COMMSCHED_OK);
    ASSERT_EQ(AddParameter(model.get(), id, "w", &count, 1, &id), COMMSCHED_OK);
    commsched_engine_t* engine = nullptr;
    const commsched_status_t code =
        CreateEngine(run.engine, model.get(), run.options, &engine);
    EXPECT_NE(code, COMMSCHED_OK);
    EXPECT_THAT(commsched_engine_last_error(), HasSubstr(what));
    commsched_group_destroy(group);
    commsched_context_destroy(context);
    commsched_world_destroy(world);
  };
  ToyRun run;
  run.ranks = 1;
  run.engine.measure_steps = 3;
  create(run, "measure_steps is set for a rank that computes on a device");
  run.engine.measure_steps = 0;
  run.engine.compute_stream.kind = COMMSCHED_STREAM_HOST;
  create(run,
         "compute_stream is of kind 1; on this rank's device it may be "
         "CUDA (2) or CALLER (0)");
  run.engine.compute_stream.kind = COMMSCHED_STREAM_CALLER;
  commsched_engine_memory_t memory = commsched_engine_memory_init();
  memory.release = [](void*, void*, uint64_t) {};
  run.engine.memory = &memory;
  create(run, "memory has a function to allocate without one to release");
}

// All of the engine's memory comes from the caller, and goes back.
TEST(EngineDeviceTest, MemoryIsTheCallers) {
  struct Counts {
    uint64_t bytes = 0, most = 0;
  } counts;
  commsched_engine_memory_t memory = commsched_engine_memory_init();
  memory.user = &counts;
  ToyRun run;
  run.ranks = 1;
  memory.allocate_host = [](void* user, uint64_t bytes, void** out) {
    auto* const counted = static_cast<Counts*>(user);
    counted->bytes += bytes;
    counted->most += bytes;
    *out = std::malloc(bytes);
    return commsched_status_t{COMMSCHED_OK};
  };
  memory.release_host = [](void* user, void* address, uint64_t bytes) {
    static_cast<Counts*>(user)->bytes -= bytes;
    std::free(address);
  };
  run.engine.memory = &memory;
  EXPECT_EQ(RunToy(OnDevices(run)).error, "");
  EXPECT_GT(counts.most, 0u);
  EXPECT_EQ(counts.bytes, 0u);
}

// What the sessions of the engine take, too.
TEST(EngineDeviceTest, ArenasAreTheCallers) {
  ToyRun run;
  run.ranks = 1;
  const auto arenas_of_nccl = [&] {
    const uint64_t before = fake_gpu_num_calls("ncclMemAlloc");
    EXPECT_EQ(RunToy(OnDevices(run)).error, "");
    return fake_gpu_num_calls("ncclMemAlloc") - before;
  };
  EXPECT_GE(arenas_of_nccl(), 1u);
  uint64_t lent_bytes = 0;
  commsched_engine_memory_t memory = commsched_engine_memory_init();
  memory.user = &lent_bytes;
  memory.allocate = [](void* user, uint64_t bytes, void** out) {
    *static_cast<uint64_t*>(user) += bytes;
    EXPECT_EQ(cudaMalloc(out, bytes), cudaSuccess);
    return commsched_status_t{COMMSCHED_OK};
  };
  memory.release = [](void* user, void* address, uint64_t bytes) {
    *static_cast<uint64_t*>(user) -= bytes;
    EXPECT_EQ(cudaFree(address), cudaSuccess);
  };
  run.engine.memory = &memory;
  EXPECT_EQ(arenas_of_nccl(), 0u);
  EXPECT_EQ(lent_bytes, 0u);
}

TEST(EngineDeviceTest, AnAllocatorThatGivesNothingUsableIsRefused) {
  ToyRun run;
  run.ranks = 1;
  commsched_engine_memory_t memory = commsched_engine_memory_init();
  run.engine.memory = &memory;
  const auto build = [&] {
    return OnRanks(OnDevices(run),
                   [](ToyRank& toy, int32_t) { return toy.Build(); });
  };
  memory.release = [](void*, void*, uint64_t) {};
  memory.allocate = [](void*, uint64_t, void**) {
    return commsched_status_t{COMMSCHED_OK};
  };
  EXPECT_THAT(build(),
              HasSubstr("memory.allocate returned OK, but no address, for"));
  memory.allocate = [](void*, uint64_t, void** out) {
    *out = reinterpret_cast<void*>(uintptr_t{0x1040});
    return commsched_status_t{COMMSCHED_OK};
  };
  EXPECT_THAT(build(), HasSubstr("memory.allocate returned OK, but an address "
                                 "that is not aligned to 256, for"));
}

TEST(EngineDeviceTest, OnlyMemoryThatIsUsedUpIsCalledMissing) {
  ToyRun run;
  run.ranks = 1;
  const auto build = [&](int code) {
    return OnRanks(OnDevices(run), [code](ToyRank& toy, int32_t) {
      fake_gpu_fail("cuMemAlloc", 1, code);
      std::string message = toy.Build();
      fake_gpu_fail("cuMemAlloc", 0, cudaSuccess);
      return message;
    });
  };
  EXPECT_THAT(build(cudaErrorMemoryAllocation),
              AllOf(HasSubstr("no memory for"), HasSubstr("cuMemAlloc")));
  EXPECT_THAT(build(cudaErrorInvalidDevice),
              AllOf(HasSubstr("cuMemAlloc"), Not(HasSubstr("no memory"))));
}

// Others would wait for what its op does not make due, up to their deadline.
TEST(EngineDeviceTest, AKernelThatFailsFailsAllRanks) {
  for (const bool on_device : {false, true}) {
    std::atomic<int> calls{0};
    commsched_engine_kernels_t kernels = commsched_engine_kernels_init();
    kernels.user = &calls;
    kernels.adamw = [](void* user, commsched_stream_t,
                       const commsched_adamw_args_t*) {
      if (++*static_cast<std::atomic<int>*>(user) != 8) {
        return commsched_status_t{COMMSCHED_OK};
      }
      commsched_set_last_error("the kernel broke");
      return commsched_status_t{COMMSCHED_INTERNAL};
    };
    ToyRun run;
    run.engine.kernels = &kernels;
    std::vector<std::string> messages(2);
    (void)OnRanks(on_device ? OnDevices(run) : run,
                  [&](ToyRank& toy, int32_t rank) {
                    std::string message = toy.Build();
                    for (uint32_t step = 0; message.empty(); ++step) {
                      message = toy.Step(step);
                    }
                    messages[static_cast<size_t>(rank)] = message;
                    return message;
                  });
    for (const std::string& message : messages) {
      EXPECT_THAT(message, HasSubstr("the kernel broke"));
    }
  }
}

// The stream waits for a gather in which the other rank never takes part.
TEST(EngineDeviceTest, AnEngineThatGoesWithinAStepEndsItsKernels) {
  ToyRun run;
  run.options.zero_stage = 3;
  const int64_t begin_s = std::time(nullptr);
  // It may fail, as soon as the other one has gone.
  (void)OnRanks(OnDevices(run), [&](ToyRank& toy, int32_t rank) {
    std::string message = toy.Build();
    if (message.empty()) message = toy.Step(0);
    if (rank == 0 || !message.empty()) return message;
    return toy.ForwardBackward(1);
  });
  EXPECT_LT(std::time(nullptr) - begin_s, 60);  // Of 600 for a launch.
}

}  // namespace
}  // namespace commsched::engine
