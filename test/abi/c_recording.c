/* The recording from C: one rank, so that one thread does. */
#include <string.h>

#include "c_check.h"

enum { STEPS = 5 };

struct recorded {
  commsched_context_t* context;
  commsched_group_t* group;
  commsched_recording_t* recording;
  commsched_op_id_t backward, reduce, update;
  float grad[C_COUNT];
};

static commsched_op_id_t add_compute(struct recorded* self, const char* name,
                                     commsched_access_t access) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  commsched_op_id_t id = 0;
  desc.name = name;
  desc.accesses = &access;
  desc.num_accesses = 1;
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "segment 7",
               commsched_recording_add_compute(self->recording, &desc, 7, &id));
  EXPECT_OK(commsched_recording_add_compute(self->recording, &desc, 0, &id));
  return id;
}

static void declare(struct recorded* self) {
  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  commsched_access_t access;
  uint32_t segment = 0;
  memset(&access, 0, sizeof(access));
  buffer.name = "grad";
  buffer.ownership = COMMSCHED_BOUND;
  buffer.count = C_COUNT;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'grad' is NULL",
               commsched_recording_add_buffer(self->recording, &buffer, NULL,
                                              &access.buffer));
  EXPECT_OK(commsched_recording_add_buffer(self->recording, &buffer, self->grad,
                                           &access.buffer));
  EXPECT_OK(
      commsched_recording_add_segment(self->recording, "optimizer", &segment));
  EXPECT(segment == 1);
  EXPECT_FAILS(
      COMMSCHED_ALREADY_EXISTS, "'optimizer'",
      commsched_recording_add_segment(self->recording, "optimizer", &segment));
  access.mode = COMMSCHED_WRITE;
  self->backward = add_compute(self, "backward", access);
  access.mode = COMMSCHED_READ;
  self->update = add_compute(self, "update", access);
  reduce.name = "reduce";
  reduce.input.buffer = access.buffer;
  reduce.output.buffer = access.buffer;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "flags is 8",
               commsched_recording_add_collective(self->recording, &reduce, 1,
                                                  8, &self->reduce));
  EXPECT_OK(commsched_recording_add_collective(self->recording, &reduce, 1, 0,
                                               &self->reduce));
}

static void open_recorded(struct recorded* self, commsched_world_t* world) {
  const int32_t members[1] = {0};
  commsched_recording_desc_t desc = commsched_recording_desc_init();
  self->context = c_new_context(world, 0);
  EXPECT_OK(
      commsched_group_create(self->context, "dp", members, 1, &self->group));
  EXPECT_NULL("desc.context",
              commsched_recording_create(&desc, &self->recording));
  desc.context = self->context;
  desc.groups = &self->group;
  desc.num_groups = 1;
  desc.steps_to_record = 3;
  desc.max_recorded_steps = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "steps_to_record is 3",
               commsched_recording_create(&desc, &self->recording));
  desc.steps_to_record = 2;
  desc.max_recorded_steps = 0;
  desc.strict = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "strict is 2",
               commsched_recording_create(&desc, &self->recording));
  desc.strict = 1;
  desc.progress = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "desc.progress is 2",
               commsched_recording_create(&desc, &self->recording));
  desc.progress = COMMSCHED_PROGRESS_CALLER;
  EXPECT_OK(commsched_recording_create(&desc, &self->recording));
  declare(self);
}

static void run_step(struct recorded* self) {
  const commsched_stream_t here = commsched_stream_caller();
  commsched_recording_t* recording = self->recording;
  EXPECT_OK(commsched_recording_step_begin(recording));
  EXPECT_OK(commsched_recording_before(recording, self->backward, here));
  self->grad[0] += 1;
  EXPECT_OK(commsched_recording_after(recording, self->backward, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "'reduce' has not been submitted",
               commsched_recording_wait(recording, self->reduce, INT64_MAX));
  EXPECT_OK(commsched_recording_submit(recording, self->reduce));
  EXPECT_OK(commsched_recording_wait(recording, self->reduce, INT64_MAX));
  EXPECT_OK(commsched_recording_before(recording, self->update, here));
  EXPECT_OK(commsched_recording_after(recording, self->update, here));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'backward' is a compute op",
               commsched_recording_submit(recording, self->backward));
  EXPECT_OK(commsched_recording_step_end(recording));
}

/* What one rank is refused, the other need not wait for. */
static void test_refused_elsewhere(void) {
  commsched_world_t* world = c_new_world(2, NULL);
  commsched_recording_desc_t desc = commsched_recording_desc_init();
  commsched_recording_t* recording = NULL;
  struct c_rank refused, rank;
  c_open_rank(&refused, world, 1);
  desc.context = refused.context;
  desc.launch_timeout_ns = -1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "below 0",
               commsched_recording_create(&desc, &recording));
  c_open_rank(&rank, world, 0);
  desc.context = rank.context;
  desc.launch_timeout_ns = 0;
  EXPECT_OK(commsched_recording_create(&desc, &recording));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION,
               "rank 1 will not come: desc.launch_timeout_ns is -1",
               commsched_recording_step_begin(recording));
  commsched_recording_destroy(recording);
  c_close_rank(&rank);
  c_close_rank(&refused);
  commsched_world_destroy(world);
}

/* Memory that moves: a submit says where it is. */
static void test_bound(void) {
  const int32_t members[1] = {0};
  const commsched_stream_t here = commsched_stream_caller();
  commsched_world_t* world = c_new_world(1, "inproc");
  commsched_recording_desc_t desc = commsched_recording_desc_init();
  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  commsched_late_binding_t binding;
  commsched_completion_t told[4];
  commsched_recording_t* recording = NULL;
  commsched_group_t* group = NULL;
  commsched_buffer_id_t moves;
  commsched_op_id_t op;
  float memory[4][2] = {{0}};
  uint64_t count = 0;
  int step;
  desc.context = c_new_context(world, 0);
  EXPECT_OK(commsched_group_create(desc.context, "dp", members, 1, &group));
  desc.groups = &group;
  desc.num_groups = 1;
  desc.key = 5;
  EXPECT_OK(commsched_completions_create(1, &desc.completions));
  EXPECT_OK(commsched_recording_create(&desc, &recording));
  buffer.name = "moves";
  buffer.dtype = COMMSCHED_F32;
  buffer.ownership = COMMSCHED_LATE_BOUND;
  buffer.count = 2;
  EXPECT_OK(commsched_recording_add_buffer(recording, &buffer, NULL, &moves));
  reduce.name = "reduce";
  reduce.kind = COMMSCHED_ALL_REDUCE;
  reduce.input.buffer = moves;
  reduce.input.mode = COMMSCHED_READ;
  reduce.output.buffer = moves;
  reduce.output.mode = COMMSCHED_WRITE;
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "flags is 8",
      commsched_recording_add_collective(recording, &reduce, 0, 8, &op));
  EXPECT_OK(commsched_recording_add_collective(
      recording, &reduce, 0, COMMSCHED_RECORDING_COUNTS, &op));
  memset(&binding, 0, sizeof(binding));
  binding.buffer = moves;
  for (step = 0; step < 4; ++step) {
    binding.address = memory[step];
    binding.count = (uint64_t)(1 + step % 2);
    EXPECT_OK(commsched_recording_step_begin(recording));
    EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "'moves' and must bind it",
                 commsched_recording_submit(recording, op));
    EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "bindings",
                 commsched_recording_submit_bound(recording, op, NULL, 1));
    EXPECT_OK(commsched_recording_submit_bound(recording, op, &binding, 1));
    EXPECT_FAILS(COMMSCHED_RESOURCE_EXHAUSTED, "all 1 places are taken",
                 commsched_recording_submit_bound(recording, op, &binding, 1));
    EXPECT_OK(commsched_completions_next(desc.completions, told, 4, INT64_MAX,
                                         &count));
    EXPECT(count == 1 && told[0].key == 5 && told[0].user == op &&
           told[0].request == (uint64_t)(step + 1) &&
           told[0].status == COMMSCHED_OK);
    EXPECT_OK(commsched_recording_step_end(recording));
    EXPECT_OK(commsched_recording_buffer_release(recording, moves, here));
  }
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "'moves' is accessed",
               commsched_recording_remove_buffer(recording, moves));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'moves' is LATE_BOUND",
               commsched_recording_move_buffer(recording, moves, memory));
  EXPECT_OK(commsched_recording_remove_op(recording, op));
  EXPECT_OK(commsched_recording_remove_buffer(recording, moves));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "has been removed",
               commsched_recording_remove_op(recording, op));
  EXPECT_OK(commsched_recording_step_begin(recording));
  EXPECT_OK(commsched_recording_step_end(recording));
  EXPECT_NULL("recording", commsched_recording_remove_op(NULL, op));
  EXPECT_NULL("recording", commsched_recording_remove_buffer(NULL, moves));
  EXPECT_NULL("recording",
              commsched_recording_move_buffer(NULL, moves, memory));
  EXPECT_NULL("recording",
              commsched_recording_submit_bound(NULL, op, &binding, 1));
  EXPECT_NULL("recording",
              commsched_recording_buffer_release(NULL, moves, here));
  commsched_recording_destroy(recording);
  commsched_completions_destroy(desc.completions);
  commsched_group_destroy(group);
  commsched_context_destroy(desc.context);
  commsched_world_destroy(world);
}

void test_recording(void) {
  commsched_world_t* world = c_new_world(1, "inproc");
  commsched_recording_info_t info = commsched_recording_info_init();
  commsched_plan_t* plan = NULL;
  struct recorded self;
  int step;
  memset(&self, 0, sizeof(self));
  open_recorded(&self, world);
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "no plan",
               commsched_recording_plan(self.recording, &plan));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "no step",
               commsched_recording_step_end(self.recording));
  EXPECT_NULL("recording", commsched_recording_wait(NULL, self.reduce, 0));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "timeout_ns is -1",
               commsched_recording_wait(self.recording, self.reduce, -1));
  for (step = 0; step < STEPS; ++step) run_step(&self);
  EXPECT_OK(commsched_recording_drain(self.recording));
  EXPECT(self.grad[0] == STEPS);
  EXPECT_OK(commsched_recording_get_info(self.recording, &info));
  EXPECT(info.phase == COMMSCHED_RECORDING_FROZEN);
  EXPECT(info.steps == STEPS && info.steps_recorded == 2 && info.plans == 1);
  EXPECT(info.deviating_rank == -1 && info.collectives_left_out == 0);
  EXPECT_OK(commsched_recording_plan(self.recording, &plan));
  commsched_plan_destroy(plan);
  commsched_recording_abort(self.recording, "done");
  EXPECT_FAILS(COMMSCHED_ABORTED, "done",
               commsched_recording_status(self.recording));
  commsched_recording_destroy(self.recording);
  commsched_recording_destroy(NULL);
  commsched_group_destroy(self.group);
  commsched_context_destroy(self.context);
  commsched_world_destroy(world);
  test_refused_elsewhere();
  test_bound();
}
