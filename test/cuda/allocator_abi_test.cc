// The caller's allocator through the C ABI.
#include <cstdint>
#include <memory>
#include <string>

#include "commsched/commsched.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/support/rank_group.h"

namespace commsched {
namespace {

using testing::HasSubstr;

constexpr uint64_t kCount = 1000;

void ExpectOk(commsched_status_t code) {
  EXPECT_EQ(code, COMMSCHED_OK) << commsched_last_error();
}

// Memory that a framework lends, and what it was asked for.
struct Lender {
  std::shared_ptr<Device> device = test::FakeDevice(0);
  commsched_status_t refusal = COMMSCHED_OK;
  uint64_t asked_bytes = 0, lent_bytes = 0;
  int num_trimmed = 0;

  commsched_allocator_t Table() {
    commsched_allocator_t table = commsched_allocator_init();
    table.user = this;
    table.allocate = [](void* user, uint64_t bytes, void** out_address) {
      auto* self = static_cast<Lender*>(user);
      self->asked_bytes += bytes;
      if (self->refusal != COMMSCHED_OK) return self->refusal;
      self->lent_bytes += bytes;
      *out_address = self->device->Allocate(bytes).value();
      return commsched_status_t{COMMSCHED_OK};
    };
    table.release = [](void* user, void* address, uint64_t bytes) {
      auto* self = static_cast<Lender*>(user);
      self->lent_bytes -= bytes;
      self->device->Free(address);
    };
    table.trim = [](void* user) { ++static_cast<Lender*>(user)->num_trimmed; };
    return table;
  }
};

// A world of one rank, and a plan with a buffer of its own.
class CudaAllocatorAbiTest : public testing::Test {
 protected:
  CudaAllocatorAbiTest() {
    (void)test::NcclTable();  // So that its file is known.
    commsched_world_desc_t world_desc = commsched_world_desc_init();
    world_desc.size = 1;
    world_desc.backend = "nccl";
    world_desc.device_kind = COMMSCHED_DEVICE_CUDA;
    ExpectOk(commsched_world_create_inproc(&world_desc, &world_));
    ExpectOk(commsched_context_create(world_, 0, &context_));
    const commsched_axis_t axis = {"dp", 1};
    commsched_mesh_t* mesh = nullptr;
    ExpectOk(commsched_mesh_create(context_, &axis, 1, &mesh));
    ExpectOk(commsched_mesh_group(mesh, "dp", &group_));
    commsched_mesh_destroy(mesh);
    MakePlan();
  }
  ~CudaAllocatorAbiTest() override {
    commsched_plan_destroy(plan_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
    commsched_world_destroy(world_);
  }

  commsched_status_t Open(const commsched_allocator_t* allocator) {
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = context_;
    desc.plan = plan_;
    desc.groups = &group_;
    desc.num_groups = 1;
    desc.allocator = allocator;
    return commsched_session_create(&desc, &session_);
  }

  commsched_session_t* session_ = nullptr;
  Lender lender_;

 private:
  void MakePlan() {
    commsched_graph_t* graph = nullptr;
    ExpectOk(commsched_graph_create(&graph));
    commsched_collective_desc_t reduce = commsched_collective_desc_init();
    ExpectOk(commsched_graph_add_group(graph, "dp", 1, &reduce.group));
    commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
    buffer.name = "gradient";
    buffer.count = kCount;
    buffer.ownership = COMMSCHED_OWNED;
    commsched_access_t write = {};
    write.mode = COMMSCHED_WRITE;
    ExpectOk(commsched_graph_add_buffer(graph, &buffer, &write.buffer));
    commsched_compute_desc_t compute = commsched_compute_desc_init();
    compute.name = "backward";
    compute.accesses = &write;
    compute.num_accesses = 1;
    commsched_op_id_t id = 0;
    ExpectOk(commsched_graph_add_compute(graph, &compute, &id));
    reduce.name = "reduce";
    reduce.input.buffer = write.buffer;
    reduce.output.buffer = write.buffer;
    ExpectOk(commsched_graph_add_collective(graph, &reduce, &id));
    commsched_plan_options_t options = commsched_plan_options_init();
    options.backend = "nccl";
    ExpectOk(commsched_plan_build(graph, &options, nullptr, &plan_));
    commsched_graph_destroy(graph);
  }

  commsched_world_t* world_ = nullptr;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_plan_t* plan_ = nullptr;
};

TEST_F(CudaAllocatorAbiTest, ASessionTakesItsArenaFromItAndGivesItBack) {
  const commsched_allocator_t table = lender_.Table();
  ExpectOk(Open(&table));
  commsched_session_counters_t counters = commsched_session_counters_init();
  ExpectOk(commsched_session_get_counters(session_, &counters));
  EXPECT_GE(counters.arena_bytes, kCount * sizeof(float));
  EXPECT_EQ(counters.arena_bytes, lender_.lent_bytes);
  EXPECT_EQ(counters.registered_bytes, 0u);  // It is not asked for.
  EXPECT_EQ(counters.allocation_retries, 0u);
  char* text = nullptr;
  ExpectOk(commsched_session_metrics_text(session_, &text));
  EXPECT_THAT(text, HasSubstr("commsched_session_arena_bytes{rank=\"0\"} "));
  EXPECT_THAT(text, HasSubstr("commsched_session_launch_allocations_total"));
  commsched_string_free(text);
  commsched_session_destroy(session_);
  EXPECT_EQ(lender_.lent_bytes, 0u);
}

TEST_F(CudaAllocatorAbiTest, ARefusalKeepsItsCode) {
  lender_.refusal = COMMSCHED_PERMISSION_DENIED;
  const commsched_allocator_t table = lender_.Table();
  EXPECT_EQ(Open(&table), COMMSCHED_PERMISSION_DENIED);
  EXPECT_THAT(commsched_last_error(),
              HasSubstr("the allocator returned PERMISSION_DENIED for "));
  EXPECT_EQ(lender_.num_trimmed, 0);
}

TEST_F(CudaAllocatorAbiTest, WithoutMemoryItIsTrimmedAndAskedOnceMore) {
  lender_.refusal = COMMSCHED_RESOURCE_EXHAUSTED;
  const commsched_allocator_t table = lender_.Table();
  EXPECT_EQ(Open(&table), COMMSCHED_RESOURCE_EXHAUSTED);
  EXPECT_EQ(lender_.num_trimmed, 1);
  EXPECT_GE(lender_.asked_bytes, 2 * kCount * sizeof(float));
}

TEST_F(CudaAllocatorAbiTest, HalfATableIsRefusedByName) {
  commsched_allocator_t table = lender_.Table();
  table.release = nullptr;
  EXPECT_EQ(Open(&table), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(commsched_last_error(),
              HasSubstr("desc.allocator has no release, but allocate"));
  table = lender_.Table();
  table.allocate = nullptr;
  EXPECT_EQ(Open(&table), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(commsched_last_error(),
              HasSubstr("desc.allocator has no allocate, but release"));
  table.struct_size = 0;
  EXPECT_EQ(Open(&table), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(commsched_last_error(), HasSubstr("commsched_allocator_t"));
}

}  // namespace
}  // namespace commsched
