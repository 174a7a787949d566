/* What a session refuses, and how failures stick. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "c_check.h"

static commsched_status_t create(const commsched_session_desc_t* desc) {
  commsched_session_t* session = NULL;
  const commsched_status_t status = commsched_session_create(desc, &session);
  EXPECT((session != NULL) == (status == COMMSCHED_OK));
  commsched_session_destroy(session);
  return status;
}

static void test_desc(const struct c_step* step, struct c_rank* rank) {
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc = c_session_desc(step, rank, bindings);
  const commsched_stream_t lane = commsched_stream_caller();
  commsched_group_t* none = NULL;
  commsched_session_t* session = NULL;
  EXPECT_NULL("desc", commsched_session_create(NULL, &session));
  EXPECT_NULL("out_session", commsched_session_create(&desc, NULL));
  desc.struct_size = 0;
  EXPECT_UNSIZED(create(&desc));
  desc = c_session_desc(step, rank, bindings);
  desc.context = NULL;
  EXPECT_NULL("desc.context", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  desc.plan = NULL;
  EXPECT_NULL("desc.plan", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  desc.groups = NULL;
  EXPECT_NULL("desc.groups", create(&desc));
  desc.groups = &none;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "groups[0] is NULL", create(&desc));
  desc.num_groups = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'desc.num_groups' is 0",
               create(&desc));
  desc = c_session_desc(step, rank, bindings);
  desc.bindings = NULL;
  EXPECT_NULL("desc.bindings", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  desc.num_bindings = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'desc.num_bindings' is 0",
               create(&desc));
  desc = c_session_desc(step, rank, bindings);
  desc.num_lanes = 1;
  EXPECT_NULL("desc.lanes", create(&desc));
  desc.num_lanes = 0;
  desc.lanes = &lane;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT,
               "'desc.lanes' is given, but 'desc.num_lanes' is 0: set both or "
               "none",
               create(&desc));
  desc.lanes = NULL;
  desc.reserved = 7;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "desc.reserved is 7, not 0",
               create(&desc));
  desc.reserved = 0;
  desc.reserved2 = 7;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "desc.reserved2 is 7, not 0",
               create(&desc));
  desc.reserved2 = 0;
  desc.progress = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT,
               "desc.progress is 2, not COMMSCHED_PROGRESS_THREAD or _CALLER",
               create(&desc));
  desc.progress = COMMSCHED_PROGRESS_THREAD;
  {
    commsched_allocator_t allocator = commsched_allocator_init();
    allocator.struct_size = 0;
    desc.allocator = &allocator;
    EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "commsched_allocator_t",
                 create(&desc));
    desc.allocator = NULL;
  }
  desc.launch_timeout_ns = -1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "launch_timeout_ns is -1",
               create(&desc));
}

static void test_bindings(const struct c_step* step, struct c_rank* rank) {
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc = c_session_desc(step, rank, bindings);
  commsched_stream_t lane = commsched_stream_caller();
  desc.num_bindings = 1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'weights'", create(&desc));
  desc.num_bindings = 2;
  bindings[1] = bindings[0];
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'grad'", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  bindings[1].reserved = 3;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT,
               "desc.bindings[1].reserved is 3, not 0", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  bindings[0].bytes -= 1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'grad'", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  bindings[0].address = (char*)rank->grad + 1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'grad'", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  bindings[0].buffer = 31;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "31", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  bindings[0].buffer = step->scratch;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'scratch'", create(&desc));
  desc = c_session_desc(step, rank, bindings);
  lane.kind = COMMSCHED_STREAM_CUDA;
  desc.lanes = &lane;
  desc.num_lanes = 1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "lanes[0]", create(&desc));
}

/* Handles of one context do not go with a session of another. */
static void test_foreign_handles(const struct c_step* step) {
  commsched_world_t* world = c_new_world(2, "null");
  struct c_rank first, second;
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc;
  commsched_trace_t* trace = NULL;
  c_open_rank(&first, world, 0);
  c_open_rank(&second, world, 1);
  desc = c_session_desc(step, &first, bindings);
  desc.groups = &second.group;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "rank 1", create(&desc));
  desc.groups = &first.group;
  EXPECT_OK(commsched_trace_create(second.context, 1024, &trace));
  desc.trace = trace;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "rank 1", create(&desc));
  commsched_trace_destroy(trace);
  c_close_rank(&first);
  c_close_rank(&second);
  commsched_world_destroy(world);
}

/* A call that is not the next one is refused, names the op, and leaves the
 * session as it was. */
static void test_call_order(const struct c_step* step,
                            commsched_session_t* session) {
  const commsched_stream_t here = commsched_stream_caller();
  commsched_stream_t bad = here;
  bad.kind = 9;
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "",
               commsched_session_before(session, step->backward, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "",
               commsched_session_step_end(session));
  EXPECT_OK(commsched_session_step_begin(session));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "",
               commsched_session_step_begin(session));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "",
               commsched_session_drain(session));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "kind is 9",
               commsched_session_before(session, step->backward, bad));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "kind is 9",
               commsched_session_after(session, step->backward, bad));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "reduce",
               commsched_session_before(session, step->reduce, here));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "77",
               commsched_session_before(session, 77, here));
  EXPECT_FAILS(COMMSCHED_UNAVAILABLE, "not yet: waits for op 'backward'",
               commsched_session_before(session, step->update, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "'backward'",
               commsched_session_after(session, step->backward, here));
  EXPECT_OK(commsched_session_before(session, step->backward, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "'backward'",
               commsched_session_before(session, step->backward, here));
  EXPECT_OK(commsched_session_after(session, step->backward, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "'backward'",
               commsched_session_after(session, step->backward, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "'update'",
               commsched_session_step_end(session));
  EXPECT_OK(commsched_session_before(session, step->update, here));
  EXPECT_OK(commsched_session_after(session, step->update, here));
  EXPECT_OK(commsched_session_step_end(session));
  EXPECT_OK(commsched_session_drain(session));
  EXPECT_OK(commsched_session_status(session));
}

static void test_arguments(const struct c_step* step,
                           commsched_session_t* session) {
  char* text = NULL;
  const commsched_stream_t here = commsched_stream_caller();
  commsched_session_counters_t counters = commsched_session_counters_init();
  commsched_launch_estimate_t estimate = commsched_launch_estimate_init();
  uint64_t version = 0;
  int64_t cpu_ns[4];
  EXPECT_NULL("session", commsched_session_step_begin(NULL));
  EXPECT_NULL("session", commsched_session_step_end(NULL));
  EXPECT_NULL("session", commsched_session_before(NULL, 0, here));
  EXPECT_NULL("session", commsched_session_after(NULL, 0, here));
  EXPECT_NULL("session", commsched_session_drain(NULL));
  EXPECT_NULL("session", commsched_session_capture_begin(NULL, here));
  EXPECT_NULL("session", commsched_session_capture_end(NULL));
  EXPECT_NULL("session", commsched_session_replay_begin(NULL, here));
  EXPECT_NULL("session", commsched_session_replay_end(NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "not one of a CUDA device",
               commsched_session_capture_begin(session, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "no step is being captured",
               commsched_session_capture_end(session));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "not one of a CUDA device",
               commsched_session_replay_begin(session, here));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "replay_begin() comes first",
               commsched_session_replay_end(session));
  EXPECT_NULL("session", commsched_session_status(NULL));
  EXPECT_NULL("session",
              commsched_session_buffer_version(NULL, step->grad, &version));
  EXPECT_NULL("out_version",
              commsched_session_buffer_version(session, step->grad, NULL));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "88",
               commsched_session_buffer_version(session, 88, &version));
  EXPECT_NULL("session", commsched_session_get_counters(NULL, &counters));
  EXPECT_NULL("out_counters", commsched_session_get_counters(session, NULL));
  counters.struct_size = 0;
  EXPECT_UNSIZED(commsched_session_get_counters(session, &counters));
  EXPECT_NULL("session", commsched_session_metrics_text(NULL, &text));
  EXPECT_NULL("out_text", commsched_session_metrics_text(session, NULL));
  EXPECT_NULL("session", commsched_session_launch_estimate(NULL, 0, &estimate));
  EXPECT_NULL("out_estimate",
              commsched_session_launch_estimate(session, 0, NULL));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "launch is 7, the plan has 1",
               commsched_session_launch_estimate(session, 7, &estimate));
  EXPECT_NULL("session", commsched_session_explain(NULL, 0, &text));
  EXPECT_NULL("out_text", commsched_session_explain(session, 0, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "format is 3",
               commsched_session_explain(session, 3, &text));
  EXPECT_NULL("session", commsched_session_collective_cpu_ns(NULL, cpu_ns, 3));
  EXPECT_NULL("out_ns", commsched_session_collective_cpu_ns(session, NULL, 3));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "num_ops is 4",
               commsched_session_collective_cpu_ns(session, cpu_ns, 4));
  EXPECT_NULL("fn", commsched_session_run(session, NULL, NULL, 1));
}

static commsched_status_t refuse(void* user, commsched_op_id_t op,
                                 commsched_stream_t stream) {
  (void)op;
  (void)stream;
  return *(const commsched_status_t*)user;
}

/* Fails because a call of the library's does. */
static commsched_status_t fail_in_library(void* user, commsched_op_id_t op,
                                          commsched_stream_t stream) {
  (void)user;
  (void)op;
  (void)stream;
  return commsched_session_status(NULL);
}

/* The session's failure says what the callback was refused. */
static void test_callback_cause(const struct c_step* step,
                                struct c_rank* rank) {
  commsched_binding_t bindings[2];
  const commsched_session_desc_t desc = c_session_desc(step, rank, bindings);
  commsched_session_t* session = NULL;
  EXPECT_OK(commsched_session_create(&desc, &session));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "argument 'session' is NULL",
               commsched_session_run(session, fail_in_library, NULL, 1));
  commsched_session_destroy(session);
}

/* The first failure is what every later call returns. */
static void test_callback_failure(const struct c_step* step,
                                  struct c_rank* rank,
                                  commsched_status_t returned,
                                  commsched_status_t expected) {
  commsched_binding_t bindings[2];
  const commsched_session_desc_t desc = c_session_desc(step, rank, bindings);
  commsched_session_t* session = NULL;
  char* metrics = NULL;
  EXPECT_NULL("session", commsched_session_run(NULL, refuse, &returned, 1));
  EXPECT_OK(commsched_session_create(&desc, &session));
  EXPECT_FAILS(expected, "'backward'",
               commsched_session_run(session, refuse, &returned, 1));
  EXPECT_FAILS(expected, "'backward'", commsched_session_status(session));
  EXPECT_FAILS(expected, "'backward'", commsched_session_step_begin(session));
  EXPECT_FAILS(expected, "'backward'", commsched_session_drain(session));
  commsched_session_abort(session, "too late to be the first failure");
  EXPECT_FAILS(expected, "'backward'", commsched_session_status(session));
  EXPECT_OK(commsched_session_metrics_text(session, &metrics));
  EXPECT(strstr(metrics,
                "commsched_session_failures_total{rank=\"0\",code=\"") != NULL);
  EXPECT(strstr(metrics, "code=\"OK\"") == NULL);
  commsched_string_free(metrics);
  commsched_session_destroy(session);
}

static void test_alone(const struct c_step* step, const char* backend) {
  commsched_world_t* world = c_new_world(1, backend);
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc;
  struct c_rank rank;
  c_open_rank(&rank, world, 0);
  desc = c_session_desc(step, &rank, bindings);
  EXPECT_OK(commsched_session_create(&desc, &rank.session));
  test_call_order(step, rank.session);
  test_arguments(step, rank.session);
  commsched_session_destroy(rank.session);
  rank.session = NULL;
  test_desc(step, &rank);
  test_bindings(step, &rank);
  test_callback_cause(step, &rank);
  test_callback_failure(step, &rank, COMMSCHED_DATA_LOSS, COMMSCHED_DATA_LOSS);
  test_callback_failure(step, &rank, 1234, COMMSCHED_UNKNOWN);
  c_close_rank(&rank);
  commsched_world_destroy(world);
}

/* One rank gives up; the other learns of it while it waits. */
struct pair {
  const struct c_step* step;
  commsched_world_t* world;
};

static void* give_up(void* argument) {
  const struct pair* pair = argument;
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc;
  struct c_rank rank;
  c_open_rank(&rank, pair->world, 1);
  desc = c_session_desc(pair->step, &rank, bindings);
  EXPECT_OK(commsched_session_create(&desc, &rank.session));
  commsched_session_abort(rank.session, "rank 1 gives up");
  EXPECT_FAILS(COMMSCHED_ABORTED, "rank 1 gives up",
               commsched_session_status(rank.session));
  c_close_rank(&rank);
  return NULL;
}

static void test_abort(const struct c_step* step) {
  const commsched_stream_t here = commsched_stream_caller();
  commsched_world_t* world = c_new_world(2, NULL);
  struct pair pair = {step, world};
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc;
  commsched_status_t status;
  struct c_rank rank;
  pthread_t other;
  EXPECT(pthread_create(&other, NULL, give_up, &pair) == 0);
  c_open_rank(&rank, world, 0);
  desc = c_session_desc(step, &rank, bindings);
  EXPECT_OK(commsched_session_create(&desc, &rank.session));
  /* Until the news arrives steps go on; `before` of update needs rank 1. */
  status = commsched_session_step_begin(rank.session);
  if (status == COMMSCHED_OK) {
    status = commsched_session_before(rank.session, step->backward, here);
  }
  if (status == COMMSCHED_OK) {
    status = commsched_session_after(rank.session, step->backward, here);
  }
  if (status == COMMSCHED_OK) {
    status = commsched_session_before(rank.session, step->update, here);
  }
  EXPECT_FAILS(COMMSCHED_ABORTED, "rank 1 gives up", status);
  EXPECT_FAILS(COMMSCHED_ABORTED, "rank 1 gives up",
               commsched_session_status(rank.session));
  pthread_join(other, NULL);
  commsched_session_abort(NULL, "nobody");
  commsched_session_abort(rank.session, NULL);
  c_close_rank(&rank);
  commsched_world_destroy(world);
}

/* What one rank is refused, the other need not wait for. */
static void test_refused_elsewhere(const struct c_step* step) {
  commsched_world_t* world = c_new_world(2, NULL);
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc;
  struct c_rank refused, rank;
  c_open_rank(&refused, world, 1);
  desc = c_session_desc(step, &refused, bindings);
  desc.reserved = 7;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "desc.reserved is 7", create(&desc));
  c_open_rank(&rank, world, 0);
  desc = c_session_desc(step, &rank, bindings);
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION,
               "rank 1 will not come: desc.reserved is 7", create(&desc));
  c_close_rank(&rank);
  c_close_rank(&refused);
  commsched_world_destroy(world);
}

void test_session_errors(void) {
  struct c_step alone = c_new_step(1);
  struct c_step both = c_new_step(2);
  test_alone(&alone, "null");
  test_alone(&alone, NULL);
  test_foreign_handles(&both);
  test_refused_elsewhere(&both);
  test_abort(&both);
  commsched_session_destroy(NULL);
  c_destroy_step(&alone);
  c_destroy_step(&both);
}
