// The runtime's last error of a thread is its caller's: PyTorch raises what it
// finds there after its next launch. So each call of the ABI that touches the
// device leaves what was there, and adds nothing.
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "commsched/commsched.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"

namespace commsched {
namespace {

// What a test lets the caller have done wrong before.
constexpr cudaError_t kOfCaller = cudaErrorInvalidDevice;

// A rank that writes a buffer and has it all-reduced, with an error of the
// caller's own before each call (`planted`), or without.
class CudaLastErrorTest : public testing::TestWithParam<bool> {
 protected:
  // Tests before may have left one on this thread.
  CudaLastErrorTest() { (void)cudaGetLastError(); }
  ~CudaLastErrorTest() override {
    Call("session_destroy", [&] { commsched_session_destroy(session_); });
    Call("group_destroy", [&] { commsched_group_destroy(group_); });
    Call("context_destroy", [&] { commsched_context_destroy(context_); });
    Call("world_destroy", [&] { commsched_world_destroy(world_); });
    commsched_plan_destroy(plan_);
    commsched_graph_destroy(graph_);
    fake_gpu_delay(0, 0);
  }

  // Calls a function of the ABI, and looks at what it has left.
  void Call(const char* name, const std::function<void()>& call) {
    if (GetParam()) cudaSetDevice(1000);
    call();
    const cudaError_t expected = GetParam() ? kOfCaller : cudaSuccess;
    EXPECT_EQ(cudaGetLastError(), expected) << name;
  }
  void Expect(commsched_status_t expected, const char* name,
              const std::function<commsched_status_t()>& call) {
    Call(name, [&] {
      ASSERT_EQ(call(), expected) << name << ": " << commsched_last_error();
    });
  }
  void ExpectOk(const char* name,
                const std::function<commsched_status_t()>& call) {
    Expect(COMMSCHED_OK, name, call);
  }

  // The buffer is of `count` floats: the caller's memory, or the plan's.
  void MakePlan(uint64_t count, commsched_ownership_t ownership) {
    (void)test::NcclTable();  // So that its file is known.
    ASSERT_EQ(commsched_graph_create(&graph_), COMMSCHED_OK);
    commsched_collective_desc_t reduce = commsched_collective_desc_init();
    commsched_graph_add_group(graph_, "dp", 1, &reduce.group);
    commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
    buffer.name = "gradient";
    buffer.count = count;
    buffer.ownership = ownership;
    commsched_graph_add_buffer(graph_, &buffer, &buffer_);
    commsched_access_t access = {};
    access.buffer = buffer_;
    access.mode = COMMSCHED_WRITE;
    commsched_compute_desc_t compute = commsched_compute_desc_init();
    compute.name = "backward";
    compute.accesses = &access;
    compute.num_accesses = 1;
    commsched_graph_add_compute(graph_, &compute, &backward_);
    reduce.name = "reduce";
    reduce.input.buffer = buffer_;
    reduce.output.buffer = buffer_;
    commsched_op_id_t id = 0;
    commsched_graph_add_collective(graph_, &reduce, &id);
    access.mode = COMMSCHED_READ;
    compute.name = "update";
    commsched_graph_add_compute(graph_, &compute, &update_);
    commsched_plan_options_t options = commsched_plan_options_init();
    options.backend = "nccl";
    ASSERT_EQ(commsched_plan_build(graph_, &options, nullptr, &plan_),
              COMMSCHED_OK)
        << commsched_last_error();
  }

  void MakeContext() {
    commsched_world_desc_t world = commsched_world_desc_init();
    world.size = 1;
    world.backend = "nccl";
    world.device_kind = COMMSCHED_DEVICE_CUDA;
    ExpectOk("world_create_inproc",
             [&] { return commsched_world_create_inproc(&world, &world_); });
    ExpectOk("context_create",
             [&] { return commsched_context_create(world_, 0, &context_); });
    const commsched_axis_t axis = {"dp", 1};
    commsched_mesh_t* mesh = nullptr;
    ExpectOk("mesh_create",
             [&] { return commsched_mesh_create(context_, &axis, 1, &mesh); });
    ExpectOk("mesh_group",
             [&] { return commsched_mesh_group(mesh, "dp", &group_); });
    commsched_mesh_destroy(mesh);
  }

  // The buffer is bound to `address`, unless that is null.
  void MakeSession(commsched_status_t expected, void* address, uint64_t bytes) {
    commsched_binding_t binding = {};
    binding.buffer = buffer_;
    binding.address = address;
    binding.bytes = bytes;
    const commsched_stream_t lane = stream_->handle();
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = context_;
    desc.plan = plan_;
    desc.groups = &group_;
    desc.num_groups = 1;
    desc.bindings = address == nullptr ? nullptr : &binding;
    desc.num_bindings = address == nullptr ? 0 : 1;
    desc.lanes = &lane;
    desc.num_lanes = 1;
    Expect(expected, "session_create",
           [&] { return commsched_session_create(&desc, &session_); });
  }

  void EnqueueStep() {
    const commsched_stream_t lane = stream_->handle();
    for (const commsched_op_id_t op : {backward_, update_}) {
      ExpectOk("before",
               [&] { return commsched_session_before(session_, op, lane); });
      fake_gpu_launch(
          lane.native, [](void*) {}, nullptr);
      ExpectOk("after",
               [&] { return commsched_session_after(session_, op, lane); });
    }
  }

  void RunStep() {
    ExpectOk("step_begin",
             [&] { return commsched_session_step_begin(session_); });
    EnqueueStep();
    ExpectOk("step_end", [&] { return commsched_session_step_end(session_); });
    uint64_t version = 0;
    ExpectOk("buffer_version", [&] {
      return commsched_session_buffer_version(session_, buffer_, &version);
    });
  }

  const std::shared_ptr<Device> device_ = test::FakeDevice(0);
  const std::unique_ptr<Stream> stream_ = device_->CreateSideStream().value();
  commsched_graph_t* graph_ = nullptr;
  commsched_plan_t* plan_ = nullptr;
  commsched_world_t* world_ = nullptr;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_session_t* session_ = nullptr;
  commsched_buffer_id_t buffer_ = 0;
  commsched_op_id_t backward_ = 0, update_ = 0;
};

constexpr uint64_t kFloats = 256;

// Streams are late, so that the host is told that work is not complete.
TEST_P(CudaLastErrorTest, EachCallOfAStepLeavesTheCallers) {
  const test::DeviceMemory memory(device_, kFloats * sizeof(float));
  MakePlan(kFloats, COMMSCHED_BOUND);
  MakeContext();
  MakeSession(COMMSCHED_OK, memory.address(), kFloats * sizeof(float));
  fake_gpu_delay(/*seed=*/5, /*most_us=*/500);
  const uint64_t before = fake_gpu_num_not_ready();
  for (int t = 0; t < 1000 && fake_gpu_num_not_ready() < before + 3; ++t) {
    RunStep();
  }
  EXPECT_GE(fake_gpu_num_not_ready(), before + 3);
  ExpectOk("drain", [&] { return commsched_session_drain(session_); });
}

TEST_P(CudaLastErrorTest, CapturingAndLaunchingAStepLeavesTheCallers) {
  const test::DeviceMemory memory(device_, kFloats * sizeof(float));
  MakePlan(kFloats, COMMSCHED_BOUND);
  MakeContext();
  MakeSession(COMMSCHED_OK, memory.address(), kFloats * sizeof(float));
  RunStep();
  const commsched_stream_t stream = stream_->handle();
  const auto native = static_cast<cudaStream_t>(stream.native);
  cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal);
  ExpectOk("capture_begin",
           [&] { return commsched_session_capture_begin(session_, stream); });
  EnqueueStep();
  ExpectOk("capture_end",
           [&] { return commsched_session_capture_end(session_); });
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  fake_gpu_delay(/*seed=*/6, /*most_us=*/500);
  const uint64_t before = fake_gpu_num_not_ready();
  for (int t = 0; t < 1000 && fake_gpu_num_not_ready() < before + 3; ++t) {
    ExpectOk("replay_begin",
             [&] { return commsched_session_replay_begin(session_, stream); });
    ASSERT_EQ(cudaGraphLaunch(exec, native), cudaSuccess);
    ExpectOk("replay_end",
             [&] { return commsched_session_replay_end(session_); });
  }
  EXPECT_GE(fake_gpu_num_not_ready(), before + 3);
  ExpectOk("drain", [&] { return commsched_session_drain(session_); });
  cudaGraphExecDestroy(exec);
}

// A caller that gets a status is told enough.
TEST_P(CudaLastErrorTest, MemoryThatIsRefusedLeavesTheCallers) {
  float on_host[kFloats] = {};
  MakePlan(kFloats, COMMSCHED_BOUND);
  MakeContext();
  MakeSession(COMMSCHED_INVALID_ARGUMENT, on_host, sizeof(on_host));
}

TEST_P(CudaLastErrorTest, AnArenaThatHasNoRoomLeavesTheCallers) {
  MakePlan(uint64_t{1} << 40, COMMSCHED_OWNED);
  MakeContext();
  MakeSession(COMMSCHED_RESOURCE_EXHAUSTED, nullptr, 0);
}

// A thread of the caller's on which no call of the runtime has been made.
TEST_P(CudaLastErrorTest, AStepOfAnotherThreadLeavesTheCallers) {
  const test::DeviceMemory memory(device_, kFloats * sizeof(float));
  MakePlan(kFloats, COMMSCHED_BOUND);
  MakeContext();
  MakeSession(COMMSCHED_OK, memory.address(), kFloats * sizeof(float));
  fake_gpu_delay(/*seed=*/7, /*most_us=*/500);
  for (int t = 0; t < 8; ++t) {
    std::thread([&] { RunStep(); }).join();
  }
  ExpectOk("drain", [&] { return commsched_session_drain(session_); });
}

INSTANTIATE_TEST_SUITE_P(Caller, CudaLastErrorTest, testing::Bool(),
                         [](const auto& info) {
                           return std::string(info.param ? "HasAnError"
                                                         : "HasNone");
                         });

}  // namespace
}  // namespace commsched
