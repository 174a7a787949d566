// A framework captures its step by the C ABI, as docs/devices.md has it.
#include <cuda_runtime_api.h>

#include <memory>

#include "commsched/commsched.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched {
namespace {

constexpr uint64_t kCapturedCount = 64;

void ExpectDone(commsched_status_t code) {
  ASSERT_EQ(code, COMMSCHED_OK) << commsched_last_error();
}

// One rank that counts its steps in a buffer, which is then all-reduced.
class CudaCaptureAbiTest : public testing::Test {
 protected:
  CudaCaptureAbiTest()
      : device_(test::FakeDevice(0)),
        memory_(device_, kCapturedCount * sizeof(float)),
        stream_(device_->CreateSideStream().value()) {
    (void)test::NcclTable();  // So that its file is known.
    MakePlan();
    commsched_world_desc_t world = commsched_world_desc_init();
    world.size = 1;
    world.backend = "nccl";
    world.device_kind = COMMSCHED_DEVICE_CUDA;
    ExpectDone(commsched_world_create_inproc(&world, &world_));
    ExpectDone(commsched_context_create(world_, 0, &context_));
    const commsched_axis_t axis = {"dp", 1};
    commsched_mesh_t* mesh = nullptr;
    ExpectDone(commsched_mesh_create(context_, &axis, 1, &mesh));
    ExpectDone(commsched_mesh_group(mesh, "dp", &group_));
    commsched_mesh_destroy(mesh);
    commsched_binding_t binding = {};
    binding.buffer = counter_;
    binding.address = memory_.address();
    binding.bytes = kCapturedCount * sizeof(float);
    const commsched_stream_t lane = stream_->handle();
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = context_;
    desc.plan = plan_;
    desc.groups = &group_;
    desc.num_groups = 1;
    desc.bindings = &binding;
    desc.num_bindings = 1;
    desc.lanes = &lane;
    desc.num_lanes = 1;
    ExpectDone(commsched_session_create(&desc, &session_));
  }
  ~CudaCaptureAbiTest() override {
    commsched_session_destroy(session_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
    commsched_world_destroy(world_);
    commsched_plan_destroy(plan_);
    commsched_graph_destroy(graph_);
  }

  void MakePlan() {
    ExpectDone(commsched_graph_create(&graph_));
    commsched_collective_desc_t reduce = commsched_collective_desc_init();
    ExpectDone(commsched_graph_add_group(graph_, "dp", 1, &reduce.group));
    commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
    buffer.name = "counter";
    buffer.count = kCapturedCount;
    buffer.ownership = COMMSCHED_BOUND;
    ExpectDone(commsched_graph_add_buffer(graph_, &buffer, &counter_));
    commsched_access_t access = {};
    access.buffer = counter_;
    access.mode = COMMSCHED_READ_WRITE;
    commsched_compute_desc_t compute = commsched_compute_desc_init();
    compute.name = "add";
    compute.accesses = &access;
    compute.num_accesses = 1;
    ExpectDone(commsched_graph_add_compute(graph_, &compute, &add_));
    reduce.name = "reduce";
    reduce.input.buffer = counter_;
    reduce.output.buffer = counter_;
    commsched_op_id_t id = 0;
    ExpectDone(commsched_graph_add_collective(graph_, &reduce, &id));
    commsched_plan_options_t options = commsched_plan_options_init();
    options.backend = "nccl";
    ExpectDone(commsched_plan_build(graph_, &options, nullptr, &plan_));
  }

  void EnqueueStep() {
    const commsched_stream_t lane = stream_->handle();
    ExpectDone(commsched_session_before(session_, add_, lane));
    fake_gpu_launch(
        lane.native, [](void* user) { *static_cast<float*>(user) += 1; },
        test::Peek(memory_.address()));
    ExpectDone(commsched_session_after(session_, add_, lane));
  }

  const std::shared_ptr<Device> device_;
  const test::DeviceMemory memory_;
  const std::unique_ptr<Stream> stream_;
  commsched_graph_t* graph_ = nullptr;
  commsched_plan_t* plan_ = nullptr;
  commsched_world_t* world_ = nullptr;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_session_t* session_ = nullptr;
  commsched_buffer_id_t counter_ = 0;
  commsched_op_id_t add_ = 0;
};

TEST_F(CudaCaptureAbiTest, AFrameworkLaunchesTheGraphOfItsStep) {
  const commsched_stream_t stream = stream_->handle();
  const auto native = static_cast<cudaStream_t>(stream.native);
  ExpectDone(commsched_session_step_begin(session_));
  EnqueueStep();
  ExpectDone(commsched_session_step_end(session_));

  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  ExpectDone(commsched_session_capture_begin(session_, stream));
  EnqueueStep();
  ExpectDone(commsched_session_capture_end(session_));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph,
                                 cudaGraphInstantiateFlagUseNodePriority),
            cudaSuccess);
  cudaGraphDestroy(graph);

  for (int t = 0; t < 6; ++t) {
    ExpectDone(commsched_session_replay_begin(session_, stream));
    ASSERT_EQ(cudaGraphLaunch(exec, native), cudaSuccess);
    ExpectDone(commsched_session_replay_end(session_));
  }
  ExpectDone(commsched_session_drain(session_));
  EXPECT_EQ(*test::Peek(memory_.address()), 7.f);
  commsched_session_counters_t counters = commsched_session_counters_init();
  ExpectDone(commsched_session_get_counters(session_, &counters));
  EXPECT_EQ(counters.steps, 7u);
  EXPECT_EQ(counters.launches, 7u);
  cudaGraphExecDestroy(exec);
}

}  // namespace
}  // namespace commsched
