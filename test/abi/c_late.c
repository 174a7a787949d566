/* Buffers bound late, memory given back, buffers poisoned, and the flight
 * record: two ranks on "inproc", one thread each. */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "c_check.h"

enum { RANKS = 2, STEPS = 4 };

/* "make" writes "fresh", late-bound, of at most C_COUNT elements; "sum" reduces
 * it in place; "use" reads it. */
struct late_step {
  commsched_graph_t* graph;
  commsched_plan_t* plan;
  commsched_buffer_id_t fresh;
  commsched_op_id_t make, sum, use;
};

struct late_rank {
  const struct late_step* step;
  commsched_world_t* world;
  int32_t number;
  pthread_barrier_t* begun; /* the step that fails */
};

static void new_late_step(struct late_step* step) {
  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  commsched_compute_desc_t compute = commsched_compute_desc_init();
  commsched_collective_desc_t sum = commsched_collective_desc_init();
  commsched_access_t access;
  memset(&access, 0, sizeof(access));
  EXPECT_OK(commsched_graph_create(&step->graph));
  EXPECT_OK(commsched_graph_add_group(step->graph, "dp", RANKS, &sum.group));
  buffer.name = "fresh";
  buffer.ownership = COMMSCHED_LATE_BOUND;
  buffer.count = C_COUNT;
  EXPECT_OK(commsched_graph_add_buffer(step->graph, &buffer, &step->fresh));
  access.buffer = step->fresh;
  access.mode = COMMSCHED_WRITE;
  compute.name = "make";
  compute.accesses = &access;
  compute.num_accesses = 1;
  EXPECT_OK(commsched_graph_add_compute(step->graph, &compute, &step->make));
  sum.name = "sum";
  sum.input.buffer = step->fresh;
  sum.output.buffer = step->fresh;
  EXPECT_OK(commsched_graph_add_collective(step->graph, &sum, &step->sum));
  access.mode = COMMSCHED_READ;
  compute.name = "use";
  EXPECT_OK(commsched_graph_add_compute(step->graph, &compute, &step->use));
  EXPECT_OK(commsched_plan_build(step->graph, NULL, NULL, &step->plan));
}

static void expect_refused(commsched_session_t* session,
                           const struct late_step* step, float* memory) {
  const commsched_stream_t caller = commsched_stream_caller();
  const uint64_t one = 1;
  commsched_late_binding_t binding;
  memset(&binding, 0, sizeof(binding));
  binding.buffer = step->fresh;
  binding.address = memory;
  binding.count = C_COUNT + 1;
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "fresh",
      commsched_session_after_bound(session, step->make, caller, &binding, 1));
  binding.count = 1;
  binding.counts = &one;
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "bindings[0].counts is given, with 0",
      commsched_session_after_bound(session, step->make, caller, &binding, 1));
  binding.counts = NULL;
  binding.address = NULL;
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "fresh",
      commsched_session_after_bound(session, step->make, caller, &binding, 1));
  EXPECT_FAILS(
      COMMSCHED_FAILED_PRECONDITION, "fresh",
      commsched_session_after_bound(session, step->make, caller, &binding, 0));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "fresh",
               commsched_session_after(session, step->make, caller));
  EXPECT_NULL("session", commsched_session_after_bound(NULL, step->make, caller,
                                                       &binding, 1));
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "bindings",
      commsched_session_after_bound(session, step->make, caller, NULL, 1));
}

/* Step t: t + 1 elements, at another address in each step. */
static void run_step(const struct late_rank* rank, commsched_session_t* session,
                     int t) {
  const commsched_stream_t caller = commsched_stream_caller();
  const struct late_step* step = rank->step;
  float memory[STEPS][C_COUNT];
  commsched_late_binding_t binding;
  memset(&binding, 0, sizeof(binding));
  EXPECT_OK(commsched_session_step_begin(session));
  EXPECT_OK(commsched_session_before(session, step->make, caller));
  for (int i = 0; i < C_COUNT; ++i) memory[t][i] = (float)(rank->number + 1);
  if (t == 0) expect_refused(session, step, memory[t]);
  binding.buffer = step->fresh;
  binding.address = memory[t];
  binding.count = (uint64_t)t + 1;
  EXPECT_OK(
      commsched_session_after_bound(session, step->make, caller, &binding, 1));
  EXPECT_OK(commsched_session_before(session, step->use, caller));
  for (int i = 0; i < C_COUNT; ++i) {
    EXPECT(memory[t][i] == (i <= t ? 3.0f : (float)(rank->number + 1)));
  }
  EXPECT_OK(commsched_session_after(session, step->use, caller));
  EXPECT_OK(commsched_session_step_end(session));
  EXPECT_OK(commsched_session_buffer_release(session, step->fresh, caller));
}

static void expect_flight_record(const char* path) {
  char* text = NULL;
  EXPECT_OK(commsched_flight_record_read(path, &text));
  if (text != NULL) {
    EXPECT(strstr(text, "sum") != NULL);
    EXPECT(strstr(text, "no more") != NULL); /* the failure */
  }
  commsched_string_free(text);
  EXPECT_NULL("path", commsched_flight_record_read(NULL, &text));
  EXPECT_NULL("out_text", commsched_flight_record_read(path, NULL));
  EXPECT_FAILS(COMMSCHED_UNAVAILABLE, "/nowhere",
               commsched_flight_record_read("/nowhere/flight", &text));

  EXPECT_OK(commsched_flight_records_compare(&path, 1, COMMSCHED_TEXT, &text));
  EXPECT(strstr(text, "failed: ") != NULL);
  commsched_string_free(text);
  EXPECT_OK(commsched_flight_records_compare(&path, 1, COMMSCHED_JSON, &text));
  EXPECT(strstr(text, "commsched-flight/1") != NULL);
  commsched_string_free(text);
  {
    const char* const twice[] = {path, path};
    const char* const none[] = {NULL};
    const char* const nowhere[] = {"/nowhere/flight"};
    EXPECT_FAILS(
        COMMSCHED_INVALID_ARGUMENT, "two flight records are of rank",
        commsched_flight_records_compare(twice, 2, COMMSCHED_TEXT, &text));
    EXPECT_FAILS(
        COMMSCHED_INVALID_ARGUMENT, "no flight record",
        commsched_flight_records_compare(twice, 0, COMMSCHED_TEXT, &text));
    EXPECT_NULL("paths[]", commsched_flight_records_compare(
                               none, 1, COMMSCHED_TEXT, &text));
    EXPECT_NULL("paths", commsched_flight_records_compare(
                             NULL, 0, COMMSCHED_TEXT, &text));
    EXPECT_NULL("out_text", commsched_flight_records_compare(
                                twice, 1, COMMSCHED_TEXT, NULL));
    EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "format is 9",
                 commsched_flight_records_compare(twice, 1, 9, &text));
    EXPECT_FAILS(
        COMMSCHED_UNAVAILABLE, "/nowhere/flight",
        commsched_flight_records_compare(nowhere, 1, COMMSCHED_TEXT, &text));
  }
}

/* A step that another rank's failure cuts short. */
static void fail(const struct late_rank* rank, commsched_session_t* session) {
  const struct late_step* step = rank->step;
  uint32_t poisoned = 7;
  EXPECT_OK(commsched_session_buffer_poisoned(session, step->fresh, &poisoned));
  EXPECT(poisoned == 0);
  EXPECT_OK(commsched_session_step_begin(session));
  pthread_barrier_wait(rank->begun);
  if (rank->number == 0) commsched_session_abort(session, "no more");
  const time_t limit = time(NULL) + 120;
  while (commsched_session_status(session) == COMMSCHED_OK) {
    if (time(NULL) > limit) {
      EXPECT(!"the abort of rank 0 never came");
      return;
    }
  }
  EXPECT_FAILS(
      COMMSCHED_ABORTED, "no more",
      commsched_session_before(session, step->make, commsched_stream_caller()));
  EXPECT_OK(commsched_session_buffer_poisoned(session, step->fresh, &poisoned));
  EXPECT(poisoned == 1);
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "99",
               commsched_session_buffer_poisoned(session, 99, &poisoned));
  EXPECT_NULL("out_poisoned",
              commsched_session_buffer_poisoned(session, step->fresh, NULL));
}

static void* run_rank(void* argument) {
  struct late_rank* rank = argument;
  commsched_session_desc_t desc = commsched_session_desc_init();
  commsched_session_t* session = NULL;
  commsched_group_t* group = NULL;
  const int32_t ranks[RANKS] = {0, 1};
  char path[64];
  commsched_context_t* context = c_new_context(rank->world, rank->number);
  snprintf(path, sizeof(path), "c_late.rank%d.flight", rank->number);
  EXPECT_OK(commsched_group_create(context, "dp", ranks, RANKS, &group));
  desc.context = context;
  desc.plan = rank->step->plan;
  desc.groups = &group;
  desc.num_groups = 1;
  desc.flight_path = path;
  EXPECT_OK(commsched_session_create(&desc, &session));
  if (session != NULL) {
    for (int t = 0; t < STEPS; ++t) run_step(rank, session, t);
    EXPECT_OK(commsched_session_drain(session));
    EXPECT_FAILS(COMMSCHED_NOT_FOUND, "99",
                 commsched_session_buffer_release(session, 99,
                                                  commsched_stream_caller()));
    fail(rank, session);
  }
  commsched_session_destroy(session);
  expect_flight_record(path);
  remove(path);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  return NULL;
}

void test_late(void) {
  struct late_step step;
  struct late_rank ranks[RANKS];
  pthread_t threads[RANKS];
  pthread_barrier_t begun;
  commsched_world_t* world = c_new_world(RANKS, NULL);
  memset(&step, 0, sizeof(step));
  new_late_step(&step);
  EXPECT(pthread_barrier_init(&begun, NULL, RANKS) == 0);
  for (int32_t i = 0; i < RANKS; ++i) {
    ranks[i].step = &step;
    ranks[i].world = world;
    ranks[i].number = i;
    ranks[i].begun = &begun;
    EXPECT(pthread_create(&threads[i], NULL, run_rank, &ranks[i]) == 0);
  }
  for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&begun);
  commsched_plan_destroy(step.plan);
  commsched_graph_destroy(step.graph);
  commsched_world_destroy(world);
}
