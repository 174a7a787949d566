/* Sessions that run: two ranks on "inproc", one thread each. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

enum { RANKS = 2, STEPS = 3 };

/* What every rank's thread is given. */
struct job {
  const struct c_step* step;
  commsched_world_t* world;
  int32_t rank;
  void (*body)(struct job* job, struct c_rank* rank);
};

static void* run_rank(void* argument) {
  struct job* job = argument;
  struct c_rank rank;
  c_open_rank(&rank, job->world, job->rank);
  job->body(job, &rank);
  c_close_rank(&rank);
  return NULL;
}

static void on_all_ranks(const struct c_step* step,
                         void (*body)(struct job*, struct c_rank*)) {
  commsched_world_t* world = c_new_world(RANKS, NULL);
  struct job jobs[RANKS];
  pthread_t threads[RANKS];
  for (int32_t i = 0; i < RANKS; ++i) {
    jobs[i].step = step;
    jobs[i].world = world;
    jobs[i].rank = i;
    jobs[i].body = body;
    EXPECT(pthread_create(&threads[i], NULL, run_rank, &jobs[i]) == 0);
  }
  for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
  commsched_world_destroy(world);
}

static void open_session(struct job* job, struct c_rank* rank) {
  commsched_binding_t bindings[2];
  const commsched_session_desc_t desc =
      c_session_desc(job->step, rank, bindings);
  EXPECT_OK(commsched_session_create(&desc, &rank->session));
}

/* The ops' work. The sum over two ranks of (rank + 1) * step is 3 * step. */
static void backward(struct c_rank* rank, int32_t number, int step) {
  for (int i = 0; i < C_COUNT; ++i) {
    rank->grad[i] = (float)((number + 1) * step);
  }
}

static void update(struct c_rank* rank) {
  for (int i = 0; i < C_COUNT; ++i) rank->weights[i] += rank->grad[i];
}

static void expect_weights(const struct c_rank* rank, int num_steps) {
  const float expected = 3.0f * (float)(num_steps * (num_steps + 1) / 2);
  for (int i = 0; i < C_COUNT; ++i) EXPECT(rank->weights[i] == expected);
}

static void expect_counters(const struct c_rank* rank,
                            const struct c_step* step) {
  commsched_session_counters_t counters = commsched_session_counters_init();
  char* metrics = NULL;
  const char* sample;
  int world_rank = -1;
  int value = -1;
  uint64_t version = 99;
  int64_t cpu_ns[3] = {-1, -1, -1};
  EXPECT_OK(commsched_session_get_counters(rank->session, &counters));
  EXPECT(counters.steps == STEPS);
  EXPECT(counters.launches == STEPS);
  EXPECT(counters.collectives == STEPS);
  EXPECT(counters.bytes == STEPS * C_COUNT * sizeof(float));
  EXPECT(counters.peak_launches_in_flight == 1);
  EXPECT_OK(commsched_session_metrics_text(rank->session, &metrics));
  EXPECT(strstr(metrics, "# TYPE commsched_session_steps_total counter\n") !=
         NULL);
  sample = strstr(metrics, "\ncommsched_session_steps_total{");
  EXPECT(sample != NULL &&
         sscanf(sample, "\ncommsched_session_steps_total{rank=\"%d\"} %d\n",
                &world_rank, &value) == 2);
  EXPECT(world_rank >= 0 && world_rank < RANKS && value == STEPS);
  EXPECT(strstr(metrics, "cause=\"window\"} ") != NULL);
  EXPECT(strstr(metrics, "code=\"OK\"} 0\n") != NULL);
  commsched_string_free(metrics);
  EXPECT_OK(
      commsched_session_buffer_version(rank->session, step->grad, &version));
  EXPECT(version == STEPS);
  EXPECT_OK(commsched_session_collective_cpu_ns(rank->session, cpu_ns, 3));
  EXPECT(cpu_ns[step->backward] == 0);
  EXPECT(cpu_ns[step->reduce] >= 0);
  EXPECT(cpu_ns[step->update] == 0);
}

/* "inproc" tells nothing of how it does a launch. */
static void expect_explanation(const struct c_rank* rank) {
  commsched_launch_estimate_t estimate = commsched_launch_estimate_init();
  char* text = NULL;
  EXPECT_FAILS(COMMSCHED_UNIMPLEMENTED, "backend 'inproc' does not tell",
               commsched_session_launch_estimate(rank->session, 0, &estimate));
  EXPECT_OK(commsched_session_explain(rank->session, COMMSCHED_TEXT, &text));
  EXPECT(strstr(text, "launches, in key order:") != NULL);
  EXPECT(strstr(text, "backend '") == NULL);
  commsched_string_free(text);
  EXPECT_OK(commsched_session_explain(rank->session, COMMSCHED_JSON, &text));
  EXPECT(strstr(text, "\"backend\": \"inproc\"") != NULL);
  commsched_string_free(text);
  EXPECT_OK(commsched_session_explain(rank->session, COMMSCHED_DOT, &text));
  EXPECT(strstr(text, "digraph") != NULL);
  commsched_string_free(text);
}

/* The framework drives: before and after around its own work. */
static void drive(struct job* job, struct c_rank* rank) {
  const commsched_stream_t here = commsched_stream_caller();
  const struct c_step* step = job->step;
  uint64_t version = 99;
  open_session(job, rank);
  EXPECT_OK(
      commsched_session_buffer_version(rank->session, step->grad, &version));
  EXPECT(version == 0);
  for (int t = 1; t <= STEPS; ++t) {
    EXPECT_OK(commsched_session_step_begin(rank->session));
    EXPECT_OK(commsched_session_before(rank->session, step->backward, here));
    backward(rank, job->rank, t);
    EXPECT_OK(commsched_session_after(rank->session, step->backward, here));
    EXPECT_OK(commsched_session_before(rank->session, step->update, here));
    update(rank);
    EXPECT_OK(commsched_session_after(rank->session, step->update, here));
    EXPECT_OK(commsched_session_step_end(rank->session));
  }
  EXPECT_OK(commsched_session_drain(rank->session));
  EXPECT_OK(commsched_session_status(rank->session));
  expect_weights(rank, STEPS);
  expect_counters(rank, step);
  expect_explanation(rank);
}

/* The session drives and calls back. */
struct callback {
  struct job* job;
  struct c_rank* rank;
  int step;
};

static commsched_status_t compute(void* user, commsched_op_id_t op,
                                  commsched_stream_t stream) {
  struct callback* callback = user;
  EXPECT(stream.kind == COMMSCHED_STREAM_CALLER && stream.native == NULL);
  if (op == callback->job->step->backward) {
    backward(callback->rank, callback->job->rank, ++callback->step);
  } else {
    EXPECT(op == callback->job->step->update);
    update(callback->rank);
  }
  return COMMSCHED_OK;
}

static void be_driven(struct job* job, struct c_rank* rank) {
  struct callback callback = {job, rank, 0};
  open_session(job, rank);
  EXPECT_OK(commsched_session_run(rank->session, compute, &callback, STEPS));
  EXPECT_OK(commsched_session_drain(rank->session));
  expect_weights(rank, STEPS);
  expect_counters(rank, job->step);
}

/* Work goes to a worker thread. */
struct work {
  struct callback callback;
  commsched_stream_t lane;
};

static void backward_on_lane(void* user) {
  struct callback* callback = user;
  backward(callback->rank, callback->job->rank, ++callback->step);
}

static void update_on_lane(void* user) {
  update(((struct callback*)user)->rank);
}

static commsched_status_t enqueue(void* user, commsched_op_id_t op,
                                  commsched_stream_t stream) {
  struct work* work = user;
  EXPECT(stream.kind == COMMSCHED_STREAM_HOST);
  EXPECT(stream.native == work->lane.native);
  return commsched_host_stream_enqueue(stream,
                                       op == work->callback.job->step->backward
                                           ? backward_on_lane
                                           : update_on_lane,
                                       &work->callback);
}

static void call_on_lane(struct work* work, commsched_op_id_t op) {
  commsched_session_t* session = work->callback.rank->session;
  EXPECT_OK(commsched_session_before(session, op, work->lane));
  EXPECT_OK(enqueue(work, op, work->lane));
  EXPECT_OK(commsched_session_after(session, op, work->lane));
}

static void on_host_lane(struct job* job, struct c_rank* rank) {
  struct work work = {{job, rank, 0}, {0, 0, NULL}};
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc = c_session_desc(job->step, rank, bindings);
  EXPECT_OK(
      commsched_host_stream_create(rank->context, "lane", 64, &work.lane));
  desc.lanes = &work.lane;
  desc.num_lanes = 1;
  EXPECT_OK(commsched_session_create(&desc, &rank->session));
  EXPECT_OK(commsched_session_step_begin(rank->session));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "lane",
               commsched_session_before(rank->session, job->step->backward,
                                        commsched_stream_caller()));
  call_on_lane(&work, job->step->backward);
  call_on_lane(&work, job->step->update);
  EXPECT_OK(commsched_session_step_end(rank->session));
  EXPECT_OK(commsched_session_run(rank->session, enqueue, &work, STEPS - 1));
  EXPECT_OK(commsched_session_drain(rank->session));
  EXPECT_OK(commsched_stream_synchronize(work.lane));
  expect_weights(rank, STEPS);
  commsched_session_destroy(rank->session);
  rank->session = NULL;
  commsched_host_stream_destroy(work.lane);
}

/* An owned buffer has an address, the same for every op and step. */
static void look_at_addresses(struct job* job, struct c_rank* rank) {
  const struct c_step* step = job->step;
  void* written = NULL;
  void* read = NULL;
  void* none = NULL;
  open_session(job, rank);
  EXPECT_OK(commsched_session_address(rank->session, step->backward,
                                      step->scratch, &written));
  EXPECT_OK(commsched_session_address(rank->session, step->update,
                                      step->scratch, &read));
  EXPECT(written == read && written != NULL);
  EXPECT_OK(commsched_session_address(rank->session, step->update, step->grad,
                                      &read));
  EXPECT(read == rank->grad);
  EXPECT_NULL("session", commsched_session_address(NULL, step->backward,
                                                   step->scratch, &none));
  EXPECT_NULL("out_address",
              commsched_session_address(rank->session, step->backward,
                                        step->scratch, NULL));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "weights",
               commsched_session_address(rank->session, step->backward,
                                         step->weights, &none));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "55",
               commsched_session_address(rank->session, 55, step->grad, &none));
  EXPECT_FAILS(
      COMMSCHED_NOT_FOUND, "66",
      commsched_session_address(rank->session, step->backward, 66, &none));
  EXPECT(none == NULL);
}

/* Handles may go in any order: the session keeps what it needs. */
static void destroy_parents_first(struct job* job, struct c_rank* rank) {
  struct callback callback = {job, rank, 0};
  open_session(job, rank);
  commsched_group_destroy(rank->group);
  rank->group = NULL;
  commsched_context_destroy(rank->context);
  rank->context = NULL;
  EXPECT_OK(commsched_session_run(rank->session, compute, &callback, STEPS));
  EXPECT_OK(commsched_session_drain(rank->session));
  expect_weights(rank, STEPS);
}

void test_session(void) {
  struct c_step step = c_new_step(RANKS);
  on_all_ranks(&step, drive);
  on_all_ranks(&step, be_driven);
  on_all_ranks(&step, on_host_lane);
  on_all_ranks(&step, look_at_addresses);
  on_all_ranks(&step, destroy_parents_first);
  c_destroy_step(&step);
}
