/* Traces. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

enum { STEPS = 4 };

static commsched_status_t nothing(void* user, commsched_op_id_t op,
                                  commsched_stream_t stream) {
  (void)user;
  (void)op;
  (void)stream;
  return COMMSCHED_OK;
}

static void test_create(commsched_context_t* context) {
  commsched_trace_t* trace = NULL;
  EXPECT_NULL("context", commsched_trace_create(NULL, 1024, &trace));
  EXPECT_NULL("out_trace", commsched_trace_create(context, 1024, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "1023",
               commsched_trace_create(context, 1023, &trace));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "67108865",
               commsched_trace_create(context, (1u << 26) + 1, &trace));
  EXPECT(trace == NULL);
}

static void test_metrics(const commsched_trace_t* trace) {
  commsched_step_metrics_t metrics = commsched_step_metrics_init();
  /* A step is complete when its successor has begun. */
  EXPECT(commsched_trace_num_steps(trace) == STEPS - 1);
  EXPECT_NULL("trace", commsched_trace_step_metrics(NULL, 0, &metrics));
  EXPECT_NULL("out_metrics", commsched_trace_step_metrics(trace, 0, NULL));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "step 3",
               commsched_trace_step_metrics(trace, STEPS - 1, &metrics));
  EXPECT_OK(commsched_trace_step_metrics(trace, 2, &metrics));
  EXPECT(metrics.step == 2);
  EXPECT(metrics.step_ns > 0);
  EXPECT(metrics.exposed_ns <= metrics.comm_ns);
  EXPECT(metrics.num_launches == 1);
  EXPECT(metrics.num_collectives == 1);
  EXPECT(metrics.struct_size == sizeof(metrics));
  metrics.struct_size = 0;
  EXPECT_UNSIZED(commsched_trace_step_metrics(trace, 0, &metrics));
}

static void test_blame(const commsched_trace_t* trace) {
  commsched_blame_t blame = commsched_blame_init();
  commsched_step_metrics_t metrics = commsched_step_metrics_init();
  char* text = NULL;
  EXPECT_NULL("trace", commsched_trace_step_blame(NULL, 0, &blame));
  EXPECT_NULL("out_blame", commsched_trace_step_blame(trace, 0, NULL));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "step 3",
               commsched_trace_step_blame(trace, STEPS - 1, &blame));
  EXPECT_OK(commsched_trace_step_metrics(trace, 2, &metrics));
  EXPECT_OK(commsched_trace_step_blame(trace, 2, &blame));
  EXPECT(blame.step == 2);
  EXPECT(blame.exposed_ns == metrics.exposed_ns);
  EXPECT(blame.cap_ns + blame.dependency_ns + blame.order_ns + blame.link_ns +
             blame.straggler_ns ==
         blame.exposed_ns);
  blame.struct_size = 0;
  EXPECT_UNSIZED(commsched_trace_step_blame(trace, 0, &blame));

  EXPECT_NULL("trace", commsched_trace_explain(NULL, COMMSCHED_TEXT, &text));
  EXPECT_NULL("out_text", commsched_trace_explain(trace, COMMSCHED_TEXT, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "format is 2",
               commsched_trace_explain(trace, COMMSCHED_DOT, &text));
  EXPECT(text == NULL);
  EXPECT_OK(commsched_trace_explain(trace, COMMSCHED_TEXT, &text));
  EXPECT(text != NULL && strstr(text, "mean of 3 steps") != NULL);
  commsched_string_free(text);
  EXPECT_OK(commsched_trace_explain(trace, COMMSCHED_JSON, &text));
  EXPECT(text != NULL && text[0] == '{');
  commsched_string_free(text);
}

static void test_recent_step(const commsched_trace_t* trace) {
  commsched_step_metrics_t metrics = commsched_step_metrics_init();
  EXPECT_NULL("trace", commsched_trace_recent_step(NULL, 0, &metrics));
  EXPECT_NULL("out_metrics", commsched_trace_recent_step(trace, 0, NULL));
  EXPECT_OK(commsched_trace_recent_step(trace, STEPS - 1, &metrics));
  EXPECT(metrics.step == STEPS - 1 && metrics.step_ns > 0);
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "step 1000",
               commsched_trace_recent_step(trace, 1000, &metrics));
  metrics.struct_size = 0;
  EXPECT_UNSIZED(commsched_trace_recent_step(trace, 0, &metrics));
}

static void test_kineto(const commsched_trace_t* trace) {
  const char* path = "c_api_test_trace.json";
  char start[2] = {0};
  FILE* file;
  EXPECT_NULL("trace", commsched_trace_write_kineto(NULL, path));
  EXPECT_NULL("path", commsched_trace_write_kineto(trace, NULL));
  EXPECT_FAILS(COMMSCHED_UNAVAILABLE, "/nowhere",
               commsched_trace_write_kineto(trace, "/nowhere/trace.json"));
  EXPECT_NULL("trace", commsched_trace_write_perfetto(NULL, path));
  EXPECT_NULL("path", commsched_trace_write_perfetto(trace, NULL));
  EXPECT_OK(commsched_trace_write_perfetto(trace, path));
  EXPECT_NULL("trace", commsched_trace_write_metrics(NULL, path));
  EXPECT_NULL("path", commsched_trace_write_metrics(trace, NULL));
  EXPECT_OK(commsched_trace_write_metrics(trace, path));
  EXPECT_OK(commsched_trace_write_kineto(trace, path));
  file = fopen(path, "r");
  EXPECT(file != NULL);
  if (file == NULL) return;
  EXPECT(fread(start, 1, 1, file) == 1 && start[0] == '{');
  fclose(file);
  remove(path);
}

void test_trace(void) {
  commsched_world_t* world = c_new_world(1, NULL);
  struct c_step step = c_new_step(1);
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc;
  commsched_trace_t* trace = NULL;
  struct c_rank rank;
  c_open_rank(&rank, world, 0);
  test_create(rank.context);
  EXPECT_OK(commsched_trace_create(rank.context, 1024, &trace));
  EXPECT(commsched_trace_num_steps(trace) == 0);
  EXPECT(commsched_trace_num_steps(NULL) == 0);
  desc = c_session_desc(&step, &rank, bindings);
  desc.trace = trace;
  EXPECT_OK(commsched_session_create(&desc, &rank.session));
  EXPECT_OK(commsched_session_run(rank.session, nothing, NULL, STEPS));
  EXPECT_OK(commsched_session_drain(rank.session));
  test_metrics(trace);
  test_blame(trace);
  test_recent_step(trace);
  test_kineto(trace);
  commsched_trace_destroy(trace); /* The session keeps it. */
  EXPECT_OK(commsched_session_run(rank.session, nothing, NULL, 1));
  commsched_trace_destroy(NULL);
  c_close_rank(&rank);
  c_destroy_step(&step);
  commsched_world_destroy(world);
}
