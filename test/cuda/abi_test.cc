// The C ABI on stand-in devices: what a framework calls.
#include <barrier>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commsched/commsched.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/rank_group.h"

namespace commsched {
namespace {

using test::DeviceMemory;
using test::FakeDevice;
using test::Peek;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr int kSteps = 12;
constexpr uint64_t kCount = 1000;

void ExpectOk(commsched_status_t code) {
  EXPECT_EQ(code, COMMSCHED_OK) << commsched_last_error();
}

void ExpectFails(commsched_status_t code, commsched_status_t expected,
                 const std::string& message) {
  EXPECT_EQ(code, expected);
  EXPECT_THAT(commsched_last_error(), HasSubstr(message));
}

// Gradients are written and all-reduced, and weights add them.
struct Step {
  Step() {
    (void)test::NcclTable();  // So that its file is known.
    ExpectOk(commsched_graph_create(&graph));
    commsched_collective_desc_t reduce = commsched_collective_desc_init();
    ExpectOk(commsched_graph_add_group(graph, "dp", kRanks, &reduce.group));
    gradient = AddBuffer("gradient");
    weights = AddBuffer("weights");
    const commsched_access_t write = Access(gradient, COMMSCHED_WRITE);
    backward = AddCompute("backward", &write, 1);
    reduce.name = "reduce";
    reduce.input.buffer = gradient;
    reduce.output.buffer = gradient;
    commsched_op_id_t id = 0;
    ExpectOk(commsched_graph_add_collective(graph, &reduce, &id));
    const commsched_access_t both[] = {Access(gradient, COMMSCHED_READ),
                                       Access(weights, COMMSCHED_READ_WRITE)};
    update = AddCompute("update", both, 2);
    commsched_plan_options_t options = commsched_plan_options_init();
    options.backend = "nccl";
    ExpectOk(commsched_plan_build(graph, &options, nullptr, &plan));
  }
  ~Step() {
    commsched_plan_destroy(plan);
    commsched_graph_destroy(graph);
  }

  static commsched_access_t Access(commsched_buffer_id_t buffer,
                                   commsched_access_mode_t mode) {
    commsched_access_t access = {};
    access.buffer = buffer;
    access.mode = mode;
    return access;
  }
  commsched_buffer_id_t AddBuffer(const char* name) {
    commsched_buffer_desc_t desc = commsched_buffer_desc_init();
    desc.name = name;
    desc.count = kCount;
    desc.ownership = COMMSCHED_BOUND;
    commsched_buffer_id_t id = 0;
    ExpectOk(commsched_graph_add_buffer(graph, &desc, &id));
    return id;
  }
  commsched_op_id_t AddCompute(const char* name,
                               const commsched_access_t* accesses,
                               uint32_t num_accesses) {
    commsched_compute_desc_t desc = commsched_compute_desc_init();
    desc.name = name;
    desc.accesses = accesses;
    desc.num_accesses = num_accesses;
    commsched_op_id_t id = 0;
    ExpectOk(commsched_graph_add_compute(graph, &desc, &id));
    return id;
  }

  commsched_graph_t* graph = nullptr;
  commsched_plan_t* plan = nullptr;
  commsched_buffer_id_t gradient = 0, weights = 0;
  commsched_op_id_t backward = 0, update = 0;
};

commsched_world_desc_t WorldDesc() {
  (void)test::NcclTable();
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = kRanks;
  desc.backend = "nccl";
  desc.device_kind = COMMSCHED_DEVICE_CUDA;
  return desc;
}

// A rank: a context, a group, memory and a stream of the caller's.
class Rank {
 public:
  Rank(commsched_world_t* world, const Step& step, int number)
      : step_(step),
        number_(number),
        device_(FakeDevice(number)),
        gradient_(device_, kCount * sizeof(float)),
        weights_(device_, kCount * sizeof(float)),
        stream_(device_->CreateSideStream().value()) {
    ExpectOk(commsched_context_create(world, number, &context));
    const commsched_axis_t axis = {"dp", kRanks};
    commsched_mesh_t* mesh = nullptr;
    ExpectOk(commsched_mesh_create(context, &axis, 1, &mesh));
    ExpectOk(commsched_mesh_group(mesh, "dp", &group_));
    commsched_mesh_destroy(mesh);
  }
  ~Rank() {
    commsched_recording_destroy(recording);
    commsched_session_destroy(session);
    commsched_group_destroy(group_);
    commsched_context_destroy(context);
  }

  commsched_stream_t stream() const { return stream_->handle(); }

  commsched_status_t Open(const commsched_stream_t& lane) {
    const commsched_binding_t bindings[] = {
        Bind(step_.gradient, gradient_.address()),
        Bind(step_.weights, weights_.address())};
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = context;
    desc.plan = step_.plan;
    desc.groups = &group_;
    desc.num_groups = 1;
    desc.bindings = bindings;
    desc.num_bindings = 2;
    desc.lanes = &lane;
    desc.num_lanes = 1;
    return commsched_session_create(&desc, &session);
  }

  void Train(int num_steps) {
    float* const gradient = Peek(gradient_.address());
    float* const weights = Peek(weights_.address());
    const int number = number_;
    for (int t = 1; t <= num_steps; ++t) {
      ExpectOk(commsched_session_step_begin(session));
      ExpectOk(commsched_session_before(session, step_.backward, stream()));
      test::RunOn(stream_.get(), [=] {
        for (uint64_t i = 0; i < kCount; ++i) {
          gradient[i] = static_cast<float>((number + 1) * t);
        }
      });
      ExpectOk(commsched_session_after(session, step_.backward, stream()));
      ExpectOk(commsched_session_before(session, step_.update, stream()));
      test::RunOn(stream_.get(), [=] {
        for (uint64_t i = 0; i < kCount; ++i) weights[i] += gradient[i];
      });
      ExpectOk(commsched_session_after(session, step_.update, stream()));
      ExpectOk(commsched_session_step_end(session));
    }
    ExpectOk(commsched_session_drain(session));
  }

  // Sums gradients in each of kSteps steps, and looks at the last sum.
  void Record() {
    commsched_recording_desc_t desc = commsched_recording_desc_init();
    desc.context = context;
    desc.groups = &group_;
    desc.num_groups = 1;
    const commsched_stream_t lane = stream();
    desc.lanes = &lane;
    desc.num_lanes = 1;
    ExpectOk(commsched_recording_create(&desc, &recording));
    commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
    buffer.name = "gradient";
    buffer.count = kCount;
    buffer.ownership = COMMSCHED_BOUND;
    commsched_buffer_id_t gradient = 0;
    ExpectOk(commsched_recording_add_buffer(recording, &buffer,
                                            gradient_.address(), &gradient));
    const commsched_access_t write = Step::Access(gradient, COMMSCHED_WRITE);
    commsched_compute_desc_t compute = commsched_compute_desc_init();
    compute.name = "backward";
    compute.accesses = &write;
    compute.num_accesses = 1;
    commsched_op_id_t backward = 0;
    ExpectOk(
        commsched_recording_add_compute(recording, &compute, 0, &backward));
    commsched_collective_desc_t collective = commsched_collective_desc_init();
    collective.name = "reduce";
    collective.input.buffer = gradient;
    collective.output.buffer = gradient;
    commsched_op_id_t reduce = 0;
    ExpectOk(commsched_recording_add_collective(recording, &collective, 0, 0,
                                                &reduce));
    float* const memory = Peek(gradient_.address());
    for (int t = 0; t < kSteps; ++t) {
      ExpectOk(commsched_recording_step_begin(recording));
      ExpectOk(commsched_recording_before(recording, backward, lane));
      test::RunOn(stream_.get(), [memory, t] {
        for (uint64_t i = 0; i < kCount; ++i) memory[i] = static_cast<float>(t);
      });
      ExpectOk(commsched_recording_after(recording, backward, lane));
      ExpectOk(commsched_recording_submit(recording, reduce));
      ExpectOk(commsched_recording_buffer_release(recording, gradient, lane));
      ExpectOk(commsched_recording_step_end(recording));
    }
    ExpectOk(commsched_recording_drain(recording));
    for (uint64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(memory[i], static_cast<float>(kRanks * (kSteps - 1)));
    }
  }

  float weight(uint64_t i) const { return Peek(weights_.address())[i]; }

  commsched_context_t* context = nullptr;
  commsched_session_t* session = nullptr;
  commsched_recording_t* recording = nullptr;

 private:
  static commsched_binding_t Bind(commsched_buffer_id_t buffer, void* address) {
    commsched_binding_t binding = {};
    binding.buffer = buffer;
    binding.address = address;
    binding.bytes = kCount * sizeof(float);
    return binding;
  }

  const Step& step_;
  const int number_;
  const std::shared_ptr<Device> device_;
  const DeviceMemory gradient_, weights_;
  const std::unique_ptr<Stream> stream_;
  commsched_group_t* group_ = nullptr;
};

template <typename Body>
void OnAllRanks(const Step& step, const Body& body) {
  const commsched_world_desc_t desc = WorldDesc();
  commsched_world_t* world = nullptr;
  ExpectOk(commsched_world_create_inproc(&desc, &world));
  RunRanks(kRanks, [&](int number) {
    Rank rank(world, step, number);
    body(rank);
    return absl::OkStatus();
  });
  commsched_world_destroy(world);
}

TEST(CudaAbiTest, AFrameworkTrainsOnItsOwnStream) {
  const Step step;
  fake_gpu_delay(/*seed=*/3, /*most_us=*/200);
  OnAllRanks(step, [&](Rank& rank) {
    ExpectOk(rank.Open(rank.stream()));
    rank.Train(kSteps);
    EXPECT_EQ(rank.weight(0), 3.f * kSteps * (kSteps + 1) / 2);
    EXPECT_EQ(rank.weight(kCount - 1), rank.weight(0));
    uint64_t version = 0;
    ExpectOk(commsched_session_buffer_version(rank.session, step.gradient,
                                              &version));
    EXPECT_EQ(version, uint64_t{kSteps});
    commsched_session_counters_t counters = commsched_session_counters_init();
    ExpectOk(commsched_session_get_counters(rank.session, &counters));
    EXPECT_EQ(counters.launches, uint64_t{kSteps});
  });
  fake_gpu_delay(0, 0);
}

TEST(CudaAbiTest, AStreamThatIsNotTheLanesIsRefused) {
  const Step step;
  std::barrier all_refused(kRanks);
  OnAllRanks(step, [&](Rank& rank) {
    ExpectOk(rank.Open(rank.stream()));
    ExpectOk(commsched_session_step_begin(rank.session));
    ExpectFails(commsched_session_before(rank.session, step.backward,
                                         commsched_stream_caller()),
                COMMSCHED_INVALID_ARGUMENT, "a stream other than that");
    all_refused.arrive_and_wait();
    commsched_session_abort(rank.session, "done");
  });
}

TEST(CudaAbiTest, AWorkerOfTheHostIsNoLane) {
  const Step step;
  OnAllRanks(step, [&](Rank& rank) {
    commsched_stream_t worker = {};
    ExpectOk(commsched_host_stream_create(rank.context, "worker", 8, &worker));
    ExpectFails(rank.Open(worker), COMMSCHED_INVALID_ARGUMENT,
                "lane 0 is a HOST stream, but backend 'nccl' works on CUDA");
    commsched_host_stream_destroy(worker);
  });
}

TEST(CudaAbiTest, BackendAndDeviceGoTogether) {
  commsched_world_desc_t desc = WorldDesc();
  commsched_world_t* world = nullptr;
  desc.backend = "inproc";
  ExpectFails(commsched_world_create_inproc(&desc, &world),
              COMMSCHED_INVALID_ARGUMENT,
              "backend 'inproc' does not move memory of CUDA device 0");
  desc = WorldDesc();
  desc.device_kind = COMMSCHED_DEVICE_HOST;
  ExpectFails(commsched_world_create_inproc(&desc, &world),
              COMMSCHED_INVALID_ARGUMENT,
              "backend 'nccl' does not move memory of the host");
  desc = WorldDesc();
  desc.device = 99;
  ExpectFails(commsched_world_create_inproc(&desc, &world),
              COMMSCHED_UNAVAILABLE, "there is no CUDA device 99");
  desc.device_kind = 7;
  ExpectFails(commsched_world_create_inproc(&desc, &world),
              COMMSCHED_INVALID_ARGUMENT, "desc.device_kind is 7");
}

TEST(CudaAbiTest, WhatIsCalledEagerlyIsRecordedAndReplayed) {
  const Step step;
  OnAllRanks(step, [&](Rank& rank) {
    rank.Record();
    commsched_recording_info_t info = commsched_recording_info_init();
    ExpectOk(commsched_recording_get_info(rank.recording, &info));
    EXPECT_EQ(info.phase, commsched_recording_phase_t{1});
    EXPECT_EQ(info.steps, uint64_t{kSteps});
    EXPECT_EQ(info.steps_deviating, 0u);
  });
}

TEST(CudaAbiTest, InfoCountsDevices) {
  char* text = nullptr;
  ExpectOk(commsched_info(COMMSCHED_TEXT, &text));
  EXPECT_THAT(text, HasSubstr("CUDA: 4\n"));
  commsched_string_free(text);
}

}  // namespace
}  // namespace commsched
